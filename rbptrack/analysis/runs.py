"""The class `Runs`, with which analyzers read finished measurements, and the filters that select measurements."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analysis.rank_reader import RankReader
from rbptrack.analysis.rank_store import RankStore
from rbptrack.base.errors import BadInput, shortened_list, suggestion, unknown_name
from rbptrack.base.expression import rows_that_pass
from rbptrack.base.formatting import counted, readable_text
from rbptrack.config.patterns import matches_patterns, natural_key
from rbptrack.measurement.columns import COLUMN_PARTS, DISTINGUISHING_COLUMNS, DTYPE_BY_COLUMN
from rbptrack.ranks import HEADLINE_KS, is_rbp_column, rbp_name
from rbptrack.ranks.words import word_surprisal

_MAX_SHOWN = 60  # the most rows that are printed when `Runs` is displayed


@dataclass(frozen=True)
class Filters:
    """Filters that select measurements. A measurement is selected if it passes all of them.

    A list of patterns selects the names that match one of its patterns, such as `pythia*`, and that match no exclusion,
    such as `!pythia-12b`. An empty filter selects every measurement.

    Attributes:
        where: a condition over the columns of `Runs.frame`, such as `ce < 4 and dtype == "float32"`.
        family: patterns for the names of families.
        size: patterns for published sizes, such as `70m`.
        model: patterns for the names of models, such as `pythia-70m` or `pythia/70m`.
        dataset: patterns for the names of datasets.
        sweep: patterns for the names of sweeps. A store also selects the measurements that such a sweep reused.

    """

    where: str = ""
    family: Sequence[str] = ()
    size: Sequence[str] = ()
    model: Sequence[str] = ()
    dataset: Sequence[str] = ()
    sweep: Sequence[str] = ()


NO_FILTERS = Filters()
"""Filters that every measurement passes."""


class Runs(RankReader):
    """A table of finished measurements, which also reads their ranks.

    Many methods have an argument `run`. It is the name of a measurement (`nano-6k/stdlib`), the beginning of its run
    ID, or its row.

    Args:
        frame: the table, with one row for each measurement. Its columns are those of
            `rbptrack.measurement.columns` and rbp_<k>. Columns that are left out are filled with missing values.
        store: the store that holds the ranks.

    Attributes:
        frame: the table with typed columns. The first column is the name of each measurement. Do not change the table.
        store: the store that holds the ranks.

    """

    def __init__(self, frame: pd.DataFrame, store: RankStore) -> None:
        names = [*DTYPE_BY_COLUMN, *(name for name in frame.columns if name not in DTYPE_BY_COLUMN and name != "name")]
        table = frame.reindex(columns=names).reset_index(drop=True)
        types: dict[str, Any] = dict(DTYPE_BY_COLUMN) | dict.fromkeys(filter(is_rbp_column, names), "Float64")
        dtypes = table.dtypes
        # Only columns of another type are converted, because a selection of typed measurements has none.
        converted = {name: table[name].astype(type_) for name, type_ in types.items() if dtypes[name] != type_}
        table = table.assign(**converted)
        table.insert(0, "name", _unique_names(table))
        table["size"] = table["size"].astype(_size_type(table))
        super().__init__(table, store)

    def __len__(self) -> int:
        return len(self.frame)

    def __iter__(self) -> Iterator[pd.Series]:
        """Yield the row of each measurement. A row can be passed to methods, such as `runs.ranks(row)`."""
        return (row for _, row in self.frame.iterrows())

    def __getitem__(self, key: Any) -> Any:
        """Select a measurement, columns or several measurements.

        Args:
            key: the name of a measurement or the beginning of its run ID, which returns its row; the name of a column,
                which returns the column; a list of columns, which returns a table; or a slice or a mask with one bool
                for each measurement, which returns the selected measurements as `Runs`.

        Raises:
            BadInput: no measurement or several measurements have the name, or the key is none of the above.

        """
        if isinstance(key, str):
            return self.frame[key] if key in self.frame.columns else self.row(key)
        if isinstance(key, slice):
            return self._make_selection(self.frame[key])
        values = list(key) if isinstance(key, Iterable) else []
        if values and all(isinstance(value, str) for value in values):
            missing = [name for name in values if name not in self.frame.columns]
            if missing:
                raise unknown_name("column", missing[0], list(self.frame.columns))
            return self.frame[values]
        is_mask = all(value is pd.NA or isinstance(value, bool | np.bool_) for value in values)
        if not isinstance(key, Iterable) or not is_mask:
            allowed = "a name, a column, a list of columns, or a mask such as runs['ce'] < 4"
            raise BadInput(f"runs[{key!r:.40}] is not understood. Give {allowed}")
        if len(values) != len(self):
            raise BadInput(f"a mask needs one value for each of the {len(self)} measurements; it has {len(values)}")
        index = key.index if isinstance(key, pd.Series) else self.frame.index
        mask = pd.Series(values, index, dtype="boolean")
        return self._make_selection(self.frame[mask.reindex(self.frame.index).fillna(False)])

    def select(self, filters: Filters) -> Runs:
        """Return the measurements that pass all filters.

        Raises BadInput if no measurement passes, or if the condition `filters.where` cannot be evaluated.
        """
        rows = self.frame
        for column in ("family", "size", "model", "dataset", "sweep"):
            patterns = getattr(filters, column)
            if not patterns:
                continue
            names = [rows[column].astype("string").fillna("")]
            if column == "model":  # a model can also be named by family and size, such as nano/6k
                names.append(_family_size_names(rows).fillna(""))
            passed = rows[[matches_patterns(run_names, patterns) for run_names in zip(*names, strict=True)]]
            if not len(passed):
                holder = "The store has"
                if len(rows) < len(self.frame):
                    holder = "The measurements that pass the other filters have"
                raise _no_measurement_error(rows, column, patterns, holder)
            rows = passed
        if filters.where:
            rows = rows_that_pass(rows, filters.where)
            if not len(rows):
                raise BadInput(f"no measurement meets the condition where={filters.where}")
        return self._make_selection(rows)

    def copy(self) -> Runs:
        """Return a copy with a table of its own. A change of this table does not affect the original."""
        copied = copy(self)
        copied.frame = self.frame.copy()
        copied._counts_cache = self._counts_cache
        copied.unreadable = self.unreadable
        return copied

    def row(self, word: str) -> pd.Series:
        """Return the row of one measurement.

        Args:
            word: the name of the measurement, such as `nano-6k/stdlib` or `nano/6k/stdlib`, in upper or lower case.
                The model alone (`nano-6k`) is enough if it has one measurement. The beginning of a run ID is also
                allowed.

        Raises:
            BadInput: no measurement matches, or several do. The message lists names.

        """
        name = "/".join(part.strip() for part in word.split("/")).lower()
        frame = self.frame
        model = _family_size_names(frame)
        names_by_precedence = [
            [frame["name"], model + "/" + frame["dataset"]],
            [frame["model"] + "/" + frame["dataset"], frame["model"], model],
            [frame["run_id"].str[: len(name)]],  # last, because a name such as "ada" may consist of hexadecimal digits
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
            raise BadInput(
                f"{word!r} is ambiguous. It matches {shortened_list(names_and_ids)}. Give one name or a run ID"
            )
        raise unknown_name("measurement", word, frame["name"])

    def run_id(self, run: str | pd.Series) -> str:
        """Return the run ID of one measurement.

        Args:
            run: the name of the measurement, the beginning of its run ID, or its row.

        Raises:
            BadInput: no measurement matches, or several do.

        """
        if isinstance(run, pd.Series) and "run_id" in run.index:
            return str(run["run_id"])
        if not isinstance(run, str):
            raise BadInput(f"{run!r:.40} is not a run. Give a name such as nano-6k/stdlib, a run ID, or a row")
        if run in self._run_ids:
            return run
        return str(self.row(run)["run_id"])

    def token_texts(self, run: str | pd.Series, ids: Iterable[int]) -> list[str]:
        """Return the texts of tokens of one run in quotes: `" the"`. A token without a known text is shown as `id 262`.

        Raises Unreadable if the file of texts is damaged.
        """
        text_of_token = self.saved_token_texts(run)
        texts = []
        for token in map(int, ids):
            text = text_of_token.get(token)
            texts.append(f"id {token}" if text is None else json.dumps(readable_text(text), ensure_ascii=False))
        return texts

    def words(self, run: str | pd.Series) -> pd.DataFrame:
        """Return the words of the texts of one run with their surprisal in nats. A word is a text between blanks.

        Returns:
            One row for each word, in the order of the texts: `document`, `word`, `surprisal` (the sum of -ln p over the
            tokens of the word; NaN if one of them is not scored, such as the first token of a text), `worst_rank` and
            `tokens` (the number of tokens).

        Raises:
            Unreadable: the ranks or the texts cannot be read.

        """
        return word_surprisal(self.ranks(run), self.unscored(run), self.saved_token_texts(run))

    def scores(self) -> pd.DataFrame:
        """Return the imported scores of tasks, one row for each score, with the columns of `SCORES`."""
        return self.store.scores()

    def __repr__(self) -> str:
        return f"{counted(len(self), 'measurement')}\n{self._overview.to_string(index=False, max_rows=_MAX_SHOWN)}"

    def _repr_html_(self) -> str:
        table = self._overview.to_html(index=False, border=0, max_rows=_MAX_SHOWN, notebook=True)
        return f"<p>{counted(len(self), 'measurement')}</p>{table}"

    @property
    def _overview(self) -> pd.DataFrame:
        """The columns that are printed when `Runs` is displayed."""
        headline = [rbp_name(k) for k in HEADLINE_KS if rbp_name(k) in self.frame]
        return self.frame[["name", "non_embedding_params", "num_tokens", "ce", *headline]]

    def _make_selection(self, rows: pd.DataFrame) -> Runs:
        """Return some of the measurements. They keep their names, and share the counts that are kept in memory."""
        selected = type(self)(rows, self.store)
        selected.frame["name"] = rows["name"].array
        selected._counts_cache = self._counts_cache
        selected.unreadable = self.unreadable
        return selected

    @cached_property
    def _run_ids(self) -> frozenset[str]:
        return frozenset(self.frame["run_id"].dropna())


def _no_measurement_error(rows: pd.DataFrame, column: str, patterns: Sequence[str], holder: str) -> BadInput:
    """Return the error for patterns that match no value of a column of these rows. It lists the values.

    `holder` is the beginning of the list, such as `The store has`.
    """
    names = shortened_list(list(dict.fromkeys(rows[column].dropna())))
    families = [pattern for pattern in patterns if column == "model" and (rows["family"] == pattern).any()]
    suggested = suggestion([f"'{family}/*'" for family in families])
    return BadInput(f"no measurement has {column}={','.join(patterns)}.{suggested} {holder} {names}")


def _family_size_names(frame: pd.DataFrame) -> pd.Series[str]:
    """Return family and size of each row as one name, such as `nano/6k`."""
    return frame["family"] + "/" + frame["size"].astype("string")


def _size_type(frame: pd.DataFrame) -> pd.CategoricalDtype:
    """Return the type of the column `size`. It orders the sizes by S.

    Sizes with an unknown S come last, in the order of the numbers in their names.
    """
    smallest_s = frame.groupby("size", observed=True)["non_embedding_params"].min()
    s_of_size = {str(size): float("inf") if pd.isna(s) else float(s) for size, s in smallest_s.items()}
    return pd.CategoricalDtype(sorted(s_of_size, key=lambda size: (s_of_size[size], natural_key(size))), ordered=True)


def _unique_names(frame: pd.DataFrame) -> pd.Series[str]:
    """Return a unique name for each run, such as `nano-6k/stdlib`.

    If several runs have the same model and dataset, the facts in which they differ are added:
    `mine-115k/notes@bfloat16`.
    """
    names = pd.Series([f"{model}/{dataset}" for model, dataset in zip(frame["model"], frame["dataset"], strict=True)])
    for column in (*DISTINGUISHING_COLUMNS, "run_id"):
        repeated = names[names.duplicated(keep=False)]
        if repeated.empty:
            break
        values = frame.loc[repeated.index, column]
        values = values[values.groupby(repeated).transform("nunique", dropna=False) > 1]
        marks = ["" if pd.isna(value) else "@" + COLUMN_PARTS[column].format_value(value) for value in values]
        names[values.index] += pd.Series(marks, index=values.index, dtype="string")
    return names.astype("string")
