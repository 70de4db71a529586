"""Measures a model on a corpus. This package does not use MLflow or config files."""

from rbptrack.engine.measure import measure

__all__ = ["measure"]
