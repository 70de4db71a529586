from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from rbptrack.plugins.lack_of_fit import LackOfFit
from rbptrack.plugins.lack_of_fit.each_k import LawAtK
from rbptrack.plugins.lack_of_fit.findings import k_ranges

from rbptrack.analysis import Report
from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.reporting.telling import sentences_of
from tests.synthetic import Law, changed, runs_from

SIZES = np.geomspace(1e4, 1e7, 7)


def tailed(tail: object) -> Law:
    """A law up to k = 32 with alpha 0.1, and `tail(s)` of the mass beyond it."""

    def at(s: float) -> tuple[list[float], float]:
        beyond = tail(s)  # type: ignore[operator]
        inner = np.exp(-3 * s**-0.1 * np.geomspace(1, 0.2, 32))  # RBP_1 .. RBP_32 but for the tail
        inner = np.diff(inner, prepend=0) * (1 - beyond) / inner[-1]
        return [*inner, *np.full(32, beyond / 32)], 1.0

    return at


def judged(tail: object, *, tokens: int = 2000, seed: int = 0) -> tuple[Report, pd.Series]:
    report = LackOfFit().analyze(runs_from(SIZES, tailed(tail), tokens=tokens, seed=seed))
    return report, report.tables["verdicts"].frame.set_index("k")["verdict"]


def asked(report: Report, question: str) -> Finding:
    return next(one for one in report.findings if one.question == question)


def straight(s: float) -> tuple[list[float], float]:
    """-ln RBP_k = A_k S^-0.1 at every k below 64."""
    reached = np.exp(-3 * s**-0.1 * np.geomspace(1, 0.02, 63))
    return [*np.diff(reached, prepend=0), 1 - reached[-1]], 1.0


def test_a_law_at_every_k_is_said_to_hold() -> None:
    report, verdict = judged(lambda s: 0.05 * s**-0.1)
    assert set(verdict) == {LawAtK.NO_BEND}
    assert asked(report, "no bend detected up to k").estimate == verdict.index[-1]
    assert verdict.index[-1] < 64, "RBP_|V| is 1 whatever the model"
    assert asked(report, "no bend detected up to k").last_k == verdict.index[-1]
    assert f"up to k = {verdict.index[-1]}, the last k tried" in " ".join(sentences_of(report.findings))


def test_a_law_at_every_k_is_not_found_to_bend() -> None:
    report = LackOfFit().analyze(runs_from(SIZES, straight, tokens=2000))
    bends = asked(report, "bends")
    assert bends.verdict != Verdict.YES
    assert bends.p_corrected > 0.05
    table = report.tables["verdicts"].frame
    assert ((table["band_low"] <= 0.1) & (table["band_high"] >= 0.1)).all()
    assert sentences_of(report.findings)[0].startswith("No bend is detected")


def test_what_could_have_been_seen_is_said() -> None:
    """With more scatter between models only a larger floor would be."""
    rng = np.random.default_rng(0)
    noise = dict(zip(SIZES, rng.standard_normal(7), strict=True))
    seen = []
    for scatter in (0.002, 0.02):

        def at(s: float, by: float = scatter) -> tuple[list[float], float]:
            return straight(s * float(np.exp(by / 0.1 * noise[s])))

        seen.append(asked(LackOfFit().analyze(runs_from(SIZES, at, tokens=5000)), "bends").floor_seen)
    assert 0 < seen[0] < seen[1]


def test_a_planted_inverse_trend_is_found() -> None:
    """Beyond k = 32 larger models miss more."""
    report, verdict = judged(lambda s: 0.002 * (s / 1e4) ** 0.2)
    assert verdict[1] == LawAtK.NO_BEND
    assert (verdict[verdict.index >= 37] == LawAtK.INVERSE).all()
    assert asked(report, "no bend detected up to k").estimate < 37
    assert "inverse at k = " in " ".join(sentences_of(report.findings))


