"""What an exporter is: it gets measurements as analyzers do, and hands them on."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path

from rbptrack.analysis.plugin import Plugin
from rbptrack.analysis.runs import Runs


@dataclass(kw_only=True)
class Exporter(Plugin):
    """Base of exporters: the subclass is a dataclass, its fields are options of `export to=NAME`."""

    @abstractmethod
    def export(self, runs: Runs, out: Path) -> str:
        """Hand measurements on; returns in words what was done.

        Args:
            runs: the measurements.
            out: a folder that is there and can be written, for exporters that write files.

        Raises:
            BadInput: something that it needs is missing, such as a package.
            RbptrackError: the other side refuses.

        """
