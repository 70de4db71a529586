"""A cell's config resolved once: what it names is pinned, loaded as far as it goes without weights, and checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from rbptrack.config.schema import (
    Candidates,
    CellConfig,
    DatasetConfig,
    ModelConfig,
    Rank,
    SequenceRule,
)
from rbptrack.corpus.documents import load_documents, only_split, texts_hash
from rbptrack.models.parameters import Parameters
from rbptrack.sources import cache
from rbptrack.sources.fingerprint import fingerprint, own_code
from rbptrack.sources.pin import Source, chat_file, of_dataset, of_model, of_tokenizer
from rbptrack.sweep.identity import identity
from rbptrack.sweep.resolved import Resolved, ResolvedReference
from rbptrack.tracking.groups import DocumentGroups

if TYPE_CHECKING:  # torch, transformers and datasets load only where a model runs
    from transformers import PreTrainedTokenizerBase

    from rbptrack.models.causal import CausalModel

_LIBRARIES = ("transformers", "tokenizers")  # that read what `_Fit` is about


@dataclass(frozen=True)
class _Fit:
    """What a model and its tokenizer come to, once they have been found to fit each other, the texts, the reference."""

    candidates: int
    without: tuple[int, ...]
    prefix: list[int] | None  # of `identity`
    reference: tuple[int, int] | None  # `candidates` and `entries` of the reference
    template: str = ""  # hash of the chat template, where one is asked for


class Resolver:
    """Resolves cells; what several of them name is pinned, loaded and counted once.

    A sweep has one, each of its jobs elsewhere one of its own.

    Args:
        pinned: what another resolver pinned on the hub, by its keys: another request is not needed, and a branch may
            have moved since.

    """

    def __init__(self, pinned: Iterable[tuple[tuple[str, ...], Source]] = ()) -> None:
        self._sources: dict[tuple[str, ...], Source] = dict(pinned)
        self._splits: dict[tuple[str, str], str] = {}
        self._parts: dict[tuple[str, str], tuple[Any, PreTrainedTokenizerBase]] = {}
        self._counts: dict[str, Parameters] = {}
        self._stored_sizes: dict[str, dict[str, Any]] = {}
        self._loaded: dict[tuple[object, ...], CausalModel] = {}
        self._fits: dict[str, _Fit] = {}
        self._groups: dict[str, DocumentGroups] = {}
        self._loaded_references: dict[tuple[object, ...], CausalModel] = {}

    def resolve(self, config: CellConfig) -> Resolved:
        """Resolve one cell.

        Raises:
            BadInput: a model, tokenizer or dataset is not there or not to be had, a model's folder lacks something, or
                the tokenizer or the length of sequences does not fit the model.

        """
        model = config.model
        dataset = config.dataset
        weights = self._weights(model)
        texts = self._pinned(
            ("dataset", dataset.repo, dataset.path, dataset.revision, *dataset.files), lambda: of_dataset(dataset)
        )
        if not dataset.split:
            dataset = replace(dataset, split=self._split(dataset, texts))
            config = replace(config, dataset=dataset)
        other = replace(config.reference, device=model.device) if config.reference else None
        fit = self._fit(config, [model, *([other] if other else [])])
        reference = ResolvedReference(other, self._weights(other), *fit.reference) if other and fit.reference else None
        return Resolved(
            model=model,
            weights=weights,
            dataset=dataset,
            texts=texts,
            candidates=fit.candidates,
            without=fit.without,
            ks=tuple(config.k.values),
            strict=config.rank is Rank.strict,
            engine=config.engine,
            fingerprint=identity(
                config,
                weights.identity,
                texts,
                self._tokenizer(model).identity,
                fit.prefix,
                holes=bool(fit.without),
                reference=reference.weights.identity if reference else "",
                template=fit.template,
            ),
            reference=reference,
            template=fit.template,
            _resolver=self,
        )

    def loaded(self, cell: Resolved) -> CausalModel:
        """Return a cell's model on its device; the last one is kept, because the next cell often asks for the same."""
        from rbptrack.models.causal import Reference

        about = cell.reference
        if about is None:
            self._loaded_references.clear()
            return _load(self._loaded, cell.model, cell.weights, cell.candidates, cell.without)
        model = _load(self._loaded, cell.model, cell.weights, cell.candidates, cell.without)
        other = _load(self._loaded_references, about.model, about.weights, about.candidates, cell.without)
        return replace(model, reference=Reference(about.model.name, other, about.entries))

    def groups(self, cell: Resolved) -> DocumentGroups:
        """Return the source of each document of a cell; kept for the next cell of the same texts."""
        texts = repr((cell.dataset, cell.texts.identity))
        if texts not in self._groups:
            documents = load_documents(cell.dataset, cell.texts)
            ids, groups = (tuple(getattr(document, name) for document in documents) for name in ("id", "group"))
            self._groups = {texts: DocumentGroups(cell.dataset.group, ids, groups, texts_hash(documents))}
        return self._groups[texts]

    def counted(self, cell: Resolved) -> Parameters:
        """Return a cell's counts of parameters."""
        weights = cell.weights.identity
        if weights not in self._counts:
            self._counts[weights] = Parameters(**_remembered(f"parameters of {weights}", lambda: _count(cell)))
        return self._counts[weights]

    def remembered_size(self, cell: Resolved, compute: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
        """Return the size of a cell's texts, where it was computed before or can be now."""
        tokenizer = self._tokenizer(cell.model).identity
        key = repr((cell.dataset, cell.texts.identity, tokenizer, cell.model.chat_template))
        size: dict[str, Any] | None = _remembered(f"size of {key}", compute)
        return size or self._stored_sizes.get(_size_key(cell))

    def note_size(self, cell: Resolved, size: dict[str, Any]) -> None:
        """Take note of the size of a cell's texts as the store knows it."""
        self._stored_sizes[_size_key(cell)] = size

    @property
    def pinned(self) -> list[tuple[tuple[str, ...], Source]]:
        """The pinned files of the hub; local files are looked at again, because they may change."""
        return [(key, source) for key, source in self._sources.items() if source.revision is not None]

    def _split(self, dataset: DatasetConfig, texts: Source) -> str:
        """Return the only split of a dataset."""
        key = (texts.identity, dataset.config)
        if key not in self._splits:
            self._splits[key] = only_split(dataset, texts)
        return self._splits[key]

    def _pinned(self, key: tuple[str, ...], pin: Callable[[], Source]) -> Source:
        if key not in self._sources:
            self._sources[key] = pin()
        return self._sources[key]

    def _weights(self, model: ModelConfig) -> Source:
        return self._pinned(("model", model.repo, model.path, model.gguf, model.revision), lambda: of_model(model))

    def _tokenizer(self, model: ModelConfig) -> Source:
        weights = self._weights(model)
        key = ("tokenizer", model.tokenizer, weights.identity, weights.location)
        return self._pinned(key, lambda: of_tokenizer(model, weights))

    def parts(self, model: ModelConfig) -> tuple[Any, PreTrainedTokenizerBase]:
        """Return a model's transformers config, and its tokenizer."""
        from rbptrack.models.architecture import load_config, load_tokenizer

        weights = self._weights(model)
        tokenizer = self._tokenizer(model)
        key = (weights.identity, tokenizer.identity)
        if key not in self._parts:
            self._parts[key] = load_config(weights), load_tokenizer(tokenizer)
        return self._parts[key]

    def _fit(self, config: CellConfig, models: Sequence[ModelConfig]) -> _Fit:
        """Return the check of a cell's model (and its reference), as this user's cache remembers it for the same files
        and code.

        Where all is measured already, a sweep then needs neither torch nor transformers, whose imports take seconds.
        """
        files = [(repr(model), self._weights(model).identity, self._tokenizer(model).identity) for model in models]
        dataset = config.dataset
        given = config.model.chat_template
        chat = chat_file(given) if given and dataset.chat else str(dataset.chat)
        key = repr((files, config.candidates, dataset.seq_len, dataset.sequence, chat))
        if key not in self._fits:
            fit = _Fit(**_remembered(key, lambda: asdict(self._checked(config, *models))))
            self._fits[key] = replace(fit, without=tuple(fit.without))
        return self._fits[key]

    def _checked(self, config: CellConfig, model: ModelConfig, other: ModelConfig | None = None) -> _Fit:
        from rbptrack.corpus.chat import template_hash, template_of
        from rbptrack.corpus.prefix import prefix_of_first_version, text_prefix
        from rbptrack.models.architecture import candidates, check_fit, check_same_tokenizer
        from rbptrack.models.checkpoint import check_folder, check_own_tokens

        for part in filter(None, (model, other)):
            if part.path:
                check_folder(part)
            if part.gguf and part.tokenizer:
                check_own_tokens(part.name, self._weights(part), self.parts(part)[1])
        seq_len = config.dataset.seq_len
        architecture, tokenizer = self.parts(model)
        check_fit(model.name, architecture, tokenizer, seq_len)
        rows, without = candidates(architecture, tokenizer, config.candidates)
        reference = None
        if other:
            theirs, own = self.parts(other)
            check_fit(f"reference {other.name}", theirs, own, seq_len)
            check_same_tokenizer(other.name, tokenizer, own)
            named = (candidates(side, tokenizer, Candidates.tokenizer)[0] for side in (architecture, theirs))
            reference = candidates(theirs, tokenizer, config.candidates)[0], min(named)
        now = text_prefix(tokenizer).tolist() if config.dataset.sequence is SequenceRule.slide else None
        same = now is None or now == prefix_of_first_version(tokenizer).tolist()
        template = template_of(model.chat_template, tokenizer, model.name) if config.dataset.chat else ""
        hashed = template_hash(template) if template else ""
        return _Fit(rows, without, None if same else now, reference, hashed)


def _remembered(key: str, compute: Callable[[], Any]) -> Any:
    """Return a result that the same code computed of the same inputs, from this user's cache; None is not kept."""
    name = f"fits/{fingerprint({'asked': key, 'code': own_code(), **{n: version(n) for n in _LIBRARIES}})}"
    if kept := cache.recall(name):
        return json.loads(kept)
    made = compute()
    if made is not None:
        cache.remember(name, json.dumps(made))
    return made


def _count(cell: Resolved) -> dict[str, int]:
    from rbptrack.models.architecture import count_parameters

    return asdict(count_parameters(cell.architecture))


def _load(
    loaded: dict[tuple[object, ...], CausalModel],
    model: ModelConfig,
    weights: Source,
    candidates: int,
    without: tuple[int, ...],
) -> CausalModel:
    """Return a model on its device, as it was loaded before or in place of that one."""
    from rbptrack.models.loading import load_model

    key = (weights, repr(model), candidates, without)  # every option of loading is in the model's config
    if key not in loaded:
        loaded.clear()  # before loading: two models need not fit
        loaded[key] = load_model(model, weights, candidates=candidates, without=without)
    return loaded[key]


def _size_key(cell: Resolved) -> str:
    """Return a text that cells with the same number of tokens share: the same documents, sequences, tokenizer rules."""
    from rbptrack.corpus.tokens import tokenizer_hash

    return repr((cell.dataset, cell.texts.identity, tokenizer_hash(cell.tokenizer), cell.model.chat_template))
