"""The command `plugins`, which lists plugins and creates new ones."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rbptrack.analysis.plugin import summary_of
from rbptrack.base.errors import BadInput
from rbptrack.base.files import write_whole
from rbptrack.base.words import short_path
from rbptrack.console.output import complain, program, say
from rbptrack.console.tables import print_table
from rbptrack.discovery import KINDS, Plugins, find, template

_USE = {"analyzer": "analyze {name}", "importer": "import FILE --importer {name}", "exporter": "export OUT --to {name}"}


def list_plugins(paths: Sequence[str]) -> int:
    """Print every plugin with its first line and its file. Returns 1 if one cannot be loaded."""
    rows = []
    broken = []
    for kind in KINDS:
        plugins: Plugins[Any] = find(kind, paths)
        for name, plugin in plugins.load().items():
            origin = short_path(plugins.found[name].origin)
            rows.append({"name": name, "kind": kind.word, "does": summary_of(plugin), "from": origin})
        broken.extend(plugins.broken)
    print_table(pd.DataFrame(rows), last_to_go=["kind", "does"])
    for error in broken:
        complain(str(error), error.trace)
    return 1 if broken else 0


def new_plugin(name: str, word: str) -> int:
    """Create a working plugin in `plugins/` of the working folder, as a file to start from."""
    (kind,) = [kind for kind in KINDS if kind.word == word]
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_") or name in {k.folder for k in KINDS}:
        raise BadInput(f"{name}: the name of a plugin must be a word of letters, digits and _, such as my_law")
    existing = find(kind).found.get(name)
    file = Path("plugins") / kind.folder / f"{name}.py"
    if existing or file.exists():
        there = short_path(existing.origin) if existing else file
        raise BadInput(f"there is already a {word} {name} in {there}: give another name")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, template(kind, name))
    say(f"{file} is a working {word}. Try it, then change it: {program()} {_USE[word].format(name=name)}")
    return 0
