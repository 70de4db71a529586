"""What the measuring process and those of a model say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch

from rbptrack.config.schema import ModelConfig
from rbptrack.sources.pin import Source

IntArray = npt.NDArray[Any]
ADDRESS, KEY = "RBPTRACK_GROUP", "RBPTRACK_GROUP_KEY"
"""Environment variables with which a process finds the one that measures."""


@dataclass(frozen=True)
class Load:
    """The first message to a process: which model."""

    config: ModelConfig
    source: Source
    candidates: int | None


@dataclass(frozen=True)
class Loaded:
    """Its answer: what was loaded; of the first process, the model's own numbers too."""

    non_embedding_params: int
    total_params: int
    vocab_size: int
    width: int
    widest: int
    heads: int
    dtype: torch.dtype
    device: str
    free_bytes: int
    drift: float


@dataclass(frozen=True)
class Work:
    """A batch; the fields are those of `Batch`, as arrays: tensors would travel as shared memory."""

    token_ids: IntArray
    state_index: IntArray
    target_ids: IntArray
    chunk_tokens: int


@dataclass(frozen=True)
class Done:
    """Its answer; scores only from the first process."""

    scores: dict[str, IntArray] | None  # the columns of `Scores`
    peak_bytes: int


@dataclass(frozen=True)
class Trouble:
    """What a process says before it ends."""

    kind: str  # input, memory or fault
    message: str
