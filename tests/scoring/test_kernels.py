"""Tests of the GPU's kernels, in triton's interpreter on a CPU.

Factors are small multiples of a power of two. All products and sums are then exact in float32, whatever the order of
the terms, so counts are equal on every processor.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rbptrack.scoring import Head, Scorer, Scores
from tests.definition import scores_by_definition

pytest.importorskip("triton", reason="triton is not installed; it has no build for macOS")

from rbptrack.scoring import kernels

TILE = kernels.Tile(rows=32, columns=64, bytes=128, stages=1, warps=1)
VOCABULARY = 300
NUMPY_WARNS = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with numpy


def fused_scores(head: Head, hidden: Tensor, targets: Tensor) -> dict[str, Tensor]:
    return kernels.score_fused(head, hidden, targets, tile=TILE, parts=2)


def exact_factors(*shape: int, seed: int) -> Tensor:
    """Return random multiples of 1/4 from -1 to 1."""
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)) / 4


def assert_scores_equal(scores: Scores, expected: Scores) -> None:
    """Assert that counts and the first choice are equal, and that all other scores are precise to float32."""
    for name, column in expected.items():
        assert scores[name].dtype == column.dtype
        if column.is_floating_point():
            torch.testing.assert_close(scores[name], column, rtol=1e-6, atol=3e-6)
        else:
            assert torch.equal(scores[name], column), name


@pytest.mark.parametrize(
    ("dtype", "tokens", "vocabulary", "width"),
    [(torch.float32, 45, VOCABULARY, 64), (torch.bfloat16, 32, 256, 128), (torch.float16, 1, 65, 64)],
)
@pytest.mark.parametrize("parts", [1, 3])
def test_fused_kernel_gives_the_scores_of_the_definition(
    dtype: torch.dtype, tokens: int, vocabulary: int, width: int, parts: int
) -> None:
    """The numbers of tokens and entries are multiples of the tile's, or one more, or others."""
    weight = exact_factors(vocabulary, width, seed=0)
    hidden = exact_factors(tokens, width, seed=1)
    targets = torch.arange(tokens) * 7 % vocabulary
    head = Head(weight.to(dtype))
    scores = Scores(kernels.score_fused(head, hidden.to(dtype), targets, tile=TILE, parts=parts))
    expected = scores_by_definition(hidden @ weight.T, targets)
    if tokens > 1:
        assert expected["ties"].max() > 0
    assert_scores_equal(scores, expected)


@pytest.mark.parametrize(
    ("has_bias", "scale", "softcap", "excluded"),
    [
        (True, 1.0, None, []),
        (False, 0.25, None, [*range(70), 131, 299]),  # all entries of the first tile are excluded
        (True, 2.0, 5.0, [7]),
        (False, 1.0, 5.0, []),
    ],
)
def test_fused_kernel_finishes_logits_as_the_head_does(
    has_bias: bool, scale: float, softcap: float | None, excluded: list[int]
) -> None:
    weight = exact_factors(VOCABULARY, 64, seed=2)
    hidden = exact_factors(40, 64, seed=3)
    bias = exact_factors(VOCABULARY, seed=4).to(torch.bfloat16) if has_bias else None
    head = Head(weight.to(torch.bfloat16), bias, softcap, scale).exclude(excluded)
    targets = 200 + torch.arange(40)
    scores = Scores(fused_scores(head, hidden, targets))
    assert_scores_equal(scores, scores_by_definition(head.logits(hidden), targets))


@NUMPY_WARNS
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_fused_scores_of_a_bad_hidden_state_are_not_finite(value: float) -> None:
    hidden = exact_factors(3, 64, seed=5)
    hidden[1, 2] = value
    scores = Scores(fused_scores(Head(exact_factors(70, 64, seed=6)), hidden, torch.tensor([0, 1, 2])))
    assert scores["logprob"].isfinite().tolist() == [True, False, True]


def test_a_target_without_an_entry_has_a_finite_probability_and_negative_ties() -> None:
    """The error message can then say that the kernel is at fault, and not the weights."""
    logits = torch.zeros(2, 70)
    scores = kernels.reduce_logits(logits, torch.tensor([[0.0], [-1.0]]))
    assert scores["ties"].tolist() == [69, -1]
    assert scores["logprob"].isfinite().all()


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_reduce_logits_gives_the_scores_of_the_definition(offset: float) -> None:
    """The vocabulary takes three steps of the kernel. All entries of the first step are excluded."""
    logits = offset + 3 * torch.randn(6, 9000, generator=torch.Generator().manual_seed(0))
    logits[:3] = logits[:3].round()  # many ties
    logits[:, :4200] = float("-inf")
    logits[0, 8999] = logits.max() + 20  # its probability is nearly 1
    targets = torch.tensor([8999, 5000, 6000, 7000, 8000, 4500])
    scores = Scores(kernels.reduce_logits(logits, logits.gather(1, targets[:, None])))
    assert_scores_equal(scores, scores_by_definition(logits, targets))


