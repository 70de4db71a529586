"""Which runs may be compared: families on datasets, taken apart where more than the size differs.

Every analyzer begins here, so that all of them draw the same lines and say so in the same words:

    def load(family: Family, run_id: str) -> DocumentCounts:
        return runs.document_counts(run_id, log_grid(family.vocab_size).tolist())

    for family, counts in read_families(runs, load, report.notes, least=3): ...
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from rbptrack.analysis.comparable import COMPARABLE, disagreeing, marked_candidates, mixture, on_each_dataset, parts
from rbptrack.analysis.findings import Reason, Remark
from rbptrack.analysis.runs import Runs, Unreadable, WithoutRanks
from rbptrack.base.names import metric_part
from rbptrack.base.words import be
from rbptrack.ranks import rbp_ks

T = TypeVar("T")

_SAME_RANKS = ["model", "commit", "revision", "vocab_size", "dataset", *COMPARABLE]
MEAN_USED = "the mean over the runs of a size is used"

KEYS = {
    "dataset": "the dataset",
    "family": "the family; with what sets this part apart where its runs disagree",
    "size": "the size as published",
    "S": "non-embedding parameters",
}
"""The columns by which tables of analyzers say which measurements a row is about, and their meanings."""


class Pooled:
    """Base of frozen dataclasses of sums of one run, which add and are grouped by source each in their own way."""

    def __add__(self, other: Self) -> Self:
        return type(self)(**{name: _add(value, getattr(other, name)) for name, value in vars(self).items()})

    def in_groups(self, groups: Sequence[str]) -> Self:
        """Sum by source instead of by document; values that are not by document stay as they are."""
        return type(self)(**{name: _grouped(value, groups) for name, value in vars(self).items()})


def _add(value: Any, other: Any) -> Any:
    if isinstance(value, dict):
        return {key: _add(item, other[key]) for key, item in value.items()}
    return None if value is None or other is None else value + other


def _grouped(value: Any, groups: Sequence[str]) -> Any:
    if isinstance(value, dict):
        return {key: _grouped(item, groups) for key, item in value.items()}
    return value.in_groups(groups) if hasattr(value, "in_groups") else value


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

    @cached_property
    def path(self) -> str:
        """What stands between the quantity and the metric in the name of a report's metric: `pythia/wiki`."""
        return f"{metric_part(self.name)}/{metric_part(self.dataset)}"

    @cached_property
    def _each_s(self) -> npt.NDArray[Any]:
        """S of each row, (rows,) float64."""
        return self.rows["non_embedding_params"].to_numpy(np.float64, na_value=np.nan)

    @cached_property
    def s(self) -> npt.NDArray[Any]:
        """The distinct sizes S, ascending, (m,) float64."""
        return np.unique(self._each_s)

    def _by_size(self, column: str) -> list[list[str]]:
        """Return the texts of a column for each size, m lists."""
        texts = [str(text) for text in self.rows[column].tolist()]
        first = np.searchsorted(self._each_s, self.s).tolist()
        return [texts[low:high] for low, high in pairwise([*first, len(texts)])]

    @cached_property
    def run_ids(self) -> list[list[str]]:
        """The runs of each size, m lists."""
        return self._by_size("run_id")

    @cached_property
    def labels(self) -> list[str]:
        """The published label of each size, m of them: `70m`."""
        return ["+".join(dict.fromkeys(labels)) for labels in self._by_size("size")]

    @property
    def keys(self) -> dict[str, Any]:
        """Dataset and family as columns of a table's row."""
        return {"dataset": self.dataset, "family": self.name}

    @property
    def size_keys(self) -> list[dict[str, Any]]:
        """Dataset, family, size and S as columns of a table's row, for each of the m sizes."""
        return [{**self.keys, "size": label, "S": s} for label, s in zip(self.labels, self.s, strict=True)]

    @cached_property
    def vocab_size(self) -> int:
        """The smallest |V| of the models: the largest k that all of them have; 0 if unknown."""
        smallest = self.rows["vocab_size"].min()
        return 0 if pd.isna(smallest) else int(smallest)

    @property
    def cut_at(self) -> int | None:
        """After how many tokens sequences were cut; None where they were not, or an import does not say."""
        first = self.rows.iloc[0]
        return int(first["seq_len"]) if str(first["sequence"]) == "truncate" else None

    @property
    def candidates(self) -> str:
        """What marks its dataset where it was measured among the tokenizer's tokens only."""
        return marked_candidates(self.rows["candidates"].iat[0])

    def shares_texts(self, other: Family) -> bool:
        """Return whether both are known to read the same texts, so that their errors are correlated."""
        hashes = {*self.rows["documents_hash"], *other.rows["documents_hash"]}
        return len(hashes) == 1 and not any(map(pd.isna, hashes))

    def require_ranks(self) -> None:
        """Raise WithoutRanks where not even |V| is known, as of imported metrics without ranks."""
        if not self.vocab_size:
            raise WithoutRanks

    @cached_property
    def logged_ks(self) -> list[int]:
        """The k whose RBP_k every run has logged, ascending."""
        logged = self.rows.columns[self.rows.notna().all()]
        return rbp_ks(logged)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a logged number per size, (m,) float64: the mean over the runs of a size; NaN where it was not
        logged.
        """
        if name not in self.rows.columns:
            return np.full(len(self.s), np.nan)
        logged = self.rows[name]
        if len(self.s) < len(logged):
            logged = self.rows.groupby("non_embedding_params", sort=True)[name].mean()
        return np.asarray(logged.to_numpy(np.float64, na_value=np.nan))


def read_families(
    runs: Runs,
    load: Callable[[Family, str], T],
    notes: list[str],
    *,
    least: int = 1,
    several: str = MEAN_USED,
) -> Iterator[tuple[Family, list[T]]]:
    """Yield `families`, with something loaded for every size; runs whose artifact cannot be read are named and left
    out.

    Args:
        runs: the measurements.
        load: from a family and a run id to a value of that run. It must add (`+`): the runs of one size are
            pooled, which for counts over the same text is their mean.
        notes: gets a `Remark` for everything that is left out.
        least: how many sizes a family must have, also after runs were left out.
        several: the treatment of several runs of one size, for the note.

    Yields:
        The family of the runs that could be read, and one value per size, ascending in S.

    """
    for whole in families(runs, notes, least=least, several=several):
        values: dict[str, T] = {}
        without: list[str] = []
        run_ids = [run_id for ids in whole.run_ids for run_id in ids]
        for run_id, model in zip(run_ids, whole.rows["model"].tolist(), strict=True):
            try:
                values[run_id] = load(whole, run_id)
            except WithoutRanks:
                without.append(str(model))
            except Unreadable as error:
                notes.append(Remark(f"{model} on {whole.dataset} is left out: {error}", Reason.UNREADABLE))
            runs.was_read()
        if without:
            text = f"{whole}: {', '.join(without)} left out, imported without ranks."
            notes.append(Remark(text, Reason.NO_RANKS))
            if not values:
                continue
        all_read = len(values) == len(run_ids)
        family = whole if all_read else replace(whole, rows=whole.rows[whole.rows["run_id"].isin(list(values))])
        values = {run_id: _by_source(value, runs.groups(run_id)) for run_id, value in values.items()}
        if len(family.s) < least:
            left = f"only {len(family.s)} of {len(whole.s)} sizes" if len(family.s) else "none of its sizes"
            needed = f", and at least {least} are needed" if least > 1 else ""
            text = f"{family}: {left} can be read{needed}."
            notes.append(Remark(text, Reason.FEW_SIZES, needed=least, there=len(family.s)))
        elif values:
            yield family, [reduce(operator.add, [values[i] for i in ids]) for ids in family.run_ids]


def _by_source(value: T, groups: Sequence[str]) -> T:
    """Return sums over documents as sums over their sources, which are resampled where they are known."""
    grouped = getattr(value, "in_groups", None)
    return grouped(groups) if grouped and len(groups) and not getattr(value, "grouped", False) else value


def families(runs: Runs, notes: list[str], *, least: int = 1, several: str = MEAN_USED) -> list[Family]:
    """Return every family on every dataset, in parts that may be compared, with at least `least` sizes.

    Runs that differ in precision, sequence rule, sequence length, texts or tokens never come into one part, nor do
    several checkpoints of one size. Several runs of one size (seeds, say) stay together and are averaged. Notes say so.
    """
    every_family: list[Family] = []
    for every, alike in on_each_dataset(without_twins(runs.frame).sort_values(["family", "dataset"])):
        family, dataset = (str(every[key].iat[0]) for key in ("family", "dataset"))
        where = f"{family} on {dataset}"
        rows = every if alike else every[every["non_embedding_params"].notna()]
        if len(rows) < len(every):
            models = ", ".join(sorted(set(every.loc[every["non_embedding_params"].isna(), "model"])))
            notes.append(Remark(f"{where}: without a size S, left out: {models}.", Reason.NO_SIZE))
        keys = [] if alike else disagreeing(rows)
        if keys:
            mixed = "; ".join(mixture(rows, key) for key in keys)
            notes.append(Remark(f"{where}: its runs mix {mixed}. Laws are fitted to each kind apart.", Reason.KINDS))
        for label, part in parts(rows, keys):
            ordered = part if alike else part.sort_values(["non_embedding_params", "run_id"])
            family_part = Family(f"{family} {label}".strip(), dataset, ordered)
            sizes = len(family_part.s)
            if sizes < least:
                notes.append(few_sizes(family_part, least))
                continue
            if sizes < len(part):
                runs_of = zip(family_part.run_ids, family_part.labels, strict=True)
                more = ", ".join(f"{len(i)} runs of {name}" for i, name in runs_of if len(i) > 1)
                notes.append(Remark(f"{family_part}: {more}; {several}.", Reason.SEVERAL_RUNS))
            every_family.append(family_part)
    return every_family


def without_twins(frame: pd.DataFrame, *, keep: Literal["first", "last"] = "first") -> pd.DataFrame:
    """Return the rows; of those that differ in the reference only one, that without a reference (`first`) or with
    (`last`).
    """
    if not frame["reference"].notna().any():
        return frame
    rows = frame.sort_values("reference", na_position=keep, kind="stable")
    compared = rows.groupby(_SAME_RANKS, dropna=False)["reference"].transform("count") > 0
    return frame[~(rows.duplicated(_SAME_RANKS) & compared).sort_index()]  # other equals: runs of one size, imports


def few_sizes(family: Family, least: int = 3) -> Remark:
    """Return the sentence about a family with too few sizes for a law."""
    there = len(family.s)
    text = f"{family}: the law needs at least {least} sizes, and there {be(there)} {there}."
    return Remark(text, Reason.FEW_SIZES, needed=least, there=there)
