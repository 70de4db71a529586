"""Tests that settings of config.json are used, or are a reason to refuse a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from rbptrack.base.errors import BadInput
from rbptrack.models.architecture import load_config
from rbptrack.sources.manifest import pin_file
from rbptrack.sources.pin import Pinned

YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "mscale": 1.0}
LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
WITHOUT_LAYERS = dict.fromkeys(
    ("use_sliding_window", "max_window_layers", "layer_types"), None
)  # the settings are left out
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}


def load(folder: Path, model_type: str, settings: dict[str, Any]) -> Any:
    """Load a config.json that holds all settings of an architecture, as transformers writes them, and `settings`."""
    transformers.CONFIG_MAPPING[model_type]().save_pretrained(folder)
    path = folder / "config.json"
    written = json.loads(path.read_text())
    if "rope_theta" in settings or "rope_scaling" in settings:
        written.pop("rope_parameters", None)  # versions before 5 wrote the other names
    written |= settings
    for name in [name for name in WITHOUT_LAYERS if written.get(name, "") is None]:
        del written[name]
    path.write_text(json.dumps(written))
    return load_config(Pinned(str(folder), None, "x", (pin_file(path, "model.path"),)))


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [
        ("gpt_neox", {"rotary_pct": 0.25, "rotary_emb_base": 10000, "rope_parameters": None}),
        ("gpt2", {"n_ctx": 1024, "attn_pdrop": 0.1, "summary_type": "cls_index"}),
        ("llama", {"rope_theta": 5e5, "rope_scaling": LLAMA3 | {"original_max_position_embeddings": 8192}}),
        ("llama", {"rope_interleaved": False, "is_llama_config": True, "rope_scaling": None, "rope_theta": 130000}),
        ("llama", {"pretraining_tp": 1, "sliding_window": 4096, "use_sliding_window": False}),
        ("qwen2", {"use_mrope": False, "use_sliding_window": False, "sliding_window": 131072, "rope_theta": 1e6}),
        ("mistral", {"sliding_window": 4096, "rope_theta": 1e4}),
        ("qwen2", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 2, "layer_types": None}),
        ("gemma2", {"sliding_window": 4096, "sliding_window_size": 4096, "cache_implementation": "hybrid"}),
        ("gemma3_text", {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6}),
        ("mamba", {"d_model": 768, "n_layer": 24, "rms_norm": True, "fused_add_norm": True, "ssm_cfg": {}}),
        ("phi", {"partial_rotary_factor": 0.4, "rope_theta": 1e4, "qk_layernorm": False}),
        ("phi3", {"original_max_position_embeddings": 4096, "rope_scaling": None, "rope_theta": 1e4}),
        ("gptj", {"rotary": True, "rotary_dim": 64}),
        ("minimax_m2", {"rotary_dim": 64, "rope_parameters": None}),
        ("deepseek_v3", {"rope_scaling": YARN, "rope_theta": 10000, "scoring_func": "sigmoid"}),
        ("falcon", {"alibi": True, "multi_query": False}),
        ("mpt", {"attn_config": {"alibi": True, "clip_qkv": 6.0, "qk_ln": False}, "logit_scale": None}),
        ("granite", {"logits_scaling": 8.0, "residual_multiplier": 0.22, "attention_multiplier": 0.0078125}),
        ("nemotron_h", {"rope_theta": 10000, "partial_rotary_factor": 1.0}),
        ("llama", {"partial_rotary_factor": 1.0, "logit_scale": 1.0, "scale_emb": 1}),
    ],
)
def test_load_config_accepts_the_settings_of_published_models(
    model_type: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    assert load(tmp_path, model_type, settings).model_type == model_type


@pytest.mark.parametrize(
    ("model_type", "settings", "name"),
    [
        ("llama", {"rotary_dim": 64}, "rotary_dim"),
        ("llama", {"rotary_pct": 0.25}, "rotary_pct"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("llama", {"rope_interleaved": True}, "rope_interleaved"),
        ("llama", {"sliding_window": 1}, "sliding_window"),
        ("qwen3", WITHOUT_LAYERS | {"sliding_window": 64}, "sliding_window"),
        (
            "qwen3",
            WITHOUT_LAYERS | {"sliding_window": 64, "use_sliding_window": True, "num_hidden_layers": 4},
            "sliding_window",
        ),
        ("llama", {"final_logit_softcapping": 1.0}, "final_logit_softcapping"),
        ("llama", {"attention_multiplier": 0.1}, "attention_multiplier"),
        ("llama", {"alibi": True}, "alibi"),
        ("gpt2", {"logit_scale": 0.5}, "logit_scale"),
        ("gpt2", {"rope_scaling": LINEAR}, "rope_scaling"),
        ("mpt", {"logit_scale": 0.5}, "logit_scale"),
        ("mpt", {"attn_config": {"qk_ln": True}}, "qk_ln"),
        ("llama", {"rope_theta": 1e-30}, "above 1"),
        ("gemma3_text", {"rope_parameters": {"sliding_attention": {"rope_theta": float("nan")}}}, "above 1"),
        ("gpt2", {"num_attention_heads": 6}, "n_head"),
        ("gpt_neox", {"rope_theta": 1e6, "rotary_emb_base": 1e4}, "rope_theta"),
        ("gpt_neox", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("llama", {"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, "rope_theta"),
        ("llama", {"rope_scaling": LINEAR, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, "types"),
        ("llama", {"rope_scaling": LINEAR, "rope_parameters": LINEAR | {"factor": 8.0}}, "factor"),
        ("llama", {"rope_parameters": {"rope_theta": 1e4, "factor": 8.0}}, "default"),
    ],
)
def test_load_config_refuses_a_setting_that_transformers_does_not_use(
    model_type: str, settings: dict[str, Any], name: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=name):
        load(tmp_path, model_type, settings)


def test_load_config_checks_the_text_part_of_a_multimodal_model(tmp_path: Path) -> None:
    text = transformers.CONFIG_MAPPING["gemma3"]().text_config.to_dict()
    assert load(tmp_path, "gemma3", {"text_config": text})
    with pytest.raises(BadInput, match="rotary_dim"):
        load(tmp_path, "gemma3", {"text_config": text | {"rotary_dim": 64}})
