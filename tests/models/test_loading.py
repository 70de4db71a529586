"""What is loaded is the model: complete, of its own weights, without code or pickles of others."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import Candidates, ModelConfig
from rbptrack.models.architecture import (
    candidates,
    check_compatible,
    check_same_tokenizer,
    count_parameters,
    load_config,
)
from rbptrack.models.causal import CausalModel, split_model
from rbptrack.models.checkpoint import check_folder
from rbptrack.models.tokenizer import load_tokenizer
from rbptrack.sources.pin import Pinned, pin_model, pin_tokenizer
from tests.tiny_models import ROWS, build

Load = Callable[..., CausalModel]
ModelOf = Callable[..., Any]
TENSOR = "gpt_neox.layers.1.mlp.dense_h_to_4h.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small Pythia."""
    build("pythia", tmp_path / "model")
    return tmp_path / "model"


def config_of(folder: Path, **changes: Any) -> ModelConfig:
    return ModelConfig(family="toy", size="1k", path=str(folder), **changes)


def edit_config(folder: Path, name: str = "config.json", **values: Any) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def rename(weights: dict[str, torch.Tensor]) -> None:
    weights["gpt_neox.layers.1.mlp.dense_out.weight"] = weights.pop(TENSOR)


FAULTS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], dict[str, Any], str]] = {
    "a missing tensor": (lambda w: w.pop(TENSOR), {}, TENSOR),
    "a renamed tensor": (rename, {}, r"h_to_4h.*dense_out"),
    "more layers than stored": (lambda w: None, {"num_hidden_layers": 3}, r"layers\.2.* and \d+ more"),
    "fewer layers than stored": (lambda w: None, {"num_hidden_layers": 1}, r"layers\.1"),
    "another width": (lambda w: None, {"intermediate_size": 64}, r"\(128,\) instead of \(64,\)"),
    "integers": (lambda w: w.update({TENSOR: (w[TENSOR] * 50).to(torch.int8)}), {}, rf"integers.*{TENSOR}"),
    "booleans": (lambda w: w.update({TENSOR: w[TENSOR] > 0}), {}, rf"booleans.*{TENSOR}"),
    "numbers of 8 bits": (lambda w: w.update({TENSOR: w[TENSOR].to(torch.float8_e4m3fn)}), {}, rf"8 bits.*{TENSOR}"),
    "complex numbers": (lambda w: w.update({TENSOR: w[TENSOR].to(torch.complex64)}), {}, rf"complex.*{TENSOR}"),
    "a million layers": (lambda w: None, {"num_hidden_layers": 10**6}, r"1,000,000 layers"),
    "an unknown quantisation": (lambda w: None, {"quantization_config": {"quant_method": "mine"}}, "'mine'"),
    "an activation that does not exist": (lambda w: None, {"hidden_act": "gulu"}, "gulu"),
}


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("fault", FAULTS)
def test_weights_that_are_not_the_models_are_refused(fault: str, folder: Path, load: Load) -> None:
    change, values, message = FAULTS[fault]
    edit_weights(folder, change)
    edit_config(folder, **values)
    with pytest.raises(BadInput, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [0, 5, 4000])
def test_weights_that_are_cut_short(size: int, folder: Path, load: Load) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BadInput, match="damaged or cut short") as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_too_little_memory_is_called_so(folder: Path, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [MemoryError(), RuntimeError("DefaultCPUAllocator: no memory"), OSError("Cannot allocate memory")]
    for error in errors:

        def fail(*args: Any, error: Exception = error, **kwargs: Any) -> None:
            raise ValueError("it failed") from error

        monkeypatch.setattr(transformers.GPTNeoXForCausalLM, "from_pretrained", fail)
        with pytest.raises(BadInput, match="does not fit into memory"):
            load(folder)


@pytest.mark.parametrize("name", ["pythia", "gpt2", "gpt-neo"])
def test_buffers_that_older_versions_stored_are_no_weights(name: str, tmp_path: Path, load: Load) -> None:
    build(name, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    for key in [k for k in weights if k.endswith(("query_key_value.weight", "c_attn.weight", "q_proj.weight"))]:
        layer = key.rsplit(".", 2)[0]
        weights |= {f"{layer}.bias": torch.ones(1, 1, 8, 8, dtype=torch.bool), f"{layer}.masked_bias": torch.zeros(1)}
        weights[f"{layer}.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert load(tmp_path).vocab_size == ROWS


def test_a_tied_head_need_not_be_stored(tmp_path: Path, load: Load) -> None:
    build("qwen2.5", tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    assert load(tmp_path).vocab_size == ROWS


def test_a_head_beside_a_tied_one_is_measured_as_transformers_loads_it(tmp_path: Path, load: Load) -> None:
    build("pythia", tmp_path, tie_word_embeddings=False)
    edit_config(tmp_path, tie_word_embeddings=True)
    model = load(tmp_path)
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    tokens = torch.arange(40)[None]
    with torch.inference_mode():
        logits = model.head.logits(model.backbone(tokens)[0])
        assert torch.allclose(logits, plain(tokens).logits[0], atol=1e-5)


def test_a_missing_shard_is_named(folder: Path, load: Load) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="100KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert load(folder).vocab_size == ROWS
    shards[1].unlink()
    with pytest.raises(BadInput, match=shards[1].name):
        load(folder)


def test_pickles_only_by_name(folder: Path, load: Load) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    for attempt in (lambda: check_folder(config_of(folder)), lambda: load(folder)):
        with pytest.raises(BadInput, match=r"model\.pickles=true"):
            attempt()
    check_folder(config_of(folder, pickles=True))
    assert load(folder, pickles=True).total_params == sum(p.numel() for p in model.parameters())


def test_code_in_pickled_weights_does_not_run(folder: Path, load: Load, tmp_path: Path) -> None:
    class Code:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "sign",))

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Code(), protocol=2))
    with pytest.raises(BadInput, match="something else than weights") as caught:
        load(folder, pickles=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "sign").exists()


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_an_incomplete_folder_says_what_is_missing(missing: str, folder: Path) -> None:
    check_folder(config_of(folder))
    (folder / missing).unlink()
    with pytest.raises(BadInput, match="has no"):
        check_folder(config_of(folder))
    if missing == "tokenizer.json":
        check_folder(config_of(folder, tokenizer="ORG/NAME"))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
