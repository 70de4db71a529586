"""Results in MLflow: finished measurements go in once and whole, and come out as `Runs`.

No other room imports mlflow.
"""

from rbptrack.tracking.facts import Facts
from rbptrack.tracking.outbox import Outbox
from rbptrack.tracking.record import Record, lay_out
from rbptrack.tracking.store import Store
from rbptrack.tracking.verify import Fault

__all__ = ["Facts", "Fault", "Outbox", "Record", "Store", "lay_out"]
