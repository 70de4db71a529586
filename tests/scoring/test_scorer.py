"""The scorer against the definition, on hand-made and random logits."""

import os
import shutil
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rbptrack.scoring import Head, Scorer, Scores, scores_by_definition
from rbptrack.scoring.scorer import checked, compiled_on_cpu, reduction


def scores_of(logits: Tensor, chunk: int = 64) -> Scores:
    """Scores of given logits (tokens, vocabulary): one-hot hidden states pick the rows, and the product is exact."""
    return Scorer(Head(logits.T.contiguous()), chunk_tokens=chunk)(torch.eye(len(logits)), targets_of(logits))


def targets_of(logits: Tensor) -> Tensor:
    return torch.arange(len(logits)) * 7 % logits.shape[1]


def test_hand_made_logits() -> None:
    logits = torch.tensor([[3.0, 1.0, 3.0, -2.0], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]])
    targets = torch.tensor([1, 2, 3])
    for scores in (
        scores_by_definition(logits, targets),
        Scorer(Head(logits.T.contiguous()), chunk_tokens=2)(torch.eye(3), targets),
    ):
        assert scores.greater.tolist() == [2, 0, 0]
        assert scores.ties.tolist() == [0, 3, 0]
        assert scores.top.tolist() == [0, 0, 3]  # of equal ones the smallest id
        log4 = torch.tensor(4.0).log().item()
        assert scores.logprob[1].item() == pytest.approx(-log4)
        assert scores.entropy[1].item() == pytest.approx(log4)
        assert torch.equal(scores.top_logprob[1:], scores.logprob[1:])


@given(
    tokens=st.integers(1, 40),
    vocabulary=st.one_of(st.integers(2, 70), st.integers(250, 600)),  # with one span to search, with several
    chunk=st.sampled_from([1, 3, 16, 64]),
    bias=st.booleans(),
    softcap=st.sampled_from([None, 5.0]),
    scale=st.sampled_from([1.0, 0.25]),
    coarse=st.booleans(),
    seed=st.integers(0, 999),
)
def test_scorer_equals_the_definition(
    tokens: int, vocabulary: int, chunk: int, bias: bool, softcap: float | None, scale: float, coarse: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, 8, generator=generator)
    weight = torch.randn(vocabulary, 8, generator=generator)
    if coarse:  # small integers: many exact ties
        hidden = hidden.round()
        weight = weight.round()
    head = Head(weight, torch.randn(vocabulary, generator=generator).round() if bias else None, softcap, scale)
    targets = torch.randint(vocabulary, (tokens,), generator=generator)
    want = scores_by_definition(head.logits(hidden), targets)
    got = Scorer(head, chunk_tokens=chunk)(hidden, targets)
    for name in ("logprob", "entropy", "top_logprob"):
        torch.testing.assert_close(got.columns[name], want.columns[name], rtol=1e-5, atol=1e-5)
    assert {name: column.dtype for name, column in got.columns.items()} == {
        name: column.dtype for name, column in want.columns.items()
    }
    assert (got.logprob <= 0).all()
    assert (got.entropy >= 0).all()
    best = got.greater + got.ties == 0
    assert torch.equal(got.logprob[best], got.top_logprob[best])
    if coarse and softcap is None:  # exact arithmetic: counts must be equal, not close
        for name in ("greater", "ties", "top"):
            assert torch.equal(got.columns[name], want.columns[name])
    else:
        assert ((got.greater - want.greater).abs() <= 1).all()


def test_a_target_equals_itself() -> None:
    """A lone maximum has rank 1 at every border of a chunk: its logit is of the same product as its competitors'."""
    hidden = torch.randn(700, 16)
    weight = torch.randn(5000, 16)
    targets = (hidden @ weight.T).argmax(1)
    scores = Scorer(Head(weight), chunk_tokens=64)(hidden, targets)
    assert (scores.greater == 0).all()
    assert (scores.ties >= 0).all()


@pytest.mark.parametrize("size", [1.0, 1e3, 1e4])
def test_large_logits_round_no_probability_above_one(size: float) -> None:
    """And ln p is precise to float32 itself, however large the logits that it is a difference of."""
    generator = torch.Generator().manual_seed(0)
    logits = size + 3 * torch.randn(200, 2001, generator=generator)
    logits[:100, 7] += 40.0  # sure of one
    got = scores_of(logits)
    want = scores_by_definition(logits, targets_of(logits))
    for name in ("logprob", "top_logprob", "entropy"):
        torch.testing.assert_close(got.columns[name], want.columns[name], rtol=1e-6, atol=3e-6)
    assert (got.logprob <= 0).all()
    assert (got.entropy >= 0).all()
    assert torch.equal(got.top, want.top)


def test_entries_that_are_left_out_are_ranked_nowhere() -> None:
    hidden = torch.randn(70, 8)
    weight = torch.randn(600, 8)
    entries = [3, 9, *range(200, 460)]
    keep = torch.tensor([i for i in range(600) if i not in entries])
    targets = keep[torch.arange(70)]
    got = Scorer(Head(weight).without(entries), chunk_tokens=16)(hidden, targets)
    want = scores_by_definition((hidden @ weight.T)[:, keep], torch.arange(70))
    assert torch.equal(got.greater, want.greater)
    assert torch.equal(got.top, keep[want.top.long()].int())
    for name in ("logprob", "entropy", "top_logprob"):
        torch.testing.assert_close(got.columns[name], want.columns[name], rtol=1e-5, atol=1e-5)


