"""Exact ranks of next tokens for families of language models, and the scaling law that they follow.

In Python: `rbptrack.measure`, `rbptrack.runs`, `rbptrack.laws`, `rbptrack.analyze`, `rbptrack.RankCallback`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rbptrack.api import LoggedMeasurement, analyze, laws, measure, runs
    from rbptrack.callback import RankCallback

__all__ = ["LoggedMeasurement", "RankCallback", "__version__", "analyze", "laws", "measure", "runs"]

_ROOMS = {
    "LoggedMeasurement": "api",
    "RankCallback": "callback",
    "analyze": "api",
    "laws": "api",
    "measure": "api",
    "runs": "api",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    """Load the API when it is used: torch, transformers and MLflow take seconds."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'rbptrack' has no attribute {name!r}")
    return getattr(import_module(f"rbptrack.{_ROOMS[name]}"), name)
