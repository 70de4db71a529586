"""Batches: sequences of similar length, padded on the right, and which of their hidden states predict which target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rbptrack.corpus.sequences import Corpus


@dataclass(frozen=True)
class Batch:
    """What one forward pass reads, and the targets that it predicts.

    Attributes:
        token_ids: what the model reads, padded on the right, int64 (sequences, length).
        state_index: for each target, the index of the hidden state that predicts it (the one before it) among the
            flattened hidden states (sequences * length, width), int64 (targets,).
        target_ids: vocabulary ids of the targets, int64 (targets,).
        target_index: indices of the targets in the corpus, int64 (targets,).
        target_counts: number of targets of each sequence, in the order of `state_index`.

    """

    token_ids: Tensor
    state_index: Tensor
    target_ids: Tensor
    target_index: Tensor
    target_counts: tuple[int, ...]

    def __len__(self) -> int:
        """Return number of targets."""
        return len(self.target_ids)

    @property
    def num_sequences(self) -> int:
        """Number of sequences."""
        return len(self.target_counts)

    @property
    def size(self) -> int:
        """Tokens of the forward pass, padding included."""
        return self.token_ids.numel()

    def halves(self) -> tuple[Batch, Batch]:
        """Return the first and the second half of the sequences."""
        middle = self.num_sequences // 2
        cut = sum(self.target_counts[:middle])
        shift = middle * self.token_ids.shape[1]
        first = Batch(
            token_ids=self.token_ids[:middle],
            state_index=self.state_index[:cut],
            target_ids=self.target_ids[:cut],
            target_index=self.target_index[:cut],
            target_counts=self.target_counts[:middle],
        )
        second = Batch(
            token_ids=self.token_ids[middle:],
            state_index=self.state_index[cut:] - shift,
            target_ids=self.target_ids[cut:],
            target_index=self.target_index[cut:],
            target_counts=self.target_counts[middle:],
        )
        return first, second

    def to(self, device: torch.device) -> Batch:
        """Return the same batch on a device. Copies from pinned memory do not block."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> Batch:
        """Return the same batch in page-locked memory, from which a CUDA device copies without the CPU."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Batch:
        return Batch(
            token_ids=change(self.token_ids),
            state_index=change(self.state_index),
            target_ids=change(self.target_ids),
            target_index=change(self.target_index),
            target_counts=self.target_counts,
        )


def by_length(corpus: Corpus, sequences: Iterable[int]) -> list[int]:
    """Return sequence numbers by falling length; sequences of equal length stay in text order."""
    return sorted(sequences, key=lambda i: (-int(corpus.lengths[i]), i))


def compose(corpus: Corpus, sequences: Iterable[int], batch_tokens: int) -> Iterator[list[int]]:
    """Group sequences, given by their numbers, into batches of at most `batch_tokens` tokens, padding included.

    Sequences are taken by falling length, so that almost nothing is padding. The result depends on the corpus and the
    arguments alone: a resumed measurement sees the same batches. A longer sequence is a batch by itself.
    """
    order = by_length(corpus, sequences)
    while order:
        longest = int(corpus.lengths[order[0]])
        count = max(1, batch_tokens // longest)
        yield order[:count]
        order = order[count:]


def batch_of(corpus: Corpus, sequences: list[int]) -> Batch:
    """Return the tensors for some sequences, given by their numbers in the corpus."""
    length = int(corpus.lengths[sequences].max())
    token_ids = np.zeros((len(sequences), length), dtype=np.int64)
    state_index = []
    target_index = []
    for row, sequence in enumerate(sequences):
        inputs = corpus.inputs(sequence)
        token_ids[row, : len(inputs)] = inputs
        targets = corpus.targets(sequence, sequence + 1)
        target_index.append(targets)
        shift = len(inputs) - int(corpus.stop[sequence])  # from an index in the corpus to one in this row
        state_index.append(row * length + targets + shift - 1)  # the state before a target predicts it
    index = np.concatenate(target_index)
    return Batch(
        token_ids=torch.from_numpy(token_ids),
        state_index=torch.from_numpy(np.concatenate(state_index)),
        target_ids=torch.from_numpy(corpus.token[index].astype(np.int64)),
        target_index=torch.from_numpy(index),
        target_counts=tuple(len(targets) for targets in target_index),
    )
