"""Turn a configuration into a cell: pin its model and dataset, and collect everything that determines its numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from rbptrack.config.check import MIN_SEQ_LEN
from rbptrack.config.paths import cells_folder, user_path
from rbptrack.config.schema import Config, DatasetConfig, ModelConfig
from rbptrack.corpus.documents import find_only_split, selection_identity
from rbptrack.measurement.describe import describe
from rbptrack.measurement.document import fingerprint, measurement_title
from rbptrack.sources.cache import cached_line
from rbptrack.sources.fingerprint import fingerprint as hash_settings
from rbptrack.sources.hub import MissingRepository, NotCached
from rbptrack.sources.manifest import ManifestFile, pin_file, reading
from rbptrack.sources.pin import Pinned, pin_dataset, pin_model, pin_tokenizer
from rbptrack.sources.server import ServedModel, find_served_model

_T = TypeVar("_T")


@dataclass(frozen=True)
class Cell:
    """One model on one dataset, both pinned to a commit or a hash.

    Attributes:
        config: the configuration. `dataset.split` is filled in; `dataset.seq_len` is at most the maximum of the model
            if `dataset.shorten` is true.
        weights: the pinned model.
        tokenizer: the pinned tokenizer: the model's own, or the one that `model.tokenizer` names.
        texts: the pinned dataset.
        reference: the pinned reference model; None without a reference.
        reference_tokenizer: the pinned tokenizer of the reference; None without a reference.
        served: what the server of `model.server` said of the model; None if the model runs here.
        template: the file of `model.chat_template`; None if documents are not rendered, or with the tokenizer's own.
        description: the fields of the measurement that are known before it is made. All keys are among them.
        notes: remarks for the user, for example that sequences were shortened.

    """

    config: Config
    weights: Pinned
    tokenizer: Pinned
    texts: Pinned
    reference: Pinned | None
    reference_tokenizer: Pinned | None
    served: ServedModel | None
    template: ManifestFile | None
    description: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """The hash of everything that determines the numbers of the measurement."""
        return fingerprint(self.description)

    @property
    def title(self) -> str:
        """The names of model and dataset, such as `pythia-70m / wiki`."""
        return measurement_title(self.config.model.name, self.config.dataset.name)

    @property
    def folder(self) -> Path:
        """The folder that holds the measurement until the store has it."""
        return cells_folder() / self.fingerprint

    @property
    def files(self) -> tuple[ManifestFile, ...]:
        """All local files that are read to measure the cell."""
        parts = (self.weights, self.tokenizer, self.texts, self.reference, self.reference_tokenizer)
        files = [file for part in parts if part is not None for file in part.files]
        return tuple(dict.fromkeys([*files, self.template] if self.template else files))


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
        description = describe(
            config,
            commit=weights.identity,
            tokenizer_rules=self._tokenizer_rules(tokenizer),
            texts=hash_settings(selection_identity(config.dataset, texts)),
            chat_template=template.sha256 if template else self._own_template_hash(config, tokenizer),
            reference_commit=reference.identity if reference else "",
        )
        description |= served.facts() if served else {}
        description["sweep"] = config.sweep
        description["forced"] = config.force
        description["dataset_commit"] = texts.identity
        description["tokenizer_commit"] = tokenizer.identity if config.model.tokenizer else ""
        return Cell(
            config, weights, tokenizer, texts, reference, reference_tokenizer, served, template, description, notes
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
        return self._look_up_once(("tokenizer", model.tokenizer), lambda: pin_tokenizer(model, weights))

    def _pin_template(self, config: Config) -> ManifestFile | None:
        name = config.model.chat_template
        if not config.dataset.chat or not name:
            return None
        return self._look_up_once(("template", name), lambda: pin_file(user_path(name), "model.chat_template"))

    def _find_served(self, config: Config, weights: Pinned) -> ServedModel:
        model = config.model
        key = ("server", model.server, model.server_name, model.repo, model.path, model.revision, weights.identity)
        return self._look_up_once(key, lambda: find_served_model(model, config.engine, _read_vocab_size(weights)))

    def _shorten_sequences(
        self, config: Config, weights: Pinned, reference: Pinned | None, served: ServedModel | None
    ) -> tuple[Config, tuple[str, ...]]:
        """Shorten the sequences to the maximum of model, reference and server, if `dataset.shorten` allows it.

        Returns the configuration and notes for the user. There is one note if sequences were shortened.
        """
        dataset = config.dataset
        if not dataset.shorten:
            return config, ()
        models = [(config.model, weights)]
        if config.reference is not None and reference is not None:
            models.append((config.reference, reference))
        max_lengths = {}
        for model, pinned in models:
            if max_length := self._max_sequence_length(pinned):
                max_lengths[model.name] = max_length
        if served is not None:
            max_lengths[config.model.server] = served.max_length
        name = min(max_lengths, key=max_lengths.__getitem__, default="")
        if not name or not MIN_SEQ_LEN <= max_lengths[name] < dataset.seq_len:
            return config, ()
        length = max_lengths[name]
        context = max(1, dataset.context * length // dataset.seq_len)
        reader = f"the reference {name}"
        if name in (config.model.name, config.model.server):
            reader = "the model" if name == config.model.name else "the server"
        note = f"sequences have {length} tokens instead of {dataset.seq_len}, the most that {reader} can read"
        return replace(config, dataset=replace(dataset, seq_len=length, context=context)), (note,)

    def _max_sequence_length(self, weights: Pinned) -> int:
        key = ("maximum length", weights.identity)
        return self._look_up_once(key, lambda: _read_max_sequence_length(weights))

    def _tokenizer_rules(self, tokenizer: Pinned) -> str:
        key = ("tokenizer rules", tokenizer.identity)
        return self._look_up_once(key, lambda: _read_tokenizer_rules(tokenizer))

    def _own_template_hash(self, config: Config, tokenizer: Pinned) -> str:
        """Return the hash of the tokenizer's own chat template if it renders the documents; otherwise empty."""
        if not config.dataset.chat:
            return ""
        key = ("chat template", tokenizer.identity)
        return self._look_up_once(key, lambda: _read_template_hash(config.model.name, tokenizer))

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


