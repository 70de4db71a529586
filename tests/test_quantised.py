"""Quantised checkpoints: their numbers are those of their dequantised weights, or a line says why not."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from rbptrack.base.errors import BadInput
from rbptrack.config.compose import Composer
from rbptrack.config.schema import CellConfig, DatasetConfig, Dtype, KConfig, ModelConfig
from rbptrack.models import quantised
from rbptrack.models.architecture import count_parameters, load_config
from rbptrack.models.loading import load_model, load_module
from rbptrack.scoring.scorer import Scorer, reference
from rbptrack.sources.pin import of_model
from rbptrack.sweep.resolve import Resolver
from tests.architectures import ROWS, TEXT, build
from tests.conftest import EMBEDDED, Program
from tests.gguf_file import write_gguf
from tests.test_sequences import byte_tokenizer

needs_torchao = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="torchao is not installed: pip install '.[dev]'"
)
needs_gguf = pytest.mark.skipif(
    importlib.util.find_spec("gguf") is None, reason="gguf is not installed: pip install '.[dev]'"
)


def toy(folder: Path, **changes: Any) -> ModelConfig:
    return ModelConfig(family="toy", size="1k", path=str(folder), **changes)


def save(folder: Path, *, bits: int, dtype: torch.dtype, head: bool = False) -> Path:
    """A checkpoint of a small Llama that torchao has quantised, its head too where that is asked for."""
    from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerGroup

    quantised.quiet()
    build("llama3", folder, tie_word_embeddings=False)
    ways = {8: Int8WeightOnlyConfig(), 4: IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(16))}
    told = transformers.TorchAoConfig(ways[bits], modules_to_not_convert=["none"] if head else None)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, quantization_config=told)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder)
    return folder


def dequantised(module: Any) -> Any:
    """The same model with plain weights of the values that its quantised ones stand for."""
    plain = type(module)(module.config).eval()
    values = {
        k: v if type(v) is torch.Tensor else torch.nn.functional.linear(torch.eye(v.shape[1]), v).T
        for k, v in module.state_dict().items()
    }
    plain.load_state_dict({k: v.float() for k, v in values.items()})
    return plain


@needs_torchao
@pytest.mark.parametrize("version", ["int8", "4bit"])
def test_the_embedded_versions_are_their_dequantised_weights(version: str) -> None:
    config = Composer("config", []).compose_typed([f"model=nano-quant/115k-{version}"]).model
    source = of_model(config)
    tokens = torch.randint(4096, (2, 40), generator=torch.Generator().manual_seed(0))
    model, plain = load_model(config, source), dequantised(load_module(config, source))
    with torch.inference_mode():
        torch.testing.assert_close(model.whole(tokens), plain(tokens).logits, rtol=1e-4, atol=1e-4)
    base = load_config(of_model(toy(EMBEDDED / "models" / "115k")))
    assert model.non_embedding_params == count_parameters(base).non_embedding
    assert model.total_params == count_parameters(base).total
    assert any(note.startswith("its weights are quantised (torchao, Int") for note in model.notes)
    assert model.head.product is None  # the head is the embedding


def test_the_embedded_versions_are_small() -> None:
    assert sum(path.stat().st_size for path in (EMBEDDED / "quantised").rglob("*")) < 2_000_000


@needs_torchao
@pytest.mark.parametrize(("bits", "dtype"), [(8, Dtype.float32), (4, Dtype.float32), (8, Dtype.bfloat16)])
def test_a_quantised_head_scores_through_its_module(bits: int, dtype: Dtype, tmp_path: Path) -> None:
    """Also where the checkpoint was made in bfloat16 and computes in float32."""
    config = toy(save(tmp_path, bits=bits, dtype=torch.bfloat16, head=True), dtype=dtype)
    model = load_model(config, of_model(config), candidates=ROWS - 5)
    assert model.head.product is not None
    assert model.vocab_size == ROWS - 5
    assert any("its head is quantised" in note and "(0.001 is allowed)" in note for note in model.notes) is (
        dtype is Dtype.float32
    )
    tokens = torch.arange(3, 33)[None]
    targets = torch.arange(2, 32)
    with torch.inference_mode():
        states = model.backbone(tokens)[0]
        expected = reference(model.whole(tokens)[0, :, : ROWS - 5], targets)
        found = Scorer(model.head, chunk_tokens=30)(states, targets)
    assert torch.equal(found.greater, expected.greater)
    assert torch.equal(found.ties, expected.ties)
    torch.testing.assert_close(found.logprob, expected.logprob, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model.head.logits(states), model.whole(tokens)[0, :, : ROWS - 5].float())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"quant_method": "gptq", "bits": 4},
            r"gptq, which needs gptqmodel and optimum: pip install gptq",
        ),
        ({"quant_method": "awq", "bits": 4}, r"awq, which needs gptqmodel: pip install gptqmodel"),
        ({"load_in_4bit": True}, r"bitsandbytes, which needs bitsandbytes: pip install bitsandbytes"),
        ({"quant_method": "torchao"}, r"torchao, which needs torchao: pip install 'rbptrack\[torchao\]'"),
    ],
)
def test_a_library_that_is_missing_is_named(
    settings: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantised, "find_spec", lambda name: None)
    build("llama3", tmp_path)
    values = json.loads((tmp_path / "config.json").read_text()) | {"quantization_config": settings}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(BadInput, match=rf"quantised with {said}"):
        load_config(of_model(toy(tmp_path)))


@needs_gguf
def test_a_gguf_files_own_token_list_is_held_against_another_tokenizer(tmp_path: Path) -> None:
    """A smaller one fits below the rows of the head, and would cut texts into tokens that the model never saw."""
    write_gguf(tmp_path / "model-1k", "toy-Q8_0.gguf")
    byte_tokenizer().save_pretrained(tmp_path / "foreign")
    (tmp_path / "text.txt").write_text(TEXT)
    texts = DatasetConfig("text", files=[str(tmp_path / "text.txt")], split="train", seq_len=8)
    cell = CellConfig(toy(tmp_path / "model-1k", gguf="toy-Q8_0.gguf"), texts, KConfig([1]))
    cell.model.tokenizer = str(tmp_path / "model-1k/plain")  # the file's own, as it was before conversion
    assert Resolver().resolve(cell).candidates == 400
    cell.model.tokenizer = str(tmp_path / "foreign")
    with pytest.raises(
        BadInput, match=r"toy-1k: .*foreign names \d+ of the \d+ tokens of toy-Q8_0.gguf otherwise"
    ) as said:
        Resolver().resolve(cell)
    assert "\n" not in str(said.value)


@needs_gguf
def test_a_gguf_file_is_measured_dequantised(
    tmp_path: Path, program: Program, with_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Config, tokenizer and weights come from the one file; another beside it is another model."""
    import gguf

    rows, whole = [0], gguf.quants.dequantize
    monkeypatch.setattr("rbptrack.models.loading._PIECE_ROWS", 7)  # matrices are never whole in memory twice

    def counted(data: Any, kind: Any) -> Any:
        rows.append(len(data) if data.ndim == 2 else 0)
        return whole(data, kind)

    readers = list[Any]()
    reader = gguf.GGUFReader

    def kept(*arguments: Any) -> Any:
        readers.append(reader(*arguments))
        return readers[-1]

    monkeypatch.setattr(gguf, "dequantize", counted)
    monkeypatch.setattr(gguf, "GGUFReader", kept)
    folder, text = tmp_path / "model-1k", tmp_path / "text.jsonl"
    written = write_gguf(folder, "toy-Q8_0.gguf")
    config = toy(folder, gguf="toy-Q8_0.gguf")
    model, tokens = load_model(config, of_model(config)), torch.arange(40)[None]
    with torch.inference_mode():
        assert torch.equal(model.whole(tokens), written(tokens).logits)
    assert model.notes == ("its weights are those of toy-Q8_0.gguf, dequantised",)
    assert max(rows) == 7
    assert not readers[-1].fields, "the vocabulary is dropped before weights are read"
    (folder / "other.gguf").write_bytes((folder / "toy-Q8_0.gguf").read_bytes()[:-64])
    text.write_text(json.dumps({"text": TEXT}))
    cell = ["model=hf", f"model.path={folder}", "dataset=files", f"dataset.files=[{text}]", "dataset.name=text"]
    said = program("measure", *cell, "model.gguf=toy-Q8_0.gguf", cwd=with_store)
    assert said.returncode == 0, said.stderr
    assert "dequantised" in said.stdout
    for name, why in (("no.gguf", "no such file"), ("toy.bin", "ends in .gguf"), ("other.gguf", "")):
        said = program("measure", *cell, f"model.gguf={name}", cwd=with_store)
        assert said.returncode != 0
        assert why in said.stderr
        assert len(said.stderr.strip().splitlines()) < 4
