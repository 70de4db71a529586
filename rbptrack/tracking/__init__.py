"""Results in MLflow: finished measurements go in once and whole, and come out as `Runs`.

No other room imports mlflow.
"""

from rbptrack.tracking.facts import Facts
from rbptrack.tracking.record import Record, lay_out
from rbptrack.tracking.store import Fault, Store

__all__ = ["Facts", "Fault", "Record", "Store", "lay_out"]
