"""Tests of loading models: weights must be complete and fit the config, and no code of a repository runs."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import Candidates
from rbptrack.models.architecture import load_config, max_sequence_length
from rbptrack.models.compatibility import check_compatible, check_same_tokenizer, check_token_ids, choose_candidates
from rbptrack.models.parameters import count_module_parameters, count_parameters
from rbptrack.models.splitting import split_model
from rbptrack.models.tokenizer import load_tokenizer
from rbptrack.sources.pin import pin_model, pin_tokenizer
from tests.models.conftest import Load, ModelOf
from tests.tiny_models import HEAD_ROWS, edit_json, model_config, pinned_tokenizer, write_checkpoint

TENSOR = "gpt_neox.layers.1.mlp.dense_h_to_4h.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a small Pythia and return its folder."""
    write_checkpoint("pythia", tmp_path / "model")
    return tmp_path / "model"


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the tensors of model.safetensors by a function that edits the dictionary of tensors."""
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def rename_tensor(weights: dict[str, torch.Tensor]) -> None:
    weights["gpt_neox.layers.1.mlp.dense_out.weight"] = weights.pop(TENSOR)


# By fault: a change of the weights, values of config.json, and a pattern that the message must match.
FAULTS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], dict[str, Any], str]] = {
    "a missing tensor": (lambda w: w.pop(TENSOR), {}, TENSOR),
    "a renamed tensor": (rename_tensor, {}, r"h_to_4h.*dense_out"),
    "more layers than stored": (lambda w: None, {"num_hidden_layers": 3}, r"layers\.2.* and \d+ more"),
    "fewer layers than stored": (lambda w: None, {"num_hidden_layers": 1}, r"layers\.1"),
    "another width": (lambda w: None, {"intermediate_size": 64}, r"\(32, 128\) instead of \(32, 64\)"),
    "integers": (lambda w: w.update({TENSOR: (w[TENSOR] * 50).to(torch.int8)}), {}, rf"integers.*{TENSOR}"),
    "booleans": (lambda w: w.update({TENSOR: w[TENSOR] > 0}), {}, rf"booleans.*{TENSOR}"),
    "numbers of 8 bits": (lambda w: w.update({TENSOR: w[TENSOR].to(torch.float8_e4m3fn)}), {}, rf"8 bits.*{TENSOR}"),
    "complex numbers": (lambda w: w.update({TENSOR: w[TENSOR].to(torch.complex64)}), {}, rf"complex.*{TENSOR}"),
    "a million layers": (lambda w: None, {"num_hidden_layers": 10**6}, r"1,000,000 layers"),
    "an unknown quantisation": (lambda w: None, {"quantization_config": {"quant_method": "mine"}}, "'mine'"),
    "an activation that does not exist": (lambda w: None, {"hidden_act": "gulu"}, "gulu"),
}


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("fault", FAULTS)
def test_load_model_refuses_weights_that_do_not_fit_the_config(fault: str, folder: Path, load: Load) -> None:
    change, values, message = FAULTS[fault]
    edit_weights(folder, change)
    edit_json(folder / "config.json", **values)
    with pytest.raises(BadInput, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [0, 5, 4000])
def test_load_model_refuses_a_weights_file_that_was_cut(size: int, folder: Path, load: Load) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BadInput, match="damaged or cut short") as caught:
        load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: no memory"), OSError("Cannot allocate memory")]
)
def test_load_model_says_that_the_model_does_not_fit_into_memory(
    error: Exception, folder: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise ValueError("it failed") from error

    monkeypatch.setattr(transformers.GPTNeoXForCausalLM, "from_pretrained", fail)
    with pytest.raises(BadInput, match="does not fit into memory"):
        load(folder)


@pytest.mark.parametrize("name", ["pythia", "gpt2", "gpt-neo"])
def test_load_model_ignores_buffers_that_older_versions_stored(name: str, tmp_path: Path, load: Load) -> None:
    write_checkpoint(name, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    for key in list(weights):
        if key.endswith(("query_key_value.weight", "c_attn.weight", "q_proj.weight")):
            layer = key.rsplit(".", 2)[0]
            weights[f"{layer}.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool)
            weights[f"{layer}.masked_bias"] = torch.zeros(1)
            weights[f"{layer}.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert load(tmp_path).vocab_size == HEAD_ROWS


def test_load_model_does_not_need_the_tensor_of_a_tied_head(tmp_path: Path, load: Load) -> None:
    write_checkpoint("qwen2.5", tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    assert load(tmp_path).vocab_size == HEAD_ROWS


def test_load_model_gives_the_logits_of_transformers_if_a_tied_head_is_stored(tmp_path: Path, load: Load) -> None:
    """The file holds a head of its own, and the config says that the head is the embedding."""
    write_checkpoint("pythia", tmp_path, tie_word_embeddings=False)
    edit_json(tmp_path / "config.json", tie_word_embeddings=True)
    model = load(tmp_path)
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    tokens = torch.arange(40)[None]
    with torch.inference_mode():
        logits = model.head.logits(model.backbone(tokens)[0])
        assert torch.allclose(logits, plain(tokens).logits[0], atol=1e-5)


@pytest.fixture
def shards(folder: Path) -> list[Path]:
    """Store the weights of the small Pythia in several files, and return them."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="100KB")
    files = sorted(folder.glob("model-*.safetensors"))
    assert len(files) > 1
    return files


