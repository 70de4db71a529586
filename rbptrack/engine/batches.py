"""Batches: sequences of similar length, padded on the right, and which of their hidden states predict which target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
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
        """Number of targets."""
        return len(self.target_ids)

    @property
    def num_sequences(self) -> int:
        return len(self.target_counts)

    @property
    def size(self) -> int:
        """Tokens of the forward pass, padding included."""
        return self.token_ids.numel()

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the sequences."""
        middle = self.num_sequences // 2
        cut = sum(self.target_counts[:middle])
        first = Batch(
            token_ids=self.token_ids[:middle],
            state_index=self.state_index[:cut],
            target_ids=self.target_ids[:cut],
            target_index=self.target_index[:cut],
            target_counts=self.target_counts[:middle],
        )
        second = Batch(
            token_ids=self.token_ids[middle:],
            state_index=self.state_index[cut:] - middle * self.token_ids.shape[1],
            target_ids=self.target_ids[cut:],
            target_index=self.target_index[cut:],
            target_counts=self.target_counts[middle:],
        )
        return first, second

    def to(self, device: torch.device) -> Batch:
        """Return this batch on a device. Copies to CUDA are asynchronous, through page-locked memory."""
        if device.type == "cuda":
            return self._mapped(lambda tensor: tensor.pin_memory().to(device, non_blocking=True))
        return self._mapped(lambda tensor: tensor.to(device))

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Batch:
        return Batch(
            token_ids=change(self.token_ids),
            state_index=change(self.state_index),
            target_ids=change(self.target_ids),
            target_index=self.target_index,
            target_counts=self.target_counts,
        )


def compose(corpus: Corpus, sequences: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Group sequences, given by their numbers and sorted by falling length, into batches.

    A batch has at most `batch_tokens` tokens, padding included; a longer sequence is one by itself. The result depends
    on the arguments alone: a resumed measurement sees the same batches.
    """
    begin = 0
    while begin < len(sequences):
        longest = int(corpus.lengths[sequences[begin]])
        end = begin + max(1, batch_tokens // longest)
        yield list(sequences[begin:end])
        begin = end


def batch_of(corpus: Corpus, sequences: Sequence[int]) -> Batch:
    """The tensors for some sequences, given by their numbers in the corpus."""
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
