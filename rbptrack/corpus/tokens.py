"""Tokenised documents: ids, fields and bytes, kept in the cache by content."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import DatasetConfig
from rbptrack.corpus.chat import Conversation, conversation, template_hash
from rbptrack.corpus.documents import Document, load_documents, selection_identity, texts_hash
from rbptrack.corpus.prefix import text_prefix
from rbptrack.sources import cache
from rbptrack.sources.fingerprint import fingerprint
from rbptrack.sources.pin import Source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IntArray = npt.NDArray[Any]
_FORMAT = 1  # raised when `tokenise` makes something else of the same texts: older caches are then not read
_BATCH_DOCUMENTS = 64  # the tokenizers' own threads share them
_BATCH_CHARACTERS = 1_000_000  # at which a batch ends, because of the memory that it takes
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a token that is one byte
_BYTES_PER_CHARACTER = 250  # of memory while a text is tokenised: 180 to 250 were measured


@dataclass(frozen=True)
class Tokens:
    """Tokenised documents, before any rule of sequences.

    Attributes:
        token: ids, int32 (tokens,).
        field: which field the token's first character lies in, int8 (tokens,).
        num_bytes: UTF-8 bytes of the text that the token stands for, int32 (tokens,).
        lengths: tokens of each document, int64 (documents,).
        document_ids: the selection, in order.
        texts_hash: SHA-256 over the texts of the selection.

    """

    token: IntArray
    field: IntArray
    num_bytes: IntArray
    lengths: IntArray
    document_ids: tuple[str, ...]
    texts_hash: str


def load_tokens(
    config: DatasetConfig, source: Source, tokenizer: PreTrainedTokenizerBase, template: str = ""
) -> Tokens:
    """Select and tokenise documents, from the cache if this selection was tokenised so before."""
    return cache.cached(
        tokens_name(config, source, tokenizer, template),
        make=lambda: tokenise(load_documents(config, source), tokenizer, config.separator, template),
        write=_write,
        read=_read,
    )


def tokens_name(config: DatasetConfig, source: Source, tokenizer: PreTrainedTokenizerBase, template: str = "") -> str:
    """Return the name under which a tokenised selection is cached: by content of the tokenizer, not by its model."""
    parts = {"format": _FORMAT, "tokenizer": tokenizer_hash(tokenizer), **selection_identity(config, source)}
    if source.revision is None:  # documents of the same texts have other ids
        parts |= {"read": "files" if source.files else "folder"}
    if template:
        parts |= {"chat": template_hash(template), "named": tokenizer.special_tokens_map}
    return f"tokens/{fingerprint(parts)}.parquet"


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return SHA-256 (hex) of everything in a tokenizer that decides ids and special tokens."""
    return fingerprint({"rules": tokenizer.backend_tokenizer.to_str(), "special": sorted(tokenizer.all_special_ids)})


def tokenise(
    documents: Sequence[Document], tokenizer: PreTrainedTokenizerBase, separator: str, template: str = ""
) -> Tokens:
    """Tokenise documents, with the special tokens that the tokenizer adds to a text.

    With a chat template, every document is a conversation: the template writes the special tokens, the tokenizer only
    those with which it begins a text, where the template does not. The tokens of the answer have the last field's
    number, all others 0.

    Raises:
        BadInput: a document is so long that tokenising it would need more memory than is free, or the chat template
            fails.

    """
    pieces: list[tuple[IntArray, IntArray, IntArray]] = []
    prefix = text_prefix(tokenizer)
    for batch in _batches(documents):
        talks = [conversation(d, tokenizer, template, separator) for d in batch] if template else []
        texts = [talk.text for talk in talks] or [separator.join(d.fields) for d in batch]
        encoded = tokenizer(texts, return_offsets_mapping=True, verbose=False, add_special_tokens=not template)
        for number, (document, text) in enumerate(zip(batch, texts, strict=True)):
            ids = np.array(encoded["input_ids"][number], np.int32)
            offsets = encoded["offset_mapping"][number]
            if talks:
                missing = 0 if np.array_equal(ids[: len(prefix)], prefix) else len(prefix)
                ids = np.concatenate([prefix[:missing], ids])
                offsets = [(0, 0)] * missing + offsets
                fields, counts = _answer_and_bytes(talks[number], offsets, len(document.fields) - 1)
            else:
                fields, counts = _fields_and_bytes(document, text, offsets, separator)
            pieces.append((ids, fields, counts))
    return Tokens(
        token=np.concatenate([p[0] for p in pieces]),
        field=np.concatenate([p[1] for p in pieces]),
        num_bytes=np.concatenate([p[2] for p in pieces]),
        lengths=np.array([len(p[0]) for p in pieces]),
        document_ids=tuple(d.id for d in documents),
        texts_hash=texts_hash(documents, chat=bool(template)),
    )


