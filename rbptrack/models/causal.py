"""A causal language model, split where the vocabulary begins: into backbone and head, which are checked to be it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from rbptrack.base.errors import BadInput, first_line
from rbptrack.models.architecture import longest_sequence, parameters, text_config, vocab_size
from rbptrack.models.backbone import Backbone, Unmeasurable
from rbptrack.models.device import is_spread, resident
from rbptrack.models.head import Recorder, head_of, record
from rbptrack.models.probe import check_head, check_states, probes, refused
from rbptrack.models.quantised import is_matrix, method_of
from rbptrack.scoring.scorer import Head

_FAILED = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, AssertionError, ImportError)


@dataclass(frozen=True)
class Reference:
    """A second model that reads the same tokens in the same pass, to whose distributions a model's are compared.

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
    longest: int | None = None
    notes: tuple[str, ...] = ()
    reference: Reference | None = None

    @property
    def vocab_size(self) -> int:
        """|V|: rows of the head, padding rows included."""
        return self.head.vocab_size

    def check_corpus(self, *, longest: int, largest_target: int) -> None:
        """Raise BadInput where a corpus has sequences longer than the model's limit, or targets that its head has no
        row for.

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
        if self.reference is not None:
            try:
                self.reference.model.check_corpus(longest=longest, largest_target=largest_target)
            except BadInput as error:
                raise BadInput(f"reference {self.reference.name}: {error}") from error

    @property
    def largest_params(self) -> int:
        """Parameters of the model, or of its reference where that is larger."""
        return max(self.total_params, self.reference.model.total_params if self.reference else 0)

    @property
    def logits_per_token(self) -> int:
        """Logits held per token: |V|, plus the reference's."""
        return self.vocab_size + (self.reference.model.vocab_size if self.reference else 0)

    def activation_bytes(self, length: int) -> int:
        """Estimate the bytes that the backbone's activations take per token, in sequences of a length."""
        width = self.head.weight.shape[1]
        size = self.head.weight.element_size()
        other = self.reference.model.activation_bytes(length) if self.reference else 0
        return max(other, int(size * (12 * width + 4 * self.widest + 3 * self.heads * length)))


def of_module(module: Any, name: str, *, candidates: int | None = None) -> CausalModel:
    """Split a loaded transformers causal LM where the vocabulary begins, in evaluation mode, and check the parts.

    Raises:
        BadInput: the model does not read text alone, is not causal, or does something that the split misses.

    """
    module.eval()
    try:
        draws = probe_tokens(module)
        model, whole = _split(module, draws[0][:1], candidates=candidates)
        with torch.inference_mode():
            check_states(name, model.backbone, iter(draws))
            states = model.backbone(draws[0][:1])[0].to(model.head.weight.device)
            ours = model.head.logits(states[:-1].flip(0))  # (tokens, vocabulary): each token's from its state alone
    except Unmeasurable as error:
        raise refused(name, first_line(error)) from error
    except (torch.OutOfMemoryError, BadInput):
        raise
    except _FAILED as error:
        why = f"its forward pass fails on plain token ids ({type(error).__name__}: {first_line(error)})"
        raise refused(name, why) from error
    whole = whole[0, :-1, : model.vocab_size].flip(0).to(ours.device)
    worst, most = check_head(name, ours, whole, dtype=model.head.weight.dtype)
    if model.head.product is None:
        return model
    within = f"at load within {worst:.1g} of the whole model's ({most:g} is allowed)"
    note = f"its head is quantised: logits are its module's own, {within}"
    return replace(model, notes=(*model.notes, note))


def split(module: Any, *, candidates: int | None = None) -> CausalModel:
    """Split a transformers causal LM into backbone and head, the head cut to its first `candidates` rows, unchecked."""
    return _split(module, probe_tokens(module)[0][:1], candidates=candidates)[0]


def _readers(module: Any) -> list[Any]:
    """Return the model, then the language models within it, which read text where the model itself asks for an
    image.
    """
    from transformers import PreTrainedModel

    parts: list[Any] = [part for part in module.modules() if isinstance(part, PreTrainedModel)]
    return [part for part in parts if part is module or part.get_output_embeddings() is not None]


def _recorded(module: Any, tokens: Tensor) -> tuple[Backbone, Any, Tensor, Recorder]:
    """Return the first part of a model that reads text: its backbone, its head, and its logits with how they were
    made.
    """
    failed: Exception | None = None
    for part in _readers(module):
        try:
            output = _output(part)
            backbone = Backbone(part, output)
            with torch.no_grad():
                return backbone, output, *record(output, backbone.whole, tokens)
        except torch.OutOfMemoryError:
            raise
        except (Unmeasurable, *_FAILED) as error:
            failed = failed or error
    assert failed is not None  # noqa: S101  the model itself is the first of its parts
    raise failed


def _output(module: Any) -> Any:
    """Return the model's head, the module that multiplies with the vocabulary."""
    output = module.get_output_embeddings()
    if output is None or not hasattr(output, "weight"):
        raise Unmeasurable("it has no output embeddings, so it predicts no tokens")
    return output


def _weight(part: Any) -> Tensor | None:
    output = part.get_output_embeddings()
    return None if output is None else resident(output, "weight")


def probe_tokens(module: Any) -> list[Tensor]:
    """Return token ids (2, length) for a few probes, on the head's device."""
    weight = next((w for part in _readers(module) if (w := _weight(part)) is not None), None)
    if weight is None:
        raise Unmeasurable("it has no output embeddings, so it predicts no tokens")
    rows = min(vocab_size(module.config), weight.shape[0] if is_matrix(weight) else vocab_size(module.config))
    count = sum(p.numel() for p in module.parameters())
    draws = probes(module.config, rows=rows, parameters=count, longest=longest_sequence(module.config))
    return [tokens.to(weight.device) for tokens in draws]


def _split(module: Any, tokens: Tensor, *, candidates: int | None) -> tuple[CausalModel, Tensor]:
    """Return the split model, and the whole model's logits (1, length, vocabulary) of token ids (1, length)."""
    backbone, output, logits, recorder = _recorded(module, tokens)
    head = head_of(output, logits, recorder, candidates=candidates)
    built = _counted(module)
    counts = parameters(built)
    text = text_config(module.config)
    heads = [part.get_output_embeddings() for part in _readers(built)]
    model = CausalModel(
        backbone=backbone,
        head=head,
        whole=backbone.whole,
        device=head.weight.device,
        non_embedding_params=counts.non_embedding,
        total_params=counts.total,
        widest=max(max(p.shape[:-1] or p.shape) for m in built.modules() for p in _written(m, heads)),
        heads=getattr(text, "num_attention_heads", 0) if module.config._attn_implementation == "eager" else 0,
        spread=is_spread(module),
        longest=longest_sequence(module.config),
        notes=counts.notes,
    )
    return model, logits


def _counted(module: nn.Module) -> nn.Module:
    """Return the module whose parameters are counted; a copy without weights, where they are not what they were.

    accelerate takes tied ones apart, quantisations pack several into one.
    """
    if not is_spread(module) and not method_of(module.config):
        return module
    with torch.device("meta"):
        return type(module)(module.config)


def _written(layer: nn.Module, heads: list[nn.Module]) -> list[Tensor]:
    """Return a layer's own weights, whose rows are the features that it writes; none of embeddings and heads."""
    if isinstance(layer, nn.Embedding) or any(layer is head for head in heads):
        return []
    return [p for p in layer.parameters(False) if p.ndim]
