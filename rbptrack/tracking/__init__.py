"""The tracking store: the only package that imports mlflow. Plain values go in, `Runs` come out."""

import os

# Read when mlflow is imported.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "40")  # three attempts: a busy server has two minutes

from rbptrack.tracking.claim import claim, repair
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.live import Heartbeat, Live, working
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.schema import MeasurementTags
from rbptrack.tracking.uri import resolve_uri
from rbptrack.tracking.writer import Writer

__all__ = [
    "Connection",
    "Heartbeat",
    "Live",
    "MeasurementTags",
    "Reader",
    "Writer",
    "claim",
    "repair",
    "resolve_uri",
    "working",
]
