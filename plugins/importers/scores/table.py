"""Read scores of tasks from tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rbptrack.analysis import SCORES, MissingKey, listed, read_rows

from .items import Item, Remark, Score
from .naming import detail_texts, plain_value
from .settings import SETTINGS

# A table may use any of these names for the column with the number of shots.
_SHOTS_COLUMNS = ("shots", "num_fewshot", "n-shot", "n_shot")
_TABLE_COLUMNS = (*SCORES, *_SHOTS_COLUMNS, "metric", "filter", "unit", "seed")


def read_table(path: Path) -> Iterator[Item]:
    """Yield the scores of a table, and a remark about columns that are not known.

    Raises BadInput if the table lacks the column model, task or score.
    """
    unread_columns: dict[str, None] = {}
    for place, row in read_rows(path):
        missing_columns = {"model", "task", "score"} - set(row)
        if missing_columns:
            raise MissingKey(
                f"{path} lacks the column {', '.join(sorted(missing_columns))}; it has {', '.join(row)[:300]}"
            )
        shots = next((row[name] for name in _SHOTS_COLUMNS if row.get(name) not in (None, "")), None)
        model = row["model"]
        seed = plain_value(row.get("seed"))
        if isinstance(model, str) and seed not in (None, 0):
            model = f"{model}-seed{seed}"
        unread_columns |= dict.fromkeys(name for name in row if name not in (*_TABLE_COLUMNS, *SETTINGS))
        yield Score(
            model,
            row.get("revision"),
            "" if row["task"] is None else str(row["task"]),
            row["score"],
            row.get("n"),
            detail_texts(row.get("metric"), row.get("filter"), shots),
            settings={name: value for name, value in row.items() if name in SETTINGS and name not in _TABLE_COLUMNS},
            unit=row.get("unit") or "",
            place=place,
        )
    if unread_columns:
        yield Remark(f"columns {listed([name or '(without a name)' for name in unread_columns])}", "not known")
