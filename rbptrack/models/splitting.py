"""Split a causal language model into backbone and head, and check that together they give the model's logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rbptrack.base.errors import first_line
from rbptrack.models.architecture import max_sequence_length, text_config, vocab_size
from rbptrack.models.backbone import Backbone, Unmeasurable
from rbptrack.models.causal import CausalModel
from rbptrack.models.device import is_out_of_memory, is_spread, parameter_on_device
from rbptrack.models.head import read_head
from rbptrack.models.parameters import count_module_parameters
from rbptrack.models.probe import check_head, check_states, draw_probes, unmeasurable_error
from rbptrack.models.quantised import describe_quantisation, is_matrix, quantisation_method
from rbptrack.scoring.head import Head

# What the code of a model raises if it cannot run on plain token ids.
_FAILURES = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, AssertionError, ImportError)
_NO_HEAD = "it has no output embeddings, so it does not predict tokens"


def split_model(module: Any, name: str, *, num_candidates: int | None = None) -> CausalModel:
    """Split a causal language model of transformers into backbone and head, and check both.

    The module is set to evaluation mode.

    Args:
        module: the loaded model.
        name: the model's name, for error messages.
        num_candidates: the number of head rows, from the first, among which targets are ranked. None means all rows.

    Raises:
        BadInput: the model cannot read text alone, is not causal, or its logits are not states times head.

    """
    module.eval()
    try:
        batches = _probe_batches(module)
        with torch.no_grad():
            backbone, head, states, model_logits = _find_backbone_and_head(
                module, batches[0][:1], num_candidates=num_candidates
            )
            check_states(name, lambda tokens: _run(backbone, tokens), batches)
            # The states are reversed, because each token's logits must depend on its own state alone.
            head_logits = head.logits(states.flip(0))  # (tokens, vocabulary)
    except Unmeasurable as error:
        raise unmeasurable_error(name, str(error)) from error
    difference, allowed = check_head(name, head_logits, model_logits.flip(0), dtype=head.weight.dtype)
    model = _make_causal_model(module, backbone, head)
    if head.product is None:
        return model
    note = (
        "its head is quantised and computes its logits itself; at load they differed from the whole model's by "
        f"{difference:.1g} of the largest logit (at most {allowed:g} is allowed)"
    )
    return replace(model, notes=(*model.notes, note))


def _language_models(module: Any) -> list[Any]:
    """Return the model and then the language models within it.

    An inner language model can read text alone even if the whole model needs an image.
    """
    from transformers import PreTrainedModel

    parts: list[Any] = [part for part in module.modules() if isinstance(part, PreTrainedModel)]
    return [part for part in parts if part is module or part.get_output_embeddings() is not None]


def _find_backbone_and_head(
    module: Any, tokens: Tensor, *, num_candidates: int | None
) -> tuple[Backbone, Head, Tensor, Tensor]:
    """Split a model, or the first of its parts that can read text alone, into backbone and head.

    Args:
        module: the loaded model.
        tokens: token ids (1, length) to run the model on.
        num_candidates: the number of head rows to keep, or None for all.

    Returns:
        The backbone, the head, the hidden states (length - 1, width) and the model's own logits (length - 1, rows of
        the head). The states and logits of the last token are left out.

    """
    first_failure: Unmeasurable | None = None
    for part in _language_models(module):
        try:
            output = part.get_output_embeddings()
            if not hasattr(output, "weight"):
                raise Unmeasurable(_NO_HEAD)
            backbone = Backbone(part, output)
            model_logits = _run(backbone.full_logits, tokens)[0, :-1]
            states = _run(backbone, tokens)[0, :-1]
        except Unmeasurable as error:
            first_failure = first_failure or error
            continue
        head = read_head(output, module.config, states, model_logits, num_candidates=num_candidates)
        device = head.weight.device
        return backbone, head, states.to(device), model_logits[:, : head.vocab_size].to(device)
    raise first_failure or Unmeasurable("it is not a model of transformers")


def _run(model: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
    """Run a model or its backbone on token ids. Raises Unmeasurable with the reason if the model's code fails."""
    try:
        output = model(tokens)
    except _FAILURES as error:
        if is_out_of_memory(error):
            raise
        reason = f"its forward pass fails on plain token ids ({type(error).__name__}: {first_line(error)})"
        raise Unmeasurable(reason) from error
    if not isinstance(output, Tensor):
        raise Unmeasurable("its forward pass does not return logits")
    return output


def _probe_batches(module: Any) -> list[Tensor]:
    """Return three batches of token ids (2, length) on which a model is checked, on the device of its head."""
    outputs = [part.get_output_embeddings() for part in _language_models(module)]
    weights = [parameter_on_device(output, "weight") for output in outputs if output is not None]
    weight = next((weight for weight in weights if weight is not None), None)
    if weight is None:
        raise Unmeasurable(_NO_HEAD)
    rows = vocab_size(module.config)
    if is_matrix(weight):
        rows = min(rows, weight.shape[0])
    parameters = sum(parameter.numel() for parameter in module.parameters())
    batches = draw_probes(
        module.config, rows=rows, parameters=parameters, max_length=max_sequence_length(module.config)
    )
    return [tokens.to(weight.device) for tokens in batches]


def _make_causal_model(module: Any, backbone: Backbone, head: Head) -> CausalModel:
    """Make a `CausalModel` from a backbone and a head. Count parameters, and read limits from the config."""
    countable = _countable_module(module)
    counts = count_module_parameters(countable)
    is_eager = module.config._attn_implementation == "eager"
    heads = {part.get_output_embeddings() for part in _language_models(countable)}
    layers = [part for part in countable.modules() if not isinstance(part, nn.Embedding) and part not in heads]
    weights = [weight for layer in layers for weight in layer.parameters(recurse=False) if weight.ndim]
    return CausalModel(
        architecture=str(getattr(module.config, "model_type", "")),
        backbone=backbone,
        head=head,
        device=head.weight.device,
        non_embedding_params=counts.non_embedding,
        total_params=counts.total,
        largest_width=max(max(weight.shape[:-1] or weight.shape) for weight in weights),  # a row computes one feature
        attention_heads=getattr(text_config(module.config), "num_attention_heads", 0) if is_eager else 0,
        is_spread=is_spread(module),
        quantisation=describe_quantisation(module.config),
        max_length=max_sequence_length(module.config),
        notes=counts.notes,
    )


def _countable_module(module: nn.Module) -> nn.Module:
    """Return the module, or a copy without weights if the module's own parameters cannot be counted.

    accelerate separates tied parameters, and a quantisation packs several numbers into one.
    """
    if not is_spread(module) and not quantisation_method(module.config):
        return module
    with torch.device("meta"):
        return type(module)(module.config)
