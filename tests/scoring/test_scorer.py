"""Tests of `Scorer` and of its reduction of logits, against the definition of each score."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rbptrack.scoring import Head, Scorer, Scores
from rbptrack.scoring.reduction import choose_reduction, eager_reduction
from tests.definition import scores_by_definition


def score_logits(logits: Tensor, targets: Tensor, *, chunk_tokens: int = 64) -> Scores:
    """Score given logits, (tokens, vocabulary).

    One-hot hidden states select the rows of the logits, so the product with the head's weight is exact.
    """
    head = Head(logits.T.contiguous())
    return Scorer(head, chunk_tokens=chunk_tokens)(torch.eye(len(logits)), targets)


@pytest.mark.parametrize("by_definition", [False, True])
def test_scores_of_hand_made_logits_are_known(by_definition: bool) -> None:
    logits = torch.tensor([[3.0, 1.0, 3.0, -2.0], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]])
    targets = torch.tensor([1, 2, 3])
    if by_definition:
        scores = scores_by_definition(logits, targets)
    else:
        scores = score_logits(logits, targets, chunk_tokens=2)
    assert scores["greater"].tolist() == [2, 0, 0]
    assert scores["ties"].tolist() == [0, 3, 0]
    assert scores["top"].tolist() == [0, 0, 3]  # the smallest id of equal logits
    ln_4 = torch.tensor(4.0).log().item()
    assert scores["logprob"][1].item() == pytest.approx(-ln_4)
    assert scores["entropy"][1].item() == pytest.approx(ln_4)
    assert torch.equal(scores["top_logprob"][1:], scores["logprob"][1:])


@given(
    tokens=st.integers(1, 40),
    vocab_size=st.one_of(st.integers(2, 70), st.integers(250, 600)),  # one span to search for the maximum, and several
    chunk_tokens=st.sampled_from([1, 3, 16, 64]),
    has_bias=st.booleans(),
    softcap=st.sampled_from([None, 5.0]),
    scale=st.sampled_from([1.0, 0.25]),
    integers=st.booleans(),
    seed=st.integers(0, 999),
)
def test_scorer_equals_the_definition(
    tokens: int,
    vocab_size: int,
    chunk_tokens: int,
    has_bias: bool,
    softcap: float | None,
    scale: float,
    integers: bool,
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, 8, generator=generator)
    weight = torch.randn(vocab_size, 8, generator=generator)
    if integers:  # small integers give many exact ties
        hidden = hidden.round()
        weight = weight.round()
    bias = torch.randn(vocab_size, generator=generator).round() if has_bias else None
    head = Head(weight, bias, softcap, scale)
    targets = torch.randint(vocab_size, (tokens,), generator=generator)
    expected = scores_by_definition(head.logits(hidden), targets)
    scores = Scorer(head, chunk_tokens=chunk_tokens)(hidden, targets)
    for name in ("logprob", "entropy", "top_logprob"):
        torch.testing.assert_close(scores[name], expected[name], rtol=1e-5, atol=1e-5)
    dtypes = {name: column.dtype for name, column in scores.items()}
    assert dtypes == {name: column.dtype for name, column in expected.items()}
    assert (scores["logprob"] <= 0).all()
    assert (scores["entropy"] >= 0).all()
    strictly_best = scores["greater"] + scores["ties"] == 0
    assert torch.equal(scores["logprob"][strictly_best], scores["top_logprob"][strictly_best])
    if integers and softcap is None:  # the arithmetic is exact, so counts are equal
        for name in ("greater", "ties", "top"):
            assert torch.equal(scores[name], expected[name])
    else:
        assert ((scores["greater"] - expected["greater"]).abs() <= 1).all()


def test_head_scales_logits_before_it_caps_them() -> None:
    """With one-hot hidden states, the products are the weights. Expected: 5 tanh(2 (x + 1) / 5)."""
    weight = torch.tensor([[-9.0], [0.0], [1.5]])
    head = Head(weight, bias=torch.ones(3), softcap=5.0, scale=2.0)
    expected = 5 * torch.tanh(2 * (weight.T + 1) / 5)
    torch.testing.assert_close(head.logits(torch.ones(1, 1)), expected)


@pytest.mark.parametrize("vocab_size", [255, 256, 257, 512, 513])
def test_top_is_the_last_entry_if_it_has_the_largest_logit(vocab_size: int) -> None:
    """Logits are searched in spans of 256 entries. The last span may hold one entry only."""
    logits = torch.zeros(1, vocab_size)
    logits[0, -1] = 3.0
    scores = score_logits(logits, torch.tensor([0]))
    assert scores["top"].tolist() == [vocab_size - 1]
    assert scores["top_logprob"].item() == pytest.approx(3 - math.log(vocab_size - 1 + math.exp(3)), rel=1e-5)


def test_scorer_gives_the_largest_logit_rank_1_in_every_chunk() -> None:
    """The target's logit must come from the same product as its competitors. Otherwise rounding could rank it lower."""
    hidden = torch.randn(700, 16)
    weight = torch.randn(5000, 16)
    targets = (hidden @ weight.T).argmax(1)
    scores = Scorer(Head(weight), chunk_tokens=64)(hidden, targets)
    assert (scores["greater"] == 0).all()
    assert (scores["ties"] >= 0).all()


