"""What an interrupt leaves of a sweep: which cells are measured, which partly, which not begun, and what continues."""

from __future__ import annotations

from collections.abc import Sequence

from rbptrack.config.paths import partial
from rbptrack.config.schema import Config
from rbptrack.console.output import say
from rbptrack.sweep.resolved import Resolved
from rbptrack.sweep.results import Results
from rbptrack.tracking import outbox
from rbptrack.tracking.store import Store

_MOST = 2  # lines about single cells: five in all


def tell_what_is_kept(cells: Sequence[Config], resolved: Sequence[Resolved], results: Results, command: str) -> None:
    """Print the finished and the partly saved cells, and the command that continues."""
    from rbptrack.engine.parts import saved_tokens

    outcomes = results.collect(cells)
    left = [
        (c.title, r.fingerprint) for n, (c, r) in enumerate(zip(cells, resolved, strict=True)) if n not in results.cells
    ]
    store = Store(cells[0].tracking)
    complete = [title for title, fingerprint in left if outbox.find(store, fingerprint)]
    saved = [(title, saved_tokens(partial() / fingerprint)) for title, fingerprint in left]
    partly = [(title, tokens) for title, tokens in saved if tokens and title not in complete]
    kept = sum(o.status in ("measured", "skipped") for o in outcomes) + len(complete)
    untouched = len(left) - len(partly) - len(complete)
    say(f"interrupted: {kept} of {len(cells)} cells measured, {len(partly)} partly, {untouched} not begun")
    lines = [f"{title}: measured, and not in the tracking store yet; the next command uploads it" for title in complete]
    lines += [f"{title}: {tokens:,} scored tokens are saved" for title, tokens in partly]
    if len(lines) > _MOST:
        rest = sum(tokens for _, tokens in partly[max(0, _MOST - 1 - len(complete)) :])
        lines = [*lines[: _MOST - 1], f"and {len(lines) - _MOST + 1} more: {rest:,} scored tokens are saved"]
    for line in lines:
        say(f"  {line}")
    say("continue with")
    say(f"  {command}", whole=True)