def token_texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Return the text of each id, with the space before a word, which decoding ids one by one loses in many
    vocabularies.

    Bytes that are no character by themselves are U+FFFD.
    """
    pieces = [str(piece) for piece in tokenizer.convert_ids_to_tokens(list(ids))]
    if "ByteLevel" in repr(tokenizer.backend_tokenizer.decoder):
        values = _byte_values()
        return [_of_bytes(bytes(values[c] for c in p)) if all(c in values for c in p) else p for p in pieces]
    return [_of_bytes(bytes([int(m[1], 16)])) if (m := _BYTE.fullmatch(p)) else p.replace("▁", " ") for p in pieces]


def _of_bytes(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")


def _byte_values() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for: printable ones for themselves."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


def _batches(documents: Sequence[Document]) -> Iterator[list[Document]]:
    """Yield consecutive documents that are tokenised together."""
    batch: list[Document] = []
    characters = 0
    for document in documents:
        length = sum(map(len, document.fields))
        needed = length * _BYTES_PER_CHARACTER
        available = int(psutil.virtual_memory().available)
        if length > _BATCH_CHARACTERS and needed > available:
            raise BadInput(
                f"document {document.id} has {length:,} characters: tokenising it would take about "
                f"{needed / 1e9:.0f} GB of memory, and {available / 1e9:.0f} GB are free. Split it into documents"
            )
        if batch and (len(batch) == _BATCH_DOCUMENTS or characters + length > _BATCH_CHARACTERS):
            yield batch
            batch = []
            characters = 0
        batch.append(document)
        characters += length
    if batch:
        yield batch


def _fields_and_bytes(
    document: Document, text: str, offsets: Sequence[tuple[int, int]], separator: str
) -> tuple[IntArray, IntArray]:
    """Return field number and text bytes of each token of one document, each (tokens,)."""
    edges, at = [], 0  # where each field after the first begins, in characters
    for part in document.fields[:-1]:
        at += len(part) + len(separator)
        edges.append(at)
    field = [bisect_right(edges, begin) for begin, _ in offsets]
    return np.array(field, np.int8), _bytes(text, offsets, 0, len(text))


def _answer_and_bytes(talk: Conversation, offsets: Sequence[tuple[int, int]], field: int) -> tuple[IntArray, IntArray]:
    """Return field number of the tokens that hold a character of the answer, 0 of the others; text bytes of the
    answer.
    """
    answers = [begin < talk.stop and end > talk.start and end > begin for begin, end in offsets]
    return np.array(answers, np.int8) * np.int8(field), _bytes(talk.text, offsets, talk.start, talk.stop)


def _bytes(text: str, offsets: Sequence[tuple[int, int]], start: int, stop: int) -> IntArray:
    """Return UTF-8 bytes of each token among characters start..stop-1; a character that several tokens share counts
    once.
    """
    before = np.concatenate([[0], np.cumsum([len(c.encode()) for c in text])]) if not text.isascii() else None
    counts = []
    reached = start if before is None else int(before[start])
    for _, end in offsets:
        within = min(end, stop)
        upto = within if before is None else int(before[within])
        counts.append(max(0, upto - reached))
        reached = max(reached, upto)
    return np.array(counts, np.int32)


def _write(tokens: Tokens, path: Path) -> None:
    offsets = pa.array(np.concatenate([[0], np.cumsum(tokens.lengths)]), pa.int32())
    lists = {
        name: pa.ListArray.from_arrays(offsets, pa.array(getattr(tokens, name)))
        for name in ("token", "field", "num_bytes")
    }
    table = pa.table({"id": pa.array(tokens.document_ids, pa.string()), **lists})
    pq.write_table(table.replace_schema_metadata({"texts_hash": tokens.texts_hash}), path, compression="zstd")


def _read(content: memoryview) -> Tokens:
    table = pq.read_table(pa.BufferReader(content)).combine_chunks()

    def column(name: str) -> IntArray:
        return np.asarray(table[name].combine_chunks().flatten())

    return Tokens(
        token=column("token"),
        field=column("field"),
        num_bytes=column("num_bytes"),
        lengths=np.asarray(pc.list_value_length(table["token"]).combine_chunks(), dtype=np.int64),
        document_ids=tuple(table["id"].to_pylist()),
        texts_hash=table.schema.metadata[b"texts_hash"].decode(),
    )
