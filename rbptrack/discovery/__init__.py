"""Finds plugins, checks what they return, and runs them so that one failure does not end the others."""

from rbptrack.discovery.find import ANALYZERS, EXPORTERS, IMPORTERS, KINDS, Found, Kind, Plugins, find, template
from rbptrack.discovery.run import guarded, run_analyzer

__all__ = [
    "ANALYZERS",
    "EXPORTERS",
    "IMPORTERS",
    "KINDS",
    "Found",
    "Kind",
    "Plugins",
    "find",
    "guarded",
    "run_analyzer",
    "template",
]
