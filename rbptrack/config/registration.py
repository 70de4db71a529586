"""What Hydra and OmegaConf must know of rbptrack: the schema, and the functions that configs may use."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import PurePath
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from rbptrack.base.errors import BadInput, first_line
from rbptrack.config.paths import config_folders, embedded
from rbptrack.config.patterns import without_size
from rbptrack.config.schema import Config

_STEPS = re.compile(r"\s*(\d{1,15})(?::(\d{1,15}))?(?::([1-9]\d{0,14}))?\s*")
_MAX_STEPS = 1_000_000


@cache
def register() -> None:
    """Make the schema, and the functions that configs call, known to Hydra; once in a process."""
    ConfigStore.instance().store("base_config", Config)
    resolvers: dict[str, Callable[..., object]] = {
        "embedded": lambda path: str(embedded(path)),
        "base_name": base_name,
        "family_of": lambda repo, path: family_and_size(repo, path)[0],
        "size_of": lambda repo, path: family_and_size(repo, path)[1],
        "training_tokens": training_tokens,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)


def add_choice(group: str, name: str, values: dict[str, Any], *, based_on: str) -> None:
    """Make a config that has no file a choice of a group, as if `<group>/<name>.yaml` were there.

    Args:
        group: `model` or `dataset`.
        name: of the choice; may hold a slash.
        values: its keys.
        based_on: another choice of the group, whose other keys it has.

    """
    folder, _, leaf = f"{group}/{name}".rpartition("/")
    node = {"defaults": [f"/{group}/{based_on}@_here_", "_self_"], **values}
    ConfigStore.instance().store(leaf, node, group=folder)


def base_name(repo: str, path: str) -> str:
    """The last part of a repository's or folder's name: `org/news` -> `news`."""
    return PurePath(repo or path).name


def family_and_size(repo: str, path: str) -> tuple[str, str]:
    """Family and size as a name gives them: `org/Name-1.4B-base` -> (`name-base`, `1.4b`); no size: the whole name."""
    return without_size(base_name(repo, path).lower())


def published_names() -> dict[str, tuple[str, str]]:
    """Family and size of every configured repository, by the last part of its name in lower case: `pythia-70m`."""
    known = {}
    for folder in config_folders():
        for path in sorted((folder / "model").rglob("*.yaml")):
            try:
                config = yaml.safe_load(path.read_text("utf-8")) if path.is_file() else None
            except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
                raise BadInput(f"{path} cannot be read: {first_line(error)}") from error
            if isinstance(config, dict) and {"repo", "family", "size"} <= set(config):
                known[base_name(str(config["repo"]), "").lower()] = (str(config["family"]), str(config["size"]))
    return known


def training_steps(steps: str) -> list[int]:
    """The numbers that a text such as `0,1,2,1000:143000:1000` (first:last:by) stands for."""
    numbers = list[int]()
    for part in filter(None, steps.split(",")):
        match = _STEPS.fullmatch(part)
        if match is None:
            raise BadInput(f"steps are numbers and first:last:by, separated by commas; got {part[:60]!r}")
        first = int(match[1])
        of_part = range(first, int(match[2] or first) + 1, int(match[3] or 1))
        if len(of_part) > _MAX_STEPS:
            raise BadInput(f"steps={part}: at most {_MAX_STEPS:,} training steps can be named")
        numbers.extend(of_part)
    return numbers


def training_tokens(revision: str, steps: str, tokens_per_step: int) -> int:
    """D of a checkpoint `step<n>` of a model that read so many tokens a step; `main` is its last step."""
    numbers = training_steps(steps)
    if revision == "main":
        return max(numbers) * tokens_per_step
    step = re.fullmatch(r"step(\d{1,15})", revision, re.ASCII)
    if step is None:
        return 0  # a commit or tag: not known
    if int(step[1]) not in numbers:
        raise BadInput(
            f"model.revision={revision}: no such checkpoint; the last of {len(numbers)} is step{max(numbers)}"
        )
    return int(step[1]) * tokens_per_step
