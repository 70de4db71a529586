"""Compare exponents of RBP_k and RBP_1, of datasets and of families, and average them over datasets and families.

An error that two exponents have in common cancels in their difference:

- RBP_k and RBP_1 share the models and the documents. The law of their ratio is fitted. Its exponent is the difference.
- Two datasets of one family share the models. The law of their ratio is fitted, too.
- Two families on one dataset share the documents. Each document influences both exponents. The error is computed from
  the differences of these influences.

Means are random-effects means, which allow the true exponents to differ. The interval of a mean (Hartung and Knapp) is
for the mean over all datasets or families like these. The prediction interval is for one more dataset or family.
Welch's test tests whether all exponents are equal.
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
    decision_clause,
    headline_metric,
    join_clauses,
    listed,
    range_text,
    read_families,
    verdict_clause,
)
from rbptrack.figures import intervals
from rbptrack.ranks import CE, HEADLINE_KS, DocumentCounts, metric_label, rbp_name
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
    missing_interval_clause,
    neg_log_rbp,
    random_effects,
)

GLOSSARY: Glossary = {
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
    "mean_against_rbp_1": Term("mean of against_rbp_1 over the laws", "mean Δα", "+.3g"),
    "versus": "the other dataset or family",
    "sizes": Term("number of sizes that both laws are fitted to", aside=True),
    "number": Term("number of exponents in the mean"),
    "tau": Term("standard deviation of the true exponents of datasets or families", "τ"),
    "prediction_low": Term("lower end of the 95% interval for one more dataset or family", "next: low"),
    "prediction_high": Term("upper end of the 95% interval for one more dataset or family", "next: high"),
    "homogeneity": Term(
        "p-value of the hypothesis that all exponents are equal (Welch's test for random-effects means); not adjusted",
        "p (all equal)",
        ".3f",
    ),
}
MIN_SIZES = 3
"""The smallest number of sizes of a law. Exponents of laws with fewer sizes are not compared."""


@dataclass(frozen=True)
class FamilyLaws:
    """The laws of one family on one dataset.

    Attributes:
        family: the family, with m sizes.
        counts: the counts of each size, m of them.

    """

    family: Family
    counts: list[DocumentCounts]

    @cached_property
    def models(self) -> list[list[str]]:
        """The names of the models of each size, m lists. A size has several models if they are seeds."""
        return [sorted(names) for names in self.family.by_size("model")]

    @cached_property
    def by_metric(self) -> dict[str, Law]:
        """The law of each metric through all sizes."""
        return laws_by_metric(self.family.s, self.counts)

    def laws_through(self, models: Sequence[list[str]]) -> dict[str, Law]:
        """Return the law of each metric through some sizes only. models: elements of `self.models`."""
        if list(models) == self.models:
            return self.by_metric
        rows = [self.models.index(names) for names in models]
        return laws_by_metric(self.family.s[rows], [self.counts[i] for i in rows])

    def has_documents_of(self, other: FamilyLaws) -> bool:
        """Return whether all sizes of this and another family were counted over the same documents or groups."""
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
    """the largest difference of exponents that counts as equal, as a share of the second exponent"""

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        ks = sorted({1, *self.ks})
        primary = headline_metric(map(rbp_name, self.ks))
        families = []
        reading = read_families(runs, ks)
        for family, counts in reading:
            if len(family.s) >= MIN_SIZES:
                usable_ks = ks_with_enough_misses(counts)
                families.append(FamilyLaws(family, [size_counts.select(usable_ks) for size_counts in counts]))
        report.notes += reading.notes
        for family_laws in families:
            clause = missing_interval_clause(family_laws.by_metric, family_laws.counts)
            if clause:
                report.notes.append(f"{family_laws.family}: {clause}.")
            self._compare_with_rbp_1(report, family_laws, headline_metric(map(rbp_name, ks[1:])))
        for name in dict.fromkeys(family_laws.family.name for family_laws in families):
            same_family = [family_laws for family_laws in families if family_laws.family.name == name]
            self._compare_datasets(report, same_family, primary)
            _average_over_datasets(report, same_family)
        for comparable in _comparable_groups(families):
            self._compare_families(report, comparable, primary)
            _average_over_families(report, comparable)
        report.add_means("against_rbp_1")
        if not report.questions:
            report.notes.append(
                f"There are no two exponents to compare. An exponent needs a family of at least {MIN_SIZES} sizes."
            )
            return report
        _draw(report)
        report.headline = _headline(report, families, self.margin)
        return report

    def _compare_with_rbp_1(self, report: Report, family_laws: FamilyLaws, primary: str) -> None:
        """Add the exponent of each RBP_k minus that of RBP_1. `primary` is the metric that the headline names."""
        ks = list(family_laws.counts[0].ks)
        if 1 not in ks or len(ks) == 1:
            return
        s = family_laws.family.s
        counts = [size_counts.select([1, *(k for k in ks if k > 1)]) for size_counts in family_laws.counts]
        [law_of_rbp_1, *_] = laws(s, counts, neg_log_rbp)
        ratios = laws(s, counts, lambda sums: neg_log_rbp(sums)[..., 1:] / neg_log_rbp(sums)[..., :1])
        for k, ratio in zip(counts[0].ks[1:], ratios, strict=True):
            if ratio and law_of_rbp_1:
                margin = self.margin * abs(law_of_rbp_1.alpha.value)
                keys = {**family_laws.family.keys, "metric": rbp_name(k), "primary": rbp_name(k) == primary}
                report.add("against_rbp_1", ratio.alpha, **keys, null=0.0, margin=margin)

    def _compare_datasets(self, report: Report, datasets: Sequence[FamilyLaws], primary: str) -> None:
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

    def _compare_families(self, report: Report, families: Sequence[FamilyLaws], primary: str) -> None:
        """Add the differences of exponents between comparable families on one dataset."""
        unpaired = []
        for first, second in combinations(families, 2):
            paired = first.has_documents_of(second)
            if not paired:
                unpaired.append(f"{first.family.name} and {second.family.name}")
            for metric, law in first.by_metric.items():
                if metric in second.by_metric:
                    second_law = second.by_metric[metric]
                    difference = difference_of_exponents(law, second_law) if paired else law.alpha - second_law.alpha
                    margin = self.margin * abs(second_law.alpha.value)
                    keys = {**first.family.keys, "metric": metric, "versus": second.family.name}
                    keys |= {"primary": metric == primary, "models": f"{first.family.name} − {second.family.name}"}
                    report.add("families", difference, **keys, null=0.0, margin=margin)
        if unpaired:
            report.notes.append(
                f"{families[0].family.dataset}: {listed(unpaired)} are compared as independent, because they scored "
                "different documents or were imported without ranks."
            )


def _comparable_groups(families: Sequence[FamilyLaws]) -> list[list[FamilyLaws]]:
    """Divide families into groups. The families of a group have one dataset, and their laws are comparable."""
    groups: list[list[FamilyLaws]] = []
    for family_laws in families:
        matching = [group for group in groups if group[0].family.comparable_with(family_laws.family)]
        if matching:
            matching[0].append(family_laws)
        else:
            groups.append([family_laws])
    return groups


def _laws_by_shared_metric(laws_of_members: Sequence[dict[str, Law]]) -> dict[str, list[Law]]:
    """Return the laws of all members by metric, for the metrics that every member has."""
    shared = {}
    for metric in laws_of_members[0]:
        if all(metric in by_metric for by_metric in laws_of_members):
            shared[metric] = [by_metric[metric] for by_metric in laws_of_members]
    return shared


def _average_over_datasets(report: Report, datasets: Sequence[FamilyLaws]) -> None:
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
        _add_mean(report, "mean_over_datasets", mean, family=name, dataset="all", metric=metric)


def _average_over_families(report: Report, families: Sequence[FamilyLaws]) -> None:
    """Add the mean exponents over comparable families on one dataset."""
    if len(families) < MIN_POOLED:
        return
    dataset = families[0].family.dataset
    paired = all(families[0].has_documents_of(other) for other in families[1:])
    for metric, metric_laws in _laws_by_shared_metric([family_laws.by_metric for family_laws in families]).items():
        if paired:
            mean = mean_over_families(metric_laws)
        else:
            mean = random_effects([law.alpha for law in metric_laws], Estimate(0.0))
        _add_mean(report, "mean_over_families", mean, family="all", dataset=dataset, metric=metric)


def _add_mean(report: Report, question: str, mean: Mean | None, **keys: Any) -> None:
    if mean is None:
        return
    beside = {"prediction_low": mean.low, "prediction_high": mean.high, "tau": mean.tau}
    beside |= {"homogeneity": mean.homogeneity, "number": mean.number}
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


def _headline(report: Report, families: Sequence[FamilyLaws], margin: float) -> str:
    """Say how the exponents of RBP_k and RBP_1, of datasets and of families differ, for the headline's metric."""
    several_families = len({str(family_laws.family.rows["family"].iloc[0]) for family_laws in families}) > 1
    parts = []
    if "against_rbp_1" in report.questions:
        metric = headline_metric(report.frame("against_rbp_1")["metric"])
        label = metric_label(metric)
        texts = {
            "above": f"{label}'s exponent is above RBP_1's",
            "below": f"{label}'s exponent is below RBP_1's",
            "same": f"{label}'s exponent is within {margin:.0%} of RBP_1's",
            "undecided": f"whether the exponents of {label} and RBP_1 differ is undecided",
        }
        parts.append(decision_clause(report, "against_rbp_1", metric, texts))
    for question in ("datasets", "families"):
        if question not in report.questions:
            continue
        one_family = question == "families" and not several_families
        compared = "runs of several kinds" if one_family else question  # such as two precisions of one family
        rows = report.frame(question)
        metric = headline_metric(rows["metric"]) or CE
        label = metric_label(metric)
        rows = rows[rows["metric"] == metric].rename(columns={question: "Δα"})
        texts = {
            "differs": f"the {compared} differ in the exponent of {label}",
            "same": f"the {compared} have equal exponents of {label} to within {margin:.0%}",
        }
        undecided = f"whether the {compared} differ in the exponent of {label} is undecided"
        if len(rows) == 1:
            parts.append(decision_clause(report, question, metric, texts | {"undecided": undecided}))
        elif len(rows):
            none = f"{undecided}, Δα = {range_text(rows['Δα'], '+.3f')}"
            parts.append(verdict_clause(rows, texts, noun="pair", none=none, span="Δα"))
    if report.questions and not any(parts):
        return "No difference of exponents was tested; the report's notes say why."
    return join_clauses(*parts)
