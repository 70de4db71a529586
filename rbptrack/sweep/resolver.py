"""Turn a configuration into a cell: pin its model and dataset, and collect everything that determines its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from rbptrack.config.check import MIN_SEQ_LEN
from rbptrack.config.paths import user_path
from rbptrack.config.schema import Config, DatasetConfig, ModelConfig
from rbptrack.corpus.documents import find_only_split, selection_identity
from rbptrack.measurement.describe import describe
from rbptrack.sources.cache import hash_settings
from rbptrack.sources.hub import MissingRepository, NotCached
from rbptrack.sources.manifest import ManifestFile, pin_file
from rbptrack.sources.pin import Pinned, pin_dataset, pin_model, pin_tokenizer
from rbptrack.sources.server import ServedModel, find_served_model
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.lookups import config_limits, own_template_hash, tokenizer_rules

_T = TypeVar("_T")


class Resolver:
    """Resolves configurations to cells. A model or dataset that several cells name is looked up once."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, ...], Any] = {}  # results of lookups, by the kind of object and its identity

    def resolve(self, config: Config) -> Cell:
        """Resolve a configuration to a cell.

        Raises:
            BadInput: the model, tokenizer, dataset or reference cannot be found, the dataset has several splits and the
                configuration does not name one, or the server does not serve the model.

        """
        self._check_cached(config)
        dataset = config.dataset
        texts = self._pin_texts(dataset)
        if not dataset.split:
            config = replace(config, dataset=replace(dataset, split=self._only_split(dataset, texts)))
        weights = self._pin_weights(config.model)
        reference = None
        reference_tokenizer = None
        if config.reference is not None:
            reference = self._pin_weights(config.reference)
            reference_tokenizer = self._pin_tokenizer(config.reference, reference)
            config = replace(config, reference=replace(config.reference, device=config.model.device))
        served = self._find_served(config, weights) if config.model.server else None
        config, notes = self._shorten_sequences(config, weights, reference, served)
        tokenizer = self._pin_tokenizer(config.model, weights)
        template = self._pin_template(config)
        template_hash = ""
        if config.dataset.chat:
            template_hash = template.sha256 if template else own_template_hash(config.model.name, tokenizer)
        description = describe(
            config,
            commit=weights.identity,
            tokenizer_rules=tokenizer_rules(tokenizer),
            texts=hash_settings(selection_identity(config.dataset, texts)),
            chat_template=template_hash,
            reference_commit=reference.identity if reference else "",
        )
        if served is not None:
            description |= served.facts()
        description["sweep"] = config.sweep
        description["forced"] = config.force
        description["dataset_commit"] = texts.identity
        description["tokenizer_commit"] = tokenizer.identity if config.model.tokenizer else ""
        return Cell(
            config=config,
            weights=weights,
            tokenizer=tokenizer,
            texts=texts,
            reference=reference,
            reference_tokenizer=reference_tokenizer,
            served=served,
            template=template,
            description=description,
            notes=notes,
        )

    def _look_up_once(self, key: tuple[str, ...], look_up: Callable[[], _T]) -> _T:
        if key not in self._results:
            self._results[key] = look_up()
        result: _T = self._results[key]
        return result

    def _check_cached(self, config: Config) -> None:
        """Raise NotCached if repositories are neither cached nor reachable. The error lists all of them."""
        missing: list[MissingRepository] = []
        with _collect_missing(missing):
            self._pin_texts(config.dataset)
        for model in filter(None, (config.model, config.reference)):
            with _collect_missing(missing):
                self._pin_tokenizer(model, self._pin_weights(model))
        if missing:
            raise NotCached(list(dict.fromkeys(missing)))

    def _pin_texts(self, dataset: DatasetConfig) -> Pinned:
        key = ("dataset", dataset.repo, dataset.path, dataset.revision, dataset.config, *dataset.files)
        return self._look_up_once(key, lambda: pin_dataset(dataset))

    def _pin_weights(self, model: ModelConfig) -> Pinned:
        key = ("model", model.repo, model.path, model.gguf, model.revision, str(model.pickles), model.tokenizer)
        return self._look_up_once(key, lambda: pin_model(model))

    def _pin_tokenizer(self, model: ModelConfig, weights: Pinned) -> Pinned:
        if not model.tokenizer:
            return weights
        return self._look_up_once(("tokenizer", model.tokenizer), lambda: pin_tokenizer(model.tokenizer))

    def _pin_template(self, config: Config) -> ManifestFile | None:
        name = config.model.chat_template
        if not config.dataset.chat or not name:
            return None
        return self._look_up_once(("template", name), lambda: pin_file(user_path(name), "model.chat_template"))

    def _find_served(self, config: Config, weights: Pinned) -> ServedModel:
        key = ("server", repr(config.model), repr(config.engine), weights.identity)
        vocab_size, _ = config_limits(weights)
        return self._look_up_once(key, lambda: find_served_model(config.model, config.engine, vocab_size))

    def _shorten_sequences(
        self, config: Config, weights: Pinned, reference: Pinned | None, served: ServedModel | None
    ) -> tuple[Config, tuple[str, ...]]:
        """Shorten the sequences to the maximum of model, reference and server, if `dataset.shorten` allows it.

        Returns the configuration and notes for the user. There is one note if sequences were shortened.
        """
        dataset = config.dataset
        if not dataset.shorten:
            return config, ()
        limits = [(config_limits(weights)[1], "the model")]
        if config.reference is not None and reference is not None:
            limits.append((config_limits(reference)[1], f"the reference {config.reference.name}"))
        if served is not None:
            limits.append((served.max_length, "the server"))
        length, reader = min((limit for limit in limits if limit[0]), default=(0, ""))
        if not MIN_SEQ_LEN <= length < dataset.seq_len:
            return config, ()
        context = max(1, dataset.context * length // dataset.seq_len)
        note = f"sequences have {length} tokens instead of {dataset.seq_len}, the most that {reader} can read"
        return replace(config, dataset=replace(dataset, seq_len=length, context=context)), (note,)

    def _only_split(self, dataset: DatasetConfig, texts: Pinned) -> str:
        key = ("split", texts.identity, dataset.config, *dataset.files)
        return self._look_up_once(key, lambda: find_only_split(dataset, texts))


@contextmanager
def _collect_missing(missing: list[MissingRepository]) -> Iterator[None]:
    """Catch NotCached in a block, and add its repositories to a list."""
    try:
        yield
    except NotCached as error:
        missing += error.missing


def resolve(config: Config) -> Cell:
    """Resolve one configuration to a cell. Raises BadInput if its model, tokenizer, dataset or reference is missing."""
    return Resolver().resolve(config)
