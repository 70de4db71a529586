"""rbptrack: how families of language models rank the right next token, and the scaling law of their ranks.

In Python: `rbptrack.measure`, `runs`, `analyze`, `report` and `RankCallback`; see docs/reference/api.md.
"""

import random
from importlib import import_module
from typing import TYPE_CHECKING

from rbptrack.base import __version__

if TYPE_CHECKING:
    from rbptrack.api import analyze, measure, runs
    from rbptrack.callback import RankCallback
    from rbptrack.ranks.measurement import Measurement
    from rbptrack.reporting.notebook import report
    from rbptrack.tracking.measurement import LoggableMeasurement

__all__ = [
    "LoggableMeasurement",
    "Measurement",
    "RankCallback",
    "__version__",
    "analyze",
    "measure",
    "report",
    "runs",
]

_LAZY = {
    "LoggableMeasurement": "tracking.measurement",
    "Measurement": "ranks.measurement",
    "RankCallback": "callback",
    "analyze": "api",
    "measure": "api",
    "report": "reporting.notebook",
    "runs": "api",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    """Return the API loads when it is used: mlflow, torch and transformers take seconds."""
    if name in _LAZY:
        state = random.getstate()  # libraries draw from it while they are imported; a notebook's seed is its own
        try:
            return getattr(import_module(f"rbptrack.{_LAZY[name]}"), name)
        finally:
            random.setstate(state)
    raise AttributeError(f"module 'rbptrack' has no attribute {name!r}")
