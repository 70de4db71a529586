"""Cuts tokenised documents into the sequences that a model reads, and decides which tokens are scored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import DatasetConfig, SequenceRule
from rbptrack.corpus.tokens import Tokens, text_prefix, token_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IntArray = npt.NDArray[Any]


@dataclass(frozen=True)
class Corpus:
    """All tokens of the selected documents in one row, and the sequences that are cut from them.

    Attributes:
        token: token ids, int32 (tokens,).
        document: the number of the token's document in the selection, from 0, int32 (tokens,).
        position: index of the token in its document, int32 (tokens,).
        field: number of the field in which the token's last character lies, int8 (tokens,).
        num_bytes: UTF-8 bytes of the text that the token stands for, int32 (tokens,).
        scorable: whether the token may be a target, bool (tokens,).
        start: index of each sequence's first token, int64 (sequences,), ascending.
        stop: index after each sequence's last token, int64 (sequences,).
        first: index of each sequence's first target, int64 (sequences,). The targets of a sequence are the scorable
            tokens first..stop-1. Different sequences have different targets, in ascending order.
        prefix: ids of the special tokens that the tokenizer puts before every text, such as `<bos>`, int32. Often
            empty. A sequence that begins inside a document gets the prefix too, because models that were trained with
            it fail without it.
        document_ids: the id in the dataset of each selected document, in order.
        groups: the group of each document. Empty texts if `dataset.group` names no field.
        texts_hash: SHA-256 (hex) of the texts of the selection.

    """

    token: IntArray
    document: IntArray
    position: IntArray
    field: IntArray
    num_bytes: IntArray
    scorable: npt.NDArray[np.bool_]
    start: IntArray
    stop: IntArray
    first: IntArray
    prefix: IntArray
    document_ids: tuple[str, ...]
    groups: tuple[str, ...]
    texts_hash: str

    def inputs(self, sequence: int) -> IntArray:
        """Return the model's input (length,) for a sequence: its tokens, after the prefix if it gets one."""
        tokens: IntArray = self.token[self.start[sequence] : self.stop[sequence]]
        if not self.prefixed[sequence]:
            return tokens
        return np.concatenate([self.prefix, tokens])

    @cached_property
    def prefixed(self) -> npt.NDArray[np.bool_]:
        """Whether `inputs` puts the prefix before each sequence, bool (sequences,)."""
        inside: npt.NDArray[np.bool_] = (self.position[self.start] > 0) & (len(self.prefix) > 0)
        return inside

    @cached_property
    def lengths(self) -> IntArray:
        """The number of tokens that the model reads for each sequence, int64 (sequences,)."""
        added = np.where(self.prefixed, len(self.prefix), 0)
        lengths: IntArray = self.stop - self.start + added
        return lengths

    def targets(self, low: int, high: int) -> IntArray:
        """Return the indices of the scored tokens of sequences low..high-1, in ascending order."""
        spans = [np.arange(a, b) for a, b in zip(self.first[low:high], self.stop[low:high], strict=True)]
        flat = np.concatenate(spans)
        scored: IntArray = flat[self.scorable[flat]]
        return scored

    @cached_property
    def num_targets(self) -> int:
        """The number of scored tokens."""
        spans = zip(self.first, self.stop, strict=True)
        return sum(int(np.count_nonzero(self.scorable[first:stop])) for first, stop in spans)

    def document_table(self) -> pd.DataFrame:
        """Return a table with a row per selected document.

        Columns: `document` (its number in the rank table), `id` (its id in the dataset), `tokens` (all its tokens) and
        `bytes` (UTF-8 bytes of its scored tokens). If `dataset.group` names a field, also `group`.
        """
        tokens = np.bincount(self.document, minlength=len(self.document_ids))
        scored = self.targets(0, len(self.start))
        num_bytes = np.bincount(self.document[scored], self.num_bytes[scored], len(tokens)).astype(np.int64)
        table = pd.DataFrame(
            {"document": range(len(tokens)), "id": list(self.document_ids), "tokens": tokens, "bytes": num_bytes}
        )
        if any(self.groups):
            table["group"] = list(self.groups)
        return table

    def unscored_table(self) -> pd.DataFrame:
        """Return a table with a row per token that is not scored, up to the last scored token of its document.

        Columns: `document`, `position`, `token`. Together with the rank table, these rows give the text that the model
        read.
        """
        scored = np.zeros(len(self.token), bool)
        scored[self.targets(0, len(self.start))] = True
        last = np.full(len(self.document_ids), -1)
        last[self.document[scored]] = self.position[scored]  # positions ascend, so the last assignment stays
        chosen = ~scored & (self.position < last[self.document])
        columns = {"document": self.document, "position": self.position, "token": self.token}
        return pd.DataFrame({name: values[chosen] for name, values in columns.items()})

    def token_texts(self, tokenizer: PreTrainedTokenizerBase, others: Iterable[int] = ()) -> dict[int, str]:
        """Return the text of each token that occurs in the corpus, by id.

        Args:
            tokenizer: the model's tokenizer.
            others: further ids whose text is returned. Ids that the tokenizer does not know are left out.

        """
        known = [token for token in others if token < len(tokenizer)]
        ids = np.union1d(self.token, np.array(known, np.int64)).tolist()
        return dict(zip(ids, token_texts(tokenizer, ids), strict=True))


