"""Every causal language model of transformers, built tiny and measured against its own full logits.

    python -m tests.campaigns architectures results.json           # all of them but those in the file, some minutes
    python -m tests.campaigns architectures results.json llama mpt # some of them, anew
    python -m tests.campaigns architectures results.json --table   # the table of docs/models-and-datasets.md

Each architecture is built with small sizes and random weights, saved, and loaded as a user's would be. Ranks, ties and
log-probabilities are compared with the logits that the model itself gives for one document at a time: in batches padded
on the right, and one sequence at a time. Whether a model is causal is found from those logits too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROWS = 320  # of every vocabulary
LAYERS = 4
TIMEOUT = 180  # seconds for one architecture
SEQ_LEN = 40

_SIZES: dict[str, int] = {
    **dict.fromkeys(
        "hidden_size d_model n_embd emb_dim embed_dim dim embedding_size lru_width word_embed_proj_dim "
        "output_hidden_size out_hidden_size projection_dim embedding_dim input_embedding_size output_embedding_size "
        "proj_dim hidden_dim text_hidden_size vision_output_dim vision_hidden_size qk_dim attention_hidden_size "
        "decoder_hidden_size conv_dim vision_feature_dim kv_input_dim head_hidden_size".split(),
        32,
    ),
    **dict.fromkeys(
        "intermediate_size ffn_dim n_inner ffn_hidden_size moe_intermediate_size shared_expert_intermediate_size "
        "decoder_ffn_dim encoder_ffn_dim d_ff shared_intermediate_size moe_shared_expert_intermediate_size "
        "mlp_hidden_size dense_intermediate_size ffn_intermediate_size intermediate_size_mlp expert_ffn_hidden_size "
        "prefix_dense_intermediate_size dense_ffn_hidden_size feed_forward_size block_ff_dim mlp_dim "
        "moe_shared_intermediate_size dim_ff inner_dim shared_experts_intermediate_size "
        "dff feed_forward_proj_dim".split(),
        64,
    ),
    **dict.fromkeys(
        "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads n_layer_heads "
        "num_decoder_attention_heads num_encoder_attention_heads num_local_heads attention_heads "
        "linear_num_value_heads index_n_heads num_attention_query_heads".split(),
        4,
    ),
    **dict.fromkeys("num_key_value_heads num_kv_heads kv_n_heads n_kv_heads linear_num_key_heads".split(), 2),
    **dict.fromkeys(
        "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers depth num_decoder_layers "
        "num_encoder_layers vision_layers n_layer_total text_layers num_blocks".split(),
        LAYERS,
    ),
    **dict.fromkeys(
        "head_dim qk_nope_head_dim qk_rope_head_dim v_head_dim d_kv linear_key_head_dim linear_value_head_dim "
        "global_head_dim swa_head_dim index_head_dim attention_head_size attention_head_dim rotary_dim "
        "hidden_size_per_layer_input kv_channels qk_head_dim".split(),
        8,
    ),
    **dict.fromkeys("q_lora_rank kv_lora_rank o_lora_rank d_rel".split(), 16),
    **dict.fromkeys("num_experts num_local_experts n_routed_experts moe_num_experts num_moe_experts".split(), 4),
    **dict.fromkeys("num_experts_per_tok moe_top_k num_experts_per_token experts_per_token moe_topk moe_k".split(), 2),
    **dict.fromkeys("n_shared_experts num_shared_experts moe_num_shared_experts n_group topk_group".split(), 1),
    **dict.fromkeys("state_size d_state mamba_d_state ssm_state_size mamba_state_dim".split(), 8),
    "vocab_size": ROWS,
    "vocab_size_per_layer_input": ROWS,
    "image_size": 32,
    "patch_size": 8,
    "max_position_embeddings": 256,
}
_LISTS_BY_LAYER = ("layer_types", "layers_block_type", "mlp_layer_types", "attention_types")


@dataclass
class Verdict:
    """What came of one architecture.

    Attributes:
        name: its name here, `llama`, or with its variant, `llama (is_causal=False)`.
        kind: `text`, `multimodal` or `variant`.
        state: `right`, `refused`, `wrong`, `traceback`, `too slow`, `not built`.
        said: the refusal, the error, or what differs.
        causal: whether earlier logits stay when later tokens change; None where it was not built.
        seconds: for load and check.

    """

    name: str
    kind: str
    state: str
    said: str = ""
    causal: bool | None = None
    seconds: float = 0.0


def small(config: Any, layers: int = LAYERS) -> dict[str, Any]:
    """A config's values with every size made small, in its sections too."""
    return _shrunk(config.to_dict() if hasattr(config, "to_dict") else dict(config), layers)


