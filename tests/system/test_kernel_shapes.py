"""Tests of the GPU's kernels in triton's interpreter, with the shapes of published models and the tiles of a GPU.

`make processors` runs them with the kernels of other processors. They take about a minute and a half of processor time.
"""

from __future__ import annotations

import pytest
import torch

from benchmarks.shapes import SHAPES
from rbptrack.scoring import Head, Scores, kernels
from tests.definition import scores_by_definition
from tests.scoring.test_kernels import assert_scores_equal, exact_factors


@pytest.mark.parametrize(("shape", "tile"), [("pythia-70m", 0), ("pythia-70m", 1), ("pythia-1.4b", 0)])
def test_fused_kernel_with_the_shape_of_a_published_model(shape: str, tile: int) -> None:
    vocabulary, width = SHAPES[shape]["vocab_size"], SHAPES[shape]["hidden_size"]
    weight = exact_factors(vocabulary, width, seed=0)
    hidden = exact_factors(100, width, seed=1)
    targets = torch.arange(100) * 307 % vocabulary
    head = Head(weight.to(torch.bfloat16))
    scores = Scores(kernels.score_fused(head, hidden, targets, tile=kernels.TILES[tile], parts=5))
    assert_scores_equal(scores, scores_by_definition(hidden @ weight.T, targets))


@pytest.mark.parametrize("shape", ["pythia-70m", "llama-3.1-8b"])
def test_reduce_logits_with_the_vocabulary_of_a_published_model(shape: str) -> None:
    vocabulary = SHAPES[shape]["vocab_size"]
    logits = (3 * torch.randn(20, vocabulary, generator=torch.Generator().manual_seed(0))).round(decimals=2)
    targets = torch.arange(20) * 307
    scores = Scores(kernels.reduce_logits(logits, logits.gather(1, targets[:, None])))
    assert_scores_equal(scores, scores_by_definition(logits, targets))