@NUMPY_WARNS
def test_reduce_logits_of_bad_logits_is_not_finite() -> None:
    logits = torch.zeros(5, 5000)
    logits[0, 4999] = float("nan")
    logits[1, 0] = float("inf")
    logits[2, 7] = -float("nan")  # x86 processors produce NaNs with this sign
    logits[3] = float("-inf")
    scores = Scores(kernels.reduce_logits(logits, logits[:, 3:4]))
    assert scores["logprob"].isfinite().tolist() == [False] * 4 + [True]


def test_entropy_over_262_144_entries_is_exact_to_2e_5() -> None:
    logits = 3 * torch.randn(1, 262_144, generator=torch.Generator().manual_seed(0))
    scores = Scores(kernels.reduce_logits(logits, logits[:, :1]))
    expected = scores_by_definition(logits, torch.zeros(1, dtype=torch.int64))
    torch.testing.assert_close(scores["entropy"], expected["entropy"], rtol=0, atol=2e-5)


@pytest.fixture
def fuses_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let scorers use the fused kernel on a CPU."""
    monkeypatch.setattr("rbptrack.scoring.scorer.can_fuse", lambda head: True)
    monkeypatch.setattr("rbptrack.scoring.scorer.fused_scores", fused_scores)


def test_kernels_compile_for_a_gpu_that_is_not_here(tmp_path: Path) -> None:
    """Compiles for an H100, down to machine code. No thread may need more registers than it has."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    program = subprocess.run(
        [sys.executable, "-m", "tools.gpu_kernels", "--architecture=90"],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = program.stdout.splitlines()
    assert len(lines) == 3
    assert all(" 0 bytes spilled" in line for line in lines)


def make_case() -> tuple[Head, Tensor, Tensor, Scores]:
    """Return a head, hidden states, targets, and their scores by definition."""
    weight = exact_factors(VOCABULARY, 64, seed=7)
    hidden = exact_factors(40, 64, seed=8)
    targets = torch.arange(40)
    return Head(weight), hidden, targets, scores_by_definition(hidden @ weight.T, targets)


@pytest.mark.usefixtures("fuses_on_cpu")
def test_scorer_uses_the_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    head, hidden, targets, expected = make_case()
    scorer = Scorer(head, chunk_tokens=16)
    assert_scores_equal(scorer(hidden, targets), expected)
    # Once the kernel is checked, no logits are computed.
    monkeypatch.delattr(Scorer, "logits")
    assert_scores_equal(scorer(hidden, targets), expected)
    assert scorer.note == ""


def fail(scores: Scores) -> None:
    raise RuntimeError("no compiler")


def count_one_more(scores: Scores) -> None:
    scores["greater"] += 1


def lose_own_entry(scores: Scores) -> None:
    scores["ties"][39] = -1  # not among the first tokens, which are compared with eager operations


def choose_another_token(scores: Scores) -> None:
    scores["top"] = (scores["top"] + 1) % VOCABULARY


def be_imprecise(scores: Scores) -> None:
    scores["logprob"] -= 1e-3


@pytest.mark.usefixtures("fuses_on_cpu")
@pytest.mark.parametrize("fault", [fail, count_one_more, lose_own_entry, choose_another_token, be_imprecise])
def test_scorer_with_a_faulty_fused_kernel_multiplies_with_torch_and_says_so(
    fault: Callable[[Scores], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    head, hidden, targets, expected = make_case()

    def faulty_scores(*_: object) -> Scores:
        scores = Scores({name: column.clone() for name, column in expected.items()})
        fault(scores)
        return scores

    monkeypatch.setattr("rbptrack.scoring.scorer.fused_scores", faulty_scores)
    scorer = Scorer(head, chunk_tokens=16)
    for _ in range(2):
        assert_scores_equal(scorer(hidden, targets), expected)
    assert scorer.note


@pytest.mark.usefixtures("fuses_on_cpu")
def test_scorer_raises_if_memory_runs_out_in_the_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out_of_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    head, hidden, targets, _ = make_case()
    monkeypatch.setattr("rbptrack.scoring.scorer.fused_scores", run_out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        Scorer(head, chunk_tokens=16)(hidden, targets)
