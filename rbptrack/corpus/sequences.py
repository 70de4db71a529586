"""Cut tokenised documents into the sequences that a model reads, and decide which tokens are scored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import DatasetConfig, SequenceRule
from rbptrack.corpus.tokens import Tokens, num_covering, text_prefix, token_texts
from rbptrack.ranks import IntArray
from rbptrack.ranks.near_copies import near_copy_names

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_PIECE_TOKENS = 2**20  # the number of tokens that are converted to 64 bits or sorted at once


@dataclass(frozen=True)
class Corpus(Tokens):
    """The tokens of all selected documents, and the sequences that are cut from them.

    Attributes:
        scorable: whether the token may be a target, bool (tokens,).
        start: index of each sequence's first token, int64 (sequences,), ascending.
        stop: index after each sequence's last token, int64 (sequences,).
        first: index from which tokens are targets of the sequence, int64 (sequences,), ascending. The targets of a
            sequence are the scorable tokens first..stop-1. No token is a target of two sequences.
        prefix: ids of the special tokens with which the tokenizer begins every text, such as `<bos>`, int32. It is
            often empty. A sequence that begins inside a document gets the prefix, too, because models that were trained
            with it predict badly without it.

    """

    scorable: npt.NDArray[np.bool_]
    start: IntArray
    stop: IntArray
    first: IntArray
    prefix: IntArray

    @cached_property
    def document(self) -> IntArray:
        """The number of each token's document in the selection, from 0, int32 (tokens,)."""
        return np.repeat(np.arange(len(self.document_lengths), dtype=np.int32), self.document_lengths)

    @cached_property
    def position(self) -> IntArray:
        """The index of each token in its document, int32 (tokens,)."""
        position = np.arange(len(self.token), dtype=np.int32)
        position -= np.repeat(self._document_starts.astype(np.int32), self.document_lengths)
        return position

    @property
    def _document_starts(self) -> IntArray:
        """The index of each document's first token, int64 (documents,)."""
        starts: IntArray = np.cumsum(self.document_lengths) - self.document_lengths
        return starts

    def inputs(self, sequence: int) -> IntArray:
        """Return the token ids that the model reads for a sequence, (length,), with the prefix if it gets one."""
        tokens: IntArray = self.token[self.start[sequence] : self.stop[sequence]]
        if not self.prefixed[sequence]:
            return tokens
        return np.concatenate([self.prefix, tokens])

    @cached_property
    def prefixed(self) -> npt.NDArray[np.bool_]:
        """Whether `inputs` puts the prefix before each sequence, bool (sequences,)."""
        prefixed: npt.NDArray[np.bool_] = (self.position[self.start] > 0) & (len(self.prefix) > 0)
        return prefixed

    @cached_property
    def lengths(self) -> IntArray:
        """The number of tokens that the model reads for each sequence, int64 (sequences,)."""
        prefix_lengths = np.where(self.prefixed, len(self.prefix), 0)
        lengths: IntArray = self.stop - self.start + prefix_lengths
        return lengths

    @cached_property
    def is_target(self) -> npt.NDArray[np.bool_]:
        """Whether each token is a target, bool (tokens,)."""
        is_target: npt.NDArray[np.bool_] = num_covering(self.first, self.stop, len(self.token)) > 0
        is_target &= self.scorable
        return is_target

    def targets(self, low: int, high: int) -> IntArray:
        """Return the indices of the targets of sequences low..high-1, int64 (targets,), in ascending order."""
        begin = self.first[low]
        targets: IntArray = begin + np.flatnonzero(self.is_target[begin : self.stop[high - 1]])
        return targets

    @cached_property
    def num_targets(self) -> int:
        """The number of targets."""
        return int(np.count_nonzero(self.is_target))

    def document_table(self) -> pd.DataFrame:
        """Return a table with one row per selected document.

        Returns:
            The columns `document` (its number in the rank table), `id` (its id in the dataset), `tokens` (the number of
            all its tokens), `bytes` (the number of UTF-8 bytes of its scored tokens) and, if `dataset.group` names a
            field or some documents are near copies of others, `group`.

        """
        num_documents = len(self.document_ids)
        num_bytes = np.zeros(num_documents)
        for start in range(0, len(self.token), _PIECE_TOKENS):  # because bincount converts its arguments
            piece = slice(start, start + _PIECE_TOKENS)
            bytes_of_targets = self.num_bytes[piece] * self.is_target[piece]
            num_bytes += np.bincount(self.document[piece], bytes_of_targets, num_documents)
        columns = {"document": range(num_documents), "id": self.document_ids, "tokens": self.document_lengths}
        table = pd.DataFrame(columns | {"bytes": num_bytes.astype(np.int64)})
        groups = self.groups if any(self.groups) else self._near_copies()
        if groups:
            table["group"] = list(groups)
        return table

    def _near_copies(self) -> list[str]:
        """Return the group of near copies of each document, or nothing if there are none. Only read tokens count."""
        unread = np.flatnonzero(num_covering(self.start, self.stop, len(self.token)) == 0)
        num_unread = np.bincount(self.document[unread], minlength=len(self.document_ids))
        token = np.delete(self.token, unread) if len(unread) else self.token  # usually, all tokens are read
        return near_copy_names(token, self.document_lengths - num_unread)

    def unscored_table(self) -> pd.DataFrame:
        """Return a table with one row per token that is not scored and precedes a scored token of its document.

        These rows and the rank table together give the text that the model read.

        Returns:
            The columns `document`, `position` and `token`.

        """
        last_scored = np.full(len(self.document_lengths), -1)  # position in each document
        for start in range(0, len(self.token), _PIECE_TOKENS):
            targets = start + np.flatnonzero(self.is_target[start : start + _PIECE_TOKENS])
            last_scored[self.document[targets]] = self.position[targets]  # of equal documents, the last one counts
        unscored = np.flatnonzero(~self.is_target)
        chosen = unscored[self.position[unscored] < last_scored[self.document[unscored]]]
        columns = {"document": self.document, "position": self.position, "token": self.token}
        return pd.DataFrame({name: values[chosen] for name, values in columns.items()})

    def token_texts(self, tokenizer: PreTrainedTokenizerBase, further_ids: Iterable[int] = ()) -> dict[int, str]:
        """Return the text of each token that occurs in the corpus, and of the tokens `further_ids`, by id.

        Further ids that the tokenizer does not know are left out.
        """
        parts = [np.array([token for token in further_ids if token < len(tokenizer)], np.int64)]
        for start in range(0, len(self.token), _PIECE_TOKENS):  # in pieces, because unique sorts a copy
            parts.append(np.unique(self.token[start : start + _PIECE_TOKENS]))
        ids = np.unique(np.concatenate(parts)).tolist()
        return dict(zip(ids, token_texts(tokenizer, ids), strict=True))


