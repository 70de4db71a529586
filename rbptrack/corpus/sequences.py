"""From tokenised documents to sequences: cut them, and say which tokens are scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rbptrack.config.schema import DatasetConfig, SequenceRule
from rbptrack.corpus.documents import Document
from rbptrack.corpus.tokens import Tokens, load_tokens, tokenise
from rbptrack.errors import BadInput
from rbptrack.sources.pin import Source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IntArray = npt.NDArray[Any]


@dataclass(frozen=True)
class Corpus:
    """Tokenised documents laid end to end, and the sequences over them.

    Attributes:
        token: ids, int32 (tokens,).
        document: number of the document in the selection, int32 (tokens,).
        position: index of the token in its document, int32 (tokens,).
        field: which field the token's first character lies in, int8 (tokens,).
        num_bytes: UTF-8 bytes of the text that the token stands for, int32 (tokens,).
        scorable: whether the token may be a target, bool (tokens,).
        start: first token of each sequence, int64 (sequences,), ascending.
        stop: one past its last token, (sequences,).
        first: its first target; targets are first..stop-1 where scorable. Disjoint and ascending, (sequences,).
        prefix: special tokens that the tokenizer puts before every text (`<bos>`; often none), int32. Windows that
            begin inside a document are given them too: models trained with them fail without.
        document_ids: the selection, in order.
        texts_hash: SHA-256 over ids and texts of the selection.

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
    texts_hash: str

    def inputs(self, sequence: int) -> IntArray:
        """What the model reads for a sequence, (length,): the prefix where it begins inside a document, its tokens."""
        tokens: IntArray = self.token[self.start[sequence] : self.stop[sequence]]
        return np.concatenate([self.prefix, tokens]) if self.prefixed[sequence] else tokens

    @cached_property
    def prefixed(self) -> npt.NDArray[np.bool_]:
        """Whether `inputs` puts the prefix before a sequence, bool (sequences,)."""
        inside: npt.NDArray[np.bool_] = (self.position[self.start] > 0) & (len(self.prefix) > 0)
        return inside

    @cached_property
    def lengths(self) -> IntArray:
        """How many tokens the model reads for each sequence, int64 (sequences,)."""
        found: IntArray = self.stop - self.start + self.prefixed * len(self.prefix)
        return found

    def targets(self, low: int, high: int) -> IntArray:
        """Indices of the scored tokens of sequences low..high-1, ascending."""
        spans = [np.arange(a, b) for a, b in zip(self.first[low:high], self.stop[low:high], strict=True)]
        flat = np.concatenate(spans)
        scored: IntArray = flat[self.scorable[flat]]
        return scored

    @cached_property
    def num_targets(self) -> int:
        """How many tokens are scored."""
        spans = zip(self.first, self.stop, strict=True)
        return sum(int(np.count_nonzero(self.scorable[first:stop])) for first, stop in spans)

    def first_tokens(self, tokens: int) -> Corpus:
        """The first sequences, of about so many tokens; at least one."""
        kept = max(1, int(np.searchsorted(np.cumsum(self.lengths), tokens, side="right")))
        return replace(self, start=self.start[:kept], stop=self.stop[:kept], first=self.first[:kept])

    def selection(self) -> pd.DataFrame:
        """The selection, a row per document: its number in the rank table, its id in the dataset, its tokens."""
        tokens = np.bincount(self.document, minlength=len(self.document_ids))
        return pd.DataFrame({"document": range(len(tokens)), "id": list(self.document_ids), "tokens": tokens})

    def parts(self, tokens: int) -> list[tuple[int, int]]:
        """Runs of consecutive sequences (low, high) of about `tokens` tokens: what is measured and saved at a time."""
        cumulative = np.cumsum(self.lengths)
        edges, low = [], 0
        while low < len(cumulative):
            done = cumulative[low - 1] if low else 0
            high = max(low + 1, int(np.searchsorted(cumulative, done + tokens, side="right")))
            edges.append((low, high))
            low = high
        return edges


def load_corpus(config: DatasetConfig, source: Source, tokenizer: PreTrainedTokenizerBase) -> Corpus:
    """A dataset's corpus; a family with one tokenizer tokenises a selection once, whatever the rule of sequences."""
    return lay_out(load_tokens(config, source, tokenizer), tokenizer, config)


def build_corpus(documents: Sequence[Document], tokenizer: PreTrainedTokenizerBase, config: DatasetConfig) -> Corpus:
    """Tokenise documents and lay out their sequences by the dataset's rule; see `lay_out`."""
    return lay_out(tokenise(documents, tokenizer, config.separator), tokenizer, config)


def lay_out(tokens: Tokens, tokenizer: PreTrainedTokenizerBase, config: DatasetConfig) -> Corpus:
    """Lay out the sequences of tokenised documents by the dataset's rule, and say which tokens are scored.

    Raises:
        BadInput: no document is long enough for a single scored token.

    """
    if config.sequence is SequenceRule.pack:
        tokens = _joined(tokens, tokenizer.eos_token_id)
    lengths = tokens.lengths
    special = np.isin(tokens.token, sorted(set(tokenizer.all_special_ids)))
    # As in the paper, what directly follows a special token is not scored either.
    scorable = ~special & ~np.concatenate([[True], special[:-1]])
    slides = config.sequence is SequenceRule.slide
    prefix = _prefix(tokenizer) if slides else np.empty(0, np.int32)
    if slides and len(prefix) + config.context >= config.seq_len:
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
        texts_hash=tokens.texts_hash,
    )
    if not len(start) or not corpus.num_targets:
        raise BadInput(
            f"dataset {config.name}: nothing to score in {len(lengths)} documents of at most {lengths.max()} tokens; "
            "a document needs at least 2 tokens that are not special"
        )
    return corpus


def _joined(tokens: Tokens, end: int | None) -> Tokens:
    """The same documents, each closed by the end-of-text token."""
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


def _prefix(tokenizer: PreTrainedTokenizerBase) -> IntArray:
    """The special tokens with which the tokenizer begins every text."""
    special = set(tokenizer.all_special_ids)
    ids: list[int] = tokenizer("a", verbose=False)["input_ids"]
    return np.array(list(takewhile(special.__contains__, ids)), dtype=np.int32)


def _sequences(lengths: IntArray, config: DatasetConfig, prefix: int) -> tuple[IntArray, IntArray, IntArray]:
    spans: list[tuple[int, int, int]] = []
    total = int(lengths.sum())
    if config.sequence is SequenceRule.pack:
        edges = range(0, total, config.seq_len)
        spans = [(a, min(a + config.seq_len, total), a + 1) for a in edges]
    else:
        begin = 0
        for length in lengths.tolist():
            windows = _windows(begin, begin + length, config, prefix)
            spans += islice(windows, 1 if config.sequence is SequenceRule.truncate else None)
            begin += length
    kept = np.array([s for s in spans if s[1] > s[2]], dtype=np.int64).reshape(-1, 3)
    return kept[:, 0], kept[:, 1], kept[:, 2]


def _windows(begin: int, end: int, config: DatasetConfig, prefix: int) -> Iterator[tuple[int, int, int]]:
    """Windows (start, stop, first target) over one document; each target has at least `context` tokens before it."""
    start, first, room = begin, begin + 1, config.seq_len
    while True:
        stop = min(start + room, end)
        yield start, stop, first
        if stop == end:
            return
        start, first, room = stop - config.context, stop, config.seq_len - prefix
