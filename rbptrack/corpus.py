"""From a dataset to sequences: select documents, tokenise them, cut them, and say which tokens are scored."""

from __future__ import annotations

import hashlib
import logging
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rbptrack.config import DatasetConfig, SequenceRule
from rbptrack.errors import BadInput
from rbptrack.source import Source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IntArray = npt.NDArray[Any]
_SHUFFLE_BUFFER = 10_000  # documents; a constant, because it decides which documents a seed selects


@dataclass(frozen=True)
class Document:
    """One text: its fields in order, as the dataset has them."""

    id: str
    fields: tuple[str, ...]


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

    @property
    def num_targets(self) -> int:
        """How many tokens are scored."""
        return len(self.targets(0, len(self.start)))

    def first_tokens(self, tokens: int) -> Corpus:
        """The first sequences, of about so many tokens; at least one."""
        kept = max(1, int(np.searchsorted(np.cumsum(self.lengths), tokens, side="right")))
        return replace(self, start=self.start[:kept], stop=self.stop[:kept], first=self.first[:kept])

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


def load_documents(config: DatasetConfig, source: Source) -> list[Document]:
    """Read and select documents; streamed, so that a large dataset is never downloaded whole.

    The selection of `documents` texts is seeded and the same on every machine.

    Raises:
        BadInput: the dataset cannot be read, has no such split or field, or holds no text.

    """
    import datasets

    datasets.disable_progress_bars()
    logging.getLogger("datasets").setLevel(logging.ERROR)
    try:
        stream = datasets.load_dataset(
            source.location,
            config.config or None,
            split=config.split,
            revision=source.revision,
            streaming=True,
        )
        columns = list(stream.column_names or config.fields)
        absent = [f for f in [*config.fields, *([config.id_field] if config.id_field else [])] if f not in columns]
        if absent:
            raise BadInput(f"dataset {config.name} has no field {', '.join(absent)}. Fields: {', '.join(columns)}")
        if config.documents:
            stream = stream.shuffle(seed=config.seed, buffer_size=_SHUFFLE_BUFFER)
        rows = islice(stream, config.documents or None)
        documents = [_document(i, row, config) for i, row in enumerate(rows)]
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadInput(f"dataset {config.name} cannot be read from {source.location}: {reason}") from error
    if not any(any(d.fields) for d in documents):
        raise BadInput(f"dataset {config.name} is empty: {len(documents)} documents, none with text in {config.fields}")
    return documents


def _document(number: int, row: dict[str, Any], config: DatasetConfig) -> Document:
    identity = str(row[config.id_field]) if config.id_field else str(number)
    return Document(identity, tuple(str(row[f] if row[f] is not None else "") for f in config.fields))


def texts_hash(documents: Sequence[Document]) -> str:
    """SHA-256 (hex) over the texts of the selection, in order."""
    total = hashlib.sha256()
    for document in documents:
        for text in document.fields:
            total.update(hashlib.sha256(text.encode()).digest())
        total.update(b"\n")
    return total.hexdigest()


def build_corpus(documents: Sequence[Document], tokenizer: PreTrainedTokenizerBase, config: DatasetConfig) -> Corpus:
    """Tokenise documents and lay out their sequences by the dataset's rule.

    Raises:
        BadInput: no document is long enough for a single scored token.

    """
    pieces = [_tokenise(d, tokenizer, config.separator) for d in documents]
    if config.sequence is SequenceRule.pack:
        end = tokenizer.eos_token_id
        if end is None:
            raise BadInput("dataset.sequence=pack needs a tokenizer with an end-of-text token; use truncate or slide")
        pieces = [(np.append(token, end), np.append(part, 0), np.append(size, 0)) for token, part, size in pieces]
    lengths = np.array([len(p[0]) for p in pieces])
    token = np.concatenate([p[0] for p in pieces]).astype(np.int32)
    special = np.isin(token, sorted(set(tokenizer.all_special_ids)))
    # As in the paper, what directly follows a special token is not scored either.
    scorable = ~special & ~np.concatenate([[True], special[:-1]])
    slides = config.sequence is SequenceRule.slide
    prefix = _prefix(tokenizer) if slides else np.empty(0, np.int32)
    if len(prefix) + config.context >= config.seq_len and slides:
        raise BadInput(
            f"dataset.context must be below {config.seq_len - len(prefix)}, which is seq_len less the {len(prefix)} "
            f"special tokens with which the tokenizer begins every text; got {config.context}"
        )
    start, stop, first = _sequences(lengths, config, len(prefix))
    corpus = Corpus(
        token=token,
        document=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        position=np.concatenate([np.arange(n, dtype=np.int32) for n in lengths]),
        field=np.concatenate([p[1] for p in pieces]).astype(np.int8),
        num_bytes=np.concatenate([p[2] for p in pieces]).astype(np.int32),
        scorable=scorable,
        start=start,
        stop=stop,
        first=first,
        prefix=prefix,
        document_ids=tuple(d.id for d in documents),
        texts_hash=texts_hash(documents),
    )
    if not len(start) or not corpus.num_targets:
        raise BadInput(
            f"dataset {config.name}: nothing to score in {len(documents)} documents of at most {lengths.max()} tokens; "
            "a document needs at least 2 tokens that are not special"
        )
    return corpus


def _tokenise(
    document: Document, tokenizer: PreTrainedTokenizerBase, separator: str
) -> tuple[IntArray, IntArray, IntArray]:
    """Token ids, field numbers and text bytes of one document, each (tokens,)."""
    text = separator.join(document.fields)
    edges, at = [], 0  # where each field after the first begins, in characters
    for part in document.fields[:-1]:
        at += len(part) + len(separator)
        edges.append(at)
    encoded = tokenizer(text, return_offsets_mapping=True, verbose=False)
    offsets = encoded["offset_mapping"]
    field = [bisect_right(edges, begin) for begin, _ in offsets]
    # Bytes before each character; a character that several tokens share counts once.
    before = np.concatenate([[0], np.cumsum([len(c.encode()) for c in text])]) if not text.isascii() else None
    counts, reached = [], 0
    for _, end in offsets:
        upto = end if before is None else int(before[end])
        counts.append(max(0, upto - reached))
        reached = max(reached, upto)
    return (
        np.array(encoded["input_ids"], dtype=np.int32),
        np.array(field, np.int8),
        np.array(counts, np.int32),
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
