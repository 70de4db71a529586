"""Small checkpoints of the real architectures with random weights, each with a tokenizer of its real kind."""

from __future__ import annotations

import json
import json.decoder
import json.encoder
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from rbptrack.config.schema import ModelConfig
from rbptrack.sources.pin import Pinned, pin_tokenizer

TEXT = "".join(Path(str(module.__file__)).read_text() for module in (json, json.decoder, json.encoder))
"""Python code of the standard library. It contains no special tokens."""

HEAD_ROWS = 512
"""The number of rows of the output head. The tokenizers have fewer tokens, as those of Pythia and Qwen do."""


def byte_level(special_tokens: list[str], *, size: int = 400) -> Tokenizer:
    """Train a byte-level BPE on TEXT, as GPT-2, GPT-NeoX, OPT, Qwen and Llama 3 have it.

    Args:
        special_tokens: they get the first numbers.
        size: the number of tokens.

    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special_tokens, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator([TEXT], trainer)
    return bpe


def sentence_piece(special_tokens: tuple[str, ...] = ("<pad>", "<eos>", "<bos>", "<unk>")) -> Tokenizer:
    """Train a BPE of 450 tokens on TEXT, as Gemma and Llama 2 have it: over characters, with spaces written as U+2581.

    Characters that the vocabulary lacks become tokens of bytes. The special tokens get the first numbers.
    """
    first_tokens = [*special_tokens, *(f"<0x{i:02X}>" for i in range(256))]
    bpe = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    bpe.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=450, special_tokens=first_tokens, show_progress=False)
    bpe.train_from_iterator([TEXT], trainer)
    bpe.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return bpe


def put_before_texts(tokenizer: Tokenizer, token: str) -> None:
    """Let the tokenizer put a special token before each text."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", special_tokens=[(token, tokenizer.token_to_id(token))]
    )


def _write_tokenizer(folder: Path, tokenizer: Tokenizer, config: dict[str, Any], *, with_json: bool = True) -> None:
    """Write the published files of a tokenizer. OPT has no tokenizer.json, only vocab.json and merges.txt."""
    model = json.loads(tokenizer.to_str())["model"]
    if with_json:
        tokenizer.save(str(folder / "tokenizer.json"))
    if not with_json or "GPT2" in config["tokenizer_class"] or "Qwen2" in config["tokenizer_class"]:
        vocab = tokenizer.get_vocab()
        (folder / "vocab.json").write_text(json.dumps(dict(sorted(vocab.items(), key=lambda item: item[1]))))
        lines = [" ".join(pair) for pair in model["merges"]]
        (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(lines) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_neox_tokenizer(folder: Path) -> None:
    roles = {f"{role}_token": "<|endoftext|>" for role in ("bos", "eos", "unk")}
    config = {"tokenizer_class": "GPTNeoXTokenizerFast", "add_prefix_space": False, **roles}
    _write_tokenizer(folder, byte_level(["<|endoftext|>", "<|padding|>"]), config)


def write_gpt2_tokenizer(folder: Path) -> None:
    roles = {f"{role}_token": "<|endoftext|>" for role in ("bos", "eos", "unk")}
    _write_tokenizer(folder, byte_level(["<|endoftext|>"]), {"tokenizer_class": "GPT2Tokenizer", **roles})


def write_opt_tokenizer(folder: Path) -> None:
    roles = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    config = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "errors": "replace", **roles}
    _write_tokenizer(folder, byte_level(["<s>", "<pad>", "</s>", "<unk>"]), config, with_json=False)


