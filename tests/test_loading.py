"""Models that would give wrong ranks are refused in a line, and the rest are measured as they are."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import ModelConfig
from rbptrack.models.architecture import check_fit, count_parameters, load_config, load_tokenizer, longest_sequence
from rbptrack.models.causal import CausalModel, of_module
from rbptrack.models.checkpoint import check_folder, explain, unbuildable
from rbptrack.models.device import tf32_notes
from rbptrack.models.loading import load_model
from rbptrack.sources.pin import of_model
from tests.architectures import ROWS, build
from tests.conftest import Program

SHAPE: dict[str, Any] = {
    "vocab_size": ROWS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def model_of(kind: str, **shape: Any) -> Any:
    torch.manual_seed(0)
    settings = transformers.CONFIG_MAPPING[kind](**{k: v for k, v in (SHAPE | shape).items() if v is not None})
    return transformers.AutoModelForCausalLM.from_config(settings, dtype=torch.float32)


def load(folder: Path, **changes: Any) -> CausalModel:
    config = replace(ModelConfig(family="toy", size="1k", path=str(folder)), **changes)
    return load_model(config, of_model(config))


BERT = {"num_key_value_heads": None, "head_dim": None}


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("llama", {"is_causal": False}),
        ("gemma3_text", {"use_bidirectional_attention": True}),
        ("gemma4_text", {"use_bidirectional_attention": "all", "global_head_dim": 8, "hidden_size_per_layer_input": 0}),
        ("bert-generation", BERT),
        ("bert", BERT),
        ("xlm", {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "n_words": ROWS, **BERT}),
        ("xlnet", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "max_position_embeddings": None, **BERT}),
        ("cpmant", {"dim_ff": 64, "dim_head": 8, "segment_types": 8, "prompt_types": 4, "prompt_length": 4, **BERT}),
    ],
)
def test_a_model_that_reads_later_tokens_is_refused(kind: str, shape: dict[str, Any]) -> None:
    module = model_of(kind, **shape).to(torch.bfloat16 if kind == "llama" else torch.float32)
    with pytest.raises(BadInput, match=r"toy cannot be measured: its states at a token depend on later tokens") as said:
        of_module(module, "toy")
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["llama", "mixtral", "gemma3_text"])
def test_a_causal_model_is_measured(kind: str, dtype: torch.dtype) -> None:
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2} if kind == "mixtral" else {}
    assert of_module(model_of(kind, **experts).to(dtype), "toy").vocab_size == ROWS


def test_states_that_depend_on_the_batch_are_refused() -> None:
    """Reformer pads every batch to whole chunks, and hashes by what is there."""
    module = model_of(
        "reformer",
        is_decoder=True,
        attn_layers=["local", "lsh"],
        attention_head_size=8,
        axial_pos_embds_dim=[16, 16],
        axial_pos_shape=[16, 16],
        feed_forward_size=64,
        lsh_attn_chunk_length=8,
        local_attn_chunk_length=8,
        **BERT,
    )
    with pytest.raises(BadInput, match="toy cannot be measured"):
        of_module(module, "toy")


def test_longrope_is_measured_as_far_as_it_numbers_positions_alike() -> None:
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    rope["original_max_position_embeddings"] = 64
    module = model_of("phi3", head_dim=None, rope_parameters=rope, original_max_position_embeddings=64)
    assert longest_sequence(module.config) == 64
    assert of_module(module, "toy").longest == 64
    assert longest_sequence(model_of("phi3", head_dim=None).config) == 256


class OtherHead(transformers.LlamaForCausalLM):
    """Adds to its logits what depends on its states: no head that can be taken apart."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits = output.logits + output.logits.roll(1, dims=1)
        return output


def test_a_head_that_mixes_positions_is_refused() -> None:
    torch.manual_seed(0)
    with pytest.raises(BadInput, match=r"toy cannot be measured: its logits are not its hidden states times its head"):
        of_module(OtherHead(transformers.LlamaConfig(**SHAPE)), "toy")


