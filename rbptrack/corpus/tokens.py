"""Tokenised documents: ids, the field that each token is from, and the bytes that it stands for."""

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
from rbptrack.corpus.chat import Conversation, conversation
from rbptrack.corpus.documents import Document, texts_hash

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IntArray = npt.NDArray[Any]
Offsets = Sequence[tuple[int, int]]
"""First character, and one past the last, of each token of a text."""

_BATCH_DOCUMENTS = 64  # the tokenizers' own threads share them
_BATCH_CHARACTERS = 1_000_000  # at which a batch ends, because of the memory that it takes
_BYTES_PER_CHARACTER = 250  # of memory while a text is tokenised: 180 to 250 were measured
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a token that is one byte
_MAX_UNKNOWN = 0.5  # share of tokens that stand for what the tokenizer does not know
_MAX_LEFT_OUT = 0.1  # share of characters that no token stands for; normalisers drop a few
_SHORT_TEXTS = ("a", "1 b")  # a tokenizer may not know the letter


@dataclass(frozen=True)
class Tokens:
    """Tokenised documents, before any rule of sequences.

    Attributes:
        token: ids, int32 (tokens,).
        field: which field the token's last character lies in, int8 (tokens,).
        num_bytes: UTF-8 bytes of the text that the token stands for, int32 (tokens,).
        lengths: tokens of each document, int64 (documents,).
        document_ids: ids in the dataset of the selected documents, in order.
        groups: the source of each document; empty texts where none is named.
        texts_hash: SHA-256 over the texts of the selection.

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

    With a chat template, every document is a conversation: the template writes the special tokens, the tokenizer only
    those with which it begins a text, where the template does not. The tokens of the answer have the last field's
    number, all others 0.

    Raises:
        BadInput: a document is so long that tokenising it would need more memory than is free, the chat template fails,
            or the tokenizer knows nothing of the texts.

    """
    pieces: list[tuple[IntArray, IntArray, IntArray]] = []
    prefix = text_prefix(tokenizer)
    for batch in _batches(documents):
        if template:
            talks = [conversation(document, tokenizer, template, separator) for document in batch]
            encoded = _encoded(tokenizer, [talk.text for talk in talks], special=False)
            for document, talk, (ids, offsets) in zip(batch, talks, encoded, strict=True):
                if not np.array_equal(ids[: len(prefix)], prefix):
                    ids = np.concatenate([prefix, ids])
                    offsets = [(0, 0)] * len(prefix) + list(offsets)
                pieces.append((ids, *_answer_and_bytes(talk, offsets, len(document.fields) - 1)))
        else:
            texts = [separator.join(document.fields) for document in batch]
            encoded = _encoded(tokenizer, texts, special=True)
            if not pieces:
                _check_covered(texts, [offsets for _, offsets in encoded])
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
    _check_known(tokens, tokenizer)
    return tokens


def _check_known(tokens: Tokens, tokenizer: PreTrainedTokenizerBase) -> None:
    unknown = getattr(tokenizer.backend_tokenizer.model, "unk_token", None) or tokenizer.unk_token
    of_text = tokens.token[tokens.num_bytes > 0]
    unknown_tokens = np.count_nonzero(of_text == tokenizer.convert_tokens_to_ids(unknown)) if unknown else 0
    if unknown_tokens > _MAX_UNKNOWN * len(of_text):
        raise BadInput(
            f"the tokenizer does not know the texts: {unknown_tokens:,} of {len(of_text):,} tokens are {unknown}; "
            "give the model's own tokenizer (model.tokenizer=...)"
        )


def _check_covered(texts: Sequence[str], offsets: Sequence[Offsets]) -> None:
    """Refuse a tokenizer that leaves out characters which it does not know, and says nothing."""
    written = 0
    left_out = 0
    for text, spans in zip(texts, offsets, strict=True):
        covered = np.zeros(len(text), bool)
        for begin, end in spans:
            covered[begin:end] = True
        visible = np.array([not character.isspace() for character in text], bool)
        written += int(visible.sum())
        left_out += int((visible & ~covered).sum())
    if left_out > _MAX_LEFT_OUT * written:
        raise BadInput(
            f"the tokenizer leaves out {left_out / written:.0%} of the texts' characters, which it does not know; give "
            "the model's own tokenizer (model.tokenizer=...)"
        )