def write_qwen_tokenizer(folder: Path) -> None:
    roles = {"bos_token": None, "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "unk_token": None}
    special_tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    _write_tokenizer(
        folder, byte_level(special_tokens), {"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False, **roles}
    )


def write_llama3_tokenizer(folder: Path) -> None:
    tokenizer = byte_level(["<|begin_of_text|>", "<|end_of_text|>"])
    put_before_texts(tokenizer, "<|begin_of_text|>")
    roles = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    _write_tokenizer(folder, tokenizer, {"tokenizer_class": "PreTrainedTokenizerFast", **roles})


def write_llama2_tokenizer(folder: Path) -> None:
    tokenizer = sentence_piece(("<unk>", "<s>", "</s>"))
    put_before_texts(tokenizer, "<s>")
    roles = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    _write_tokenizer(folder, tokenizer, {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True, **roles})


def write_gemma_tokenizer(folder: Path) -> None:
    tokenizer = sentence_piece()
    put_before_texts(tokenizer, "<bos>")
    roles = {f"{role}_token": f"<{role}>" for role in ("bos", "eos", "unk", "pad")}
    _write_tokenizer(folder, tokenizer, {"tokenizer_class": "GemmaTokenizerFast", "add_bos_token": True, **roles})


@dataclass(frozen=True)
class Architecture:
    """The small checkpoint of one family.

    Attributes:
        config: the name of the config class in transformers.
        shape: the values of its config.
        tokenizer: the function that writes the files of its tokenizer into a folder.
        first_token: the special token with which the tokenizer begins a text; empty if there is none.

    """

    config: str
    shape: dict[str, Any]
    tokenizer: Callable[[Path], None]
    first_token: str = ""


_LAYERS: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": HEAD_ROWS}
_GATED: dict[str, Any] = _LAYERS | {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 1024}
_OPT: dict[str, Any] = _LAYERS | {"ffn_dim": 64, "max_position_embeddings": 1024}

ARCHITECTURES: dict[str, Architecture] = {
    "pythia": Architecture(
        "GPTNeoXConfig", _LAYERS | {"intermediate_size": 128, "max_position_embeddings": 1024}, write_neox_tokenizer
    ),
    "gpt2": Architecture(
        "GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": HEAD_ROWS}, write_gpt2_tokenizer
    ),
    "opt": Architecture("OPTConfig", _OPT | {"word_embed_proj_dim": 32}, write_opt_tokenizer, "</s>"),
    "opt-350m": Architecture(
        "OPTConfig", _OPT | {"word_embed_proj_dim": 16, "do_layer_norm_before": False}, write_opt_tokenizer, "</s>"
    ),
    "qwen2.5": Architecture("Qwen2Config", _GATED | {"tie_word_embeddings": True}, write_qwen_tokenizer),
    "mamba": Architecture(
        "MambaConfig",
        {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "vocab_size": HEAD_ROWS},
        write_neox_tokenizer,
    ),
    "rwkv": Architecture(
        "RwkvConfig",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "vocab_size": HEAD_ROWS,
            "context_length": 1024,
            "rescale_every": 1,
        },
        write_neox_tokenizer,
    ),
    "gpt-neo": Architecture(
        "GPTNeoConfig",
        {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 16,
            "vocab_size": HEAD_ROWS,
            "max_position_embeddings": 1024,
        },
        write_gpt2_tokenizer,
    ),
    "llama3": Architecture("LlamaConfig", _GATED, write_llama3_tokenizer, "<|begin_of_text|>"),
    "llama2": Architecture("LlamaConfig", _GATED | {"num_key_value_heads": 4}, write_llama2_tokenizer, "<s>"),
    "mistral": Architecture("MistralConfig", _GATED | {"sliding_window": 64}, write_llama2_tokenizer, "<s>"),
    "phi": Architecture("PhiConfig", _GATED | {"num_key_value_heads": 4}, write_gpt2_tokenizer),
    "olmo2": Architecture("Olmo2Config", _GATED, write_gpt2_tokenizer),
    "qwen3": Architecture("Qwen3Config", _GATED | {"head_dim": 8}, write_qwen_tokenizer),
    "gemma2": Architecture(
        "Gemma2Config",
        _GATED | {"head_dim": 8, "final_logit_softcapping": 3.0, "sliding_window": 64},
        write_gemma_tokenizer,
        "<bos>",
    ),
}


def random_model(name: str, **shape: Any) -> Any:
    """Make a model of transformers with random weights.

    Args:
        name: a key of ARCHITECTURES.
        shape: values of config.json that replace those of the architecture.

    """
    architecture = ARCHITECTURES[name]
    config = getattr(transformers, architecture.config)(**architecture.shape | shape)
    causal: Any = transformers.AutoModelForCausalLM
    return causal.from_config(config).eval()


def write_checkpoint(name: str, folder: Path, *, seed: int = 0, **shape: Any) -> None:
    """Write config, safetensors and tokenizer of a small checkpoint with random weights.

    Args:
        name: a key of ARCHITECTURES.
        folder: where to write; it is created if it does not exist.
        seed: the seed of the weights.
        shape: values of config.json that replace those of the architecture.

    """
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    special_tokens = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
    model = random_model(name, **special_tokens | ARCHITECTURES[name].shape | shape)
    with torch.no_grad():  # with the small weights of a new model, all logits would be nearly equal
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(5.0)
    model.save_pretrained(folder)
    ARCHITECTURES[name].tokenizer(folder)


def model_config(folder: Path, **changes: Any) -> ModelConfig:
    """Return the configuration of the model toy-1k in a folder. `changes` are further options of the model."""
    return ModelConfig(family="toy", size="1k", path=str(folder), **changes)


def pinned_tokenizer(folder: Path) -> Pinned:
    """Pin the tokenizer in a folder, which needs no model."""
    return pin_tokenizer(str(folder))


def edit_json(path: Path, **values: object) -> None:
    """Set values of the JSON object in a file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
