"""`python -m rbptrack export`: measurements as a bundle for others, or their ranks as a table; no model, no torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

from rbptrack.base.errors import BadInput, said_of_the_disk, unknown
from rbptrack.base.words import compact_bytes, counted
from rbptrack.commands.options import OptionsCommand
from rbptrack.config.schema import FILTERS, FilterConfig, TrackingConfig
from rbptrack.console.sentences import say
from rbptrack.exchange import bundle, tables
from rbptrack.tracking.store import Store

_TABLES = ("csv", "parquet")


@dataclass
class ExportConfig:
    """Options of the command."""

    out: str = MISSING
    tokens: bool = False
    ranks: str = ""
    documents: bool = False
    filter: FilterConfig = field(default_factory=FilterConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


def _export(config: ExportConfig) -> int:
    if config.ranks not in ("", *_TABLES):
        raise unknown("kind of table", config.ranks, _TABLES)
    if config.documents and not config.ranks:
        raise BadInput(f"documents=true says what a row of a table is: give ranks={' or ranks='.join(_TABLES)}, too")
    out, ending = Path(config.out).expanduser(), f".{config.ranks or 'zip'}"
    if out.suffix != ending:
        raise BadInput(f"out={config.out}: the file's name must end in {ending}")
    if os.path.lexists(out):
        raise BadInput(f"{out} exists already; choose another name, or remove it")
    if not out.absolute().parent.is_dir():
        raise BadInput(f"out={config.out}: no folder {out.parent}")
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


main = OptionsCommand("export", ExportConfig, _export, lists=FILTERS)
