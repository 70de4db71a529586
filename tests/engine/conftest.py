"""Fixtures: a tiny causal model in plain PyTorch, and a corpus of random tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from benchmarks.shapes import corpus_of_lengths
from rbptrack.base.errors import BadInput
from rbptrack.corpus.sequences import Corpus
from rbptrack.scoring import Head

VOCABULARY = 300
WIDTH = 16
CPU = torch.device("cpu")


@dataclass(frozen=True)
class TinyModel:
    """A stand-in for `CausalModel` with the attributes and methods that the engine uses."""

    backbone: Callable[[Tensor], Tensor]
    head: Head
    vocab_size: int = VOCABULARY
    device: torch.device = CPU
    is_spread: bool = False
    largest_params: int = 1000
    logits_per_token: int = VOCABULARY
    max_length: int = 100
    notes: tuple[str, ...] = ()
    reference: Any = None

    def activation_bytes(self, length: int) -> int:
        return 1000

    def check_corpus(self, *, longest: int, largest_target: int) -> None:
        if longest > self.max_length:
            raise BadInput("too long")


@dataclass(frozen=True)
class TinyReference:
    """A stand-in for `Reference`: a second tiny model, and the number of vocabulary entries that are compared."""

    model: TinyModel
    entries: int = VOCABULARY


def tiny_model(seed: int, rows: int = VOCABULARY) -> TinyModel:
    """Make a model with random weights whose head has the given number of rows.

    The hidden state at token t is the embedding of t plus half of the hidden state at t - 1.
    """
    generator = torch.Generator().manual_seed(seed)
    embedding = torch.randn(VOCABULARY, WIDTH, generator=generator).round(decimals=2)
    weight = torch.randn(rows, WIDTH, generator=generator)

    def backbone(tokens: Tensor) -> Tensor:
        states = embedding[tokens]  # (sequences, length, width)
        for t in range(1, states.shape[1]):
            states[:, t] += states[:, t - 1] / 2
        return states

    return TinyModel(backbone, Head(weight))


@pytest.fixture(scope="session")
def model() -> TinyModel:
    """A tiny model without a reference."""
    return tiny_model(0)


@pytest.fixture(scope="session")
def model_with_reference() -> TinyModel:
    """The tiny model of the fixture `model` with a reference. The head of the reference has 20 padding rows."""
    reference = TinyReference(tiny_model(1, rows=VOCABULARY + 20))
    return replace(tiny_model(0), reference=reference)


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    """40 documents of 16 to 48 random tokens. About 10% of the tokens are not scored."""
    return random_corpus(np.random.default_rng(0).integers(16, 49, size=40))


def random_corpus(document_lengths: npt.ArrayLike) -> Corpus:
    """Make a corpus of random tokens, each document one sequence. About 10% of the tokens are not scored."""
    corpus = corpus_of_lengths(document_lengths, vocab_size=VOCABULARY)
    return replace(corpus, scorable=np.random.default_rng(1).random(len(corpus.token)) < 0.9)
