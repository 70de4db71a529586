"""Tests of the sequences that documents are cut into and of the tokens that are scored, counted by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from tokenizers.models import WordLevel

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import DatasetConfig, SequenceRule
from rbptrack.corpus.documents import Document
from rbptrack.corpus.sequences import Corpus, build_corpus
from rbptrack.corpus.tokens import Tokens
from tests.corpus.conftest import BuildCorpus, FastTokenizer, letter_tokenizer

CONFIG = DatasetConfig(name="toy", path="x", split="test", seq_len=8, context=3)


def scored(corpus: Corpus) -> list[tuple[int, int]]:
    """Return document and position of each token that is scored."""
    index = corpus.targets(0, len(corpus.start))
    return list(zip(corpus.document[index].tolist(), corpus.position[index].tolist(), strict=True))


def test_build_corpus_begins_each_sequence_with_the_token_that_begins_a_text(
    corpus_of: BuildCorpus, tokenizer: Any
) -> None:
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    corpus = corpus_of(["abcdefghijklmn", "ab"], tokenizer, CONFIG)  # sequences of 8 tokens, 3 of them context
    read = ["".join(tokenizer.convert_ids_to_tokens(corpus.inputs(i))) for i in range(len(corpus.start))]
    assert read == [f"<|endoftext|>{text}" for text in ("abcdefg", "efghijk", "ijklmn", "ab")]
    assert corpus.lengths.tolist() == [8, 8, 7, 3]
    # Position 0 of a document is the special token. Neither it nor the token after it is scored.
    assert scored(corpus) == [(0, p) for p in range(2, 15)] + [(1, 2)]
    assert corpus.num_targets == 14


def test_unscored_table_lists_the_tokens_without_a_rank_before_the_last_scored_token(
    corpus_of: BuildCorpus, tokenizer: Any
) -> None:
    corpus = corpus_of(
        ["ab<|endoftext|>cd", "abcdefghijklmn"], tokenizer, replace(CONFIG, sequence=SequenceRule.truncate)
    )
    table = corpus.unscored_table()
    places = list(zip(table["document"], table["position"], strict=True))
    assert places == [(0, 0), (0, 2), (0, 3), (1, 0)]  # tokens after the 8 tokens of a sequence are not listed
    assert tokenizer.convert_ids_to_tokens(table["token"].tolist()) == ["a", "<|endoftext|>", "c", "a"]


def test_build_corpus_with_truncate_keeps_the_beginning_of_each_document(
    corpus_of: BuildCorpus, tokenizer: Any
) -> None:
    corpus = corpus_of(["abcdefghijklmn", "ab"], tokenizer, replace(CONFIG, sequence=SequenceRule.truncate))
    assert corpus.lengths.tolist() == [8, 2]
    assert scored(corpus) == [(0, p) for p in range(1, 8)] + [(1, 1)]


def test_build_corpus_with_pack_joins_documents(corpus_of: BuildCorpus, tokenizer: Any) -> None:
    """The sequences are a b c d | e <eot> f g | h i <eot>.

    These tokens are not scored: <eot>, the token after it, and the first token of a sequence.
    """
    corpus = corpus_of(["abcde", "fghi"], tokenizer, replace(CONFIG, sequence=SequenceRule.pack, seq_len=4))
    assert scored(corpus) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 3)]


def test_build_corpus_with_pack_refuses_a_tokenizer_without_an_end_of_text_token(
    corpus_of: BuildCorpus, tokenizer: Any
) -> None:
    tokenizer.eos_token = None
    with pytest.raises(BadInput, match="end-of-text"):
        corpus_of(["abcde"], tokenizer, replace(CONFIG, sequence=SequenceRule.pack))


def test_build_corpus_scores_neither_a_special_token_nor_the_token_after_it(
    corpus_of: BuildCorpus, tokenizer: Any
) -> None:
    assert scored(corpus_of(["ab<|endoftext|>cd"], tokenizer, CONFIG)) == [(0, 1), (0, 4)]


def test_token_that_contains_the_separator_belongs_to_the_field_after_it(
    corpus_of: BuildCorpus, tokenizer: Any
) -> None:
    vocab = {"<|endoftext|>": 0, "a": 1, "b": 2, "Ġ": 3, "Ġb": 4}
    tokenizer.backend_tokenizer.model = models.BPE(vocab=vocab, merges=[("Ġ", "b")])
    corpus = corpus_of([Document("0", ("aa", "ba"), "")], tokenizer, replace(CONFIG, fields=["a", "b"], separator=" "))
    assert corpus.token.tolist() == [1, 1, 4, 1]
    assert corpus.field.tolist() == [0, 0, 1, 1]


@pytest.fixture
def corpus_of_fields(corpus_of: BuildCorpus, tokenizer: Any) -> Corpus:
    """Two documents of the group `site`, with three fields each and a line break as the separator."""
    documents = [Document("0", ("ab", "", "cé"), "site"), Document("1", ("x", "y", "z"), "site")]
    return corpus_of(documents, tokenizer, replace(CONFIG, fields=["a", "b", "c"], separator="\n"))


def test_separator_token_belongs_to_the_field_before_it(corpus_of_fields: Corpus) -> None:
    assert corpus_of_fields.field[:7].tolist() == [0, 0, 0, 1, 2, 2, 2]


def test_num_bytes_adds_up_to_the_bytes_of_the_texts_and_separators(corpus_of_fields: Corpus) -> None:
    assert corpus_of_fields.num_bytes.sum() == len("ab\n\ncé".encode()) + len("x\ny\nz")


def test_document_table_counts_tokens_and_the_bytes_of_scored_tokens(corpus_of_fields: Corpus) -> None:
    table = corpus_of_fields.document_table()
    assert table["tokens"].tolist() == [7, 5]
    assert table["bytes"].tolist() == [len("b\n\ncé".encode()), 4]


def test_document_table_has_the_groups_of_documents(corpus_of_fields: Corpus) -> None:
    assert corpus_of_fields.document_table()["group"].tolist() == ["site", "site"]


def test_document_table_has_no_column_group_if_documents_have_no_group(corpus_of: BuildCorpus, tokenizer: Any) -> None:
    assert "group" not in corpus_of(["abc"], tokenizer, CONFIG).document_table()


def test_token_texts_of_a_corpus_are_keyed_by_token_id(corpus_of_fields: Corpus, tokenizer: Any) -> None:
    token_id = int(corpus_of_fields.token[0])
    assert corpus_of_fields.token_texts(tokenizer)[token_id] == "a"


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(3, 20), st.integers(1, 10))
def test_build_corpus_scores_each_token_but_the_first_of_a_document_once_after_its_context(
    lengths: list[int], seq_len: int, context: int
) -> None:
    if context >= seq_len or max(lengths) < 2:
        return  # the config or the documents would be refused
    total = sum(lengths)
    tokens = Tokens(
        token=np.arange(total, dtype=np.int32),
        field=np.zeros(total, np.int8),
        num_bytes=np.ones(total, np.int32),
        document_lengths=np.array(lengths),
        document_ids=tuple(map(str, range(len(lengths)))),
        groups=("",) * len(lengths),
        texts_hash="",
    )
    one_letter = FastTokenizer(tokenizer_object=Tokenizer(WordLevel({"a": 0}, unk_token="a")))
    corpus = build_corpus(tokens, one_letter, replace(CONFIG, seq_len=seq_len, context=context))
    targets = corpus.targets(0, len(corpus.start))
    document_ends = np.cumsum(lengths)
    document_starts = document_ends - lengths
    np.testing.assert_array_equal(targets, np.setdiff1d(np.arange(total), document_starts))
    assert corpus.lengths.max() <= seq_len
    for start, stop, first_scored in zip(corpus.start, corpus.stop, corpus.first, strict=True):
        document_start = document_starts[np.searchsorted(document_ends, start, side="right")]
        assert first_scored - start >= min(context, first_scored - document_start)
        assert stop > first_scored


def test_build_corpus_refuses_documents_of_at_most_one_token(corpus_of: BuildCorpus, tokenizer: Any) -> None:
    with pytest.raises(BadInput, match="3 documents"):
        corpus_of(["", "a", "b"], tokenizer, CONFIG)


def test_build_corpus_refuses_a_context_as_long_as_the_sequence(corpus_of: BuildCorpus, tokenizer: Any) -> None:
    with pytest.raises(BadInput, match=r"dataset\.context"):
        corpus_of(["abc"], tokenizer, replace(CONFIG, context=8))


@pytest.mark.parametrize("post_processor", ["", "[BOS] $A", "$A [EOS]", "[BOS] $A [EOS]", "[BOS] [BOS] $A"])
def test_prefix_of_a_corpus_is_the_special_tokens_at_the_beginning_of_a_text(
    post_processor: str, corpus_of: BuildCorpus
) -> None:
    """The prefix is found by encoding texts. A letter that the vocabulary lacks must not add [UNK] to the prefix.

    Like the vocabularies of models for DNA, this one has no "a".
    """
    tokenizer = letter_tokenizer("CGT", post_processor)
    corpus = corpus_of(["GCTTGCGTCGTGCCGT" * 2], tokenizer, CONFIG)
    assert corpus.prefix.tolist() == [1] * post_processor.count("[BOS]")
    later_sequences = [corpus.inputs(index).tolist() for index in range(1, len(corpus.start))]
    assert later_sequences
    for sequence in later_sequences:
        assert sequence[: len(corpus.prefix)] == corpus.prefix.tolist()
        assert 0 not in sequence


def test_near_copies_are_found_if_a_token_is_in_256_sequences(corpus_of: BuildCorpus) -> None:
    """Two documents share their first and last 255 words only. All other words are in 256 sequences each."""
    rng = np.random.default_rng(0)
    words = letter_tokenizer([f"w{number}" for number in range(2000)], "")
    words.backend_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    begin, end, *middles = (rng.integers(2000, size=size) for size in (255, 255, 1000, 1000, 1510))
    documents = [*(np.concatenate([begin, middle, end]) for middle in middles[:2]), middles[2], middles[2][:1500]]
    texts = [" ".join(f"w{number}" for number in document) for document in documents]
    table = corpus_of(texts, words, DatasetConfig(name="toy", seq_len=256, context=255)).document_table()
    assert table["group"].tolist() == ["document 0", "document 1", "document 2", "document 2"]
