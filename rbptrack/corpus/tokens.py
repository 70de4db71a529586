"""Tokenise documents, and find the field and the number of bytes of each token."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from rbptrack.base.errors import BadInput, first_line, is_panic
from rbptrack.corpus.chat import Conversation, render_conversation
from rbptrack.corpus.documents import Document, texts_hash
from rbptrack.ranks import IntArray

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BATCH_DOCUMENTS = 64  # largest number of documents of a batch; the tokenizer's threads share them
_BATCH_CHARACTERS = 1_000_000  # largest number of characters of a batch of several documents, to limit its memory
# Memory that tokenising takes per byte of UTF-8: 160 to 200 bytes were measured, and 290 if each byte is a token.
_MEMORY_PER_BYTE = 200
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")  # a token that stands for one byte
_MAX_UNKNOWN = 0.5  # largest allowed share of the tokenizer's "unknown" token
_MAX_LEFT_OUT = 0.1  # largest allowed share of characters without a token; some tokenizers drop control characters
_SHORT_TEXTS = ("a", "1 b")  # two texts, because a tokenizer may drop a character that it does not know


@dataclass(frozen=True)
class Tokens:
    """The tokens of all selected documents, one after the other.

    Attributes:
        token: token ids, int32 (tokens,).
        field: number of the document's field that contains the token's last character, int8 (tokens,). In a
            conversation: the number of the last field for tokens of the answer, and 0 for all other tokens.
        num_bytes: number of UTF-8 bytes of the text that the token stands for, int32 (tokens,).
        document_lengths: number of tokens of each document, int64 (documents,).
        document_ids: the id in the dataset of each document, in order.
        groups: the group of each document; empty texts if `dataset.group` names no field.
        texts_hash: SHA-256 (hex) of the texts of the documents.

    """

    token: IntArray
    field: IntArray
    num_bytes: IntArray
    document_lengths: IntArray
    document_ids: tuple[str, ...]
    groups: tuple[str, ...]
    texts_hash: str


def tokenise(
    documents: Sequence[Document], tokenizer: PreTrainedTokenizerBase, separator: str, template: str = ""
) -> Tokens:
    """Tokenise documents, with the special tokens that the tokenizer adds to a text.

    `separator` is the text between two fields of a document. If a chat template is given, each document is rendered as
    a conversation, and the template writes the special tokens. If it does not write those with which the tokenizer
    begins every text, they are added.

    Raises:
        BadInput: a document needs more memory than is free. The chat template or the tokenizer fails. More than half of
            the tokens are the tokenizer's "unknown" token. The tokenizer leaves out more than a tenth of the text.

    """
    columns_of_documents: list[tuple[IntArray, IntArray, IntArray]] = []
    coverage = _Coverage()
    prefix = text_prefix(tokenizer) if template else np.empty(0, np.int32)
    for batch in _split_into_batches(documents):
        if template:
            conversations = [render_conversation(document, tokenizer, template, separator) for document in batch]
            columns_of_documents += _tokenise_conversations(batch, conversations, tokenizer, prefix, coverage)
        else:
            columns_of_documents += _tokenise_texts(batch, tokenizer, separator, coverage)
    coverage.check()
    token, field, num_bytes = map(np.concatenate, zip(*columns_of_documents, strict=True))
    tokens = Tokens(
        token=token,
        field=field,
        num_bytes=num_bytes,
        document_lengths=np.array([len(ids) for ids, _, _ in columns_of_documents]),
        document_ids=tuple(document.id for document in documents),
        groups=tuple(document.group for document in documents),
        texts_hash=texts_hash(documents, chat=bool(template)),
    )
    _check_tokens_are_known(tokens, tokenizer)
    return tokens


def _tokenise_conversations(
    documents: Sequence[Document],
    conversations: Sequence[Conversation],
    tokenizer: PreTrainedTokenizerBase,
    prefix: IntArray,
    coverage: _Coverage,
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Yield `token`, `field` and `num_bytes` of each document, (tokens,) each, rendered as a conversation."""
    encoded = _encode(tokenizer, [conversation.text for conversation in conversations], add_special_tokens=False)
    for document, conversation, (ids, offsets) in zip(documents, conversations, encoded, strict=True):
        coverage.add(conversation.text, offsets)
        if not np.array_equal(ids[: len(prefix)], prefix):
            ids = np.concatenate([prefix, ids])
            offsets = np.concatenate([np.zeros((len(prefix), 2), offsets.dtype), offsets])
        yield ids, *_answer_and_bytes(conversation, offsets, len(document.fields) - 1)


