"""Sequences: how tokenised documents are cut for the model, and which of their tokens are scored."""

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
    """Tokenised documents laid end to end, and the sequences over them.

    Attributes:
        token: ids, int32 (tokens,).
        document: the document's number in the selection, from 0, int32 (tokens,).
        position: index of the token in its document, int32 (tokens,).
        field: the field in which the token's last character lies, int8 (tokens,).
        num_bytes: UTF-8 bytes of the text that the token stands for, int32 (tokens,).
        scorable: whether the token may be a target, bool (tokens,).
        start: first token of each sequence, int64 (sequences,), ascending.
        stop: one past its last token, int64 (sequences,).
        first: its first target, int64 (sequences,). The targets of a sequence are the scorable tokens of
            first..stop-1; those of different sequences are disjoint and ascending.
        prefix: special tokens that the tokenizer puts before every text (`<bos>`; often none), int32. A sequence that
            begins inside a document is given them too: models that were trained with them fail without.
        document_ids: id in the dataset of each selected document, in order.
        groups: the source of each document; empty texts where `dataset.group` names no field.
        texts_hash: SHA-256 over the texts of the selection.

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
        """The model's input for a sequence, (length,): its tokens, after the prefix where `prefixed`."""
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
        """Number of tokens that the model reads for each sequence, int64 (sequences,)."""
        added = np.where(self.prefixed, len(self.prefix), 0)
        lengths: IntArray = self.stop - self.start + added
        return lengths

    def targets(self, low: int, high: int) -> IntArray:
        """Indices of the scored tokens of sequences low..high-1, ascending."""
        spans = [np.arange(a, b) for a, b in zip(self.first[low:high], self.stop[low:high], strict=True)]
        flat = np.concatenate(spans)
        scored: IntArray = flat[self.scorable[flat]]
        return scored

    @cached_property
    def num_targets(self) -> int:
        """Number of scored tokens."""
        spans = zip(self.first, self.stop, strict=True)
        return sum(int(np.count_nonzero(self.scorable[first:stop])) for first, stop in spans)

    def document_table(self) -> pd.DataFrame:
        """A row per selected document.

        Columns: `document`, its number in the rank table; `id` in the dataset; `tokens`; `bytes`, of UTF-8, of its
        scored tokens; and `group`, its source, where `dataset.group` names a field.
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
        """A row for every token without a rank, up to the last scored token of its document: document, position, token.

        With the rank table they are the text that the model read.
        """
        scored = np.zeros(len(self.token), bool)
        scored[self.targets(0, len(self.start))] = True
        last = np.full(len(self.document_ids), -1)
        last[self.document[scored]] = self.position[scored]  # positions ascend: the last one stays
        chosen = ~scored & (self.position < last[self.document])
        columns = {"document": self.document, "position": self.position, "token": self.token}
        return pd.DataFrame({name: values[chosen] for name, values in columns.items()})

    def token_texts(self, tokenizer: PreTrainedTokenizerBase, others: Iterable[int] = ()) -> dict[int, str]:
        """The text of every token that occurs, and of other ids that the tokenizer knows, by id."""
        known = [token for token in others if token < len(tokenizer)]
        ids = np.union1d(self.token, np.array(known, np.int64)).tolist()
        return dict(zip(ids, token_texts(tokenizer, ids), strict=True))


def lay_out(tokens: Tokens, tokenizer: PreTrainedTokenizerBase, config: DatasetConfig) -> Corpus:
    """Lay out the sequences of tokenised documents by the dataset's sequence rule, and decide which tokens are scored.

    Raises:
        BadInput: no document is long enough for a single scored token, or the rule does not fit the tokenizer.

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
            f"the tokenizer begins every text with {len(prefix)} special tokens, which leaves no room in sequences of "
            f"{config.seq_len}: give a larger dataset.seq_len"
        )
    if sliding and len(prefix) + config.context >= config.seq_len:
        raise BadInput(
            f"dataset.context must be below {config.seq_len - len(prefix)}, which is seq_len less the {len(prefix)} "
            f"special tokens with which the tokenizer begins every text; got {config.context}"
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
            f"dataset {config.name}: nothing to score in {len(lengths)} documents of at most {lengths.max()} tokens; "
            "a document needs at least 2 tokens that are not special"
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
    """Start, stop and first target of every sequence that has a target; see `Corpus`."""
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
    """Yield overlapping sequences (start, stop, first target) over the document begin..end-1.

    Each sequence repeats the last `context` tokens of the one before and scores the tokens after them, so that every
    token is a target once, with at least `context` tokens before it (fewer only at the document's start). The stride
    from one sequence to the next is seq_len - context, less the prefix.
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
