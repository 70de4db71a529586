"""Refuse values of YAML files that are texts for rbptrack, but numbers or truth values in YAML."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rbptrack.base.errors import BadInput
from rbptrack.config.keys import key_types


def refuse_altered_texts(file: Path, section: str) -> None:
    """Raise BadInput if YAML alters a text in a config: `name: 1.10` is the number 1.1 in YAML.

    A file that is not YAML is not refused, because Hydra explains its errors.

    Args:
        file: the config.
        section: the section of the whole config that it sets, such as `model`.

    """
    try:
        root = yaml.compose(file.read_text(encoding="utf-8"), yaml.SafeLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return
    for key, scalar in _plain_scalars(root, section):
        names = (key, key.removeprefix(f"{section}."), key.rpartition(".")[0])  # the last may be a dict of texts
        types = [key_types()[name] for name in names if name in key_types()]
        if not types or str not in (types[0], *get_args(types[0])):
            continue
        value = _value_in_yaml(scalar)
        if value is not None and str(value) != scalar.value:
            raise BadInput(
                f"{file}, line {scalar.start_mark.line + 1}: {key.rpartition('.')[2]} must be a text, but "
                f"{scalar.value[:60]} is another value in YAML ({str(value)[:60]}). Put it in quotes: "
                f'"{scalar.value[:60]}"'
            )


def _value_in_yaml(scalar: yaml.ScalarNode) -> object:
    """Return the value that Hydra reads for a plain scalar; None if it has none, or another program explains why."""
    try:
        values = OmegaConf.to_container(OmegaConf.create(f"value: {scalar.value}"), resolve=False)
    except yaml.constructor.ConstructorError:  # `=`, which has a meaning of its own in YAML
        return "no text"
    except (OmegaConfBaseException, yaml.YAMLError):  # Hydra explains a wrong interpolation, such as `${size`
        return None
    return dict(values)["value"]  # type: ignore[arg-type]


def _plain_scalars(node: yaml.Node | None, key: str) -> Iterator[tuple[str, yaml.ScalarNode]]:
    """Yield the dotted key of each value without quotes and without a tag. The elements of a list have its key."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _plain_scalars(value, f"{key}.{name.value}")
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _plain_scalars(value, key)
    elif isinstance(node, yaml.ScalarNode) and not node.style:
        tag_of_plain_value = yaml.SafeLoader("").resolve(yaml.ScalarNode, node.value, (True, False))
        if node.tag == tag_of_plain_value:  # otherwise it has a tag of its own, such as `!!str 1.10`
            yield key, node
