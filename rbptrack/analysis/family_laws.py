"""Compare two families on the same texts: by the levels of their sizes, and by the sizes at which laws are equal."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rbptrack.analysis.family import Family
from rbptrack.ranks import CE, DocumentCounts, rbp_name
from rbptrack.stats import (
    MIN_SIZES,
    Estimate,
    Law,
    Row,
    ce_and_neg_log_rbp,
    combination,
    estimates,
    laws_by_metric,
    paired_difference,
    size_ratio,
)
from rbptrack.stats.rounding import first_smallest
from rbptrack.stats.sizes import Minus, SizeRatio


@dataclass(frozen=True)
class FamilyLaws:
    """A family on one dataset with the counts of its sizes, their levels and the laws through them.

    The counts may be those of a class of tokens.

    Attributes:
        family: the family, with m sizes.
        counts: the counts of each size, m of them.

    """

    family: Family
    counts: list[DocumentCounts]

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

    def has_documents_of(self, other: FamilyLaws) -> bool:
        """Return whether all sizes of this and another family were counted over the same documents or groups."""
        first = self.counts[0]
        return all(
            np.array_equal(size_counts.document, first.document) and size_counts.grouped == first.grouped
            for size_counts in (*self.counts, *other.counts)
        )

    def minus(self, other: FamilyLaws) -> Minus:
        """Return how estimates of this and another family are subtracted: in pairs if they share their documents."""
        return paired_difference if self.has_documents_of(other) else operator.sub

    def keys_beside(self, other: FamilyLaws) -> dict[str, Any]:
        """Return this family, the dataset and the other family, as keyword arguments of `Report.add`."""
        models = f"{self.family.name} − {other.family.name}"
        return {**self.family.keys, "versus": other.family.name, "models": models}


def level_differences(first: FamilyLaws, second: FamilyLaws, metric: str) -> list[tuple[str, Estimate]]:
    """Return the label of each pair of near sizes, and the level of one family minus that of the other.

    Sizes at which RBP_k is 0 or 1 are left out: all documents then agree, which says nothing about other documents.
    The label is `70m`, or `70m − 160m` if the sizes differ.
    """
    minus = first.minus(second)
    differences = []
    for i, j in first.family.near_sizes(second.family):
        if metric not in first.levels[i] or metric not in second.levels[j]:
            continue
        levels = (first.levels[i][metric], second.levels[j][metric])
        if all(0 < level.value < np.inf for level in levels):
            labels = dict.fromkeys((first.family.labels[i], second.family.labels[j]))
            differences.append((" − ".join(labels), minus(*levels)))
    return differences


def mean_level(differences: Sequence[tuple[str, Estimate]]) -> Estimate:
    """Return the mean of differences of levels. Its interval includes documents, and not the choice of models."""
    rows = [Row(difference, "documents", "models") for _, difference in differences]
    return combination(rows, np.full(len(rows), 1 / len(rows)))


def better_first(first: FamilyLaws, second: FamilyLaws, metric: str) -> tuple[FamilyLaws, FamilyLaws]:
    """Return two families, the one first whose law has the better value at its largest size.

    The size at which it reaches the other's largest model is then not extrapolated. If both values are equal, the
    family with the smaller largest size comes first. Both families must have a law of the metric.
    """
    laws = (first.laws[metric], second.laws[metric])
    values = [law.ends[1] for law in laws]
    place = first_smallest(values)
    if place == first_smallest(values[::-1]):  # 0 in both orders: the values are tied
        place = first_smallest([float(law.s[-1]) for law in laws])
    return (second, first) if place == 1 else (first, second)


def equivalent_size(better: FamilyLaws, other: FamilyLaws, metric: str) -> SizeRatio | None:
    """Return the size at which one family has the value of another's largest model, divided by the size of this model.

    Returns None if the metric does not improve with the size of the first family.
    """
    reference = other.laws[metric]
    return size_ratio(better.laws[metric], reference, float(reference.s[-1]), better.minus(other))
