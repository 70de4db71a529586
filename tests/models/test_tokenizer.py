"""The tokenizer is the one that its files describe, whatever class they name."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer

from rbptrack.api import measure
from rbptrack.base.errors import BadInput
from rbptrack.models.tokenizer import load_tokenizer, rules_hash
from rbptrack.sources.pin import Pinned
from tests.tiny_models import byte_level, sentence_piece, write_gguf

END = "<|endoftext|>"
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES = GPT2 | {"use_regex": False}
TRIMMED = GPT2 | {"add_prefix_space": True, "trim_offsets": False}
DIGITS = {"type": "Digits", "individual_digits": True}
NFC = {"type": "NFC"}
LLAMA2 = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ],
}
GEMMA = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
SPACES = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
TEXTS = (
    "In 2026 it was 12345 and 3.14159265.\n\n\tdef f(x):\n        return x  +   1\r\n",
    " a leading space, and a trailing one ",
    "don't DON'T Ångström cafe\u0301 ﬁn 日本語と中文 한국어 🙂 \u00a0\u3000 x²½ snake_case HTTPServer",
    f"before {END} after{END}glued <s> b<s>c <bos>",
    "",
)


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def begins_with(token: str) -> dict[str, Any]:
    single = [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {token: [0]}}


CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
PUNCTUATION = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = sequence(split(CONTRACTIONS + r"\p{N}" + PUNCTUATION), BYTES)
LLAMA3 = sequence(split(CONTRACTIONS + r"\p{N}{1,3}" + PUNCTUATION), BYTES)
DEEPSEEK = sequence(
    split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(r"[一-龥ࠀ-一가-퟿]+"), DIGITS, BYTES
)

SHAPES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # model type, what tokenizer.json says, what tokenizer_config.json says
    "gpt2": ("gpt2", {"pre_tokenizer": GPT2, "post_processor": TRIMMED}, {"model_max_length": 1024}),
    "gpt-neo": ("gpt_neo", {"pre_tokenizer": GPT2}, {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False}),
    "pythia": (
        "gpt_neox",
        {"normalizer": NFC, "pre_tokenizer": GPT2, "post_processor": TRIMMED},
        {"tokenizer_class": "GPTNeoXTokenizer", "add_prefix_space": False},
    ),
    "mamba": (
        "mamba",
        {"normalizer": NFC, "pre_tokenizer": GPT2, "post_processor": TRIMMED},
        {"tokenizer_class": "GPTNeoXTokenizer", "add_bos_token": False, "add_eos_token": False},
    ),
    "rwkv": ("rwkv", {"normalizer": NFC, "pre_tokenizer": GPT2}, {"tokenizer_class": "GPTNeoXTokenizerFast"}),
    "phi2": ("phi", {"pre_tokenizer": GPT2, "post_processor": TRIMMED}, {"tokenizer_class": "CodeGenTokenizer"}),
    "olmo2": ("olmo2", {"pre_tokenizer": LLAMA3}, {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False}),
    "smollm2": (
        "llama",
        {"pre_tokenizer": sequence(DIGITS, GPT2)},
        {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False},
    ),
    "qwen2.5": (
        "qwen2",
        {"normalizer": NFC, "pre_tokenizer": QWEN, "post_processor": BYTES},
        {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False},
    ),
    "qwen3": (
        "qwen3",
        {"normalizer": NFC, "pre_tokenizer": QWEN, "post_processor": BYTES},
        {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False},
    ),
    "llama3": (
        "llama",
        {
            "pre_tokenizer": LLAMA3,
            "post_processor": {"type": "Sequence", "processors": [TRIMMED, begins_with(END)]},
        },
        {"tokenizer_class": "PreTrainedTokenizerFast"},
    ),
    "deepseek": (
        "llama",
        {"normalizer": {"type": "Sequence", "normalizers": []}, "pre_tokenizer": DEEPSEEK, "post_processor": TRIMMED},
        {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True, "add_eos_token": False},
    ),
    "llama2": (
        "llama",
        {"normalizer": LLAMA2, "pre_tokenizer": None, "post_processor": begins_with("<s>")},
        {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "legacy": False},
    ),
    "mistral": (
        "mistral",
        {"normalizer": LLAMA2, "pre_tokenizer": None, "post_processor": begins_with("<s>")},
        {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False},
    ),
    "gemma2": (
        "gemma2",
        {"normalizer": GEMMA, "pre_tokenizer": SPACES, "post_processor": begins_with("<bos>")},
        {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": False},
    ),
}
for _class in (
    "GPT2Tokenizer",
    "GPTNeoXTokenizerFast",
    "CodeGenTokenizer",
    "Qwen2Tokenizer",
    "LlamaTokenizer",
    "Unheard",
):
    SHAPES[f"digits {_class}"] = ("llama", {"pre_tokenizer": sequence(DIGITS, GPT2)}, {"tokenizer_class": _class})
    SHAPES[f"lower {_class}"] = ("gpt2", {"normalizer": {"type": "Lowercase"}}, {"tokenizer_class": _class})


@cache
def _parts(kind: str) -> str:
    """The tokenizer.json of a small vocabulary."""
    if kind == "bytes":
        return byte_level([END, "<|padding|>"]).to_str()
    return sentence_piece(("<unk>", "<s>", "</s>", "<bos>")).to_str()


def write(
    folder: Path, changes: dict[str, Any], config: dict[str, Any], *, kind: str = "bytes", model_type: str = "llama"
) -> Path:
    """Write the files of a tokenizer into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = json.loads(_parts(kind)) | changes
    vocabulary = parts["model"]["vocab"]
    text = json.dumps(parts)
    for token in ("<s>", "<bos>", END):
        short = json.dumps({token: [0]})
        long = json.dumps({token: {"id": token, "ids": [vocabulary.get(token, 0)], "tokens": [token]}})
        text = text.replace(short, long)
    (folder / "tokenizer.json").write_text(text)
    first, last = (END, END) if kind == "bytes" else ("<bos>" if "Gemma" in str(config) else "<s>", "</s>")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": first, "eos_token": last} | config))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


