"""`python -m rbptrack export`: measurements as a bundle for others, or their ranks as a table; no model, no torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path

from rbptrack.analysis.discovery import EXPORTERS, discover
from rbptrack.analysis.exporting import Exporter
from rbptrack.base.errors import BadInput, said_of_the_disk, unknown
from rbptrack.base.files import unfinished_folder
from rbptrack.base.user_paths import check_writable_folder, user_path
from rbptrack.base.words import compact_bytes, counted
from rbptrack.commands.declaration import with_options
from rbptrack.commands.declared.exchange import EXPORT, ExportConfig
from rbptrack.config.paths import plugin_folders
from rbptrack.console.output import say
from rbptrack.exchange import bundle, tables
from rbptrack.exchange.intake import guarded
from rbptrack.tracking.store import Store

_TABLES = ("csv", "parquet")


def _export(config: ExportConfig) -> int:
    if config.ranks not in ("", *_TABLES):
        raise unknown("kind of table", config.ranks, _TABLES)
    if config.documents and not config.ranks:
        raise BadInput(f"documents=true says what a row of a table is: give ranks={' or ranks='.join(_TABLES)}, too")
    if not config.out:
        raise BadInput(f"out=... is missing: {EXPORT.usage}")
    out = user_path(config.out)
    ending = f".{config.ranks or 'zip'}"
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


def _export_to(config: ExportConfig, cls: type[Exporter]) -> int:
    """Export with an exporter, which gets measurements as analyzers do."""
    exporter = cls(**{option.name: getattr(config, option.name) for option in fields(cls)})
    out = user_path(config.out or ".")
    if cls.makes_folder:
        if not config.out:
            raise BadInput(f"to={exporter.name} makes a folder; name it: out=FOLDER")
        _check_new(out)
    elif not out.is_dir():
        raise BadInput(f"out={config.out}: no such folder")
    else:
        check_writable_folder(out)
    runs = Store(config.tracking).reader.runs(config.filter)
    with (
        said_of_the_disk(out.absolute().parent),
        unfinished_folder(out) if cls.makes_folder else nullcontext(out) as folder,
        guarded(f"the exporter {exporter.name}"),
    ):
        words = exporter.export(runs, folder)
    say(f"{out}: {words}" if cls.makes_folder else str(words))
    return 0


def main(arguments: Sequence[str]) -> int:
    """Export measurements; returns the exit code."""
    name = next((word.partition("=")[2] for word in arguments if word.startswith("to=")), "")
    if not name:
        return _export(EXPORT.parsed(arguments))
    exporters = discover(EXPORTERS, plugin_folders(arguments))
    exporter = exporters.select(name)
    config = with_options(EXPORT, exporter).parsed(arguments)
    if config.ranks:
        raise BadInput("to=NAME and ranks=KIND are two exports; run one at a time")
    return _export_to(config, exporter)
