"""The base class of exporters. An exporter writes measurements for another program."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from rbptrack.analysis.plugin import Plugin
from rbptrack.analysis.runs import Runs


class Exporter(Plugin):
    """Base class of exporters. Its fields are options of `rbptrack export --to NAME`."""

    @abstractmethod
    def export(self, runs: Runs, out: Path) -> str:
        """Export measurements, and return one line that tells the user what was written.

        Args:
            runs: the measurements.
            out: an empty folder for the exported files. It is deleted if the method raises an exception.

        Raises:
            BadInput: the exporter cannot run, for example because a Python package is missing.
            RbptrackError: the receiving program or server rejects the measurements.

        """
