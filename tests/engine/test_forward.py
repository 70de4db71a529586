"""Sizes chosen from the device's memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rbptrack.config.schema import EngineConfig
from rbptrack.engine import forward
from rbptrack.engine.forward import Forward


@pytest.mark.parametrize("vocabulary", [4096, 50_304, 256_000])
@pytest.mark.parametrize("threads", [1, 2, 64])
def test_logits_take_no_more_memory_for_a_larger_vocabulary(vocabulary: int, threads: int, model: Any) -> None:
    wide = replace(model, logits_per_token=vocabulary)
    chosen = Forward(wide, EngineConfig(threads=threads), longest=4096)
    assert chosen.workers <= threads
    assert chosen.workers * chosen.chunk_tokens * vocabulary * 4 <= 100e6
    assert chosen.chunk_tokens >= 16


@pytest.mark.parametrize(
    ("free", "wanted", "chosen"), [(1e12, 0, 2048), (2 * 700 * 1000, 0, 512), (0, 0, 100), (0, 3000, 3000)]
)
def test_batches_are_chosen_from_free_memory(
    free: float, wanted: int, chosen: int, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least one sequence; what is asked for stays."""
    monkeypatch.setattr(forward, "free_memory", lambda device: int(free))
    assert Forward(model, EngineConfig(batch_tokens=wanted, threads=1), longest=100).batch_tokens == chosen


def test_a_large_model_takes_one_batch_at_a_time(model: Any) -> None:
    large = replace(model, largest_params=10**9)
    assert Forward(large, EngineConfig(threads=4), longest=100).workers == 1
