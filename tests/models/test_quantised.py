"""Quantised checkpoints: their numbers are those of their dequantised weights, or a line says why not."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from rbptrack.base.errors import BadInput
from rbptrack.config.paths import embedded
from rbptrack.config.schema import Dtype, ModelConfig
from rbptrack.models import quantised
from rbptrack.models.architecture import count_parameters
from rbptrack.models.causal import CausalModel
from rbptrack.models.checkpoint import check_gguf_tokens
from rbptrack.models.tokenizer import load_tokenizer
from rbptrack.scoring.scores import scores_by_definition
from rbptrack.sources.pin import Pinned, pin_model
from tests.tiny_models import ROWS, build, write_gguf

Load = Callable[..., CausalModel]
needs_torchao = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")
needs_gguf = pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="gguf is not installed")


def dequantised(folder: Path) -> Any:
    """The model in a folder with plain weights of the values that its quantised ones stand for."""
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, device_map={"": "cpu"})
    quantised.convert_quantised(loaded, torch.float32)
    config = transformers.AutoConfig.from_pretrained(folder)
    del config.quantization_config
    causal: Any = transformers.AutoModelForCausalLM
    plain = causal.from_config(config, dtype=torch.float32).eval()
    values = {}
    for name, value in loaded.state_dict().items():
        if type(value) is torch.Tensor:
            values[name] = value.float()
        else:  # it multiplies, whatever else it can do
            values[name] = torch.nn.functional.linear(torch.eye(value.shape[1]), value).T.float()
    plain.load_state_dict(values)
    return plain


@needs_torchao
@pytest.mark.parametrize("version", ["int8", "4bit"])
def test_the_embedded_versions_are_their_dequantised_weights(version: str, load: Load) -> None:
    folder = embedded(f"quantised/115k-{version}")
    model = load(folder)
    tokens = torch.randint(4096, (2, 40), generator=torch.Generator().manual_seed(0))
    plain = dequantised(folder)
    with torch.inference_mode():
        torch.testing.assert_close(model.full_logits(tokens), plain(tokens).logits, rtol=1e-4, atol=1e-4)
    base = count_parameters(transformers.AutoConfig.from_pretrained(embedded("models/115k")))
    assert (model.non_embedding_params, model.total_params) == (base.non_embedding, base.total)
    assert model.weights == {"int8": "int8 torchao", "4bit": "int4 group 28 torchao"}[version]
    assert any(model.weights in note for note in model.notes)
    assert model.head.product is None, "the head is the embedding"


def save_quantised(folder: Path, *, bits: int) -> None:
    """A small Llama in bfloat16 that torchao has quantised, its head too."""
    torchao = importlib.import_module("torchao.quantization")

    quantised.silence_torchao()
    build("llama3", folder, tie_word_embeddings=False)
    int4: Any = torch.int4  # type: ignore[attr-defined]
    by_group = torchao.IntxWeightOnlyConfig(weight_dtype=int4, granularity=torchao.PerGroup(16))
    ways = {8: torchao.Int8WeightOnlyConfig(), 4: by_group}
    config = transformers.TorchAoConfig(ways[bits], modules_to_not_convert=["none"])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, quantization_config=config)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder)


@needs_torchao
@pytest.mark.parametrize(("bits", "dtype"), [(8, Dtype.float32), (4, Dtype.float32), (8, Dtype.bfloat16)])
def test_a_quantised_head_scores_through_its_module(bits: int, dtype: Dtype, tmp_path: Path, load: Load) -> None:
    """Also where the checkpoint was made in bfloat16 and computes in float32."""
    save_quantised(tmp_path, bits=bits)
    model = load(tmp_path, candidates=ROWS - 5, dtype=dtype)
    assert model.head.product is not None
    assert model.vocab_size == ROWS - 5
    assert any("its head is quantised" in note for note in model.notes)
    tokens = torch.arange(3, 33)[None]
    targets = torch.arange(2, 32)
    with torch.inference_mode():
        states = model.backbone(tokens)[0]
        whole = model.full_logits(tokens)[0, :, : ROWS - 5].float()
        ours = model.head.logits(states)
    torch.testing.assert_close(ours, whole)
    assert torch.equal(scores_by_definition(ours, targets).greater, scores_by_definition(whole, targets).greater)


@pytest.mark.parametrize(
    ("settings", "library"),
    [
        ({"quant_method": "gptq", "bits": 4}, "optimum"),
        ({"quant_method": "awq", "bits": 4}, "gptqmodel"),
        ({"load_in_4bit": True, "quant_method": "bitsandbytes"}, "bitsandbytes"),
    ],
)
def test_a_library_that_is_missing_is_named(settings: dict[str, Any], library: str, tmp_path: Path, load: Load) -> None:
    if importlib.util.find_spec(library):
        pytest.skip(f"{library} is installed")
    build("llama3", tmp_path)
    values = json.loads((tmp_path / "config.json").read_text()) | {"quantization_config": settings}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(BadInput, match=library) as refused:
        load(tmp_path)
    assert "\n" not in str(refused.value)


@needs_gguf
def test_a_gguf_file_is_measured_dequantised(tmp_path: Path, load: Load) -> None:
    """Config, tokenizer and weights come from the one file; a cut one is refused in a line."""
    plain = write_gguf(tmp_path, "toy-Q8_0.gguf")
    model = load(tmp_path, gguf="toy-Q8_0.gguf")
    tokens = torch.arange(40)[None]
    with torch.inference_mode():
        assert torch.equal(model.full_logits(tokens), plain(tokens).logits)
    assert model.weights == "Q8_0"
    assert model.notes == ("its weights are those of toy-Q8_0.gguf, dequantised",)
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "toy-Q8_0.gguf").read_bytes()[:-64])
    with pytest.raises(BadInput) as refused:
        load(tmp_path, gguf="cut.gguf")
    assert "\n" not in str(refused.value)


@needs_gguf
@pytest.mark.parametrize(("header", "meant"), [(15, "Q4_K_M"), (0, "F32"), (9999, "F16"), (None, "F16")])
def test_a_gguf_file_says_how_it_stores_weights(tmp_path: Path, header: int | None, meant: str) -> None:
    """By its header; where that is missing or unknown, by the type of most weights."""
    import gguf

    writer = gguf.GGUFWriter(tmp_path / "toy.gguf", "llama")
    if header is not None:
        writer.add_file_type(header)
    writer.add_tensor("norm", np.zeros(8, dtype=np.float32))
    writer.add_tensor("layer", np.zeros((8, 8), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert quantised.gguf_type(tmp_path / "toy.gguf") == meant


@needs_gguf
def test_another_tokenizer_must_name_the_tokens_of_a_gguf_file(tmp_path: Path) -> None:
    """A smaller one fits below the rows of the head, and would cut texts into tokens that the model never saw."""
    write_gguf(tmp_path, "toy-Q8_0.gguf")
    source = pin_model(ModelConfig("toy", "1k", path=str(tmp_path), gguf="toy-Q8_0.gguf"))
    own = load_tokenizer(source)
    assert len(own) == 400
    check_gguf_tokens("toy", source, own)
    check_gguf_tokens("toy", source, load_tokenizer(Pinned(str(tmp_path / "plain"), None, "x")))
    build("llama2", tmp_path / "other")
    with pytest.raises(BadInput, match="it is not this model's"):
        check_gguf_tokens("toy", source, load_tokenizer(Pinned(str(tmp_path / "other"), None, "x")))