class MaskedHead(transformers.LlamaForCausalLM):
    """Rules out entries of its vocabulary, as models that draw images do."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits[:, :, [5, 7]] = -1e9
        return output


def test_what_a_model_does_to_its_logits_is_taken_from_the_model() -> None:
    heads = {
        "cohere": (0.0625, None),
        "granite": (0.5, None),
        "gemma2": (1.0, 30.0),
        "recurrent_gemma": (1.0, 30.0),
        "hyperclovax": (0.25, None),
    }
    shapes = {
        "granite": {"logits_scaling": 2.0},
        "hyperclovax": {"logits_scaling": 0.25},
        "recurrent_gemma": {"lru_width": 32, "head_dim": None},
    }
    for kind, expected in heads.items():
        head = of_module(model_of(kind, **shapes.get(kind, {})), kind).head
        assert (head.scale, head.softcap) == expected, kind
        assert head.then is None
    model = of_module(MaskedHead(transformers.LlamaConfig(**SHAPE)), "toy")
    assert model.head.then is not None
    logits = model.head.logits(torch.randn(9, 32))
    assert (logits[:, [5, 7]] == -1e9).all()
    assert (logits[:, :5] > -1e3).all()


def test_a_config_that_names_a_scale_in_vain_changes_nothing() -> None:
    plain, named = (of_module(model_of("llama", **more), "toy") for more in ({}, {"logits_scaling": 2.0}))
    assert plain.head.scale == named.head.scale == 1.0


def test_the_model_is_left_as_it_was() -> None:
    module = model_of("llama")
    model = of_module(module, "toy")
    tokens = torch.arange(9)[None]
    assert module(input_ids=tokens).logits.shape == (1, 9, ROWS)
    del model
    assert not module.lm_head._forward_pre_hooks


def multimodal() -> Any:
    text = SHAPE | {"model_type": "llama"}
    vision = {
        "model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
    }  # fmt: skip
    settings = transformers.LlavaConfig(text_config=text, vision_config=vision, image_token_id=9, image_seq_length=16)
    torch.manual_seed(0)
    return transformers.LlavaForConditionalGeneration(settings)


def test_the_text_part_of_a_multimodal_model_is_measured(tmp_path: Path) -> None:
    multimodal().save_pretrained(tmp_path)
    model, text = load(tmp_path), of_module(model_of("llama"), "toy")
    assert model.non_embedding_params == text.non_embedding_params
    assert model.total_params > text.total_params
    assert "S counts the text part of a multimodal model" in model.notes[0]
    assert not text.notes
    assert model.vocab_size == ROWS
    counts = count_parameters(transformers.AutoConfig.from_pretrained(tmp_path))
    assert (counts.non_embedding, counts.total) == (model.non_embedding_params, model.total_params)


def checkpoint(folder: Path, **shape: Any) -> Path:
    build("pythia", folder, **shape)
    return folder


def rename(weights: dict[str, torch.Tensor]) -> None:
    weights["gpt_neox.layers.1.mlp.dense_out.weight"] = weights.pop("gpt_neox.layers.1.mlp.dense_h_to_4h.weight")


MISSING = "gpt_neox.layers.1.mlp.dense_h_to_4h.weight"
FAULTS = {
    "a missing tensor": (lambda w: w.pop(MISSING), {}, rf"lacks tensors .*: {MISSING}\. "),
    "a renamed tensor": (rename, {}, r"lacks tensors .*h_to_4h.*; it holds tensors .* not know: .*dense_out"),
    "more layers than stored": (lambda w: None, {"num_hidden_layers": 3}, r"lacks tensors .*layers\.2.* and \d+ more"),
    "fewer layers than stored": (lambda w: None, {"num_hidden_layers": 1}, r"holds tensors .* not know: .*layers\.1"),
    "another width": (lambda w: None, {"intermediate_size": 64}, r"other shapes .*: .*\(128,\) instead of \(64,\)"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_weights_that_are_not_the_models_are_refused(fault: str, tmp_path: Path) -> None:
    change, values, message = FAULTS[fault]
    folder = checkpoint(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | values))
    with pytest.raises(BadInput, match=message) as said:
        load(folder)
    assert "\n" not in str(said.value)


def change_stored(folder: Path, change: Callable[[dict[str, torch.Tensor]], object], **values: Any) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((folder / "config.json").read_text()) | values
    (folder / "config.json").write_text(json.dumps(settings))


def whole_numbers(kind: torch.dtype) -> Callable[[dict[str, torch.Tensor]], None]:
    def change(weights: dict[str, torch.Tensor]) -> None:
        weights[MISSING] = (weights[MISSING] * 50).to(kind)

    return change


SILENT = {
    "int8": (whole_numbers(torch.int8), {}, rf"as integers or booleans.*no quantisation.*: {MISSING}"),
    "bool": (whole_numbers(torch.bool), {}, r"as integers or booleans"),
    "an unknown quantisation": (
        whole_numbers(torch.int8),
        {"quantization_config": {"quant_method": "mine"}},
        r"quantisation 'mine'.*Known: .*awq",
    ),
}


@pytest.mark.parametrize("fault", SILENT)
def test_what_loads_without_a_word_and_is_another_model_is_refused(fault: str, tmp_path: Path) -> None:
    change, values, message = SILENT[fault]
    folder = checkpoint(tmp_path / "model", tie_word_embeddings=False)
    change_stored(folder, change, **values)
    with pytest.raises(BadInput, match=message) as said:
        load(folder)
    assert "\n" not in str(said.value)


def test_what_lies_beside_a_model_is_not_measured_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter, with peft installed or not, and code of the repository's own."""
    folder = checkpoint(tmp_path / "model")
    assert not load(folder).notes
    change_stored(folder, lambda w: None, auto_map={"AutoModelForCausalLM": "code.Model"})
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(tmp_path / "elsewhere")}))
    for place in ("integrations.peft", "models.auto.auto_factory"):
        monkeypatch.setattr(f"transformers.{place}.is_peft_available", lambda: True)
    notes = load(folder).notes
    assert [note.partition(":")[0] for note in notes] == [
        "an adapter lies beside its weights (adapter_config.json)",
        "its own code (auto_map in config.json) is not run",
    ]
    assert transformers.integrations.peft.is_peft_available()


