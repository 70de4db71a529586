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

TEXT = "".join(Path(str(module.__file__)).read_text() for module in (json, json.decoder, json.encoder))
"""Python code of the standard library. It contains no special tokens."""

ROWS = 512
"""The number of rows of the head. The tokenizers have fewer tokens, as those of Pythia and Qwen do."""


def byte_level(specials: list[str], *, size: int = 400) -> Tokenizer:
    """Train a byte-level BPE on TEXT, as GPT-2, GPT-NeoX, OPT, Qwen and Llama 3 have it.

    Args:
        specials: the special tokens, which get the first numbers.
        size: the number of tokens.

    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator([TEXT], trainer)
    return bpe


def sentence_piece(named: tuple[str, ...] = ("<pad>", "<eos>", "<bos>", "<unk>")) -> Tokenizer:
    """Train a BPE of 450 tokens on TEXT, as Gemma and Llama 2 have it: over characters, with spaces written as U+2581.

    Characters that the vocabulary lacks become tokens of bytes. The special tokens `named` get the first numbers.
    """
    specials = [*named, *(f"<0x{i:02X}>" for i in range(256))]
    bpe = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    bpe.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=450, special_tokens=specials, show_progress=False)
    bpe.train_from_iterator([TEXT], trainer)
    bpe.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return bpe


def put_before_texts(tokenizer: Tokenizer, token: str) -> None:
    """Let the tokenizer put a special token before each text."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", special_tokens=[(token, tokenizer.token_to_id(token))]
    )


def _save(folder: Path, tokenizer: Tokenizer, config: dict[str, Any], *, fast: bool = True) -> None:
    """Write the files of a tokenizer as they are published: tokenizer.json, or (OPT) only vocab.json and merges.txt."""
    model = json.loads(tokenizer.to_str())["model"]
    if fast:
        tokenizer.save(str(folder / "tokenizer.json"))
    if not fast or "GPT2" in config["tokenizer_class"] or "Qwen2" in config["tokenizer_class"]:
        vocab = tokenizer.get_vocab()
        (folder / "vocab.json").write_text(json.dumps(dict(sorted(vocab.items(), key=lambda item: item[1]))))
        lines = [" ".join(pair) for pair in model["merges"]]
        (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(lines) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def neox(folder: Path) -> None:
    names = {f"{role}_token": "<|endoftext|>" for role in ("bos", "eos", "unk")}
    config = {"tokenizer_class": "GPTNeoXTokenizerFast", "add_prefix_space": False, **names}
    _save(folder, byte_level(["<|endoftext|>", "<|padding|>"]), config)


def gpt2(folder: Path) -> None:
    names = {f"{role}_token": "<|endoftext|>" for role in ("bos", "eos", "unk")}
    _save(folder, byte_level(["<|endoftext|>"]), {"tokenizer_class": "GPT2Tokenizer", **names})


def opt(folder: Path) -> None:
    names = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    config = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "errors": "replace", **names}
    _save(folder, byte_level(["<s>", "<pad>", "</s>", "<unk>"]), config, fast=False)


