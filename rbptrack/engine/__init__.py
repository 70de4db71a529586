"""The loop: corpus x model -> Measurement. It knows nothing of MLflow or of config files."""

from rbptrack.engine.measure import measure

__all__ = ["measure"]
