"""Tests of pairs of measurements: their names, and the numbers of their comparison."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Report
from rbptrack.analysis.pairs import CHANGES_GLOSSARY, add_changes, pair_name, worst_documents, worst_tokens
from rbptrack.measurement.columns import DISTINGUISHING_COLUMNS
from rbptrack.stats.changes import compare
from tests.plugins.families_in_memory import family_runs
from tests.rank_tables import rank_table


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


def test_numbers_of_a_comparison_stand_in_their_columns() -> None:
    """Of two documents of five tokens, the ranks change in the first, and ln p in the second."""
    a = rank_table([1, 1, 2, 9, 1, 3, 3, 3, 3, 3], documents=2, top=np.zeros(10))
    logprob = np.repeat([-1.0, -1.5], 5)
    b = rank_table([2, 3, 1, 9, 1, 3, 3, 3, 3, 4], documents=2, logprob=logprob, top=np.zeros(10))
    changes = compare([a], [b], ks=(1,), worst=5)
    report = Report(CHANGES_GLOSSARY)
    add_changes(report, changes, family="f", dataset="d", pair="a / b")
    change = report.frame("change").set_index("metric")[["A", "B"]]
    assert change.loc[["ce", "rbp_1"]].to_numpy().tolist() == [[1, 1.25], [0.3, 0.2]]
    assert report.frame("flips")[["lost", "gained"]].iloc[0].tolist() == [0.2, 0.1]
    assert report.frame("same_top")[["same_top", "moved"]].iloc[0].tolist() == [1, 0.4]
    runs = family_runs({1e6: a})
    documents = worst_documents(runs, runs.frame.iloc[0], changes, 5)
    assert documents.to_dict("records") == [{"document": 1, "tokens": 5, "A": 1, "B": 1.5, "rise": 0.5}]
    tokens = worst_tokens(runs, runs.frame.iloc[0], changes.worst_tokens)
    assert tokens[["rank_A", "rank_B"]].iloc[-1].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("rise", "spread", "verdict"),
    [
        (4e-8, 1e-8, "same"),
        (2e-5, 5e-6, "same"),
        (2e-5, 1e-4, "undecided"),
        (5e-5, 1e-5, "above"),
        (5e-5, 1e-4, "undecided"),
    ],
)
def test_difference_of_ce_within_the_rounding_of_float32_is_none(rise: float, spread: float, verdict: str) -> None:
    """The rises of 40 equally long documents have this mean and standard deviation. Float32 is too coarse for them."""
    noise = np.random.default_rng(0).standard_normal(40)
    rises = rise + spread * (noise - noise.mean()) / noise.std()
    tables = [rank_table(np.ones(40), documents=40, logprob=np.full(40, -1.0)) for _ in "ab"]
    changes = compare([tables[0]], [tables[1]], ks=(1,), worst=0)
    report = Report(CHANGES_GLOSSARY)
    add_changes(report, replace(changes, b=replace(changes.b, nats=changes.a.nats + rises)), family="f", dataset="d")
    assert report.frame("change").set_index("metric").loc["ce", "verdict"] == verdict


def test_worst_groups_have_the_names_of_their_documents() -> None:
    a = rank_table(np.ones(4), documents=4)
    b = rank_table(np.ones(4), documents=4, logprob=np.array([-1, -1, -3, -1]))
    groups = ["z", "y", "x", "z"]
    runs = family_runs({1e6: a}, groups=groups)
    table = worst_documents(runs, runs.frame.iloc[0], compare([a], [b], ks=(1,), groups=groups), 5)
    assert table["group"].tolist() == ["x"]
    assert table["rise"].tolist() == [2]
