"""A causal language model split into backbone and head, with a check that both together give its logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from rbptrack.base.errors import BadInput, first_line
from rbptrack.models.architecture import longest_sequence, parameters, text_config, vocab_size
from rbptrack.models.backbone import Backbone, Unmeasurable
from rbptrack.models.device import float32_products, is_spread, out_of_memory, resident
from rbptrack.models.head import head_of
from rbptrack.models.probe import check_head, check_states, probes, refused
from rbptrack.models.quantised import is_matrix, method_of, stored_as
from rbptrack.scoring.head import Head

_FAILURES = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, AssertionError, ImportError)
_NO_HEAD = "it has no output embeddings, so it predicts no tokens"


@dataclass(frozen=True)
class Reference:
    """A second model that reads the measured model's tokens. Its distributions are compared to that model's.

    Attributes:
        name: `pythia-12b`.
        model: on the device of the model that is measured.
        entries: the first so many rows of both heads are compared: those that the tokenizer can name.

    """

    name: str
    model: CausalModel
    entries: int


@dataclass(frozen=True)
class CausalModel:
    """A loaded model, split where the vocabulary begins.

    Attributes:
        backbone: token ids (batch, length), padded on the right, to hidden states (batch, length, width).
        head: hidden states to logits.
        whole: token ids to full logits (batch, length, vocabulary), as the model itself computes them, for checks.
        device: the device of the head.
        non_embedding_params: S.
        total_params: every parameter, tied ones once.
        widest: the largest number of features that one of the backbone's layers writes.
        heads: attention heads whose weights are all in memory at once (attention=eager); 0 otherwise.
        spread: whether accelerate moves weights or activations between devices while the model runs.
        weights: how its weights were stored: empty as published, else `Q4_K_M`, `int8 torchao` and the like.
        longest: the most tokens of a sequence for which its numbers hold, or None.
        notes: what the user should know of how it is measured.
        reference: another model, to which it is compared while it is measured.

    """

    backbone: Callable[[Tensor], Tensor]
    head: Head
    whole: Callable[[Tensor], Tensor]
    device: torch.device
    non_embedding_params: int
    total_params: int
    widest: int
    heads: int
    spread: bool
    weights: str = ""
    longest: int | None = None
    notes: tuple[str, ...] = ()
    reference: Reference | None = None

    @property
    def vocab_size(self) -> int:
        """|V|: rows of the head, padding rows included."""
        return self.head.vocab_size

    @property
    def largest_params(self) -> int:
        """Parameters of the model, or of its reference where that is larger."""
        other = self.reference.model.total_params if self.reference else 0
        return max(self.total_params, other)

    @property
    def logits_per_token(self) -> int:
        """Logits in memory for each token: |V|, plus the reference's."""
        other = self.reference.model.vocab_size if self.reference else 0
        return self.vocab_size + other

    def activation_bytes(self, length: int) -> int:
        """Estimate the bytes that the backbone's activations take per token, in sequences of a length."""
        width = self.head.weight.shape[1]
        size = self.head.weight.element_size()
        other = self.reference.model.activation_bytes(length) if self.reference else 0
        return max(other, int(size * (12 * width + 4 * self.widest + 3 * self.heads * length)))

    def check_corpus(self, *, longest: int, largest_target: int) -> None:
        """Refuse sequences longer than the model's limit, and targets that its head has no row for.

        Args:
            longest: tokens of the longest sequence.
            largest_target: the largest token id that is scored.

        """
        if self.longest is not None and longest > self.longest:
            raise BadInput(f"the model reads at most {self.longest} tokens at a time, a sequence has {longest}")
        if largest_target >= self.vocab_size:
            raise BadInput(
                f"a text holds token {largest_target}, but the head ranks {self.vocab_size} entries only: "
                "the tokenizer is not this model's"
            )
        if self.reference is None:
            return
        try:
            self.reference.model.check_corpus(longest=longest, largest_target=largest_target)
        except BadInput as error:
            raise BadInput(f"reference {self.reference.name}: {error}") from error


def of_module(module: Any, name: str, *, candidates: int | None = None) -> CausalModel:
    """Split a loaded transformers causal LM where the vocabulary begins, in evaluation mode, and check the parts.

    Args:
        module: the model.
        name: names it in errors.
        candidates: rank targets among the first so many rows of the head; None: all.

    Raises:
        BadInput: the model does not read text alone, is not causal, or does something that the split misses.

    """
    module.eval()
    try:
        draws = _probe_tokens(module)
        with torch.no_grad():
            backbone, head, states, whole = _split(module, draws[0][:1], candidates=candidates)
            check_states(name, lambda tokens: _by_model(backbone, tokens), iter(draws))
            ours = head.logits(states.flip(0))  # (tokens, vocabulary): each token's from its state alone
    except Unmeasurable as error:
        raise refused(name, str(error)) from error
    worst, allowed = check_head(name, ours, whole.flip(0), dtype=head.weight.dtype)
    model = _described(module, backbone, head)
    if head.product is None:
        return model
    within = f"at load within {worst:.1g} of the whole model's ({allowed:g} is allowed)"
    return replace(model, notes=(*model.notes, f"its head is quantised: logits are its module's own, {within}"))


