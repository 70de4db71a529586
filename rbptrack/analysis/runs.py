"""Finished measurements as analyzers read them: a table with one row each, and their ranks on demand."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from rbptrack.analysis.family import read_families, whole_ks
from rbptrack.analysis.source import COUNTED, Source, Unreadable, WithoutRanks
from rbptrack.base.errors import BadInput, MissingArtifact, RbptrackError, shortened, unknown
from rbptrack.base.expression import rows_that_pass
from rbptrack.base.words import counted, listed, readable
from rbptrack.config.patterns import fits
from rbptrack.facts import BY_NAME, COLUMNS, TELL_APART
from rbptrack.ranks import (
    HEADLINE_KS,
    SCHEMA,
    DocumentCounts,
    MissingColumn,
    RankHistogram,
    RankTable,
    is_rbp_column,
    log_grid,
    rbp_ks,
    rbp_name,
)
from rbptrack.stats.documents import TOTALS
from rbptrack.stats.laws import laws_by_metric

T = TypeVar("T")
_EVERY_K = 100  # the paper's law in k ends here; up to it every k is counted
_PAPER_KS = (500, 2500, 10000)  # the larger k of its table 2
_MAX_KEPT_BYTES = 200_000_000  # bytes of counts that are kept for the next analyzer of this process
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
        source: where their ranks are read, when they are asked for.

    Attributes:
        frame: the table, typed, with `name` in front. Treat it as read-only.
        unread_sources: by run ID, why the sources of a run's documents could not be read when they were last asked for;
            such a run is counted by document.

    """

    def __init__(self, frame: pd.DataFrame, source: Source) -> None:
        names = [*COLUMNS, *(c for c in frame.columns if c not in COLUMNS and c != "name")]
        table = frame.reindex(columns=names).reset_index(drop=True)
        types = dict(COLUMNS) | dict.fromkeys(filter(is_rbp_column, names), "Float64")
        table = table.astype(types)
        table.insert(0, "name", _names(table))
        self.frame = table
        self.source = source
        self._counts: dict[str, DocumentCounts] = {}
        self._groups: dict[str, Sequence[str]] = {}
        self.unread_sources: dict[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        """The state for another process, which reads ranks itself."""
        return {"frame": self.frame, "source": self.source, "_counts": {}, "_groups": {}, "unread_sources": {}}

    def __len__(self) -> int:
        return len(self.frame)

    def __iter__(self) -> Iterator[pd.Series]:
        """The row of each measurement; `histogram(row)` and `ranks(row)` take it."""
        return (row for _, row in self.frame.iterrows())

    def __getitem__(self, key: Any) -> Any:
        """One measurement's row by its name, a column of `frame`, or the measurements of a mask.

        Raises:
            BadInput: no measurement has that name, or several do; the message lists the names.

        """
        if not isinstance(key, str):
            return self._with_rows(self.frame[key])
        if key in self.frame.columns:
            return self.frame[key]
        return self.row(key)

    def select(self, filters: Filters) -> Runs:
        """The measurements that pass; BadInput where none does, or the condition cannot be evaluated."""
        rows = self.frame
        for column in ("family", "size", "model", "dataset", "sweep"):
            patterns = getattr(filters, column)
            if not patterns:
                continue
            names = [rows[column].fillna("")]
            if column == "model":  # nano/6k means nano-6k
                names.append((rows["family"] + "/" + rows["size"]).fillna(""))
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
        """The same measurements with a table of their own: what is changed in it, nobody else sees."""
        twin = Runs.__new__(Runs)
        vars(twin).update(vars(self), frame=self.frame.copy(), unread_sources={})
        return twin

    def row(self, word: str) -> pd.Series:
        """The row of a name, or of the beginning of a run ID; BadInput as `runs[...]` raises it."""
        name = "/".join(part.strip() for part in word.split("/")).lower()
        frame = self.frame
        model = frame["family"] + "/" + frame["size"]
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
        if not isinstance(run, str):
            return str(run["run_id"])
        if run in self._run_ids:
            return run
        return str(self.row(run)["run_id"])

    def histogram(self, run: str | pd.Series) -> RankHistogram:
        """Exact counts by rank of one run. Raises Unreadable."""
        return self._read(self.source.histogram, self.run_id(run))

    def ranks(self, run: str | pd.Series, columns: Sequence[str] | None = None) -> RankTable:
        """The rank table of one run; read at each call, so reduce it at once. Raises Unreadable, MissingColumn."""
        _check_columns(columns)
        return self._read(lambda run_id: self.source.ranks(run_id, columns), self.run_id(run))

    def ranks_of(self, run: str | pd.Series, documents: Collection[int]) -> RankTable:
        """The ranks of some documents of one run, by their numbers. Raises Unreadable."""
        return self._read(lambda run_id: self.source.ranks_of(run_id, documents), self.run_id(run))

    def counts_by_document(self, run: str | pd.Series, ks: Sequence[int]) -> DocumentCounts:
        """Tokens, nats and hits of each k per document of one run, also if documents have groups. Raises Unreadable."""
        return self._counts_by_document(self.run_id(run), whole_ks(ks)).select(whole_ks(ks))

    def rank_pieces(self, run: str | pd.Series, columns: Sequence[str] | None = None) -> Iterator[RankTable]:
        """The rank table of one run in pieces of whole documents, in text order, one in memory at a time.

        For sums over documents, of tables that may be larger than memory. Raises MissingColumn where no rank table has
        such a column, and Unreadable, also in the middle.
        """
        _check_columns(columns)
        run_id = self.run_id(run)
        pieces = self._read(lambda run_id: iter(self.source.rank_pieces(run_id, columns)), run_id)
        while (piece := self._read(lambda _: next(pieces, None), run_id)) is not None:
            yield piece

    def document_counts(self, run: str | pd.Series, ks: Sequence[int]) -> DocumentCounts:
        """Tokens, nats and hits of each k per document of one run, or per source where documents have sources.

        Kept for the next analyzer of this process. Metrics that were imported without ranks come as one document of
        number `stats.documents.TOTALS`. Raises Unreadable.
        """
        ks = whole_ks(ks)
        run_id = self.run_id(run)
        if run_id in self._without_ranks:
            return self._totals(run_id, ks)
        counts = self._counts_by_document(run_id, ks).select(ks)
        groups = self.groups(run_id)
        return counts.in_groups(groups) if len(groups) else counts

    def groups(self, run: str | pd.Series) -> Sequence[str]:
        """The source of each document with scored tokens of a run; empty where none is named.

        Runs over the same texts have the same sources, so that their errors are paired: where several fields name
        sources, or only some runs do, those of the run that names the fewest are taken for all. Where they cannot be
        read they are empty, `unread_sources` says why, and they are read again at the next call.

        Raises:
            Unreadable: the ranks cannot be read, or there are more documents than sources.

        """
        run_id = self.run_id(run)
        if run_id in self._groups:
            return self._groups[run_id]
        self.unread_sources.pop(run_id, None)
        groups = self._find_groups(run_id)
        if run_id not in self.unread_sources:
            self._groups[run_id] = groups
        return groups

    def token_texts(self, run: str | pd.Series, ids: Iterable[int]) -> list[str]:
        """The texts of tokens of one run, quoted, so that spaces show: `" the"`; `id 262` where a text is not known."""
        known = self._read(self.source.token_texts, self.run_id(run))
        texts = []
        for token in map(int, ids):
            texts.append(json.dumps(readable(known[token]), ensure_ascii=False) if token in known else f"id {token}")
        return texts

    def scores(self) -> pd.DataFrame:
        """The scores of tasks that were imported, with the columns of `SCORES`; no row without any."""
        return self.source.scores()

    def laws(self, ks: Sequence[int] = HEADLINE_KS) -> pd.DataFrame:
        """The laws in size of CE and of RBP_k: family, dataset, metric, alpha, low, high, A, R2, sizes; a row each."""
        rows = []
        for family, counts in read_families(self, ks, [], min_sizes=2):
            for metric, law in laws_by_metric(family.s, counts).items():
                low, high = law.alpha.interval()
                numbers = {"alpha": law.alpha.value, "low": low, "high": high}
                rows.append({**family.keys, "metric": metric, **numbers, "A": law.a, "R2": law.r2, "sizes": law.sizes})
        return pd.DataFrame(rows, columns=["family", "dataset", "metric", "alpha", "low", "high", "A", "R2", "sizes"])

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
        selected = Runs(rows, self.source)
        selected._counts = self._counts
        return selected

    @cached_property
    def _run_ids(self) -> frozenset[str]:
        return frozenset(self.frame["run_id"].dropna())

    @cached_property
    def _without_ranks(self) -> frozenset[str]:
        return frozenset(self.frame.loc[self.frame["without_ranks"].fillna(False), "run_id"])

    def _counts_by_document(self, run_id: str, ks: Sequence[int]) -> DocumentCounts:
        kept = self._counts.get(run_id)
        if kept is not None and set(ks) <= set(kept.ks):
            return kept
        needed = {*ks, *(kept.ks if kept else ())}
        parts = []
        for piece in self.rank_pieces(run_id, COUNTED):
            parts.append(piece.document_counts(_likely_ks(piece.vocab_size, self._logged_ks, needed)))
        counts = DocumentCounts.concatenate(parts)
        if len(self._counts) * counts.hits.nbytes < _MAX_KEPT_BYTES:
            self._counts[run_id] = counts
        return counts

    @cached_property
    def _logged_ks(self) -> list[int]:
        return rbp_ks(self.frame.columns)

    def _totals(self, run_id: str, ks: Sequence[int]) -> DocumentCounts:
        """The logged numbers of a run without ranks, as one document."""
        row = self.frame[self.frame["run_id"] == run_id].iloc[0]
        values = row.reindex(["ce", *map(rbp_name, ks)])
        if values.isna().any():
            raise WithoutRanks
        tokens = 1.0 if pd.isna(row["num_tokens"]) else float(row["num_tokens"])
        nats, *hits = (values.to_numpy(np.float64) * tokens).tolist()
        return DocumentCounts(tuple(ks), np.array([TOTALS]), np.array([tokens]), np.array([nats]), np.array([hits]))

    def _find_groups(self, run_id: str) -> Sequence[str]:
        if self.frame["sources"].isna().all():
            return ()
        row = self.frame[self.frame["run_id"] == run_id].iloc[0]
        same_texts = self.frame["run_id"] == run_id
        if pd.notna(row["documents_hash"]):
            same_texts = self.frame["documents_hash"].eq(row["documents_hash"]).fillna(False)
        with_sources = self.frame[same_texts & self.frame["sources"].notna()].sort_values(["sources", "run_id"])
        if not len(with_sources):
            return ()
        named_by = str(with_sources["run_id"].iat[0])
        try:
            source_by_document = self._read(self.source.groups, named_by)
        except Unreadable as error:
            self.unread_sources[run_id] = f"its sources cannot be read ({error})"
            return ()
        documents = self._counts_by_document(run_id, ()).document
        last = int(documents.max(initial=-1))
        if last >= len(source_by_document):
            raise Unreadable(
                f"run {named_by}: it has the sources of {counted(len(source_by_document), 'document')}, "
                f"and there is a document {last:,}"
            )
        return [source_by_document[int(number)] for number in documents]

    def _read(self, load: Callable[[str], T], run_id: str) -> T:
        try:
            return load(run_id)
        except Unreadable:
            raise
        except MissingArtifact as error:
            if run_id in self._without_ranks:
                raise WithoutRanks from error
            raise Unreadable(f"run {run_id}: its rank table, histogram or sources are missing or damaged") from error
        except (RbptrackError, OSError, pa.ArrowException, KeyError, ValueError, IndexError) as error:
            reason = " ".join(str(error).split())[:200]
            raise Unreadable(f"an artifact of run {run_id} is damaged or cannot be reached: {reason}") from error


def _check_columns(columns: Sequence[str] | None) -> None:
    """Raise MissingColumn for a name that is no column of any rank table."""
    known = [*SCHEMA.names, "rank"]
    for name in columns or ():
        if name not in known:
            raise MissingColumn(f"a rank table has no column {name}; its columns are {listed(known)}")


def _likely_ks(vocab_size: int, logged: Sequence[int], needed: Iterable[int]) -> list[int]:
    """The needed k, and every k that analyzers are likely to ask for, so that each rank table is read once."""
    likely = {*range(1, _EVERY_K + 1), *_PAPER_KS, *logged, *log_grid(vocab_size).tolist()}
    return sorted({*needed, *(k for k in likely if k <= vocab_size)})


def _names(frame: pd.DataFrame) -> pd.Series[str]:
    """A name for each run that no other has: `nano-6k/stdlib`, with what sets it apart where several runs share that:
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
