"""`python -m rbptrack rm`: remove measurements from the tracking store; no model, no torch."""

from __future__ import annotations

import sys

import pandas as pd

from rbptrack.base.errors import BadInput, shortened
from rbptrack.base.words import counted
from rbptrack.commands.declared.housekeeping import RM, RmConfig
from rbptrack.config.schema import FilterConfig
from rbptrack.console.output import program, say
from rbptrack.tracking.store import Store


def _rm(config: RmConfig) -> int:
    if not config.runs and config.filter == FilterConfig():
        raise BadInput(f"which measurements? {RM.usage}; {program()} list names them")
    store = Store(config.tracking)
    store.check_writable()
    runs = store.reader.runs(config.filter)
    chosen = pd.DataFrame([runs[name] for name in config.runs]) if config.runs else runs.frame
    chosen = chosen.drop_duplicates("run_id")
    names = [f"{model}/{dataset}" for model, dataset in zip(chosen["model"], chosen["dataset"], strict=True)]
    what = f"{counted(len(names), 'measurement')}: {shortened(names)}"
    if not config.yes and not _confirmed(what):
        say("nothing removed")
        return 1
    for run_id in chosen["run_id"]:
        store.writer.delete(run_id)
    say(f"removed {what}")
    return 0


def _confirmed(what: str) -> bool:
    """Return whether somebody at a terminal says yes."""
    if not sys.stdin.isatty():
        raise BadInput(f"{what}: no terminal to ask at; add yes=true to remove them")
    return input(f"remove {what}? [y/N] ").strip().lower() in ("y", "yes")


main = RM.running(_rm)
