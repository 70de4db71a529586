"""Compare families on one dataset by level, equivalent size and exponent; compare datasets, and RBP_k with RBP_1.

Two families on the same documents are compared in three ways. The level is the difference of CE or -ln RBP_k at sizes
that both families have, or at the nearest sizes. It is a statement about these models: its interval includes the choice
of documents, and not other models. The equivalent size is the size at which one law has the value that the other law
has at its largest size. Its interval is Fieller's, and includes documents and the scatter of models. It is unbounded if
the first family may not improve with size. The third way is the difference of the exponents.

An error that two exponents have in common cancels in their difference:

- RBP_k and RBP_1 share the models and the documents. The law of their ratio is fitted. Its exponent is the difference.
- Two datasets of one family share the models. The law of their ratio is fitted, too.
- Two families on one dataset share the documents. Each document influences both exponents. The error is computed from
  the differences of these influences.

Means are random-effects means, which allow the true exponents to differ. The interval of a mean (Hartung and Knapp) is
for the mean over all datasets or families like these. The prediction interval is for one more dataset or family. The
test of whether all exponents are equal uses the largest deviation of an exponent from the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveInt

from rbptrack.analysis import (
    Analyzer,
    Glossary,
    Report,
    Runs,
    Term,
    headline_metric,
    join_clauses,
    listed,
    read_families,
)
from rbptrack.figures import intervals
from rbptrack.ranks import HEADLINE_KS, rbp_name
from rbptrack.stats import (
    MIN_POOLED,
    MIN_SIZES,
    Estimate,
    Law,
    Mean,
    Row,
    combination,
    crossing,
    homogeneity,
    ks_with_enough_misses,
    mean_over_datasets,
    mean_over_families,
    middle_of_common_values,
    missing_interval_clause,
    random_effects,
    size_ratio,
)

from .families import ComparedFamily, better_first, comparable_groups, with_ratios
from .headline import clause_of_families, headline

GLOSSARY: Glossary = {
    "level": Term(
        "CE (nats) or -ln RBP_k of this family minus that of the other family (versus); lower is better; the interval "
        "includes the choice of documents, and not that of models",
        "level",
        "+.3f",
    ),
    "at": Term("the size; both sizes if they differ; or the mean over all sizes that were compared"),
    "compared": Term("the number of compared sizes of a mean", aside=True),
    "size_ratio": Term(
        "size at which the law of this family has the value that the law of the other family (versus) has at its "
        "largest size, divided by that size; this family is the one whose law has the better value at its largest "
        "size; the interval includes documents and the scatter of models; it is unbounded (∞) if this family may not "
        "improve with size",
        "size ratio",
    ),
    "middle_ratio": Term(
        "size ratio in the middle of the values that both families have, instead of at the largest size",
        "size ratio in the middle",
    ),
    "crossing": Term("size at which the laws of both families cross", "crossing"),
    "largest": Term("the largest model of the other family (versus)", "largest model"),
    "S_equal": Term("the size of this family that has the value of this model by the laws", "equal S"),
    "measured": Term("whether the equal size lies between the sizes of this family that were measured", "within sizes"),
    "against_rbp_1": Term(
        "exponent of -ln RBP_k minus exponent of -ln RBP_1, which is the exponent of their ratio", "Δα", "+.3g"
    ),
    "datasets": Term(
        "exponent on this dataset minus exponent on the other dataset (versus), with the same models",
        "Δα of datasets",
        "+.3g",
    ),
    "families": Term(
        "exponent of this family minus exponent of the other family (versus), on the same dataset",
        "Δα of families",
        "+.3g",
    ),
    "mean_over_datasets": Term("mean exponent of the family over its datasets", "mean α"),
    "mean_over_families": Term("mean exponent on the dataset over its families", "mean α"),
    "mean_against_rbp_1": Term("mean of Δα over the laws", "mean Δα", "+.3g"),
    "versus": "the other dataset or family",
    "sizes": Term("number of sizes that both laws are fitted to", aside=True),
    "tau": Term("standard deviation of the true exponents of datasets or families", "τ"),
    "prediction_low": Term("lower end of the 95% interval for one more dataset or family", "next: low"),
    "prediction_high": Term("upper end of the 95% interval for one more dataset or family", "next: high"),
}


class Contrasts(Analyzer):
    """Differences of exponents between RBP_k and RBP_1, between datasets and between families, and mean exponents."""

    k: tuple[PositiveInt, ...] = HEADLINE_KS
    """the k of RBP_k"""

    margin: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """the largest difference of exponents that counts as equal, as a share of the second exponent"""

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        ks = sorted({1, *self.k})
        all_families = []
        reading = read_families(runs, ks)
        for family, counts in reading:
            usable_ks = ks_with_enough_misses(counts)
            all_families.append(ComparedFamily(family, [size_counts.select(usable_ks) for size_counts in counts]))
        report.notes += reading.notes
        counted_ks = {k for each in all_families for counts in each.counts for k in counts.ks}
        primary = headline_metric(rbp_name(k) for k in self.k if k in counted_ks)
        families = with_ratios([family_laws for family_laws in all_families if family_laws.has_laws])
        for comparable in comparable_groups([each for each in all_families if not each.has_laws] + families):
            for first, second in combinations(sorted(comparable, key=lambda each: each.family.name), 2):
                _compare_levels(report, first, second, primary)
                _compare_sizes(report, first, second, primary)
        for family_laws in families:
            clause = missing_interval_clause(family_laws.laws, family_laws.counts)
            if clause:
                report.notes.append(f"{family_laws.family}: {clause}.")
            self._compare_with_rbp_1(report, family_laws, headline_metric(map(rbp_name, ks[1:])))
        for name in dict.fromkeys(family_laws.family.name for family_laws in families):
            same_family = [family_laws for family_laws in families if family_laws.family.name == name]
            self._compare_datasets(report, same_family, primary)
            _average_over_datasets(report, same_family)
        for comparable in comparable_groups(families):
            self._compare_families(report, comparable, primary)
            _average_over_families(report, comparable)
        report.add_means("against_rbp_1")
        if not report.questions:
            report.notes.append(
                f"There is nothing to compare. A law needs a family of at least {MIN_SIZES} sizes, and a comparison of "
                "families needs two families on the same texts."
            )
            return report
        _draw(report)
        between = clause_of_families(report, families, primary)
        report.opening = join_clauses(between)
        report.headline = join_clauses(between, headline(report, families, self.margin))
        return report

    def _compare_with_rbp_1(self, report: Report, family_laws: ComparedFamily, primary: str) -> None:
        """Add the exponent of each RBP_k minus that of RBP_1. `primary` is the metric that the headline names."""
        for metric, ratio in family_laws.ratios.items():
            margin = self.margin * abs(family_laws.laws[rbp_name(1)].alpha.value)
            keys = {**family_laws.family.keys, "metric": metric, "primary": metric == primary}
            report.add("against_rbp_1", ratio.alpha, **keys, null=0.0, margin=margin, own=ratio.own_alpha)

    def _compare_datasets(self, report: Report, datasets: Sequence[ComparedFamily], primary: str) -> None:
        """Add the differences of exponents between the datasets of one family."""
        for first, second in combinations(datasets, 2):
            shared = [models for models in first.models if models in second.models]
            if len(shared) < MIN_SIZES:
                continue
            second_laws = second.laws_through(shared)
            for metric, law in first.laws_through(shared).items():
                if metric in second_laws:
                    difference = law.over(second_laws[metric]).alpha
                    margin = self.margin * abs(second_laws[metric].alpha.value)
                    keys = {**first.family.keys, "metric": metric, "versus": second.family.dataset}
                    keys |= {"primary": metric == primary, "beside": {"sizes": len(shared)}}
                    documents = f"{first.family.dataset} − {second.family.dataset}"
                    report.add("datasets", difference, **keys, null=0.0, margin=margin, documents=documents)

    def _compare_families(self, report: Report, families: Sequence[ComparedFamily], primary: str) -> None:
        """Add the differences of exponents between comparable families on one dataset."""
        unpaired = []
        for first, second in combinations(families, 2):
            paired = first.has_documents_of(second)
            if not paired:
                unpaired.append(f"{first.family.name} and {second.family.name}")
            for metric, law in first.laws.items():
                if metric in second.laws:
                    second_law = second.laws[metric]
                    difference = first.minus(second)(law.alpha, second_law.alpha)
                    margin = self.margin * abs(second_law.alpha.value)
                    keys = {**first.keys_beside(second), "metric": metric, "primary": metric == primary}
                    report.add("families", difference, **keys, null=0.0, margin=margin)
        if unpaired:
            report.notes.append(
                f"{families[0].family.dataset}: {listed(unpaired)} are compared as independent, because they scored "
                "different documents or were imported without ranks."
            )


def _level_differences(first: ComparedFamily, second: ComparedFamily, metric: str) -> list[tuple[str, Estimate]]:
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


def _mean_level(differences: Sequence[tuple[str, Estimate]]) -> Estimate:
    """Return the mean of differences of levels. Its interval includes documents, and not the choice of models."""
    rows = [Row(difference, "documents", "models") for _, difference in differences]
    return combination(rows, np.full(len(rows), 1 / len(rows)))


def _compare_levels(report: Report, first: ComparedFamily, second: ComparedFamily, primary: str) -> None:
    """Add the differences of CE and -ln RBP_k at near sizes of two families, and their means."""
    for metric in first.levels[0]:
        keys = {**first.keys_beside(second), "metric": metric, "null": 0.0}
        differences = _level_differences(first, second, metric)
        for label, difference in differences:
            report.add("level", difference, **keys, at=label)
        if len(differences) > 1:
            mean = _mean_level(differences)
            at, number = f"mean of {len(differences)} sizes", {"compared": len(differences)}
            report.add("level", mean, **keys, primary=metric == primary, at=at, beside=number)


def _compare_sizes(report: Report, first: ComparedFamily, second: ComparedFamily, primary: str) -> None:
    """Add the sizes at which the laws of two families have equal values."""
    for metric in first.laws:
        if metric in second.laws:
            better, other = better_first(first, second, metric)
            _compare_sizes_of_metric(report, better, other, metric, is_primary=metric == primary)


def _compare_sizes_of_metric(
    report: Report, better: ComparedFamily, other: ComparedFamily, metric: str, *, is_primary: bool
) -> None:
    law, reference = better.laws[metric], other.laws[metric]
    minus = better.minus(other)
    keys = {**better.keys_beside(other), "metric": metric}
    of_test: dict[str, Any] = {"primary": is_primary, "null": 0.0, "show": np.exp}
    ratio = size_ratio(law, reference, float(reference.s[-1]), minus)
    if ratio is not None:
        equal = float(reference.s[-1] * np.exp(ratio.ln_ratio.value))
        measured = "yes" if law.spans(equal) else "no"
        beside = {"largest": other.family.models[-1], "S_equal": equal, "measured": measured}
        ends = (ratio.low, ratio.high)
        report.add("size_ratio", ratio.ln_ratio, **keys, **of_test, ends=ends, beside=beside)
    middle = middle_of_common_values(law, reference)
    ratio = size_ratio(law, reference, middle, minus) if middle > 0 else None
    if ratio is not None:
        report.add("middle_ratio", ratio.ln_ratio, **keys, **of_test, ends=(ratio.low, ratio.high))
    place = crossing(law, reference, minus)
    if np.isfinite(place.high):
        report.add("crossing", place.value, **keys, ends=(place.low, place.high))


def _laws_by_shared_metric(laws_of_members: Sequence[dict[str, Law]]) -> dict[str, list[Law]]:
    """Return the laws of all members by metric, for the metrics that every member has."""
    shared = {}
    for metric in laws_of_members[0]:
        if all(metric in by_metric for by_metric in laws_of_members):
            shared[metric] = [by_metric[metric] for by_metric in laws_of_members]
    return shared


def _average_over_datasets(report: Report, datasets: Sequence[ComparedFamily]) -> None:
    if len(datasets) < MIN_POOLED:
        return
    name = datasets[0].family.name
    shared = [models for models in datasets[0].models if all(models in each.models for each in datasets)]
    if len(shared) < MIN_SIZES:
        report.notes.append(f"{name}: no mean over datasets, because they have fewer than {MIN_SIZES} sizes in common.")
        return
    by_metric = _laws_by_shared_metric([family_laws.laws_through(shared) for family_laws in datasets])
    for metric, metric_laws in by_metric.items():
        mean = mean_over_datasets(metric_laws)
        rows = [Row(law.alpha, each.family.dataset, name) for law, each in zip(metric_laws, datasets, strict=True)]
        _add_mean(report, "mean_over_datasets", mean, rows, family=name, dataset="all", metric=metric)


def _average_over_families(report: Report, families: Sequence[ComparedFamily]) -> None:
    """Add the mean exponents over comparable families on one dataset."""
    if len(families) < MIN_POOLED:
        return
    dataset = families[0].family.dataset
    paired = all(families[0].has_documents_of(other) for other in families[1:])
    for metric, metric_laws in _laws_by_shared_metric([family_laws.laws for family_laws in families]).items():
        if paired:
            mean = mean_over_families(metric_laws)
        else:
            mean = random_effects([law.alpha for law in metric_laws], Estimate(0.0))
        rows = []
        for law, each in zip(metric_laws, families, strict=True):
            name = each.family.name
            rows.append(Row(law.alpha, dataset if paired else f"{dataset} of {name}", name))
        _add_mean(report, "mean_over_families", mean, rows, family="all", dataset=dataset, metric=metric)


def _add_mean(report: Report, question: str, mean: Mean | None, rows: Sequence[Row], **keys: Any) -> None:
    """Add a mean of exponents. rows: the exponents, with the names of their documents and models."""
    if mean is None:
        return
    beside = {"prediction_low": mean.low, "prediction_high": mean.high, "tau": mean.tau}
    beside |= {"homogeneity": homogeneity(rows), "number": mean.number}
    report.add(question, mean.mean, beside=beside, **keys)


def _draw(report: Report) -> None:
    title = "difference of exponents"
    for question, compared, panel in (("families", "family", "dataset"), ("datasets", "dataset", "family")):
        if question in report.questions:
            rows = report.frame(question).rename(columns={question: title})
            rows["pair"] = rows[compared] + " − " + rows["versus"]
            report.figures[question] = intervals(rows, x=title, y="metric", colour="pair", facet=panel, null=0.0)
    if "against_rbp_1" in report.questions:
        rows = report.frame("against_rbp_1").rename(columns={"against_rbp_1": title})
        report.figures["against_rbp_1"] = intervals(rows, x=title, y="metric", null=0.0)
