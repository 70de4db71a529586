"""Damaged files of others: each is read, or refused in a line (a sample of `tests/campaigns/fuzz.py`)."""

from __future__ import annotations

import random

import pytest

from tests.campaigns.fuzz import TARGETS, Judge, mutated
from tests.campaigns.recorded import note

# `datasets` leaves a CSV file open that it does not read to its end.
CSV_LEFT_OPEN = pytest.param(
    "documents .csv", marks=pytest.mark.filterwarnings(r"ignore:unclosed file .*\.csv'>:ResourceWarning")
)


@pytest.mark.parametrize("target", [CSV_LEFT_OPEN if name == "documents .csv" else name for name in TARGETS])
def test_damaged_input_is_read_or_refused(target: str) -> None:
    draw = random.Random(target)
    with Judge(target) as judge:
        for seed in judge.seeds:
            judge.attempt(seed)
        assert judge.accepted == len(judge.seeds)  # undamaged
        for _ in range(6 if target.startswith("documents") else 10):
            judge.attempt(mutated(draw.choice(judge.seeds), draw))
        told = {"refused": judge.refused, "accepted": judge.accepted}
    assert sum(told.values()) > len(judge.seeds)
    note("fuzz", target=target, inputs=sum(told.values()), seconds=0, finds={}, **told)
