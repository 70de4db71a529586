"""`plugins`: what is installed, and what is broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from rbptrack.analysis.plugin import summary_of
from rbptrack.base.words import short_path
from rbptrack.console.output import complain
from rbptrack.console.tables import print_table
from rbptrack.discovery import KINDS, Plugins, find


def list_plugins(paths: Sequence[str]) -> int:
    """Print every plugin with its first line and its file; returns 1 where one cannot be loaded."""
    rows = []
    broken = []
    for kind in KINDS:
        plugins: Plugins[Any] = find(kind, paths)
        for name, plugin in plugins.load().items():
            origin = short_path(plugins.found[name].origin)
            rows.append({"name": name, "kind": kind.word, "does": summary_of(plugin), "from": origin})
        broken.extend(plugins.broken)
    print_table(pd.DataFrame(rows), last_to_go=["kind", "does"])
    for line in dict.fromkeys(broken):  # a folder that is not there, for each kind
        complain(line)
    return 1 if broken else 0
