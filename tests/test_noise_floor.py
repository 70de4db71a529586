from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from plugins.noise_floor import DEVIATES, HOLDS, INVERSE, NOISE, NoiseFloor
from rbptrack.analysis import Report
from rbptrack.stats.power_law import lack_of_fit
from tests.synthetic import Law, runs_from

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
    report = NoiseFloor().analyze(runs_from(SIZES, tailed(tail), tokens=tokens, seed=seed))
    return report, report.tables["verdicts"].frame.set_index("k")["verdict"]


def test_a_law_at_every_k_is_said_to_hold() -> None:
    report, verdict = judged(lambda s: 0.05 * s**-0.1)
    assert set(verdict) == {HOLDS}
    assert report.metrics["k_star/toy/text"] == verdict.index[-1]
    assert verdict.index[-1] < 64, "RBP_|V| is 1 whatever the model"


def test_a_planted_inverse_trend_is_found() -> None:
    """Beyond k = 32 larger models miss more."""
    report, verdict = judged(lambda s: 0.002 * (s / 1e4) ** 0.2)
    assert verdict[1] == HOLDS
    assert (verdict[verdict.index >= 37] == INVERSE).all()
    assert report.metrics["k_star/toy/text"] < 37
    assert "inverse at k = " in " ".join(report.notes)


def test_a_planted_noise_floor_is_found() -> None:
    """Beyond k = 32 some ten misses in 20,000 tokens, whatever the size."""
    report, verdict = judged(lambda s: 0.0008, tokens=500)
    assert verdict[1] == HOLDS
    assert verdict.iloc[-1] == NOISE
    assert "noise-limited at k = " in " ".join(report.notes)
    row = report.tables["verdicts"].frame.iloc[-1]
    assert row["misses"] < 20
    assert np.isnan(row["snr"]) or row["snr"] < 2


def test_a_planted_deviation_is_found() -> None:
    """Beyond k = 32 the mass falls, then rises: seen clearly, and no power law."""
    report, verdict = judged(lambda s: 0.01 * (1 + 2 * (np.log10(s) - 5.5) ** 2))
    assert verdict.iloc[-1] == DEVIATES
    first, last = report.tables["verdicts"].frame.iloc[0], report.tables["verdicts"].frame.iloc[-1]
    assert last["r2"] < last["r2_low"]
    assert last["departure_low"] > 0.1
    assert abs(first["departure"]) < last["departure"] / 10, "what the tail takes from k = 1"
    assert report.tables["summary"].frame["p"].iloc[0] < 0.001
    assert "rejects a power law at every k" in " ".join(report.notes)


def test_four_sizes_cannot_tell_a_bend() -> None:
    report = NoiseFloor().analyze(runs_from(SIZES[::2], tailed(lambda s: 0.02), tokens=500))
    assert "Whether the law bends is undecided: that needs 5 sizes, and there are 4." in " ".join(report.notes)
    assert DEVIATES not in set(report.tables["verdicts"].frame["verdict"])


def test_documents_and_tokens_that_drive_it() -> None:
    runs = runs_from(SIZES, tailed(lambda s: 0.02))
    largest = runs.ranks("toy-text-6")
    report = NoiseFloor(top=3).analyze(runs)
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


def test_lack_of_fit_is_chi2_under_its_own_noise() -> None:
    rng = np.random.default_rng(0)
    s = np.geomspace(1e5, 1e9, 6)
    covariance = 0.01**2 * (0.7 + 0.3 * np.eye(6))
    root = np.linalg.cholesky(covariance)
    p = [lack_of_fit(s, 3 * s**-0.1 * np.exp(root @ rng.normal(size=6)), covariance)[1] for _ in range(400)]
    assert 0.02 < np.mean(np.array(p) < 0.05) < 0.09
