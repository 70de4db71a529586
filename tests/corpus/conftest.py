"""Tokenizers whose tokens can be counted by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rbptrack.config.schema import DatasetConfig
from rbptrack.corpus.documents import Document
from rbptrack.corpus.sequences import Corpus, build_corpus
from rbptrack.corpus.tokens import tokenise

FastTokenizer: Any = PreTrainedTokenizerFast  # whose types transformers does not give
Build = Callable[..., Corpus]


@pytest.fixture
def tokenizer() -> Any:
    """One token per byte, and <|endoftext|>."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE(vocab={"<|endoftext|>": 0} | {c: i + 1 for i, c in enumerate(alphabet)}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    return FastTokenizer(tokenizer_object=bpe, eos_token="<|endoftext|>")


@pytest.fixture
def build() -> Build:
    """The corpus of documents, or of texts that become one each."""

    def made(texts: Sequence[str | Document], tokenizer: Any, config: DatasetConfig, template: str = "") -> Corpus:
        documents = [Document(str(i), (t,)) if isinstance(t, str) else t for i, t in enumerate(texts)]
        return build_corpus(tokenise(documents, tokenizer, config.separator, template), tokenizer, config)

    return made
