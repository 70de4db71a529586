"""The sizes of one family on one dataset, which may be compared, and how they are read.

Every analyzer begins with `read_families`. All analyzers then use the same families and print the same notes:

    reading = read_families(runs, log_grid(1000), min_sizes=2)
    for family, counts in reading:
        [law] = laws(family.s, counts, cross_entropy)
    report.notes += reading.notes
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, Generic, TypeVar, overload

import numpy as np
import pandas as pd

from rbptrack.analysis.comparable import disagreeing, mixture, newest, parts, without_twins
from rbptrack.analysis.rank_reader import whole_ks
from rbptrack.analysis.rank_store import Unreadable, WithoutRanks
from rbptrack.analysis.runs import Runs
from rbptrack.base.words import compact, counted, listed
from rbptrack.facts import BY_NAME, ONE_LAW, Subject
from rbptrack.ranks import DocumentCounts, FloatArray, MissingColumn, rbp_ks
from rbptrack.stats.documents import only_totals

T = TypeVar("T")

UNITS = ("non_embedding_params", "total_params")
"""What S may be: parameters without embeddings and output head, or all of them."""

BY_DOCUMENT = "so documents count as independent, and intervals may be too narrow"
"""What the notes of a report say after a reason of `Runs.unread_groups`."""


@dataclass(frozen=True)
class Family:
    """Measurements of one family on one dataset that differ in the model's size only.

    Attributes:
        name: the family; with what sets this part apart where its runs disagree: `pythia bfloat16`.
        dataset: the dataset.
        rows: their rows of `Runs.frame`, ascending in S.

    """

    name: str
    dataset: str
    rows: pd.DataFrame

    def __str__(self) -> str:
        return f"{self.name} on {self.dataset}"

    @property
    def keys(self) -> dict[str, Any]:
        """Family and dataset, as `Report.add` takes them."""
        return {"family": self.name, "dataset": self.dataset}

    @cached_property
    def s(self) -> FloatArray:
        """The distinct sizes S, ascending, (m,)."""
        return np.unique(self._each_s)

    @cached_property
    def labels(self) -> list[str]:
        """The published label of each size, m of them: `70m`; S in short if it has none."""
        labels = []
        for s, sizes in zip(self.s.tolist(), self._by_size("size"), strict=True):
            labels.append("+".join(filter(None, dict.fromkeys(sizes))) or compact(s))
        return labels

    @cached_property
    def models(self) -> list[str]:
        """The model of each size, m of them: `pythia-70m`; `pythia-70m and 2 more` where a size has 3 runs."""
        names = []
        for models in self._by_size("model"):
            names.append(models[0] if len(models) == 1 else f"{models[0]} and {len(models) - 1} more")
        return names

    @cached_property
    def run_ids(self) -> list[list[str]]:
        """The runs of each size, m lists."""
        return self._by_size("run_id")

    def _by_size(self, column: str) -> list[list[str]]:
        """The texts of a column for each size, m lists."""
        texts: dict[float, list[str]] = {}
        for s, text in zip(self._each_s.tolist(), self.rows[column].astype("string").fillna("").tolist(), strict=True):
            texts.setdefault(s, []).append(str(text))
        return [texts[s] for s in self.s.tolist()]

    @cached_property
    def vocab_size(self) -> int:
        """The smallest |V| of the models: the largest k that all of them have; 0 where it is not known."""
        smallest = self.rows["vocab_size"].min()
        return 0 if pd.isna(smallest) else int(smallest)

    def usable(self, ks: Sequence[int]) -> list[int]:
        """Those of the k that every run has: up to |V|, or those that were logged where there are no ranks."""
        if self.rows["without_ranks"].fillna(False).any():
            logged = rbp_ks(self.rows.columns[self.rows.notna().all()])
            return [int(k) for k in ks if k in logged]
        return [int(k) for k in ks if not self.vocab_size or k <= self.vocab_size]

    def ks_below_vocab(self, ks: Sequence[int]) -> list[int]:
        """Those of the usable k at which a rank can miss, ascending: RBP_k is 1 where k is |V|."""
        return [k for k in self.usable(sorted(ks)) if k != self.vocab_size]

    def column(self, name: str) -> FloatArray:
        """A logged number per size, (m,): the mean over the runs of a size; NaN where it was not logged."""
        if name not in self.rows.columns:
            return np.full(len(self.s), np.nan)
        logged = self.rows[name].to_numpy(np.float64, na_value=np.nan)
        return pd.Series(logged).groupby(self._each_s, sort=True).mean().to_numpy()

    def comparable_with(self, other: Family) -> bool:
        """Whether the laws of both families may be compared.

        Both must have the same dataset, texts, sequences, candidates and rank rule. Precision and tokenizers may
        differ.
        """
        return self.dataset == other.dataset and self._conditions == other._conditions

    @cached_property
    def _conditions(self) -> list[str]:
        keys = [name for name in ONE_LAW if BY_NAME[name].subject in (Subject.TEXTS, Subject.METHOD)]
        return self.rows[keys].iloc[0].astype("string").fillna("").tolist()

    @cached_property
    def _each_s(self) -> FloatArray:
        return self.rows["non_embedding_params"].to_numpy(np.float64, na_value=np.nan)


@dataclass
class Reading(Generic[T]):
    """Families with what was read of each size. `read_families` makes it.

    A loop over it reads one family at a time, and forgets it before the next one. Each loop reads anew.

    Attributes:
        runs: the measurements.
        load: from a family and a run ID to sums of that run.
        min_sizes: how many sizes a family must have, also after runs were left out.
        notes: a sentence for everything that the last loop left out, or treated in a way that a reader must know.

    """

    runs: Runs
    load: Callable[[Family, str], T]
    min_sizes: int = 1
    notes: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[Family, list[T]]]:
        """Yield the family of the runs that could be read, and what was read of each size, ascending in S."""
        comparable, self.notes = families(self.runs, min_sizes=self.min_sizes)
        for whole in comparable:
            values, notes = _read_runs(self.runs, whole, self.load)
            self.notes += notes
            if not values:
                continue
            family = replace(whole, rows=whole.rows[whole.rows["run_id"].isin(list(values))])
            if len(family.s) < self.min_sizes:
                self.notes.append(_few_sizes(family, self.min_sizes))
                continue
            if any(isinstance(value, DocumentCounts) and only_totals(value) for value in values.values()):
                self.notes.append(f"{family}: imported without ranks. Intervals include the scatter of models only.")
            yield family, [reduce(operator.add, [values[run_id] for run_id in run_ids]) for run_ids in family.run_ids]


@overload
def read_families(runs: Runs, read: Sequence[int], *, min_sizes: int = 1) -> Reading[DocumentCounts]: ...
@overload
def read_families(runs: Runs, read: Callable[[Family, str], T], *, min_sizes: int = 1) -> Reading[T]: ...
def read_families(runs: Runs, read: Any, *, min_sizes: int = 1) -> Reading[Any]:
    """Every family on every dataset, with something read of each size; runs that cannot be read are named and left out.

        reading = read_families(runs, [1, 10])
        for family, counts in reading:
            ...
        report.notes += reading.notes

    Args:
        runs: the measurements.
        read: the k to count by document (those that the family has: `counts[0].ks`), or a function from a family and a
            run ID to sums of that run. They must add (`+`), as the runs of one size are summed; sums with `in_groups`
            are summed by group where documents have groups.
        min_sizes: how many sizes a family must have, also after runs were left out.

    """
    return Reading(runs, read if callable(read) else _counts_at(runs, whole_ks(read)), min_sizes)


def _read_runs(runs: Runs, family: Family, load: Callable[[Family, str], T]) -> tuple[dict[str, T], list[str]]:
    """What is read of each run of a family, by run ID, and notes that name the runs that cannot be read."""
    values: dict[str, T] = {}
    notes = []
    without_ranks = []
    models = dict(zip(map(str, family.rows["run_id"]), map(str, family.rows["model"]), strict=True))
    for run_id, model in models.items():
        try:
            values[run_id] = _by_source(load(family, run_id), runs, run_id)
        except WithoutRanks:
            without_ranks.append(model)
        except (Unreadable, MissingColumn) as error:
            notes.append(f"{model} on {family.dataset} is left out: {error}.")
    by_document = [run_id for run_id in values if run_id in runs.unread_groups and hasattr(values[run_id], "in_groups")]
    if by_document and len(by_document) == len(values):
        notes.append(f"{family}: {runs.unread_groups[by_document[0]]}, {BY_DOCUMENT}.")
    else:  # sums by document and by group do not add
        for run_id in by_document:
            del values[run_id]
            notes.append(f"{models[run_id]} on {family.dataset} is left out: {runs.unread_groups[run_id]}.")
    if len(without_ranks) == len(models):
        notes.append(f"{family} is left out: its runs were imported without ranks.")
    elif without_ranks:
        notes.append(f"{family}: {listed(without_ranks)} left out, imported without ranks.")
    return values, notes


def families(runs: Runs, *, min_sizes: int = 1) -> tuple[list[Family], list[str]]:
    """Every family on every dataset, in parts that may be compared, with at least `min_sizes` sizes.

    The runs of one part agree in the columns `rbptrack.facts.ONE_LAW`: weights, precision, texts, sequences and so on.
    The runs of one size agree in `ONE_POINT`: they are of one checkpoint. They are of different models (seeds): of one
    model the newest run counts.

    Returns:
        The families, and notes: a sentence for everything that is left out or taken apart.

    """
    comparable = []
    notes = []
    frame = without_twins(runs.frame)
    for (name, dataset), all_rows in frame.groupby(["family", "dataset"], sort=True):
        where = f"{name} on {dataset}"
        rows = all_rows[all_rows["non_embedding_params"].notna()]
        if len(rows) < len(all_rows):
            models = sorted(set(all_rows.loc[all_rows["non_embedding_params"].isna(), "model"]))
            notes.append(f"{where}: without a size S, left out: {listed(models)}.")
        keys = disagreeing(rows)
        if keys:
            mixed = "; ".join(mixture(rows, key) for key in keys)
            notes.append(f"{where}: its runs mix {mixed}. Each kind is taken by itself.")
        for label, part in parts(rows, keys):
            counting, replaced = newest(part.sort_values(["non_embedding_params", "run_id"]))
            family = Family(f"{name} {label}".strip(), str(dataset), counting)
            notes += [f"{family}: {line}" for line in replaced]
            if len(family.s) < min_sizes:
                notes.append(_few_sizes(family, min_sizes))
                continue
            if len(family.s) < len(counting):
                sizes = zip(family.run_ids, family.labels, strict=True)
                several = [f"{len(ids)} runs of {size}" for ids, size in sizes if len(ids) > 1]
                notes.append(f"{family}: {listed(several)}; the runs of a size are summed into one point.")
            comparable.append(family)
    return comparable, notes


def _counts_at(runs: Runs, ks: Sequence[int]) -> Callable[[Family, str], DocumentCounts]:
    def load(family: Family, run_id: str) -> DocumentCounts:
        return runs.document_counts(run_id, family.usable(ks))

    return load


def _by_source(value: Any, runs: Runs, run_id: str) -> Any:
    """Sums over documents as sums over their groups, where those are known."""
    if not hasattr(value, "in_groups") or getattr(value, "grouped", False):
        return value
    if isinstance(value, DocumentCounts) and only_totals(value):
        return value
    groups = runs.groups(run_id)
    return value.in_groups(groups) if len(groups) else value


def _few_sizes(family: Family, min_sizes: int) -> str:
    return f"{family}: {counted(len(family.s), 'size')}, and at least {min_sizes} are needed."
