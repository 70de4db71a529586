"""The commands `export` and `import`, which exchange measurements with other people."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from rbptrack.analysis.importing import CheckedSource, Importer, checked, family_and_size
from rbptrack.analysis.plugin import with_options
from rbptrack.analysis.reading import load_json
from rbptrack.base.errors import BadInput
from rbptrack.base.words import compact_bytes, counted, listed
from rbptrack.commands.selection import Selection
from rbptrack.config.paths import user_path
from rbptrack.config.registration import published_names
from rbptrack.console.output import command_line, say
from rbptrack.discovery import EXPORTERS, IMPORTERS, Plugins, find, guarded
from rbptrack.exchange import export_bundle, import_bundle, import_source, is_bundle
from rbptrack.reporting import render_reading


def export(
    selection: Selection,
    out: Path,
    *,
    to: str,
    options: Sequence[str],
    plugins_path: Sequence[str],
    texts: bool = False,
) -> int:
    """Write the measurements into a new bundle, or hand them to an exporter, which fills a new folder.

    With `texts` the bundle holds a reading page in addition.
    """
    out = user_path(str(out))
    if os.path.lexists(out):
        raise BadInput(f"{out} exists already: give another name, or remove it")
    if not out.absolute().parent.is_dir():
        raise BadInput(f"{out}: the folder {out.absolute().parent} does not exist; create it or choose another")
    if not to:
        if out.suffix != ".zip":
            raise BadInput(f"{out}: a bundle's name ends in .zip; --to EXPORTER writes something else")
        if options:
            raise BadInput(f"a bundle has no options; got {listed(list(options))}")
        runs = selection.runs()
        reading = render_reading(runs, command=command_line())[0] if texts else ""
        written = export_bundle(runs, out, reading=reading)
        say(f"{counted(written, 'measurement')}: {out} ({compact_bytes(out.stat().st_size)})")
        return 0
    if texts:
        raise BadInput("--texts adds a page to a bundle; leave it out, or leave out --to")
    exporter = with_options(find(EXPORTERS, plugins_path).select(to), options)
    runs = selection.runs()
    with tempfile.TemporaryDirectory(dir=out.absolute().parent, prefix=f".{out.name[:80]}.") as name:
        folder = Path(name) / "out"
        folder.mkdir()
        line = guarded(exporter, lambda: exporter.export(runs, folder), str)
        if not line.strip():
            raise BadInput(f"the exporter {to} says nothing about what it exported; nothing was written")
        if folder.is_dir() and any(folder.iterdir()):
            shutil.move(folder, out)
    say(line)
    return 0


def import_path(
    selection: Selection, path: Path, options: Sequence[str], *, importer: str, plugins_path: Sequence[str]
) -> int:
    """Import a bundle, or import another file or folder with the importer that can read it."""
    path = user_path(str(path))
    if not path.exists():
        raise BadInput(f"{path} does not exist")
    if not importer and is_bundle(path):
        if options:
            raise BadInput(f"a bundle has no options; got {listed(list(options))}")
        lines = import_bundle(path, selection.store)
    else:
        importers = find(IMPORTERS, plugins_path)
        chosen = importer or _importer_of(importers, path)
        plugin = with_options(importers.select(chosen), options)
        source = guarded(plugin, lambda: checked(path, plugin.read(path), split=_splitter()), CheckedSource)
        lines = import_source(chosen, source, path, selection.store)
    for line in lines:
        say(line)
    return 0


def _importer_of(importers: Plugins[Importer], path: Path) -> str:
    """Return the name of the importer that can read a file. Raises BadInput if there is not exactly one."""
    takers = [name for name in importers.names if _takes(importers.select(name)(), path)]
    if len(takers) == 1:
        return takers[0]
    if takers:
        raise BadInput(f"{path}: {listed(takers)} take it; say which: --importer {takers[0]}")
    if path.suffix.lower() == ".zip":
        raise BadInput(f"{path} is not a bundle of rbptrack, or damaged: it holds no bundle.json, or is not a zip")
    if path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        raise BadInput(f"{path} is a spreadsheet: save it as CSV, and import that")
    if path.suffix.lower() == ".json" and path.is_file():
        load_json(path, finite=False)  # says what is wrong, if it is not JSON at all
    names = ", ".join(importers.names)
    raise BadInput(f"{path}: none of the importers takes it: {names}. --importer NAME says what one misses in it")


def _takes(importer: Importer, path: Path) -> bool:
    return guarded(importer, lambda: importer.takes(path), bool)


def _splitter() -> Callable[[str], tuple[str, str]]:
    """Return what gives family and size of a model: by the config of its repository, else as its name has them."""
    published = cache(published_names)  # read if it is needed, once

    def split(model: str) -> tuple[str, str]:
        return published().get(model.lower().rpartition("/")[2]) or family_and_size(model)

    return split
