"""Finished measurements as analyzers read them: a table with one row each, and their ranks on demand."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analysis.rank_reader import RankReader
from rbptrack.analysis.rank_store import RankStore
from rbptrack.base.errors import BadInput, shortened, unknown
from rbptrack.base.expression import rows_that_pass
from rbptrack.base.words import counted, readable
from rbptrack.config.patterns import fits, natural_key
from rbptrack.facts import BY_NAME, COLUMNS, TELL_APART
from rbptrack.ranks import HEADLINE_KS, DocumentCounts, RankHistogram, RankTable, is_rbp_column, rbp_name

_MAX_SHOWN = 60  # measurements, where runs are displayed


@dataclass(frozen=True)
class Filters:
    """Which measurements are meant: those that pass every filter. An empty filter lets all pass.

    Attributes:
        where: a condition over the columns of `Runs.frame`, such as `ce < 4 and dtype == "float32"`.
        family: patterns such as `pythia*` and, after `!`, exclusions.
        size: patterns.
        model: patterns over the models, `pythia-70m` or `pythia/70m`.
        dataset: patterns.
        sweep: patterns; a store also finds what a sweep reused.

    """

    where: str = ""
    family: Sequence[str] = ()
    size: Sequence[str] = ()
    model: Sequence[str] = ()
    dataset: Sequence[str] = ()
    sweep: Sequence[str] = ()


EVERYTHING = Filters()


class Runs:
    """Finished measurements: a table with one row each, and their ranks on demand.

    Every method that takes a run takes its name (`nano-6k/stdlib`), the beginning of its run ID, or its row.

    Args:
        frame: one row per measurement, with columns of `rbptrack.facts.COLUMNS`; columns that are left out are missing.
        store: where their ranks are read.

    Attributes:
        frame: the table, typed, with `name` in front. Treat it as read-only.
        store: where their ranks are read.

    """

    def __init__(self, frame: pd.DataFrame, store: RankStore) -> None:
        names = [*COLUMNS, *(c for c in frame.columns if c not in COLUMNS and c != "name")]
        table = frame.reindex(columns=names).reset_index(drop=True)
        types = dict(COLUMNS) | dict.fromkeys(filter(is_rbp_column, names), "Float64")
        table = table.astype(types)
        table.insert(0, "name", _names(table))
        table["size"] = table["size"].astype(_sizes(table))
        self.frame = table
        self.store = store
        self._reader = RankReader(table, store)

    def __len__(self) -> int:
        return len(self.frame)

    def __iter__(self) -> Iterator[pd.Series]:
        """Yield the row of each measurement. `runs.ranks(row)` and the other methods take it."""
        return (row for _, row in self.frame.iterrows())

    def __getitem__(self, key: Any) -> Any:
        """Select as pandas does.

        A name gives the row of that measurement, a column's name that column, a list of columns a table, and a mask or
        a slice the measurements that it selects.

        Raises:
            BadInput: no measurement has that name, or several do; the message lists the names. Or the key is none of
                these.

        """
        if isinstance(key, str):
            return self.frame[key] if key in self.frame.columns else self.row(key)
        if isinstance(key, slice):
            return self._with_rows(self.frame[key])
        values = list(key) if isinstance(key, Iterable) else []
        if values and all(isinstance(value, str) for value in values):
            missing = [name for name in values if name not in self.frame.columns]
            if missing:
                raise unknown("column", missing[0], list(self.frame.columns))
            return self.frame[values]
        truths = [value for value in values if value is pd.NA or isinstance(value, bool | np.bool_)]
        if not isinstance(key, Iterable) or len(truths) < len(values):
            what = "a name, a column, a list of columns, or a mask such as runs['ce'] < 4"
            raise BadInput(f"runs[{key!r:.40}] is not understood: give {what}")
        if len(values) != len(self):
            raise BadInput(f"a mask has a value for each measurement: {len(values)} values, {len(self)} measurements")
        index = key.index if isinstance(key, pd.Series) else self.frame.index
        mask = pd.Series(values, index, dtype="boolean")
        return self._with_rows(self.frame[mask.reindex(self.frame.index).fillna(False)])

    def query(self, condition: str) -> Runs:
        """Select the measurements for which a condition over the columns is true: `ce < 4 and dtype == "float32"`.

        Raises:
            BadInput: it is not a condition, or no measurement passes.

        """
        return self.select(Filters(where=condition))

    def select(self, filters: Filters) -> Runs:
        """Return the measurements that pass. Raises BadInput if none passes, or the condition cannot be evaluated."""
        rows = self.frame
        for column in ("family", "size", "model", "dataset", "sweep"):
            patterns = getattr(filters, column)
            if not patterns:
                continue
            names = [rows[column].astype("string").fillna("")]
            if column == "model":  # nano/6k means nano-6k
                names.append(_family_and_size(rows).fillna(""))
            passed = rows[[fits(of_run, patterns) for of_run in zip(*names, strict=True)]]
            if not len(passed):
                present = shortened(list(dict.fromkeys(rows[column].dropna())))
                where = "The store has" if len(rows) == len(self.frame) else "Those that pass the other filters have"
                raise BadInput(f"no measurement has {column}={','.join(patterns)}. {where} {present}")
            rows = passed
        if filters.where:
            rows = rows_that_pass(rows, filters.where)
            if not len(rows):
                raise BadInput(f"no measurement passes where={filters.where}")
        return self._with_rows(rows)

    def copy(self) -> Runs:
        """Return these measurements with a copy of the table. Changes of the copy do not affect the original."""
        return self._with_rows(self.frame)

    def row(self, word: str) -> pd.Series:
        """The row of a name, or of the beginning of a run ID; BadInput as `runs[...]` raises it."""
        name = "/".join(part.strip() for part in word.split("/")).lower()
        frame = self.frame
        model = _family_and_size(frame)
        names_by_precedence = [
            [frame["name"], model + "/" + frame["dataset"]],
            [frame["model"] + "/" + frame["dataset"], frame["model"], model],  # nano-6k alone, where it has one run
            [frame["run_id"].str[: len(name)]],  # last, as a name may be of hexadecimal digits: ada
        ]
        rows = frame[:0]
        for names in names_by_precedence:
            if not len(rows):
                matches = [column.str.lower().eq(name).fillna(False) for column in names]
                rows = frame[pd.concat(matches, axis=1).any(axis=1)]
        if len(rows) == 1:
            return rows.iloc[0]
        if len(rows):
            names_and_ids = [f"{row['name']} ({row['run_id'][:8]})" for row in rows.to_dict("records")]
            raise BadInput(f"{word} is ambiguous: {shortened(names_and_ids)}. Pick one, or give a run ID")
        raise unknown("measurement", word, frame["name"])

    def run_id(self, run: str | pd.Series) -> str:
        """The run ID of a name, of the beginning of a run ID, or of a row; BadInput as `runs[...]` raises it."""
        if isinstance(run, pd.Series) and "run_id" in run.index:
            return str(run["run_id"])
        if not isinstance(run, str):
            raise BadInput(f"a run is named by a text such as nano-6k/stdlib, or by its row; got {run!r:.40}")
        if run in self._run_ids:
            return run
        return str(self.row(run)["run_id"])

    def histogram(self, run: str | pd.Series) -> RankHistogram:
        """Return the exact counts by rank of one run. Raises Unreadable."""
        return self._reader.histogram(self.run_id(run))

    def ranks(self, run: str | pd.Series, columns: Sequence[str] | None = None) -> RankTable:
        """Read the rank table of one run, which is not kept. Raises Unreadable, or MissingColumn."""
        return self._reader.ranks(self.run_id(run), columns)

    def ranks_of(self, run: str | pd.Series, documents: Collection[int]) -> RankTable:
        """Read the ranks of some documents of one run, by their numbers. Raises Unreadable."""
        return self._reader.ranks_of(self.run_id(run), documents)

    def rank_pieces(self, run: str | pd.Series, columns: Sequence[str] | None = None) -> Iterator[RankTable]:
        """Yield the rank table of one run in pieces of whole documents, in text order, with one in memory at a time.

        Raises:
            MissingColumn: no rank table has such a column.
            Unreadable: the table is missing or damaged; this may be raised after some pieces.

        """
        return self._reader.rank_pieces(self.run_id(run), columns)

    def counts_by_document(self, run: str | pd.Series, ks: Sequence[int]) -> DocumentCounts:
        """Count tokens, nats and hits of each k per document of one run, also if documents have groups.

        Raises Unreadable.
        """
        return self._reader.counts_by_document(self.run_id(run), ks)

    def document_counts(self, run: str | pd.Series, ks: Sequence[int]) -> DocumentCounts:
        """Count tokens, nats and hits of each k per document of one run, or per group if documents have groups.

        The counts are kept for the next analyzer of this process. Metrics that were imported without ranks come as one
        document with the number `stats.documents.TOTALS`. Raises Unreadable.
        """
        return self._reader.document_counts(self.run_id(run), ks)

    def groups(self, run: str | pd.Series) -> Sequence[str]:
        """Return the group of each document with scored tokens of a run; empty if no field names groups.

        Runs over the same texts get the same groups, so that their errors are paired. If runs name different groups, or
        only some runs name any, the groups of the run with the fewest are taken for all. If they cannot be read,
        the result is empty and `unread_groups` says why.

        Raises:
            Unreadable: the ranks cannot be read, or there are more documents than groups.

        """
        return self._reader.groups(self.run_id(run))

    @property
    def unread_groups(self) -> dict[str, str]:
        """By run ID, why the groups of a run's documents could not be read; such a run is counted by document."""
        return self._reader.unread_groups

    def token_texts(self, run: str | pd.Series, ids: Iterable[int]) -> list[str]:
        """Return the texts of tokens of one run in quotes, as `" the"`, or as `id 262` if a text is not known."""
        known = self._reader.token_texts(self.run_id(run))
        texts = []
        for token in map(int, ids):
            texts.append(json.dumps(readable(known[token]), ensure_ascii=False) if token in known else f"id {token}")
        return texts

    def scores(self) -> pd.DataFrame:
        """Return the imported scores of tasks, with the columns of `SCORES`; without rows if there are none."""
        return self.store.scores()

    def __repr__(self) -> str:
        return f"{counted(len(self), 'measurement')}\n{self._shown.to_string(index=False, max_rows=_MAX_SHOWN)}"

    def _repr_html_(self) -> str:
        table = self._shown.to_html(index=False, border=0, max_rows=_MAX_SHOWN, notebook=True)
        return f"<p>{counted(len(self), 'measurement')}</p>{table}"

    @property
    def _shown(self) -> pd.DataFrame:
        headline = [rbp_name(k) for k in HEADLINE_KS if rbp_name(k) in self.frame]
        return self.frame[["name", "non_embedding_params", "num_tokens", "ce", *headline]]

    def _with_rows(self, rows: pd.DataFrame) -> Runs:
        """The measurements of some rows. They share what was counted."""
        selected = Runs(rows, self.store)
        selected._reader.kept = self._reader.kept
        return selected

    @cached_property
    def _run_ids(self) -> frozenset[str]:
        return frozenset(self.frame["run_id"].dropna())