def _tokenise_texts(
    documents: Sequence[Document], tokenizer: PreTrainedTokenizerBase, separator: str, coverage: _Coverage
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Yield `token`, `field` and `num_bytes` of each document, (tokens,) each."""
    texts = [separator.join(document.fields) for document in documents]
    encoded = _encode(tokenizer, texts, add_special_tokens=True)
    for document, text, (ids, offsets) in zip(documents, texts, encoded, strict=True):
        coverage.add(text, offsets)
        yield ids, *_fields_and_bytes(document, text, offsets, separator)


def _check_tokens_are_known(tokens: Tokens, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise BadInput if more than half of the tokens of the texts are the tokenizer's "unknown" token."""
    unknown = getattr(tokenizer.backend_tokenizer.model, "unk_token", None) or tokenizer.unk_token
    text_tokens = tokens.token[tokens.num_bytes > 0]
    unknown_tokens = np.count_nonzero(text_tokens == tokenizer.convert_tokens_to_ids(unknown)) if unknown else 0
    if unknown_tokens > _MAX_UNKNOWN * len(text_tokens):
        raise BadInput(
            f"the tokenizer does not know the texts: {unknown_tokens:,} of {len(text_tokens):,} tokens are {unknown}. "
            "Give the model's own tokenizer (model.tokenizer=...)"
        )


@dataclass
class _Coverage:
    """Counts the visible characters of texts, and those that no token covers."""

    num_visible: int = 0
    num_left_out: int = 0

    def add(self, text: str, offsets: IntArray) -> None:
        """Count the characters of a text. `offsets` are those of its tokens, (tokens, 2)."""
        uncovered = np.flatnonzero(num_covering(offsets[:, 0], offsets[:, 1], len(text)) == 0)
        self.num_visible += sum(map(len, text.split()))
        self.num_left_out += sum(not text[index].isspace() for index in uncovered.tolist())

    def check(self) -> None:
        """Raise BadInput if the tokenizer silently leaves out more than a tenth of the visible characters."""
        if self.num_left_out > _MAX_LEFT_OUT * self.num_visible:
            raise BadInput(
                f"the tokenizer leaves out {self.num_left_out / self.num_visible:.0%} of the texts' characters, "
                "because it does not know them. Give the model's own tokenizer (model.tokenizer=...)"
            )


def num_covering(starts: IntArray, stops: IntArray, length: int) -> IntArray:
    """Return how many of the ranges start..stop-1 hold each of the numbers 0..length-1, int32 (length,)."""
    changes = np.zeros(length + 1, np.int32)
    np.add.at(changes, starts, 1)
    np.add.at(changes, stops, -1)
    return np.cumsum(changes, out=changes)[:-1]


def text_prefix(tokenizer: PreTrainedTokenizerBase) -> IntArray:
    """Return the ids of the special tokens with which a tokenizer begins every text, int32 (tokens,).

    The tokens of an empty text are the special tokens that begin every text and those that end it. Two short texts show
    how many of these tokens begin a text.
    """
    special_ids, *ids_of_texts = (_call_tokenizer(tokenizer, text)["input_ids"] for text in ("", *_SHORT_TEXTS))
    longest_prefix: list[int] = []
    for length in range(1, len(special_ids) + 1):
        prefix = special_ids[:length]
        suffix = special_ids[length:]
        if all(ids[:length] == prefix and ids[len(ids) - len(suffix) :] == suffix for ids in ids_of_texts):
            longest_prefix = prefix
    return np.array(longest_prefix, dtype=np.int32)


def token_texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Return the text of each token id, with the space with which the token may begin.

    Many tokenizers lose this space if they decode a single id. If a token holds only some bytes of a character, each of
    these bytes becomes a lone surrogate (Python's "surrogateescape"). `rbptrack.base.formatting.readable_text`
    replaces lone surrogates.
    """
    pieces = [piece or "" for piece in tokenizer.convert_ids_to_tokens(list(ids))]  # None: an id without a token
    if "ByteLevel" in repr(tokenizer.backend_tokenizer.decoder):
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        byte_of_character = {character: byte for byte, character in bytes_to_unicode().items()}
        return [_byte_level_text(piece, byte_of_character) for piece in pieces]
    texts = []
    for piece in pieces:
        byte_token = _BYTE_TOKEN.fullmatch(piece)
        texts.append(_decode(bytes([int(byte_token[1], 16)])) if byte_token else piece.replace("▁", " "))
    return texts


def _byte_level_text(piece: str, byte_of_character: dict[str, int]) -> str:
    """Return the text of a token of a byte-level tokenizer, which writes each byte as one character."""
    if not all(character in byte_of_character for character in piece):
        return piece  # a special token
    return _decode(bytes(byte_of_character[character] for character in piece))


def _decode(content: bytes) -> str:
    """Decode UTF-8. Each byte that is not part of a whole character becomes a lone surrogate."""
    return content.decode("utf-8", errors="surrogateescape")


def _split_into_batches(documents: Sequence[Document]) -> Iterator[list[Document]]:
    """Yield batches of consecutive documents. A document of more than `_BATCH_CHARACTERS` is a batch of its own.

    Raises BadInput if such a document needs more memory than is free.
    """
    batch: list[Document] = []
    characters = 0
    for document in documents:
        length = sum(map(len, document.fields))
        if length > _BATCH_CHARACTERS:
            _check_memory(document)
        if batch and (len(batch) == _BATCH_DOCUMENTS or characters + length > _BATCH_CHARACTERS):
            yield batch
            batch = []
            characters = 0
        batch.append(document)
        characters += length
    if batch:
        yield batch


def _check_memory(document: Document) -> None:
    """Raise BadInput if a document needs more memory than is free to be tokenised."""
    length = sum(len(field.encode()) for field in document.fields)
    needed_bytes = length * _MEMORY_PER_BYTE
    free_bytes = int(psutil.virtual_memory().available)
    if needed_bytes > free_bytes:
        raise BadInput(
            f"document {document.id} has {length:,} bytes of text: tokenising it would take about "
            f"{needed_bytes / 1e9:.1f} GB of memory, and {free_bytes / 1e9:.1f} GB are free. Split it into smaller "
            "documents"
        )


def _call_tokenizer(tokenizer: PreTrainedTokenizerBase, texts: str | list[str], **options: Any) -> Any:
    """Call a tokenizer. Raises BadInput if it fails."""
    try:
        return tokenizer(texts, verbose=False, **options)
    except BaseException as error:  # a panic in Rust is not an Exception
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise BadInput(f"the tokenizer fails on a text: {first_line(error)}") from error


def _encode(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, add_special_tokens: bool
) -> list[tuple[IntArray, IntArray]]:
    """Return the token ids, int32 (tokens,), and the offsets, int64 (tokens, 2), of each text.

    The offsets of a token are the index of its first character, and the index after its last character. Raises BadInput
    if the tokenizer fails on a text.
    """
    encoded = _call_tokenizer(
        tokenizer, list(texts), return_offsets_mapping=True, add_special_tokens=add_special_tokens
    )
    ids = [np.array(text_ids, np.int32) for text_ids in encoded["input_ids"]]
    offsets = [np.array(text_offsets, np.int64).reshape(-1, 2) for text_offsets in encoded["offset_mapping"]]
    return list(zip(ids, offsets, strict=True))


def _fields_and_bytes(document: Document, text: str, offsets: IntArray, separator: str) -> tuple[IntArray, IntArray]:
    """Return the field number and the number of text bytes of each token of a document, both (tokens,)."""
    field_starts = []  # index of the character at which each field after the first begins
    start = 0
    for field_text in document.fields[:-1]:
        start += len(field_text) + len(separator)
        field_starts.append(start)
    # A token belongs to the field of its last character. Its first character may be a space of the separator, because
    # many tokenizers put the space before a word into the word's token.
    last_characters = np.maximum(offsets[:, 0], offsets[:, 1] - 1)
    fields = np.searchsorted(field_starts, last_characters, side="right")
    return fields.astype(np.int8), _count_bytes(text, offsets, 0, len(text))


def _answer_and_bytes(conversation: Conversation, offsets: IntArray, answer_field: int) -> tuple[IntArray, IntArray]:
    """Return the field number and the number of answer bytes of each token of a conversation, both (tokens,).

    A token that holds a character of the answer gets the number `answer_field`. All other tokens get 0.
    """
    begins, ends = offsets.T
    in_answer = (begins < conversation.stop) & (ends > conversation.start) & (ends > begins)
    fields = np.where(in_answer, answer_field, 0).astype(np.int8)
    return fields, _count_bytes(conversation.text, offsets, conversation.start, conversation.stop)


def _count_bytes(text: str, offsets: IntArray, start: int, stop: int) -> IntArray:
    """Return how many UTF-8 bytes of text[start:stop] each token stands for, int32 (tokens,).

    `offsets` are those of the tokens, (tokens, 2). Bytes that no token covers count for the next token. If several
    tokens share a character, all its bytes count for the first of them.
    """
    bytes_before = np.arange(len(text) + 1)  # the number of bytes before each character of an ASCII text
    if not text.isascii():
        np.cumsum([len(character.encode()) for character in text], out=bytes_before[1:])
    ends = bytes_before[np.minimum(offsets[:, 1], stop)]
    reached = np.maximum.accumulate(np.append(bytes_before[start], ends))
    return np.diff(reached).astype(np.int32)
