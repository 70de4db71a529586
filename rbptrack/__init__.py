"""Measure how language models rank the right next token, and fit scaling laws to the results.

- `rbptrack.measure` measures a model in memory, and `rbptrack.RankCallback` while a Trainer trains it.
- `rbptrack.runs` reads measurements from a tracking store. `runs.analyze` runs an analyzer on them.
- `rbptrack.compare` compares two measurements, and `rbptrack.laws` fits laws in model size.
- `rbptrack.report` runs all analyzers and writes a page.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rbptrack.api import compare, laws, measure, report, runs
    from rbptrack.callback import RankCallback

__all__ = ["RankCallback", "compare", "laws", "measure", "report", "runs"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    """Import the module of a public name on first use, because torch, transformers and MLflow take seconds to load."""
    if name not in __all__:
        raise AttributeError(f"module 'rbptrack' has no attribute {name!r}")
    return getattr(import_module("rbptrack.callback" if name == "RankCallback" else "rbptrack.api"), name)
