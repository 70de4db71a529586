"""The laws in size of every family: fitted to its ranks, or else to its logged metrics."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from rbptrack.analysis.families import Family, read_families
from rbptrack.analysis.findings import Reason, Remark
from rbptrack.analysis.runs import Runs
from rbptrack.analysis.sizes import SizeUnit
from rbptrack.ranks import CE, DocumentCounts, FloatArray, log_grid, metric_label, rbp_name, se_name
from rbptrack.stats.bootstrap import paired_covariance
from rbptrack.stats.contrasts import line_draws, ratio_laws
from rbptrack.stats.nested import NestedFit, fit_nested
from rbptrack.stats.power_law import PowerLawFit, fit_power_law
from rbptrack.stats.size_laws import LawValues, law_values, positive
from rbptrack.stats.spread import Spread


@dataclass(frozen=True)
class FamilyLaw:
    """The law of one metric (`ce`, `rbp_10`) in one family.

    Attributes:
        family: whose.
        metric: `ce` or `rbp_<k>`.
        law: the fit.
        logged: whether it was fitted to logged metrics, for want of ranks.
        seeds: the law over all runs, where some size has several; `law` then has its exponent and interval.
        other: the law by the other definition of S (`SizeUnit.other`); None if unknown for some model.
        to_ce: the law of the metric over CE, of the same models and documents: its alpha is that of the metric less
            that of CE (`ratio_laws`). Of the metrics asked for; None for CE and without ranks.
        draws: the exponent in every document bootstrap, (replicates,), the same draws of documents for all families
            that read the same texts; None without ranks, or if draws were not requested.

    """

    family: Family
    metric: str
    law: PowerLawFit
    logged: bool = False
    draws: FloatArray | None = None
    seeds: NestedFit | None = None
    other: PowerLawFit | None = None
    to_ce: PowerLawFit | None = None

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


@dataclass(frozen=True)
class LawReader:
    """Fits the laws of CE and of RBP_k in every family that has at least 3 sizes.

    Attributes:
        asked: the k that were asked for: a note says where one of them has no law, and these are fitted to the logged
            metrics of measurements that came without ranks.
        per_decade: how many other k per decade are fitted at.
        unit: what S is.
        level: nominal coverage of the intervals.
        replicates: document bootstraps, drawn jointly for all sizes of a family.
        draws: whether each law keeps its exponent in every one of them, which pooling families needs.

    """

    asked: Collection[int]
    per_decade: int
    unit: SizeUnit
    level: float
    replicates: int
    draws: bool = False

    def read(self, runs: Runs, notes: list[str]) -> list[FamilyLaw]:
        """Return the laws, family by family; notes get a sentence for everything that is left out."""
        every: dict[str, Family] = {}

        def load(family: Family, run_id: str) -> list[DocumentCounts]:
            every[family.path] = family
            family.require_ranks()  # else its logged metrics and their standard errors are fitted
            return [runs.document_counts(run_id, self._ks(family))]  # lists add to the runs of a size

        laws: list[FamilyLaw] = []
        family_notes: list[str] = []
        for family, counts in read_families(runs, load, family_notes, least=3, several="their scatter is fitted"):
            laws += self._of_counts(family, counts, notes)
        unranked = [note for note in family_notes if isinstance(note, Remark) and note.reason == Reason.NO_RANKS]
        notes += [note for note in family_notes if note not in unranked]  # their logged metrics are fitted
        fitted = {law.family.path for law in laws}
        for family in every.values():
            if family.path not in fitted:
                laws += self._of_logged(family, notes)
        return laws

    def _ks(self, family: Family) -> list[int]:
        if not family.vocab_size:  # imported without ranks: only logged values exist
            return family.logged_ks
        grid = log_grid(family.vocab_size, per_decade=self.per_decade)
        return sorted({*grid.tolist(), *(k for k in self.asked if k <= family.vocab_size)})

    def _of_counts(
        self, family: Family, counts: Sequence[list[DocumentCounts]], notes: list[str]
    ) -> Iterator[FamilyLaw]:
        sizes = self.unit.of(family)
        if not np.isfinite(sizes).all():
            notes.append(f"{family}: not fitted, {self.unit.name} is unknown for some models.")
            return
        values = law_values([reduce(operator.add, runs) for runs in counts], replicates=self.replicates)
        runs = [run for several in counts for run in several]
        run_values = law_values(runs, replicates=self.replicates) if len(runs) > len(counts) else None
        several = [len(runs) for runs in counts]
        other = self._other(family)
        asked_values = values.only([CE, *map(rbp_name, self.asked)])
        fits = self._fit(values, sizes, run_values, several)
        by_other = {} if other is None else self._fit(asked_values, other, run_values, several)
        to_ce = ratio_laws(sizes, asked_values, CE, level=self.level)
        for metric in values.metrics:
            if metric in fits:
                law, seeds = fits[metric]
                by_other_s = by_other[metric][0] if metric in by_other else None
                family_law = FamilyLaw(family, metric, law, seeds=seeds, other=by_other_s, to_ce=to_ce.get(metric))
                if self.draws:
                    family_law = replace(
                        family_law, draws=line_draws(sizes, values.of(metric)[1], at=float(sizes[0]))[1]
                    )
                yield family_law
            elif metric in asked_values.metrics:
                label = metric_label(metric)
                notes.append(f"{family}: {label} is 0 or 1, or nearly, at some size, so no law is fitted to it.")

    def _fit(
        self, values: LawValues, sizes: FloatArray, run_values: LawValues | None, several: Sequence[int]
    ) -> dict[str, tuple[PowerLawFit, NestedFit | None]]:
        """Return the laws by metric; where some size has several runs, over all runs, seeds' scatter apart from
        sizes'.
        """
        laws = values.fit_each(sizes, level=self.level)
        if run_values is None:
            return {metric: (law, None) for metric, law in laws.items()}
        return {
            metric: self._nested(law, np.repeat(sizes, several), *run_values.of(metric)) for metric, law in laws.items()
        }

    def _nested(
        self, law: PowerLawFit, sizes: FloatArray, y: FloatArray, draws: FloatArray
    ) -> tuple[PowerLawFit, NestedFit | None]:
        if not (positive(y) and positive(draws)):
            return law, None
        seeds = fit_nested(sizes, y, paired_covariance(np.log(draws)), level=self.level)
        alpha = seeds.exponent
        spread = Spread.estimated(seeds.se, seeds.sizes - 2)
        law = replace(law, alpha=alpha.value, log_a=seeds.log_a, low=alpha.low, high=alpha.high, spread=spread)
        return replace(law, recipe=seeds.recipe), seeds

    def _other(self, family: Family) -> FloatArray | None:
        """Return S of each size by the other definition; None without one, or if it is unknown for some
        model.
        """
        sizes = family.column(self.unit.other) if self.unit.other else np.array([np.nan])
        return sizes if positive(sizes) and np.ptp(sizes) > 0 else None

    def _of_logged(self, family: Family, notes: list[str]) -> list[FamilyLaw]:
        laws = []
        sizes = self.unit.of(family)
        for metric in [CE, *map(rbp_name, family.logged_ks)]:
            logged = family.column(metric)
            error = np.nan_to_num(family.column(se_name(metric)))
            with np.errstate(divide="ignore", invalid="ignore"):
                y = logged if metric == CE else -np.log(logged)
                log_se = error / logged / (1 if metric == CE else y)  # of ln y
            if positive(sizes) and positive(y):
                law = fit_power_law(sizes, y, covariance=np.diag(log_se**2), level=self.level)
                by_other = None
                if (other := self._other(family)) is not None:
                    by_other = fit_power_law(other, y, covariance=law.covariance, level=self.level)
                laws.append(FamilyLaw(family, metric, law, logged=True, other=by_other))
        if laws:
            notes.append(
                f"{family}: imported without ranks, or none can be read; the logged metrics are fitted, and their "
                "standard errors (where logged) taken as independent between sizes."
            )
        return laws


def by_family(laws: Iterable[FamilyLaw]) -> dict[str, list[FamilyLaw]]:
    """Return the laws of each family on a dataset, by its path, in the order in which they come."""
    grouped: dict[str, list[FamilyLaw]] = {}
    for law in laws:
        grouped.setdefault(law.family.path, []).append(law)
    return grouped
