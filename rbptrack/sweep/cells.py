"""Cells: what a config names, pinned, with the fingerprint of everything that determines its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rbptrack.base.errors import BadInput
from rbptrack.base.files import sha256, write_whole
from rbptrack.config.check import MIN_SEQ_LEN
from rbptrack.config.paths import cells_folder, user_path
from rbptrack.config.schema import CellConfig, Config, DatasetConfig, ModelConfig, SequenceRule
from rbptrack.corpus.documents import only_split, selection_identity
from rbptrack.sources.cache import remembered
from rbptrack.sources.fingerprint import SCORING_VERSION, fingerprint
from rbptrack.sources.hub import Missing, NotCached
from rbptrack.sources.pin import Pinned, pin_dataset, pin_model, pin_tokenizer
from rbptrack.tracking.facts import title

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


_CELLS = TypeAdapter(list[Cell])


class Resolver:
    """Pins the models and datasets that cells name, each once."""

    def __init__(self) -> None:
        self._sources: dict[Key, Pinned] = {}
        self._splits: dict[Key, str] = {}
        self._rules: dict[str, str] = {}
        self._lengths: dict[str, int] = {}

    def resolve(self, config: Config) -> Cell:
        """Resolve one cell.

        Raises:
            BadInput: a model, tokenizer or dataset is not there or not to be had, or the dataset has several splits.

        """
        self._check_cached(config)
        dataset = config.dataset
        texts = self._texts(dataset)
        if not dataset.split:
            config = replace(config, dataset=replace(dataset, split=self._only_split(dataset, texts)))
        weights = self._weights(config.model)
        reference = reference_tokenizer = None
        if config.reference is not None:
            reference = self._weights(config.reference)
            reference_tokenizer = self._tokenizer(config.reference, reference)
            config = replace(config, reference=replace(config.reference, device=config.model.device))
        config, notes = self._with_length(config, weights, reference)
        tokenizer = self._tokenizer(config.model, weights)
        identity = identity_of(
            config,
            weights=weights.identity,
            tokenizer=tokenizer.identity,
            tokenizer_rules=self._tokenizer_rules(config.model, tokenizer),
            texts=selection_identity(config.dataset, texts),
            reference=reference.identity if reference else "",
        )
        return Cell(config, weights, tokenizer, texts, reference, reference_tokenizer, identity, notes)

    def _pinned(self, key: Key, pin: Callable[[], Pinned]) -> Pinned:
        if key not in self._sources:
            self._sources[key] = pin()
        return self._sources[key]

    def _check_cached(self, config: Config) -> None:
        """Look for everything that a cell needs. Raises NotCached with all that is missing, not only the first."""
        missing: list[Missing] = []
        with _noting(missing):
            self._texts(config.dataset)
        for model in filter(None, (config.model, config.reference)):
            with _noting(missing):
                self._tokenizer(model, self._weights(model))
        if missing:
            raise NotCached(list(dict.fromkeys(missing)))

    def _texts(self, dataset: DatasetConfig) -> Pinned:
        key = ("dataset", dataset.repo, dataset.path, dataset.revision, *dataset.files)
        return self._pinned(key, lambda: pin_dataset(dataset))

    def _weights(self, model: ModelConfig) -> Pinned:
        key = ("model", model.repo, model.path, model.gguf, model.revision)
        return self._pinned(key, lambda: pin_model(model))

    def _tokenizer(self, model: ModelConfig, weights: Pinned) -> Pinned:
        if not model.tokenizer:
            return weights
        return self._pinned(("tokenizer", model.tokenizer), lambda: pin_tokenizer(model, weights))

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
        reader = "the model" if name == config.model.name else f"the reference {name}"
        note = f"sequences have {length} tokens, not {dataset.seq_len}, because {reader} reads no more"
        return replace(config, dataset=replace(dataset, seq_len=length, context=context)), (note,)

    def _longest(self, model: ModelConfig, source: Pinned) -> int:
        if source.identity not in self._lengths:
            self._lengths[source.identity] = _longest(model, source)
        return self._lengths[source.identity]

    def _tokenizer_rules(self, model: ModelConfig, tokenizer: Pinned) -> str:
        if tokenizer.identity not in self._rules:
            self._rules[tokenizer.identity] = _rules(model, tokenizer)
        return self._rules[tokenizer.identity]

    def _only_split(self, dataset: DatasetConfig, texts: Pinned) -> str:
        key = (texts.identity, dataset.config, *dataset.files)
        if key not in self._splits:
            self._splits[key] = only_split(dataset, texts)
        return self._splits[key]


@contextmanager
def _noting(missing: list[Missing]) -> Iterator[None]:
    """Add what is not cached to a list, and go on."""
    try:
        yield
    except NotCached as error:
        missing += error.missing


def write_job(path: Path, cells: Sequence[Cell]) -> None:
    """Write the cells that one process measures, with their configuration and everything pinned, as JSON."""
    write_whole(path, _CELLS.dump_json(list(cells), indent=1))


def read_job(path: Path) -> list[Cell]:
    """Read the cells of a job.

    Raises:
        BadInput: the file cannot be read, or is not a job.

    """
    try:
        return _CELLS.validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: the job cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise BadInput(f"{path} is not a job of rbptrack") from error


def check_unchanged(cell: Cell) -> None:
    """Compare local files with those that the cell was resolved to, because a job may wait for hours before it begins.

    Raises:
        BadInput: a model, tokenizer or dataset on this disk has changed, or is gone.

    """
    config = cell.config
    now: list[tuple[str, Pinned, Callable[[], Pinned]]] = [
        (config.model.name, cell.weights, lambda: pin_model(config.model)),
        (config.dataset.name, cell.texts, lambda: pin_dataset(config.dataset)),
    ]
    if config.model.tokenizer:
        now.append((config.model.tokenizer, cell.tokenizer, lambda: pin_tokenizer(config.model, cell.weights)))
    if config.reference is not None and cell.reference is not None:
        reference = config.reference
        now.append((reference.name, cell.reference, lambda: pin_model(reference)))
    for name, pinned, pin in now:
        if pinned.revision is None and pin().identity != pinned.identity:
            raise BadInput(f"the files of {name} have changed since the sweep began; start the sweep again")


def resolve(config: Config) -> Cell:
    """Resolve one cell.

    Raises:
        BadInput: its model, tokenizer or dataset cannot be found, or the dataset has several splits.

    """
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

    return remembered(f"tokenizers/{cache_key(source=source.identity)}", load)


def _longest(model: ModelConfig, source: Pinned) -> int:
    """The most tokens that a model reads at a time; 0 if nothing limits it. Kept like the tokenizer's rules."""

    def load() -> str:
        from rbptrack.models.architecture import load_config, longest_sequence
        from rbptrack.models.checkpoint import check_folder

        check_folder(model)
        return str(longest_sequence(load_config(source)) or 0)

    return int(remembered(f"lengths/{cache_key(source=source.identity)}", load))


def cache_key(**parts: str) -> str:
    """Return a name under which something is kept: it changes with its parts and with the libraries that read them."""
    versions = [version(library) for library in ("rbptrack", "tokenizers", "transformers")]
    return fingerprint({**parts, "versions": versions})


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
