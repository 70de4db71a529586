"""Results that come and go: bundles of whole measurements, and what importers read of others' files."""

from rbptrack.exchange.bundle import export_bundle, import_bundle, is_bundle
from rbptrack.exchange.intake import import_source

__all__ = ["export_bundle", "import_bundle", "import_source", "is_bundle"]
