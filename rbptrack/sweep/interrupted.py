"""What an interrupt leaves of a sweep: which cells are measured, which partly, which not begun, and what continues."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rbptrack.config.paths import partial
from rbptrack.config.schema import Config
from rbptrack.console import say
from rbptrack.errors import RbptrackError
from rbptrack.sweep.outcome import OUTCOME, Outcome
from rbptrack.sweep.resolve import process_resolver
from rbptrack.tracking import Connection, outbox

_MOST = 12  # cells that are named


def tell_what_is_kept(cells: Sequence[Config], outcomes: Sequence[Outcome], *, folder: Path, command: str) -> None:
    """Print what was measured, what is saved of the rest, and the command that continues.

    Args:
        cells: all of the sweep.
        outcomes: of the cells that ended.
        folder: of the sweep, where each cell that ended left its outcome.
        command: the command line that was interrupted.

    """
    from rbptrack.engine.parts import saved_tokens

    left = [cell for number, cell in enumerate(cells) if not (folder / str(number) / OUTCOME).exists()]
    fingerprints = {cell.title: _fingerprint(cell) for cell in left}
    complete = [cell.title for cell in left if outbox.find(Connection(cell.tracking), fingerprints[cell.title])]
    saved = [(cell.title, saved_tokens(partial() / fingerprints[cell.title])) for cell in left]
    partly = [(title, tokens) for title, tokens in saved if tokens and title not in complete]
    kept = sum(o.status in ("measured", "skipped") for o in outcomes) + len(complete)
    untouched = len(left) - len(partly) - len(complete)
    say(f"interrupted: {kept} of {len(cells)} cells measured, {len(partly)} partly, {untouched} not begun")
    for title in complete:
        say(f"  {title}: measured, and not in the tracking store yet; the next command delivers it")
    for title, tokens in partly[:_MOST]:
        say(f"  {title}: {tokens:,} scored tokens are saved")
    if rest := partly[_MOST:]:
        say(f"  and {len(rest)} more: {sum(tokens for _, tokens in rest):,} scored tokens")
    say("continue with")
    say(f"  {command}", whole=True)


def _fingerprint(cell: Config) -> str:
    """A cell's fingerprint; what cannot be resolved has none, and nothing is saved of it."""
    try:
        return process_resolver().resolve(cell).fingerprint
    except RbptrackError:
        return "unknown"