def kind_of(shape: str) -> str:
    return "pieces" if shape in ("llama2", "mistral", "gemma2") else "bytes"


def loaded(folder: Path) -> Any:
    return load_tokenizer(Pinned(str(folder), None, "x"))


def ids(tokenizer: Any, text: str, **options: Any) -> list[int]:
    encoded: list[int] = tokenizer(text, **options)["input_ids"]
    return encoded


@pytest.mark.parametrize("shape", SHAPES)
def test_the_ids_are_those_of_tokenizer_json(shape: str, tmp_path: Path) -> None:
    model_type, changes, config = SHAPES[shape]
    folder = write(tmp_path, changes, config, kind=kind_of(shape), model_type=model_type)
    own = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer = loaded(folder)
    for text in TEXTS:
        assert ids(tokenizer, text, add_special_tokens=False) == own.encode(text, add_special_tokens=False).ids
        first = [tokenizer.bos_token_id] if config.get("add_bos_token") or "llama3" in shape else []
        assert ids(tokenizer, text) == first + own.encode(text, add_special_tokens=False).ids
        offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
        assert max((end for _, end in offsets), default=0) <= len(text)


@pytest.mark.parametrize("post_processor", [None, TRIMMED, begins_with(END)], ids=["none", "bytes", "template"])
@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_a_text_begins_and_ends_as_the_files_ask(flags: tuple[bool, bool], post_processor: Any, tmp_path: Path) -> None:
    asked = {"add_bos_token": flags[0], "add_eos_token": flags[1], "tokenizer_class": "PreTrainedTokenizerFast"}
    tokenizer = loaded(write(tmp_path, {"post_processor": post_processor}, asked))
    end = tokenizer.convert_tokens_to_ids(END)
    plain = ids(tokenizer, "two words", add_special_tokens=False)
    begins = flags[0] or bool(post_processor and post_processor["type"] == "TemplateProcessing")
    assert ids(tokenizer, "two words") == [end] * begins + plain + [end] * flags[1]


