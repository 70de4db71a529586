"""Find plugins, run each one guarded, and check what they return. A failing plugin does not stop the others."""

from rbptrack.discovery.find import (
    ANALYZERS,
    EXPORTERS,
    IMPORTERS,
    KINDS,
    Kind,
    PluginEntry,
    Plugins,
    find_plugins,
    plugin_template,
)
from rbptrack.discovery.run import guarded, run_analyzer

__all__ = [
    "ANALYZERS",
    "EXPORTERS",
    "IMPORTERS",
    "KINDS",
    "Kind",
    "PluginEntry",
    "Plugins",
    "find_plugins",
    "guarded",
    "plugin_template",
    "run_analyzer",
]
