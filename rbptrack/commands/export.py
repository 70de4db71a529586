"""`python -m rbptrack export`: measurements as a bundle for others; no model, no torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

from rbptrack.base.errors import BadInput, said_of_the_disk
from rbptrack.base.words import compact_bytes, counted
from rbptrack.commands.runner import OptionsCommand
from rbptrack.commands.usage import FILTER_OPTIONS, STORE_OPTIONS, Help
from rbptrack.config.schema import FILTERS, FilterConfig, TrackingConfig
from rbptrack.console.sentences import say
from rbptrack.exchange import bundle
from rbptrack.tracking import Connection, Reader

HELP = Help(
    "export out=bundle.zip [FILTERS]",
    """Writes measurements into one file that `rbptrack import` reads into any other store, with the same fingerprints
    and numbers: whoever gets it can analyse them without a model. What is damaged is named and left out; the command
    then ends with 1.""",
    {
        "out=FILE.zip": "the file to write; it must not exist yet",
        "tokens=true": "keep the ids of the tokens, from which the text can be read; they are left out otherwise",
        **FILTER_OPTIONS,
        **STORE_OPTIONS,
    },
    {"export out=nano.zip family=nano": "all measurements of one family"},
)


@dataclass
class ExportConfig:
    """Options of the command."""

    out: str = MISSING
    tokens: bool = False
    filter: FilterConfig = field(default_factory=FilterConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


def _export(config: ExportConfig) -> int:
    out = Path(config.out).expanduser()
    if out.suffix != ".zip":
        raise BadInput(f"out={config.out}: the file's name must end in .zip")
    if os.path.lexists(out):
        raise BadInput(f"{out} exists already; choose another name, or remove it")
    if not out.absolute().parent.is_dir():
        raise BadInput(f"out={config.out}: no folder {out.parent}")
    reader = Reader(Connection(config.tracking))
    run_ids = list(reader.runs(config.filter).frame["run_id"])
    with said_of_the_disk(out.absolute().parent):
        written = bundle.write(reader, run_ids, out, tokens=config.tokens)
    without = "" if config.tokens else ", without token ids"
    say(f"{counted(written, 'measurement')}{without}: {out} ({compact_bytes(out.stat().st_size)})")
    return 0 if written == len(run_ids) else 1


main = OptionsCommand("export", ExportConfig, HELP, _export, lists=FILTERS)
