"""A command whose options Hydra composes, such as `analyze`, and the plugins that it may name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rbptrack.analysis.contract import Analyzer
from rbptrack.analysis.discovery import ANALYZERS, Plugins, discover
from rbptrack.config.paths import unused_configs
from rbptrack.config.request import Request
from rbptrack.console.output import complain


@dataclass(frozen=True)
class HydraCommand:
    """A command whose options Hydra composes, such as `analyze`; call it with its arguments for its exit code."""

    read: Callable[[Sequence[str]], Request]
    action: Callable[[Request], int]

    def __call__(self, arguments: Sequence[str]) -> int:
        """Run the command, or let Hydra show what it is asked to show; returns the exit code; raises BadInput."""
        for path in unused_configs():
            complain(f"{path} is ignored: a config of that name is built in; rename yours")
        request = self.read(arguments)
        if request.only_shows:
            request.show()
            return 0
        return self.action(request)


def find_analyzers(folders: Sequence[str]) -> Plugins[Analyzer]:
    """Find every analyzer, those of some folders included, without importing any."""
    return discover(ANALYZERS, folders)


def complain_of_broken(plugins: Plugins[Any]) -> None:
    """Print which plugins cannot be used, and why."""
    for line in plugins.broken:
        complain(f"plugin left out: {line}")
