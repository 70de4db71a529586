"""Measure how language models rank the right next token, and fit scaling laws to the results.

- `rbptrack.measure` measures a model in memory.
- `rbptrack.runs` reads measurements from a tracking store.
- `rbptrack.laws` fits laws in model size, and `rbptrack.analyze` runs an analyzer.
- `rbptrack.RankCallback` measures a model while a Trainer trains it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rbptrack.api import LoggableMeasurement, analyze, laws, measure, runs
    from rbptrack.callback import RankCallback

__all__ = ["LoggableMeasurement", "RankCallback", "__version__", "analyze", "laws", "measure", "runs"]

_MODULE_OF_NAME = {
    "LoggableMeasurement": "api",
    "RankCallback": "callback",
    "analyze": "api",
    "laws": "api",
    "measure": "api",
    "runs": "api",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    """Import the module of a public name on first use, because torch, transformers and MLflow take seconds to load."""
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'rbptrack' has no attribute {name!r}")
    return getattr(import_module(f"rbptrack.{_MODULE_OF_NAME[name]}"), name)
