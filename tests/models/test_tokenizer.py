"""Tests that a loaded tokenizer follows its files.

tokenizer.json contains the rules, and tokenizer_config.json names a class of transformers. Some classes replace rules
of the file by their own. The program must use the rules of the file, or refuse files that contradict each other.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer

from rbptrack.api import measure
from rbptrack.base.errors import BadInput
from rbptrack.models.tokenizer import load_tokenizer
from rbptrack.models.tokenizer_rules import rules_hash
from tests.models.conftest import ModelOf
from tests.tiny_models import byte_level, pinned_tokenizer, sentence_piece

END = "<|endoftext|>"

# Parts of tokenizer.json, as published tokenizers have them.
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES = GPT2 | {"use_regex": False}
UNTRIMMED = GPT2 | {"add_prefix_space": True, "trim_offsets": False}
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

# Texts that tokenizers split in different ways: numbers, spaces, contractions, other scripts, special tokens, no text.
TEXTS = (
    "In 2026 it was 12345 and 3.14159265.\n\n\tdef f(x):\n        return x  +   1\r\n",
    " a leading space, and a trailing one ",
    "don't DON'T Ångström cafe\u0301 ﬁn 日本語と中文 한국어 🙂 \u00a0\u3000 x²½ snake_case HTTPServer",
    f"before {END} after{END}glued <s> b<s>c <bos>",
    "",
)


def split(pattern: str) -> dict[str, Any]:
    """Return a pre-tokenizer that makes each match of a regular expression a piece of its own."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    """Return a pre-tokenizer that applies other pre-tokenizers, one after the other."""
    return {"type": "Sequence", "pretokenizers": list(steps)}


def begins_with(token: str) -> dict[str, Any]:
    """Return a post-processor that puts a token before each text.

    It gives the token the id 0. `write_tokenizer` replaces it by the token's id in the vocabulary.
    """
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

# Tokenizers like those of published models. By name: the type of the model in config.json, parts of tokenizer.json, and
# values of tokenizer_config.json.
TOKENIZERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "gpt2": ("gpt2", {"pre_tokenizer": GPT2, "post_processor": UNTRIMMED}, {"model_max_length": 1024}),
    "gpt-neo": ("gpt_neo", {"pre_tokenizer": GPT2}, {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False}),
    "pythia": (
        "gpt_neox",
        {"normalizer": NFC, "pre_tokenizer": GPT2, "post_processor": UNTRIMMED},
        {"tokenizer_class": "GPTNeoXTokenizer", "add_prefix_space": False},
    ),
    "mamba": (
        "mamba",
        {"normalizer": NFC, "pre_tokenizer": GPT2, "post_processor": UNTRIMMED},
        {"tokenizer_class": "GPTNeoXTokenizer", "add_bos_token": False, "add_eos_token": False},
    ),
    "rwkv": ("rwkv", {"normalizer": NFC, "pre_tokenizer": GPT2}, {"tokenizer_class": "GPTNeoXTokenizerFast"}),
    "phi2": ("phi", {"pre_tokenizer": GPT2, "post_processor": UNTRIMMED}, {"tokenizer_class": "CodeGenTokenizer"}),
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
            "post_processor": {"type": "Sequence", "processors": [UNTRIMMED, begins_with(END)]},
        },
        {"tokenizer_class": "PreTrainedTokenizerFast"},
    ),
    "deepseek": (
        "llama",
        {"normalizer": {"type": "Sequence", "normalizers": []}, "pre_tokenizer": DEEPSEEK, "post_processor": UNTRIMMED},
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
    "Unheard",  # no such class
):
    # Rules that most of these classes would replace by their own.
    TOKENIZERS[f"digits {_class}"] = ("llama", {"pre_tokenizer": sequence(DIGITS, GPT2)}, {"tokenizer_class": _class})
    TOKENIZERS[f"lower {_class}"] = ("gpt2", {"normalizer": {"type": "Lowercase"}}, {"tokenizer_class": _class})


@cache
def _tokenizer_json(kind: str) -> str:
    """Return the tokenizer.json of a small vocabulary of bytes (`bytes`) or of SentencePiece (`pieces`)."""
    if kind == "bytes":
        return byte_level([END, "<|padding|>"]).to_str()
    return sentence_piece(("<unk>", "<s>", "</s>", "<bos>")).to_str()


def write_tokenizer(
    folder: Path, changes: dict[str, Any], config: dict[str, Any], *, kind: str = "bytes", model_type: str = "llama"
) -> Path:
    """Write the files of a tokenizer into a folder, and return the folder.

    Args:
        folder: the folder; it is created if it does not exist.
        changes: parts of tokenizer.json that replace those of the small vocabulary.
        config: values of tokenizer_config.json in addition to the first and last token of texts.
        kind: the vocabulary: `bytes` or `pieces`.
        model_type: the type in config.json, by which transformers chooses a class.

    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = json.loads(_tokenizer_json(kind)) | changes
    vocabulary = parts["model"]["vocab"]
    text = json.dumps(parts)
    for token in ("<s>", "<bos>", END):  # `begins_with` does not know the token's id
        with_id_0 = json.dumps({token: [0]})
        with_own_id = json.dumps({token: {"id": token, "ids": [vocabulary.get(token, 0)], "tokens": [token]}})
        text = text.replace(with_id_0, with_own_id)
    (folder / "tokenizer.json").write_text(text)
    first, last = (END, END) if kind == "bytes" else ("<bos>" if "Gemma" in str(config) else "<s>", "</s>")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": first, "eos_token": last} | config))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


