"""A tracking store as the rest of the program has it: opened once, and handed down."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from rbptrack.base.errors import StoreAway
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.reader import Reader

if TYPE_CHECKING:
    from rbptrack.tracking.writer import Writer

_PATIENCE_SECONDS = 15.0  # how long to wait for a store that answered before; then a measurement begins without it
_GIVEN_UP: set[str] = set()  # stores that this process waited for in vain


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

    def wait(self) -> None:
        """Wait a little for a store that does not answer; not again while it stays away."""
        import tenacity  # a tenth of what reading a local store takes

        waits = tenacity.wait_exponential(multiplier=1, max=8)
        patience = 0.0 if self.uri in _GIVEN_UP else _PATIENCE_SECONDS
        attempts = tenacity.Retrying(
            stop=tenacity.stop_after_delay(patience), wait=waits, retry=tenacity.retry_if_exception_type(StoreAway)
        )
        try:
            for attempt in attempts:
                with attempt:
                    self._away_until = 0.0
                    client = self.open()
                    with self.explained():
                        client.get_experiment(self._experiment_id)
            _GIVEN_UP.discard(self.uri)
        except tenacity.RetryError:
            _GIVEN_UP.add(self.uri)
