"""Export and import measurements: bundles with ranks, and files of other programs."""

from rbptrack.exchange.archive import is_bundle
from rbptrack.exchange.bundle import export_bundle, import_bundle
from rbptrack.exchange.checks import CheckedContent, check_imported
from rbptrack.exchange.intake import import_content

__all__ = ["CheckedContent", "check_imported", "export_bundle", "import_bundle", "import_content", "is_bundle"]