def test_what_is_not_a_file_is_named(name: str, folder: Path) -> None:
    """A folder, and a link that leads nowhere: transformers takes some of them for files that are not there."""
    for make in (lambda path: path.mkdir(), lambda path: path.symlink_to("/nowhere")):
        copy = folder.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        (copy / name).unlink()
        make(copy / name)
        with pytest.raises(BadInput, match=name):
            check_folder(config_of(copy))


def test_weights_of_another_name_are_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "mine.safetensors")
    with pytest.raises(BadInput, match=r"expected model\.safetensors"):
        check_folder(config_of(folder))


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"x":' + b"9" * 5000])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_file_is_named(name: str, content: bytes, folder: Path) -> None:
    (folder / name).write_bytes(content)
    source = pin_model(config_of(folder))
    with pytest.raises(BadInput, match=name) as caught:
        load_tokenizer(source)
    assert "\n" not in str(caught.value)


def test_what_lies_beside_a_model_is_not_measured_and_said(folder: Path, load: Load) -> None:
    assert not load(folder).notes
    edit_config(folder, auto_map={"AutoModelForCausalLM": "code.Model"})
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "elsewhere"}))
    notes = load(folder).notes
    assert ["adapter_config.json" in notes[0], "auto_map" in notes[1]] == [True, True]


def test_an_adapter_that_was_added_unasked_is_refused(
    folder: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers.GPTNeoXForCausalLM, "_hf_peft_config_loaded", True)
    with pytest.raises(BadInput, match="merge_and_unload"):
        load(folder)


def test_code_of_a_repository_never_runs(folder: Path, tmp_path: Path, load: Load, monkeypatch: Any) -> None:
    """Nor does anything ask whether it may."""
    sign = tmp_path / "sign"
    (folder / "code.py").write_text(
        f"from pathlib import Path\nPath({str(sign)!r}).touch()\n"
        "from transformers import GPTNeoXConfig as Config, GPTNeoXForCausalLM as Model\n"
        "from transformers import PreTrainedTokenizerFast as Fast\n"
    )
    names = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model", "AutoTokenizer": ["code.Fast"] * 2}
    for name in ("config.json", "tokenizer_config.json"):
        edit_config(folder, name, auto_map=names)
    other = tmp_path / "unheard of"
    shutil.copytree(folder, other)
    edit_config(other, model_type="unheard_of")
    asked: list[str] = []

    def agree(prompt: str = "") -> str:
        asked.append(prompt)
        return "y"

    monkeypatch.setattr("builtins.input", agree)
    for each in (folder, other):
        source = pin_model(config_of(each))
        for step in (load_tokenizer, load_config):
            with suppress(BadInput):
                step(source)
        with suppress(BadInput):
            load(each)
    assert not sign.exists()
    assert not asked


TOKENIZERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "an id of -1": lambda parts: parts["model"]["vocab"].update({"the": -1}),
    "a list for the vocabulary": lambda parts: parts["model"].update(vocab=list(parts["model"]["vocab"])),
    "an added token of -1": lambda parts: parts["added_tokens"][0].update(id=-1),
    "no model": lambda parts: parts.pop("model"),
    "a broken merge": lambda parts: parts["model"].update(merges=[["a"]]),
}


