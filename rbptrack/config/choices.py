"""The models, datasets and other configs that a command line may choose from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from rbptrack.base.errors import BadInput, first_line, nearest
from rbptrack.base.names import natural_key
from rbptrack.config.computed_values import base_name
from rbptrack.config.paths import config_folders, user_path
from rbptrack.config.patterns import GROUP_BY_KEY, is_pattern, no_match_error, select_names, sizes_by_family
from rbptrack.config.registration import add_config
from rbptrack.config.yaml_texts import refuse_altered_texts

_PATH_BEGINNINGS = ("./", "../", "/", "~")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


class Choices:
    """The configs in some folders, and the configs that are added for models and datasets without one.

    Args:
        folders: folders of configs, with `model/<family>/<size>.yaml`, `dataset/*.yaml` and so on.

    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._added: list[str] = []

    def names(self, group: str) -> list[str]:
        """Return the names of the configs of a group in the folders, such as `pythia/70m`, sorted by size."""
        names = set()
        for folder in self._folders:
            for path in (folder / group).rglob("*.yaml"):
                if path.is_file():
                    names.add(path.relative_to(folder / group).with_suffix("").as_posix())
        return sorted(names, key=natural_key)

    def select(self, key: str, elements: Sequence[str]) -> list[str]:
        """Return the names of the configs that the value of a key selects.

        For a folder, a file or a repository without a config, a config is added.

        Args:
            key: a key with a group of configs, such as `model`.
            elements: names, sizes without their family, patterns, exclusions, folders, files and repositories.

        Raises:
            BadInput: an element matches nothing, or a text in a chosen config is another value in YAML.

        """
        group = GROUP_BY_KEY[key]
        names = self.names(group)
        paths = [path for element in elements for path in _expand_folders(group, element)]
        found = [self._find_or_add(group, element, names) for element in _add_families(paths, names)]
        chosen = select_names(key, found, [*names, *(element for element in found if element in self._added)])
        for name in chosen:
            for folder in self._folders:
                if (file := folder / group / f"{name}.yaml").is_file():
                    refuse_altered_texts(file, group)
        return chosen

    def _find_or_add(self, group: str, element: str, names: Sequence[str]) -> str:
        """Return names and patterns unchanged. For a folder, file or repository, add a config and return its name."""
        if element in names or group not in ("model", "dataset"):
            return element
        if element.startswith(_PATH_BEGINNINGS) or element in (".", ".."):
            path = user_path(element)
            if group == "model" or path.is_dir():
                return self._add(group, element, based_on="hf", path=str(path))
            name = re.sub(r"[*?\[\]]+", "", path.stem).strip("-_.") or "files"
            return self._add(group, element, based_on="files", files=[str(path)], name=name)
        if is_pattern(element) or not _REPOSITORY.fullmatch(element):
            return element
        family, _, size = element.partition("/")
        known_sizes = sizes_by_family(names)
        similar_families = nearest(family, known_sizes)
        has_similar_config = any(size.lower() in known_sizes[name] for name in similar_families)
        if family in known_sizes or has_similar_config:  # then it is a misspelled config, not a repository
            raise no_match_error(group, element, names)
        return self._add(group, element, based_on="hf", repo=element)

    def _add(self, group: str, element: str, *, based_on: str, **values: object) -> str:
        """Add a config that sets some values, and takes the others from the config `based_on`. Return its name."""
        name = f"given/{re.sub(r'[^A-Za-z0-9]+', '-', element).strip('-') or 'here'}"
        add_config(group, name, values, based_on=based_on)
        self._added.append(name)
        return name


def config_names(group: str) -> list[str]:
    """Return the names of a group's configs in the folders that are always searched."""
    return Choices(config_folders()).names(group)


def _add_families(elements: Sequence[str], names: Sequence[str]) -> list[str]:
    """Add the family to sizes without one: `nano/6k,15k` becomes `nano/6k,nano/15k`."""
    completed: list[str] = []
    family = ""
    for element in elements:
        with_family = f"{family}/{element}"
        if family and element not in names and with_family in names:
            element = with_family
        if element in names:
            family = element.rpartition("/")[0]
        completed.append(element)
    return completed


def _expand_folders(group: str, element: str) -> list[str]:
    """Expand a pattern of model folders, such as `./out/*/checkpoint-*`. Any other element stands for itself.

    Raises BadInput if no folder matches.
    """
    if group != "model" or not element.startswith(_PATH_BEGINNINGS) or not is_pattern(element):
        return [element]
    path = user_path(element).absolute()
    folders = [str(found) for found in Path(path.anchor).glob(str(path.relative_to(path.anchor))) if found.is_dir()]
    if not folders:
        raise BadInput(f"model={element}: no folder matches")
    return sorted(folders, key=natural_key)


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
