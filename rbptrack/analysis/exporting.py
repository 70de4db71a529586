"""What an exporter is: it gets measurements as analyzers do, and hands them on."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from rbptrack.analysis.plugin import Plugin
from rbptrack.analysis.runs import Runs
from rbptrack.base.escape import file_part as file_part  # for exporters that write files


class Exporter(Plugin):
    """Base of exporters. Its fields are options of `rbptrack export --to NAME`."""

    @abstractmethod
    def export(self, runs: Runs, out: Path) -> str:
        """Export measurements, and return a line about the result.

        Args:
            runs: the measurements.
            out: an empty folder; it becomes the user's when this has returned, or is removed where it raises.

        Raises:
            BadInput: something that it needs is missing, such as a package.
            RbptrackError: the other side refuses.

        """
