"""Batches: sequences of like length, padded on the right, and which of their hidden states predict which target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rbptrack.corpus.sequences import Corpus


@dataclass(frozen=True)
class Batch:
    """What one forward pass reads, and the targets that it predicts.

    Attributes:
        tokens: ids padded on the right, int64 (sequences, length).
        rows: of the flattened hidden states (sequences * length, width), the one before each target, int64 (targets,).
        ids: the targets, int64 (targets,).
        at: their indices in the corpus, int64 (targets,).
        counts: how many targets each sequence has, in the order of `rows`.

    """

    tokens: Tensor
    rows: Tensor
    ids: Tensor
    at: Tensor
    counts: tuple[int, ...]

    def __len__(self) -> int:
        """How many targets it has."""
        return len(self.ids)

    @property
    def size(self) -> int:
        """Tokens of the forward pass, padding included."""
        return self.tokens.numel()

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of its sequences."""
        middle = len(self.counts) // 2
        cut, shift = sum(self.counts[:middle]), middle * self.tokens.shape[1]
        return (
            Batch(self.tokens[:middle], self.rows[:cut], self.ids[:cut], self.at[:cut], self.counts[:middle]),
            Batch(self.tokens[middle:], self.rows[cut:] - shift, self.ids[cut:], self.at[cut:], self.counts[middle:]),
        )

    def to(self, device: torch.device) -> Batch:
        """The same on a device; from pinned memory the copies wait for nothing."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> Batch:
        """The same in memory from which a CUDA device copies by itself."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Batch:
        return Batch(change(self.tokens), change(self.rows), change(self.ids), change(self.at), self.counts)


def compose(corpus: Corpus, part: tuple[int, int], batch_tokens: int) -> Iterator[list[int]]:
    """Sequence numbers by falling length, so that padding is nearly nil; composed from corpus and config alone."""
    order = sorted(range(*part), key=lambda i: (-int(corpus.lengths[i]), i))
    while order:
        longest = int(corpus.lengths[order[0]])
        count = max(1, batch_tokens // longest)
        yield order[:count]
        order = order[count:]


def batch_of(corpus: Corpus, sequences: list[int]) -> Batch:
    """The tensors of some sequences."""
    length = int(corpus.lengths[sequences].max())
    tokens = np.zeros((len(sequences), length), dtype=np.int64)
    rows, targets = [], []
    for row, i in enumerate(sequences):
        inputs = corpus.inputs(i)
        tokens[row, : len(inputs)] = inputs
        wanted = corpus.targets(i, i + 1)
        targets.append(wanted)
        shift = len(inputs) - int(corpus.stop[i])
        rows.append(row * length + wanted + shift - 1)  # the state before the target predicts it
    at = np.concatenate(targets)
    return Batch(
        tokens=torch.from_numpy(tokens),
        rows=torch.from_numpy(np.concatenate(rows)),
        ids=torch.from_numpy(corpus.token[at].astype(np.int64)),
        at=torch.from_numpy(at),
        counts=tuple(len(t) for t in targets),
    )
