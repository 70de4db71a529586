"""`python -m rbptrack export`: measurements as a bundle for others, or their ranks as a table; no model, no torch."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path

from rbptrack.analysis.plugin_code import import_path
from rbptrack.base.errors import BadInput, said_of_the_disk, unknown
from rbptrack.base.user_paths import check_writable_folder, user_path
from rbptrack.base.words import compact_bytes, counted
from rbptrack.commands.declared.exchange import EXPORT, ExportConfig
from rbptrack.config.paths import builtin_folder
from rbptrack.console.output import say
from rbptrack.exchange import bundle, hub_folder, tables
from rbptrack.tracking.store import Store

_TABLES = ("csv", "parquet")
EXPORTERS = "rbptrack.exporters"
"""The entry point group of exporters: functions as `plugins/exporters/wandb.py` has one."""


def _export(config: ExportConfig) -> int:
    if config.ranks not in ("", *_TABLES):
        raise unknown("kind of table", config.ranks, _TABLES)
    if config.documents and not config.ranks:
        raise BadInput(f"documents=true says what a row of a table is: give ranks={' or ranks='.join(_TABLES)}, too")
    if sum(map(bool, (config.hub, config.to, config.ranks))) > 1:
        raise BadInput("one export at a time: hub=FOLDER, to=NAME or ranks=KIND")
    if config.to:
        return _export_to(config)
    if config.hub:
        return _export_for_hub(config)
    if not config.out:
        raise BadInput(f"out=... is missing: {EXPORT.usage}")
    out, ending = user_path(config.out), f".{config.ranks or 'zip'}"
    if out.suffix != ending:
        raise BadInput(f"out={config.out}: the file's name must end in {ending}")
    _check_new(out)
    reader = Store(config.tracking).reader
    runs = reader.runs(config.filter).frame
    with said_of_the_disk(out.absolute().parent):
        if config.ranks:
            written = tables.write(reader, runs, out, documents=config.documents, tokens=config.tokens)
        else:
            written = bundle.write(reader, list(runs["run_id"]), out, tokens=config.tokens)
    without = "" if config.tokens or config.documents else ", without token ids"
    say(f"{counted(written, 'measurement')}{without}: {out} ({compact_bytes(out.stat().st_size)})")
    return 0 if written == len(runs) else 1


def _check_new(out: Path) -> None:
    if os.path.lexists(out):
        raise BadInput(f"{out} exists already; choose another name, or remove it")
    check_writable_folder(out.absolute().parent)


def _export_to(config: ExportConfig) -> int:
    """By an exporter: a file of `exporters/` in the project's or the working folder's plugins, or an installed one."""
    folders = (builtin_folder(), Path.cwd() / "plugins")
    files = {path.stem: path for folder in folders for path in (folder / "exporters").glob("[!_]*.py")}
    points = {point.name: point for point in entry_points(group=EXPORTERS)}
    if config.to not in {**files, **points}:
        raise unknown("exporter", config.to, sorted({**files, **points}))
    out = user_path(config.out or ".")
    if not out.is_dir():
        raise BadInput(f"out={config.out}: no such folder")
    export = import_path(files[config.to]).export if config.to in files else points[config.to].load()
    runs = Store(config.tracking).reader.runs(config.filter)
    say(export(runs, out=out, project=config.project, offline=config.offline))
    return 0


def _export_for_hub(config: ExportConfig) -> int:
    out = user_path(config.hub)
    _check_new(out)
    reader = Store(config.tracking).reader
    runs = reader.runs(config.filter).frame
    with said_of_the_disk(out.absolute().parent):
        written = hub_folder.write(reader, runs, out)
    say(f"{counted(len(runs), 'measurement')}: {out} (README.md, {hub_folder.DATA}; .eval_results of {written})")
    return 0


main = EXPORT.running(_export)
