from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import DatasetConfig, SequenceRule
from rbptrack.corpus.documents import Document, load_documents, texts_hash
from rbptrack.corpus.sequences import Corpus, build_corpus
from rbptrack.sources.pin import Source

CONFIG = DatasetConfig(name="toy", path="x", split="test", seq_len=8, context=3)


@cache
def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, and <|endoftext|>: lengths can be counted by hand."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE(vocab={"<|endoftext|>": 0} | {c: i + 1 for i, c in enumerate(alphabet)}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|endoftext|>")


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_tokenizer()


def texts(*items: str) -> list[Document]:
    return [Document(str(i), (t,)) for i, t in enumerate(items)]


def scored(corpus: Corpus) -> list[tuple[int, int]]:
    index = corpus.targets(0, len(corpus.start))
    return list(zip(corpus.document[index].tolist(), corpus.position[index].tolist(), strict=True))


def test_sequences_inside_a_document_begin_as_the_tokenizer_begins_a_text() -> None:
    tokenizer = copy.deepcopy(byte_tokenizer())
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    corpus = build_corpus(texts("abcdefghijklmn", "ab"), tokenizer, CONFIG)  # 8 tokens a sequence, 3 of context
    read = ["".join(tokenizer.convert_ids_to_tokens(corpus.inputs(i))) for i in range(len(corpus.start))]
    assert read == [f"<|endoftext|>{t}" for t in ("abcdefg", "efghijk", "ijklmn", "ab")]
    assert corpus.lengths.tolist() == [8, 8, 7, 3]
    # neither the special token nor what follows it; position 0 of a document is its special token
    assert scored(corpus) == [(0, p) for p in range(2, 15)] + [(1, 2)]


def test_pack_joins_documents_and_scores_nothing_special(tokenizer: PreTrainedTokenizerFast) -> None:
    corpus = build_corpus(texts("abcde", "fgh"), tokenizer, replace(CONFIG, sequence=SequenceRule.pack, seq_len=4))
    # stream: a b c d | e <eot> f g | h <eot>; never <eot>, nor what follows it, nor a sequence's first token
    assert scored(corpus) == [(0, 1), (0, 2), (0, 3), (1, 1)]


def test_special_tokens_in_the_text_are_not_scored_nor_what_follows(tokenizer: PreTrainedTokenizerFast) -> None:
    corpus = build_corpus(texts("ab<|endoftext|>cd"), tokenizer, CONFIG)
    assert scored(corpus) == [(0, 1), (0, 4)]


def test_fields_and_bytes(tokenizer: PreTrainedTokenizerFast) -> None:
    documents = [Document("0", ("ab", "", "cé"))]
    corpus = build_corpus(documents, tokenizer, replace(CONFIG, fields=["a", "b", "c"], separator="\n"))
    assert corpus.field.tolist() == [0, 0, 0, 1, 2, 2, 2]  # a separator belongs to the field before it
    assert corpus.num_bytes.sum() == len("ab\n\ncé".encode())


def test_parts_cover_all_sequences_once(tokenizer: PreTrainedTokenizerFast) -> None:
    corpus = build_corpus(texts(*("x" * n for n in (30, 5, 17, 3))), tokenizer, CONFIG)
    for size in (1, 10, 25, 10_000):
        parts = corpus.parts(size)
        assert [low for low, _ in parts] == [0, *(high for _, high in parts[:-1])]
        assert parts[-1][1] == len(corpus.start)
        together = np.concatenate([corpus.targets(*p) for p in parts])
        assert together.tolist() == corpus.targets(0, len(corpus.start)).tolist()


def test_too_short_to_score(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(BadInput, match="dataset toy: nothing to score in 3 documents of at most 1 tokens"):
        build_corpus(texts("", "a", "b"), tokenizer, CONFIG)


def dataset(folder: Path, rows: dict[str, list[object]]) -> Source:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(rows), folder / "test.parquet")
    return Source(str(folder), None, "sha256:0")


def test_load_selects_with_a_seed(tmp_path: Path) -> None:
    source = dataset(tmp_path / "d", {"text": [f"text {i}" for i in range(50)], "key": [f"k{i}" for i in range(50)]})
    config = replace(CONFIG, id_field="key", documents=10)
    first, again = load_documents(config, source), load_documents(config, source)
    other = load_documents(replace(config, seed=1), source)
    assert first == again
    assert len(first) == len({d.id for d in first}) == 10
    assert {d.id for d in first} != {d.id for d in other}
    assert texts_hash(first) == texts_hash(again) != texts_hash(other)
    assert [d.id for d in load_documents(replace(config, documents=0), source)] == [f"k{i}" for i in range(50)]


def test_local_documents_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` sleeps 5 s after each selection, for connections of a hub to end."""
    from datasets import config, iterable_dataset

    slept: list[float] = []
    monkeypatch.setattr(iterable_dataset, "time", SimpleNamespace(sleep=slept.append))
    before = config.SLEEP_TIME_ON_THREADS_SHUTDOWN
    load_documents(replace(CONFIG, documents=10), dataset(tmp_path / "d", {"text": [f"text {i}" for i in range(50)]}))
    assert 0 < sum(slept) < 1
    assert before == config.SLEEP_TIME_ON_THREADS_SHUTDOWN


@pytest.mark.parametrize("post", ["", "[BOS] $A", "$A [EOS]", "[BOS] $A [EOS]", "[BOS] [BOS] $A"])
def test_only_what_begins_every_text_goes_before_a_window(post: str) -> None:
    """Not the unknown token, which a vocabulary without "a" (of proteins, say) has for that letter."""
    words = {"[UNK]": 0, "[BOS]": 1, "[EOS]": 2} | {letter: i + 3 for i, letter in enumerate("CGT")}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if post:
        made.post_processor = processors.TemplateProcessing(single=post, special_tokens=[("[BOS]", 1), ("[EOS]", 2)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", bos_token="[BOS]", eos_token="[EOS]")
    corpus = build_corpus(texts("GCTTGCGTCGTGCCGT" * 2), tokenizer, CONFIG)
    assert corpus.prefix.tolist() == [1] * post.count("[BOS]")
    windows = [corpus.inputs(n).tolist() for n in range(1, len(corpus.start))]
    assert windows
    assert all(window[: len(corpus.prefix)] == corpus.prefix.tolist() for window in windows)
    assert not any(0 in window for window in windows)
