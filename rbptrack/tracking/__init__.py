"""Keep results in MLflow. Each finished measurement is logged once and completely, and is read as a row of `Runs`.

No other package of rbptrack imports mlflow.
"""

from rbptrack.tracking.outbox import Delivery, Outbox
from rbptrack.tracking.store import Store
from rbptrack.tracking.verify import Fault

__all__ = ["Delivery", "Fault", "Outbox", "Store"]
