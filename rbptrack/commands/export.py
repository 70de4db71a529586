"""`python -m rbptrack export`: measurements as a bundle for others; no model, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

from rbptrack.commands.runner import OptionsCommand
from rbptrack.config.schema import FILTERS, FilterConfig, TrackingConfig
from rbptrack.console import compact_bytes, say
from rbptrack.errors import BadInput
from rbptrack.exchange import bundle
from rbptrack.tracking import Connection, Reader

USAGE = """python -m rbptrack export out=bundle.zip [family=...] [size=...] [dataset=...] [sweep=...]

Writes measurements into one file that `python -m rbptrack import` reads into any other store, with
the same fingerprints and numbers: whoever gets it can analyse them without a model. Filters take
lists and patterns. Token ids are left out, because the text can be read from them; tokens=true
keeps them. Also: [tokens=true] [tracking.uri=...] [tracking.experiment=...]"""


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
    if out.exists():
        raise BadInput(f"{out} exists already; choose another name, or remove it")
    if not out.absolute().parent.is_dir():
        raise BadInput(f"out={config.out}: no folder {out.parent}")
    reader = Reader(Connection(config.tracking))
    run_ids = list(reader.runs(config.filter).frame["run_id"])
    bundle.write(reader, run_ids, out, tokens=config.tokens)
    without = "" if config.tokens else ", without token ids"
    say(f"{len(run_ids)} measurements{without}: {out} ({compact_bytes(out.stat().st_size)})")
    return 0


main = OptionsCommand(ExportConfig, USAGE, _export, lists=FILTERS)
