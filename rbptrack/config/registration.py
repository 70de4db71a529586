"""Register the schema of the configuration, and the functions that configs may call, with Hydra and OmegaConf."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import PurePath
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from rbptrack.base.errors import BadInput, first_line
from rbptrack.config.paths import config_folders, embedded, user_path
from rbptrack.config.patterns import separate_size
from rbptrack.config.schema import Config

CELL_WITHOUT_HYDRA = "cell_without_hydra"
"""The name of the config `conf/cell.yaml` without the configs of Hydra's own launchers, sweepers, logs and help.

Hydra composes it in half the time. It is for programs that do not let Hydra run the cell.
"""

_GROUPS_OF_HYDRA = ("output", "launcher", "sweeper", "help", "hydra_help", "hydra_logging", "job_logging", "env")

_STEPS = re.compile(r"\s*(\d{1,15})(?::(\d{1,15}))?(?::([1-9]\d{0,14}))?\s*")
_MAX_STEPS = 1_000_000
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,15})", re.ASCII)  # a folder that a Trainer of transformers writes


@cache
def register() -> None:
    """Register the schema and the functions that configs may call. Later calls in the same process do nothing."""
    ConfigStore.instance().store("base_config", Config)
    without_hydra = [{f"override hydra/{group}": None} for group in _GROUPS_OF_HYDRA]
    ConfigStore.instance().store(CELL_WITHOUT_HYDRA, {"defaults": ["cell", "_self_", *without_hydra]})
    resolvers: dict[str, Callable[..., object]] = {
        "embedded": lambda path: str(embedded(path)),
        "base_name": base_name,
        "family_of": family_of,
        "size_of": size_of,
        "training_tokens": training_tokens,
        "checkpoint_of": checkpoint_of,
        "tokens_seen": tokens_seen,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)


def add_config(group: str, name: str, values: dict[str, Any], *, based_on: str) -> None:
    """Add a config to a group, as if the file `<group>/<name>.yaml` existed.

    Args:
        group: `model` or `dataset`.
        name: the name of the config. It may hold slashes.
        values: the values that the config sets, by key.
        based_on: the name of the config of the group that sets the other keys.

    """
    folder, _, file_name = f"{group}/{name}".rpartition("/")
    config = {"defaults": [f"/{group}/{based_on}@_here_", "_self_"], **values}
    ConfigStore.instance().store(file_name, config, group=folder)


def base_name(repo: str, path: str) -> str:
    """Return the last part of a repository's name or of a path, such as `news` for `org/news`.

    A checkpoint folder of a Trainer, such as `out/a-7m/checkpoint-200`, has the name of the folder that holds it.
    """
    if checkpoint_of(path):
        return user_path(path).absolute().parent.name
    return PurePath(repo or path).name


def checkpoint_of(path: str) -> str:
    """Return the step of a checkpoint folder: `200` for `out/a-7m/checkpoint-200`. It is empty for other folders."""
    match = _CHECKPOINT.fullmatch(PurePath(path).name)
    return match[1] if match else ""


def tokens_seen(path: str) -> int:
    """Return the number of tokens that a Trainer has read, from trainer_state.json in a folder; 0 if unknown."""
    try:
        state = json.loads((user_path(path) / "trainer_state.json").read_bytes()) if path else {}
    except (OSError, ValueError, RecursionError):
        return 0
    tokens = state.get("num_input_tokens_seen") if isinstance(state, dict) else None
    return tokens if isinstance(tokens, int) and tokens > 0 else 0


def family_of(repo: str, path: str) -> str:
    """Return the name of a repository or folder without its size: `name-base` for `org/Name-1.4B-base`."""
    return separate_size(base_name(repo, path).lower())[0]


def size_of(repo: str, path: str, family: str) -> str:
    """Return the size in the name of a repository or folder.

    If the name has no size, return an empty text. If the user gave another family, return the whole name instead,
    because the models of this family need different names.
    """
    name, size = separate_size(base_name(repo, path).lower())
    return size or (name if family != name else "")


def published_names() -> dict[str, tuple[str, str]]:
    """Return family and size of each repository that a config names.

    The key is the last part of the repository's name in lower case, such as `pythia-70m`. Raises BadInput if a config
    cannot be read.
    """
    names = {}
    for folder in config_folders():
        for path in sorted((folder / "model").rglob("*.yaml")):
            try:
                config = yaml.safe_load(path.read_text("utf-8")) if path.is_file() else None
            except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
                raise BadInput(f"{path} cannot be read: {first_line(error)}") from error
            if isinstance(config, dict) and {"repo", "family", "size"} <= set(config):
                names[base_name(str(config["repo"]), "").lower()] = (str(config["family"]), str(config["size"]))
    return names


def training_steps(steps: str) -> list[int]:
    """Return the training steps that a text lists, such as `0,1,2,1000:143000:1000` (first:last:by).

    Raises BadInput if the text has another form, or a range has more than a million steps.
    """
    numbers: list[int] = []
    for part in filter(None, steps.split(",")):
        match = _STEPS.fullmatch(part)
        if match is None:
            raise BadInput(f"steps={part[:60]!r}: give numbers and ranges first:last:by, separated by commas")
        first = int(match[1])
        steps_in_range = range(first, int(match[2] or first) + 1, int(match[3] or 1))
        if len(steps_in_range) > _MAX_STEPS:
            raise BadInput(f"steps={part}: a range can have at most {_MAX_STEPS:,} training steps")
        numbers.extend(steps_in_range)
    return numbers


def training_tokens(revision: str, steps: str, tokens_per_step: int) -> int:
    """Return D, the number of training tokens of a checkpoint.

    Args:
        revision: `step<n>`, or `main` for the last step. For other revisions the result is 0 (unknown).
        steps: all training steps of the model, in the form that `training_steps` reads.
        tokens_per_step: the number of tokens that the model read in one step.

    Raises:
        BadInput: the model has no checkpoint at the step.

    """
    numbers = training_steps(steps)
    if revision == "main":
        return max(numbers) * tokens_per_step
    match = re.fullmatch(r"step(\d{1,15})", revision, re.ASCII)
    if match is None:
        return 0  # the step of a commit or tag is unknown
    step = int(match[1])
    if step not in numbers:
        raise BadInput(
            f"model.revision={revision}: this checkpoint does not exist. The model has {len(numbers)}, and the last is "
            f"step{max(numbers)}"
        )
    return step * tokens_per_step