def load_folder(folder: Path) -> Any:
    """Load the tokenizer in a folder with `load_tokenizer`, as a measurement does."""
    return load_tokenizer(pinned_tokenizer(folder))


def ids(tokenizer: Any, text: str, **options: Any) -> list[int]:
    """Return the token ids of a text. `options` are further arguments of the tokenizer's call."""
    encoded: list[int] = tokenizer(text, **options)["input_ids"]
    return encoded


@pytest.mark.parametrize("name", TOKENIZERS)
def test_load_tokenizer_gives_the_ids_of_the_tokenizers_library(name: str, tmp_path: Path) -> None:
    model_type, changes, config = TOKENIZERS[name]
    kind = "pieces" if name in ("llama2", "mistral", "gemma2") else "bytes"
    folder = write_tokenizer(tmp_path, changes, config, kind=kind, model_type=model_type)
    expected = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer = load_folder(folder)
    first = [tokenizer.bos_token_id] if config.get("add_bos_token") or "llama3" in name else []
    for text in TEXTS:
        expected_ids = expected.encode(text, add_special_tokens=False).ids
        assert ids(tokenizer, text, add_special_tokens=False) == expected_ids
        assert ids(tokenizer, text) == first + expected_ids
        offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
        assert max((end for _, end in offsets), default=0) <= len(text)


@pytest.mark.parametrize("post_processor", [None, UNTRIMMED, begins_with(END)], ids=["none", "bytes", "template"])
@pytest.mark.parametrize(("add_bos", "add_eos"), [(True, False), (False, True), (True, True)])
def test_load_tokenizer_adds_first_and_last_token_as_the_files_say(
    add_bos: bool, add_eos: bool, post_processor: Any, tmp_path: Path
) -> None:
    config = {"add_bos_token": add_bos, "add_eos_token": add_eos, "tokenizer_class": "PreTrainedTokenizerFast"}
    tokenizer = load_folder(write_tokenizer(tmp_path, {"post_processor": post_processor}, config))
    end = tokenizer.convert_tokens_to_ids(END)
    words = ids(tokenizer, "two words", add_special_tokens=False)
    template_begins = bool(post_processor and post_processor["type"] == "TemplateProcessing")
    first = [end] if add_bos or template_begins else []
    last = [end] if add_eos else []
    assert ids(tokenizer, "two words") == first + words + last


def test_load_tokenizer_refuses_a_first_token_that_only_one_file_wants(tmp_path: Path) -> None:
    config = {"add_bos_token": False, "tokenizer_class": "LlamaTokenizerFast"}
    with pytest.raises(BadInput, match="add_bos_token"):
        load_folder(write_tokenizer(tmp_path, {"post_processor": begins_with(END)}, config))


def test_load_tokenizer_refuses_add_bos_token_if_the_files_name_no_first_token(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path, {}, {"add_bos_token": True, "bos_token": None, "tokenizer_class": "Unheard"})
    with pytest.raises(BadInput, match="add_bos_token"):
        load_folder(folder)


