"""A cell's config resolved once: what it names is pinned, loaded as far as it goes without weights, and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rbptrack.config.schema import (
    CellConfig,
    DatasetConfig,
    EngineConfig,
    ModelConfig,
    Parallel,
    Rank,
    SequenceRule,
)
from rbptrack.corpus.documents import load_documents, texts_hash
from rbptrack.sources.pin import Source, of_dataset, of_model, of_tokenizer
from rbptrack.sweep.identity import identity
from rbptrack.tracking.groups import DocumentGroups

if TYPE_CHECKING:  # torch, transformers and datasets load only where a model runs
    from transformers import PreTrainedTokenizerBase

    from rbptrack.corpus.sequences import Corpus
    from rbptrack.models.architecture import Parameters
    from rbptrack.models.causal import CausalModel


@dataclass(frozen=True, eq=False)
class Resolved:
    """What one cell measures, pinned and checked.

    Attributes:
        model: the model's name and how its weights are loaded.
        weights: the model's pinned weights.
        dataset: the dataset's name, how its texts are selected and how they become sequences.
        texts: the pinned dataset.
        architecture: the model's transformers config.
        tokenizer: the model's own, or the one that `model.tokenizer` names.
        candidates: how many rows of the head a target is ranked among.
        without: rows among them that are left out, because the tokenizer cannot name them.
        ks: the k that were asked for; those above |V| are left out later.
        strict: whether metrics count strict ranks.
        engine: batch and chunk sizes; they change no number beyond float32 rounding.
        fingerprint: hash of everything that determines the measurement's numbers.

    """

    model: ModelConfig
    weights: Source
    dataset: DatasetConfig
    texts: Source
    architecture: Any
    tokenizer: PreTrainedTokenizerBase
    candidates: int
    without: tuple[int, ...]
    ks: tuple[int, ...]
    strict: bool
    engine: EngineConfig
    fingerprint: str
    _resolver: Resolver = field(repr=False)

    def load_corpus(self) -> Corpus:
        """The dataset as sequences of this model's tokens."""
        from rbptrack.corpus.sequences import load_corpus

        return load_corpus(self.dataset, self.texts, self.tokenizer)

    def load_groups(self) -> DocumentGroups | None:
        """The source of each document, read from the texts again; None where `dataset.group` names no field."""
        if not self.dataset.group:
            return None
        documents = load_documents(self.dataset, self.texts)
        groups = tuple(document.group for document in documents)
        return DocumentGroups(self.dataset.group, tuple(d.id for d in documents), groups, texts_hash(documents))

    def load_model(self) -> CausalModel:
        """The model on its device; the cell before may have loaded it already."""
        return self._resolver.loaded(self)

    def count_parameters(self) -> Parameters:
        """The model's parameters, counted from the architecture without weights."""
        return self._resolver.counted(self)


class Resolver:
    """Resolves cells; what several of them name is pinned, loaded and counted once.

    A sweep has one, each of its jobs elsewhere one of its own.
    """

    def __init__(self) -> None:
        self._sources: dict[tuple[object, ...], Source] = {}
        self._architectures: dict[tuple[str, str], tuple[Any, PreTrainedTokenizerBase]] = {}
        self._counts: dict[str, Parameters] = {}
        self._loaded: dict[tuple[object, ...], CausalModel] = {}

    def resolve(self, config: CellConfig) -> Resolved:
        """Resolve one cell.

        Raises:
            BadInput: a model, tokenizer or dataset is not there or not to be had, a model's folder lacks something, or
                the tokenizer or the length of sequences does not fit the model.

        """
        from rbptrack.models.architecture import candidates, check_fit
        from rbptrack.models.checkpoint import check_folder

        model, dataset = config.model, config.dataset
        weights = self._pinned(("model", model.repo, model.path, model.revision), lambda: of_model(model))
        texts = self._pinned(
            ("dataset", dataset.repo, dataset.path, dataset.revision, *dataset.files), lambda: of_dataset(dataset)
        )
        tokenizer_source = self._pinned(
            ("tokenizer", model.tokenizer, weights.identity, weights.location), lambda: of_tokenizer(model, weights)
        )
        if model.path:
            check_folder(model)
        architecture, tokenizer = self._load(weights, tokenizer_source)
        check_fit(model.name, architecture, tokenizer, dataset.seq_len)
        if model.parallel is not Parallel.none or model.processes:
            from rbptrack.models.split_plan import check

            check(model, architecture)
        rows, without = candidates(architecture, tokenizer, config.candidates)
        return Resolved(
            model=model,
            weights=weights,
            dataset=dataset,
            texts=texts,
            architecture=architecture,
            tokenizer=tokenizer,
            candidates=rows,
            without=without,
            ks=tuple(config.k.values),
            strict=config.rank is Rank.strict,
            engine=config.engine,
            fingerprint=_fingerprint(config, weights, texts, tokenizer_source, tokenizer, holes=bool(without)),
            _resolver=self,
        )

    def loaded(self, cell: Resolved) -> CausalModel:
        """A cell's model on its device; the last one is kept, because the next cell often asks for the same."""
        from rbptrack.models.loading import load_model

        # every option of loading is in the model's config
        key = (cell.weights, repr(cell.model), cell.candidates, cell.without)
        kept = self._loaded.get(key)
        if kept is None or (kept.group is not None and kept.group.over):
            self._loaded.clear()  # before loading: two models need not fit
            self._loaded[key] = load_model(cell.model, cell.weights, candidates=cell.candidates, without=cell.without)
        return self._loaded[key]

    def counted(self, cell: Resolved) -> Parameters:
        """A cell's counts of parameters."""
        from rbptrack.models.architecture import count_parameters

        if cell.weights.identity not in self._counts:
            self._counts[cell.weights.identity] = count_parameters(cell.architecture)
        return self._counts[cell.weights.identity]

    def _pinned(self, key: tuple[object, ...], pin: Callable[[], Source]) -> Source:
        if key not in self._sources:
            self._sources[key] = pin()
        return self._sources[key]

    def _load(self, weights: Source, tokenizer_source: Source) -> tuple[Any, PreTrainedTokenizerBase]:
        from rbptrack.models.architecture import load_config, load_tokenizer

        key = (weights.identity, tokenizer_source.identity)
        if key not in self._architectures:
            self._architectures[key] = load_config(weights), load_tokenizer(tokenizer_source)
        return self._architectures[key]


def _fingerprint(
    config: CellConfig,
    weights: Source,
    texts: Source,
    tokenizer_source: Source,
    tokenizer: PreTrainedTokenizerBase,
    *,
    holes: bool,
) -> str:
    prefix: list[int] | None = None
    if config.dataset.sequence is SequenceRule.slide:
        from rbptrack.corpus.sequences import prefix_of_first_version, text_prefix

        now = text_prefix(tokenizer).tolist()
        prefix = now if now != prefix_of_first_version(tokenizer).tolist() else None
    return identity(config, weights.identity, texts, tokenizer_source.identity, prefix, holes=holes)
