"""Names of pairs of measurements."""

from __future__ import annotations

import pandas as pd

from rbptrack.analysis.pairs import pair_name
from rbptrack.facts import TELL_APART


def row(**values: object) -> pd.Series:
    return pd.Series({**dict.fromkeys(TELL_APART), **values}, dtype=object)


def test_pair_name_leaves_out_a_quantisation_that_is_part_of_the_models_name() -> None:
    first = row(model="nano-115k")
    assert pair_name(first, row(model="nano-115k-int8", weights="int8 torchao")) == "nano-115k / nano-115k-int8"
    assert pair_name(first, row(model="nano-115k", weights="int8 torchao")).endswith("nano-115k@int8 torchao")


def test_pair_name_keeps_a_number_that_the_models_name_happens_to_contain() -> None:
    assert pair_name(row(model="m-20b", seq_len=20), row(model="m-20b", seq_len=40)).count("@") == 2
