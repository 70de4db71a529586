from __future__ import annotations

import numpy as np
import pytest

from plugins.compare import TEXT, Compare
from rbptrack.analysis import Runs
from rbptrack.errors import BadInput, RbptrackError
from rbptrack.ranks import RankTable
from tests.synthetic import family_runs, together

SIZES = np.geomspace(1e4, 1e7, 4)


def test_a_planted_difference_is_found_and_none_is_not() -> None:
    report = Compare(ks=[1], shown=1).analyze(
        together(
            family_runs(SIZES, alpha=0.1, a=3.0, family="one", tokens=1000),
            family_runs(SIZES, alpha=0.1, a=3.0, family="same", tokens=1000, seed=1),
            family_runs(SIZES, alpha=0.1, a=2.5, family="better", tokens=1000, seed=2),
        )
    )
    table = report.tables["summary"].frame.query("metric == 'RBP_1'").set_index(["A", "B"])
    assert table.loc[("better", "one"), ["A better", "B better", "unclear"]].tolist() == [4, 0, 0]
    assert table.loc[("one", "same"), "unclear"] >= 3
    row = report.tables["differences"].frame.query("metric == 'RBP_1' and A == 'better' and B == 'one'").iloc[0]
    truth = np.exp(-2.5 * row["S_A"] ** -0.1) - np.exp(-3 * row["S_B"] ** -0.1)
    assert row["low"] < truth < row["high"]
    assert row["paired"]
    assert any("better and one on text: RBP_1 is" in note and "in 4 of 4 pairs" in note for note in report.notes)


def shared(difficulty: bool, shift: float, seed: int) -> Runs:
    """One model of which documents differ a lot in difficulty, in the same way for every seed."""
    rng, base = np.random.default_rng(seed), family_runs([1e5], alpha=0.1, a=3.0, family=f"f{seed}")
    p = np.clip(np.random.default_rng(99).uniform(0.2, 0.8, 40) if difficulty else np.full(40, 0.5), 0, 1) + shift
    document = np.repeat(np.arange(40), 500)
    table = RankTable.from_arrays(
        vocab_size=64,
        document=document,
        position=np.tile(np.arange(500), 40),
        field=np.zeros(20000),
        token=np.zeros(20000),
        greater=np.where(rng.random(20000) < p[document], 0, 30),
        ties=np.zeros(20000),
        logprob=np.full(20000, -1.0),
    )
    return Runs(base.frame, histogram=lambda r: table.histogram(), ranks=lambda r: table)


def test_difficulty_that_both_share_does_not_widen_a_paired_difference() -> None:
    def width(difficulty: bool) -> float:
        runs = together(shared(difficulty, 0.0, 1), shared(difficulty, 0.02, 2))
        row = Compare(ks=[1], shown=1).analyze(runs).tables["differences"].frame.query("metric == 'RBP_1'").iloc[0]
        assert row["low"] < -0.02 < row["high"]
        return float(row["high"] - row["low"])

    assert width(True) < 1.5 * width(False), "documents' own spread is +-0.17, a paired difference is free of it"


def test_two_datasets_of_a_family_are_compared_unpaired() -> None:
    report = Compare(ks=[1], shown=1).analyze(
        together(
            family_runs(SIZES, alpha=0.1, a=3.0, dataset="prose", documents_hash="p"),
            family_runs(SIZES, alpha=0.1, a=2.0, dataset="code", documents_hash="c", seed=1),
        )
    )
    table = report.tables["differences"].frame
    assert not table["paired"].any()
    assert TEXT not in set(table["metric"]), "other texts: their nats do not compare"
    assert set(table["on"]) == {"toy"}
    exponents = report.tables["exponents"].frame.set_index("metric").loc["RBP_1"]
    assert exponents["low"] < 0 < exponents["high"]


def test_checkpoints_are_compared() -> None:
    runs = together(
        family_runs(SIZES, alpha=0.1, a=3.0, family="x", revision="step1"),
        family_runs(SIZES, alpha=0.1, a=2.5, family="y", revision="step2", seed=1),
    )
    runs.frame["family"] = "toy"
    summary = Compare(ks=[1], shown=1).analyze(runs).tables["summary"].frame
    assert set(summary["A"]) == {"toy step1"}
    assert set(summary["B"]) == {"toy step2"}
    assert summary["B better"].eq(4).all()


def test_other_tokens_are_said_and_the_text_still_compares() -> None:
    a = family_runs(SIZES, alpha=0.1, a=3.0, family="a", tokens=500)
    b = family_runs(SIZES, alpha=0.1, a=3.0, family="b", tokens=250, seed=1)
    report = Compare(ks=[1], shown=1).analyze(together(a, b))
    row = report.tables["differences"].frame.query("metric == @TEXT").iloc[0]
    assert not row["same_tokens"]
    assert row["difference"] == pytest.approx(np.log(2), abs=1e-9)
    assert any("different tokens" in note for note in report.notes)


def test_sides_may_be_chosen() -> None:
    runs = together(*[family_runs(SIZES, alpha=0.1, a=3.0, family=f, seed=i) for i, f in enumerate("abc")])
    summary = Compare(a="c/*", b="a/*").analyze(runs).tables["summary"].frame
    assert set(zip(summary["A"], summary["B"], strict=True)) == {("c", "a")}
    with pytest.raises(RbptrackError, match=r"nothing to compare: .*there is a/text, b/text, c/text \(a=z b=\*\)"):
        Compare(a="z").analyze(runs)
    with pytest.raises(BadInput, match=r"analyzer\.shown=7"):
        Compare(shown=7).analyze(runs)


def test_models_of_other_sizes_do_not_compare() -> None:
    runs = together(
        family_runs(SIZES, alpha=0.1, a=3.0, family="a"), family_runs(SIZES * 3, alpha=0.1, a=3.0, family="b")
    )
    with pytest.raises(RbptrackError, match="no two models of equal S"):
        Compare().analyze(runs)
