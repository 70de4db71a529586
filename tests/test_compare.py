from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from rbptrack.plugins.compare import Compare
from rbptrack.plugins.compare.differences import paired_differences, simultaneous_differences
from rbptrack.plugins.compare.rows import TEXT

from rbptrack.analysis import Runs
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.ranks import DocumentCounts, RankTable
from rbptrack.reporting.telling import sentences_of
from rbptrack.stats.contrasts import holm
from tests.synthetic import changed, family_runs, ranked, runs_of_tables, together, with_columns

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
    assert table.loc[("better", "one"), ["A_better", "B_better", "undecided"]].tolist() == [4, 0, 0]
    assert table.loc[("one", "same"), "undecided"] == 4
    row = report.tables["models"].frame.query("metric == 'RBP_1' and A == 'better' and B == 'one'").iloc[0]
    truth = np.exp(-2.5 * row["S_A"] ** -0.1) - np.exp(-3 * row["S_B"] ** -0.1)
    assert row["low"] < truth < row["high"]
    assert row["paired"]
    laws = report.tables["laws"].frame.query("metric == 'RBP_1'").set_index(["A", "B"])
    assert laws.loc[("better", "one"), "ratio_low"] < 2.5 / 3 < laws.loc[("better", "one"), "ratio_high"] < 1
    assert table.loc[("better", "one"), ["families", "exponents"]].tolist() == ["different", "undecided"]
    assert table.loc[("one", "same"), ["families", "exponents"]].tolist() == ["undecided"] * 2
    said = sentences_of(report.findings)
    assert said[0].startswith(
        "better and one follow different laws, with exponents without a significant difference (RBP_1"
    )
    assert "better and one on text: by RBP_1, better is better at 4 and one at 0 of 4 sizes" in " ".join(said)


def test_one_correction_for_all_cases_of_a_question() -> None:
    """`contrasts` counted uncorrected verdicts, `compare` corrected the same hypotheses metric by metric."""
    runs = [family_runs(SIZES, alpha=0.1, a=3.0 - i / 9, family=f"f{i}", tokens=1000, seed=i) for i in range(3)]
    report = Compare(ks=[1], shown=1).analyze(together(*runs))
    laws = report.tables["laws"].frame
    assert len(laws) == 6, "three pairs, CE and RBP_1"
    for question, column in (("laws apart", "p_families"), ("same exponents", "p_exponents")):
        mine = [one for one in report.findings if one.question == question]
        np.testing.assert_allclose(holm([one.p for one in mine]), [one.p_corrected for one in mine])
        np.testing.assert_allclose(laws[column], [one.p_corrected for one in mine])
        assert all(
            (one.verdict in ("different", "different, but within the margin")) == (one.p_corrected < 0.05)
            for one in mine
        )


def test_what_is_left_at_equal_cross_entropy() -> None:
    """CE is 2 a S^-alpha and -ln RBP_1 half of it in both families: nothing. With CE a tenth lower: something."""
    one, two = (
        family_runs(SIZES, alpha=0.1, a=a, family=f, tokens=4000, seed=i)
        for i, (a, f) in enumerate(((3.0, "one"), (2.7, "two")))
    )
    rows = Compare(ks=[1], shown=1).analyze(together(one, two)).tables["at_equal_ce"].frame
    assert rows["ratio_low"].iloc[0] < 1 < rows["ratio_high"].iloc[0]
    better = family_runs(SIZES, alpha=0.1, a=2.7, family="better", tokens=4000, seed=2)
    tables = {run_id: better.ranks(run_id) for run_id in better.frame["run_id"]}
    worse = {i: with_columns(t, logprob=t.column("logprob") * np.float32(3 / 2.7)) for i, t in tables.items()}
    report = Compare(ks=[1], shown=1).analyze(together(one, runs_of_tables(SIZES, worse, family="better")))
    row = report.tables["at_equal_ce"].frame.iloc[0]
    assert (row["A"], row["verdict"]) == ("better", "different")
    assert row["ratio"] == pytest.approx(0.9, abs=0.02)
    assert any(
        text.startswith("At equal cross-entropy better ranks better than one on text")
        for text in sentences_of(report.findings)
    )


def shared(difficulty: bool, shift: float, seed: int) -> Runs:
    """One model of which documents differ a lot in difficulty, in the same way for every seed."""
    rng, base = np.random.default_rng(seed), family_runs([1e5], alpha=0.1, a=3.0, family=f"f{seed}")
    p = np.clip(np.random.default_rng(99).uniform(0.2, 0.8, 40) if difficulty else np.full(40, 0.5), 0, 1) + shift
    table = ranked(np.where(rng.random(20000) < np.repeat(p, 500), 1, 31), documents=40)
    return changed(base, histogram=lambda r: table.histogram(), ranks=lambda r: table)


