"""Tokenises documents and finds the field and the number of bytes of each token."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import psutil

from rbptrack.base.errors import BadInput, first_line, is_panic
from rbptrack.corpus.chat import Conversation, render_conversation
from rbptrack.corpus.documents import Document, texts_hash

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IntArray = npt.NDArray[Any]
Offsets = Sequence[tuple[int, int]]
"""For each token of a text: the index of its first character, and the index after its last character."""

_BATCH_DOCUMENTS = 64  # documents that are tokenised together; the tokenizer's threads share them
_BATCH_CHARACTERS = 1_000_000  # a batch ends at this size, to limit the memory that it takes
_BYTES_PER_CHARACTER = 250  # memory that tokenising takes per character; 180 to 250 bytes were measured
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")  # a token that is one byte
_MAX_UNKNOWN = 0.5  # largest allowed share of the tokenizer's "unknown" token
_MAX_LEFT_OUT = 0.1  # largest allowed share of characters without a token; some tokenizers drop control characters
_SHORT_TEXTS = ("a", "1 b")  # two texts, because a tokenizer may drop a character that it does not know


@dataclass(frozen=True)
class Tokens:
    """Tokenised documents that are not cut into sequences yet.

    Attributes:
        token: token ids, int32 (tokens,).
        field: number of the document's field that contains the token's last character, int8 (tokens,). In a
            conversation: the number of the last field for tokens of the answer, and 0 for all other tokens.
        num_bytes: UTF-8 bytes of the text that the token stands for, int32 (tokens,).
        lengths: number of tokens of each document, int64 (documents,).
        document_ids: the id in the dataset of each selected document, in order.
        groups: the group of each document. Empty strings if `dataset.group` is not set.
        texts_hash: SHA-256 (hex) of the texts of these documents.

    """

    token: IntArray
    field: IntArray
    num_bytes: IntArray
    lengths: IntArray
    document_ids: tuple[str, ...]
    groups: tuple[str, ...]
    texts_hash: str


def tokenise(
    documents: Sequence[Document], tokenizer: PreTrainedTokenizerBase, separator: str, template: str = ""
) -> Tokens:
    """Tokenise documents, with the special tokens that the tokenizer adds to a text.

    With a chat template, each document is a conversation, and the template writes the special tokens. The prefix is the
    special tokens with which the tokenizer begins a text. It is added if the template does not write it. Tokens of the
    answer get the number of the last field. All other tokens get 0.

    Args:
        documents: the documents, in order.
        tokenizer: the model's fast tokenizer.
        separator: the text between two fields of a document.
        template: a chat template, or an empty string.

    Raises:
        BadInput: a document needs more memory than is free. The chat template or the tokenizer fails. More than half of
            the tokens are the tokenizer's "unknown" token. The tokenizer leaves out more than a tenth of the text.

    """
    pieces: list[tuple[IntArray, IntArray, IntArray]] = []
    prefix = text_prefix(tokenizer)
    for batch in _split_into_batches(documents):
        if template:
            conversations = [render_conversation(document, tokenizer, template, separator) for document in batch]
            encoded = _encode(tokenizer, [conversation.text for conversation in conversations], special=False)
            for document, conversation, (ids, offsets) in zip(batch, conversations, encoded, strict=True):
                if not np.array_equal(ids[: len(prefix)], prefix):
                    ids = np.concatenate([prefix, ids])
                    offsets = [(0, 0)] * len(prefix) + list(offsets)
                pieces.append((ids, *_answer_and_bytes(conversation, offsets, len(document.fields) - 1)))
        else:
            texts = [separator.join(document.fields) for document in batch]
            encoded = _encode(tokenizer, texts, special=True)
            if not pieces:
                _check_texts_are_covered(texts, [offsets for _, offsets in encoded])
            for document, text, (ids, offsets) in zip(batch, texts, encoded, strict=True):
                pieces.append((ids, *_fields_and_bytes(document, text, offsets, separator)))
    tokens = Tokens(
        token=np.concatenate([ids for ids, _, _ in pieces]),
        field=np.concatenate([fields for _, fields, _ in pieces]),
        num_bytes=np.concatenate([counts for _, _, counts in pieces]),
        lengths=np.array([len(ids) for ids, _, _ in pieces]),
        document_ids=tuple(document.id for document in documents),
        groups=tuple(document.group for document in documents),
        texts_hash=texts_hash(documents, chat=bool(template)),
    )
    _check_tokens_are_known(tokens, tokenizer)
    return tokens


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


def _check_texts_are_covered(texts: Sequence[str], offsets: Sequence[Offsets]) -> None:
    """Raise BadInput if a tokenizer silently leaves out more than a tenth of the texts' visible characters."""
    num_visible = 0
    left_out = 0
    for text, spans in zip(texts, offsets, strict=True):
        covered = np.zeros(len(text), bool)
        for begin, end in spans:
            covered[begin:end] = True
        visible = np.array([not character.isspace() for character in text], bool)
        num_visible += int(visible.sum())
        left_out += int((visible & ~covered).sum())
    if left_out > _MAX_LEFT_OUT * num_visible:
        raise BadInput(
            f"the tokenizer leaves out {left_out / num_visible:.0%} of the texts' characters, because it does not know "
            "them. Give the model's own tokenizer (model.tokenizer=...)"
        )