def test_bad_logits_are_visible() -> None:
    """A single NaN or infinity anywhere, and a row with nothing but -inf."""
    logits = torch.randn(20, 1001)
    for row, place in enumerate((0, 255, 256, 1000)):
        logits[row, place] = float("nan")
        logits[4 + row, place] = -float("nan")  # whose sign bit is set, as x86 makes them
        logits[8 + row, place] = float("inf")
    logits[12] = float("-inf")
    targets = torch.full((20,), 500)
    got = Scores(*reduction(logits.clone(), logits.gather(1, targets[:, None]), torch.empty(20, 1001)))
    assert torch.isfinite(got.logprob).tolist() == [False] * 13 + [True] * 7
    hidden = torch.randn(3, 4)
    hidden[1, 2] = float("nan")
    scores = Scorer(Head(torch.randn(9, 4)), chunk_tokens=16)(hidden, torch.tensor([0, 1, 2]))
    assert torch.isfinite(scores.logprob).tolist() == [True, False, True]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_weights_are_compared_in_float32(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbptrack.scoring.scorer._WEIGHTS_BLOCK", 32 * 1500)  # three blocks, the last one smaller
    hidden = torch.randn(200, 32).to(dtype)
    weight = torch.randn(4000, 32).to(dtype)
    targets = torch.randint(4000, (200,))
    scores = Scorer(Head(weight), chunk_tokens=64)(hidden, targets)
    want = scores_by_definition(hidden.float() @ weight.float().T, targets)
    assert scores.ties.sum() <= 2
    assert ((scores.greater - want.greater).abs() <= 1).all()


def test_a_head_that_only_its_module_multiplies_with() -> None:
    weight = torch.randn(50, 8)
    hidden = torch.randn(20, 8)
    targets = torch.randint(50, (20,))
    padded = torch.cat([weight, torch.zeros(14, 8)])
    head = Head(torch.empty(50, 8), product=lambda states: states @ padded.T, scale=0.5)
    got = Scorer(head, chunk_tokens=7)(hidden, targets)
    assert torch.equal(got.greater, scores_by_definition(0.5 * (hidden @ weight.T), targets).greater)
    assert torch.equal(head.logits(hidden), 0.5 * (hidden @ padded.T)[:, :50])


def test_the_entropy_over_a_very_large_vocabulary() -> None:
    torch.manual_seed(0)
    weight = torch.randn(262_144, 64) * 0.35
    hidden = torch.randn(8, 64) * torch.linspace(0.2, 2, 8)[:, None]
    got = Scorer(Head(weight), chunk_tokens=16)(hidden, torch.arange(8))
    want = scores_by_definition(hidden @ weight.T, torch.arange(8))
    torch.testing.assert_close(got.entropy, want.entropy, rtol=0, atol=2e-5)


def test_the_reduction_without_scratch_leaves_logits_as_they_are() -> None:
    logits = torch.randn(30, 700)
    own = logits[:, :1]
    before = logits.clone()
    pure = reduction(logits, own)
    assert torch.equal(logits, before)
    in_place = reduction(logits.clone(), own, torch.empty(40, 700))
    assert all(torch.equal(a, b) for a, b in zip(pure, in_place, strict=True))


def miscounts(logits: Tensor, own: Tensor) -> tuple[Tensor, ...]:
    greater, *others = reduction(logits, own)
    return greater + (torch.arange(len(greater)) == 5).int(), *others


def imprecise(logits: Tensor, own: Tensor) -> tuple[Tensor, ...]:
    greater, equal, logprob, *others = reduction(logits, own)
    return greater, equal, logprob - 1e-3, *others


def fails(logits: Tensor, own: Tensor) -> tuple[Tensor, ...]:
    raise RuntimeError("no compiler")


@pytest.mark.parametrize("candidate", [miscounts, imprecise, fails])
def test_compiled_code_that_differs_is_not_used(candidate: Callable[[Tensor, Tensor], tuple[Tensor, ...]]) -> None:
    logits = torch.randn(30, 700)
    logits[3, 3] = float("nan")
    used, why = checked(candidate, logits, logits[:, :1])
    assert used is reduction
    assert why


def test_running_out_of_memory_says_nothing_about_compiled_code() -> None:
    def full(logits: Tensor, own: Tensor) -> tuple[Tensor, ...]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    logits = torch.randn(3, 7)
    with pytest.raises(torch.OutOfMemoryError):
        checked(full, logits, logits[:, :1])


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # torch's own use
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch compiles for a CPU with a C++ compiler")
@pytest.mark.skipif("ATEN_CPU_CAPABILITY" in os.environ, reason="torch compiles wrong code for other processors")
def test_the_reduction_compiled_for_a_cpu_gives_the_same_ranks() -> None:
    reduce = compiled_on_cpu(1000)
    assert reduce is not None
    head = Head(torch.randn(1000, 8).round(decimals=1)).without([3, 999])  # one decimal: with ties
    hidden = torch.randn(50, 8).round(decimals=1)
    targets = torch.randint(4, 900, (50,))
    got = Scorer(head, chunk_tokens=16, on_cpu=reduce)(hidden, targets)
    eager = Scorer(head, chunk_tokens=16)(hidden, targets)
    for name, column in eager.columns.items():
        if column.is_floating_point():
            assert got.columns[name] == pytest.approx(column, abs=2e-6)
        else:
            assert torch.equal(got.columns[name], column)


def test_without_a_compiler_the_reduction_stays_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Tensor) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", lambda function, **_: fail)
    assert compiled_on_cpu.__wrapped__(50) is None
