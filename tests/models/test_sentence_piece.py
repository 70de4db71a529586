"""Tests of tokenizers in tokenizer.model: their ids are those of sentencepiece, or they are refused."""

from __future__ import annotations

import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.models.sentence_piece import check_sentencepiece_installed
from rbptrack.models.tokenizer import load_tokenizer
from tests.tiny_models import TEXT, pinned_tokenizer

TEXTS = [
    *TEXT.split("\n")[:80],
    "",
    " a",
    "  two  spaces ",
    "café cafe\u0301 ﬁn ½ ①",
    "日本語 🙂",
    "a\tb\nc\r\n d",
    "x<tag>y <tag> z",
]


def write_model(folder: Path, **options: Any) -> Any:
    """Train a model of sentencepiece, write the folder of its tokenizer, and return the model."""
    sentencepiece = pytest.importorskip("sentencepiece")
    content = io.BytesIO()
    settings: dict[str, Any] = {"vocab_size": 420, "byte_fallback": True, "minloglevel": 2} | options
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.split("\n")), model_writer=content, hard_vocab_limit=False, **settings
    )
    (folder / "tokenizer.model").write_bytes(content.getvalue())
    config = {
        "tokenizer_class": "LlamaTokenizer",
        "add_bos_token": True,
        **{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return sentencepiece.SentencePieceProcessor(model_proto=content.getvalue())


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "bpe"},
        {"model_type": "bpe", "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
        {"model_type": "bpe", "add_dummy_prefix": False, "normalization_rule_name": "nfkc_cf"},
        {"model_type": "bpe", "byte_fallback": False},
        {"model_type": "unigram"},
        {"model_type": "unigram", "normalization_rule_name": "identity", "add_dummy_prefix": False},
        {"model_type": "bpe", "user_defined_symbols": ["<tag>"]},
        {"model_type": "bpe", "treat_whitespace_as_suffix": True},
        {"model_type": "char"},
    ],
)
def test_load_tokenizer_gives_the_ids_of_sentencepiece_or_refuses(options: dict[str, Any], tmp_path: Path) -> None:
    model = write_model(tmp_path, **options)
    try:
        tokenizer = load_tokenizer(pinned_tokenizer(tmp_path))
    except BadInput:
        assert {"user_defined_symbols", "treat_whitespace_as_suffix"} & options.keys() or options[
            "model_type"
        ] == "char"
        return
    for text in TEXTS:
        assert tokenizer(text)["input_ids"] == [1, *model.encode(text)], text


def test_load_tokenizer_refuses_equal_scores_of_added_pieces(tmp_path: Path) -> None:
    """Pieces that were added to the vocabulary of Llama, as for Chinese, have the score 0."""
    write_model(tmp_path, model_type="bpe")
    from sentencepiece import sentencepiece_model_pb2

    parse: Any = sentencepiece_model_pb2
    model = parse.ModelProto.FromString((tmp_path / "tokenizer.model").read_bytes())
    for text in ("if", "fi"):
        model.pieces.add(piece=text, score=0.0)
    (tmp_path / "tokenizer.model").write_bytes(model.SerializeToString())
    with pytest.raises(BadInput, match="score"):
        load_tokenizer(pinned_tokenizer(tmp_path))


def test_load_tokenizer_refuses_a_damaged_model(tmp_path: Path) -> None:
    write_model(tmp_path)
    content = (tmp_path / "tokenizer.model").read_bytes()
    (tmp_path / "tokenizer.model").write_bytes(content[: len(content) // 2])
    with pytest.raises(BadInput):
        load_tokenizer(pinned_tokenizer(tmp_path))


def test_load_tokenizer_names_the_package_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0c")
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "rbptrack.models.sentence_piece.find_spec", lambda name: None if name == "sentencepiece" else find_spec(name)
    )
    with pytest.raises(BadInput, match=r"rbptrack\[sentencepiece\]"):
        load_tokenizer(pinned_tokenizer(tmp_path))
    (tmp_path / "other.model").write_bytes(b"IQ== 0\n")  # tiktoken
    check_sentencepiece_installed(tmp_path / "other.model")
