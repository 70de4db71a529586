"""How the cells of a sweep ended, as far as that is known."""

from __future__ import annotations

from collections.abc import Sequence

from rbptrack.config.schema import Config
from rbptrack.console.progress import CellState
from rbptrack.sweep.outcome import CONTINUES, Outcome
from rbptrack.sweep.tasks import Task, shards


class Results:
    """What jobs tell: this process's own, or those elsewhere through their files."""

    def __init__(self) -> None:
        self.cells: dict[int, Outcome] = {}
        self._shards: dict[tuple[int, int], Outcome] = {}
        self._lost: dict[tuple[int, int], str] = {}

    def knows_end_of(self, task: Task) -> bool:
        """Return whether it is known how a task ended, or its cell."""
        return task.number in self.cells or (task.number, task.shard.number) in self._shards

    def at_work(self, task: Task, state: CellState) -> None:
        """Do nothing: a bar shows this process's work."""

    def ended(self, task: Task, outcome: Outcome, *, whole: bool) -> None:
        """Take note of how a task ended."""
        self.take(task.number, task.shard.number, outcome, whole=whole)

    def take(self, cell: int, shard: int, outcome: Outcome, *, whole: bool) -> bool:
        """Take note of how a shard ended, or with it (`whole`) its cell; returns whether that is news.

        Of two shards that find their cell measured, the first has said so.
        """
        if whole:
            return self.cells.setdefault(cell, outcome) is outcome
        return self._shards.setdefault((cell, shard), outcome) is outcome

    def lose(self, task: Task, why: str) -> None:
        """Take note that nothing more will be heard of a task."""
        self._lost.setdefault((task.number, task.shard.number), why)

    def collect(self, configs: Sequence[Config]) -> list[Outcome]:
        """Return the outcomes of cells, in their order; cells without a known end are left out."""
        ends = (self.cells.get(number) or self._unfinished(number, config) for number, config in enumerate(configs))
        return [outcome for outcome in ends if outcome is not None]

    def _unfinished(self, number: int, config: Config) -> Outcome | None:
        """Describe the state of a cell's unfinished shards; None if unknown."""
        failed = Outcome.of(config, "failed")
        if len(shards(config)) == 1:
            failed.message = self._lost.get((number, 0), "")
            return failed if failed.message else None
        by_message: dict[str, list[str]] = {}
        for shard in shards(config):
            ended = self._shards.get((number, shard.number))
            message = self._lost.get((number, shard.number), "") if ended is None else ended.message
            if ended and ended.status == "failed":
                failed.bad_input = ended.bad_input
            elif ended is None and not message:
                continue
            if message:
                by_message.setdefault(message, []).append(str(shard.number + 1))
        messages = [f"shard {', '.join(which)} of {config.shards}: {message}" for message, which in by_message.items()]
        if not messages and not all((number, shard.number) in self._shards for shard in shards(config)):
            return None
        failed.message = "; ".join(messages) or f"every shard ended, and none delivered it; {CONTINUES}"
        return failed