def build_corpus(tokens: Tokens, tokenizer: PreTrainedTokenizerBase, config: DatasetConfig) -> Corpus:
    """Cut tokenised documents into sequences by the dataset's sequence rule, and decide which tokens are scored.

    Raises:
        BadInput: no token can be scored, the tokenizer has no end-of-text token for `sequence=pack`, or the tokenizer's
            prefix leaves no room in the sequences.

    """
    if config.sequence is SequenceRule.pack:
        tokens = _append_end_of_text(tokens, tokenizer.eos_token_id)
    is_special = np.isin(tokens.token, sorted(set(tokenizer.all_special_ids)))
    if config.chat:
        scorable = ~is_special & (tokens.field == len(config.fields) - 1)
    else:  # as in the paper (arXiv 2510.20387), a token directly after a special token is not scored either
        scorable = ~is_special & ~np.concatenate([[True], is_special[:-1]])
    prefix = np.empty(0, np.int32)
    if config.sequence is SequenceRule.slide:
        prefix = text_prefix(tokenizer)
        _check_room_for_text(config, len(prefix))
    start, stop, first = _cut_sequences(tokens.document_lengths, config, len(prefix))
    corpus = Corpus(**vars(tokens), scorable=scorable, start=start, stop=stop, first=first, prefix=prefix)
    if not len(start) or not corpus.num_targets:
        lengths = tokens.document_lengths
        raise BadInput(
            f"dataset {config.name}: nothing to score in {len(lengths)} documents of at most {lengths.max()} tokens. "
            "A document needs at least 2 tokens that are not special"
        )
    return corpus


def _check_room_for_text(config: DatasetConfig, prefix_length: int) -> None:
    """Raise BadInput if the prefix and the repeated tokens leave no room for new text in a sequence."""
    if prefix_length + 1 >= config.seq_len:
        raise BadInput(
            f"dataset.seq_len={config.seq_len} is too small: the tokenizer begins every text with {prefix_length} "
            "special tokens, which leaves no room for text. Give a larger dataset.seq_len"
        )
    if prefix_length + config.context >= config.seq_len:
        raise BadInput(
            f"dataset.context={config.context} is too large: it must be below {config.seq_len - prefix_length}, which "
            f"is seq_len minus the {prefix_length} special tokens with which the tokenizer begins every text"
        )


def _append_end_of_text(tokens: Tokens, token_id: int | None) -> Tokens:
    """Append the end-of-text token to each document. Raises BadInput if the tokenizer has no such token."""
    if token_id is None:
        raise BadInput("dataset.sequence=pack needs a tokenizer with an end-of-text token; use truncate or slide")
    ends = np.cumsum(tokens.document_lengths)
    return replace(
        tokens,
        token=np.insert(tokens.token, ends, token_id),
        field=np.insert(tokens.field, ends, 0),
        num_bytes=np.insert(tokens.num_bytes, ends, 0),
        document_lengths=tokens.document_lengths + 1,
    )


def _cut_sequences(lengths: IntArray, config: DatasetConfig, prefix_length: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return the attributes `start`, `stop` and `first` of a Corpus, for each sequence that has a target.

    `lengths` are the numbers of tokens of the documents, (documents,).
    """
    spans: list[tuple[int, int, int]] = []
    total = int(lengths.sum())
    if config.sequence is SequenceRule.pack:
        for begin in range(0, total, config.seq_len):
            spans.append((begin, min(begin + config.seq_len, total), begin + 1))
    else:
        begin = 0
        for length in lengths.tolist():
            overlapping = _overlapping_spans(begin, begin + length, config, prefix_length)
            spans += islice(overlapping, 1 if config.sequence is SequenceRule.truncate else None)
            begin += length
    spans_with_target = [(start, stop, first) for start, stop, first in spans if stop > first]
    columns = np.array(spans_with_target, dtype=np.int64).reshape(-1, 3)
    return columns[:, 0], columns[:, 1], columns[:, 2]


def _overlapping_spans(
    begin: int, end: int, config: DatasetConfig, prefix_length: int
) -> Iterator[tuple[int, int, int]]:
    """Yield start, stop and first target of the overlapping sequences of the document of tokens begin..end-1.

    Each sequence repeats the last `context` tokens of the previous sequence and scores the tokens after them. Every
    token except the document's first one is a target once. It has at least `context` tokens before it, except near the
    document's beginning.
    """
    start = begin
    first = begin + 1
    room = config.seq_len
    while True:
        stop = min(start + room, end)
        yield start, stop, first
        if stop == end:
            return
        start = stop - config.context
        first = stop
        room = config.seq_len - prefix_length