def test_load_tokenizer_gives_a_first_token_that_the_vocabulary_lacks_a_new_id(tmp_path: Path) -> None:
    """Later, `check_compatible` refuses the model if its head has no row for the new id."""
    folder = write_tokenizer(
        tmp_path, {}, {"add_bos_token": True, "bos_token": "<unheard>", "tokenizer_class": "Unheard"}
    )
    assert ids(load_folder(folder), "a")[0] >= 400


def test_load_tokenizer_refuses_files_that_contradict_each_other(tmp_path: Path) -> None:
    folder = write_tokenizer(
        tmp_path, {"pre_tokenizer": GPT2}, {"add_prefix_space": True, "tokenizer_class": "GPT2Tokenizer"}
    )
    with pytest.raises(BadInput, match="add_prefix_space"):
        load_folder(folder)


@pytest.mark.parametrize("tokenizer_class", ["GPT2Tokenizer", "PreTrainedTokenizerFast"])
def test_load_tokenizer_switches_dropout_off(tokenizer_class: str, tmp_path: Path) -> None:
    model = json.loads(_tokenizer_json("bytes"))["model"]
    config = {"tokenizer_class": tokenizer_class}
    plain = load_folder(write_tokenizer(tmp_path / "plain", {}, config))
    tokenizer = load_folder(write_tokenizer(tmp_path / "dropout", {"model": model | {"dropout": 0.5}}, config))
    for _ in range(20):
        assert ids(tokenizer, TEXTS[0]) == ids(plain, TEXTS[0])
    assert rules_hash(tokenizer) == rules_hash(plain)


@pytest.mark.parametrize("tokenizer_class", ["GPT2Tokenizer", "PreTrainedTokenizerFast"])
def test_load_tokenizer_ignores_truncation_and_padding_of_the_file(tokenizer_class: str, tmp_path: Path) -> None:
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
    plain = load_folder(write_tokenizer(tmp_path / "plain", {}, {"pad_token": "<|padding|>"}))
    tokenizer = load_folder(write_tokenizer(tmp_path / "limits", limits, {"tokenizer_class": tokenizer_class}))
    encoded = tokenizer([TEXTS[0], "a"], return_offsets_mapping=True)["input_ids"]
    assert encoded == plain([TEXTS[0], "a"])["input_ids"]
    assert rules_hash(tokenizer) == rules_hash(plain)


@pytest.mark.parametrize("tokenizer_class", ["XLMTokenizer", "T5Tokenizer", "MistralCommonBackend", 7])
def test_load_tokenizer_reads_tokenizer_json_if_the_class_cannot_be_loaded(
    tokenizer_class: object, tmp_path: Path
) -> None:
    plain = load_folder(write_tokenizer(tmp_path / "plain", {}, {}))
    tokenizer = load_folder(write_tokenizer(tmp_path / "other", {}, {"tokenizer_class": tokenizer_class}))
    assert ids(tokenizer, TEXTS[0]) == ids(plain, TEXTS[0])


def test_load_tokenizer_refuses_two_tokens_with_one_id(tmp_path: Path) -> None:
    model = json.loads(_tokenizer_json("bytes"))["model"]
    vocabulary = model["vocab"] | {"Ġtw": 300}
    with pytest.raises(BadInput, match="both have the id"):
        load_folder(write_tokenizer(tmp_path, {"model": model | {"vocab": vocabulary}}, {}))


def test_load_tokenizer_refuses_bpe_without_merges(tmp_path: Path) -> None:
    model = json.loads(_tokenizer_json("bytes"))["model"]
    with pytest.raises(BadInput, match="merges"):
        load_folder(write_tokenizer(tmp_path, {"model": model | {"merges": []}}, {}))


def test_load_tokenizer_refuses_a_length_that_is_a_text(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="tokenizer"):
        load_folder(write_tokenizer(tmp_path, {}, {"model_max_length": "long"}))


def test_load_tokenizer_reports_a_panic_of_the_tokenizers_library(tmp_path: Path) -> None:
    model = json.loads(_tokenizer_json("bytes"))["model"]
    with pytest.raises(BadInput, match="loaded"):
        load_folder(write_tokenizer(tmp_path, {"model": model | {"continuing_subword_prefix": "##"}}, {}))


