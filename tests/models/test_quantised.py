"""Tests of quantised checkpoints: they score as their dequantised weights do, or are refused in one line."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from rbptrack.base.errors import BadInput
from rbptrack.config.paths import embedded
from rbptrack.config.schema import Dtype
from rbptrack.models import quantised
from rbptrack.models.parameters import count_parameters
from tests.definition import scores_by_definition
from tests.models.conftest import Load
from tests.tiny_models import HEAD_ROWS, edit_json, write_checkpoint

needs_torchao = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")


def dequantised_model(folder: Path) -> Any:
    """Load the quantised model in a folder, and return a model with the same weights in float32."""
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
        else:  # every quantised weight can be multiplied, and the product with I is its transpose
            values[name] = torch.nn.functional.linear(torch.eye(value.shape[1]), value).T.float()
    plain.load_state_dict(values)
    return plain


@needs_torchao
@pytest.mark.parametrize("version", ["int8", "4bit"])
def test_load_model_gives_the_logits_of_the_dequantised_weights(version: str, load: Load) -> None:
    folder = embedded(f"quantised/115k-{version}")
    model = load(folder)
    tokens = torch.randint(4096, (2, 40), generator=torch.Generator().manual_seed(0))
    plain = dequantised_model(folder)
    with torch.inference_mode():
        torch.testing.assert_close(model.backbone.full_logits(tokens), plain(tokens).logits, rtol=1e-4, atol=1e-4)
    assert model.head.product is None  # the head is the embedding, which is not quantised


@needs_torchao
@pytest.mark.parametrize("version", ["int8", "4bit"])
def test_load_model_counts_the_parameters_of_the_model_before_quantisation(version: str, load: Load) -> None:
    model = load(embedded(f"quantised/115k-{version}"))
    base = count_parameters(transformers.AutoConfig.from_pretrained(embedded("models/115k")))
    assert (model.non_embedding_params, model.total_params) == (base.non_embedding, base.total)


@needs_torchao
@pytest.mark.parametrize(("version", "weights"), [("int8", "int8 torchao"), ("4bit", "int4 group 28 torchao")])
def test_load_model_names_the_quantisation_and_notes_it(version: str, weights: str, load: Load) -> None:
    model = load(embedded(f"quantised/115k-{version}"))
    assert model.quantisation == weights
    assert any(weights in note for note in model.notes)


def save_quantised(folder: Path, *, bits: int) -> None:
    """Quantise a small Llama in bfloat16 with torchao, including its head, and save it in a folder."""
    torchao = importlib.import_module("torchao.quantization")

    quantised.silence_torchao()
    write_checkpoint("llama3", folder, tie_word_embeddings=False)
    int4: Any = torch.int4  # type: ignore[attr-defined]
    by_group = torchao.IntxWeightOnlyConfig(weight_dtype=int4, granularity=torchao.PerGroup(16))
    by_bits = {8: torchao.Int8WeightOnlyConfig(), 4: by_group}
    config = transformers.TorchAoConfig(by_bits[bits], modules_to_not_convert=["none"])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, quantization_config=config)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder)


@needs_torchao
@pytest.mark.parametrize(("bits", "dtype"), [(8, Dtype.float32), (4, Dtype.float32), (8, Dtype.bfloat16)])
def test_head_of_a_model_with_a_quantised_head_gives_the_logits_of_the_model(
    bits: int, dtype: Dtype, tmp_path: Path, load: Load
) -> None:
    """The checkpoint was quantised in bfloat16. It may be loaded in float32."""
    save_quantised(tmp_path, bits=bits)
    model = load(tmp_path, num_candidates=HEAD_ROWS - 5, dtype=dtype)
    assert model.head.product is not None
    assert model.vocab_size == HEAD_ROWS - 5
    assert any("its head is quantised" in note for note in model.notes)
    tokens = torch.arange(3, 33)[None]
    targets = torch.arange(2, 32)
    with torch.inference_mode():
        states = model.backbone(tokens)[0]
        expected = model.backbone.full_logits(tokens)[0, :, : HEAD_ROWS - 5].float()
        logits = model.head.logits(states)
    torch.testing.assert_close(logits, expected)
    greater = scores_by_definition(logits, targets)["greater"]
    assert torch.equal(greater, scores_by_definition(expected, targets)["greater"])


@pytest.mark.parametrize(
    ("settings", "library"),
    [
        ({"quant_method": "gptq", "bits": 4}, "optimum"),
        ({"quant_method": "awq", "bits": 4}, "gptqmodel"),
        ({"load_in_4bit": True, "quant_method": "bitsandbytes"}, "bitsandbytes"),
    ],
)
def test_load_model_names_the_missing_library_of_a_quantisation(
    settings: dict[str, Any], library: str, tmp_path: Path, load: Load
) -> None:
    if importlib.util.find_spec(library):
        pytest.skip(f"{library} is installed")
    write_checkpoint("llama3", tmp_path)
    edit_json(tmp_path / "config.json", quantization_config=settings)
    with pytest.raises(BadInput, match=library) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)