def test_difficulty_that_both_share_does_not_widen_a_paired_difference() -> None:
    def width(difficulty: bool) -> float:
        runs = together(shared(difficulty, 0.0, 1), shared(difficulty, 0.02, 2))
        row = Compare(ks=[1], shown=1).analyze(runs).tables["models"].frame.query("metric == 'RBP_1'").iloc[0]
        assert row["low"] < -0.02 < row["high"]
        return float(row["high"] - row["low"])

    assert width(True) < 1.5 * width(False), "documents' own spread is +-0.17, a paired difference is free of it"


def test_two_datasets_of_a_family_are_compared_by_their_laws_only() -> None:
    """That one text is easier than another says nothing of the models."""
    report = Compare(ks=[1], shown=1).analyze(
        together(
            family_runs(SIZES, alpha=0.1, a=3.0, dataset="prose", documents_hash="p"),
            family_runs(SIZES, alpha=0.1, a=2.0, dataset="code", documents_hash="c", seed=1),
        )
    )
    assert set(report.tables) == {"summary", "laws", "rank_and_rest"}
    assert report.tables["summary"].frame["pairs"].eq(0).all()
    exponents = report.tables["laws"].frame.set_index("metric").loc["RBP_1"]
    assert exponents["on"] == "toy"
    assert exponents["low"] < 0 < exponents["high"]


def test_checkpoints_are_compared_by_their_laws_and_model_by_model_by_agreement() -> None:
    runs = together(
        family_runs(SIZES, alpha=0.1, a=3.0, family="x", revision="step1"),
        family_runs(SIZES, alpha=0.1, a=2.5, family="y", revision="step2", seed=1),
    )
    runs.frame["family"] = "toy"
    summary = Compare(ks=[1], shown=1).analyze(runs).tables["summary"].frame
    assert set(summary["A"]) == {"toy step1"}
    assert set(summary["B"]) == {"toy step2"}
    assert summary["pairs"].eq(0).all()
    assert set(summary["families"]) == {"different"}


def test_other_tokens_are_said_and_the_text_still_compares() -> None:
    a = family_runs(SIZES, alpha=0.1, a=3.0, family="a", tokens=500)
    b = family_runs(SIZES, alpha=0.1, a=3.0, family="b", tokens=250, seed=1)
    report = Compare(ks=[1], shown=1).analyze(together(a, b))
    assert TEXT not in set(report.tables["models"].frame["metric"]), "half of the bytes were not read by b"
    assert any("cut text into different tokens" in note for note in report.notes)
    b.frame["bits_per_byte"] /= 2  # the same bytes in half as many tokens
    row = Compare(ks=[1], shown=1).analyze(together(a, b)).tables["models"].frame.query("metric == @TEXT").iloc[0]
    assert not row["same_tokens"]
    assert row["difference"] == pytest.approx(np.log(2), abs=1e-9)
    assert any("different tokens" in note for note in report.notes)


def test_sides_may_be_chosen() -> None:
    runs = together(*[family_runs(SIZES, alpha=0.1, a=3.0, family=f, seed=i) for i, f in enumerate("abc")])
    summary = Compare(a="c/*", b="a/*").analyze(runs).tables["summary"].frame
    assert set(zip(summary["A"], summary["B"], strict=True)) == {("c", "a")}
    with pytest.raises(RbptrackError, match=r"nothing to compare: .*the store has a/text, b/text, c/text \(a=z b=\*\)"):
        Compare(a="z").analyze(runs)
    with pytest.raises(BadInput, match="got shown=7"):
        Compare(shown=7).analyze(runs)


def test_models_of_other_sizes_are_compared_by_their_laws() -> None:
    runs = together(
        family_runs(SIZES, alpha=0.1, a=3.0, family="a"), family_runs(SIZES * 3, alpha=0.1, a=3.0, family="b")
    )
    assert "models" not in Compare().analyze(runs).tables
    few = together(family_runs([1e4], alpha=0.1, a=3.0, family="a"), family_runs([9e4], alpha=0.1, a=3.0, family="b"))
    with pytest.raises(RbptrackError, match="no two models of equal S"):
        Compare().analyze(few)


