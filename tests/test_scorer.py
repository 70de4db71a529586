import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rbptrack.scoring.scorer import Head, Scorer, reference


def brute(logits: list[float], target: int) -> tuple[int, int]:
    own = logits[target]
    return sum(x > own for x in logits), sum(x == own for x in logits) - 1


def test_hand_made_logits() -> None:
    logits = torch.tensor([[3.0, 1.0, 3.0, -2.0], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]])
    scores = reference(logits, torch.tensor([1, 2, 3]))
    assert scores.greater.tolist() == [2, 0, 0]
    assert scores.ties.tolist() == [0, 3, 0]
    log4 = torch.tensor(4.0).log()
    assert scores.logprob[1].item() == pytest.approx(-log4.item())


@given(
    tokens=st.integers(1, 40),
    vocabulary=st.integers(2, 70),
    chunk=st.sampled_from([1, 3, 16, 64]),
    bias=st.booleans(),
    softcap=st.sampled_from([None, 5.0]),
    scale=st.sampled_from([1.0, 0.25]),
    coarse=st.booleans(),
    seed=st.integers(0, 999),
)
@settings(max_examples=80, deadline=None)
def test_scorer_equals_the_definition(
    tokens: int, vocabulary: int, chunk: int, bias: bool, softcap: float | None, scale: float, coarse: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, 8, generator=generator)
    weight = torch.randn(vocabulary, 8, generator=generator)
    if coarse:  # small integers: many exact ties
        hidden, weight = hidden.round(), weight.round()
    offset = torch.randn(vocabulary, generator=generator).round() if bias else None
    targets = torch.randint(vocabulary, (tokens,), generator=generator)
    scorer = Scorer(Head(weight, offset, softcap, scale), chunk_tokens=chunk)
    logits = hidden @ weight.T
    logits = (logits if offset is None else logits + offset) * scale
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    want, got = reference(logits, targets), scorer(hidden, targets)
    torch.testing.assert_close(got.logprob, want.logprob, rtol=1e-5, atol=1e-5)
    if coarse and softcap is None:  # exact arithmetic: counts must be equal, not close
        rows = [brute(row, t) for row, t in zip(logits.tolist(), targets.tolist(), strict=True)]
        assert list(zip(got.greater.tolist(), got.ties.tolist(), strict=True)) == rows
    else:
        assert ((got.greater - want.greater).abs() <= 1).all()


def test_what_a_model_does_to_its_logits_afterwards_is_done() -> None:
    hidden, weight, targets = torch.randn(70, 8), torch.randn(50, 8), torch.randint(50, (70,))
    masked = torch.zeros(50).index_fill(0, torch.tensor([3, 9]), -1e4)  # as a model that rules out image tokens
    scores = Scorer(Head(weight, then=lambda logits: logits + masked), chunk_tokens=16)(hidden, targets)
    want = reference(hidden @ weight.T + masked, targets)
    torch.testing.assert_close(scores.logprob, want.logprob, rtol=1e-5, atol=1e-5)
    assert torch.equal(scores.greater, want.greater)


def test_a_target_equals_itself() -> None:
    """greater + ties + 1 is never more than |V|, and a lone maximum has rank 1, at every chunk boundary."""
    hidden, weight = torch.randn(700, 16), torch.randn(5000, 16)
    targets = (hidden @ weight.T).argmax(1)
    scores = Scorer(Head(weight), chunk_tokens=64)(hidden, targets)
    assert (scores.greater == 0).all()
    assert (scores.ties >= 0).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_logits_are_visible(bad: float) -> None:
    hidden = torch.randn(3, 4)
    hidden[1, 2] = bad
    scores = Scorer(Head(torch.randn(9, 4)), chunk_tokens=16)(hidden, torch.tensor([0, 1, 2]))
    assert torch.isfinite(scores.logprob).tolist() == [True, False, True]


def test_low_precision_weights_are_compared_in_float32() -> None:
    hidden, weight = torch.randn(200, 32).bfloat16(), torch.randn(4000, 32).bfloat16()
    targets = torch.randint(4000, (200,))
    scores = Scorer(Head(weight), chunk_tokens=64)(hidden, targets)
    want = reference(hidden.float() @ weight.float().T, targets)
    assert scores.ties.sum() <= 2
    assert ((scores.greater - want.greater).abs() <= 1).all()
