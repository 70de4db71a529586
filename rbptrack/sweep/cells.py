"""Cells: what a config names, pinned, with the fingerprint of everything that determines its numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbptrack.base.files import read_small, sha256, write_whole
from rbptrack.config.check import MIN_SEQ_LEN
from rbptrack.config.paths import cells_folder, user_path
from rbptrack.config.schema import CellConfig, Config, DatasetConfig, ModelConfig, SequenceRule
from rbptrack.corpus.documents import only_split, selection_identity
from rbptrack.sources.cache import remembered
from rbptrack.sources.fingerprint import SCORING_VERSION, fingerprint
from rbptrack.sources.pin import Pinned, of_dataset, of_model, of_tokenizer
from rbptrack.tracking.facts import title

if TYPE_CHECKING:
    from rbptrack.corpus.sequences import Corpus
    from rbptrack.models.causal import CausalModel

PINS = "RBPTRACK_PINS"
"""Environment variable: a file of what the process that launched this one has pinned. A branch may have moved since."""

Key = tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One model on one dataset, pinned.

    Attributes:
        config: as composed, with the split of its dataset.
        weights: the model.
        tokenizer: the model's own, or the one that `model.tokenizer` names.
        texts: the dataset.
        reference: the model that it is compared to, if any.
        reference_tokenizer: the reference's.
        identity: everything that determines the measurement's numbers; its hash is the fingerprint.
        notes: what the user should know of how it is measured.

    """

    config: Config
    weights: Pinned
    tokenizer: Pinned
    texts: Pinned
    reference: Pinned | None
    reference_tokenizer: Pinned | None
    identity: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """What determines the measurement's numbers, as a hash."""
        return fingerprint(self.identity)

    @property
    def title(self) -> str:
        """`pythia-70m / wiki`."""
        return title(self.config.model.name, self.config.dataset.name)

    @property
    def folder(self) -> Path:
        """Where its measurement is kept until the store has it."""
        return cells_folder() / self.fingerprint

    def load(self) -> tuple[CausalModel, Corpus]:
        """The model on its device, and the dataset as sequences of its tokens; errors as `Loader.load`."""
        from rbptrack.sweep.loading import Loader

        return Loader().load(self)


