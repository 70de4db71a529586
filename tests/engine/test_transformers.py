"""Tests of `Transformers`: the numbers of workers, batch tokens and chunk tokens that it chooses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rbptrack.config.schema import EngineConfig
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine import Transformers, memory
from tests.engine.conftest import random_corpus


@pytest.mark.parametrize("vocab_size", [4096, 50_304, 256_000])
@pytest.mark.parametrize("threads", [1, 2, 64])
def test_transformers_keeps_logits_below_100_mb_for_every_vocabulary(vocab_size: int, threads: int, model: Any) -> None:
    wide = replace(model, logits_per_token=vocab_size, max_length=4096)
    runner = Transformers(wide, random_corpus([4096]), EngineConfig(threads=threads))
    assert runner.workers <= threads
    bytes_per_logit = 4
    assert runner.workers * runner.chunk_tokens * vocab_size * bytes_per_logit <= 100e6
    assert runner.chunk_tokens >= 16


@pytest.mark.parametrize(
    ("free_bytes", "requested", "expected"),
    [
        (1e12, 0, 2048),
        (2 * 700 * 1000, 0, 512),  # half of it holds 700 tokens of 1,000 bytes; 2048 is halved until it fits
        (0, 0, 100),  # one sequence of the longest length
        (0, 3000, 3000),
    ],
)
def test_transformers_chooses_batch_tokens_by_free_memory_unless_they_are_requested(
    free_bytes: float, requested: int, expected: int, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: int(free_bytes))
    runner = Transformers(model, random_corpus([100]), EngineConfig(batch_tokens=requested, threads=1))
    assert runner.batch_tokens == expected


def test_transformers_runs_one_batch_at_a_time_for_a_large_model(model: Any, corpus: Corpus) -> None:
    large = replace(model, largest_params=10**9)
    assert Transformers(large, corpus, EngineConfig(threads=4)).workers == 1
