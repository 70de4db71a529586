"""What an interrupt leaves of a sweep: which cells are measured, which partly, which not begun, and what continues."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rbptrack.config.paths import home
from rbptrack.config.schema import Config
from rbptrack.console import say
from rbptrack.errors import RbptrackError
from rbptrack.sweep.outcome import OUTCOME, Outcome
from rbptrack.sweep.resolve import process_resolver

_MOST = 12  # cells that are named


def tell_what_is_kept(cells: Sequence[Config], outcomes: Sequence[Outcome], *, folder: Path, command: str) -> None:
    """Print what was measured, what is saved of the rest, and the command that continues.

    Args:
        cells: all of the sweep.
        outcomes: of the cells that ended.
        folder: of the sweep, where each cell that ended left its outcome.
        command: the command line that was interrupted.

    """
    left = [cell for number, cell in enumerate(cells) if not (folder / str(number) / OUTCOME).exists()]
    saved = [(cell.title, _saved_tokens(cell)) for cell in left]
    partly = [(title, tokens) for title, tokens in saved if tokens]
    kept = sum(o.status in ("measured", "skipped") for o in outcomes)
    untouched = len(left) - len(partly)
    say(f"interrupted: {kept} of {len(cells)} cells measured, {len(partly)} partly, {untouched} not begun")
    for title, tokens in partly[:_MOST]:
        say(f"  {title}: {tokens:,} scored tokens are saved")
    if rest := partly[_MOST:]:
        say(f"  and {len(rest)} more: {sum(tokens for _, tokens in rest):,} scored tokens")
    say("continue with")
    say(f"  {command}", whole=True)


def _saved_tokens(cell: Config) -> int:
    """Scored tokens of an unfinished measurement that are on disk."""
    from rbptrack.engine.parts import saved_tokens

    try:
        return saved_tokens(home() / "partial" / process_resolver().resolve(cell).fingerprint)
    except RbptrackError:
        return 0
