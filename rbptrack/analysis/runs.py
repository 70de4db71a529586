"""The class `Runs`, with which analyzers read finished measurements."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analysis.filters import Filters, family_size_names, passing_rows
from rbptrack.analysis.rank_reader import RankReader
from rbptrack.analysis.rank_store import RankStore, Unreadable, WithoutRanks
from rbptrack.base.errors import BadInput, shortened_list, unknown_name
from rbptrack.base.formatting import counted, readable_text
from rbptrack.base.names import natural_key
from rbptrack.measurement.columns import COLUMN_PARTS, DISTINGUISHING_COLUMNS, DTYPE_BY_COLUMN
from rbptrack.ranks import HEADLINE_KS, DocumentCounts, RankHistogram, RankTable, is_rbp_column, rbp_name
from rbptrack.ranks.columns import check_columns
from rbptrack.ranks.names import check_ks
from rbptrack.ranks.words import word_surprisal
from rbptrack.stats.sums import TOTALS

_MAX_SHOWN = 60  # the most rows that are printed when `Runs` is displayed


class Runs:
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
        unread_groups: the reason why the groups of a run could not be read, by run ID. Such a run is counted by
            document.

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
        self.frame = table
        self.store = store
        self.unread_groups: dict[str, str] = {}
        self._groups: dict[str, Sequence[str]] = {}
        self._reader = RankReader(store, table)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without groups, which another process reads again."""
        kept = {"frame": self.frame, "store": self.store, "_reader": self._reader}
        return {**kept, "_groups": {}, "unread_groups": {}}

    @property
    def unreadable(self) -> dict[str, str]:
        """The reason why a file of a run could not be read, by run ID. Results without this file are incomplete.

        All selections from one `Runs` share the reasons.
        """
        return self._reader.unreadable

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
        return self._make_selection(passing_rows(self.frame, filters))

    def copy(self) -> Runs:
        """Return a copy with a table of its own. A change of this table does not affect the original."""
        copied = copy(self)
        copied.frame = self.frame.copy()
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
        model = family_size_names(frame)
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

    def histogram(self, run: str | pd.Series) -> RankHistogram:
        """Return how often each rank occurs in one run. Raises Unreadable if the run's files cannot be read."""
        return self._reader.read(self.run_id(run), self.store.histogram)

    def ranks(self, run: str | pd.Series, columns: Sequence[str] | None = None) -> RankTable:
        """Read the rank table of one run, or only some of its columns. The table is not kept in memory.

        Raises:
            MissingColumn: a rank table cannot have such a column.
            Unreadable: the rank table cannot be read.

        """
        check_columns(columns)
        return self._reader.read(self.run_id(run), lambda run_id: self.store.ranks(run_id, columns))

    def ranks_of_documents(self, run: str | pd.Series, documents: Collection[int]) -> RankTable:
        """Read the rank table of some documents of one run, by number. Raises Unreadable if it cannot be read."""
        return self._reader.read(self.run_id(run), lambda run_id: self.store.ranks_of_documents(run_id, documents))

    def rank_pieces(self, run: str | pd.Series, columns: Sequence[str] | None = None) -> Iterator[RankTable]:
        """Yield the rank table of one run, or only some of its columns, in pieces of whole documents.

        The pieces are in the order of the texts. Only one piece is in memory at a time.

        Raises:
            MissingColumn: a rank table cannot have such a column.
            Unreadable: the table cannot be read. The error may occur after some pieces.

        """
        check_columns(columns)
        yield from self._reader.pieces(self.run_id(run), columns)

    def saved_token_texts(self, run: str | pd.Series) -> Mapping[int, str]:
        """Return the texts of one run's tokens, by token ID. Raises Unreadable if the file of texts is damaged."""
        return self._reader.read(self.run_id(run), self.store.token_texts)

    def documents(self, run: str | pd.Series) -> pd.DataFrame:
        """Return the documents of one run, as `RankStore.documents` describes them.

        Raises:
            Unreadable: the table of documents is damaged.

        """
        return self._reader.read(self.run_id(run), self.store.documents)

    def unscored(self, run: str | pd.Series) -> pd.DataFrame:
        """Return the tokens of one run that have no rank, as `RankStore.unscored` describes them.

        Raises:
            Unreadable: the table of these tokens is damaged.

        """
        return self._reader.read(self.run_id(run), self.store.unscored)

    def counts_by_document(self, run: str | pd.Series, ks: Sequence[int]) -> DocumentCounts:
        """Count tokens, nats and the hits at each k in each document of one run. A hit is a token with rank <= k.

        Groups of documents are ignored. Raises Unreadable if the rank table cannot be read.
        """
        ks = check_ks(ks)
        return self._reader.count(self.run_id(run), ks).select(ks)

    def document_counts(self, run: str | pd.Series, ks: Sequence[int]) -> DocumentCounts:
        """Count tokens, nats and the hits at each k in each document of one run, or in each group if groups are known.

        A hit is a token with rank <= k. The counts are kept in memory for the next analyzer. A run that was imported
        without ranks has one row with its totals; the document number of this row is `stats.sums.TOTALS`.

        Raises:
            Unreadable: the rank table cannot be read.
            WithoutRanks: the run was imported without ranks, and RBP_k at one of the k, or every number, is unknown.

        """
        run_id = self.run_id(run)
        ks = check_ks(ks)
        if run_id in self._reader.without_ranks:
            return self._logged_totals(run_id, ks)
        counts = self._reader.count(run_id, ks).select(ks)
        groups = self.groups(run_id)
        return counts.in_groups(groups) if len(groups) else counts

    def groups(self, run: str | pd.Series) -> Sequence[str]:
        """Return the group of each document that has scored tokens; empty if no run over the same texts has groups.

        All runs over the same texts get the same groups, so their errors can be paired. If the runs have different
        groups, or only some have groups, the groups of the run with the fewest groups are used for all. Groups that
        `dataset.group` names are preferred to groups of near copies. If these groups cannot be read, the result is
        empty, and `unread_groups` holds the reason. Raises Unreadable if the ranks cannot be read, or if a document has
        no group.
        """
        run_id = self.run_id(run)
        if run_id in self._groups:
            return self._groups[run_id]
        self.unread_groups.pop(run_id, None)
        groups = self._find_groups(run_id)
        if run_id not in self.unread_groups:
            self._groups[run_id] = groups
        return groups

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

    def _find_groups(self, run_id: str) -> Sequence[str]:
        """Read the group of each document with scored tokens, without the cache.

        If the groups cannot be read, add the reason to `unread_groups`, and return no groups.
        """
        frame = self.frame
        if not frame["groups"].notna().any():
            return ()
        row = frame[frame["run_id"] == run_id].iloc[0]
        same_texts = frame["run_id"] == run_id
        if pd.notna(row["documents_hash"]):
            same_texts = frame["documents_hash"].eq(row["documents_hash"]).fillna(False)
        with_groups = frame[same_texts & frame["groups"].notna()]
        only_copies = with_groups["group"].fillna("").eq("")  # groups that a field of the dataset names come first
        with_groups = with_groups.assign(only_copies=only_copies).sort_values(["only_copies", "groups", "run_id"])
        if not len(with_groups):
            return ()
        source_id = str(with_groups["run_id"].iat[0])
        try:
            group_of_document = self._reader.read(source_id, self.store.groups)
        except Unreadable as error:
            self.unread_groups[run_id] = f"its groups cannot be read ({error})"
            return ()
        documents = self._reader.count(run_id, ()).document
        last_document = int(documents.max(initial=-1))
        if last_document >= len(group_of_document):
            raise Unreadable(
                f"run {source_id}: it has groups for {counted(len(group_of_document), 'document')}, "
                f"but a run over the same texts has ranks of document {last_document:,}"
            )
        return [group_of_document[int(number)] for number in documents]

    def _logged_totals(self, run_id: str, ks: Sequence[int]) -> DocumentCounts:
        """Return the logged numbers of a run without ranks as one row of counts. The nats are NaN if CE was not logged.

        Raises WithoutRanks if RBP_k at one of the k was not logged, or if there is no number at all.
        """
        row = self.frame[self.frame["run_id"] == run_id].iloc[0]
        values = row.reindex(["ce", *map(rbp_name, ks)])
        if values.iloc[1:].isna().any() or values.isna().all():
            raise WithoutRanks(f"{row['name']} was imported without ranks")
        tokens = 1.0 if pd.isna(row["num_tokens"]) else float(row["num_tokens"])
        nats, *hits = (values.to_numpy(np.float64, na_value=np.nan) * tokens).tolist()
        return DocumentCounts(tuple(ks), np.array([TOTALS]), np.array([tokens]), np.array([nats]), np.array([hits]))

    def _make_selection(self, rows: pd.DataFrame) -> Runs:
        """Return some of the measurements. They keep their names, and share the counts that are kept in memory."""
        selected = type(self)(rows, self.store)
        selected.frame["name"] = rows["name"].array
        selected._reader = self._reader
        return selected

    @cached_property
    def _run_ids(self) -> frozenset[str]:
        return frozenset(self.frame["run_id"].dropna())


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