def build_corpus(tokens: Tokens, tokenizer: PreTrainedTokenizerBase, config: DatasetConfig) -> Corpus:
    """Cut tokenised documents into sequences by the dataset's sequence rule, and decide which tokens are scored.

    Raises:
        BadInput: no document is long enough for one scored token, the tokenizer has no end-of-text token for
            `sequence=pack`, or its prefix leaves no room in the sequences.

    """
    if config.sequence is SequenceRule.pack:
        tokens = _joined(tokens, tokenizer.eos_token_id)
    lengths = tokens.lengths
    special = np.isin(tokens.token, sorted(set(tokenizer.all_special_ids)))
    # As in the paper (arXiv 2510.20387), a token directly after a special token is not scored either.
    after_special = np.concatenate([[True], special[:-1]])
    answers = tokens.field == len(config.fields) - 1
    scorable = ~special & (answers if config.chat else ~after_special)
    sliding = config.sequence is SequenceRule.slide
    prefix = text_prefix(tokenizer) if sliding else np.empty(0, np.int32)
    if sliding and len(prefix) + 1 >= config.seq_len:
        raise BadInput(
            f"dataset.seq_len={config.seq_len} is too small: the tokenizer begins every text with {len(prefix)} "
            "special tokens, which leaves no room for text. Give a larger dataset.seq_len"
        )
    if sliding and len(prefix) + config.context >= config.seq_len:
        raise BadInput(
            f"dataset.context={config.context} is too large: it must be below {config.seq_len - len(prefix)}, which is "
            f"seq_len minus the {len(prefix)} special tokens with which the tokenizer begins every text"
        )
    start, stop, first = _sequences(lengths, config, len(prefix))
    corpus = Corpus(
        token=tokens.token,
        document=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        position=np.concatenate([np.arange(n, dtype=np.int32) for n in lengths]),
        field=tokens.field,
        num_bytes=tokens.num_bytes,
        scorable=scorable,
        start=start,
        stop=stop,
        first=first,
        prefix=prefix,
        document_ids=tokens.document_ids,
        groups=tokens.groups,
        texts_hash=tokens.texts_hash,
    )
    if not len(start) or not corpus.num_targets:
        raise BadInput(
            f"dataset {config.name}: nothing to score in {len(lengths)} documents of at most {lengths.max()} tokens. "
            "A document needs at least 2 tokens that are not special"
        )
    return corpus


def _joined(tokens: Tokens, end: int | None) -> Tokens:
    """Append the end-of-text token to each document."""
    if end is None:
        raise BadInput("dataset.sequence=pack needs a tokenizer with an end-of-text token; use truncate or slide")
    after = np.cumsum(tokens.lengths)
    return replace(
        tokens,
        token=np.insert(tokens.token, after, end),
        field=np.insert(tokens.field, after, 0),
        num_bytes=np.insert(tokens.num_bytes, after, 0),
        lengths=tokens.lengths + 1,
    )


def _sequences(lengths: IntArray, config: DatasetConfig, prefix: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return `start`, `stop` and `first` of the attributes of `Corpus`, for each sequence that has a target.

    Args:
        lengths: tokens of each document, (documents,).
        config: the dataset's configuration, with its sequence rule.
        prefix: the number of special tokens before each sequence.

    """
    spans: list[tuple[int, int, int]] = []
    total = int(lengths.sum())
    if config.sequence is SequenceRule.pack:
        for begin in range(0, total, config.seq_len):
            spans.append((begin, min(begin + config.seq_len, total), begin + 1))
    else:
        begin = 0
        for length in lengths.tolist():
            overlapping = _strides(begin, begin + length, config, prefix)
            spans += islice(overlapping, 1 if config.sequence is SequenceRule.truncate else None)
            begin += length
    with_target = [(start, stop, first) for start, stop, first in spans if stop > first]
    columns = np.array(with_target, dtype=np.int64).reshape(-1, 3)
    return columns[:, 0], columns[:, 1], columns[:, 2]


def _strides(begin: int, end: int, config: DatasetConfig, prefix: int) -> Iterator[tuple[int, int, int]]:
    """Yield overlapping sequences (start, stop, first target) over the document of tokens begin..end-1.

    Each sequence repeats the last `context` tokens of the previous sequence and scores the tokens after them. Every
    token is a target once and has at least `context` tokens before it, except near the document's start. The stride
    from one sequence to the next is seq_len - context - prefix.
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
        room = config.seq_len - prefix
