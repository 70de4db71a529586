"""The params of a measurement's run: which, how they are written, and how they are read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib.metadata import version
from typing import Annotated, Any, Self, get_args, get_type_hints

from rbptrack.base import __version__
from rbptrack.base.errors import BadInput
from rbptrack.sources.fingerprint import SCORING_VERSION


@dataclass(frozen=True, kw_only=True)
class ResolvedParams:
    """Params that are known once model and texts have been read. None: not known, as of an imported measurement."""

    commit: Annotated[str | None, "model.commit"]  # `id@commit`, or a hash of its files
    non_embedding_params: Annotated[int | None, "model.non_embedding_params"]  # S
    total_params: Annotated[int | None, "model.total_params"]  # every parameter, tied ones once
    vocab_size: Annotated[int | None, "model.vocab_size"]
    device: Annotated[str | None, "model.device_used"]
    dataset_commit: Annotated[str | None, "dataset.commit"]  # `id@commit`, or a hash of its files
    texts_hash: Annotated[str | None, "dataset.texts_hash"]  # SHA-256
    num_documents: Annotated[int | None, "dataset.num_documents"]
    prefix: Annotated[str | None, "dataset.prefix"]  # ids that stand before every window, where they are several
    scored_tokens: Annotated[int | None, "dataset.scored_tokens"] = None
    split_difference: Annotated[str | None, "model.split_difference"] = None  # of logits; release 0.1 split models
    chat_template: Annotated[str | None, "dataset.chat_template"] = None  # SHA-256, of a conversation's
    reference: Annotated[str | None, "reference.name"] = None  # with its precision where that is not float32
    reference_commit: Annotated[str | None, "reference.commit"] = None  # `id@commit`, or a hash of its files
    reference_params: Annotated[int | None, "reference.total_params"] = None  # tied ones once

    def params(self) -> dict[str, str]:
        """Return the resolved values by the names of params."""
        values = {name: getattr(self, attribute) for attribute, name in param_names(type(self)).items()}
        return {name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def unknown(cls) -> Self:
        """Return params without a value."""
        return cls.read({})

    @classmethod
    def read(cls, params: Mapping[str, str]) -> Self:
        """Read what `params` wrote, None where one is missing or empty; BadInput names one that is not what it says."""
        return cls(**{a: _read(name, params.get(name, ""), kind) for a, (name, kind) in _DECLARED[cls].items()})


@dataclass(frozen=True, kw_only=True)
class MeasurementParams(ResolvedParams):
    """All params that say which measurements may be compared; beside `ResolvedParams` those of a cell's config."""

    repo: Annotated[str | None, "model.repo"]
    revision: Annotated[str | None, "model.revision"]  # as it was asked for; sets a training's checkpoints apart
    training_tokens: Annotated[float | None, "model.training_tokens"]  # 0 if unknown
    dtype: Annotated[str | None, "model.dtype"]
    tf32: Annotated[bool | None, "model.tf32"]  # whether float32 products round their factors to TF32
    dataset_repo: Annotated[str | None, "dataset.repo"]
    sequence: Annotated[str | None, "dataset.sequence"]
    seq_len: Annotated[int | None, "dataset.seq_len"]
    context: Annotated[int | None, "dataset.context"]  # with `slide`, the tokens that each window repeats
    candidates: Annotated[str | None, "candidates"]
    rank: Annotated[str | None, "rank"]


def _text(text: str) -> str | None:
    return text or None


def _integer(text: str) -> int | None:
    """Return a whole number; earlier imports of a table with an empty cell wrote 512.0."""
    if not text or text.isdecimal():
        return int(text) if text else None
    if not float(text).is_integer():
        raise ValueError(text)
    return int(float(text))


def _number(text: str) -> float | None:
    return float(text) if text else None


def _read(name: str, text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except (ValueError, TypeError, OverflowError) as error:
        what = "a whole number" if kind is _integer else "a number"
        raise BadInput(f"the param {name} must be {what}; got {str(text)[:60]!r}") from error


def _flag(text: str) -> bool | None:
    return text == "True" if text else None


_READERS = {str: _text, int: _integer, float: _number, bool: _flag}


def _declared(cls: type[ResolvedParams]) -> dict[str, tuple[str, Any]]:
    """Return attribute -> the param's name, and what reads its text."""
    hints = get_type_hints(cls, include_extras=True)
    declared = {}
    for field in fields(cls):
        annotated, name = get_args(hints[field.name])
        declared[field.name] = name, _READERS[get_args(annotated)[0]]
    return declared


_DECLARED = {cls: _declared(cls) for cls in (ResolvedParams, MeasurementParams)}


def param_names(cls: type[ResolvedParams] = MeasurementParams) -> dict[str, str]:
    """Return attribute -> the param's name: `non_embedding_params` -> `model.non_embedding_params`."""
    return {attribute: name for attribute, (name, _) in _DECLARED[cls].items()}


_ABOUT_NUMBERS = ("model.", "reference.", "dataset.", "candidates", "rank", "k.values")
_HOW_AND_WHERE = ("path", "pickles", "device", "device_map", "max_memory", "attention", "group")
_NOT_OF_REFERENCE = ("family", "size", "seed", "training_tokens", "repo", "revision")  # its name and commit say it
_NOTHING = ("", "[]", "{}", "0", "0.0", "False", "None")
_DEFAULT_IS_SOMETHING = ("dataset.separator", "dataset.fields", "dataset.seed", "dataset.context")


def compared(config: Mapping[str, str]) -> dict[str, str]:
    """Return the params of a cell's flat config: what runs are compared by, and all that determines their numbers.

    The whole config is in config.yaml. An option that is left out says nothing: it is empty, 0 or False as by default,
    or has no effect beside the others.
    """
    return {key: text for key, text in config.items() if key.startswith(_ABOUT_NUMBERS) and _tells(key, text, config)}


def _tells(key: str, text: str, config: Mapping[str, str]) -> bool:
    folder, _, option = key.partition(".")
    if option.partition(".")[0] in _HOW_AND_WHERE or key == "dataset.revision":  # its commit is known
        return False
    if folder == "reference" and option in _NOT_OF_REFERENCE:
        return False
    if key == "dataset.separator":
        return "," in config.get("dataset.fields", "")
    if key == "dataset.seed":
        return config.get("dataset.documents", "0") != "0"
    return text not in _NOTHING or key in _DEFAULT_IS_SOMETHING or option.startswith("where.")


VERSIONS = "versions."
"""The prefix of the params that name the software; `versions.scoring` is raised when a change moves any number."""


def software_versions() -> dict[str, str]:
    """Return params that name the software that measures now."""
    packages = {name: version(name) for name in ("torch", "transformers")}
    versions = {"rbptrack": __version__, **packages, "scoring": SCORING_VERSION}
    return {f"{VERSIONS}{name}": str(value) for name, value in versions.items()}


PRIVATE_PARAMS = ("tracking.", "plugins.", "model.path", "model.chat_template", "reference.path", "dataset.path")
"""Beginnings of params that say where things lie on one machine; a bundle for others leaves them out."""
