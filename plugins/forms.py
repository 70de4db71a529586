"""Test whether a law bends, bound the floor E of E + A S^-alpha, and fit a form of your own.

The bend is the coefficient of (ln S)^2 in a fit of ln y. A law bends upward if it flattens with size. Each law is
tested for itself, so that one of 20 straight laws is said to bend.

The interval of E contains the values of E at which ln(y - E) does not curve over ln S. Its upper end is the largest
floor that the data permit. It includes the noise of documents and the scatter of the models. E = 0 is excluded exactly
if the law bends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from pydantic import PositiveInt, field_validator

from rbptrack.analysis import (
    Analyzer,
    BadInput,
    Glossary,
    Report,
    Runs,
    Term,
    counted,
    format_number,
    join_clauses,
    listed,
    read_families,
)
from rbptrack.figures import intervals
from rbptrack.ranks import HEADLINE_KS, FloatArray, metric_label
from rbptrack.stats import (
    MIN_TESTED_SIZES,
    Law,
    bend_text,
    check_form,
    fit_floor,
    fit_form,
    ks_with_enough_misses,
    laws_by_metric,
    missing_interval_clause,
    power_law_aicc,
)

GLOSSARY: Glossary = {
    "bend": Term("coefficient of (ln S)^2 in a fit of ln y; above 0 the law bends upward", form="+.3g"),
    "p_of_bend": Term("p-value of a bend of 0, for this law alone", "p", ".3f"),
    "fit": "the outcome of the test at the 5% level; empty if no bend was found",
    "floor": Term("E of E + A S^-α with its interval: CE in nats, or -ln RBP_k", "E"),
    "largest_floor": Term("upper end of the interval of E, divided by y at the largest size", "largest floor", ".0%"),
    "alpha_above": Term("exponent of E + A S^-α", "α above E"),
    "aicc": Term("AICc of your form minus AICc of A S^-α; if below 0, AICc prefers your form", "ΔAICc", "+.1f"),
    "parameter": Term("a parameter of your form, with its profile interval", "value"),
    "name": Term("the parameter's name in your form"),
    "R2": Term("share of the variance of ln y that the form explains", "R²", ".4f"),
}


class Forms(Analyzer):
    """Whether laws bend, the largest floor that the data permit, and the fit of a form of your own."""

    k: tuple[PositiveInt, ...] = HEADLINE_KS
    """the k of RBP_k"""

    form: str = ""
    """your own form: an expression in S and D (training tokens), such as E+A*S**-alpha+B*D**-beta; every other name is
    a parameter
    """

    @field_validator("form")
    @classmethod
    def _check_form(cls, form: str) -> str:
        if form:
            check_form(form)
        return form

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        failed_fits: dict[str, list[str]] = {}  # by reason: the laws that the user's form was not fitted to
        fitted = 0
        reading = read_families(runs, self.k, min_sizes=MIN_TESTED_SIZES)
        for family, all_counts in reading:
            ks = ks_with_enough_misses(all_counts)
            d = family.column("training_tokens")
            by_metric = laws_by_metric(family.s, [counts.select(ks) for counts in all_counts])
            clause = missing_interval_clause(by_metric, all_counts)
            if clause:
                report.notes.append(f"{family}: {clause}.")
            for metric, law in by_metric.items():
                keys = {**family.keys, "metric": metric}
                bend = law.bend()
                report.add("bend", bend, **keys, beside={"p_of_bend": bend.p(), "fit": bend_text(law)})
                _add_floor(report, keys, law)
                if self.form:
                    try:
                        self._add_form(report, keys, law, d)
                        fitted += 1
                    except BadInput as error:
                        failed_fits.setdefault(str(error), []).append(f"{metric_label(metric)} of {family}")
        report.notes += reading.notes
        if failed_fits and not fitted:
            raise BadInput(next(iter(failed_fits)))
        report.notes += [f"Not fitted: {listed(cases)}. {reason}." for reason, cases in failed_fits.items()]
        if "bend" in report.questions:
            report.figures["bend"] = intervals(report.frame("bend"), x="bend", y="metric", null=0.0)
            report.headline = _headline(report)
        return report

    def _add_form(self, report: Report, keys: dict[str, Any], law: Law, d: FloatArray) -> None:
        """Add the parameters of the user's own form. Raises BadInput if it cannot be fitted to this law's points."""
        form = fit_form(self.form, law.s, law.y, d)
        beside = {"aicc": form.aicc - power_law_aicc(law.s, law.y), "R2": form.r2}
        for name, parameter in form.parameters.items():
            ends = (parameter.low, parameter.high) if law.alpha.has_interval else (np.nan, np.nan)
            report.add("parameter", parameter.value, **keys, ends=ends, beside=beside, name=name)


def _add_floor(report: Report, keys: dict[str, Any], law: Law) -> None:
    """Add E of E + A S^-alpha, with its interval and its share of y at the largest size, if an E is not rejected."""
    floor = fit_floor(law)
    if floor is not None and law.alpha.value > 0:
        beside = {"largest_floor": floor.high / law.y[-1], "alpha_above": floor.alpha}
        report.add("floor", floor.e, **keys, ends=(floor.low, floor.high), beside=beside)


def _headline(report: Report) -> str:
    """Return how many laws bend, and the largest floor that the data permit where no bend was found."""
    rows = report.frame("bend")
    tested = rows[rows["p_of_bend"].notna()]
    if tested.empty:
        return "Bends were not tested; the report's notes say why."
    clauses = []
    for direction in ("upward", "downward"):
        bent = tested[tested["fit"].str.contains(direction)]
        if len(bent):
            verb = "bends" if len(bent) == 1 else "bend"
            p = format_number(float(bent["p_of_bend"].max()), ".2g")
            clauses.append(f"{len(bent)} of {counted(len(tested), 'law')} {verb} {direction} (p at most {p})")
    if not clauses:
        p = format_number(float(tested["p_of_bend"].min()), ".2f")
        clauses.append(f"no bend was found in {counted(len(tested), 'law')} (smallest p = {p})")
    straight = tested.loc[tested["fit"] == "", ["family", "dataset", "metric"]]
    if "floor" in report.questions and len(straight):
        floors = pd.merge(straight, report.frame("floor"))
        if len(floors):
            share = format_number(min(float(floors["largest_floor"].max()), 1.0), ".0%")
            clauses.append(f"straight laws may have a floor of up to {share} of the value at the largest size")
    return join_clauses(*clauses)
