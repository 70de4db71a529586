"""`python -m rbptrack verify`: check the store's files and numbers; no model, no torch."""

from __future__ import annotations

from dataclasses import asdict

from rbptrack.base.errors import BadInput, RbptrackError, first_line
from rbptrack.base.words import counted
from rbptrack.commands.declared.housekeeping import VERIFY, VerifyConfig
from rbptrack.console.output import complain, program, say
from rbptrack.console.tables import Format, print_json
from rbptrack.sweep.identity import identities
from rbptrack.tracking.schema import Tag
from rbptrack.tracking.store import Store
from rbptrack.tracking.verify import Verified, database_faults, mark, unlooked, verify

_SPLIT = "the runs' notes say how many, their param model.split_difference how far logits moved"


def _verify(config: VerifyConfig) -> int:
    """Verify; returns 1 if anything is wrong."""
    store = Store(config.tracking, create=False)
    if not store.exists:
        store.check_writable()  # says so where something else stands there
        raise BadInput(f"no tracking store at {store.database}: measure something first")
    broken = list(database_faults(store))
    as_json = config.format is Format.json
    for line in broken if not as_json else ():
        complain(f"the database {store.shown}: {line}")
    if broken and not as_json:
        remedy = "restore it from a backup, or have its keeper rebuild the indexes: reindexdb"
        if store.database:
            remedy = (
                f"restore the database from a copy; or make a new one of what can be read: sqlite3 {store.database} "
                f".recover | sqlite3 {store.database.with_name('recovered.db')}"
            )
        complain(remedy)
    store.open()  # a table that is missing, and the like
    if not as_json and (text := unlooked(store)):
        say(text)
    done = verify(store.reader, config.filter, read_data=config.read_data, identify=identities)
    for fault in done.faults if not as_json else ():
        complain(f"{fault.name} (run {fault.run_id}): {fault.text}")
    if done.damaged and config.repair:
        writer = store.writer
        for run_id, why in done.damaged.items():
            writer.set_aside(run_id, Tag.DAMAGED, why)
    elif done.damaged or done.cured:
        try:
            mark(store.writer, done)
        except RbptrackError as error:
            complain(f"list cannot show the damaged runs: {first_line(error)}")
    if as_json:
        print_json({"database": broken, **asdict(done), "damaged": done.damaged})
    else:
        _summarise(done, config)
    return 1 if broken or done.faults else 0


def _summarise(done: Verified, config: VerifyConfig) -> None:
    checked = counted(done.measurements, "measurement")
    depth = "files read" if config.read_data else "files not read: read_data=true does"
    if done.unidentified:
        depth += f"; {counted(done.unidentified, 'fingerprint')} not checked, because the params do not suffice"
    if done.split:
        say(f"{counted(done.split, 'measurement')} of models split in half precision, which moved some ranks: {_SPLIT}")
    if not done.damaged:
        say(f"{checked} verified ({depth})")
        return
    say(f"{checked} verified ({depth}): {len(done.damaged)} damaged")
    if config.repair:
        say("marked: the next sweep measures them again; imported ones, the next import brings back")
    else:
        say(f"restore them from a copy, or let the next sweep measure them again: {program()} verify repair=true")


main = VERIFY.running(_verify)
