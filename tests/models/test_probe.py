"""A model that would give wrong ranks is refused when it is loaded. The logits of other models are the model's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from rbptrack.base.errors import BadInput
from rbptrack.models.architecture import max_sequence_length
from rbptrack.models.causal import evaluation_mode, split_model
from tests.tiny_models import ROWS

ModelOf = Callable[..., Any]
BERT: dict[str, Any] = {"num_key_value_heads": None, "head_dim": None}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("llama", {"is_causal": False}),
        ("gemma3_text", {"use_bidirectional_attention": True}),
        ("bert-generation", BERT),
        ("bert", BERT),
        ("xlm", {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "n_words": ROWS, **BERT}),
        ("xlnet", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "max_position_embeddings": None, **BERT}),
    ],
)
def test_a_model_that_reads_later_tokens_is_refused(kind: str, changes: dict[str, Any], model_of: ModelOf) -> None:
    module = model_of(kind, **changes).to(torch.bfloat16 if kind == "llama" else torch.float32)
    with pytest.raises(BadInput, match="later tokens") as refused:
        split_model(module, "toy")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["llama", "mixtral", "gemma3_text"])
def test_a_causal_model_is_measured(kind: str, dtype: torch.dtype, model_of: ModelOf) -> None:
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2} if kind == "mixtral" else {}
    assert split_model(model_of(kind, **experts).to(dtype), "toy").vocab_size == ROWS


def test_states_that_depend_on_the_batch_are_refused(model_of: ModelOf) -> None:
    """Reformer pads every batch to whole chunks, and hashes by what is there."""
    module = model_of(
        "reformer",
        is_decoder=True,
        attn_layers=["local", "lsh"],
        attention_head_size=8,
        axial_pos_embds_dim=[16, 16],
        axial_pos_shape=[16, 16],
        feed_forward_size=64,
        lsh_attn_chunk_length=8,
        local_attn_chunk_length=8,
        **BERT,
    )
    with pytest.raises(BadInput):
        split_model(module, "toy")


def test_longrope_is_measured_as_far_as_it_numbers_positions_alike(model_of: ModelOf) -> None:
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    rope["original_max_position_embeddings"] = 64
    module = model_of("phi3", head_dim=None, rope_parameters=rope, original_max_position_embeddings=64)
    assert split_model(module, "toy").max_length == 64
    assert max_sequence_length(model_of("phi3", head_dim=None).config) == 256


Llama: Any = transformers.LlamaForCausalLM


class Mixed(Llama):  # type: ignore[misc]
    """Adds to the logits of each token the logits of the token before it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits = output.logits + output.logits.roll(1, dims=1)
        return output


class Masked(Llama):  # type: ignore[misc]
    """Rules out entries of its vocabulary, as models that draw images do."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits[:, :, [5, 7]] = -1e9
        return output


class Scaled(Llama):  # type: ignore[misc]
    """Multiplies its logits by a number that its config does not name."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits = output.logits * 1.01
        return output


@pytest.mark.parametrize("kind", [Mixed, Masked, Scaled])
def test_undeclared_changes_of_logits_are_refused(kind: Any, shape: dict[str, Any]) -> None:
    torch.manual_seed(0)
    with pytest.raises(BadInput, match="its logits are not its hidden states times its head"):
        split_model(kind(transformers.LlamaConfig(**shape)), "toy")


SCALED: dict[str, tuple[dict[str, Any], float, float | None]] = {
    "cohere": ({}, 0.0625, None),
    "granite": ({"logits_scaling": 2.0}, 0.5, None),
    "hyperclovax": ({"logits_scaling": 0.25}, 0.25, None),
    "gemma2": ({}, 1.0, 30.0),
    "recurrent_gemma": ({"lru_width": 32, "head_dim": None}, 1.0, 30.0),
    "llama": ({"logits_scaling": 2.0, "logit_scale": 0.5}, 1.0, None),  # named in vain
}


@pytest.mark.parametrize("kind", SCALED)
def test_scale_and_softcap_are_the_models(kind: str, model_of: ModelOf) -> None:
    changes, scale, softcap = SCALED[kind]
    head = split_model(model_of(kind, **changes), kind).head
    assert (head.scale, head.softcap) == (scale, softcap)


def test_large_logits_are_capped_as_the_model_caps_them(model_of: ModelOf) -> None:
    module = model_of("gemma2", final_logit_softcapping=3.0)
    with torch.no_grad():
        module.get_input_embeddings().weight.mul_(50)
    model = split_model(module, "toy")
    tokens = torch.arange(20)[None]
    with torch.inference_mode():
        ours = model.head.logits(model.backbone(tokens)[0])
        torch.testing.assert_close(ours, module(tokens).logits[0], rtol=1e-4, atol=1e-4)
    assert ours.abs().max() > 2


def test_a_head_with_an_adapter_says_how_to_merge_it(model_of: ModelOf) -> None:
    module = model_of("llama")
    module.lm_head.base_layer = torch.nn.Linear(32, ROWS)  # as peft wraps a layer
    with pytest.raises(BadInput, match=r"merge_and_unload\(\)"):
        split_model(module, "toy")


def test_a_borrowed_model_is_given_back(model_of: ModelOf) -> None:
    module = model_of("llama").train()
    module.model.layers[0].eval()

    def own(*args: Any, **kwargs: Any) -> None: ...

    def wrapped(*args: Any, **kwargs: Any) -> None: ...

    module._original_forward = own
    module.forward = wrapped
    modes = [part.training for part in module.modules()]

    def interrupted() -> None:
        with evaluation_mode(module):
            assert module.forward is own
            assert not any(part.training for part in module.modules())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert module.forward is wrapped
    assert [part.training for part in module.modules()] == modes


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="torch has one name for it")
@pytest.mark.parametrize("newer", [False, True])
def test_a_borrowed_model_is_measured_in_float32_whatever_was_chosen(newer: bool, model_of: ModelOf) -> None:
    products: Any = torch.backends.cuda.matmul
    before = products.fp32_precision
    convolutions = torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cudnn.allow_tf32 = True
        if newer:
            products.fp32_precision = "tf32"
        else:
            torch.set_float32_matmul_precision("medium")
        with evaluation_mode(model_of("llama")):
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cudnn.allow_tf32
        assert products.fp32_precision == "tf32"
        assert newer or torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.cudnn.allow_tf32
    finally:
        torch.set_float32_matmul_precision("highest")
        products.fp32_precision = before
        torch.backends.cudnn.allow_tf32 = convolutions


def test_a_corpus_must_fit_the_model(model_of: ModelOf) -> None:
    model = split_model(model_of("llama"), "toy")
    model.check_corpus(longest=256, largest_target=ROWS - 1)
    for longest, target in ((257, 0), (5, ROWS)):
        with pytest.raises(BadInput):
            model.check_corpus(longest=longest, largest_target=target)