@pytest.mark.usefixtures("shards")
def test_load_model_reads_weights_in_several_files(folder: Path, load: Load) -> None:
    assert load(folder).vocab_size == HEAD_ROWS


def test_load_model_names_a_missing_file_of_several(folder: Path, shards: list[Path], load: Load) -> None:
    shards[1].unlink()
    with pytest.raises(BadInput, match=shards[1].name):
        load(folder)


@pytest.fixture
def pickled_params(folder: Path) -> int:
    """Store the weights of the small Pythia as a pickle in place of safetensors. Returns the number of parameters."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.usefixtures("pickled_params")
def test_pin_model_refuses_pickles_unless_the_config_allows_them(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"model\.pickles=true"):
        pin_model(model_config(folder))
    pin_model(model_config(folder, pickles=True))


def test_load_model_refuses_pickles_unless_the_config_allows_them(
    folder: Path, pickled_params: int, load: Load
) -> None:
    with pytest.raises(BadInput, match=r"model\.pickles=true"):
        load(folder)
    assert load(folder, pickles=True).total_params == pickled_params


def test_load_model_does_not_run_code_in_a_pickle(folder: Path, load: Load, tmp_path: Path) -> None:
    class Code:
        """When it is unpickled, it creates the file `sign`."""

        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "sign",))

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Code(), protocol=2))
    with pytest.raises(BadInput, match="pickled weights") as caught:
        load(folder, pickles=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "sign").exists()


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_pin_model_refuses_a_folder_without_config_weights_or_tokenizer(missing: str, folder: Path) -> None:
    pin_model(model_config(folder))
    (folder / missing).unlink()
    with pytest.raises(BadInput, match="has no"):
        pin_model(model_config(folder))


def test_pin_model_does_not_need_a_tokenizer_if_the_config_names_another(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    pin_model(model_config(folder, tokenizer="ORG/NAME"))


@pytest.mark.parametrize("kind", ["folder", "broken link"])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
def test_pin_model_names_a_folder_or_broken_link_in_place_of_a_file(name: str, kind: str, folder: Path) -> None:
    """transformers treats some of them as files that do not exist, and goes on without them."""
    path = folder / name
    path.unlink()
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/nowhere")
    with pytest.raises(BadInput, match=name):
        pin_model(model_config(folder))


def test_pin_model_refuses_weights_with_another_file_name(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "mine.safetensors")
    with pytest.raises(BadInput, match=r"model\.safetensors"):
        pin_model(model_config(folder))


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"x":' + b"9" * 5000])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_load_tokenizer_names_a_damaged_file(name: str, content: bytes, folder: Path) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(BadInput, match=name) as caught:
        load_tokenizer(pin_model(model_config(folder)))
    assert "\n" not in str(caught.value)


def test_load_model_has_no_notes_for_a_plain_model(folder: Path, load: Load) -> None:
    assert not load(folder).notes


def test_load_model_notes_that_it_ignores_an_adapter_and_code_in_the_folder(folder: Path, load: Load) -> None:
    edit_json(folder / "config.json", auto_map={"AutoModelForCausalLM": "code.Model"})
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "elsewhere"}))
    shutil.copy(folder / "model.safetensors", folder / "adapter_model.safetensors")
    adapter_note, code_note = load(folder).notes[:2]
    assert "adapter_model.safetensors" in adapter_note
    assert "auto_map" in code_note


def test_load_model_refuses_a_model_to_which_transformers_added_an_adapter(
    folder: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers.GPTNeoXForCausalLM, "_hf_peft_config_loaded", True)
    with pytest.raises(BadInput, match="merge_and_unload"):
        load(folder)


def test_load_model_never_runs_code_of_a_repository_nor_asks_for_permission(
    folder: Path, tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code would create the file `sign`. transformers asks on the terminal, unless it is told not to."""
    sign = tmp_path / "sign"
    (folder / "code.py").write_text(
        f"from pathlib import Path\nPath({str(sign)!r}).touch()\n"
        "from transformers import GPTNeoXConfig as Config, GPTNeoXForCausalLM as Model\n"
        "from transformers import PreTrainedTokenizerFast as Fast\n"
    )
    names = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model", "AutoTokenizer": ["code.Fast"] * 2}
    for name in ("config.json", "tokenizer_config.json"):
        edit_json(folder / name, auto_map=names)
    unknown_type = tmp_path / "unknown type"
    shutil.copytree(folder, unknown_type)
    edit_json(unknown_type / "config.json", model_type="unheard_of")
    prompts: list[str] = []

    def agree(prompt: str = "") -> str:
        prompts.append(prompt)
        return "y"

    monkeypatch.setattr("builtins.input", agree)
    for model_folder in (folder, unknown_type):
        pinned = pin_model(model_config(model_folder))
        with suppress(BadInput):
            load_tokenizer(pinned)
        with suppress(BadInput):
            load_config(pinned)
        with suppress(BadInput):
            load(model_folder)
    assert not sign.exists()
    assert not prompts


