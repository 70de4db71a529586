"""What every plugin is: a dataclass whose fields are its options and whose docstring is its help."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar


@dataclass(kw_only=True)
class Plugin(ABC):
    """Base of analyzers, importers, exporters and executors.

    Attributes:
        name: of the plugin's file, folder or entry point; a class without one gets that name.

    """

    name: ClassVar[str]


def help_line(plugin: type[Plugin]) -> str:
    """Return the first line of a plugin's docstring: what it answers or does, as users see it."""
    return (plugin.__doc__ or plugin.name).strip().splitlines()[0]
