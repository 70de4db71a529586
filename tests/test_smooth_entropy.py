from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.error_entropy.decomposition import decompose
from rbptrack.plugins.error_entropy.smooth_entropy import BinnedRanks, rank_bins, smooth_parts

from rbptrack.ranks import FloatArray, RankTable
from tests.synthetic import ranked

V = 4096
RANKS = np.arange(1, V + 1)


def truth() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """P(e), ln Q(e) and the four parts of a model with smooth P and Q."""
    log_p = -1.1 * np.log(RANKS - 0.6) - 3e-4 * RANKS
    p = np.exp(log_p) / np.exp(log_p).sum()
    log_q = -0.4 - 1.2 * np.log(RANKS)
    entropy, ce, log_z = -float(p @ np.log(p)), -float(p @ log_q), float(np.log(np.exp(log_q).sum()))
    return p, log_q, np.array([ce, entropy, ce - entropy + log_z, -log_z])


def drawn(seed: int, *, documents: int, tokens: int = 300) -> RankTable:
    rng = np.random.default_rng(seed)
    p, log_q, _ = truth()
    rank = rng.choice(RANKS, size=documents * tokens, p=p)
    logprob = log_q[rank - 1] + rng.normal(0, 0.3, size=len(rank))
    return ranked(rank, documents=documents, vocab_size=V, logprob=logprob)


def smoothed(table: RankTable) -> tuple[FloatArray, FloatArray]:
    return smooth_parts(BinnedRanks.of(table, rank_bins(table.histogram())))


@pytest.mark.parametrize("documents", [50, 200])
def test_the_truth_is_recovered_where_plug_in_parts_are_far_off(documents: int) -> None:
    true, plug_in, corrected, se = truth()[2], [], [], []
    for seed in range(20):
        table = drawn(seed, documents=documents)
        parts, influence = smoothed(table)
        assert parts[1:].sum() == pytest.approx(parts[0], abs=1e-9)
        np.testing.assert_allclose(influence.sum(axis=0), 0, atol=1e-9)
        plug_in.append(decompose(table.histogram()))
        corrected.append(parts)
        se.append(np.sqrt((influence**2).sum(axis=0)))
    error = (np.array(corrected) - true) / np.array(se)
    assert (np.abs(error.mean(axis=0)) < 0.8).all()  # 3.5 standard errors of a mean of 20
    assert (np.abs(error) < 2).mean() > 0.85
    bias = np.abs(np.mean(plug_in, axis=0) - true) / np.mean(se, axis=0)
    assert (bias[1:] > 2).all()  # H, KL and Z: an interval around the plug-in values would cover next to never


def test_a_quarter_of_the_documents_gives_the_same_parts() -> None:
    whole, quarter = drawn(3, documents=400), drawn(5, documents=100)
    assert decompose(quarter.histogram())[2] > 1.2 * decompose(whole.histogram())[2]  # plug-in KL
    assert smoothed(quarter)[0][2] == pytest.approx(smoothed(whole)[0][2], abs=0.002)


def test_bins_hold_every_rank_and_enough_tokens() -> None:
    table = drawn(0, documents=50)
    rank, edges = table.rank, rank_bins(table.histogram())
    assert edges[0] == 1
    assert edges[-1] == V + 1
    assert (np.diff(edges) > 0).all()
    assert (np.histogram(rank, bins=edges)[0] >= 50).all()
    np.testing.assert_array_equal(edges[:20], np.arange(1, 21))


def test_what_cannot_be_told_is_not_a_number() -> None:
    assert np.isnan(smoothed(drawn(0, documents=1))[0]).all()
    assert np.isnan(smoothed(drawn(0, documents=2, tokens=30))[0]).all()
