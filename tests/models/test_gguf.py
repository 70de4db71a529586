"""Tests of GGUF files: each key and tensor is used, has no effect, or is a reason to refuse the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from rbptrack.base.errors import BadInput
from rbptrack.models.gguf_config import gguf_config
from rbptrack.models.gguf_file import gguf_path, gguf_type, read_gguf
from rbptrack.models.gguf_tokenizer import check_gguf_tokens
from rbptrack.models.tokenizer import load_tokenizer
from rbptrack.sources.pin import Pinned, pin_model
from tests.models.conftest import Load
from tests.tiny_models import byte_level, model_config, pinned_tokenizer, write_checkpoint

files: Any = pytest.importorskip("tests.gguf_files", exc_type=ImportError)
TOKENS = torch.randint(2, 400, (1, 120), generator=torch.Generator().manual_seed(1))
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
# Digits, contractions, spaces, line breaks, accents and several scripts.
TEXT = "I'll don't 12345 3.14  x²½\n\n\tdef f(x):\r\n  return  x café Ångström 日本語，🙂 HTTPServer a/b//c   "


def rope_keys(architecture: str, kind: str) -> dict[str, Any]:
    keys = {"type": kind, "factor": 4.0} | ({"original_context_length": 32} if kind == "yarn" else {})
    return {f"{architecture}.rope.scaling.{name}": value for name, value in keys.items()}


def frequency_factors(model: Any) -> dict[str, Any]:
    """Return the tensor in which files of Llama 3 hold the scaling of positions."""
    head_dim = model.config.head_dim
    unscaled = 1 / LLAMA3["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim)
    return {"rope_freqs.weight": (unscaled / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)}


def check_same_logits(model: Any, folder: Path, load: Load) -> None:
    """The model in `folder` has the logits of `model` in float64."""
    loaded = load(folder, gguf="m.gguf")
    with torch.inference_mode():
        expected = (model if "moe" in model.config.model_type else model.double())(TOKENS).logits
        logits = loaded.backbone.full_logits(TOKENS)
    torch.testing.assert_close(logits.double(), expected.double(), rtol=0, atol=1e-3)


@pytest.mark.parametrize("architecture", files.ARCHITECTURES)
def test_load_model_gives_the_logits_of_the_model_before_conversion(
    architecture: str, tmp_path: Path, load: Load
) -> None:
    model = files.random_model(architecture)
    files.write_model(tmp_path / "m.gguf", architecture, model)
    check_same_logits(model, tmp_path, load)


@pytest.mark.parametrize(
    ("architecture", "settings", "keys"),
    [
        ("llama", {"rope_parameters": LINEAR}, rope_keys("llama", "linear")),
        ("llama", {"rope_parameters": YARN}, rope_keys("llama", "yarn")),
        ("qwen2", {"rope_parameters": YARN}, rope_keys("qwen2", "yarn")),
        ("qwen3", {"rope_parameters": YARN}, rope_keys("qwen3", "yarn")),
        (
            "gemma3",
            {
                "rope_parameters": {
                    "full_attention": LINEAR,
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                }
            },
            rope_keys("gemma3", "linear"),
        ),
        ("llama", {"attention_bias": True, "mlp_bias": True}, {}),
        ("llama", {"tie_word_embeddings": True}, {}),
        ("gemma2", {"num_hidden_layers": 46, "query_pre_attn_scalar": 16}, {}),
    ],
)
def test_load_model_uses_scaled_positions_biases_and_tied_heads(
    architecture: str, settings: dict[str, Any], keys: dict[str, Any], tmp_path: Path, load: Load
) -> None:
    model = files.random_model(architecture, **settings)
    files.write_model(tmp_path / "m.gguf", architecture, model, keys=keys)
    check_same_logits(model, tmp_path, load)


def test_load_model_uses_the_frequency_factors_of_llama3(tmp_path: Path, load: Load) -> None:
    model = files.random_model("llama", rope_parameters=LLAMA3)
    files.write_model(tmp_path / "m.gguf", "llama", model, tensors=frequency_factors(model))
    check_same_logits(model, tmp_path, load)


@pytest.mark.parametrize("factors", [np.full(8, 2.0), np.ones(4) * 3, np.linspace(1, 8, 8)])
def test_gguf_config_refuses_other_frequency_factors(factors: Any, tmp_path: Path) -> None:
    model = files.random_model("llama")
    files.write_model(tmp_path / "m.gguf", "llama", model, tensors={"rope_freqs.weight": factors})
    with pytest.raises(BadInput, match="rope_freqs"):
        gguf_config(read_gguf(tmp_path / "m.gguf"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rope.scaling.type", "longrope"),
        ("rope.scaling.type", "linear"),  # without a factor
        ("rope.scaling.factor", 4.0),  # without a type
        ("rope.scaling.attn_factor", 1.2),
        ("rope.dimension_count", 8),
        ("rope.freq_base", 1e-30),  # no float32 holds the angles
        ("rope.scale_linear", 2.0),
        ("attention.head_count", [4, 4, 4, 4, 4, 4, 2]),
        ("attention.head_count_kv", None),
        ("attention.layer_norm_rms_epsilon", None),
        ("attention.layer_norm_rms_epsilon", float("nan")),
        ("attention.sliding_window", 64),
        ("attention.causal", False),
        ("block_count", "seven"),
        ("block_count", 10**9),
        ("context_length", True),
        ("embedding_length", 0),
        ("tensor_data_layout", "another"),
        ("expert_count", 8),
        ("logit_scale", 0.5),
        ("a_key_of_tomorrow", 1),
    ],
)
def test_gguf_config_refuses_a_key_that_it_cannot_use(name: str, value: Any, tmp_path: Path) -> None:
    model = files.random_model("llama")
    files.write_model(tmp_path / "m.gguf", "llama", model, keys={f"llama.{name}": value})
    with pytest.raises(BadInput, match=f"llama.{name}|rope.scaling"):
        gguf_config(read_gguf(tmp_path / "m.gguf"))


def test_gguf_config_refuses_a_size_that_the_heads_do_not_divide(tmp_path: Path) -> None:
    keys = {"llama.embedding_length": 65, "llama.attention.key_length": 16}
    files.write_model(tmp_path / "m.gguf", "llama", files.random_model("llama"), keys=keys)
    with pytest.raises(BadInput):
        gguf_config(read_gguf(tmp_path / "m.gguf"))


def test_gguf_config_refuses_an_architecture_that_was_not_checked(tmp_path: Path) -> None:
    model = files.random_model("llama")
    keys = {name.replace("llama", "falcon"): value for name, value in files.model_keys("llama", model.config).items()}
    files.write_keys(tmp_path / "m.gguf", "falcon", keys, {})
    with pytest.raises(BadInput, match="falcon"):
        gguf_config(read_gguf(tmp_path / "m.gguf"))


@pytest.mark.parametrize("name", ["blk.0.attn_q_norm.weight", "blk.0.attn_sub_norm.weight", "rope_factors_long.weight"])
def test_load_model_refuses_a_tensor_that_transformers_does_not_use(name: str, tmp_path: Path, load: Load) -> None:
    model = files.random_model("llama")
    files.write_model(tmp_path / "m.gguf", "llama", model, tensors={name: np.ones(16)})
    with pytest.raises(BadInput, match=name):
        load(tmp_path, gguf="m.gguf")


@pytest.mark.parametrize("keys", [{"split.count": 2}, {"general.type": "mmproj"}])
def test_read_gguf_refuses_a_part_of_a_model(keys: dict[str, Any], tmp_path: Path) -> None:
    files.write_model(tmp_path / "m.gguf", "llama", files.random_model("llama"), keys=keys)
    with pytest.raises(BadInput):
        read_gguf(tmp_path / "m.gguf")


@pytest.mark.parametrize("size", [0, 3, 20, 100, 5000])
def test_read_gguf_refuses_a_file_whose_header_is_cut(size: int, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    files.write_model(path, "llama", files.random_model("llama"))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BadInput):
        read_gguf(path)


def test_load_model_refuses_keys_that_ask_for_more_than_the_file_holds(tmp_path: Path, load: Load) -> None:
    keys = {"llama.feed_forward_length": 65_536, "llama.block_count": 100}
    files.write_model(tmp_path / "m.gguf", "llama", files.random_model("llama"), keys=keys)
    with pytest.raises(BadInput, match="parameters"):
        load(tmp_path, gguf="m.gguf")


def write_tokenizer(folder: Path, **changes: Any) -> Pinned:
    """Write a GGUF file with a byte-level tokenizer and no weights."""
    files.write_keys(folder / "m.gguf", "llama", files.byte_level_keys(**changes), {})
    return pin_model(model_config(folder, gguf="m.gguf"))


def published_rule(*, digits: bool = False, pattern: str = "", normal_form: bool = False, whole: bool = False) -> Any:
    """Build the tokenizer of the file with the rules that a published tokenizer.json has."""
    keys = files.byte_level_keys()
    vocab = {token: number for number, token in enumerate(keys["tokenizer.ggml.tokens"])}
    merges = [tuple(line.split(" ")) for line in keys["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=whole))
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    if pattern:
        steps.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pattern))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    if normal_form:
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)


@pytest.mark.parametrize(
    ("pre", "rule", "first"),
    [
        ("gpt-2", {}, []),
        ("smollm", {"digits": True}, []),
        ("qwen2", {"pattern": LLAMA3_SPLIT.replace("{1,3}", ""), "normal_form": True}, []),
        ("llama-bpe", {"pattern": LLAMA3_SPLIT, "whole": True}, [0]),
    ],
)
def test_load_tokenizer_has_the_published_rule_of_each_value_of_pre(
    pre: str, rule: dict[str, Any], first: list[int], tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(write_tokenizer(tmp_path, pre=pre))
    expected = published_rule(**rule)
    for text in (TEXT, "cafe\u0301", "", " a", "123"):
        assert tokenizer(text)["input_ids"] == first + expected.encode(text).ids


@pytest.mark.parametrize("adds", [False, True])
def test_load_tokenizer_follows_add_bos_token_whatever_the_rule_implies(adds: bool, tmp_path: Path) -> None:
    for pre in ("llama-bpe", "gpt-2"):
        tokenizer = load_tokenizer(write_tokenizer(tmp_path, pre=pre, add_bos_token=adds, add_eos_token=True))
        ids: Any = tokenizer("ab")["input_ids"]
        assert (ids[0] == 0, ids[-1]) == (adds, 0)
        (tmp_path / "m.gguf").unlink()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pre", "default"),
        ("pre", None),
        ("pre", 7),
        ("model", "bert"),
        ("merges", None),
        ("merges", ["a b c"]),
        ("merges", [7, 8]),
        ("tokens", [1, 2]),
        ("merges", ["Ġ nowhere"]),
        ("tokens", ["a", "a"]),
        ("token_type", [1, 1]),
        ("token_type", [9] * 400),
        ("bos_token_id", 400),
        ("add_bos_token", 1),
        ("add_sep_token", True),
        ("add_space_prefix", True),
        ("remove_extra_whitespaces", True),
        ("normalizer.lowercase", True),
    ],
)
def test_load_tokenizer_refuses_a_key_that_it_cannot_use(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"model\.tokenizer="):
        load_tokenizer(write_tokenizer(tmp_path, **{name: value}))


def test_load_tokenizer_refuses_to_begin_texts_with_a_token_without_a_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="bos_token_id"):
        load_tokenizer(write_tokenizer(tmp_path, pre="llama-bpe", bos_token_id=None))


@pytest.mark.parametrize("role", ["padding", "eos", "bos", "unknown"])
def test_load_tokenizer_does_not_find_an_ordinary_token_with_a_role_before_others(role: str, tmp_path: Path) -> None:
    """The padding token of some files is "!". A text with "!!" must still hold the token "!!"."""
    plain = load_tokenizer(write_tokenizer(tmp_path))
    ids: Any = plain("return self")["input_ids"]
    letter = plain.get_vocab()["e"]
    (tmp_path / "m.gguf").unlink()
    tokenizer = load_tokenizer(write_tokenizer(tmp_path, **{f"{role}_token_id": letter}))
    assert letter not in ids
    assert tokenizer("return self")["input_ids"] == ids


def sentencepiece_keys(pieces: dict[str, float]) -> dict[str, Any]:
    """Return the keys of a tokenizer of sentencepiece, with the pieces and their scores."""
    return {
        "model": "llama",
        "pre": None,
        "merges": None,
        "tokens": ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces],
        "token_type": [2, 3, 3, *[6] * 256, *[1] * len(pieces)],
        "scores": [*[0.0] * 259, *pieces.values()],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }


def test_load_tokenizer_refuses_equal_scores_of_joined_pieces(tmp_path: Path) -> None:
    """llama.cpp splits "abc" into ab and c, because ab comes first. Fast tokenizers cannot represent this rule."""
    pieces = {"ab": 0.0, "bc": 0.0, "a": -1.0, "b": -2.0, "c": -3.0, "▁": -4.0}
    with pytest.raises(BadInput, match="scores"):
        load_tokenizer(write_tokenizer(tmp_path, **sentencepiece_keys(pieces)))


def test_load_tokenizer_joins_pieces_to_a_token_of_any_type(tmp_path: Path) -> None:
    """llama.cpp looks up the text of two pieces among all tokens."""
    keys = sentencepiece_keys({"▁▁": -1.0, "a": -2.0, "▁": -3.0})
    keys["token_type"][259] = 3
    tokenizer = load_tokenizer(write_tokenizer(tmp_path, **keys, add_space_prefix=False))
    assert tokenizer("  a")["input_ids"] == [1, 259, 260]


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (None, ["<s>", "▁", "▁a", "b", "▁", "c"]),  # llama.cpp adds a space unless the file says otherwise
        (True, ["<s>", "▁", "▁a", "b", "▁", "c"]),
        (False, ["<s>", "▁a", "b", "▁", "c"]),
    ],
)
def test_load_tokenizer_merges_by_score_and_follows_add_space_prefix(
    prefix: bool | None, expected: list[str], tmp_path: Path
) -> None:
    """The piece `▁a` has a better score than `ab`."""
    pieces = {"▁a": -1.0, "ab": -2.0, "▁": -3.0, "a": -4.0, "b": -5.0, "c": -6.0}
    pinned = write_tokenizer(tmp_path, **sentencepiece_keys(pieces), add_space_prefix=prefix)
    tokenizer = load_tokenizer(pinned)
    ids: Any = tokenizer(" ab c")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == expected
    assert tokenizer.convert_ids_to_tokens(tokenizer("é", add_special_tokens=False)["input_ids"])[-2:] == [
        "<0xC3>",
        "<0xA9>",
    ]


def test_load_model_reads_config_and_dequantised_weights_from_a_gguf_file(tmp_path: Path, load: Load) -> None:
    plain = files.write_quantised(tmp_path / "toy-Q8_0.gguf")
    model = load(tmp_path, gguf="toy-Q8_0.gguf")
    tokens = torch.arange(40)[None]
    with torch.inference_mode():
        assert torch.equal(model.backbone.full_logits(tokens), plain(tokens).logits)
    assert model.quantisation == "Q8_0"
    assert model.notes == ("its weights are read from toy-Q8_0.gguf and dequantised",)


def test_load_model_refuses_a_gguf_file_that_was_cut(tmp_path: Path, load: Load) -> None:
    files.write_quantised(tmp_path / "toy-Q8_0.gguf")
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "toy-Q8_0.gguf").read_bytes()[:-64])
    with pytest.raises(BadInput) as caught:
        load(tmp_path, gguf="cut.gguf")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("file_type", "name"), [(15, "Q4_K_M"), (0, "F32"), (9999, "Q8_0"), (None, "Q8_0")])
def test_gguf_type_reads_the_header_or_the_type_of_most_weights(
    tmp_path: Path, file_type: int | None, name: str
) -> None:
    """The header may lack the type, or have a number that is not known. Most weights of this file are in Q8_0."""
    keys = {} if file_type is None else {"general.file_type": file_type}
    tensors = {"norm": np.zeros(8), "layer": np.zeros((32, 32))}
    files.write_keys(tmp_path / "toy.gguf", "llama", keys, tensors, files.Q8_0)
    assert gguf_type(read_gguf(tmp_path / "toy.gguf")) == name


@pytest.fixture
def pinned_gguf(tmp_path: Path) -> Pinned:
    files.write_quantised(tmp_path / "toy-Q8_0.gguf")
    return pin_model(model_config(tmp_path, gguf="toy-Q8_0.gguf"))


def test_check_gguf_tokens_accepts_the_tokenizer_of_the_file_and_of_its_model(
    pinned_gguf: Pinned, tmp_path: Path
) -> None:
    check_gguf_tokens("toy", read_gguf(gguf_path(pinned_gguf)), load_tokenizer(pinned_gguf))
    (tmp_path / "plain").mkdir()
    byte_level(files.SPECIAL_TOKENS).save(str(tmp_path / "plain/tokenizer.json"))
    check_gguf_tokens("toy", read_gguf(gguf_path(pinned_gguf)), load_tokenizer(pinned_tokenizer(tmp_path / "plain")))


def test_check_gguf_tokens_refuses_a_smaller_tokenizer_of_another_model(pinned_gguf: Pinned, tmp_path: Path) -> None:
    """All its ids are rows of the head, so only the texts of the tokens show that it is wrong."""
    write_checkpoint("llama2", tmp_path / "other")
    other = load_tokenizer(pinned_tokenizer(tmp_path / "other"))
    with pytest.raises(BadInput, match="another model"):
        check_gguf_tokens("toy", read_gguf(gguf_path(pinned_gguf)), other)
