"""A tracking store as the rest of the program has it: opened once, and handed down."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from rbptrack.tracking.connection import Connection
from rbptrack.tracking.reader import Reader

if TYPE_CHECKING:
    from rbptrack.tracking.writer import Writer


class Store(Connection):
    """One experiment of one tracking server or database, to be read and written; nothing is asked before it is used."""

    @cached_property
    def reader(self) -> Reader:
        """Reads it."""
        return Reader(self)

    @cached_property
    def writer(self) -> Writer:
        """Writes to it; a command that only reads a local store does not import MLflow."""
        from rbptrack.tracking.writer import Writer

        return Writer(self)