def test_rules_hash_differs_for_any_two_sets_of_rules(tmp_path: Path) -> None:
    """The hash is of the rules. The ids of a text would not suffice, because they are equal for most texts."""
    rules: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"pre_tokenizer": sequence(DIGITS, GPT2)}, {}),
        ({"normalizer": NFC}, {}),
        ({}, {"add_bos_token": True}),
        ({}, {"add_eos_token": True}),
        ({}, {"eos_token": "<|padding|>"}),
    ]
    hashes = set()
    for number, (changes, config) in enumerate(rules):
        folder = write_tokenizer(tmp_path / str(number), changes, {"tokenizer_class": "GPT2Tokenizer"} | config)
        hashes.add(rules_hash(load_folder(folder)))
    assert len(hashes) == len(rules)


def test_rules_hash_does_not_depend_on_the_layout_of_the_file(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path, {}, {"tokenizer_class": "GPT2Tokenizer"})
    before = rules_hash(load_folder(folder))
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=4))
    assert rules_hash(load_folder(folder)) == before


@pytest.fixture
def digits_folder(tmp_path: Path) -> Path:
    """Write a tokenizer that splits digits. transformers' GPT2Tokenizer, which it names, does not split them."""
    return write_tokenizer(tmp_path, {"pre_tokenizer": sequence(DIGITS, GPT2)}, {"tokenizer_class": "GPT2Tokenizer"})


def test_measure_refuses_a_tokenizer_in_memory_with_other_rules_than_its_files(
    digits_folder: Path, model_of: ModelOf
) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(digits_folder)
    with pytest.raises(BadInput, match="pre_tokenizer"):
        measure(model_of("llama"), tokenizer, ["only 31 words"], seq_len=32, context=8, progress=False)


def test_measure_accepts_a_tokenizer_in_memory_with_the_rules_of_its_files(
    digits_folder: Path, model_of: ModelOf
) -> None:
    texts = [TEXTS[0], "only 31 words"]
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(digits_folder)
    measurement = measure(model_of("llama"), tokenizer, texts, seq_len=32, context=8, progress=False)
    expected = Tokenizer.from_file(str(digits_folder / "tokenizer.json"))
    assert measurement.measurement.num_tokens == sum(len(expected.encode(text).ids) - 1 for text in texts)


def test_measure_accepts_a_tokenizer_in_memory_that_names_no_files(digits_folder: Path, model_of: ModelOf) -> None:
    """A user who clears `name_or_path` wants the rules in memory. The identity of a measurement contains its rules."""
    texts = [TEXTS[0], "only 31 words"]
    model = model_of("llama")
    from_files = transformers.PreTrainedTokenizerFast.from_pretrained(digits_folder)
    other_rules = transformers.AutoTokenizer.from_pretrained(digits_folder)
    other_rules.name_or_path = ""
    first = measure(model, from_files, texts, seq_len=32, context=8, progress=False)
    second = measure(model, other_rules, texts, seq_len=32, context=8, progress=False)
    assert first.measurement.tokenizer_rules != second.measurement.tokenizer_rules


def test_measure_refuses_a_tokenizer_in_memory_without_the_first_token_of_its_files(
    tmp_path: Path, model_of: ModelOf
) -> None:
    model = model_of("llama")
    folder = write_tokenizer(
        tmp_path, {"pre_tokenizer": GPT2}, {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True}
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with pytest.raises(BadInput, match="add_bos_token"):
        measure(model, tokenizer, ["two words"], seq_len=32, context=8, progress=False)
    tokenizer.add_bos_token = True
    measure(model, tokenizer, ["two words"], seq_len=32, context=8, progress=False)


@pytest.mark.parametrize(
    "kind",
    ["AutoTokenizer", "a class", "a tokenizer of tokenizers", "None", "a function", "empty vocabulary", "dropout"],
)
def test_measure_refuses_what_is_not_a_usable_tokenizer(kind: str, tmp_path: Path, model_of: ModelOf) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    fast = load_folder(write_tokenizer(tmp_path / "fast", {}, {}))
    with_dropout = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level([END]))
    with_dropout.backend_tokenizer.model.dropout = 0.1
    tokenizers = {
        "AutoTokenizer": transformers.AutoTokenizer,
        "a class": type(fast),
        "a tokenizer of tokenizers": fast.backend_tokenizer,
        "None": None,
        "a function": str.split,
        "empty vocabulary": transformers.AutoTokenizer.from_pretrained(tmp_path),
        "dropout": with_dropout,
    }
    with pytest.raises(BadInput, match="tokenizer"):
        measure(model_of("llama"), tokenizers[kind], ["two words"], seq_len=32, context=8, progress=False)
