"""Tests of the number of parameters S of published models, and of logits in padded batches."""
# ruff: noqa: E501 -- each row of the table is one line

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from rbptrack.models.architecture import load_config
from rbptrack.models.parameters import count_parameters
from rbptrack.sources.manifest import pin_file
from rbptrack.sources.pin import Pinned
from tests.models.conftest import Load
from tests.tiny_models import write_checkpoint

# By model: the class of its config, the values of its config.json, S (parameters without embeddings and head), and the
# number of all parameters. The numbers are from Table 1 of the Pythia paper, the cards of the models and the repository
# of the paper on RBP.
PUBLISHED: dict[str, tuple[str, dict[str, Any], int, int | None]] = {
    "pythia-14m": ("GPTNeoXConfig", {"hidden_size": 128, "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 50304}, 1_189_888, 14_067_712),
    "pythia-160m": ("GPTNeoXConfig", {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 50304}, 85_056_000, 162_322_944),
    "pythia-12b": ("GPTNeoXConfig", {"hidden_size": 5120, "num_hidden_layers": 36, "num_attention_heads": 40, "intermediate_size": 20480, "vocab_size": 50688}, 11_327_027_200, 11_846_072_320),
    "gpt2": ("GPT2Config", {}, 85_056_000, 124_439_808),
    "gpt2-xl": ("GPT2Config", {"n_embd": 1600, "n_layer": 48, "n_head": 25}, 1_475_561_600, 1_557_611_200),
    "opt-125m": ("OPTConfig", {}, 85_056_000, 125_239_296),
    "opt-350m": ("OPTConfig", {"hidden_size": 1024, "word_embed_proj_dim": 512, "ffn_dim": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "do_layer_norm_before": False}, 303_357_952, 331_196_416),
    "qwen2.5-0.5b": ("Qwen2Config", {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True}, 357_898_112, 494_032_768),
    "qwen2.5-72b": ("Qwen2Config", {"hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 152064}, 70_214_787_072, 72_706_203_648),
    "mamba-130m": ("MambaConfig", {"vocab_size": 50280, "num_hidden_layers": 24}, 90_520_320, 129_135_360),
    "gpt-neo-125m": ("GPTNeoConfig", {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "attention_types": [[["global", "local"], 6]]}, 85_028_352, 125_198_592),
    "tinystories-33m": ("GPTNeoConfig", {"hidden_size": 768, "num_layers": 4, "num_heads": 16, "attention_types": [[["global", "local"], 2]]}, 28_343_808, 68_514_048),
    "llama3-1b": ("LlamaConfig", {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True}, 973_146_112, 1_235_814_400),
    "smollm2-135m": ("LlamaConfig", {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True}, 106_203_456, 134_515_008),
    "olmo2-1b": ("Olmo2Config", {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 16, "vocab_size": 100352}, 1_073_874_944, 1_484_916_736),
    "qwen3-0.6b": ("Qwen3Config", {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True}, 440_467_456, 596_049_920),
    "gemma2-2b": ("Gemma2Config", {}, 2_024_517_888, 2_614_341_888),
    "llama2-7b": ("LlamaConfig", {}, 6_476_271_616, 6_738_415_616),
    "llama2-70b": ("LlamaConfig", {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8}, 68_452_360_192, 68_976_648_192),
    "phi2-2.7b": ("PhiConfig", {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 51200}, 2_517_488_640, 2_779_683_840),
    "mistral-7b": ("MistralConfig", {}, 6_979_588_096, 7_241_732_096),
    "deepseek-7b": ("LlamaConfig", {"num_hidden_layers": 30, "vocab_size": 102400}, 6_071_504_896, 6_910_365_696),
    "distilgpt2": ("GPT2Config", {"n_layer": 6}, 42_528_768, 81_912_576),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_count_parameters_of_a_published_model_gives_its_published_numbers(name: str) -> None:
    kind, shape, s, total = PUBLISHED[name]
    counts = count_parameters(getattr(transformers, kind)(**shape))
    assert (counts.non_embedding, counts.total) == (s, total)


def test_load_config_reads_the_shape_of_gpt2_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}))
    file = pin_file(tmp_path / "config.json", "model.path")
    assert count_parameters(load_config(Pinned(str(tmp_path), None, "x", (file,)))).non_embedding == 85_056_000


@pytest.mark.parametrize("name", ["pythia", "gpt2", "opt-350m", "mamba", "gemma2", "qwen3"])
def test_load_model_gives_the_logits_of_transformers_in_padded_batches(name: str, tmp_path: Path, load: Load) -> None:
    write_checkpoint(name, tmp_path)
    model = load(tmp_path)
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    tokens = torch.randint(5, 400, (3, 40), generator=torch.Generator().manual_seed(0))
    lengths = (40, 23, 7)
    for row, length in enumerate(lengths):
        tokens[row, length:] = 0
    with torch.inference_mode():
        states = model.backbone(tokens)
        for row, length in enumerate(lengths):
            expected = plain(tokens[row : row + 1, :length]).logits[0]
            logits = model.head.logits(states[row, :length].clone())  # (length, vocabulary)
            torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-3)
    assert model.total_params == sum(parameter.numel() for parameter in plain.parameters())