def _shrunk(values: dict[str, Any], layers: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if (
            isinstance(value, dict)
            and key != "per_layer_config"
            and (key.endswith("_config") or key in ("decoder", "encoder", "generator"))
        ):
            found[key] = _shrunk(value, layers)
        elif key == "per_layer_config" and value:
            found[key] = {layer: _shrunk(of_it, layers) for layer, of_it in value.items() if int(layer) < layers}
        elif isinstance(value, int) and not isinstance(value, bool) and key in _SIZES:
            found[key] = min(value, layers if _SIZES[key] == LAYERS and "layer" in key else _SIZES[key])
        elif isinstance(value, int) and not isinstance(value, bool) and _is_token(key) and value >= ROWS:
            found[key] = ROWS - 1 - len(key) % 16
        elif isinstance(value, list) and key in _LISTS_BY_LAYER:
            found[key] = value[:layers]
        else:
            found[key] = value
    return found


def _is_token(key: str) -> bool:
    return "token" in key and key.endswith(("_id", "_index", "_idx"))


def entries() -> dict[str, str]:
    """Model types that the tool builds: name to kind."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    )

    text = dict.fromkeys(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, "text")
    images = dict.fromkeys(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, "multimodal")
    return {**images, **text} | dict.fromkeys(VARIANTS, "variant")


def config_of(name: str) -> Any:
    """The small config of an entry, in which a decoder is a decoder."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    base, changes = VARIANTS.get(name, (name, {}))
    cls = CONFIG_MAPPING[base]
    values = small(cls())
    for key, value in (OVERRIDES.get(base, {}) | changes).items():
        _put(values, key, value)
    if "is_decoder" in values and "is_decoder" not in changes:
        values["is_decoder"] = True
    return cls.from_dict(values)


def _put(values: dict[str, Any], path: str, value: Any) -> None:
    *sections, key = path.split(".")
    for section in sections:
        values = values.setdefault(section, {})
    values[key] = value


def build(name: str) -> Any:
    """A small model with random weights, larger than a fresh one's so that ranks are not all but random."""
    import torch

    from rbptrack.models.architecture import model_class

    config = config_of(name)
    kind = model_class(config)
    torch.manual_seed(0)
    module = getattr(kind, "from_config", None) or kind._from_config
    module = module(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for key, parameter in module.named_parameters():
            if parameter.ndim > 1 and not any(word in key for word in ("vision", "visual", "audio", "A_log")):
                parameter.mul_(GAIN.get(name, 4.0))
    return module


def corpus(rows: int, special: set[int], *, documents: int = 12, seq_len: int = SEQ_LEN) -> Any:
    """Documents of 5 to `seq_len` random tokens, none of which has a meaning of its own."""
    import numpy as np

    from rbptrack.corpus.sequences import Corpus

    draw = np.random.default_rng(1)
    plain = np.array([i for i in range(rows) if i not in special], dtype=np.int32)
    lengths = draw.integers(5, seq_len + 1, size=documents)
    total, stop = int(lengths.sum()), np.cumsum(lengths)
    return Corpus(
        token=draw.choice(plain, size=total),
        document=np.repeat(np.arange(documents, dtype=np.int32), lengths),
        position=np.concatenate([np.arange(n, dtype=np.int32) for n in lengths]),
        field=np.zeros(total, dtype=np.int8),
        num_bytes=np.ones(total, dtype=np.int32),
        scorable=np.ones(total, dtype=np.bool_),
        start=stop - lengths,
        stop=stop,
        first=stop - lengths + 1,
        prefix=np.zeros(0, dtype=np.int32),
        document_ids=tuple(map(str, range(documents))),
        texts_hash="random",
    )


def full_logits(module: Any, tokens: Any) -> Any:
    """What the model itself says of one sequence (length,), as (length, vocabulary)."""
    import torch

    for layer in module.modules():
        if hasattr(layer, "recurrent_states"):
            layer.recurrent_states = None  # RecurrentGemma's last batch
    with torch.no_grad():
        return module(input_ids=tokens[None]).logits[0].float()


def is_causal(module: Any, tokens: Any) -> bool:
    """Whether the logits of the first half of a sequence stay when the second half changes."""
    half = len(tokens) // 2
    other = tokens.clone()
    other[half:] = tokens[:half].flip(0)[: len(tokens) - half].repeat(2)[: len(tokens) - half]
    one, two = full_logits(module, tokens)[:half], full_logits(module, other)[:half]
    return bool((one - two).abs().max() <= 1e-3 * one.abs().max())


def check(name: str, folder: Path) -> tuple[str, str, bool | None]:
    """State, words and causality of one entry; builds it in a folder."""
    import numpy as np
    import torch

    from rbptrack.base.errors import BadInput
    from rbptrack.config.schema import EngineConfig, ModelConfig
    from rbptrack.engine.measure import measure
    from rbptrack.models.architecture import text_config
    from rbptrack.models.loading import load_model
    from rbptrack.models.probe import special_tokens
    from rbptrack.scoring.scorer import reference
    from rbptrack.sources.pin import Source

    try:
        module = build(name)
        rows = min(text_config(module.config).vocab_size, ROWS)
        texts = corpus(rows, special_tokens(module.config))
        causal = is_causal(module, torch.from_numpy(texts.inputs(int(np.argmax(texts.lengths)))).long())
    except Exception as error:
        return "not built", f"{type(error).__name__}: {error} {_where(error)}", None
    module.save_pretrained(folder / "model")
    try:
        model = load_model(ModelConfig(family=name, path=str(folder)), Source(str(folder / "model"), None, name))
        tables = [
            measure(model, texts, ks=(1,), engine=EngineConfig(batch_tokens=b, threads=2), folder=folder / str(b)).ranks
            for b in (6 * SEQ_LEN, 1)
        ]
    except BadInput as error:
        return "refused", str(error), causal
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error} {_where(error)}", causal
    columns: dict[str, list[Any]] = {"greater": [], "ties": [], "logprob": []}
    for i in range(len(texts.start)):
        tokens = torch.from_numpy(texts.inputs(i)).long()
        scores = reference(full_logits(module, tokens)[:-1], tokens[1:])
        for column, found in columns.items():
            found.append(getattr(scores, column).numpy())
    expected = {column: np.concatenate(found) for column, found in columns.items()}
    said = [_difference(table, expected) for table in tables]
    return ("wrong" if any(said) else "right"), "; ".join(filter(None, said)), causal


def _difference(table: Any, expected: dict[str, Any]) -> str:
    """How a rank table differs from the logits' by more than rounding; empty where it does not."""
    import numpy as np

    ranks = expected["greater"] + expected["ties"] + 1
    moved = (table.rank != ranks) | (table.column("ties") != expected["ties"])
    off = np.abs(table.column("logprob") - expected["logprob"]) > 1e-3
    if moved.mean() <= 0.01 and not off.any():  # neighbours may swap where products of other shapes round otherwise
        return ""
    return f"{moved.mean():.1%} of ranks and {off.mean():.1%} of log-probabilities differ"


def _where(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"({Path(last.filename).name}:{last.lineno})"


def _child(name: str, kind: str, answers: Any) -> None:
    import time

    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        state, said, causal = check(name, Path(folder))
    said = " ".join(said.split())[:400]
    answers.put(asdict(Verdict(name, kind, state, said, causal, round(time.perf_counter() - began, 2))))


def run(names: list[str], kinds: dict[str, str], save: Callable[[dict[str, Any]], None]) -> None:
    """Check each entry in a process of its own."""
    context = multiprocessing.get_context("fork")
    for name in names:
        answers = context.SimpleQueue()
        process = context.Process(target=_child, args=(name, kinds[name], answers))
        process.start()
        process.join(TIMEOUT)
        if process.is_alive():
            process.kill()
        found = asdict(Verdict(name, kinds[name], "too slow", f"no answer in {TIMEOUT} s"))
        save(found if answers.empty() else answers.get())


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked of this campaign."""
    parser.add_argument("names", nargs="*")
    parser.add_argument("--table", action="store_true", help="print the table of what is in the file and stop")


def main(given: argparse.Namespace) -> int:
    """Survey every architecture, or those that are named, and write the table."""
    known = json.loads(given.results.read_text()) if given.results.exists() else {}
    if given.table:
        print(table(known))
        return 0
    import torch
    import transformers

    import rbptrack.engine.measure  # noqa: F401  before the processes fork: each import once

    for name in ("AutoModelForCausalLM", "AutoModelForImageTextToText", "GPTNeoXForCausalLM"):
        getattr(transformers, name)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kinds = entries()
    unknown = [name for name in given.names if name not in kinds]
    if unknown:
        print(f"no such model type: {', '.join(unknown)}", file=sys.stderr)
        return 2

    def save(found: dict[str, Any]) -> None:
        known[found["name"]] = found
        given.results.write_text(json.dumps(known, indent=1))
        print(f"{found['name']:<32} {found['state']:<10} {found['seconds']:6.1f} s  {found['said'][:160]}", flush=True)

    run(given.names or [name for name in kinds if name not in known], kinds, save)
    print(Counter(found["state"] for found in known.values()))
    return 0


def table(known: dict[str, dict[str, Any]]) -> str:
    """Markdown: counts by kind and verdict, then what is refused, and why, and what was not built."""
    states = ("right", "refused", "wrong", "traceback", "too slow", "not built")
    lines = [f"| | {' | '.join(states)} |", "|---" * (len(states) + 1) + "|"]
    kinds = {"text": "causal language models", "multimodal": "multimodal models, their text", "variant": "variants"}
    for kind, words in kinds.items():
        counts = Counter(found["state"] for found in known.values() if found["kind"] == kind)
        lines.append(f"| {words} | {' | '.join(str(counts[state]) for state in states)} |")
    built = [found for found in known.values() if found["causal"] is not None]
    causal = [found for found in built if found["causal"]]
    right = sum(found["state"] == "right" for found in causal)
    lines += ["", f"{len(built)} were built; {len(causal)} of them are causal, and {right} of those are measured.", ""]
    lines += ["| refused | why |", "|---|---|"]
    refused: dict[str, list[str]] = {}
    for found in sorted(built, key=lambda found: str(found["name"])):
        if found["state"] == "refused":
            refused.setdefault(_reason(found["said"]), []).append(found["name"])
    lines += [f"| {', '.join(names)} | {why} |" for why, names in sorted(refused.items())]
    missing = sorted(found["name"] for found in known.values() if found["causal"] is None)
    return "\n".join([*lines, "", f"Not built, or too slow here: {', '.join(missing)}."])


def _reason(said: str) -> str:
    """The reason in a refusal, without the model's name and numbers of its own."""
    words = said.split("cannot be measured: ")[-1].split("/model) ")[-1]
    for end in (": ", " (it is", " (relative", ", so "):
        words = words.split(end)[0]
    return words


_MROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 16,
}
_MLA = {"num_key_value_heads": 4, "n_group": 1, "topk_group": 1}
_LINEAR_FIRST = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama (is_causal=False)": ("llama", {"is_causal": False}),
    "qwen2 (is_causal=False)": ("qwen2", {"is_causal": False}),
    "mistral (is_causal=False)": ("mistral", {"is_causal": False}),
    "gemma3_text (bidirectional)": ("gemma3_text", {"use_bidirectional_attention": True}),
    "gemma4_text (bidirectional)": ("gemma4_text", {"use_bidirectional_attention": "all"}),
    "bert (is_decoder=False)": ("bert", {"is_decoder": False}),
    "roberta (is_decoder=False)": ("roberta", {"is_decoder": False}),
    "bert-generation (is_decoder=False)": ("bert-generation", {"is_decoder": False}),
    "phi3 (longrope)": ("phi3", {"rope_parameters": _LONGROPE, "original_max_position_embeddings": 16}),
    "phi3 (longrope, not reached)": (
        "phi3",
        {
            "rope_parameters": _LONGROPE | {"original_max_position_embeddings": 64},
            "original_max_position_embeddings": 64,
        },
    ),
    "llama (dynamic rope)": (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "llama (yarn)": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 16,
            }
        },
    ),
    "llama (tied)": ("llama", {"tie_word_embeddings": True}),
    "llama (bias)": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "gpt2 (scaled by layer)": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    "gpt_neox (sequential)": ("gpt_neox", {"use_parallel_residual": False}),
    "falcon (alibi)": ("falcon", {"alibi": True}),
    "falcon (one key)": ("falcon", {"multi_query": True, "new_decoder_architecture": False}),
    "mpt (logit_scale)": ("mpt", {"logit_scale": 0.5}),
    "mpt (logit_scale=inv_sqrt_d_model)": ("mpt", {"logit_scale": "inv_sqrt_d_model"}),
    "opt (projected)": ("opt", {"word_embed_proj_dim": 16, "do_layer_norm_before": False}),
    "mistral (window of 8)": ("mistral", {"sliding_window": 8}),
    "mixtral (window of 8)": ("mixtral", {"sliding_window": 8}),
    "gemma2 (window of 8)": ("gemma2", {"sliding_window": 8}),
    "gemma3_text (window of 8)": ("gemma3_text", {"sliding_window": 8}),
    "gpt_oss (window of 8)": ("gpt_oss", {"sliding_window": 8}),
    "bigbird (sparse)": ("big_bird", {"attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1}),
    "xlm (causal)": ("xlm", {"causal": True}),
    "rembert (wide head)": ("rembert", {"output_embedding_size": 48}),
    "cohere (logit_scale)": ("cohere", {"logit_scale": 0.25}),
    "granite (scaled)": ("granite", {"logits_scaling": 8.0, "residual_multiplier": 0.5}),
    "gemma2 (softcap of 3)": ("gemma2", {"final_logit_softcapping": 3.0}),
    "llama4_text (chunks of 8)": ("llama4_text", {"attention_chunk_size": 8}),
}
OVERRIDES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        "axk1 axk2 deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa minicpm3 youtu".split(), _MLA
    ),
    **{
        name: {"text_config.rope_parameters": _MROPE, "text_config.head_dim": 8}
        for name in "glm46v glm4v glm4v_moe glm_ocr glmga paddleocr_vl qwen2_5_omni_thinker qwen2_5_vl qwen2_vl".split()
    },
    "glm4v_moe": {"text_config.rope_parameters": _MROPE | {"partial_rotary_factor": 1.0}, "text_config.head_dim": 8},
    "cosmos3_edge": {"text_config.rope_parameters": _MROPE, "text_config.head_dim": 8},
    "kimi_k25": {"text_config.num_key_value_heads": 4},
    "mistral4": {"text_config.num_key_value_heads": 4, "text_config.qk_head_dim": 16},
    "longcat_flash": {"num_key_value_heads": 4, "qk_head_dim": 16},
    "glm5_next": {"text_config.num_key_value_heads": 4},
    "bamba": {
        "mamba_n_heads": 8,
        "mamba_d_head": 8,
        "mamba_n_groups": 1,
        "mamba_chunk_size": 8,
        "attn_layer_indices": [1, 3],
    },
    "granitemoehybrid": {
        "mamba_n_heads": 8,
        "mamba_d_head": 8,
        "mamba_n_groups": 1,
        "mamba_chunk_size": 8,
        "layer_types": ["mamba", "attention", "mamba", "attention"],
    },
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 8},
    "zamba2": {
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "n_mamba_heads": 8,
        "mamba_ngroups": 1,
        "mamba_headdim": 8,
        "hybrid_layer_ids": [1, 3],
        "num_key_value_heads": 4,
        "chunk_size": 8,
    },
    "zamba": {
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "n_mamba_heads": 2,
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "num_key_value_heads": 4,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
    },
    "jamba": {
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "mamba_dt_rank": 4,
    },
    "bailing_hybrid": {"layer_types": _LINEAR_FIRST, "num_key_value_heads": 4},
    "kimi_linear": {"layer_types": _LINEAR_FIRST, "num_key_value_heads": 4},
    "blenderbot": {"num_hidden_layers": LAYERS, "decoder_layers": LAYERS, "encoder_layers": LAYERS},
    "cohere_compass_text": {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
    "cohere_compass": {"text_config.layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
    "gpt_neo": {
        "attention_layers": ["global", "local"] * 2,
        "attention_types": [[["global", "local"], 2]],
        "window_size": 8,
        "num_layers": 4,
    },
    "gemma3n_text": {
        "intermediate_size": 64,
        "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0],
        "num_kv_shared_layers": 1,
        "laurel_rank": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "gemma3n": {
        "text_config.intermediate_size": 64,
        "text_config.activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0],
        "text_config.num_kv_shared_layers": 1,
        "text_config.laurel_rank": 4,
        "text_config.layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    **{
        name: {
            "text_config.per_layer_config": {"05": {"head_dim": 16}},
            "text_config.num_hidden_layers": 6,
            "text_config.layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        }
        for name in "gemma4 gemma4_unified diffusion_gemma".split()
    },
    **{
        name: {
            "per_layer_config": {"05": {"head_dim": 16}},
            "num_hidden_layers": 6,
            "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        }
        for name in "gemma4_text gemma4_unified_text".split()
    },
    "dots3_note_text": {"num_key_value_heads": 4},
    "dots3_note": {"text_config.num_key_value_heads": 4},
    "laguna": {"num_attention_heads_per_layer": None},
    "hunyuan_v1_dense": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "head_dim": 8},
    "hunyuan_v1_moe": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        "head_dim": 8,
        "moe_topk": 2,
        "num_shared_expert": 1,
    },
    "ministral": {"head_dim": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    "nemotron": {"head_dim": 8},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "hrm_text": {"num_hidden_layers": LAYERS},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "deepseek_v2": {**_MLA, "num_experts_per_tok": 2, "topk_method": "greedy"},
    "dbrx": {
        "attn_config.kv_n_heads": 2,
        "attn_config.rope_theta": 1e4,
        "attn_config.clip_qkv": 8.0,
        "ffn_config.ffn_hidden_size": 64,
        "ffn_config.moe_num_experts": 4,
        "ffn_config.moe_top_k": 2,
    },
    "reformer": {
        "attn_layers": ["local", "lsh"],
        "axial_pos_embds_dim": [16, 16],
        "axial_pos_shape": [16, 16],
        "lsh_attn_chunk_length": 8,
        "local_attn_chunk_length": 8,
        "feed_forward_size": 64,
        "num_hidden_layers": 2,
        "num_buckets": 4,
    },
    "xlnet": {"d_head": 8, "d_inner": 64, "n_layer": 2},
    "xlstm": {"num_heads": 4, "qk_dim_factor": 0.5, "v_dim_factor": 1.0, "chunk_size": 8, "num_blocks": None},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
    "step3p7": {"text_config.sliding_window": 8},
    "qwen4_exp_text": {},
    "gemma4_assistant": {"text_config.hidden_size_per_layer_input": 0},
    "blt": {},
}
GAIN: dict[str, float] = {}