# By fault: a function that damages the parts of tokenizer.json.
TOKENIZER_FAULTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "an id of -1": lambda parts: parts["model"]["vocab"].update({"the": -1}),
    "a list for the vocabulary": lambda parts: parts["model"].update(vocab=list(parts["model"]["vocab"])),
    "an added token of -1": lambda parts: parts["added_tokens"][0].update(id=-1),
    "no model": lambda parts: parts.pop("model"),
    "a broken merge": lambda parts: parts["model"].update(merges=[["a"]]),
}


@pytest.mark.parametrize("fault", TOKENIZER_FAULTS)
def test_load_tokenizer_refuses_a_damaged_tokenizer_in_one_line(fault: str, tmp_path: Path) -> None:
    write_checkpoint("llama3", tmp_path)
    parts = json.loads((tmp_path / "tokenizer.json").read_text())
    TOKENIZER_FAULTS[fault](parts)
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    with pytest.raises(BadInput) as caught:
        load_tokenizer(pin_model(model_config(tmp_path)))
    assert "\n" not in str(caught.value)


@pytest.fixture
def tokenizer_folder(tmp_path: Path) -> Path:
    """Write the folder `model` without a tokenizer. Returns the folder `tokenizer`, which holds the tokenizer."""
    write_checkpoint("gpt-neo", tmp_path / "model")
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    for path in list((tmp_path / "model").iterdir()):
        if "token" in path.name or path.name in ("vocab.json", "merges.txt"):
            path.rename(tokenizer / path.name)
    return tokenizer


