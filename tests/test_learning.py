"""Tokens that are learnt and forgotten over checkpoints, with answers that are known."""

from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.learning import Learning
from rbptrack.plugins.learning.trajectories import Trajectories

from rbptrack.analysis import Runs
from rbptrack.analysis.findings import NothingToSay
from rbptrack.ranks import IntArray
from rbptrack.reporting.telling import sentences_of
from tests.synthetic import ranked, runs_of_tables, together


def followed(rank: IntArray) -> Trajectories:
    """Tokens over checkpoints at 1, 2, 4, ... training tokens, in documents of ten."""
    count, tokens = rank.shape
    places = np.arange(tokens) // 10
    return Trajectories(trained=2.0 ** np.arange(count), rank=rank, document=places, token=np.zeros(tokens, dtype=int))


def checkpoints(rank: IntArray, seed: IntArray | None = None) -> Runs:
    """One model at 1M, 2M, 4M, ... training tokens; with another seed of the last."""
    runs = []
    for i, row in enumerate(rank):
        tables = {f"s{i}": ranked(row, documents=20, vocab_size=1000)}
        runs.append(runs_of_tables([1e6], tables, revision=f"step{i}", training_tokens=1e6 * 2**i))
    if seed is not None:
        table = {"other": ranked(seed, documents=20, vocab_size=1000)}
        last = 1e6 * 2 ** (len(rank) - 1)
        runs.append(runs_of_tables([1e6], table, model="toy-seed2", commit="other", training_tokens=last))
    return together(*runs)


def test_flows_are_the_change_of_rbp() -> None:
    rng = np.random.default_rng(0)
    rank = rng.integers(1, 30, (5, 400))
    other = rng.integers(1, 30, 400)
    report = Learning(ks=[1, 10]).analyze(checkpoints(rank, other))
    flows = report.tables["flows"].frame
    for k in (1, 10):
        rows = flows[flows["k"] == k]
        np.testing.assert_allclose(rows["net"], np.diff((rank <= k).mean(axis=1)), atol=1e-12)
        swapped = (rank[-1] <= k) != (other <= k)  # half of them enter, half leave
        np.testing.assert_allclose(rows["seeds"], swapped.mean() / 2, atol=1e-12)
    assert "between two runs of the same recipe" in sentences_of(report.findings)[0]
    spectrum = report.tables["spectrum"].frame.query("k == 10 and end == 2e6")["slope"]
    assert float(spectrum.iloc[0]) == pytest.approx(np.diff((rank[:2] <= 10).mean(axis=1))[0] / np.log(2))


def test_a_rank_that_wavers_around_k_is_neither_learnt_twice_nor_forgotten() -> None:
    """Enters at R <= k, leaves above 2k: 10 to 20 changes nothing, 21 does."""
    states = followed(np.array([[30, 30], [10, 10], [20, 21], [9, 20], [15, 20]])).states(10)
    assert states.T.tolist() == [[False, True, True, True, True], [False, True, False, False, False]]


def test_learnt_is_held_to_the_end_and_late_is_censored() -> None:
    rank = np.array([[1, 50, 50, 1, 50], [1, 1, 50, 50, 50], [1, 1, 50, 1, 50], [1, 1, 50, 1, 1], [1, 1, 1, 1, 1]])
    assert followed(rank).learnt(1, span=2).tolist() == [0, 1, 5, 2, 3]
    assert followed(rank).learnt(1, span=3).tolist() == [0, 1, 5, 2, 5], "entered within the final span"


def test_the_half_life_of_a_stay_is_found_under_censoring() -> None:
    """Tokens that enter at any checkpoint and leave with 20% a doubling: half have left after 4 (0.8^3 is 0.51)."""
    rng = np.random.default_rng(1)
    rank = np.full((12, 4000), 100)
    for i in range(1, 12):
        inside = rank[i - 1] == 1
        rank[i] = np.where(np.where(inside, rng.random(4000) < 0.8, rng.random(4000) < 0.2), 1, 100)
    assert followed(rank).half_life(1) == 4
    assert np.isnan(followed(np.where(np.arange(5)[:, None] > 1, 1, np.full((5, 40), 100))).half_life(1))


def test_half_learnt_has_the_time_and_its_interval_covers() -> None:
    """Each token is learnt at a checkpoint with a share that grows by 15%: half by the fourth."""
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(100):
        level = np.clip(np.repeat(rng.normal(0, 0.1, 40), 10) + rng.random(400), 0, 1)
        since = np.floor(level / 0.15).astype(int)
        rank = np.where(np.arange(8)[:, None] >= since, 1, 100)
        model = followed(rank)
        half = model.half(model.learnt_by(model.learnt(1, span=2), span=2), 0.95)
        inside += half.low <= 8 <= half.high
    assert inside >= 93


def test_four_checkpoints_are_too_few() -> None:
    with pytest.raises(NothingToSay, match=r"4 checkpoints, and 5 are needed"):
        Learning().analyze(checkpoints(np.ones((4, 400), dtype=int)))
