"""Measure a corpus with an engine. This package does not use MLflow or config files."""

from rbptrack.engine.engine import Engine, EngineFailed
from rbptrack.engine.measure import Ranked, measure
from rbptrack.engine.served import Served
from rbptrack.engine.transformers import Transformers

__all__ = ["Engine", "EngineFailed", "Ranked", "Served", "Transformers", "measure"]