@pytest.mark.parametrize("fault", TOKENIZERS)
def test_a_damaged_tokenizer_is_refused_in_a_line(fault: str, tmp_path: Path) -> None:
    build("llama3", tmp_path)
    parts = json.loads((tmp_path / "tokenizer.json").read_text())
    TOKENIZERS[fault](parts)
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    with pytest.raises(BadInput) as caught:
        load_tokenizer(pin_model(config_of(tmp_path)))
    assert "\n" not in str(caught.value)


def test_a_tokenizer_from_elsewhere(tmp_path: Path) -> None:
    build("gpt-neo", tmp_path / "model")
    other = tmp_path / "tokenizer"
    other.mkdir()
    for path in list((tmp_path / "model").iterdir()):
        if "token" in path.name or path.name in ("vocab.json", "merges.txt"):
            path.rename(other / path.name)
    source = pin_model(config_of(tmp_path / "model"))
    with pytest.raises(BadInput, match=r"model\.tokenizer=ORG/NAME"):
        load_tokenizer(source)
    assert len(load_tokenizer(pin_tokenizer(config_of(tmp_path / "model", tokenizer=str(other)), source))) == 400


def test_sequences_and_tokenizer_must_fit_the_model(folder: Path) -> None:
    source = pin_model(config_of(folder))
    config = load_config(source)
    check_compatible("toy", config, load_tokenizer(source), 1024)
    with pytest.raises(BadInput, match="at most 1024"):
        check_compatible("toy", config, load_tokenizer(source), 1025)
    parts = json.loads((folder / "tokenizer.json").read_text())
    last = max(parts["model"]["vocab"], key=parts["model"]["vocab"].__getitem__)
    parts["model"]["vocab"][last] = ROWS + 7
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    with pytest.raises(BadInput, match=f"the id {ROWS + 7}"):
        check_compatible("toy", config, load_tokenizer(source), 48)
    config.vocab_size = 100
    with pytest.raises(BadInput, match="belongs to another model"):
        check_compatible("toy", config, load_tokenizer(source), 48)


def test_a_reference_reads_the_same_tokens(tmp_path: Path) -> None:
    for name in ("llama3", "gpt2"):
        build(name, tmp_path / name)
    one = load_tokenizer(Pinned(str(tmp_path / "llama3"), None, "x"))
    check_same_tokenizer("toy", one, one)
    with pytest.raises(BadInput, match="another vocabulary"):
        check_same_tokenizer("toy", one, load_tokenizer(Pinned(str(tmp_path / "gpt2"), None, "x")))
    parts = json.loads((tmp_path / "llama3/tokenizer.json").read_text())
    parts["normalizer"] = {"type": "Lowercase"}
    (tmp_path / "llama3/tokenizer.json").write_text(json.dumps(parts))
    with pytest.raises(BadInput, match="normalizer"):
        check_same_tokenizer("toy", one, load_tokenizer(Pinned(str(tmp_path / "llama3"), None, "x")))


def test_candidates_of_the_tokenizer_only(tmp_path: Path, load: Load) -> None:
    build("qwen2.5", tmp_path)
    source = pin_model(config_of(tmp_path))
    config, tokenizer = load_config(source), load_tokenizer(source)
    assert candidates(config, tokenizer, Candidates.vocabulary) == (ROWS, ())
    assert candidates(config, tokenizer, Candidates.tokenizer) == (400, ())
    tokenizer.get_vocab = lambda: {"a": 0, "b": 2}  # type: ignore[method-assign]
    assert candidates(config, tokenizer, Candidates.tokenizer) == (3, (1,))
    model = load(tmp_path, candidates=400)
    assert model.vocab_size == 400
    tokens = torch.arange(20)[None]
    with torch.inference_mode():
        ours = model.head.without([3, 5]).logits(model.backbone(tokens)[0])
        whole = model.full_logits(tokens)[0, :, :400]
    rest = [i for i in range(400) if i not in (3, 5)]
    torch.testing.assert_close(ours[:, rest], whole[:, rest])
    assert (ours[:, [3, 5]] == -torch.inf).all()


def test_the_text_part_of_a_multimodal_model_is_measured(
    tmp_path: Path, shape: dict[str, Any], load: Load, model_of: ModelOf
) -> None:
    vision = {
        "model_type": "clip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 32,
        "patch_size": 8,
    }
    text_config = shape | {"model_type": "llama"}
    options: dict[str, Any] = {"image_token_id": 9, "image_seq_length": 16}
    config = transformers.LlavaConfig(text_config=text_config, vision_config=vision, **options)
    torch.manual_seed(0)
    transformers.LlavaForConditionalGeneration(config).save_pretrained(tmp_path)
    model = load(tmp_path)
    text = split_model(model_of("llama"), "toy")
    assert model.non_embedding_params == text.non_embedding_params
    assert model.total_params > text.total_params
    assert any("multimodal" in note for note in model.notes)
    assert not text.notes
    counts = count_parameters(transformers.AutoConfig.from_pretrained(tmp_path))
    assert (counts.non_embedding, counts.total) == (model.non_embedding_params, model.total_params)
