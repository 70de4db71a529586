"""Two models in one pass: every column against both full distributions in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rbptrack.scoring import Head, PairScorer, Scorer, Scores

Parts = tuple[Tensor, Tensor, Tensor, Tensor]  # hidden states and weights of a model, and of its reference


def parts_of(rows: int, reference_rows: int, *, close: float = 1.0) -> Parts:
    generator = torch.Generator().manual_seed(7)
    hidden = torch.randn(60, 8, generator=generator)
    weight = torch.randn(rows, 8, generator=generator)
    other = torch.randn(reference_rows, 8, generator=generator)
    shared = min(rows, reference_rows)
    other[:shared] = weight[:shared] + close * other[:shared]
    return hidden, weight, hidden + close * torch.randn(60, 8, generator=generator), other


def scored(parts: Parts, *, entries: int, chunk: int = 7, without: list[int] | None = None) -> tuple[Scores, float]:
    hidden, weight, reference_hidden, other = parts
    heads = [Head(weight), Head(other)]
    if without:
        heads = [head.without(without) for head in heads]
    pair = PairScorer(*(Scorer(head, chunk_tokens=chunk) for head in heads), entries=entries)
    scores = pair(hidden, reference_hidden, (torch.arange(60) + 100) % entries)
    return scores, float(pair.padding)


@pytest.mark.parametrize(("rows", "reference_rows", "entries"), [(600, 600, 600), (600, 640, 590), (512, 300, 300)])
def test_columns_are_those_of_both_distributions(rows: int, reference_rows: int, entries: int) -> None:
    parts = parts_of(rows, reference_rows)
    found, _ = scored(parts, entries=entries)
    hidden, weight, reference_hidden, other = (part.double() for part in parts)
    log_p = (hidden @ weight.T)[:, :entries].log_softmax(1)
    log_q = (reference_hidden @ other.T)[:, :entries].log_softmax(1)
    assert found.kl is not None
    assert found.accept is not None
    kl = (log_q.exp() * (log_q - log_p)).sum(1)
    torch.testing.assert_close(found.kl.double(), kl, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.accept.double(), torch.minimum(log_p, log_q).exp().sum(1), rtol=1e-5, atol=1e-6)
    rank = (log_p >= log_p.gather(1, log_q.argmax(1, keepdim=True))).sum(1)
    assert found.columns["reference_top"].tolist() == log_q.argmax(1).tolist()
    assert found.columns["reference_rank"].tolist() == rank.tolist()
    plain = Scorer(Head(parts[1]), chunk_tokens=7)(parts[0], (torch.arange(60) + 100) % entries)
    assert all(torch.equal(found.columns[name], column) for name, column in plain.columns.items())


def test_a_small_kl_is_not_lost_in_rounding() -> None:
    """KL of two nearly equal models is smaller than the rounding error of one ln p. Check that it is still exact."""
    parts = parts_of(2000, 2000, close=1e-3)
    found, _ = scored(parts, entries=2000)
    hidden, weight, reference_hidden, other = (part.double() for part in parts)
    log_p = (hidden @ weight.T).log_softmax(1)
    log_q = (reference_hidden @ other.T).log_softmax(1)
    kl = (log_q.exp() * (log_q - log_p)).sum(1)
    assert kl.max() < 1e-4
    assert (found.columns["kl"] - kl).abs().max() < 5e-7


def test_padding_is_left_out_and_its_mass_is_noted() -> None:
    """Rows of the head without a token of the tokenizer may hold any values. They change neither KL nor accept."""
    hidden, weight, reference_hidden, other = parts_of(600, 600)
    padded = torch.cat([other, 3 * torch.randn(40, 8)])
    plain, nothing = scored((hidden, weight, reference_hidden, other), entries=600)
    found, mass = scored((hidden, weight, reference_hidden, padded), entries=600)
    torch.testing.assert_close(found.columns, plain.columns)
    largest = (reference_hidden @ padded.T).double().softmax(1)[:, 600:].sum(1).max()
    assert nothing == 0.0
    assert mass == pytest.approx(float(largest), rel=1e-4)


def test_the_same_model_differs_by_nothing() -> None:
    hidden, weight, _, _ = parts_of(600, 600)
    found, _ = scored((hidden, weight, hidden, weight), entries=600)
    assert found.columns["kl"].max() == 0.0
    assert found.columns["accept"].min() == pytest.approx(1.0, abs=1e-6)
    assert torch.equal(found.columns["reference_top"], found.top)
    assert (found.columns["reference_rank"] == 1).all()


def test_entries_that_both_heads_leave_out_have_no_part() -> None:
    parts = parts_of(600, 600)
    holes = [3, 44]
    found, _ = scored(parts, entries=600, without=holes)
    keep = torch.tensor([i for i in range(600) if i not in holes])
    hidden, weight, reference_hidden, other = (part.double() for part in parts)
    log_p = (hidden @ weight.T)[:, keep].log_softmax(1)
    log_q = (reference_hidden @ other.T)[:, keep].log_softmax(1)
    kl = (log_q.exp() * (log_q - log_p)).sum(1)
    torch.testing.assert_close(found.columns["kl"].double(), kl, rtol=1e-5, atol=1e-6)
    assert not torch.isin(found.columns["reference_top"], torch.tensor(holes)).any()