def test_a_first_token_that_one_file_gives_and_the_other_forbids(tmp_path: Path) -> None:
    asked = {"add_bos_token": False, "tokenizer_class": "LlamaTokenizerFast"}
    with pytest.raises(BadInput, match="add_bos_token"):
        loaded(write(tmp_path, {"post_processor": begins_with(END)}, asked))


def test_a_first_token_that_the_files_do_not_name(tmp_path: Path) -> None:
    for name in (None, "<unheard>"):
        folder = write(tmp_path, {}, {"add_bos_token": True, "bos_token": name, "tokenizer_class": "Unheard"})
        if name is None:
            with pytest.raises(BadInput, match="add_bos_token"):
                loaded(folder)
        else:  # transformers gives it a new id, which `check_compatible` compares with the model's rows
            assert ids(loaded(folder), "a")[0] >= 400


def test_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, {"pre_tokenizer": GPT2}, {"add_prefix_space": True, "tokenizer_class": "GPT2Tokenizer"})
    with pytest.raises(BadInput, match="add_prefix_space"):
        loaded(folder)


def test_dropout_is_off(tmp_path: Path) -> None:
    model = json.loads(_parts("bytes"))["model"]
    for name in ("GPT2Tokenizer", "PreTrainedTokenizerFast"):
        plain = loaded(write(tmp_path / "plain", {}, {"tokenizer_class": name}))
        folder = write(tmp_path / name, {"model": model | {"dropout": 0.5}}, {"tokenizer_class": _class})
        tokenizer = loaded(folder)
        assert {tuple(ids(tokenizer, TEXTS[0])) for _ in range(20)} == {tuple(ids(plain, TEXTS[0]))}
        assert rules_hash(tokenizer) == rules_hash(plain)


def test_truncation_and_padding_of_the_file_do_not_cut_texts(tmp_path: Path) -> None:
    limits = {
        "truncation": {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 40},
            "direction": "Left",
            "pad_to_multiple_of": None,
            "pad_id": 1,
            "pad_type_id": 0,
            "pad_token": "<|padding|>",
        },
    }
    plain = loaded(write(tmp_path / "plain", {}, {"pad_token": "<|padding|>"}))
    for name in ("GPT2Tokenizer", "PreTrainedTokenizerFast"):
        tokenizer = loaded(write(tmp_path / name, limits, {"tokenizer_class": name}))
        encoded = tokenizer([TEXTS[0], "a"], return_offsets_mapping=True)["input_ids"]
        assert encoded == plain([TEXTS[0], "a"])["input_ids"]
        assert rules_hash(tokenizer) == rules_hash(plain)


def test_a_class_that_cannot_be_loaded_does_not_matter(tmp_path: Path) -> None:
    """The file describes the tokenizer; only code of its own is not replaced."""
    plain = loaded(write(tmp_path / "plain", {}, {}))
    for number, name in enumerate(("XLMTokenizer", "T5Tokenizer", "MistralCommonBackend", 7)):
        tokenizer = loaded(write(tmp_path / str(number), {}, {"tokenizer_class": name}))
        assert ids(tokenizer, TEXTS[0]) == ids(plain, TEXTS[0])


def test_damaged_vocabularies_are_refused(tmp_path: Path) -> None:
    model = json.loads(_parts("bytes"))["model"]
    twice = model["vocab"] | {"Ġtw": 300}
    damaged: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "both have the id": ({"model": model | {"vocab": twice}}, {}),
        "merges": ({"model": model | {"merges": []}}, {}),
        "used": ({}, {"model_max_length": "long"}),
        "loaded": ({"model": model | {"continuing_subword_prefix": "##"}}, {}),  # Rust panics
    }
    for number, (message, (changes, config)) in enumerate(damaged.items()):
        with pytest.raises(BadInput, match=message):
            loaded(write(tmp_path / str(number), changes, config))


