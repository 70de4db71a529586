"""Splits a causal language model into backbone and head, and checks that together they give the model's logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from rbptrack.base.errors import BadInput, first_line
from rbptrack.models.architecture import max_sequence_length, text_config, vocab_size
from rbptrack.models.backbone import Backbone, Unmeasurable
from rbptrack.models.device import float32_products, is_out_of_memory, is_spread, parameter_on_device
from rbptrack.models.head import read_head
from rbptrack.models.parameters import count_module_parameters
from rbptrack.models.probe import check_head, check_states, draw_probes, unmeasurable_error
from rbptrack.models.quantised import describe_quantisation, is_matrix, quantisation_method
from rbptrack.scoring.head import Head

# What the code of a model raises if it cannot run on plain token ids.
_FAILURES = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, AssertionError, ImportError)
_NO_HEAD = "it has no output embeddings, so it does not predict tokens"


@dataclass(frozen=True)
class Reference:
    """A second model that reads the measured model's tokens. The distributions of both models are compared.

    Attributes:
        name: the name of the second model, such as `pythia-12b`.
        model: the second model, on the device of the measured model.
        entries: the number of vocabulary entries that are compared. They are the first rows of both heads, up to the
            tokenizer's largest id.

    """

    name: str
    model: CausalModel
    entries: int


@dataclass(frozen=True)
class CausalModel:
    """A loaded model, split into backbone and output head.

    Attributes:
        backbone: computes hidden states (batch, length, width) of token ids (batch, length), padded on the right.
        head: computes logits of hidden states.
        device: the device of the head.
        non_embedding_params: S, the number of parameters without embeddings and output head.
        total_params: the number of all parameters. Tied parameters count once.
        largest_width: the largest number of features that one of the backbone's layers writes.
        attention_heads: the number of attention heads if attention weights are held in memory (attention=eager),
            otherwise 0.
        is_spread: whether accelerate moves weights or activations between devices while the model runs.
        architecture: the model type of transformers, such as `gpt_neox`.
        quantisation: how the stored weights are quantised, such as `Q4_K_M` or `int8 torchao`. Empty if not quantised.
        max_length: the maximum length of a sequence in tokens, or None if the model sets no limit.
        notes: notes for the user on how the model is measured.
        reference: a second model to compare with while this model is measured, or None.

    """

    backbone: Backbone
    head: Head
    device: torch.device
    non_embedding_params: int
    total_params: int
    largest_width: int
    attention_heads: int
    is_spread: bool
    architecture: str = ""
    quantisation: str = ""
    max_length: int | None = None
    notes: tuple[str, ...] = ()
    reference: Reference | None = None

    @property
    def vocab_size(self) -> int:
        """|V|, the number of rows of the head. Padding rows count."""
        return self.head.vocab_size

    @property
    def largest_params(self) -> int:
        """The number of parameters of the model or of its reference, whichever is larger."""
        reference_params = self.reference.model.total_params if self.reference else 0
        return max(self.total_params, reference_params)

    @property
    def logits_per_token(self) -> int:
        """The number of logits that are in memory for each token: |V| of the model plus |V| of its reference."""
        reference_logits = self.reference.model.vocab_size if self.reference else 0
        return self.vocab_size + reference_logits

    def activation_bytes(self, length: int) -> int:
        """Estimate the bytes per token that the backbone's activations take in sequences of `length` tokens.

        If there is a reference, the larger of the two models' estimates is returned.
        """
        width = self.head.weight.shape[1]
        numbers = 12 * width + 4 * self.largest_width + 3 * self.attention_heads * length
        reference_bytes = self.reference.model.activation_bytes(length) if self.reference else 0
        return max(reference_bytes, self.head.weight.element_size() * numbers)

    def check_corpus(self, *, longest: int, largest_target: int) -> None:
        """Check that the model and its reference can read the longest sequence, and have a head row for every target.

        Args:
            longest: the number of tokens of the longest sequence.
            largest_target: the largest token id that is scored.

        Raises:
            BadInput: the sequence is too long, or the head has no row for the target.

        """
        if self.max_length is not None and longest > self.max_length:
            raise BadInput(f"the model reads at most {self.max_length} tokens at a time, but a sequence has {longest}")
        if largest_target >= self.vocab_size:
            raise BadInput(
                f"a text holds token {largest_target}, but the head ranks {self.vocab_size} entries only: "
                "the tokenizer belongs to another model"
            )
        if self.reference is None:
            return
        try:
            self.reference.model.check_corpus(longest=longest, largest_target=largest_target)
        except BadInput as error:
            raise BadInput(f"reference {self.reference.name}: {error}") from error


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


@contextmanager
def evaluation_mode(module: Any) -> Iterator[None]:
    """Set a caller's model to evaluation mode and full precision for a block. Restore every setting afterwards.

    Within the block the model computes in the precision of its weights. Autocast is off, including the autocast that
    accelerate wraps around the forward pass of a model that it trains in mixed precision. TF32 is off even if the
    process has switched it on (Trainer does this with tf32=True), because the measurement is recorded as float32.

    Each part gets its own mode back: a frozen part is often in evaluation mode within a model that trains.
    """
    modes = [(part, part.training) for part in module.modules()]
    # RWKV divides its weights by powers of two before it evaluates, and multiplies them before it trains.
    rwkv_parts = [part for part in module.modules() if getattr(part, "layers_are_rescaled", None) is False]
    # accelerate replaces `forward` by a wrapper, and keeps the model's own function as `_original_forward`.
    wrapped_forward = vars(module).get("forward")
    original_forward = vars(module).get("_original_forward")
    is_wrapped = wrapped_forward is not None and original_forward is not None
    try:
        module.eval()
        if is_wrapped:
            module.forward = original_forward
        device = next(module.parameters()).device.type
        with torch.autocast(device, enabled=False), float32_products():
            yield
    finally:
        if is_wrapped:
            module.forward = wrapped_forward
        for part in rwkv_parts:
            part.training = True
            part._rescale_layers()
        for part, training in modes:
            part.training = training


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
