"""How cells end, and how that is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import pandas as pd

from rbptrack.analysis.display import presented
from rbptrack.config.patterns import size_key
from rbptrack.config.schema import CellConfig
from rbptrack.console.output import columns, complain_alike, say
from rbptrack.console.tables import table
from rbptrack.ranks import rbp_name
from rbptrack.tracking.schema import Metric


@dataclass
class Outcome:
    """How a cell ended."""

    title: str  # `pythia-70m / wiki`
    model: str
    dataset: str
    status: str  # measured, skipped (measured before) or failed
    run_id: str = ""  # of its MLflow run; empty if none began
    fingerprint: str = ""  # of the measurement; empty where the cell failed
    message: str = ""
    bad_input: bool = False  # whether the failure is the user's to set right
    waits: str = ""  # why the measurement waits on disk and is not in the tracking store yet
    numbers: dict[str, float] = field(default_factory=dict)  # S, num_tokens, ce, rbp_<k>, tokens_per_second
    notes: list[str] = field(default_factory=list)  # what the user should know
    added_ks: list[int] = field(default_factory=list)  # k that a finished measurement lacked and was given
    swept: str = ""  # what distinguishes the cell besides model and dataset

    @classmethod
    def of(cls, config: CellConfig, status: str) -> Self:
        """Return how the cell of a config ended."""
        return cls(config.title, config.model.name, config.dataset.name, status, swept=config.swept)


CONTINUES = "the same command continues there"
"""What a message about something unfinished ends with."""


class CellFailed(Exception):
    """A cell failed after its MLflow run had begun; the cause is what happened."""

    def __init__(self, run_id: str, cause: Exception) -> None:
        super().__init__(str(cause))
        self.run_id = run_id
        self.cause = cause


def announce(outcome: Outcome, progress_label: str) -> None:
    """Print one line when a cell ends."""
    numbers = outcome.numbers
    if outcome.status == "measured" and not numbers:
        say(f"{progress_label} {outcome.title}  measured; the last shard to end delivers the cell".strip())
        return
    if outcome.status == "failed":
        say(f"{progress_label} {outcome.title}  failed: {outcome.message}".strip(), style="red")
        return
    status = f"{outcome.status}, waits" if outcome.waits else outcome.status
    fresh = outcome.status == "measured" and Metric.TOKENS_PER_SECOND in numbers
    speed = f"  {numbers[Metric.TOKENS_PER_SECOND]:,.0f} tok/s" if fresh else ""
    tokens = f"{numbers.get(Metric.NUM_TOKENS, 0):,.0f} tokens"
    width = columns()
    ce = f"  CE {numbers[Metric.CE]:.3f}"
    line = (
        f"{progress_label} {outcome.title:<{36 if outcome.swept else 24}} {status:<8} {tokens:>16}{ce}{speed}".strip()
    )
    if width is not None and len(line) > width:
        line = f"{progress_label} {outcome.title}  {status}  {tokens}{ce}".strip()
    say(line, style="yellow" if outcome.waits else None)


def summarise(outcomes: Sequence[Outcome], *, total: int, ks: Sequence[int]) -> None:
    """Print the table of a sweep's results, how many cells ended how, and what the user should know."""
    say("")
    _show_results([outcome for outcome in outcomes if outcome.numbers], ks)
    counts = {status: sum(o.status == status for o in outcomes) for status in ("measured", "skipped", "failed")}
    parts = [f"{counts['measured']} measured"]
    parts += [f"{counts['skipped']} skipped as already measured"] if counts["skipped"] else []
    parts += [f"{counts['failed']} failed"] if counts["failed"] else []
    parts += [f"{total - len(outcomes)} not run"] if total > len(outcomes) else []
    say(", ".join(parts))
    for added, number in Counter(tuple(o.added_ks) for o in outcomes if o.added_ks).items():
        where = "one finished measurement" if number == 1 else f"{number} finished measurements"
        say(f"added to {where} from stored ranks: {', '.join(f'RBP_{k}' for k in added)}")
    complain_alike([(outcome.title, outcome.message) for outcome in outcomes if outcome.status == "failed"])
    for note in dict.fromkeys(note for outcome in outcomes for note in outcome.notes):
        say(note)


def _show_results(outcomes: Sequence[Outcome], ks: Sequence[int]) -> None:
    if not outcomes:
        return
    frame = cells_frame(sorted(outcomes, key=_by_dataset_and_size)).astype({Metric.NUM_TOKENS: int})
    names = [Metric.NON_EMBEDDING_PARAMS, Metric.NUM_TOKENS, Metric.CE, *map(rbp_name, ks)]
    columns = [name for name in ("model", "dataset", "swept", *names) if name in frame.columns]
    if frame["status"].nunique() > 1:  # else the line below the table says it
        columns.append("status")
    shown = presented(frame, columns, errors=True)
    texts = 2 + ("swept" in columns)
    table(list(shown.columns), shown.to_numpy().tolist(), text_columns=texts, first_out=["tokens", "status", "S"])


def _by_dataset_and_size(outcome: Outcome) -> tuple[object, ...]:
    family, _, size = outcome.model.rpartition("-")
    return outcome.dataset, family, size_key(size)


def cells_frame(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return a row per cell: what the sweep's run keeps as cells.csv."""
    rows = [
        {"model": o.model, "dataset": o.dataset}
        | ({"swept": o.swept} if o.swept else {})
        | {"status": o.status, "run_id": o.run_id}
        | o.numbers
        | {"message": o.message}
        for o in outcomes
    ]
    return pd.DataFrame(rows)
