"""Exports and imports measurements: bundles with ranks, and files of other programs."""

from rbptrack.exchange.bundle import export_bundle, import_bundle, is_bundle
from rbptrack.exchange.intake import import_source

__all__ = ["export_bundle", "import_bundle", "import_source", "is_bundle"]
