"""A small model as a GGUF file, as llama.cpp's converter writes one."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers

from tests.architectures import build


def write_gguf(folder: Path, name: str) -> transformers.PreTrainedModel:
    """Write `name` (Qwen 2, matrices as Q8_0) into a folder, and give the model whose weights it holds, dequantised."""
    import gguf

    plain = folder / "plain"
    build("qwen2.5", plain, hidden_size=64, intermediate_size=128, vocab_size=400)
    model = transformers.AutoModelForCausalLM.from_pretrained(plain)
    config, tokens = model.config, json.loads((plain / "tokenizer.json").read_text())["model"]
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
            writer.add_tensor(names.get_name(key, try_suffixes=(".weight", ".bias")), packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model.eval()
