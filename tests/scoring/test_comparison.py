"""Tests of `PairScorer`: the columns that compare two models, against both full distributions in float64.

p are the probabilities of the measured model, q those of its reference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from rbptrack.scoring import Head, PairScorer, Scorer, Scores

TOKENS = 60
WIDTH = 8


@dataclass(frozen=True)
class Pair:
    """Hidden states (tokens, width) and head weights (vocabulary, width) of a model and of its reference."""

    hidden: Tensor
    weight: Tensor
    reference_hidden: Tensor
    reference_weight: Tensor

    def log_probabilities(self, entries: Tensor) -> tuple[Tensor, Tensor]:
        """Return ln p and ln q over some vocabulary entries, (tokens, entries), float64."""
        logits = self.hidden.double() @ self.weight.double().T
        reference_logits = self.reference_hidden.double() @ self.reference_weight.double().T
        return logits[:, entries].log_softmax(1), reference_logits[:, entries].log_softmax(1)


def random_pair(rows: int, reference_rows: int, *, distance: float = 1.0) -> Pair:
    """Make a pair with random values.

    Args:
        rows: the number of rows of the model's head.
        reference_rows: the number of rows of the reference's head.
        distance: the standard deviation of the differences between the two models' values.
    """
    generator = torch.Generator().manual_seed(7)
    hidden = torch.randn(TOKENS, WIDTH, generator=generator)
    weight = torch.randn(rows, WIDTH, generator=generator)
    reference_weight = torch.randn(reference_rows, WIDTH, generator=generator)
    shared = min(rows, reference_rows)
    reference_weight[:shared] = weight[:shared] + distance * reference_weight[:shared]
    reference_hidden = hidden + distance * torch.randn(TOKENS, WIDTH, generator=generator)
    return Pair(hidden, weight, reference_hidden, reference_weight)


def targets(entries: int) -> Tensor:
    return (torch.arange(TOKENS) + 100) % entries


def score_pair(pair: Pair, *, entries: int, left_out: list[int] | None = None) -> tuple[Scores, float]:
    """Score the targets of a pair in chunks of 7 tokens.

    Args:
        pair: the model and its reference.
        entries: the number of vocabulary entries that are compared.
        left_out: vocabulary entries that both heads leave out.

    Returns:
        The scores, and the largest total probability of padding rows at any token.
    """
    head = Head(pair.weight)
    reference_head = Head(pair.reference_weight)
    if left_out:
        head = head.exclude(left_out)
        reference_head = reference_head.exclude(left_out)
    scorer = PairScorer(Scorer(head, chunk_tokens=7), Scorer(reference_head, chunk_tokens=7), entries=entries)
    scores = scorer(pair.hidden, pair.reference_hidden, targets(entries))
    return scores, float(scorer.padding_mass)


def kl_of_definition(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Compute KL(q || p) in nats, (tokens,), from ln p and ln q, (tokens, entries)."""
    return (log_q.exp() * (log_q - log_p)).sum(1)


@pytest.mark.parametrize(("rows", "reference_rows", "entries"), [(600, 600, 600), (600, 640, 590), (512, 300, 300)])
def test_pair_scorer_columns_equal_those_of_both_distributions(rows: int, reference_rows: int, entries: int) -> None:
    pair = random_pair(rows, reference_rows)
    scores, _ = score_pair(pair, entries=entries)
    log_p, log_q = pair.log_probabilities(torch.arange(entries))
    torch.testing.assert_close(scores["kl"].double(), kl_of_definition(log_p, log_q), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        scores["accept"].double(), torch.minimum(log_p, log_q).exp().sum(1), rtol=1e-5, atol=1e-6
    )
    reference_top = log_q.argmax(1)
    reference_rank = (log_p >= log_p.gather(1, reference_top[:, None])).sum(1)
    assert scores["reference_top"].tolist() == reference_top.tolist()
    assert scores["reference_rank"].tolist() == reference_rank.tolist()


@pytest.mark.parametrize(("rows", "reference_rows", "entries"), [(600, 600, 600), (600, 640, 590), (512, 300, 300)])
def test_pair_scorer_gives_the_columns_that_scorer_gives(rows: int, reference_rows: int, entries: int) -> None:
    pair = random_pair(rows, reference_rows)
    scores, _ = score_pair(pair, entries=entries)
    alone = Scorer(Head(pair.weight), chunk_tokens=7)(pair.hidden, targets(entries))
    for name, column in alone.items():
        assert torch.equal(scores[name], column)


def test_pair_scorer_computes_a_kl_below_the_rounding_error_of_ln_p() -> None:
    pair = random_pair(2000, 2000, distance=1e-3)
    scores, _ = score_pair(pair, entries=2000)
    expected = kl_of_definition(*pair.log_probabilities(torch.arange(2000)))
    assert expected.max() < 1e-4
    assert (scores["kl"] - expected).abs().max() < 5e-7


def test_pair_scorer_leaves_padding_rows_out_of_its_columns() -> None:
    pair = random_pair(600, 600)
    padding_rows = 3 * torch.randn(40, WIDTH)
    padded = replace(pair, reference_weight=torch.cat([pair.reference_weight, padding_rows]))
    plain_scores, plain_padding = score_pair(pair, entries=600)
    padded_scores, _ = score_pair(padded, entries=600)
    torch.testing.assert_close(dict(padded_scores), dict(plain_scores))
    assert plain_padding == 0.0


def test_pair_scorer_padding_is_the_largest_probability_of_padding_rows() -> None:
    pair = random_pair(600, 600)
    padding_rows = 3 * torch.randn(40, WIDTH)
    padded = replace(pair, reference_weight=torch.cat([pair.reference_weight, padding_rows]))
    _, padding = score_pair(padded, entries=600)
    probabilities = (pair.reference_hidden @ padded.reference_weight.T).double().softmax(1)
    assert padding == pytest.approx(float(probabilities[:, 600:].sum(1).max()), rel=1e-4)


def test_pair_scorer_of_two_equal_models_has_kl_0_and_accept_1() -> None:
    pair = random_pair(600, 600)
    equal = Pair(pair.hidden, pair.weight, pair.hidden, pair.weight)
    scores, _ = score_pair(equal, entries=600)
    assert scores["kl"].max() == 0.0
    assert scores["accept"].min() == pytest.approx(1.0, abs=1e-6)
    assert torch.equal(scores["reference_top"], scores["top"])
    assert (scores["reference_rank"] == 1).all()


def test_pair_scorer_ignores_entries_that_both_heads_leave_out() -> None:
    pair = random_pair(600, 600)
    left_out = [3, 44]
    scores, _ = score_pair(pair, entries=600, left_out=left_out)
    kept = torch.tensor([entry for entry in range(600) if entry not in left_out])
    expected = kl_of_definition(*pair.log_probabilities(kept))
    torch.testing.assert_close(scores["kl"].double(), expected, rtol=1e-5, atol=1e-6)
    assert not torch.isin(scores["reference_top"], torch.tensor(left_out)).any()


def test_pair_scorer_has_infinite_kl_if_only_the_reference_may_choose_an_entry() -> None:
    pair = random_pair(600, 600)
    scorer = Scorer(Head(pair.weight).exclude([3]), chunk_tokens=7)
    reference = Scorer(Head(pair.reference_weight), chunk_tokens=7)
    scores = PairScorer(scorer, reference, entries=600)(pair.hidden, pair.reference_hidden, targets(600))
    assert torch.isinf(scores["kl"]).all()
