"""What an exporter is: it gets measurements as analyzers do, and hands them on."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rbptrack.analysis.plugin import Plugin
from rbptrack.analysis.runs import Runs
from rbptrack.base import __version__ as __version__  # for exporters
from rbptrack.base.names import file_name as file_name


@dataclass(kw_only=True)
class Exporter(Plugin):
    """Base of exporters: the subclass is a dataclass, its fields are options of `export to=NAME`."""

    makes_folder: ClassVar[bool] = False
    """Whether `out` is a new folder, which appears whole when `export` has returned, or not at all."""

    @abstractmethod
    def export(self, runs: Runs, out: Path) -> str:
        """Export measurements; returns a line about the result.

        Args:
            runs: the measurements.
            out: a folder for exporters that write files: the user's, or with `makes_folder` an empty one.

        Raises:
            BadInput: something that it needs is missing, such as a package.
            RbptrackError: the other side refuses.

        """
