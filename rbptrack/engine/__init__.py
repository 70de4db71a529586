"""Measures a corpus with an engine. This package does not use MLflow or config files."""

from rbptrack.engine.engine import Engine
from rbptrack.engine.measure import Ranked, measure
from rbptrack.engine.transformers import Transformers

__all__ = ["Engine", "Ranked", "Transformers", "measure"]
