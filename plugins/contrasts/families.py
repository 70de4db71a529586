"""Families that are compared, with their levels and laws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from rbptrack.analysis import Family
from rbptrack.ranks import CE, DocumentCounts, FloatArray, rbp_name
from rbptrack.stats import (
    MIN_SIZES,
    Estimate,
    Law,
    ce_and_neg_log_rbp,
    estimates,
    first_smallest,
    independent_difference,
    laws,
    laws_by_metric,
    neg_log_rbp,
    paired_difference,
    share_scatter,
)


@dataclass(frozen=True)
class ComparedFamily:
    """A family on one dataset with the counts of its sizes, their levels and the laws through them.

    Attributes:
        family: the family, with m sizes.
        counts: the counts of each size, m of them.
        ratios: the laws of -ln RBP_k / -ln RBP_1 by metric.

    """

    family: Family
    counts: list[DocumentCounts]
    ratios: dict[str, Law] = field(default_factory=dict)

    @property
    def has_laws(self) -> bool:
        """Whether there are enough sizes for laws to be compared."""
        return len(self.family.s) >= MIN_SIZES

    @cached_property
    def laws(self) -> dict[str, Law]:
        """The law of each metric; empty with fewer than `MIN_SIZES` sizes."""
        return laws_by_metric(self.family.s, self.counts) if self.has_laws else {}

    @cached_property
    def levels(self) -> list[dict[str, Estimate]]:
        """CE and -ln RBP_k of each size by metric, with the influences of documents; m of them."""
        metrics = [CE, *map(rbp_name, self.counts[0].ks)]
        levels = [estimates(counts, ce_and_neg_log_rbp) for counts in self.counts]
        return [dict(zip(metrics, of_size, strict=True)) for of_size in levels]

    def has_documents_of(self, other: ComparedFamily) -> bool:
        """Return whether all sizes of this and another family were counted over the same documents or groups."""
        return all(size_counts.has_rows_of(self.counts[0]) for size_counts in (*self.counts, *other.counts))

    def minus(self, other: ComparedFamily) -> Callable[[Estimate, Estimate], Estimate]:
        """Return how estimates of this and another family are subtracted: in pairs if they share their documents."""
        return paired_difference if self.has_documents_of(other) else independent_difference

    def keys_beside(self, other: ComparedFamily) -> dict[str, Any]:
        """Return this family, the dataset and the other family, as keyword arguments of `Report.add`."""
        models = f"{self.family.name} − {other.family.name}"
        return {**self.family.keys, "versus": other.family.name, "models": models}

    @cached_property
    def models(self) -> list[list[str]]:
        """The names of the models of each size, m lists. A size has several models if they are seeds."""
        return [sorted(names) for names in self.family.by_size("model")]

    def laws_through(self, models: Sequence[list[str]]) -> dict[str, Law]:
        """Return the law of each metric through some sizes only. models: elements of `self.models`."""
        if list(models) == self.models:
            return self.laws
        rows = [self.models.index(names) for names in models]
        return laws_by_metric(self.family.s[rows], [self.counts[i] for i in rows])


def better_first(first: ComparedFamily, second: ComparedFamily, metric: str) -> tuple[ComparedFamily, ComparedFamily]:
    """Return two families, the one first whose law has the better value at its largest size.

    The size at which it reaches the other's largest model is then not extrapolated. If both values are equal, the
    family with the smaller largest size comes first. Both families must have a law of the metric.
    """
    both = (first.laws[metric], second.laws[metric])
    values = [law.ends[1] for law in both]
    place = first_smallest(values)
    if place == first_smallest(values[::-1]):  # 0 in both orders: the values are tied
        place = first_smallest([float(law.s[-1]) for law in both])
    return (second, first) if place == 1 else (first, second)


def _ratios_to_first(sums: FloatArray) -> FloatArray:
    """Return -ln RBP_k of each k but the first one, divided by that of the first, (..., ks - 1)."""
    values = neg_log_rbp(sums)
    return np.asarray(values[..., 1:] / values[..., :1])


def with_ratios(families: Sequence[ComparedFamily]) -> list[ComparedFamily]:
    """Return families with their laws.

    Ratios to RBP_1 of few sizes share the scatter of other families (`share_scatter`). Comparisons of two families do
    not: if one of them scatters more than the other, too many differences would be found.
    """
    names = [family_laws.family.label for family_laws in families]
    ratios = []
    for family_laws in families:
        by_metric = {}
        ks = [k for k in family_laws.counts[0].ks if k > 1]
        if 1 in family_laws.counts[0].ks and ks:
            counts = [size_counts.select([1, *ks]) for size_counts in family_laws.counts]
            found = laws(family_laws.family.s, counts, _ratios_to_first)
            by_metric = {rbp_name(k): law for k, law in zip(ks, found, strict=True) if law}
        ratios.append(by_metric)
    return [
        ComparedFamily(each.family, each.counts, by_metric)
        for each, by_metric in zip(families, share_scatter(ratios, names), strict=True)
    ]


def comparable_groups(families: Sequence[ComparedFamily]) -> list[list[ComparedFamily]]:
    """Divide families into groups. The families of a group have one dataset, and their laws are comparable."""
    groups: list[list[ComparedFamily]] = []
    for family_laws in families:
        matching = [group for group in groups if group[0].family.comparable_with(family_laws.family)]
        if matching:
            matching[0].append(family_laws)
        else:
            groups.append([family_laws])
    return groups