class Resolver:
    """Pins the models and datasets that cells name, each once."""

    def __init__(self) -> None:
        self._sources: dict[Key, Pinned] = {}
        self._splits: dict[Key, str] = {}
        self._rules: dict[str, str] = {}
        self._lengths: dict[str, int] = {}
        if PINS in os.environ:
            pins = json.loads(read_small(Path(os.environ[PINS]), PINS))
            self._rules |= pins["tokenizer_rules"]
            self._lengths |= pins["lengths"]
            for key, source in pins["sources"]:
                self._sources[tuple(key)] = Pinned(**source | {"files": ()})

    def resolve(self, config: Config) -> Cell:
        """Resolve one cell.

        Raises:
            BadInput: a model, tokenizer or dataset is not there or not to be had, or the dataset has several splits.

        """
        dataset = config.dataset
        key = ("dataset", dataset.repo, dataset.path, dataset.revision, *dataset.files)
        texts = self._pinned(key, lambda: of_dataset(dataset))
        if not dataset.split:
            config = replace(config, dataset=replace(dataset, split=self._only_split(dataset, texts)))
        weights = self._weights(config.model)
        reference = reference_tokenizer = None
        if config.reference is not None:
            reference = self._weights(config.reference)
            reference_tokenizer = self._tokenizer(config.reference, reference)
            config = replace(config, reference=replace(config.reference, device=config.model.device))
        config, notes = self._with_length(config, weights, reference)
        cell = Cell(
            config=config,
            weights=weights,
            tokenizer=self._tokenizer(config.model, weights),
            texts=texts,
            reference=reference,
            reference_tokenizer=reference_tokenizer,
            identity={},
            notes=notes,
        )
        identity = identity_of(
            config,
            weights=weights.identity,
            tokenizer=cell.tokenizer.identity,
            tokenizer_rules=self._tokenizer_rules(cell),
            texts=selection_identity(config.dataset, texts),
            reference=reference.identity if reference else "",
        )
        return replace(cell, identity=identity)

    def save_pins(self, path: Path) -> None:
        """Write what is pinned on the hub, for processes that are given the file in PINS.

        Local files are looked at again there: they may be others.
        """
        sources = [(key, asdict(source)) for key, source in self._sources.items() if source.revision is not None]
        write_whole(path, json.dumps({"sources": sources, "tokenizer_rules": self._rules, "lengths": self._lengths}))

    def _pinned(self, key: Key, pin: Callable[[], Pinned]) -> Pinned:
        if key not in self._sources:
            self._sources[key] = pin()
        return self._sources[key]

    def _weights(self, model: ModelConfig) -> Pinned:
        key = ("model", model.repo, model.path, model.gguf, model.revision)
        return self._pinned(key, lambda: of_model(model))

    def _tokenizer(self, model: ModelConfig, weights: Pinned) -> Pinned:
        if not model.tokenizer:
            return weights
        return self._pinned(("tokenizer", model.tokenizer), lambda: of_tokenizer(model, weights))

    def _with_length(self, config: Config, weights: Pinned, reference: Pinned | None) -> tuple[Config, tuple[str, ...]]:
        """The config with shorter sequences if a model reads fewer tokens, and a note that says so."""
        dataset = config.dataset
        if not dataset.shorten:
            return config, ()
        models = [(config.model, weights)]
        if config.reference is not None and reference is not None:
            models.append((config.reference, reference))
        limits = {model.name: limit for model, source in models if (limit := self._longest(model, source))}
        name = min(limits, key=limits.__getitem__, default="")
        if not name or not MIN_SEQ_LEN <= limits[name] < dataset.seq_len:
            return config, ()
        length = limits[name]
        context = max(1, dataset.context * length // dataset.seq_len)
        note = f"{name} reads at most {length} tokens: sequences have {length} tokens, not {dataset.seq_len}"
        return replace(config, dataset=replace(dataset, seq_len=length, context=context)), (note,)

    def _longest(self, model: ModelConfig, source: Pinned) -> int:
        if source.identity not in self._lengths:
            self._lengths[source.identity] = _longest(model, source)
        return self._lengths[source.identity]

    def _tokenizer_rules(self, cell: Cell) -> str:
        source = cell.tokenizer
        if source.identity not in self._rules:
            self._rules[source.identity] = _rules(cell.config.model, source)
        return self._rules[source.identity]

    def _only_split(self, dataset: DatasetConfig, texts: Pinned) -> str:
        key = (texts.identity, dataset.config, *dataset.files)
        if key not in self._splits:
            self._splits[key] = only_split(dataset, texts)
        return self._splits[key]


def resolve(config: Config) -> Cell:
    """Resolve one cell by itself; errors as `Resolver.resolve`."""
    return Resolver().resolve(config)


def _rules(model: ModelConfig, source: Pinned) -> str:
    """The hash of a tokenizer's rules. It is kept, because loading a tokenizer takes seconds.

    The rules are those of the files as this version of transformers reads them.
    """

    def load() -> str:
        from rbptrack.models.checkpoint import check_folder
        from rbptrack.models.tokenizer import load_tokenizer, rules_of

        check_folder(model)
        return rules_of(load_tokenizer(source))

    return remembered(f"tokenizers/{_key(source)}", load)


def _longest(model: ModelConfig, source: Pinned) -> int:
    """The most tokens that a model reads at a time; 0 if nothing limits it. Kept like the tokenizer's rules."""

    def load() -> str:
        from rbptrack.models.architecture import load_config, longest_sequence
        from rbptrack.models.checkpoint import check_folder

        check_folder(model)
        return str(longest_sequence(load_config(source)) or 0)

    return int(remembered(f"lengths/{_key(source)}", load))


def _key(source: Pinned) -> str:
    """Changes with the files of a source, and with the libraries that read them."""
    versions = [version(library) for library in ("rbptrack", "tokenizers", "transformers")]
    return fingerprint({"source": source.identity, "versions": versions})


def identity_of(
    config: CellConfig, *, weights: str, tokenizer: str, tokenizer_rules: str, texts: object, reference: str = ""
) -> dict[str, Any]:
    """Everything that determines a measurement's numbers: no batch or chunk size, no device, path or k.

    `rbptrack.facts` says by which facts each key is shown, and whether the runs of one law must agree in it.

    Args:
        config: of the cell.
        weights: what makes the weights the same on another machine.
        tokenizer: what makes the tokenizer's files the same.
        tokenizer_rules: the hash of the rules by which it cuts texts.
        texts: what makes the documents the same.
        reference: what makes the reference's weights the same; empty without a reference.

    """
    dataset = config.dataset
    parts: dict[str, Any] = {
        "family": config.model.family,
        "size": config.model.size,
        "seed": config.model.seed,
        "model": weights,
        "tokenizer": tokenizer,
        "tokenizer_rules": tokenizer_rules,
        **_precision(config.model),
        "dataset": dataset.name,
        "texts": texts,
        "group": dataset.group,
        "sequence": dataset.sequence.value,
        "seq_len": dataset.seq_len,
        "context": dataset.context if dataset.sequence is SequenceRule.slide else 0,
        "chat": _chat(config),
        "candidates": config.candidates.value,
        "rank": config.rank.value,
        "scoring": SCORING_VERSION,
    }
    if config.reference is not None:
        parts["reference"] = {"name": config.reference.name, "model": reference}
        parts["reference"] |= _precision(config.reference)
    return parts


def _precision(model: ModelConfig) -> dict[str, str]:
    return {"dtype": model.dtype.value, "matmul": "tf32" if model.tf32 else "float32"}


def _chat(config: CellConfig) -> str:
    """Which chat template renders documents: none, the tokenizer's own, or a file's hash."""
    if not config.dataset.chat:
        return ""
    if not config.model.chat_template:
        return "own"
    return f"sha256:{sha256(user_path(config.model.chat_template))}"
