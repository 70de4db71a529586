"""A tokenizer with one token per byte, for tests that count tokens by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from rbptrack.config.schema import DatasetConfig
from rbptrack.corpus.documents import Document
from rbptrack.corpus.sequences import Corpus, build_corpus
from rbptrack.corpus.tokens import tokenise

FastTokenizer: Any = PreTrainedTokenizerFast  # transformers declares no types for its parameters
BuildCorpus = Callable[..., Corpus]


@pytest.fixture
def tokenizer() -> Any:
    """Return a tokenizer with one token per byte and the end-of-text token <|endoftext|> (id 0)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE(vocab={"<|endoftext|>": 0} | {c: i + 1 for i, c in enumerate(alphabet)}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    return FastTokenizer(tokenizer_object=bpe, eos_token="<|endoftext|>")


@pytest.fixture
def corpus_of() -> BuildCorpus:
    """A function that builds the corpus of some documents. A text becomes a document with one field."""

    def build(texts: Sequence[str | Document], tokenizer: Any, config: DatasetConfig, template: str = "") -> Corpus:
        documents = []
        for index, text in enumerate(texts):
            documents.append(Document(str(index), (text,)) if isinstance(text, str) else text)
        return build_corpus(tokenise(documents, tokenizer, config.separator, template), tokenizer, config)

    return build


def letter_tokenizer(letters: Sequence[str], post_processor: str) -> Any:
    """Return a tokenizer with one token per letter and the special tokens [UNK], [BOS] and [EOS] (ids 0, 1, 2).

    Args:
        letters: the letters, or words, that the tokenizer knows.
        post_processor: what it puts around a text, such as `[BOS] $A`; empty for nothing.

    """
    words = {"[UNK]": 0, "[BOS]": 1, "[EOS]": 2} | {letter: i + 3 for i, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if post_processor:
        special_tokens = [("[BOS]", 1), ("[EOS]", 2)]
        tokenizer.post_processor = processors.TemplateProcessing(single=post_processor, special_tokens=special_tokens)
    return FastTokenizer(tokenizer_object=tokenizer, unk_token="[UNK]", bos_token="[BOS]", eos_token="[EOS]")
