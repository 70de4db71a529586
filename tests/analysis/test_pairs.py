"""Tests of the names of pairs of measurements."""

from __future__ import annotations

import pandas as pd

from rbptrack.analysis.pairs import pair_name
from rbptrack.facts import DISTINGUISHING_COLUMNS


def run(**columns: object) -> pd.Series:
    """Return a row of `Runs.frame` with these columns. The other columns that tell runs apart are None."""
    return pd.Series({**dict.fromkeys(DISTINGUISHING_COLUMNS), **columns}, dtype=object)


def test_pair_name_leaves_out_quantisation_that_model_name_contains() -> None:
    published = run(model="nano-115k")
    quantised = run(model="nano-115k-int8", weights="int8 torchao")
    assert pair_name(published, quantised) == "nano-115k / nano-115k-int8"


def test_pair_name_adds_quantisation_to_equal_model_names() -> None:
    published = run(model="nano-115k")
    quantised = run(model="nano-115k", weights="int8 torchao")
    assert pair_name(published, quantised).endswith("nano-115k@int8 torchao")


def test_pair_name_keeps_sequence_length_whose_digits_model_name_contains() -> None:
    assert pair_name(run(model="m-20b", seq_len=20), run(model="m-20b", seq_len=40)).count("@") == 2