def _family_and_size(frame: pd.DataFrame) -> pd.Series[str]:
    """The models as they are named on the command line: `nano/6k`."""
    return frame["family"] + "/" + frame["size"].astype("string")


def _sizes(frame: pd.DataFrame) -> pd.CategoricalDtype:
    """The sizes in the order of S; sizes of unknown S come last, in the order of the numbers in them."""
    smallest = frame.groupby("size", observed=True)["non_embedding_params"].min()
    by_s = {str(size): float("inf") if pd.isna(s) else float(s) for size, s in smallest.items()}
    return pd.CategoricalDtype(sorted(by_s, key=lambda size: (by_s[size], natural_key(size))), ordered=True)


def _names(frame: pd.DataFrame) -> pd.Series[str]:
    """A name for each run that no other has: `nano-6k/stdlib`; if several runs share it, with what sets them apart:
    `mine-115k/notes@bfloat16`.
    """
    names = pd.Series([f"{model}/{dataset}" for model, dataset in zip(frame["model"], frame["dataset"], strict=True)])
    for column in (*TELL_APART, "run_id"):
        alike = names[names.duplicated(keep=False)]
        if alike.empty:
            break
        values = frame.loc[alike.index, column]
        values = values[values.groupby(alike).transform("nunique", dropna=False) > 1]
        marks = ["" if pd.isna(value) else "@" + BY_NAME[column].text(value) for value in values]
        names[values.index] += pd.Series(marks, index=values.index, dtype="string")
    return names.astype("string")
