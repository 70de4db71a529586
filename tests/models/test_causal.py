"""Tests of `split_model`, `evaluation_mode` and `check_corpus`.

`split_model` refuses a model if rbptrack would compute wrong ranks for it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from rbptrack.base.errors import BadInput
from rbptrack.models.architecture import max_sequence_length
from rbptrack.models.evaluation import evaluation_mode
from rbptrack.models.splitting import split_model
from tests.models.conftest import ModelOf
from tests.tiny_models import HEAD_ROWS

WITHOUT_LLAMA_KEYS: dict[str, Any] = {"num_key_value_heads": None, "head_dim": None}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("llama", {"is_causal": False}),
        ("gemma3_text", {"use_bidirectional_attention": True}),
        ("bert-generation", WITHOUT_LLAMA_KEYS),
        ("bert", WITHOUT_LLAMA_KEYS),
        ("xlm", {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "n_words": HEAD_ROWS, **WITHOUT_LLAMA_KEYS}),
        (
            "xlnet",
            {
                "d_model": 32,
                "n_layer": 2,
                "n_head": 4,
                "d_inner": 64,
                "max_position_embeddings": None,
                **WITHOUT_LLAMA_KEYS,
            },
        ),
    ],
)
def test_split_model_refuses_a_model_that_reads_later_tokens(
    kind: str, changes: dict[str, Any], model_of: ModelOf
) -> None:
    module = model_of(kind, **changes).to(torch.bfloat16 if kind == "llama" else torch.float32)
    with pytest.raises(BadInput, match="later tokens") as caught:
        split_model(module, "toy")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["llama", "mixtral", "gemma3_text"])
def test_split_model_accepts_a_causal_model(kind: str, dtype: torch.dtype, model_of: ModelOf) -> None:
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2} if kind == "mixtral" else {}
    assert split_model(model_of(kind, **experts).to(dtype), "toy").vocab_size == HEAD_ROWS


def test_split_model_refuses_a_model_if_its_states_depend_on_other_sequences_of_the_batch(model_of: ModelOf) -> None:
    """Reformer pads every batch to whole chunks, and the padding changes which tokens attend to each other."""
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
        **WITHOUT_LLAMA_KEYS,
    )
    with pytest.raises(BadInput):
        split_model(module, "toy")


def test_split_model_limits_a_longrope_model_to_its_original_length(model_of: ModelOf) -> None:
    """In a longer sequence, longrope would use other factors for all tokens."""
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    rope["original_max_position_embeddings"] = 64
    module = model_of("phi3", head_dim=None, rope_parameters=rope, original_max_position_embeddings=64)
    assert split_model(module, "toy").max_length == 64
    assert max_sequence_length(model_of("phi3", head_dim=None).config) == 256


Llama: Any = transformers.LlamaForCausalLM


class LogitsOfTwoTokens(Llama):  # type: ignore[misc]
    """Adds to the logits of each token the logits of the token before it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits = output.logits + output.logits.roll(1, dims=1)
        return output


class MaskedLogits(Llama):  # type: ignore[misc]
    """Sets the probability of two entries of the vocabulary to 0, as models that generate images do."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits[:, :, [5, 7]] = -1e9
        return output


class ScaledLogits(Llama):  # type: ignore[misc]
    """Multiplies its logits by a number that its config does not contain."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits = output.logits * 1.01
        return output


@pytest.mark.parametrize("model_class", [LogitsOfTwoTokens, MaskedLogits, ScaledLogits])
def test_split_model_refuses_logits_that_differ_from_hidden_states_times_head(
    model_class: Any, shape: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    with pytest.raises(BadInput, match="its logits are not its hidden states times its head"):
        split_model(model_class(transformers.LlamaConfig(**shape)), "toy")


@pytest.mark.parametrize(
    ("kind", "changes", "scale", "softcap"),
    [
        ("cohere", {}, 0.0625, None),
        ("granite", {"logits_scaling": 2.0}, 0.5, None),
        ("hyperclovax", {"logits_scaling": 0.25}, 0.25, None),
        ("gemma2", {}, 1.0, 30.0),
        ("recurrent_gemma", {"lru_width": 32, "head_dim": None}, 1.0, 30.0),
        ("llama", {"logits_scaling": 2.0, "logit_scale": 0.5}, 1.0, None),  # Llama ignores these keys
    ],
)
def test_split_model_finds_scale_and_softcap_of_the_logits(
    kind: str, changes: dict[str, Any], scale: float, softcap: float | None, model_of: ModelOf
) -> None:
    head = split_model(model_of(kind, **changes), kind).head
    assert (head.scale, head.softcap) == (scale, softcap)


def test_head_caps_large_logits_as_the_model_does(model_of: ModelOf) -> None:
    module = model_of("gemma2", final_logit_softcapping=3.0)
    with torch.no_grad():
        module.get_input_embeddings().weight.mul_(50)
    model = split_model(module, "toy")
    tokens = torch.arange(20)[None]
    with torch.inference_mode():
        logits = model.head.logits(model.backbone(tokens)[0])
        torch.testing.assert_close(logits, module(tokens).logits[0], rtol=1e-4, atol=1e-4)
    assert logits.abs().max() > 2  # near the cap of 3


def test_split_model_refuses_a_head_with_an_adapter_and_says_how_to_merge_it(model_of: ModelOf) -> None:
    module = model_of("llama")
    module.lm_head.base_layer = torch.nn.Linear(32, HEAD_ROWS)  # peft gives this attribute to a layer with an adapter
    with pytest.raises(BadInput, match=r"merge_and_unload\(\)"):
        split_model(module, "toy")


def test_evaluation_mode_restores_forward_and_training_modes_after_an_interrupt(model_of: ModelOf) -> None:
    """accelerate wraps `forward` for mixed precision, and keeps the original in `_original_forward`."""
    module = model_of("llama").train()
    module.model.layers[0].eval()

    def original_forward(*args: Any, **kwargs: Any) -> None: ...

    def wrapped_forward(*args: Any, **kwargs: Any) -> None: ...

    module._original_forward = original_forward
    module.forward = wrapped_forward
    modes = [part.training for part in module.modules()]

    def interrupt() -> None:
        with evaluation_mode(module):
            assert module.forward is original_forward
            assert not any(part.training for part in module.modules())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert module.forward is wrapped_forward
    assert [part.training for part in module.modules()] == modes


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="this torch has no setting fp32_precision"
)
@pytest.mark.parametrize("setting", ["set_float32_matmul_precision", "fp32_precision"])
def test_evaluation_mode_multiplies_in_float32_and_restores_the_settings_of_the_user(
    setting: str, model_of: ModelOf
) -> None:
    """torch has an older and a newer setting for TF32. Either may have been chosen."""
    newer = setting == "fp32_precision"
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


def test_check_corpus_accepts_the_longest_allowed_sequence_and_the_largest_token_id(model_of: ModelOf) -> None:
    model = split_model(model_of("llama"), "toy")
    model.check_corpus(longest=256, largest_target=HEAD_ROWS - 1)


@pytest.mark.parametrize(("longest", "largest_target"), [(257, 0), (5, HEAD_ROWS)])
def test_check_corpus_refuses_longer_sequences_and_larger_token_ids(
    longest: int, largest_target: int, model_of: ModelOf
) -> None:
    model = split_model(model_of("llama"), "toy")
    with pytest.raises(BadInput):
        model.check_corpus(longest=longest, largest_target=largest_target)
