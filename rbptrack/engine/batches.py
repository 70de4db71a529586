"""Group sequences of similar length into padded batches, and map each target to the hidden state that predicts it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rbptrack.ranks import IntArray

if TYPE_CHECKING:
    from rbptrack.corpus.sequences import Corpus


@dataclass(frozen=True)
class Batch:
    """The input of one forward pass, and the targets that it predicts.

    Attributes:
        token_ids: token ids that the model reads, padded on the right with 0, int64 (sequences, length).
        state_index: for each target, the index of the hidden state that predicts it, int64 (targets,). This is the
            state of the token before the target. The index counts rows of the flattened hidden states (sequences *
            length, width).
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
        """Return the number of targets."""
        return len(self.target_ids)

    @property
    def num_sequences(self) -> int:
        return len(self.target_counts)

    @property
    def size(self) -> int:
        """The number of tokens of the forward pass. Padding counts."""
        return self.token_ids.numel()

    def halves(self) -> tuple[Batch, Batch]:
        """Return two batches with the first and the second half of the sequences."""
        middle = self.num_sequences // 2
        first_targets = sum(self.target_counts[:middle])

        def part(sequences: slice, targets: slice) -> Batch:
            return Batch(
                token_ids=self.token_ids[sequences],
                state_index=self.state_index[targets] - sequences.start * self.token_ids.shape[1],
                target_ids=self.target_ids[targets],
                target_index=self.target_index[targets],
                target_counts=self.target_counts[sequences],
            )

        return part(slice(0, middle), slice(0, first_targets)), part(slice(middle, None), slice(first_targets, None))

    def to(self, device: torch.device) -> Batch:
        """Return this batch with its model inputs and targets on a device.

        `target_index` stays on the CPU. Copies to CUDA are asynchronous, through page-locked memory.
        """

        def copy_to_device(tensor: Tensor) -> Tensor:
            if device.type == "cuda":
                return tensor.pin_memory().to(device, non_blocking=True)
            return tensor.to(device)

        return replace(
            self,
            token_ids=copy_to_device(self.token_ids),
            state_index=copy_to_device(self.state_index),
            target_ids=copy_to_device(self.target_ids),
        )


def group_sequences(corpus: Corpus, sequences: IntArray, batch_tokens: int) -> Iterator[IntArray]:
    """Yield groups of sequences that form one batch each.

    The groups depend on the arguments only. A measurement that is continued therefore uses the same batches.

    Args:
        corpus: the corpus that holds the sequences.
        sequences: the numbers of the sequences in the corpus, (sequences,), sorted by falling length.
        batch_tokens: the largest number of tokens of a batch, padding included. A longer sequence forms a batch alone.

    """
    begin = 0
    while begin < len(sequences):
        longest = int(corpus.lengths[sequences[begin]])
        end = begin + max(1, batch_tokens // longest)
        yield sequences[begin:end]
        begin = end


def make_batch(corpus: Corpus, sequences: IntArray) -> Batch:
    """Make a batch of some sequences, which are given by their numbers in the corpus, (sequences,)."""
    lengths = corpus.lengths[sequences]
    column = np.arange(int(lengths.max()))  # the arrays below are (sequences, length)
    index = (corpus.stop[sequences] - lengths)[:, None] + column  # in the corpus; the prefix lies before the start
    is_input = column < lengths[:, None]
    index[~is_input] = 0
    token_ids = np.where(is_input, corpus.token[index], 0).astype(np.int64)
    token_ids[corpus.prefixed[sequences], : len(corpus.prefix)] = corpus.prefix
    is_target = is_input & (index >= corpus.first[sequences][:, None]) & corpus.is_target[index]
    target_index = index[is_target]
    return Batch(
        token_ids=torch.from_numpy(token_ids),
        state_index=torch.from_numpy(np.flatnonzero(is_target) - 1),  # the token before a target predicts it
        target_ids=torch.from_numpy(corpus.token[target_index].astype(np.int64)),
        target_index=torch.from_numpy(target_index),
        target_counts=tuple(np.count_nonzero(is_target, axis=1).tolist()),
    )
