"""The command `export`, which writes measurements into a bundle or exports them with an exporter."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import compact_bytes, counted, listed
from rbptrack.cli.options import NO_VALUES, PluginOptions, PluginsPath, Selection, select_filtered, with_selection
from rbptrack.config.paths import user_path
from rbptrack.console.output import command_line, print_text


@with_selection(select_filtered)
def export(
    selection: Selection,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="the new bundle, NAME.zip; with --to, the new folder")],
    options: PluginOptions = NO_VALUES,
    to: Annotated[str, typer.Option(metavar="EXPORTER", help="hand the measurements to this exporter")] = "",
    texts: Annotated[
        bool, typer.Option("--texts", help="add read.html, a page that shows the texts, to the bundle")
    ] = False,
    plugins_path: PluginsPath = NO_VALUES,
) -> int:
    """Write measurements into a bundle that others can import, or export them with an exporter."""
    out = user_path(str(out))
    if os.path.lexists(out):
        raise BadInput(f"{out} exists already: give another name, or remove it")
    if not out.absolute().parent.is_dir():
        raise BadInput(f"{out}: the folder {out.absolute().parent} does not exist; create it or choose another")
    if to and texts:
        raise BadInput("--texts adds a page to a bundle: leave out --texts or --to")
    if to:
        _run_exporter(selection, out, to, options, plugins_path)
        return 0
    if out.suffix != ".zip":
        raise BadInput(f"{out}: the name of a bundle must end in .zip. To write another format, add --to EXPORTER")
    if options:
        raise BadInput(f"a bundle has no options; got {listed(list(options))}")
    from rbptrack.exchange import export_bundle
    from rbptrack.reporting import render_reading

    runs = selection.runs()
    reading_page = render_reading(runs, command=command_line())[0] if texts else ""
    number = export_bundle(runs, out, reading=reading_page)
    print_text(f"{counted(number, 'measurement')}: {out} ({compact_bytes(out.stat().st_size)})")
    return 0


def _run_exporter(
    selection: Selection, out: Path, name: str, options: Sequence[str], plugins_path: Sequence[str]
) -> None:
    """Export measurements into the new folder `out`. If the exporter fails, nothing is written."""
    from rbptrack.analysis.plugin import make_plugin_from_words
    from rbptrack.discovery import EXPORTERS, call_plugin, find_plugins

    exporter = make_plugin_from_words(find_plugins(EXPORTERS, plugins_path).load(name), options)
    runs = selection.runs()
    with tempfile.TemporaryDirectory(dir=out.absolute().parent, prefix=f".{out.name[:80]}.") as temporary:
        folder = Path(temporary) / "out"
        folder.mkdir()
        line = call_plugin(exporter, lambda: exporter.export(runs, folder), str)
        if not line.strip():
            raise BadInput(f"the exporter {name} must return a line about what it exported; nothing was written")
        if folder.is_dir() and any(folder.iterdir()):
            shutil.move(folder, out)
    print_text(line)
