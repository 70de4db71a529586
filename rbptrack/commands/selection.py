"""The measurements that a command is about: a tracking store, and filters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rbptrack.analysis.runs import EVERYTHING, Filters, Runs
from rbptrack.base.errors import RbptrackError
from rbptrack.console.output import complain
from rbptrack.tracking import Outbox, Store


@dataclass(frozen=True)
class Selection:
    """Measurements of a store.

    Attributes:
        uri: of the store; empty for the environment's or MLflow's own.
        experiment: MLflow's.
        filters: which of its measurements.

    """

    uri: str
    experiment: str
    filters: Filters = EVERYTHING

    @cached_property
    def store(self) -> Store:
        """The store. On first use, measurements that wait on this disk are delivered to it."""
        store = Store(self.uri, self.experiment)
        outbox = Outbox(store)
        if outbox.waiting():
            try:
                for delivered in outbox.deliver_waiting():
                    if delivered.error:
                        complain(f"{delivered.name} waits: {delivered.error}")
            except RbptrackError as error:  # the command itself may still be answered, or says it again
                complain(str(error))
        return store

    def runs(self) -> Runs:
        """Return the measurements that pass the filters. Raises BadInput if there are none."""
        return self.store.runs(self.filters)
