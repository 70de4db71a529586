"""What Hydra composed becomes its dataclass; values are checked as far as config files and options alone can tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from rbptrack.base.addresses import refuse_secret, sets_secret
from rbptrack.base.errors import BadInput, nearest
from rbptrack.base.names import name_fault
from rbptrack.base.secrets import holds_known
from rbptrack.config.keys import flattened, removed
from rbptrack.config.schema import (
    CellConfig,
    DatasetConfig,
    Dtype,
    EngineConfig,
    Kernel,
    ModelConfig,
    SequenceRule,
    SweepConfig,
    TrackingConfig,
)

_MAX_THREADS = 1024  # far more than helps, and as many as systems let a process start
_LEAST_EVERY = 0.1  # seconds between two reports to the tracking store


def typed(composed: DictConfig) -> Any:
    """Return the composed config as its dataclass, with the values checked that a type cannot check."""
    config = _object(composed)
    refuse_secrets(composed)
    if isinstance(config, CellConfig):
        _PIECES["model"](config.model)
        _PIECES["dataset"](config.dataset)
        _check_reference(config)
        if not config.k.values or min(config.k.values) < 1:
            raise BadInput(f"k must be between 1 and the vocabulary's size; got {config.k.values}")
        _check_engine(config.engine)
    if isinstance(config, SweepConfig):
        if isinstance(config.launch, Mapping):  # of a file that is no executor's
            _check_launch(config.launch)
            config.launch = None
        if config.shards != "auto" and not (isinstance(config.shards, int) and config.shards >= 1):
            raise BadInput(f"shards must be 1 (a cell is one job's) or more, or auto; got {config.shards}")
    if isinstance(tracking := getattr(config, "tracking", None), TrackingConfig) and not tracking.every >= _LEAST_EVERY:
        raise BadInput(f"tracking.every must be at least {_LEAST_EVERY} seconds; got {tracking.every}")
    return config


def typed_piece(composed: DictConfig, name: str) -> Any:
    """Return the model (or the dataset) of a composed config alone, checked as its dataclass."""
    piece = _object(composed[name])
    refuse_secrets(composed[name], f"{name}.")
    _PIECES[name](piece)
    return piece


def _object(composed: DictConfig) -> Any:
    try:
        return OmegaConf.to_object(composed)
    except MissingMandatoryValue as error:
        raise BadInput(f"a value is missing: {error.full_key}; give it as {error.full_key}=...") from error
    except OmegaConfBaseException as error:
        raise wrong_value(str(error.full_key or ""), error) from error


def refuse_secrets(composed: DictConfig, prefix: str = "", *, resolve: bool = True) -> None:
    """Raise BadInput where a value holds a secret: it would be written into params and files, wherever it came from."""
    values = flattened(OmegaConf.to_container(composed, resolve=resolve), prefix)
    if any("://" in text or sets_secret(key, text) for key, text in values.items()) or holds_known(
        "\n".join(values.values())
    ):
        for key, text in values.items():
            refuse_secret(key, text)


def wrong_value(given: str, error: BaseException) -> BadInput:
    """Return the error for a value of the wrong type, or one outside the options.

    Args:
        given: `model.dtype=float23`, or the key alone.
        error: OmegaConf's.

    """
    reason = str(error).strip().splitlines()[0]
    key, _, value = given.partition("=")
    if options := re.search(r"expected one of \[(.*)\]", reason):
        names = options[1].replace("'", "").split(", ")
        near = nearest(value, names)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        return BadInput(f"invalid {key} {value!r}.{meant} Options: {', '.join(names)}")
    return BadInput(f"{given}: {reason}" if given and given not in reason else reason)


def _check_name(key: str, name: str) -> None:
    """Raise BadInput for a name that the store's rules would refuse when the measurement is read again."""
    if not name.strip() and key != "model.size":
        raise BadInput(f"{key}= is empty: give a name, such as {key}=mine")
    if name and (rule := name_fault(name)):
        raise BadInput(f"{key} {rule}; got {name[:60]!r}")


