"""The laws in size of every family: fitted to its ranks, or else to its logged metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rbptrack.analysis.contract import Runs
from rbptrack.analysis.families import Family, families, read_families
from rbptrack.ranks import CE, DocumentCounts, FloatArray, metric_label, rbp_name, se_name
from rbptrack.stats import PowerLawFit, fit_power_law, law_values, positive


@dataclass(frozen=True)
class FamilyLaw:
    """The law of one metric (`ce`, `rbp_10`) in one family."""

    family: Family
    metric: str
    law: PowerLawFit

    @property
    def label(self) -> str:
        """The metric for people: CE, RBP_10."""
        return metric_label(self.metric)

    @property
    def keys(self) -> dict[str, Any]:
        """The cells that name it in a table: dataset, family and metric."""
        return self.family.keys | {"metric": self.label}

    @property
    def path(self) -> str:
        """What follows the quantity in the name of a report's metric: `pythia/wiki/rbp_10`."""
        return f"{self.family.path}/{self.metric}"


@dataclass(frozen=True, kw_only=True)
class LawReader:
    """Fits the laws of CE and of RBP_k in every family that has at least 3 sizes.

    Attributes:
        ks: the k of a family to fit at.
        asked: the k that were asked for: a note says where one of them has no law, and these are fitted to the logged
            metrics of measurements that came without ranks.
        sizes: S of a family's models, (m,); NaN where it is not known.
        size_name: what S is, for notes.
        level: nominal coverage of the intervals.
        replicates: document bootstraps, drawn jointly for all sizes of a family.

    """

    ks: Callable[[Family], Sequence[int]]
    asked: Collection[int]
    sizes: Callable[[Family], FloatArray]
    size_name: str
    level: float
    replicates: int

    def read(self, runs: Runs, notes: list[str]) -> list[FamilyLaw]:
        """The laws, family by family; notes get a sentence for everything that is left out."""

        def load(family: Family, run_id: str) -> DocumentCounts:
            return runs.document_counts(run_id, self.ks(family))

        found: list[FamilyLaw] = []
        for family, counts in read_families(runs, load, notes, least=3):
            found += self._of_counts(family, counts, notes)
        fitted = {one.family.path for one in found}
        for family in families(runs, [], least=3):
            if family.path not in fitted:
                found += self._of_logged(family, notes)
        return found

    def _of_counts(self, family: Family, counts: Sequence[DocumentCounts], notes: list[str]) -> Iterator[FamilyLaw]:
        sizes = self.sizes(family)
        if not np.isfinite(sizes).all():
            notes.append(f"{family}: not fitted, {self.size_name} is not known for every model.")
            return
        asked = set(map(rbp_name, self.asked))
        values = law_values(counts, replicates=self.replicates)
        for metric in values.metrics:
            law = values.fit(metric, sizes, level=self.level)
            if law:
                yield FamilyLaw(family, metric, law)
            elif metric in asked:
                label = metric_label(metric)
                notes.append(f"{family}: {label} is 0 or 1 (or nearly) for some size: no law is fitted to it.")

    def _of_logged(self, family: Family, notes: list[str]) -> list[FamilyLaw]:
        found, sizes = [], self.sizes(family)
        for metric in [CE, *map(rbp_name, self.asked)]:
            logged, error = family.column(metric), np.nan_to_num(family.column(se_name(metric)))
            with np.errstate(divide="ignore", invalid="ignore"):
                y = logged if metric == CE else -np.log(logged)
                log_se = error / logged / (1 if metric == CE else y)  # of ln y
            if positive(sizes) and positive(y):
                law = fit_power_law(sizes, y, covariance=np.diag(log_se**2), level=self.level)
                found.append(FamilyLaw(family, metric, law))
        if found:
            notes.append(
                f"{family}: no rank tables to read; the logged metrics are fitted, and their standard errors (where "
                "logged) taken as independent between sizes."
            )
        return found
