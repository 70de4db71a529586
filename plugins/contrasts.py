"""Compare exponents of RBP_k and RBP_1, of datasets and of families, and average them over datasets and families.

An error that two exponents have in common cancels in their difference. The exponents of RBP_k and RBP_1 are measured
with the same models and documents, and those of one family on two datasets with the same models. In both cases the law
of the ratio is fitted; its exponent is the difference. The exponents of two families on one dataset are measured with
the same documents. The influences of each document on both exponents are subtracted before they are squared.

Each exponent is reported with two errors. One uses the scatter of its own family. The other uses the scatter of all
families and datasets together. It is more precise if models scatter equally everywhere.

Means are random-effects means. Their interval (Hartung and Knapp) is for the mean over datasets or families like these.
The prediction interval is for one more dataset or family. Welch's test tests whether all exponents are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveInt

from rbptrack.analysis import (
    Analyzer,
    Family,
    Glossary,
    Report,
    Runs,
    Term,
    join_clauses,
    listed,
    read_families,
    verdict_clause,
)
from rbptrack.figures import intervals
from rbptrack.ranks import CE, HEADLINE_KS, DocumentCounts, metric_label, rbp_ks, rbp_name
from rbptrack.stats import (
    MIN_POOLED,
    Estimate,
    Law,
    Mean,
    difference_of_exponents,
    ks_with_enough_misses,
    laws,
    laws_by_metric,
    mean_over_datasets,
    mean_over_families,
    neg_log_rbp,
    pooled_scatter,
    random_effects,
    why_no_interval,
)

GLOSSARY: Glossary = {
    "against_rbp_1": Term("exponent of -ln RBP_k minus that of -ln RBP_1, by the law of their ratio", "Δα", "+.3g"),
    "datasets": Term(
        "exponent on this dataset minus that on the other (versus), over the same models", "Δα of datasets", "+.3g"
    ),
    "families": Term(
        "exponent of this family minus that of the other (versus), over the same documents", "Δα of families", "+.3g"
    ),
    "mean_over_datasets": Term("mean exponent of the family over its datasets", "mean α"),
    "mean_over_families": Term("mean exponent on the dataset over its families", "mean α"),
    "pooled": Term("exponent, with the scatter of models around all laws of the metric together", "α, pooled scatter"),
    "versus": "the other dataset or family",
    "scatter": Term("standard deviation of models around this law, of ln y", "own scatter", ".3f"),
    "pooled_scatter": Term("standard deviation of models around all laws of the metric, of ln y", "pooled", ".3f"),
    "own_low": Term("lower end of the interval with the family's own scatter", "own low"),
    "own_high": Term("upper end of the interval with the family's own scatter", "own high"),
    "sizes": Term("sizes that both laws go through, with the same models", aside=True),
    "number": Term("exponents in the mean"),
    "tau": Term("standard deviation of the true exponents", "τ"),
    "prediction_low": Term("lower end of the 95% interval for one more dataset or family", "next: low"),
    "prediction_high": Term("upper end of the 95% interval for one more dataset or family", "next: high"),
    "homogeneity": Term(
        "p-value of Welch's test that all exponents are equal; not corrected by Holm's method", "p (all equal)", ".3f"
    ),
}
MIN_SIZES = 3
"""The smallest number of sizes of a law whose exponent is compared."""


@dataclass(frozen=True)
class Exponents:
    """The laws of one family on one dataset.

    Attributes:
        family: the family, with m sizes.
        models: the names of the models of each size, m tuples. A size has several models if they are seeds.
        counts: the counts of each size, m of them.

    """

    family: Family
    models: list[tuple[str, ...]]
    counts: list[DocumentCounts]

    @cached_property
    def laws(self) -> dict[str, Law]:
        """The laws by metric."""
        return laws_by_metric(self.family.s, self.counts)

    def laws_through(self, models: Sequence[tuple[str, ...]]) -> dict[str, Law]:
        """Return the laws by metric through some sizes only.

        Args:
            models: the models of each of these sizes, elements of `self.models`.

        """
        if list(models) == self.models:
            return self.laws
        rows = [self.models.index(names) for names in models]
        return laws_by_metric(self.family.s[rows], [self.counts[i] for i in rows])

    def has_documents_of(self, other: Exponents) -> bool:
        """Whether all sizes of this and another family were counted over the same documents or groups."""
        first = self.counts[0]
        return all(
            np.array_equal(size_counts.document, first.document) and size_counts.grouped == first.grouped
            for size_counts in (*self.counts, *other.counts)
        )


class Contrasts(Analyzer):
    """Differences of exponents between RBP_k and RBP_1, between datasets and between families, and mean exponents."""

    ks: tuple[PositiveInt, ...] = HEADLINE_KS
    """the k of RBP_k"""

    margin: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """two exponents count as equal if they differ by less than this share of the second exponent"""

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        ks = sorted({1, *self.ks})
        reading = read_families(runs, ks)
        fitted = [_exponents(family, counts) for family, counts in reading if len(family.s) >= MIN_SIZES]
        report.notes += reading.notes
        for exponents in fitted:
            unknown = [metric_label(metric) for metric, law in exponents.laws.items() if not law.alpha.has_interval]
            if unknown:
                why = why_no_interval(exponents.counts)
                report.notes.append(f"{exponents.family}: no interval for the law of {listed(unknown)}: {why}.")
            self._against_rbp_1(report, exponents)
        self._datasets(report, fitted)
        self._families(report, fitted)
        self._pool(report, fitted)
        if not report.questions:
            report.notes.append(
                f"There are no two exponents to compare. An exponent needs a family of at least {MIN_SIZES} sizes."
            )
            return report
        title = "difference of exponents"
        for question, one, panel in (("families", "family", "dataset"), ("datasets", "dataset", "family")):
            if question in report.questions:
                rows = report.frame(question).rename(columns={question: title})
                rows["pair"] = rows[one] + " − " + rows["versus"]
                report.figures[question] = intervals(rows, x=title, y="metric", colour="pair", facet=panel, null=0.0)
        if "against_rbp_1" in report.questions:
            rows = report.frame("against_rbp_1").rename(columns={"against_rbp_1": title})
            report.figures["against_rbp_1"] = intervals(rows, x=title, y="metric", null=0.0)
        report.headline = _headline(report, fitted, self.margin)
        return report

    def _against_rbp_1(self, report: Report, exponents: Exponents) -> None:
        """Add the exponent of each RBP_k minus that of RBP_1."""
        ks = list(exponents.counts[0].ks)
        if 1 not in ks or len(ks) == 1:
            return
        s = exponents.family.s
        counts = [size_counts.select([1, *(k for k in ks if k > 1)]) for size_counts in exponents.counts]
        [law_of_rbp_1, *_] = laws(s, counts, neg_log_rbp)
        ratios = laws(s, counts, lambda sums: neg_log_rbp(sums)[..., 1:] / neg_log_rbp(sums)[..., :1])
        for k, ratio in zip(counts[0].ks[1:], ratios, strict=True):
            if ratio and law_of_rbp_1:
                keys = {**exponents.family.keys, "metric": rbp_name(k)}
                margin = self.margin * abs(law_of_rbp_1.alpha.value)
                report.add("against_rbp_1", ratio.alpha, **keys, null=0.0, margin=margin)

    def _datasets(self, report: Report, fitted: Sequence[Exponents]) -> None:
        """Add the differences of exponents between the datasets of each family, and the mean over the datasets."""
        for name in dict.fromkeys(exponents.family.name for exponents in fitted):
            same_family = [exponents for exponents in fitted if exponents.family.name == name]
            for one, other in combinations(same_family, 2):
                shared = [models for models in one.models if models in other.models]
                if len(shared) < MIN_SIZES:
                    continue
                other_laws = other.laws_through(shared)
                for metric, law in one.laws_through(shared).items():
                    if metric in other_laws:
                        against = other_laws[metric]
                        keys = {**one.family.keys, "metric": metric, "versus": other.family.dataset}
                        self._add_difference(report, "datasets", law.over(against).alpha, against, keys, len(shared))
            if len(same_family) < MIN_POOLED:
                continue
            shared = [models for models in same_family[0].models if all(models in each.models for each in same_family)]
            if len(shared) < MIN_SIZES:
                report.notes.append(
                    f"{name}: no mean over datasets, because they have fewer than {MIN_SIZES} sizes in common."
                )
                continue
            laws_by_dataset = [exponents.laws_through(shared) for exponents in same_family]
            for metric in laws_by_dataset[0]:
                if all(metric in by_metric for by_metric in laws_by_dataset):
                    mean = mean_over_datasets([by_metric[metric] for by_metric in laws_by_dataset])
                    _add_mean(report, "mean_over_datasets", mean, family=name, dataset="all", metric=metric)

    def _families(self, report: Report, fitted: Sequence[Exponents]) -> None:
        """Add the differences of exponents between the families on each dataset, and the mean over the families."""
        groups: list[list[Exponents]] = []  # in each group, families with comparable laws
        for exponents in fitted:
            matching = [group for group in groups if group[0].family.comparable_with(exponents.family)]
            if matching:
                matching[0].append(exponents)
            else:
                groups.append([exponents])
        for group in groups:
            independent = []
            for one, other in combinations(group, 2):
                paired = one.has_documents_of(other)
                if not paired:
                    independent.append(f"{one.family.name} and {other.family.name}")
                other_laws = other.laws
                for metric, law in one.laws.items():
                    if metric in other_laws:
                        against = other_laws[metric]
                        difference = difference_of_exponents(law, against) if paired else law.alpha - against.alpha
                        keys = {**one.family.keys, "metric": metric, "versus": other.family.name}
                        self._add_difference(report, "families", difference, against, keys, None)
            if independent:
                report.notes.append(
                    f"{group[0].family.dataset}: {listed(independent)} are not paired over documents: they scored "
                    "different ones or were imported without ranks."
                )
            if len(group) < MIN_POOLED:
                continue
            laws_by_family = [exponents.laws for exponents in group]
            paired = all(group[0].has_documents_of(other) for other in group[1:])
            for metric in laws_by_family[0]:
                if all(metric in by_metric for by_metric in laws_by_family):
                    metric_laws = [by_metric[metric] for by_metric in laws_by_family]
                    mean = mean_over_families(metric_laws)
                    if not paired:
                        mean = random_effects([law.alpha for law in metric_laws], Estimate(0.0))
                    dataset = group[0].family.dataset
                    _add_mean(report, "mean_over_families", mean, family="all", dataset=dataset, metric=metric)

    def _add_difference(
        self, report: Report, question: str, difference: Estimate, against: Law, keys: dict[str, Any], sizes: int | None
    ) -> None:
        margin = self.margin * abs(against.alpha.value)
        beside = {} if sizes is None else {"sizes": sizes}
        report.add(question, difference, **keys, null=0.0, margin=margin, beside=beside)

    def _pool(self, report: Report, fitted: Sequence[Exponents]) -> None:
        """Add each exponent with an error that uses the scatter of all laws of its metric."""
        for metric in dict.fromkeys(metric for exponents in fitted for metric in exponents.laws):
            with_law = [(exponents, exponents.laws[metric]) for exponents in fitted if metric in exponents.laws]
            if len(with_law) < 2:
                continue
            variance, df = pooled_scatter([law for _, law in with_law])
            for exponents, law in with_law:
                low, high = law.alpha.interval()
                beside = {"own_low": low, "own_high": high}
                beside |= {"scatter": float(np.sqrt(law.scatter)), "pooled_scatter": float(np.sqrt(variance))}
                report.add(
                    "pooled",
                    law.alpha_with_scatter(variance, df),
                    **exponents.family.keys,
                    metric=metric,
                    beside=beside,
                )


def _exponents(family: Family, counts: Sequence[DocumentCounts]) -> Exponents:
    """Return the models and counts of a family, at the k at which enough tokens have a rank above k."""
    model_of = dict(zip(family.rows["run_id"].astype(str), family.rows["model"].astype(str), strict=True))
    models = [tuple(sorted(model_of[run_id] for run_id in run_ids)) for run_ids in family.run_ids]
    ks = ks_with_enough_misses(counts)
    return Exponents(family, models, [size_counts.select(ks) for size_counts in counts])


def _add_mean(report: Report, question: str, mean: Mean | None, **keys: Any) -> None:
    if mean is None:
        return
    beside = {"prediction_low": mean.low, "prediction_high": mean.high, "tau": mean.tau}
    beside |= {"homogeneity": mean.homogeneity, "number": mean.number}
    report.add(question, mean.mean, beside=beside, **keys)


def _headline(report: Report, fitted: Sequence[Exponents], margin: float) -> str:
    """Say how often exponents differ: from RBP_1's, between datasets, and between families."""
    several = len({str(exponents.family.rows["family"].iloc[0]) for exponents in fitted}) > 1
    parts = []
    if "against_rbp_1" in report.questions:
        rows = report.frame("against_rbp_1")
        largest = rbp_name(max(rbp_ks(rows["metric"])))
        label = metric_label(largest)
        texts = {
            "above": f"{label}'s exponent is above RBP_1's",
            "below": f"{label}'s exponent is below RBP_1's",
            "same": f"{label}'s exponent is within {margin:.0%} of RBP_1's",
        }
        none = f"no difference of the exponents of {label} and RBP_1 was found"
        parts.append(verdict_clause(rows[rows["metric"] == largest], texts, noun="law", none=none))
    reported = [question for question in ("datasets", "families") if question in report.questions]
    ce_clauses = []
    for question in reported:
        rows = report.frame(question)
        sides = question if several or question == "datasets" else "runs of several kinds"  # such as checkpoints
        none = f"no difference between {sides} was found"
        texts = {"differs": f"{sides} differ"}
        ce_clauses.append(
            verdict_clause(rows[rows["metric"] == CE], texts, noun="pair", none=none, power=len(reported) == 1)
        )
    if any(ce_clauses):
        parts.append(f"CE's exponent: {'; '.join(filter(None, ce_clauses))}")
    if not any(parts) and ("against_rbp_1" in report.questions or reported):
        return "No difference of exponents was tested; the report's notes say why."
    return join_clauses(*parts)