def test_a_planted_noise_floor_is_found() -> None:
    """Beyond k = 32 some ten misses in 20,000 tokens, whatever the size."""
    report, verdict = judged(lambda s: 0.0008, tokens=500)
    assert verdict[1] == LawAtK.NO_BEND
    assert verdict.iloc[-1] == LawAtK.NOISE
    assert "noise-limited at k = " in " ".join(sentences_of(report.findings))
    row = report.tables["verdicts"].frame.iloc[-1]
    assert row["misses"] < 20
    assert not row["alpha_low"] > 0, "by the interval: at 3 sizes 15% lie 2 errors off 0"


def test_a_planted_deviation_is_found() -> None:
    """Beyond k = 32 the mass falls, then rises: seen clearly, and no power law."""
    report, verdict = judged(lambda s: 0.01 * (1 + 2 * (np.log10(s) - 5.5) ** 2))
    assert verdict.iloc[-1] == LawAtK.BENDS
    first, last = report.tables["verdicts"].frame.iloc[0], report.tables["verdicts"].frame.iloc[-1]
    assert last["r2"] < last["expected_low"]
    assert last["departure_low"] > 0.1
    assert abs(first["departure"]) < last["departure"] / 10, "what the tail takes from k = 1"
    row = report.tables["summary"].frame.iloc[0]
    assert row["p"] < 0.01
    assert 0 < row["bent_from"] <= 40
    assert row["straight_to"] < row["bent_from"]
    assert row["bends"] == Verdict.YES
    assert "toy on text: the law bends upwards" in " ".join(sentences_of(report.findings))


def test_four_sizes_cannot_tell_a_bend() -> None:
    report = LackOfFit().analyze(runs_from(SIZES[::2], tailed(lambda s: 0.02), tokens=500))
    assert asked(report, "bends").verdict == Verdict.UNTOLD
    assert "whether the law bends needs 5 sizes; found 4" in " ".join(sentences_of(report.findings))
    assert LawAtK.BENDS not in set(report.tables["verdicts"].frame["verdict"])


def test_documents_and_tokens_that_drive_it() -> None:
    runs = runs_from(SIZES, tailed(lambda s: 0.02))
    largest = runs.ranks("toy-text-6")
    report = LackOfFit(top=3).analyze(runs)
    documents, tokens = report.tables["documents"].frame, report.tables["tokens"].frame
    k = documents["k"].iloc[0]
    missed = largest.rank > k
    per_document = np.bincount(largest.column("document")[missed], minlength=40)
    assert documents["misses"].tolist() == sorted(per_document, reverse=True)[:3]
    assert documents["share"].sum() == pytest.approx(sum(sorted(per_document, reverse=True)[:3]) / missed.sum())
    assert tokens["misses"].iloc[0] == missed.sum()
    assert tokens["token"].iloc[0] == f"id {tokens['id'].iloc[0]}", "these runs do not know the texts"
    assert tokens["occurrences"].iloc[0] == len(largest)
    lead = documents.iloc[0]
    counts = [runs.document_counts(f"toy-text-{i}", [k]) for i in range(7)]
    rest = [c.document != lead["document"] for c in counts]
    y = [-np.log(c.hits[r, 0].sum() / c.tokens[r].sum()) for c, r in zip(counts, rest, strict=True)]
    s = runs.frame["non_embedding_params"].to_numpy(dtype=float)
    assert lead["alpha_without"] == pytest.approx(-np.polyfit(np.log(s), np.log(y), 1)[0])


def test_imports_without_ranks_of_four_sizes_are_summed_up_by_their_forms() -> None:
    """Floors need 6 sizes: the page's table is then another one."""
    whole = runs_from(SIZES[:4], straight)
    frame = whole.frame.assign(vocab_size=None, imported="table: t.csv")
    report = LackOfFit(replicates=50).analyze(changed(whole, frame))
    assert report.summary == "forms"
    assert report.tables["forms"].frame["form"].eq("M0").all()
    assert "floors" not in report.tables


def test_ranges_of_k_join_neighbours_on_the_grid() -> None:
    grid = [1, 10, 100, 1000, 10000]
    assert k_ranges([10, 100, 10000], grid) == "k = 10 to 100, 10,000"
    assert k_ranges([1], grid) == "k = 1"