@pytest.mark.usefixtures("tokenizer_folder")
def test_pin_model_without_a_tokenizer_says_how_to_name_another(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"model\.tokenizer=ORG/NAME"):
        pin_model(model_config(tmp_path / "model"))


def test_load_tokenizer_reads_the_tokenizer_of_a_folder_without_a_model(tokenizer_folder: Path) -> None:
    assert len(load_tokenizer(pin_tokenizer(str(tokenizer_folder)))) == 400


def test_check_compatible_accepts_at_most_the_length_that_the_model_was_made_for(folder: Path) -> None:
    pinned = pin_model(model_config(folder))
    config = load_config(pinned)
    check_compatible("toy", config, load_tokenizer(pinned), 1024)
    with pytest.raises(BadInput, match="at most 1024"):
        check_compatible("toy", config, load_tokenizer(pinned), 1025)


def test_check_compatible_refuses_a_token_id_beyond_the_rows_of_the_head(folder: Path) -> None:
    parts = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = parts["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.__getitem__)
    vocabulary[last] = HEAD_ROWS + 7
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    pinned = pin_model(model_config(folder))
    with pytest.raises(BadInput, match=f"the id {HEAD_ROWS + 7}"):
        check_compatible("toy", load_config(pinned), load_tokenizer(pinned), 48)


def test_check_compatible_refuses_a_tokenizer_with_many_more_tokens_than_rows(folder: Path) -> None:
    pinned = pin_model(model_config(folder))
    config = load_config(pinned)
    config.vocab_size = 100
    with pytest.raises(BadInput, match="belongs to another model"):
        check_compatible("toy", config, load_tokenizer(pinned), 48)


def test_check_same_tokenizer_accepts_one_tokenizer_twice(tmp_path: Path) -> None:
    write_checkpoint("llama3", tmp_path)
    tokenizer = load_tokenizer(pinned_tokenizer(tmp_path))
    check_same_tokenizer("toy", tokenizer, tokenizer)


def test_check_same_tokenizer_refuses_another_vocabulary(tmp_path: Path) -> None:
    tokenizers = []
    for name in ("llama3", "gpt2"):
        write_checkpoint(name, tmp_path / name)
        tokenizers.append(load_tokenizer(pinned_tokenizer(tmp_path / name)))
    with pytest.raises(BadInput, match="vocabulary"):
        check_same_tokenizer("toy", *tokenizers)


def test_check_same_tokenizer_refuses_another_normalizer(tmp_path: Path) -> None:
    write_checkpoint("llama3", tmp_path)
    tokenizer = load_tokenizer(pinned_tokenizer(tmp_path))
    edit_json(tmp_path / "tokenizer.json", normalizer={"type": "Lowercase"})
    with pytest.raises(BadInput, match="normalizer"):
        check_same_tokenizer("toy", tokenizer, load_tokenizer(pinned_tokenizer(tmp_path)))


def test_choose_candidates_returns_all_rows_or_those_up_to_the_largest_id(tmp_path: Path) -> None:
    write_checkpoint("qwen2.5", tmp_path)
    pinned = pin_model(model_config(tmp_path))
    config = load_config(pinned)
    tokenizer = load_tokenizer(pinned)
    assert choose_candidates(config, tokenizer, Candidates.vocabulary) == (HEAD_ROWS, ())
    assert choose_candidates(config, tokenizer, Candidates.tokenizer) == (400, ())


def test_choose_candidates_excludes_the_ids_that_the_tokenizer_does_not_have(tmp_path: Path) -> None:
    write_checkpoint("qwen2.5", tmp_path)
    pinned = pin_model(model_config(tmp_path))
    tokenizer = load_tokenizer(pinned)
    tokenizer.get_vocab = lambda: {"a": 0, "b": 2}  # type: ignore[method-assign]
    assert choose_candidates(load_config(pinned), tokenizer, Candidates.tokenizer) == (3, (1,))


def test_head_without_some_tokens_gives_them_the_logit_minus_infinity(tmp_path: Path, load: Load) -> None:
    write_checkpoint("qwen2.5", tmp_path)
    model = load(tmp_path, num_candidates=400)
    assert model.vocab_size == 400
    tokens = torch.arange(20)[None]
    with torch.inference_mode():
        logits = model.head.exclude([3, 5]).logits(model.backbone(tokens)[0])
        expected = model.backbone.full_logits(tokens)[0, :, :400]
    others = [token for token in range(400) if token not in (3, 5)]
    torch.testing.assert_close(logits[:, others], expected[:, others])
    assert (logits[:, [3, 5]] == -torch.inf).all()


@pytest.fixture
def multimodal_folder(tmp_path: Path, shape: dict[str, Any]) -> Path:
    """Write a Llava with a small Llama as its text model, and return its folder."""
    vision = {
        "model_type": "clip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 32,
        "patch_size": 8,
    }
    text_config = shape | {"model_type": "llama"}
    options: dict[str, Any] = {"image_token_id": 9, "image_seq_length": 16}
    config = transformers.LlavaConfig(text_config=text_config, vision_config=vision, **options)
    torch.manual_seed(0)
    transformers.LlavaForConditionalGeneration(config).save_pretrained(tmp_path)
    return tmp_path


def test_load_model_counts_s_of_the_text_model_of_a_multimodal_model(
    multimodal_folder: Path, load: Load, model_of: ModelOf
) -> None:
    model = load(multimodal_folder)
    text_model = split_model(model_of("llama"), "toy")
    assert model.non_embedding_params == text_model.non_embedding_params
    assert model.total_params > text_model.total_params


def test_load_model_notes_that_a_model_is_multimodal(multimodal_folder: Path, load: Load, model_of: ModelOf) -> None:
    assert any("multimodal" in note for note in load(multimodal_folder).notes)
    assert not split_model(model_of("llama"), "toy").notes


def test_count_parameters_of_a_multimodal_config_agrees_with_the_loaded_model(
    multimodal_folder: Path, load: Load
) -> None:
    model = load(multimodal_folder)
    counts = count_parameters(transformers.AutoConfig.from_pretrained(multimodal_folder))
    assert (counts.non_embedding, counts.total) == (model.non_embedding_params, model.total_params)


def test_check_compatible_accepts_an_added_token_beyond_the_rows_and_check_token_ids_a_text_without_it(
    folder: Path,
) -> None:
    """The tokenizer of Gemma 3 has one token for images, for which models of texts have no row."""
    pinned = pin_model(model_config(folder))
    config = load_config(pinned)
    tokenizer = load_tokenizer(pinned)
    config.vocab_size = len(tokenizer)
    tokenizer.add_tokens(["<image_soft_token>"], special_tokens=True)
    check_compatible("toy", config, tokenizer, 48)
    check_token_ids("toy", config, tokenizer, config.vocab_size - 1)
    with pytest.raises(BadInput, match="<image_soft_token>"):
        check_token_ids("toy", config, tokenizer, max(tokenizer("a <image_soft_token>")["input_ids"]))


@pytest.mark.parametrize(("kind", "key"), [("mpt", "max_seq_len"), ("llama", "max_position_embeddings")])
def test_max_sequence_length_reads_the_name_of_the_architecture(kind: str, key: str) -> None:
    assert max_sequence_length(transformers.CONFIG_MAPPING[kind](**{key: 77})) == 77


MTP_SHAPE = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1}
MTP_SHAPES: dict[str, dict[str, Any]] = {
    "deepseek_v3": {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
    | {"n_group": 1, "topk_group": 1, "num_key_value_heads": 4},
    "glm4_moe": {"n_group": 1, "topk_group": 1},
}


def write_mtp_model(folder: Path, kind: str, model_of: ModelOf, *, layers: int, is_mtp: bool = True) -> None:
    """Write a model of two layers whose last layer is stored again with another number, as layers of MTP are."""
    model = model_of(kind, **MTP_SHAPE, **MTP_SHAPES[kind], num_hidden_layers=2)
    model.save_pretrained(folder)

    def add_layers(weights: dict[str, torch.Tensor]) -> None:
        for key in [key for key in weights if ".layers.1." in key]:
            weights[key.replace(".layers.1.", f".layers.{layers}.")] = weights[key].clone()
        if is_mtp:
            weights[f"model.layers.{layers}.eh_proj.weight"] = torch.ones(32, 64)

    edit_weights(folder, add_layers)


@pytest.mark.parametrize("kind", list(MTP_SHAPES))
def test_load_model_leaves_out_layers_of_mtp_whatever_their_number(
    kind: str, tmp_path: Path, load: Load, model_of: ModelOf
) -> None:
    write_mtp_model(tmp_path / "model", kind, model_of, layers=2)
    plain = model_of(kind, **MTP_SHAPE, **MTP_SHAPES[kind], num_hidden_layers=2)
    assert load(tmp_path / "model").total_params == sum(parameter.numel() for parameter in plain.parameters())


@pytest.mark.parametrize(("kind", "number"), [("deepseek_v3", 61), ("glm4_moe", 46), ("glm4_moe", 92)])
def test_load_model_refuses_a_layer_that_transformers_takes_for_mtp_by_its_number(
    kind: str, number: int, tmp_path: Path, load: Load, model_of: ModelOf
) -> None:
    write_mtp_model(tmp_path / "model", kind, model_of, layers=number, is_mtp=False)
    with pytest.raises(BadInput, match=f"layer {number}"):
        load(tmp_path / "model")


@pytest.mark.parametrize("kind", list(MTP_SHAPES))
def test_load_model_refuses_a_layer_of_mtp_that_the_config_counts_as_one_of_the_model(
    kind: str, tmp_path: Path, load: Load, model_of: ModelOf
) -> None:
    write_mtp_model(tmp_path / "model", kind, model_of, layers=2)
    edit_json(tmp_path / "model/config.json", num_hidden_layers=3)
    with pytest.raises(BadInput, match="num_hidden_layers=3"):
        load(tmp_path / "model")


class _Adapted(torch.nn.Module):
    """A layer with an adapter, with the attributes that peft gives it."""

    adapter_layer_names = ("lora_A",)
    merged_adapters: tuple[str, ...] = ()
    active_adapters = ("default",)

    def __init__(self, layer: torch.nn.Module, *, disabled: bool) -> None:
        super().__init__()
        self.base_layer = layer
        self.lora_A = torch.nn.ModuleDict({"default": torch.nn.Linear(32, 2, bias=False)})
        self.disable_adapters = disabled


@pytest.mark.parametrize(("disabled", "added"), [(False, 64), (True, 0)])
def test_count_module_parameters_leaves_adapters_out_of_s_and_counts_those_in_use(
    disabled: bool, added: int, model_of: ModelOf
) -> None:
    model = model_of("llama")
    before = count_module_parameters(model)
    attention = model.model.layers[0].self_attn
    attention.q_proj = _Adapted(attention.q_proj, disabled=disabled)
    after = count_module_parameters(model)
    assert after.non_embedding == before.non_embedding
    assert after.total == before.total + added


def test_weights_do_not_change_with_their_file_after_they_are_loaded(folder: Path, load: Load) -> None:
    """safetensors maps files into memory. Without a copy, a shorter file would even end the process."""
    model = load(folder)
    tokens = torch.arange(20)[None]
    with torch.inference_mode():
        before = model.backbone.full_logits(tokens)
    path = folder / "model.safetensors"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"\0" * size)
        file.truncate(size // 2)
    with torch.inference_mode():
        torch.testing.assert_close(model.backbone.full_logits(tokens), before, rtol=0, atol=0)