def test_other_rules_are_another_identity(tmp_path: Path) -> None:
    """Rules that change no id of most texts, too; the layout of the file does not matter."""
    plain = rules_hash(loaded(write(tmp_path / "0", {}, {"tokenizer_class": "GPT2Tokenizer"})))
    others: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"pre_tokenizer": sequence(DIGITS, GPT2)}, {}),
        ({"normalizer": NFC}, {}),
        ({}, {"add_bos_token": True}),
        ({}, {"add_eos_token": True}),
        ({}, {"eos_token": "<|padding|>"}),
    ]
    found = {plain}
    for number, (changes, config) in enumerate(others, 1):
        folder = write(tmp_path / str(number), changes, {"tokenizer_class": "GPT2Tokenizer"} | config)
        found.add(rules_hash(loaded(folder)))
    assert len(found) == len(others) + 1
    folder = write(tmp_path / "indented", {}, {"tokenizer_class": "GPT2Tokenizer"})
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=4))
    assert rules_hash(loaded(folder)) == plain


def test_a_tokenizer_in_memory_has_the_rules_of_its_files(tmp_path: Path, model_of: Callable[..., Any]) -> None:
    """Or it is refused, unless its user says that this is meant."""
    model = model_of("llama")
    folder = write(tmp_path, {"pre_tokenizer": sequence(DIGITS, GPT2)}, {"tokenizer_class": "GPT2Tokenizer"})
    own = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = [TEXTS[0], "only 31 words"]
    rebuilt = transformers.AutoTokenizer.from_pretrained(folder)
    with pytest.raises(BadInput, match="pre_tokenizer"):
        measure(model, rebuilt, texts, seq_len=32, context=8, progress=False)
    of_file = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    measured = measure(model, of_file, texts, seq_len=32, context=8, progress=False)
    assert measured.num_tokens == sum(len(own.encode(text).ids) - 1 for text in texts)
    rebuilt.name_or_path = ""
    meant = measure(model, rebuilt, texts, seq_len=32, context=8, progress=False)
    assert meant.record.identity["tokenizer_rules"] != measured.record.identity["tokenizer_rules"]


def test_a_tokenizer_in_memory_begins_texts_as_its_files_ask(tmp_path: Path, model_of: Callable[..., Any]) -> None:
    model = model_of("llama")
    folder = write(tmp_path, {"pre_tokenizer": GPT2}, {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True})
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with pytest.raises(BadInput, match="add_bos_token"):
        measure(model, tokenizer, ["two words"], seq_len=32, context=8, progress=False)
    tokenizer.add_bos_token = True
    measure(model, tokenizer, ["two words"], seq_len=32, context=8, progress=False)


def test_what_is_no_tokenizer(tmp_path: Path, model_of: Callable[..., Any]) -> None:
    model = model_of("llama")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    empty = transformers.AutoTokenizer.from_pretrained(tmp_path)
    fast = loaded(write(tmp_path / "fast", {}, {}))
    drops = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level([END]))
    drops.backend_tokenizer.model.dropout = 0.1
    refused = (transformers.AutoTokenizer, type(fast), fast.backend_tokenizer, None, str.split, empty, drops)
    for tokenizer in refused:
        with pytest.raises(BadInput, match="tokenizer"):
            measure(model, tokenizer, ["two words"], seq_len=32, context=8, progress=False)


def test_a_gguf_file_with_an_unknown_rule_for_splitting_is_refused(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    write_gguf(tmp_path, "model.gguf")
    source = Pinned(str(tmp_path), None, "x", gguf="model.gguf")
    assert ids(load_tokenizer(source), "a")
    file = tmp_path / "model.gguf"
    field = gguf.GGUFReader(file).fields["tokenizer.ggml.pre"]
    assert field.contents() == "qwen2"
    content = file.read_bytes()
    file.write_bytes(content.replace(b"\x05\0\0\0\0\0\0\0qwen2", b"\x05\0\0\0\0\0\0\0qwenX"))
    with pytest.raises(BadInput, match="qwenX"):
        load_tokenizer(source)
