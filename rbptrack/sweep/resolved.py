"""What one cell measures: pinned and checked, its model and texts loaded when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rbptrack.config.schema import DatasetConfig, Dtype, EngineConfig, ModelConfig
from rbptrack.models.parameters import Parameters
from rbptrack.sources.pin import Source
from rbptrack.tracking.groups import DocumentGroups

if TYPE_CHECKING:  # torch, transformers and datasets load only where a model runs
    from transformers import PreTrainedTokenizerBase

    from rbptrack.corpus.sequences import Corpus
    from rbptrack.models.causal import CausalModel
    from rbptrack.sweep.resolve import Resolver


@dataclass(frozen=True)
class ResolvedReference:
    """A cell's reference, pinned and checked."""

    model: ModelConfig
    weights: Source
    candidates: int  # how many rows of its head are there
    entries: int  # how many of both heads' first rows are compared

    @property
    def title(self) -> str:
        """Its name, with its precision where that is not float32: `pythia-1b bfloat16`."""
        return self.model.name + ("" if self.model.dtype is Dtype.float32 else f" {self.model.dtype.value}")


@dataclass(frozen=True, eq=False)
class Resolved:
    """What one cell measures, pinned and checked."""

    model: ModelConfig
    weights: Source
    dataset: DatasetConfig
    texts: Source
    candidates: int  # how many rows of the head a target is ranked among
    without: tuple[int, ...]  # rows among them that are left out, because the tokenizer cannot name them
    ks: tuple[int, ...]  # the k that were asked for; those above |V| are left out later
    strict: bool  # whether metrics count strict ranks
    engine: EngineConfig  # batch and chunk sizes; they change no number beyond float32 rounding
    fingerprint: str  # hash of everything that determines the measurement's numbers
    reference: ResolvedReference | None
    template: str  # hash of the chat template, where one is asked for
    _resolver: Resolver = field(repr=False)

    @property
    def architecture(self) -> Any:
        """The model's transformers config."""
        return self._resolver.parts(self.model)[0]

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's own, or the one that `model.tokenizer` names."""
        return self._resolver.parts(self.model)[1]

    def load_corpus(self) -> Corpus:
        """Return the dataset as sequences of this model's tokens."""
        from rbptrack.corpus.chat import template_of
        from rbptrack.corpus.sequences import load_corpus

        wanted = self.dataset.chat
        template = template_of(self.model.chat_template, self.tokenizer, self.model.name) if wanted else ""
        return load_corpus(self.dataset, self.texts, self.tokenizer, template)

    def load_groups(self) -> DocumentGroups | None:
        """Return the source of each document, read from the texts again; None where `dataset.group` names no field."""
        return self._resolver.groups(self) if self.dataset.group else None

    def load_model(self) -> CausalModel:
        """Return the model on its device; the cell before may have loaded it already."""
        return self._resolver.loaded(self)

    @property
    def pinned(self) -> list[tuple[tuple[str, ...], Source]]:
        """What the names of its sweep's cells stand for on the hub."""
        return self._resolver.pinned

    @property
    def parts(self) -> list[Resolved]:
        """The cell, and with a reference the cell that measures that: what both cost together."""
        if self.reference is None:
            return [self]
        other = self.reference
        own = replace(self, reference=None)
        return [own, replace(own, model=other.model, weights=other.weights)]

    def remembered_size(self, compute: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
        """Return the size of the work, where it was computed before or can be now."""
        return self._resolver.remembered_size(self, compute)

    def note_size(self, size: dict[str, Any]) -> None:
        """Take note of the size of these texts as the store knows it, for all cells with this tokenizer."""
        self._resolver.note_size(self, size)

    def count_parameters(self) -> Parameters:
        """Return the model's parameters, counted from the architecture without weights."""
        return self._resolver.counted(self)
