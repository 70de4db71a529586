"""Tests of tokenising documents: what is refused, and the text of each token."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.decoders import Metaspace
from tokenizers.models import WordLevel

from rbptrack.base.errors import BadInput
from rbptrack.config.paths import embedded
from rbptrack.config.schema import DatasetConfig
from rbptrack.corpus.documents import Document
from rbptrack.corpus.tokens import token_texts, tokenise
from tests.corpus.conftest import BuildCorpus, FastTokenizer, letter_tokenizer

CONFIG = DatasetConfig(name="toy", path="x", split="test", seq_len=8, context=3)


def test_tokenise_refuses_texts_of_unknown_tokens(corpus_of: BuildCorpus) -> None:
    with pytest.raises(BadInput, match=r"\[UNK\].*model\.tokenizer"):
        corpus_of(["abcd", "efgh"], letter_tokenizer("CGT", ""), CONFIG)


def test_tokenise_refuses_unknown_tokens_that_the_tokenizer_does_not_declare(corpus_of: BuildCorpus) -> None:
    undeclared = FastTokenizer(tokenizer_object=Tokenizer(WordLevel({"<unk>": 0}, unk_token="<unk>")))
    with pytest.raises(BadInput, match=r"<unk>.*model\.tokenizer"):
        corpus_of(["abcd", "efgh"], undeclared, CONFIG)


@pytest.fixture
def tokenizer_without_digits() -> Any:
    """Return a byte-level BPE without an unknown token. It leaves out digits without an error."""
    vocab = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyzĠ")}
    bpe = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return FastTokenizer(tokenizer_object=bpe)


def test_tokenise_accepts_a_text_with_few_characters_that_the_tokenizer_leaves_out(
    corpus_of: BuildCorpus, tokenizer_without_digits: Any
) -> None:
    corpus_of(["plain words and a 7"], tokenizer_without_digits, DatasetConfig(name="toy", seq_len=8))


@pytest.mark.parametrize(
    ("text", "part_of_message"), [("1234 5678", "leaves out 100%"), ("12345678 words", "leaves out")]
)
def test_tokenise_refuses_a_tokenizer_that_leaves_out_most_characters(
    text: str, part_of_message: str, corpus_of: BuildCorpus, tokenizer_without_digits: Any
) -> None:
    with pytest.raises(BadInput, match=part_of_message):
        corpus_of([text], tokenizer_without_digits, DatasetConfig(name="toy", seq_len=8))


def test_tokenise_refuses_a_tokenizer_that_leaves_out_characters_of_later_documents(
    corpus_of: BuildCorpus, tokenizer_without_digits: Any
) -> None:
    documents = ["plain words"] * 100
    corpus_of([*documents, *["12345"] * 20], tokenizer_without_digits, CONFIG)
    with pytest.raises(BadInput):
        corpus_of([*documents, *["12345"] * 50], tokenizer_without_digits, CONFIG)


def test_tokenise_counts_left_out_characters_of_conversations(
    tokenizer_without_digits: Any,
) -> None:
    template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    documents = [Document("0", ("1234 5678", "words"))]
    with pytest.raises(BadInput):
        tokenise(documents, tokenizer_without_digits, "\n", template)


def test_tokenise_reports_a_text_on_which_the_tokenizer_fails(corpus_of: BuildCorpus) -> None:
    """The vocabulary of words lacks the unknown token that the tokenizer names."""
    words = FastTokenizer(tokenizer_object=Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="<x>")))
    with pytest.raises(BadInput, match="fails on a text"):
        corpus_of(["two words"], words, DatasetConfig(name="toy", seq_len=8))


def test_tokenise_refuses_a_document_that_does_not_fit_into_memory(
    corpus_of: BuildCorpus, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=80_000_000))
    with pytest.raises(BadInput, match=r"book .*1,000,001"):
        corpus_of([Document("short", ("two words",)), Document("book", ("x" * 1_000_001,))], tokenizer, CONFIG)


def test_token_texts_of_a_byte_level_tokenizer_add_up_to_the_text() -> None:
    byte_level = FastTokenizer(tokenizer_file=str(embedded("tokenizer/tokenizer.json")))
    ids = byte_level("def f(x): return the")["input_ids"]
    assert "".join(token_texts(byte_level, ids)) == "def f(x): return the"


def test_token_texts_of_sentencepiece_keep_spaces_and_single_bytes() -> None:
    """`decode` of one token would lose the space before a word. A byte that is not UTF-8 becomes a surrogate."""
    pieces = Tokenizer(WordLevel({"▁the": 0, "the": 1, "<0x0A>": 2, "<0xC3>": 3}, unk_token="the"))
    pieces.decoder = Metaspace()
    texts = token_texts(FastTokenizer(tokenizer_object=pieces), [0, 1, 2, 3])
    assert texts == [" the", "the", "\n", "\udcc3"]


def test_token_texts_of_an_id_without_a_token_is_empty() -> None:
    words = FastTokenizer(tokenizer_object=Tokenizer(WordLevel({"a": 0, "b": 2}, unk_token="a")))
    assert token_texts(words, [0, 1, 2]) == ["a", "", "b"]
