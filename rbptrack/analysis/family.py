"""Divide measurements into families that may share a law, and read the ranks of every size.

An analyzer of families begins with `read_families`. All such analyzers then use the same families and print the same
notes:

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
from math import log
from typing import Any, Generic, TypeVar, overload

import numpy as np
import pandas as pd

from rbptrack.analysis.comparable import (
    assumed_facts,
    describe_values,
    differing_facts,
    split_by_facts,
    without_conflicts,
    without_repeats,
)
from rbptrack.analysis.rank_store import Unreadable, WithoutRanks
from rbptrack.analysis.runs import Runs
from rbptrack.base.formatting import compact, counted, listed
from rbptrack.base.names import natural_key
from rbptrack.measurement.columns import COLUMN_PARTS, LAW_COLUMNS
from rbptrack.measurement.parts import Subject
from rbptrack.ranks import DocumentCounts, FloatArray, MissingColumn, rbp_ks
from rbptrack.ranks.names import check_ks
from rbptrack.stats.sums import only_totals

T = TypeVar("T")

S_COLUMNS = ("non_embedding_params", "total_params")
"""The columns that S may be: parameters without embeddings and output head, or all parameters."""

_NEAR = log(2.0)  # the largest difference of ln S of sizes that are compared

BY_DOCUMENT = "so documents count as independent, and intervals may be too narrow"
"""The end of a note that begins with a reason from `Runs.unread_groups`."""


@dataclass(frozen=True)
class Family:
    """Measurements of one family on one dataset that differ only in the size and the seed of the model.

    Attributes:
        name: the name of the family. If the family's runs differ in another way, such as in precision, the name also
            says which runs these are: `pythia bfloat16`.
        dataset: the name of the dataset.
        rows: the rows of `Runs.frame` of these measurements, ascending in S.

    """

    name: str
    dataset: str
    rows: pd.DataFrame

    def __str__(self) -> str:
        return f"{self.name} on {self.dataset}"

    @property
    def keys(self) -> dict[str, Any]:
        """The family and the dataset, as keyword arguments of `Report.add`."""
        return {"family": self.name, "dataset": self.dataset}

    @property
    def label(self) -> str:
        """The family that the labels of the runs name: `pythia`, also if `name` is `pythia bfloat16`."""
        return str(self.rows["family"].iloc[0])

    @cached_property
    def s(self) -> FloatArray:
        """The distinct sizes S, ascending, (m,)."""
        return np.unique(self._s_of_runs)

    @cached_property
    def labels(self) -> list[str]:
        """The published label of each size, such as `70m`, or a short form of S if the size has no label; m labels."""
        labels = []
        for s, sizes in zip(self.s.tolist(), self.by_size("size"), strict=True):
            labels.append("+".join(filter(None, dict.fromkeys(sizes))) or compact(s))
        return labels

    @cached_property
    def models(self) -> list[str]:
        """The model of each size, m of them: `pythia-70m`, or `pythia-70m and 2 more` if a size has 3 runs."""
        names = []
        for models in self.by_size("model"):
            names.append(models[0] if len(models) == 1 else f"{models[0]} and {len(models) - 1} more")
        return names

    @cached_property
    def run_ids(self) -> list[list[str]]:
        """The run IDs of each size, m lists."""
        return self.by_size("run_id")

    def by_size(self, column: str) -> list[list[str]]:
        """Return the values of a column for each size as texts, m lists."""
        texts: dict[float, list[str]] = {}
        for s, text in zip(
            self._s_of_runs.tolist(), self.rows[column].astype("string").fillna("").tolist(), strict=True
        ):
            texts.setdefault(s, []).append(str(text))
        return [texts[s] for s in self.s.tolist()]

    @cached_property
    def vocab_size(self) -> int:
        """The smallest |V| of the models, which is the largest k that all models have; 0 if no |V| is known."""
        smallest = self.rows["vocab_size"].min()
        return 0 if pd.isna(smallest) else int(smallest)

    def usable_ks(self, ks: Sequence[int]) -> list[int]:
        """Return the k at which every run has RBP_k.

        Runs with ranks have every k up to |V|. Runs that were imported without ranks have only the k that were logged.
        """
        if self.rows["without_ranks"].fillna(False).any():
            logged = rbp_ks(self.rows.columns[self.rows.notna().all()])
            return [int(k) for k in ks if k in logged]
        return [int(k) for k in ks if not self.vocab_size or k <= self.vocab_size]

    def ks_below_vocab(self, ks: Sequence[int]) -> list[int]:
        """Return the k at which every run has RBP_k, ascending, without k = |V|, at which RBP_k is always 1."""
        return [k for k in self.usable_ks(sorted(ks)) if k != self.vocab_size]

    def column(self, name: str) -> FloatArray:
        """Return a logged number for each size, (m,).

        It is the mean over the runs of a size that logged the number, and NaN if none did.

        Args:
            name: a column of `Runs.frame`. If there is no such column, all values are NaN.

        """
        if name not in self.rows.columns:
            return np.full(len(self.s), np.nan)
        logged = self.rows[name].to_numpy(np.float64, na_value=np.nan)
        if len(self.s) == len(logged):  # one run of each size, ascending in S
            return logged
        return pd.Series(logged).groupby(self._s_of_runs, sort=True).mean().to_numpy()

    def comparable_with(self, other: Family) -> bool:
        """Return whether the law of this family may be compared with that of another.

        Both families must have the same dataset, texts, sequences, candidates and rank rule. Precision and tokenizers
        may differ.
        """
        return self.dataset == other.dataset and self._conditions == other._conditions

    def near_sizes(self, other: Family) -> list[tuple[int, int]]:
        """Return the places of sizes of this and another family that may be compared.

        Each of the two sizes is the other's nearest one, and their ratio is at most 2. If no two sizes are so near, the
        nearest two are returned.
        """
        distance = np.abs(np.log(np.divide.outer(self.s, other.s)))
        pairs = []
        for i, j in enumerate(distance.argmin(axis=1).tolist()):
            if distance[:, j].argmin() == i and distance[i, j] <= _NEAR:
                pairs.append((i, j))
        nearest = np.unravel_index(distance.argmin(), distance.shape)
        return pairs or [(int(nearest[0]), int(nearest[1]))]

    @cached_property
    def _conditions(self) -> list[str]:
        keys = [name for name in LAW_COLUMNS if COLUMN_PARTS[name].subject in (Subject.TEXTS, Subject.METHOD)]
        return self.rows[keys].iloc[0].astype("string").fillna("").tolist()

    @cached_property
    def _s_of_runs(self) -> FloatArray:
        return self.rows["non_embedding_params"].to_numpy(np.float64, na_value=np.nan)


@dataclass
class Reading(Generic[T]):
    """An iterable of families, each with the sums of its sizes. `read_families` creates it.

    A loop reads one family at a time and keeps none in memory. Every loop reads the ranks again.

    Attributes:
        runs: the measurements.
        load: a function that takes a family and a run ID and returns the sums of that run.
        min_sizes: the smallest number of sizes of a family. Families with fewer readable sizes are left out.
        notes: sentences for the reader of a report. They name what the last loop left out and how it grouped runs.

    """

    runs: Runs
    load: Callable[[Family, str], T]
    min_sizes: int = 1
    notes: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[Family, list[T]]]:
        """Yield each family with the sums of its sizes, ascending in S. Runs that cannot be read are left out."""
        comparable, self.notes = comparable_families(self.runs, min_sizes=self.min_sizes)
        without_ranks = []
        with_only_totals = []
        for candidate in comparable:
            sums_by_run, notes = _read_runs(self.runs, candidate, self.load)
            self.notes += notes
            if sums_by_run is None:
                without_ranks.append(str(candidate))
                continue
            if not sums_by_run:
                continue
            family = replace(candidate, rows=candidate.rows[candidate.rows["run_id"].isin(list(sums_by_run))])
            if len(family.s) < self.min_sizes:
                self.notes.append(_too_few_sizes_note(family, self.min_sizes))
                continue
            if any(isinstance(value, DocumentCounts) and only_totals(value) for value in sums_by_run.values()):
                with_only_totals.append(str(family))
            sums_by_size = []
            for run_ids in family.run_ids:
                sums_by_size.append(reduce(operator.add, [sums_by_run[run_id] for run_id in run_ids]))
            yield family, sums_by_size
        if with_only_totals:
            self.notes.append(
                f"Imported without ranks: {listed(with_only_totals)}. Intervals and tests of their laws in size "
                "include the scatter between models, but not the choice of documents."
            )
        if without_ranks:
            self.notes.append(f"Left out, because they were imported without ranks: {listed(without_ranks)}.")


@overload
def read_families(runs: Runs, read: Sequence[int], *, min_sizes: int = 1) -> Reading[DocumentCounts]: ...
@overload
def read_families(runs: Runs, read: Callable[[Family, str], T], *, min_sizes: int = 1) -> Reading[T]: ...
def read_families(runs: Runs, read: Any, *, min_sizes: int = 1) -> Reading[Any]:
    """Read every family on every dataset: the counts, or other sums, of each of its sizes.

        reading = read_families(runs, [1, 10])
        for family, counts in reading:
            ...
        report.notes += reading.notes

    Runs that cannot be read are left out. The notes name them.

    Args:
        runs: the measurements.
        read: the k of RBP_k, or a function. If k are given, hits are counted by document at each k that all runs of the
            family have (`counts[0].ks`). A function takes a family and a run ID, and returns sums of that run. Sums of
            several runs of one size are added with `+`. If the sums have a method `in_groups` and the documents belong
            to groups, they are summed by group.
        min_sizes: the smallest number of sizes of a family. Families with fewer readable sizes are left out.

    """
    if callable(read):
        return Reading(runs, read, min_sizes)
    ks = check_ks(read)
    return Reading(runs, lambda family, run_id: runs.document_counts(run_id, family.usable_ks(ks)), min_sizes)


def _read_runs(runs: Runs, family: Family, load: Callable[[Family, str], T]) -> tuple[dict[str, T] | None, list[str]]:
    """Return the sums of each run of a family, by run ID, and notes that name the runs that cannot be read.

    The sums are None if `load` needs ranks and all runs were imported without them.
    """
    sums_by_run: dict[str, T] = {}
    notes = []
    without_ranks = []
    models = dict(zip(map(str, family.rows["run_id"]), map(str, family.rows["model"]), strict=True))
    for run_id, model in models.items():
        try:
            sums_by_run[run_id] = _sum_by_group(load(family, run_id), runs, run_id)
        except WithoutRanks:
            without_ranks.append(model)
        except (Unreadable, MissingColumn) as error:
            notes.append(f"{model} on {family.dataset} is left out: {error}.")
    ungrouped = []
    for run_id, sums in sums_by_run.items():
        if run_id in runs.unread_groups and hasattr(sums, "in_groups"):
            ungrouped.append(run_id)
    if ungrouped and len(ungrouped) == len(sums_by_run):
        notes.append(f"{family}: {runs.unread_groups[ungrouped[0]]}, {BY_DOCUMENT}.")
    else:  # sums by document cannot be added to sums by group
        for run_id in ungrouped:
            del sums_by_run[run_id]
            notes.append(f"{models[run_id]} on {family.dataset} is left out: {runs.unread_groups[run_id]}.")
    if len(without_ranks) == len(models):
        return None, notes
    if without_ranks:
        notes.append(f"{family}: {listed(without_ranks)} left out, imported without ranks.")
    return sums_by_run, notes


def comparable_families(runs: Runs, *, min_sizes: int = 1) -> tuple[list[Family], list[str]]:
    """Divide the runs of every family on every dataset into families that may share a law.

    - The runs of a returned family agree in the columns `LAW_COLUMNS`, such as architecture, precision, texts
      and sequences. If the runs of a family differ in them, several families are returned.
    - The runs of one size also agree in the columns `POINT_COLUMNS`, which identify the checkpoint. They are runs of
      different models, such as seeds. Different models with the same name and seed are left out.

    Returns:
        The families with at least `min_sizes` sizes, and notes: sentences that name what was left out or divided.

    """
    comparable = []
    notes = []
    frame = without_repeats(runs.frame).sort_values(["non_embedding_params", "run_id"])
    for (name, dataset), all_rows in frame.groupby(["family", "dataset"], sort=True):
        name_and_dataset = f"{name} on {dataset}"
        rows = all_rows[all_rows["non_embedding_params"].notna()]
        if len(rows) < len(all_rows):
            models = sorted(set(all_rows.loc[all_rows["non_embedding_params"].isna(), "model"]), key=natural_key)
            notes.append(f"{name_and_dataset}: {listed(models)} left out: the size S is unknown.")
        for key in assumed_facts(rows):
            values = describe_values(rows, key)
            notes.append(f"{name_and_dataset}: {values}. The unknown values are assumed to be equal to the known one.")
        keys = differing_facts(rows)
        if keys:
            differences = "; ".join(describe_values(rows, key) for key in keys)
            notes.append(f"{name_and_dataset}: its runs differ in {differences}. Each kind is analysed separately.")
        for part_name, part_rows in split_by_facts(str(name), rows, keys):
            kept, conflicts = without_conflicts(part_rows)
            family = Family(part_name, str(dataset), kept)
            notes += [f"{family}: {note}" for note in conflicts]
            if len(family.s) < min_sizes:
                notes.append(_too_few_sizes_note(family, min_sizes))
                continue
            if len(family.s) < len(kept):
                sizes = zip(family.run_ids, family.labels, strict=True)
                with_several_runs = [f"{len(ids)} runs of {size}" for ids, size in sizes if len(ids) > 1]
                notes.append(f"{family}: {listed(with_several_runs)}. The runs of a size are summed into one point.")
            comparable.append(family)
    return comparable, notes


def _sum_by_group(value: Any, runs: Runs, run_id: str) -> Any:
    """Sum the rows of a value by group if the value has `in_groups` and the run's documents belong to groups."""
    if not hasattr(value, "in_groups") or getattr(value, "grouped", False):
        return value
    if isinstance(value, DocumentCounts) and only_totals(value):
        return value
    groups = runs.groups(run_id)
    return value.in_groups(groups) if len(groups) else value


def _too_few_sizes_note(family: Family, min_sizes: int) -> str:
    return f"{family} is left out: it has {counted(len(family.s), 'size')}, and at least {min_sizes} are needed."