def text_prefix(tokenizer: PreTrainedTokenizerBase) -> IntArray:
    """The special tokens with which the tokenizer begins every text: the beginning of what it makes of an empty one."""
    added, *others = (_call(tokenizer, text)["input_ids"] for text in ("", *_SHORT_TEXTS))

    def begins(count: int) -> bool:
        rest = len(added) - count  # what the tokenizer ends every text with
        return all(ids[:count] == added[:count] and ids[len(ids) - rest :] == added[count:] for ids in others)

    counts = [count for count in range(len(added) + 1) if begins(count)]
    return np.array(added[: max(counts, default=0)], dtype=np.int32)


def token_texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """The text of each id, with the space before a word, which decoding ids one by one loses in many vocabularies.

    Bytes that are no character by themselves are lone surrogates; see `rbptrack.base.words.readable`.
    """
    pieces = [str(piece) for piece in tokenizer.convert_ids_to_tokens(list(ids))]
    if "ByteLevel" in repr(tokenizer.backend_tokenizer.decoder):
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        values = {character: byte for byte, character in bytes_to_unicode().items()}  # type: ignore[no-untyped-call]
        return [_text_of_bytes_level(piece, values) for piece in pieces]
    texts = []
    for piece in pieces:
        byte = _BYTE.fullmatch(piece)
        texts.append(_decoded(bytes([int(byte[1], 16)])) if byte else piece.replace("▁", " "))
    return texts


def _text_of_bytes_level(piece: str, values: dict[str, int]) -> str:
    if not all(character in values for character in piece):
        return piece  # a special token
    return _decoded(bytes(values[character] for character in piece))


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", errors="surrogateescape")


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


def _call(tokenizer: PreTrainedTokenizerBase, texts: str | list[str], **options: Any) -> Any:
    """What a tokenizer makes of texts. Whatever it raises becomes a line."""
    try:
        return tokenizer(texts, verbose=False, **options)
    except BaseException as error:  # Rust raises what it likes
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise BadInput(f"the tokenizer fails on a text: {first_line(error)}") from error


def _encoded(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, special: bool
) -> list[tuple[IntArray, Offsets]]:
    encoded = _call(tokenizer, list(texts), return_offsets_mapping=True, add_special_tokens=special)
    ids = [np.array(one, np.int32) for one in encoded["input_ids"]]
    return list(zip(ids, encoded["offset_mapping"], strict=True))


def _fields_and_bytes(document: Document, text: str, offsets: Offsets, separator: str) -> tuple[IntArray, IntArray]:
    """Field number and text bytes of each token of one document, each (tokens,)."""
    edges = []  # where each field after the first begins, in characters
    end = 0
    for part in document.fields[:-1]:
        end += len(part) + len(separator)
        edges.append(end)
    # The last character decides, as tokenizers differ in whether the space before a word belongs to it.
    field = [bisect_right(edges, max(begin, end - 1)) for begin, end in offsets]
    return np.array(field, np.int8), _bytes(text, offsets, 0, len(text))


def _answer_and_bytes(talk: Conversation, offsets: Offsets, field: int) -> tuple[IntArray, IntArray]:
    """Field number of the tokens that hold a character of the answer, 0 of the others; text bytes of the answer."""
    answers = [begin < talk.stop and end > talk.start and end > begin for begin, end in offsets]
    fields = np.where(answers, field, 0).astype(np.int8)
    return fields, _bytes(talk.text, offsets, talk.start, talk.stop)


def _bytes(text: str, offsets: Offsets, start: int, stop: int) -> IntArray:
    """UTF-8 bytes of each token among characters start..stop-1; a character that several tokens share counts once."""
    # Bytes before each character; of ASCII as many as characters.
    before: Sequence[int] = range(len(text) + 1)
    if not text.isascii():
        before = [0, *accumulate(len(character.encode()) for character in text)]
    counts = []
    reached = before[start]
    for _, end in offsets:
        upto = before[min(end, stop)]
        counts.append(max(0, upto - reached))
        reached = max(reached, upto)
    return np.array(counts, np.int32)
