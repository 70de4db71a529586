"""Measurements chosen by what they are called: filters of the command line and of notebooks, names, prefixes of IDs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import pandas as pd

from rbptrack.analysis.display import presented
from rbptrack.analysis.run_names import find, named
from rbptrack.base.errors import BadInput, nearest, shortened, unknown
from rbptrack.config.patterns import passes, size_key

_MOST_SHOWN = 60  # measurements, where runs are displayed; of more, the first and the last


class Selection:
    """What `Runs` offers to choose measurements by name, by position or by a filter.

    Attributes:
        frame: one row per measurement.

    """

    frame: pd.DataFrame

    def __len__(self) -> int:
        return len(self.frame)

    def __iter__(self) -> Iterator[pd.Series]:
        """Yield the row of each measurement; `histogram(row)` and `ranks(row)` take it."""
        return (row for _, row in self.frame.iterrows())

    def __contains__(self, name: object) -> bool:
        """Return whether a name or the beginning of a run ID means at least one measurement."""
        return isinstance(name, str) and len(named(self.frame, name)) > 0

    def __getitem__(self, name: str | int) -> pd.Series:
        """Return the row of one measurement, by `nano-6k/stdlib`, any unique beginning of its run ID, or its position.

        Raises:
            BadInput: no measurement is called so, or several are; the message lists the names.
            IndexError: the position does not exist.

        """
        return self.frame.iloc[name] if isinstance(name, int) else find(self.frame, name)

    def run_id(self, run: str | pd.Series) -> str:
        """Return the full run ID for a name, the beginning of a run ID, or a row; BadInput as `runs[...]` raises it."""
        if not isinstance(run, str):
            return str(run["run_id"])
        return run if run in self._run_ids else str(find(self.frame, run)["run_id"])

    @cached_property
    def _run_ids(self) -> frozenset[str]:
        return frozenset(self.frame["run_id"])

    def filter(self, **columns: object) -> Self:
        """Return the measurements that pass every filter; ranks stay where they are.

        Args:
            **columns: column of `frame` -> a value or several. Texts may be patterns (`family="pythia*"`) and, after !,
                exclusions (`model=["pythia/*", "!pythia/12b"]`).

        Raises:
            BadInput: a column does not exist, or no measurement passes; the message lists what exists.

        """
        rows = self.frame
        for key, value in columns.items():
            if key not in rows.columns:
                raise unknown("column", key, map(str, rows.columns))
            wanted = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
            if pd.api.types.is_string_dtype(rows[key]):
                patterns = list(map(str, wanted))
                kept = [passes(names_of(row, key), patterns) for row in rows.to_dict("records")]
            else:
                kept = rows[key].isin(wanted).tolist()
            if not any(kept):
                raise none_passes(key, list(map(str, wanted)), rows[key].dropna().astype(str))
            rows = rows[kept]
        return self._with_rows(rows)

    def __repr__(self) -> str:
        """Return the measurements as a table of text: what a summary shows of `frame`."""
        return f"{self._count}\n{presented(self.frame).to_string(index=False, max_rows=_MOST_SHOWN)}"

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        table = presented(self.frame).to_html(index=False, border=0, max_rows=_MOST_SHOWN, notebook=True)
        return f"<p>{self._count}</p>{table}"

    @property
    def _count(self) -> str:
        return "1 measurement" if len(self) == 1 else f"{len(self):,} measurements"

    def _with_rows(self, rows: pd.DataFrame) -> Self:
        """Return a copy that has these rows only."""
        raise NotImplementedError


def names_of(row: Mapping[Any, Any], key: str) -> list[str]:
    """Return the names that a filter over a column is matched against; a model has two: `nano-6k` and `nano/6k`."""
    names = ["" if pd.isna(row[key]) else str(row[key])]
    return [*names, f"{row['family']}/{row['size']}"] if key == "model" else names


def none_passes(key: str, patterns: Sequence[str], there: Iterable[str]) -> BadInput:
    """Return the error for a filter that no measurement passes: the names nearest to it, then those that exist."""
    names = sorted(set(there), key=size_key)
    near = dict.fromkeys(name for pattern in patterns for name in nearest(pattern, names))
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    return BadInput(f"no measurement has {key}={','.join(patterns)}.{meant} The store has {shortened(names)}")