@pytest.mark.parametrize("offset", [1.0, 1e3, 1e4])
def test_scorer_of_large_logits_is_precise_to_float32(offset: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = offset + 3 * torch.randn(200, 2001, generator=generator)
    logits[:100, 7] += 40.0  # the probability of this entry is nearly 1
    targets = torch.arange(200) * 7 % 2001
    scores = score_logits(logits, targets)
    expected = scores_by_definition(logits, targets)
    for name in ("logprob", "top_logprob", "entropy"):
        torch.testing.assert_close(scores[name], expected[name], rtol=1e-6, atol=3e-6)
    assert (scores["logprob"] <= 0).all()
    assert (scores["entropy"] >= 0).all()
    assert torch.equal(scores["top"], expected["top"])


def test_scorer_of_a_head_without_some_entries_ranks_among_the_rest() -> None:
    hidden = torch.randn(70, 8)
    weight = torch.randn(600, 8)
    left_out = [3, 9, *range(200, 460)]
    kept = torch.tensor([entry for entry in range(600) if entry not in left_out])
    targets = kept[torch.arange(70)]
    scores = Scorer(Head(weight).exclude(left_out), chunk_tokens=16)(hidden, targets)
    expected = scores_by_definition((hidden @ weight.T)[:, kept], torch.arange(70))
    assert torch.equal(scores["greater"], expected["greater"])
    assert torch.equal(scores["top"], kept[expected["top"].long()].int())
    for name in ("logprob", "entropy", "top_logprob"):
        torch.testing.assert_close(scores[name], expected[name], rtol=1e-5, atol=1e-5)


def test_eager_reduction_of_bad_logits_is_not_finite() -> None:
    """One NaN or infinity anywhere in a row is enough, and so is a row in which every logit is -inf."""
    logits = torch.randn(20, 1001)
    for row, entry in enumerate((0, 255, 256, 1000)):
        logits[row, entry] = float("nan")
        logits[4 + row, entry] = -float("nan")  # x86 processors produce NaNs with this sign
        logits[8 + row, entry] = float("inf")
    logits[12] = float("-inf")
    targets = torch.full((20,), 500)
    scores = Scores(eager_reduction(logits.clone(), logits.gather(1, targets[:, None]), torch.empty(20, 1001)))
    assert torch.isfinite(scores["logprob"]).tolist() == [False] * 13 + [True] * 7


def test_scorer_of_a_bad_hidden_state_is_not_finite() -> None:
    hidden = torch.randn(3, 4)
    hidden[1, 2] = float("nan")
    scores = Scorer(Head(torch.randn(9, 4)), chunk_tokens=16)(hidden, torch.tensor([0, 1, 2]))
    assert torch.isfinite(scores["logprob"]).tolist() == [True, False, True]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scorer_computes_logits_of_low_precision_weights_in_float32(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 1,500 rows of 32 weights at a time: three blocks, of which the last is smaller.
    monkeypatch.setattr("rbptrack.scoring.scorer._WEIGHTS_BLOCK", 32 * 1500)
    hidden = torch.randn(200, 32).to(dtype)
    weight = torch.randn(4000, 32).to(dtype)
    targets = torch.randint(4000, (200,))
    scores = Scorer(Head(weight), chunk_tokens=64)(hidden, targets)
    expected = scores_by_definition(hidden.float() @ weight.float().T, targets)
    assert scores["ties"].sum() <= 2
    assert ((scores["greater"] - expected["greater"]).abs() <= 1).all()


def test_scorer_uses_the_product_of_a_head_and_drops_its_padding() -> None:
    weight = torch.randn(50, 8)
    hidden = torch.randn(20, 8)
    targets = torch.randint(50, (20,))
    padded = torch.cat([weight, torch.zeros(14, 8)])
    head = Head(torch.empty(50, 8), product=lambda states: states @ padded.T, scale=0.5)
    scores = Scorer(head, chunk_tokens=7)(hidden, targets)
    assert torch.equal(scores["greater"], scores_by_definition(0.5 * (hidden @ weight.T), targets)["greater"])
    assert torch.equal(head.logits(hidden), 0.5 * (hidden @ padded.T)[:, :50])


def test_scorer_entropy_over_262_144_entries_is_exact_to_2e_5() -> None:
    torch.manual_seed(0)
    weight = torch.randn(262_144, 64) * 0.35
    hidden = torch.randn(8, 64) * torch.linspace(0.2, 2, 8)[:, None]
    scores = Scorer(Head(weight), chunk_tokens=16)(hidden, torch.arange(8))
    expected = scores_by_definition(hidden @ weight.T, torch.arange(8))
    torch.testing.assert_close(scores["entropy"], expected["entropy"], rtol=0, atol=2e-5)


def test_eager_reduction_without_scratch_leaves_logits_unchanged() -> None:
    logits = torch.randn(30, 700)
    before = logits.clone()
    eager_reduction(logits, logits[:, :1])
    assert torch.equal(logits, before)


def test_eager_reduction_is_the_same_with_and_without_scratch() -> None:
    logits = torch.randn(30, 700)
    target_logit = logits[:, :1]
    without_scratch = eager_reduction(logits, target_logit)
    with_scratch = eager_reduction(logits.clone(), target_logit, torch.empty(40, 700))
    for name, column in without_scratch.items():
        assert torch.equal(with_scratch[name], column)


def miscounting_reduction(logits: Tensor, target_logit: Tensor) -> dict[str, Tensor]:
    """Compute the reduction with a count of greater entries that is 1 too large at token 5."""
    columns = eager_reduction(logits, target_logit)
    return {**columns, "greater": columns["greater"] + (torch.arange(len(logits)) == 5).int()}


def imprecise_reduction(logits: Tensor, target_logit: Tensor) -> dict[str, Tensor]:
    """Compute the reduction with ln p that is 0.001 too small."""
    columns = eager_reduction(logits, target_logit)
    return {**columns, "logprob": columns["logprob"] - 1e-3}


def failing_reduction(logits: Tensor, target_logit: Tensor) -> dict[str, Tensor]:
    raise RuntimeError("no compiler")


@pytest.mark.parametrize("candidate", [miscounting_reduction, imprecise_reduction, failing_reduction])
def test_choose_reduction_returns_the_eager_one_and_a_reason_if_the_candidate_is_wrong(
    candidate: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
) -> None:
    logits = torch.randn(30, 700)
    logits[3, 3] = float("nan")
    chosen, reason = choose_reduction(candidate, logits, logits[:, :1])
    assert chosen is eager_reduction
    assert reason


def test_choose_reduction_raises_if_memory_runs_out() -> None:
    def reduction_out_of_memory(logits: Tensor, target_logit: Tensor) -> dict[str, Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    logits = torch.randn(3, 7)
    with pytest.raises(torch.OutOfMemoryError):
        choose_reduction(reduction_out_of_memory, logits, logits[:, :1])