def _read_tokenizer_rules(tokenizer: Pinned) -> str:
    """Return the hash of the rules by which a tokenizer splits texts.

    The hash is cached on disk, because loading a tokenizer takes seconds.
    """

    def compute_hash() -> str:
        from rbptrack.models.tokenizer import load_tokenizer, rules_hash

        with reading(tokenizer.files):
            return rules_hash(load_tokenizer(tokenizer))

    return cached_line(f"tokenizers/{cache_key(source=tokenizer.identity)}", compute_hash)


def _read_template_hash(model: str, tokenizer: Pinned) -> str:
    """Return the hash of a tokenizer's own chat template. It is cached on disk."""

    def compute_hash() -> str:
        from rbptrack.corpus.chat import find_chat_template
        from rbptrack.models.tokenizer import load_tokenizer

        template = find_chat_template("", load_tokenizer(tokenizer), model)
        return hashlib.sha256(template.encode()).hexdigest()

    return cached_line(f"chat-templates/{cache_key(source=tokenizer.identity)}", compute_hash)


def _read_vocab_size(weights: Pinned) -> int:
    """Return |V|, the number of a model's logits. The number is cached on disk."""

    def read_config() -> str:
        from rbptrack.models.architecture import load_config, vocab_size

        return str(vocab_size(load_config(weights)))

    return int(cached_line(f"vocabularies/{cache_key(source=weights.identity)}", read_config))


def _read_max_sequence_length(weights: Pinned) -> int:
    """Return the maximum length of a model's sequences in tokens, or 0 for no limit. The number is cached on disk."""

    def read_config() -> str:
        from rbptrack.models.architecture import load_config, max_sequence_length

        return str(max_sequence_length(load_config(weights)) or 0)

    return int(cached_line(f"lengths/{cache_key(source=weights.identity)}", read_config))


def cache_key(**parts: str) -> str:
    """Return a key for the cache on disk: the hash of some texts and of the versions of rbptrack and its libraries."""
    return hash_settings({**parts, "versions": _library_versions()})


@cache
def _library_versions() -> list[str]:
    return [version(library) for library in ("rbptrack", "tokenizers", "transformers")]
