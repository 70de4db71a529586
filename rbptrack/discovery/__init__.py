"""Find plugins, call them, and check what they return. A plugin that fails does not stop the others."""

from rbptrack.discovery.find import (
    ANALYZERS,
    EXPORTERS,
    IMPORTERS,
    KINDS,
    PluginEntry,
    PluginKind,
    Plugins,
    find_plugins,
    plugin_template,
)
from rbptrack.discovery.run import call_plugin, run_analyzer

__all__ = [
    "ANALYZERS",
    "EXPORTERS",
    "IMPORTERS",
    "KINDS",
    "PluginEntry",
    "PluginKind",
    "Plugins",
    "call_plugin",
    "find_plugins",
    "plugin_template",
    "run_analyzer",
]
