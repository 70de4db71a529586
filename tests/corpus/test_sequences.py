"""How documents become sequences, and which of their tokens are scored: worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from tokenizers.decoders import Metaspace
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import readable
from rbptrack.config.paths import embedded
from rbptrack.config.schema import DatasetConfig, SequenceRule
from rbptrack.corpus.documents import Document
from rbptrack.corpus.sequences import Corpus, build_corpus
from rbptrack.corpus.tokens import Tokens, token_texts

FastTokenizer: Any = PreTrainedTokenizerFast  # whose types transformers does not give
CONFIG = DatasetConfig(name="toy", path="x", split="test", seq_len=8, context=3)
Build = Callable[..., Corpus]


def scored(corpus: Corpus) -> list[tuple[int, int]]:
    index = corpus.targets(0, len(corpus.start))
    return list(zip(corpus.document[index].tolist(), corpus.position[index].tolist(), strict=True))


def test_sequences_inside_a_document_begin_as_the_tokenizer_begins_a_text(build: Build, tokenizer: Any) -> None:
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    corpus = build(["abcdefghijklmn", "ab"], tokenizer, CONFIG)  # 8 tokens a sequence, 3 of context
    read = ["".join(tokenizer.convert_ids_to_tokens(corpus.inputs(i))) for i in range(len(corpus.start))]
    assert read == [f"<|endoftext|>{text}" for text in ("abcdefg", "efghijk", "ijklmn", "ab")]
    assert corpus.lengths.tolist() == [8, 8, 7, 3]
    # neither the special token nor what follows it; position 0 of a document is its special token
    assert scored(corpus) == [(0, p) for p in range(2, 15)] + [(1, 2)]
    assert corpus.num_targets == 14


def test_tokens_without_a_rank_are_kept_up_to_the_last_that_has_one(build: Build, tokenizer: Any) -> None:
    corpus = build(["ab<|endoftext|>cd", "abcdefghijklmn"], tokenizer, replace(CONFIG, sequence=SequenceRule.truncate))
    table = corpus.unscored_table()
    places = list(zip(table["document"], table["position"], strict=True))
    assert places == [(0, 0), (0, 2), (0, 3), (1, 0)]  # what is beyond the 8 tokens of a sequence is not read
    assert tokenizer.convert_ids_to_tokens(table["token"].tolist()) == ["a", "<|endoftext|>", "c", "a"]


def test_truncate_keeps_the_beginning_of_each_document(build: Build, tokenizer: Any) -> None:
    corpus = build(["abcdefghijklmn", "ab"], tokenizer, replace(CONFIG, sequence=SequenceRule.truncate))
    assert corpus.lengths.tolist() == [8, 2]
    assert scored(corpus) == [(0, p) for p in range(1, 8)] + [(1, 1)]


def test_pack_joins_documents_and_scores_nothing_special(build: Build, tokenizer: Any) -> None:
    corpus = build(["abcde", "fgh"], tokenizer, replace(CONFIG, sequence=SequenceRule.pack, seq_len=4))
    # stream: a b c d | e <eot> f g | h <eot>; never <eot>, nor what follows it, nor a sequence's first token
    assert scored(corpus) == [(0, 1), (0, 2), (0, 3), (1, 1)]
    tokenizer.eos_token = None
    with pytest.raises(BadInput, match="end-of-text"):
        build(["abcde"], tokenizer, replace(CONFIG, sequence=SequenceRule.pack))


def test_special_tokens_in_the_text_are_not_scored_nor_what_follows(build: Build, tokenizer: Any) -> None:
    assert scored(build(["ab<|endoftext|>cd"], tokenizer, CONFIG)) == [(0, 1), (0, 4)]


def test_a_word_with_the_space_before_it_is_of_the_field_after_the_space(build: Build, tokenizer: Any) -> None:
    vocab = {"<|endoftext|>": 0, "a": 1, "b": 2, "Ġ": 3, "Ġb": 4}
    tokenizer.backend_tokenizer.model = models.BPE(vocab=vocab, merges=[("Ġ", "b")])
    corpus = build([Document("0", ("aa", "ba"), "")], tokenizer, replace(CONFIG, fields=["a", "b"], separator=" "))
    assert corpus.token.tolist() == [1, 1, 4, 1]
    assert corpus.field.tolist() == [0, 0, 1, 1]


def test_fields_and_bytes(build: Build, tokenizer: Any) -> None:
    documents = [Document("0", ("ab", "", "cé"), "site"), Document("1", ("x", "y", "z"), "site")]
    corpus = build(documents, tokenizer, replace(CONFIG, fields=["a", "b", "c"], separator="\n"))
    assert corpus.field[:7].tolist() == [0, 0, 0, 1, 2, 2, 2]  # a separator belongs to the field before it
    assert corpus.num_bytes.sum() == len("ab\n\ncé".encode()) + len("x\ny\nz")
    table = corpus.document_table()
    assert table["bytes"].tolist() == [len("b\n\ncé".encode()), 4]
    assert table["tokens"].tolist() == [7, 5]
    assert table["group"].tolist() == ["site", "site"]
    assert "group" not in build(["abc"], tokenizer, CONFIG).document_table()
    assert corpus.token_texts(tokenizer)[int(corpus.token[0])] == "a"


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(3, 20), st.integers(1, 10))
def test_every_token_after_the_first_is_scored_once_with_its_context(
    lengths: list[int], seq_len: int, context: int
) -> None:
    if context >= seq_len or max(lengths) < 2:
        return
    total = sum(lengths)
    tokens = Tokens(
        token=np.arange(total, dtype=np.int32),
        field=np.zeros(total, np.int8),
        num_bytes=np.ones(total, np.int32),
        lengths=np.array(lengths),
        document_ids=tuple(map(str, range(len(lengths)))),
        groups=("",) * len(lengths),
        texts_hash="",
    )
    plain = FastTokenizer(tokenizer_object=Tokenizer(WordLevel({"a": 0}, unk_token="a")))
    corpus = build_corpus(tokens, plain, replace(CONFIG, seq_len=seq_len, context=context))
    targets = corpus.targets(0, len(corpus.start))
    ends = np.cumsum(lengths)
    expected = np.setdiff1d(np.arange(total), ends - lengths)
    np.testing.assert_array_equal(targets, expected)
    assert corpus.lengths.max() <= seq_len
    for start, stop, first in zip(corpus.start, corpus.stop, corpus.first, strict=True):
        begin = ends[np.searchsorted(ends, start, side="right")] - lengths[np.searchsorted(ends, start, side="right")]
        assert first - start >= min(context, first - begin)
        assert stop > first


def test_what_cannot_be_scored_is_refused(build: Build, tokenizer: Any) -> None:
    with pytest.raises(BadInput, match="3 documents of at most 1 tokens"):
        build(["", "a", "b"], tokenizer, CONFIG)
    with pytest.raises(BadInput, match=r"dataset\.context"):
        build(["abc"], tokenizer, replace(CONFIG, context=8))


@pytest.mark.parametrize("post", ["", "[BOS] $A", "$A [EOS]", "[BOS] $A [EOS]", "[BOS] [BOS] $A"])
def test_only_what_begins_every_text_goes_before_a_sequence(post: str, build: Build) -> None:
    """Not the unknown token, which a vocabulary without "a" (of proteins, say) has for that letter."""
    tokenizer = letters("CGT", post)
    corpus = build(["GCTTGCGTCGTGCCGT" * 2], tokenizer, CONFIG)
    assert corpus.prefix.tolist() == [1] * post.count("[BOS]")
    later = [corpus.inputs(number).tolist() for number in range(1, len(corpus.start))]
    assert later
    assert all(sequence[: len(corpus.prefix)] == corpus.prefix.tolist() for sequence in later)
    assert not any(0 in sequence for sequence in later)


def test_texts_that_a_tokenizer_does_not_know_are_called_so(build: Build) -> None:
    with pytest.raises(BadInput, match=r"\[UNK\].*model\.tokenizer"):
        build(["abcd", "efgh"], letters("CGT", ""), CONFIG)
    undeclared = FastTokenizer(tokenizer_object=Tokenizer(WordLevel({"<unk>": 0}, unk_token="<unk>")))
    with pytest.raises(BadInput, match=r"<unk>.*model\.tokenizer"):
        build(["abcd", "efgh"], undeclared, CONFIG)


def test_a_tokenizer_that_leaves_characters_out_is_refused(build: Build) -> None:
    """Byte-level BPE without an unknown token says nothing of the characters that its vocabulary lacks."""
    config = DatasetConfig(name="toy", seq_len=8)
    letters = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyzĠ")}
    known = Tokenizer(models.BPE(vocab=letters, merges=[]))
    known.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    build(["plain words and a 7"], FastTokenizer(tokenizer_object=known), config)
    with pytest.raises(BadInput, match="leaves out 100%"):
        build(["1234 5678"], FastTokenizer(tokenizer_object=known), config)
    with pytest.raises(BadInput, match="leaves out"):
        build(["12345678 words"], FastTokenizer(tokenizer_object=known), config)


def test_a_text_on_which_a_tokenizer_fails(build: Build) -> None:
    """A vocabulary of words without the unknown token that it names."""
    words = FastTokenizer(tokenizer_object=Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="<x>")))
    with pytest.raises(BadInput, match="fails on a text"):
        build(["two words"], words, DatasetConfig(name="toy", seq_len=8))


def letters(known: str, post: str) -> Any:
    """A tokenizer of single letters, with what it puts around a text."""
    words = {"[UNK]": 0, "[BOS]": 1, "[EOS]": 2} | {letter: i + 3 for i, letter in enumerate(known)}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if post:
        made.post_processor = processors.TemplateProcessing(single=post, special_tokens=[("[BOS]", 1), ("[EOS]", 2)])
    return FastTokenizer(tokenizer_object=made, unk_token="[UNK]", bos_token="[BOS]", eos_token="[EOS]")


def test_a_document_that_memory_cannot_hold_is_refused(
    build: Build, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=80_000_000))
    with pytest.raises(BadInput, match="document book has 1,000,001 characters"):
        build([Document("short", ("two words",)), Document("book", ("x" * 1_000_001,))], tokenizer, CONFIG)


def test_the_text_of_a_token_keeps_its_space() -> None:
    """In vocabularies of bytes, and of SentencePiece, where decoding one id loses the space before a word."""
    byte_level = FastTokenizer(tokenizer_file=str(embedded("tokenizer/tokenizer.json")))
    ids = byte_level("def f(x): return the")["input_ids"]
    assert "".join(token_texts(byte_level, ids)) == "def f(x): return the"
    pieces = Tokenizer(WordLevel({"▁the": 0, "the": 1, "<0x0A>": 2, "<0xC3>": 3}, unk_token="the"))
    pieces.decoder = Metaspace()
    texts = token_texts(FastTokenizer(tokenizer_object=pieces), [0, 1, 2, 3])
    assert texts == [" the", "the", "\n", "\udcc3"]
    assert readable(texts[3] + "\udca9") == "é"
    assert readable(texts[3]) == readable("\udcc3") == "\ufffd"