def qwen(folder: Path) -> None:
    names = {"bos_token": None, "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "unk_token": None}
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    _save(folder, byte_level(specials), {"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False, **names})


def llama3(folder: Path) -> None:
    tokenizer = byte_level(["<|begin_of_text|>", "<|end_of_text|>"])
    put_before_texts(tokenizer, "<|begin_of_text|>")
    names = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    _save(folder, tokenizer, {"tokenizer_class": "PreTrainedTokenizerFast", **names})


def llama2(folder: Path) -> None:
    tokenizer = sentence_piece(("<unk>", "<s>", "</s>"))
    put_before_texts(tokenizer, "<s>")
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    _save(folder, tokenizer, {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True, **names})


def gemma(folder: Path) -> None:
    tokenizer = sentence_piece()
    put_before_texts(tokenizer, "<bos>")
    names = {f"{role}_token": f"<{role}>" for role in ("bos", "eos", "unk", "pad")}
    _save(folder, tokenizer, {"tokenizer_class": "GemmaTokenizerFast", "add_bos_token": True, **names})


@dataclass(frozen=True)
class Architecture:
    """The small checkpoint of one family.

    Attributes:
        config: the name of the config class in transformers.
        shape: the values of its config.
        tokenizer: the function that writes the files of its tokenizer into a folder.
        begins: the special token with which the tokenizer begins a text; empty if there is none.

    """

    config: str
    shape: dict[str, Any]
    tokenizer: Callable[[Path], None]
    begins: str = ""


_LAYERS: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": ROWS}
_GATED: dict[str, Any] = _LAYERS | {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 1024}
_OPT: dict[str, Any] = _LAYERS | {"ffn_dim": 64, "max_position_embeddings": 1024}

ARCHITECTURES: dict[str, Architecture] = {
    "pythia": Architecture(
        "GPTNeoXConfig", _LAYERS | {"intermediate_size": 128, "max_position_embeddings": 1024}, neox
    ),
    "gpt2": Architecture("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": ROWS}, gpt2),
    "opt": Architecture("OPTConfig", _OPT | {"word_embed_proj_dim": 32}, opt, "</s>"),
    "opt-350m": Architecture(
        "OPTConfig", _OPT | {"word_embed_proj_dim": 16, "do_layer_norm_before": False}, opt, "</s>"
    ),
    "qwen2.5": Architecture("Qwen2Config", _GATED | {"tie_word_embeddings": True}, qwen),
    "mamba": Architecture(
        "MambaConfig", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "vocab_size": ROWS}, neox
    ),
    "rwkv": Architecture(
        "RwkvConfig",
        {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": ROWS, "context_length": 1024, "rescale_every": 1},
        neox,
    ),
    "gpt-neo": Architecture(
        "GPTNeoConfig",
        {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 16,
            "vocab_size": ROWS,
            "max_position_embeddings": 1024,
        },
        gpt2,
    ),
    "llama3": Architecture("LlamaConfig", _GATED, llama3, "<|begin_of_text|>"),
    "llama2": Architecture("LlamaConfig", _GATED | {"num_key_value_heads": 4}, llama2, "<s>"),
    "mistral": Architecture("MistralConfig", _GATED | {"sliding_window": 64}, llama2, "<s>"),
    "phi": Architecture("PhiConfig", _GATED | {"num_key_value_heads": 4}, gpt2),
    "olmo2": Architecture("Olmo2Config", _GATED, gpt2),
    "qwen3": Architecture("Qwen3Config", _GATED | {"head_dim": 8}, qwen),
    "gemma2": Architecture(
        "Gemma2Config", _GATED | {"head_dim": 8, "final_logit_softcapping": 3.0, "sliding_window": 64}, gemma, "<bos>"
    ),
}


def build(name: str, folder: Path, *, seed: int = 0, **shape: Any) -> None:
    """Write config, safetensors and tokenizer of a small checkpoint with random weights.

    Args:
        name: a key of ARCHITECTURES.
        folder: where to write; it is created if it does not exist.
        seed: the seed of the weights.
        shape: values of config.json that replace those of the architecture.

    """
    architecture = ARCHITECTURES[name]
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    special_tokens = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
    config = getattr(transformers, architecture.config)(**special_tokens | architecture.shape | shape)
    causal: Any = transformers.AutoModelForCausalLM
    model = causal.from_config(config)
    with torch.no_grad():  # with the small weights of a new model, all logits would be nearly equal
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(5.0)
    model.save_pretrained(folder)
    architecture.tokenizer(folder)


def write_gguf(folder: Path, name: str) -> Any:
    """Write a Qwen 2 with matrices in Q8_0 as a GGUF file.

    The folder `plain` beside the file gets the model before quantisation.

    Returns:
        the model of transformers with the dequantised weights of the file.

    """
    import gguf

    plain = folder / "plain"
    build("qwen2.5", plain, hidden_size=64, intermediate_size=128, vocab_size=400)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(plain)
    config = model.config
    tokens = json.loads((plain / "tokenizer.json").read_text())["model"]
    writer = gguf.GGUFWriter(folder / name, "qwen2")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(sorted(tokens["vocab"], key=tokens["vocab"].get))
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens["vocab"]])
    writer.add_token_merges([" ".join(pair) for pair in tokens["merges"]])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, config.num_hidden_layers)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            values = weight.float().numpy()
            kind = gguf.GGMLQuantizationType.Q8_0 if values.ndim == 2 else gguf.GGMLQuantizationType.F32
            packed = gguf.quants.quantize(values, kind)
            weight.copy_(torch.from_numpy(gguf.quants.dequantize(packed, kind).reshape(values.shape)))
            writer.add_tensor(str(names.get_name(key, try_suffixes=(".weight", ".bias"))), packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model.eval()