def text_prefix(tokenizer: PreTrainedTokenizerBase) -> IntArray:
    """Return the ids of the special tokens with which a tokenizer begins every text.

    The tokens of an empty text are compared with those of two short texts.
    """
    added, *others = (_call_tokenizer(tokenizer, text)["input_ids"] for text in ("", *_SHORT_TEXTS))

    def begins(count: int) -> bool:
        rest = len(added) - count  # the number of tokens with which the tokenizer ends every text
        return all(ids[:count] == added[:count] and ids[len(ids) - rest :] == added[count:] for ids in others)

    counts = [count for count in range(len(added) + 1) if begins(count)]
    return np.array(added[: max(counts, default=0)], dtype=np.int32)


def token_texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Return the text of each token id. If the token begins with a space, its text does, too.

    Many tokenizers lose this space if they decode a single id. If a token holds only some bytes of a character, each of
    these bytes becomes a lone surrogate (Python's "surrogateescape"). `rbptrack.base.formatting.readable_text`
    replaces lone surrogates.
    """
    pieces = [str(piece) for piece in tokenizer.convert_ids_to_tokens(list(ids))]
    if "ByteLevel" in repr(tokenizer.backend_tokenizer.decoder):
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        values = {character: byte for byte, character in bytes_to_unicode().items()}
        return [_byte_level_text(piece, values) for piece in pieces]
    texts = []
    for piece in pieces:
        byte = _BYTE_TOKEN.fullmatch(piece)
        texts.append(_decode(bytes([int(byte[1], 16)])) if byte else piece.replace("▁", " "))
    return texts


def _byte_level_text(piece: str, values: dict[str, int]) -> str:
    """Return the text of a token of a byte-level tokenizer, which writes each byte as one character.

    Args:
        piece: the token as the tokenizer writes it.
        values: the byte that each character stands for.

    """
    if not all(character in values for character in piece):
        return piece  # a special token
    return _decode(bytes(values[character] for character in piece))


def _decode(content: bytes) -> str:
    """Decode UTF-8. Each byte that is not part of a whole character becomes a lone surrogate."""
    return content.decode("utf-8", errors="surrogateescape")


def _split_into_batches(documents: Sequence[Document]) -> Iterator[list[Document]]:
    """Yield batches of consecutive documents.

    Raises BadInput if a document of more than `_BATCH_CHARACTERS` characters needs more memory than is free.
    """
    batch: list[Document] = []
    characters = 0
    for document in documents:
        length = sum(map(len, document.fields))
        needed = length * _BYTES_PER_CHARACTER
        available = int(psutil.virtual_memory().available)
        if length > _BATCH_CHARACTERS and needed > available:
            raise BadInput(
                f"document {document.id} has {length:,} characters: tokenising it would take about "
                f"{needed / 1e9:.1f} GB of memory, and {available / 1e9:.1f} GB are free. Split it into smaller "
                "documents"
            )
        if batch and (len(batch) == _BATCH_DOCUMENTS or characters + length > _BATCH_CHARACTERS):
            yield batch
            batch = []
            characters = 0
        batch.append(document)
        characters += length
    if batch:
        yield batch


def _call_tokenizer(tokenizer: PreTrainedTokenizerBase, texts: str | list[str], **options: Any) -> Any:
    """Call a tokenizer. Raises BadInput with one line if it fails."""
    try:
        return tokenizer(texts, verbose=False, **options)
    except BaseException as error:  # a panic in Rust is not an Exception
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise BadInput(f"the tokenizer fails on a text: {first_line(error)}") from error


def _encode(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, special: bool
) -> list[tuple[IntArray, Offsets]]:
    """Return the token ids, int32 (tokens,), and the offsets of each text.

    Args:
        tokenizer: a fast tokenizer.
        texts: the texts.
        special: whether the tokenizer adds its special tokens.

    Raises:
        BadInput: the tokenizer fails on a text.

    """
    encoded = _call_tokenizer(tokenizer, list(texts), return_offsets_mapping=True, add_special_tokens=special)
    ids = [np.array(text_ids, np.int32) for text_ids in encoded["input_ids"]]
    return list(zip(ids, encoded["offset_mapping"], strict=True))


def _fields_and_bytes(document: Document, text: str, offsets: Offsets, separator: str) -> tuple[IntArray, IntArray]:
    """Return the field number and the number of text bytes of each token of a document, both (tokens,)."""
    edges = []  # index of the character at which each field after the first begins
    end = 0
    for part in document.fields[:-1]:
        end += len(part) + len(separator)
        edges.append(end)
    # A token belongs to the field of its last character. Its first character may be a space of the separator, because
    # many tokenizers put the space before a word into the word's token.
    field = [bisect_right(edges, max(begin, end - 1)) for begin, end in offsets]
    return np.array(field, np.int8), _count_bytes(text, offsets, 0, len(text))


def _answer_and_bytes(conversation: Conversation, offsets: Offsets, field: int) -> tuple[IntArray, IntArray]:
    """Return the field number and the number of answer bytes of each token of a conversation, both (tokens,).

    A token that holds a character of the answer gets the number `field`. All other tokens get 0.
    """
    answers = [begin < conversation.stop and end > conversation.start and end > begin for begin, end in offsets]
    fields = np.where(answers, field, 0).astype(np.int8)
    return fields, _count_bytes(conversation.text, offsets, conversation.start, conversation.stop)


def _count_bytes(text: str, offsets: Offsets, start: int, stop: int) -> IntArray:
    """Return, for each token, how many UTF-8 bytes of text[start:stop] it stands for.

    Bytes that no token covers count for the next token. If several tokens share a character, all its bytes count for
    the first of them.

    Args:
        text: the text.
        offsets: the characters of each token.
        start: the index of the first character that counts.
        stop: the index after the last character that counts.

    """
    # The number of bytes before each character. In an ASCII text it is the number of characters.
    bytes_before: Sequence[int] = range(len(text) + 1)
    if not text.isascii():
        bytes_before = [0, *accumulate(len(character.encode()) for character in text)]
    counts = []
    reached_byte = bytes_before[start]
    for _, end in offsets:
        end_byte = bytes_before[min(end, stop)]
        counts.append(max(0, end_byte - reached_byte))
        reached_byte = max(reached_byte, end_byte)
    return np.array(counts, np.int32)