def test_imports_without_ranks_are_compared_by_their_logged_errors_or_not_at_all() -> None:
    a, b, c = (family_runs(SIZES, alpha=0.1, a=3.0 - 0.4 * i, family=f, seed=i) for i, f in enumerate("abc"))
    for one, error in ((b, 0.001), (c, None)):
        one.frame[["vocab_size", "documents_hash"]] = None
        one.frame["imported"] = "table"
        one.frame["ce_se"] = one.frame["rbp_1_se"] = error
    report = Compare(ks=[1], shown=1).analyze(together(a, b, c))
    rows = report.tables["models"].frame.query("metric == 'RBP_1'").groupby(["A", "B"])["p"]
    assert rows.max()["a", "b"] < 0.05
    assert np.isnan(rows.max()["a", "c"])
    summary = report.tables["summary"].frame.query("metric == 'RBP_1'").set_index(["A", "B"])
    assert summary.loc[("a", "b"), ["B_better", "families"]].tolist() == [4, "no laws"]
    assert summary.loc[("a", "c"), "undecided"] == 4
    assert any("a and c: imported without ranks" in note for note in report.notes)


def test_ranks_that_a_split_in_half_precision_moved_are_said_of_the_pair() -> None:
    a, b = (family_runs(SIZES, alpha=0.1, a=3.0, family=f, tokens=500) for f in "ab")
    a.frame.loc[0, "split_difference"] = 0.0042
    report = Compare(ks=[1], shown=1).analyze(together(a, b))
    (note,) = (note for note in report.notes if "split in half precision" in note)
    assert note.startswith("a/text: 1 of 4 models")
    assert "up to 0.0042 of the largest" in note


def test_models_ranked_among_other_candidates_are_not_compared() -> None:
    """Over the tokenizer's candidates p is normalised anew: CE and ranks are other quantities."""
    a, b, c = (family_runs(SIZES, alpha=0.1, a=3.0 - i / 9, family=f, seed=i) for i, f in enumerate("abc"))
    c.frame["candidates"] = "tokenizer"
    summary = Compare(ks=[1], shown=1).analyze(together(a, b, c)).tables["summary"].frame
    assert set(zip(summary["A"], summary["B"], strict=True)) == {("a", "b")}


def test_the_same_recipe_is_rarely_called_different() -> None:
    """All pairs of 6 models over the same documents of heavy-tailed difficulty: hardly a draw calls any different."""
    rng, wrong, draws = np.random.default_rng(0), 0, 200
    for _ in range(draws):
        tokens = np.maximum(5, rng.lognormal(4, 0.7, 50)).astype(int)
        p = 1 / (1 + np.exp(-0.6 * rng.standard_t(3, 50)))
        counts = [
            DocumentCounts((1,), np.arange(50), tokens, tokens * 2.0, rng.binomial(tokens, p)[:, None])
            for _ in range(6)
        ]
        differences = [paired_differences(a, b, replicates=300, seed=1)["rbp_1"] for a, b in combinations(counts, 2)]
        wrong += (simultaneous_differences(differences, level=0.95)[1] < 0.05).any()
    assert wrong / draws <= 0.09


def test_both_parts_of_ce_are_compared_as_laws() -> None:
    """The second family's ranks are twice those of the first, at equal p R: only its rank part is larger."""
    rng = np.random.default_rng(11)
    sizes = np.geomspace(1e4, 1e6, 5)
    tables: dict[str, dict[str, RankTable]] = {"a": {}, "b": {}}
    hard = rng.normal(2, 0.5, 60).repeat(30)
    for i, s in enumerate(sizes):
        log_rank = np.maximum(hard * (s / 1e4) ** -0.05 + rng.normal(0, 0.5, 1800), 0)
        rest = rng.exponential(1, 1800)
        for name, factor in (("a", 1), ("b", 2)):
            rank = np.rint(np.exp(log_rank)).astype(int) * factor
            tables[name][f"{name}{i}"] = ranked(
                rank, documents=60, vocab_size=5000, logprob=-np.log(rank) - rest * (s / 1e4) ** -0.02
            )
    runs = together(*(runs_of_tables(sizes, table, family=name) for name, table in tables.items()))
    rows = Compare(gaps=0).analyze(runs).tables["rank_and_rest"].frame.set_index("metric")
    rank = rows.loc["rank part of CE"]
    assert rank["verdict"] == "different"
    assert rank["ratio_low"] < rank["ratio"] < rank["ratio_high"] < 0.9
    rest = rows.loc["rest of CE"]
    assert rest["verdict"] == "undecided"
    assert rest["ratio"] == pytest.approx(1, abs=1e-9)