@pytest.mark.parametrize("name", ["pythia", "gpt2", "gpt-neo"])
def test_buffers_that_older_versions_stored_are_no_weights(name: str, tmp_path: Path) -> None:
    build(name, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    for key in [k for k in weights if k.endswith(("query_key_value.weight", "c_attn.weight", "q_proj.weight"))]:
        place = key.rsplit(".", 2)[0]
        weights |= {f"{place}.bias": torch.ones(1, 1, 8, 8, dtype=torch.bool), f"{place}.masked_bias": torch.zeros(1)}
        weights[f"{place}.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert load(tmp_path).vocab_size == ROWS


def test_a_tied_head_need_not_be_stored(tmp_path: Path) -> None:
    build("qwen2.5", tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    assert load(tmp_path).vocab_size == ROWS


def test_a_head_beside_a_tied_one_is_measured_as_transformers_loads_it(tmp_path: Path) -> None:
    folder, tokens = checkpoint(tmp_path / "model", tie_word_embeddings=False), torch.arange(40)[None]
    change_stored(folder, lambda w: None, tie_word_embeddings=True)
    model, plain = load(folder), transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert not torch.equal(plain.get_input_embeddings().weight, plain.get_output_embeddings().weight)
    with torch.inference_mode():
        logits = model.head.logits(model.backbone(tokens)[0])
        assert torch.allclose(logits, plain(tokens).logits[0], atol=1e-5)
    assert ["tie_word_embeddings" in note for note in model.notes] == [True]
    change_stored(folder, lambda w: w.update({"embed_out.weight": w["gpt_neox.embed_in.weight"].clone()}))
    assert not load(folder).notes


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert load(tmp_path).vocab_size == ROWS
    shards[1].unlink()
    config = ModelConfig(family="toy", size="1k", path=str(tmp_path))
    for attempt in (lambda: check_folder(config), lambda: load(tmp_path)):
        with pytest.raises(BadInput, match=rf"lacks {shards[1].name}, which .* names") as said:
            attempt()
        assert "pickle" not in str(said.value)


@pytest.mark.parametrize("kept", [0, 5, 4000])
def test_weights_that_are_cut_short(kept: int, tmp_path: Path) -> None:
    path = checkpoint(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BadInput, match=r"damaged or cut short.*copy or download them again") as said:
        load(tmp_path)
    assert "\n" not in str(said.value)


def test_an_activation_that_does_not_exist(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text()) | {"hidden_act": "gulu"}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    config = ModelConfig(family="toy", size="1k", path=str(tmp_path))
    for attempt in (lambda: load(tmp_path), lambda: count_parameters(load_config(of_model(config)))):
        with pytest.raises(BadInput, match=r"config\.json.*hidden_act.*gulu.*gelu"):
            attempt()


def test_a_config_that_is_none(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    config = ModelConfig(family="toy", size="1k", path=str(tmp_path))
    for text in ("{", "[]", '{"model_type": "nope"}', '{"model_type": "gpt_neox", "hidden_size": "wide"}', "{}"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(BadInput) as said:
            load_config(of_model(config))
        assert "\n" not in str(said.value)
        assert str(tmp_path) in str(said.value)


def test_a_tokenizer_id_beyond_the_rows(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    last = max(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].__getitem__)
    tokenizer["model"]["vocab"][last] = ROWS + 7
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    source = of_model(ModelConfig(family="toy", size="1k", path=str(tmp_path)))
    with pytest.raises(BadInput, match=rf"the id {ROWS + 7}, the model has {ROWS} rows only"):
        check_fit("toy", load_config(source), load_tokenizer(source), 48)


CODE = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
Path("{sign}").touch()
from transformers import GPTNeoXConfig as Config, GPTNeoXForCausalLM as Model, PreTrainedTokenizerFast as Tokenizer
"""


def test_code_of_a_repository_never_runs(program: Program, tmp_path: Path) -> None:
    folder, other, sign = checkpoint(tmp_path / "model"), tmp_path / "unheard of", tmp_path / "sign"
    (folder / "code.py").write_text(CODE.format(sign=sign))
    names = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model", "AutoTokenizer": ["code.Tokenizer"] * 2}
    for name in ("config.json", "tokenizer_config.json"):
        settings = json.loads((folder / name).read_text()) | {"auto_map": names}
        (folder / name).write_text(json.dumps(settings))
    shutil.copytree(folder, other)
    (other / "config.json").write_text((folder / "config.json").read_text().replace('"gpt_neox"', '"unheard_of"'))
    code = f"""
        import builtins
        builtins.input = lambda prompt="": print(prompt) or "y"
        from rbptrack.config.schema import ModelConfig
        from rbptrack.base.errors import BadInput
        from rbptrack.models.architecture import count_parameters, load_config, load_tokenizer
        from rbptrack.models.loading import load_model
        from rbptrack.sources.pin import of_model
        for folder in {[str(folder), str(other)]!r}:
            config = ModelConfig(family="toy", size="1k", path=folder)
            source = of_model(config)
            counted, loaded = (lambda s: count_parameters(load_config(s))), (lambda s: load_model(config, s))
            for step in (load_tokenizer, load_config, counted, loaded):
                try:
                    step(source)
                    print("loaded")
                except BadInput as error:
                    print(error)
    """
    done = program("-c", textwrap.dedent(code), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not sign.exists()
    assert not [*tmp_path.glob("*/ran")]
    assert "[y/N]" not in done.stdout
    assert len(done.stdout.splitlines()) == 8


def test_weights_that_are_bfloat16_numbers_lose_nothing_in_tf32() -> None:
    layer = torch.nn.Linear(8, 8)
    assert tf32_notes(layer) == ()
    assert "TF32 rounds none of them" in tf32_notes(layer.bfloat16().float())[0]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: no memory"),
        OSError("Cannot allocate memory"),
    ],
    ids=["python", "torch", "mapping"],
)
def test_too_little_memory_is_called_so(error: Exception) -> None:
    config = transformers.GPTNeoXConfig()
    for fault in (unbuildable(error, "the model", config), explain(error, "the model", config=config, pickles=False)):
        assert str(fault).startswith("the model does not fit into memory; model.dtype=bfloat16")