def _check_model(model: ModelConfig) -> None:
    _check_name("model.family", model.family)
    _check_name("model.size", model.size)
    if bool(model.repo) == bool(model.path):
        raise BadInput(
            "model: give either model.repo (a hub id) or model.path (a folder); "
            f"got repo={model.repo!r} path={model.path!r}"
        )
    if model.gguf and not model.gguf.lower().endswith(".gguf"):
        raise BadInput(f"model.gguf must name a file that ends in .gguf; got {model.gguf!r}")
    for name in ("seed", "training_tokens"):
        if getattr(model, name) < 0:
            raise BadInput(f"model.{name} must be 0 (not known) or more; got {getattr(model, name)}")
    if model.tf32 and model.dtype is not Dtype.float32:
        raise BadInput(f"model.tf32 rounds float32 products; it does nothing with model.dtype={model.dtype.value}")


def _check_reference(config: CellConfig) -> None:
    """Raise BadInput for a reference that is none, and for what takes the full logits of both models away."""
    if config.reference is None:
        return
    try:
        _check_model(config.reference)
    except BadInput as error:
        raise BadInput(f"reference: {error}") from error
    if config.model.device_map or config.reference.device_map:
        raise BadInput("reference= needs both models whole on one device: without device_map")
    if config.reference.device not in ("auto", config.model.device):
        raise BadInput(
            f"reference.device={config.reference.device}: the reference runs where the model does; model.device="
        )
    if config.engine.kernel is Kernel.fused:
        raise BadInput("reference= needs logits, which engine.kernel=fused does without: leave engine.kernel=auto")
    if not config.engine.columns:
        raise BadInput("reference= adds to the columns that engine.columns=false leaves out: give one of them")


def _check_dataset(dataset: DatasetConfig) -> None:
    _check_name("dataset.name", dataset.name)
    if sum(map(bool, (dataset.repo, dataset.path, dataset.files))) != 1 and not (dataset.repo and dataset.files):
        raise BadInput(
            "dataset: give dataset.repo (a hub id), dataset.path (a folder) or dataset.files (files or patterns); "
            f"got repo={dataset.repo!r} path={dataset.path!r} files={dataset.files}"
        )
    if dataset.seq_len < 2:
        raise BadInput(f"dataset.seq_len must be at least 2 (a token and its target); got {dataset.seq_len}")
    if dataset.sequence is SequenceRule.slide and not 1 <= dataset.context < dataset.seq_len:
        raise BadInput(
            f"dataset.context must be between 1 and seq_len - 1 = {dataset.seq_len - 1}; got {dataset.context}"
        )
    for name in ("documents", "head", "longer_than"):
        if getattr(dataset, name) < 0:
            raise BadInput(f"dataset.{name} must be 0 (no limit) or more; got {getattr(dataset, name)}")
    if not dataset.fields:
        raise BadInput("dataset.fields names no field to read")
    if dataset.chat and len(dataset.fields) < 2:
        raise BadInput(
            f"dataset.chat=true needs a prompt and an answer, such as dataset.fields=[question,answer]; got "
            f"{dataset.fields}"
        )


_PIECES: Mapping[str, Callable[[Any], None]] = {"model": _check_model, "dataset": _check_dataset}


def _check_launch(launch: Mapping[str, Any]) -> None:
    """Raise BadInput for a preset of a config file that names no executor, as those of earlier versions do."""
    for key in launch:
        if sentence := removed(f"launch.{key}"):
            raise BadInput(sentence)
    if launch:
        options = ", ".join(f"launch.{key}" for key in launch)
        raise BadInput(f"{options}: which executor? Begin the config file with `defaults: [NAME]`, or give launch=NAME")


def _check_engine(engine: EngineConfig) -> None:
    for name, least in (("batch_tokens", 0), ("chunk_tokens", 0), ("part_tokens", 1), ("part_seconds", 0)):
        if not getattr(engine, name) >= least:  # a NaN is not
            raise BadInput(f"engine.{name} must be at least {least}; got {getattr(engine, name)}")
    if not 0 <= engine.threads <= _MAX_THREADS:
        raise BadInput(f"engine.threads must be 0 (torch's own choice) to {_MAX_THREADS}; got {engine.threads}")
