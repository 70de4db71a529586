"""The base class of exporters, which write measurements for other programs."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from rbptrack.analysis.plugin import Plugin
from rbptrack.analysis.runs import Runs
from rbptrack.base.escape import file_part as file_part  # for exporters that write files


class Exporter(Plugin):
    """Base class of exporters. Its fields are options of `rbptrack export --to NAME`."""

    @abstractmethod
    def export(self, runs: Runs, out: Path) -> str:
        """Export measurements, and return one line about the result.

        Args:
            runs: the measurements.
            out: an empty folder for the exported files. If the method raises an exception, the folder is deleted.

        Raises:
            BadInput: the exporter cannot run, for example because a package is missing.
            RbptrackError: the receiving program or server refuses the export.

        """