@contextmanager
def borrowed(module: Any) -> Iterator[None]:
    """Hold somebody else's model in evaluation mode, in the precision of its weights, and give it back as it was.

    A part that is frozen is often in evaluation mode within a model that trains. accelerate wraps the forward pass of a
    model that it trains in mixed precision into autocast; meanwhile its own is called. Nor is TF32 used where the
    process has chosen it, as Trainer does with tf32=True: what is measured is called float32.
    """
    modes = [(part, part.training) for part in module.modules()]
    # RWKV divides its weights by powers of two before it evaluates, and multiplies them before it trains.
    multiplied = [part for part in module.modules() if getattr(part, "layers_are_rescaled", None) is False]
    wrapped = vars(module).get("forward")
    own = vars(module).get("_original_forward")
    try:
        module.eval()
        if wrapped is not None and own is not None:
            module.forward = own
        device = next(module.parameters()).device.type
        with torch.autocast(device, enabled=False), float32_products():
            yield
    finally:
        if wrapped is not None and own is not None:
            module.forward = wrapped
        for part in multiplied:
            part.training = True
            part._rescale_layers()
        for part, training in modes:
            part.training = training


def _readers(module: Any) -> list[Any]:
    """The model, then the language models within it, which read text where the model itself asks for an image."""
    from transformers import PreTrainedModel

    parts: list[Any] = [part for part in module.modules() if isinstance(part, PreTrainedModel)]
    return [part for part in parts if part is module or part.get_output_embeddings() is not None]


def _split(module: Any, tokens: Tensor, *, candidates: int | None) -> tuple[Backbone, Head, Tensor, Tensor]:
    """Split the first part of a model that reads text.

    Returns backbone and head; and of token ids (1, length), all but the last: what the backbone gives the head,
    (length - 1, width), and the model's own logits, (length - 1, rows of the head).
    """
    failure: Unmeasurable | None = None
    for part in _readers(module):
        try:
            output = part.get_output_embeddings()
            if not hasattr(output, "weight"):
                raise Unmeasurable(_NO_HEAD)
            backbone = Backbone(part, output)
            whole = _by_model(backbone.whole, tokens)[0, :-1]
            states = _by_model(backbone, tokens)[0, :-1]
        except Unmeasurable as error:
            failure = failure or error
            continue
        head = head_of(output, module.config, states, whole, candidates=candidates)
        device = head.weight.device
        return backbone, head, states.to(device), whole[:, : head.vocab_size].to(device)
    raise failure or Unmeasurable("it is not a model of transformers")


def _by_model(run: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
    """What a model makes of token ids. Whatever its code raises says why it cannot be measured."""
    try:
        output = run(tokens)
    except _FAILURES as error:
        if out_of_memory(error):
            raise
        why = f"its forward pass fails on plain token ids ({type(error).__name__}: {first_line(error)})"
        raise Unmeasurable(why) from error
    if not isinstance(output, Tensor):
        raise Unmeasurable("its forward pass gives no logits")
    return output


def _probe_tokens(module: Any) -> list[Tensor]:
    """Token ids (2, length) for a few probes, on the head's device."""
    outputs = [part.get_output_embeddings() for part in _readers(module)]
    weights = [resident(output, "weight") for output in outputs if output is not None]
    weight = next((weight for weight in weights if weight is not None), None)
    if weight is None:
        raise Unmeasurable(_NO_HEAD)
    rows = vocab_size(module.config)
    if is_matrix(weight):
        rows = min(rows, weight.shape[0])
    count = sum(p.numel() for p in module.parameters())
    draws = probes(module.config, rows=rows, parameters=count, longest=longest_sequence(module.config))
    return [tokens.to(weight.device) for tokens in draws]


def _described(module: Any, backbone: Backbone, head: Head) -> CausalModel:
    """The split model with its counts."""
    built = _counted(module)
    counts = parameters(built)
    eager = module.config._attn_implementation == "eager"
    apart = {part.get_output_embeddings() for part in _readers(built)}
    layers = [part for part in built.modules() if not isinstance(part, nn.Embedding) and part not in apart]
    weights = [weight for layer in layers for weight in layer.parameters(recurse=False) if weight.ndim]
    return CausalModel(
        backbone=backbone,
        head=head,
        whole=backbone.whole,
        device=head.weight.device,
        non_embedding_params=counts.non_embedding,
        total_params=counts.total,
        widest=max(max(weight.shape[:-1] or weight.shape) for weight in weights),  # a row for each written feature
        heads=getattr(text_config(module.config), "num_attention_heads", 0) if eager else 0,
        spread=is_spread(module),
        weights=stored_as(module.config),
        longest=longest_sequence(module.config),
        notes=counts.notes,
    )


def _counted(module: nn.Module) -> nn.Module:
    """The module whose parameters are counted; a copy without weights, where they are not what they were.

    accelerate takes tied ones apart, quantisations pack several into one.
    """
    if not is_spread(module) and not method_of(module.config):
        return module
    with torch.device("meta"):
        return type(module)(module.config)
