"""Compare A S^-alpha, E + A S^-alpha and a form of your own by their predictions for the largest sizes.

Each form is fitted without the largest 1, 2 and 3 sizes. The report compares the errors of the forms at these sizes.
By chance, E + A S^-alpha predicts them better than A S^-alpha in 9 to 20% of simulated laws that have no floor. The
report also contains AICc. With 6 sizes, AICc prefers E + A S^-alpha only if its sum of squared residuals is below 0.7%
of that of A S^-alpha. The interval of E is a profile interval, which includes only the scatter of models. Its upper end
is the largest floor that the data permit.

The bend is the coefficient of (ln S)^2 in a fit of ln y. The test of the bend may miss floors: in simulation, a floor
of 30% of y at the largest of 6 to 12 sizes was found in 0 to 2% of the families.

Huber's estimate of alpha gives less weight to a model that is far from the law. If it differs much from alpha, a single
model decides the law.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from pydantic import PositiveInt, field_validator

from rbptrack.analysis import (
    Analyzer,
    BadInput,
    Glossary,
    Report,
    Runs,
    Term,
    counted,
    join_clauses,
    listed,
    read_families,
    verdict_clause,
)
from rbptrack.figures import facets
from rbptrack.ranks import HEADLINE_KS, FloatArray, metric_label
from rbptrack.stats import (
    MIN_SIZES,
    FormFit,
    Law,
    check_form,
    fit,
    fit_floor,
    fit_form,
    huber_alpha,
    ks_with_enough_misses,
    laws_by_metric,
    missing_interval_clause,
    power_law_aicc,
)

GLOSSARY: Glossary = {
    "alpha": Term("exponent of A S^-α", "α"),
    "huber": Term("alpha by Huber's method, which gives less weight to models far from the law", "α by Huber"),
    "bend": Term("coefficient of (ln S)^2 in a fit of ln y; if above 0, the law flattens with size", form="+.3g"),
    "floor": Term("E of E + A S^-α with its profile interval: CE in nats, or -ln RBP_k", "E"),
    "largest_floor": Term("upper end of the interval of E, divided by y at the largest size", "largest floor", ".0%"),
    "alpha_above": Term("exponent of E + A S^-α", "α above E"),
    "aicc": Term("AICc of the form minus AICc of A S^-α; if below 0, AICc prefers the form", "ΔAICc", "+.1f"),
    "prediction": Term(
        "error of A S^-α: root mean square of measured / predicted - 1 at the sizes left out", "A S^-α", ".1%"
    ),
    "with_floor": Term("error of E + A S^-α at the sizes left out", "E + A S^-α", ".1%"),
    "your_form": Term("error of your form at the sizes left out", "your form", ".1%"),
    "left_out": Term("number of largest sizes that were left out of the fit"),
    "parameter": Term("a parameter of your form, with its profile interval", "value"),
    "name": Term("the parameter's name in your form"),
    "R2": Term("share of the variance of ln y that the form explains", "R²", ".4f"),
}
MIN_GAIN = 1e-3
"""The form with a floor counts as better only if its error is smaller by more than this share.

If E is 0, both forms have the same predictions, and their errors differ by rounding only.
"""

MAX_LEFT_OUT = 3  # the largest number of sizes that are left out


class Forms(Analyzer):
    """Power laws with and without a floor, and a form of your own, compared by how they predict the largest sizes."""

    ks: tuple[PositiveInt, ...] = HEADLINE_KS
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
        reading = read_families(runs, self.ks, min_sizes=4)
        for family, all_counts in reading:
            ks = ks_with_enough_misses(all_counts)
            d = family.column("training_tokens")
            by_metric = laws_by_metric(family.s, [counts.select(ks) for counts in all_counts])
            clause = missing_interval_clause(by_metric, all_counts)
            if clause:
                report.notes.append(f"{family}: {clause}.")
            for metric, law in by_metric.items():
                keys = {**family.keys, "metric": metric}
                report.add("alpha", law.alpha, **keys, beside={"huber": huber_alpha(law.s, law.y), "R2": law.r2})
                if law.sizes >= 5:
                    report.add("bend", law.bend(), **keys, null=0.0)
                if law.sizes >= MIN_SIZES:
                    self._add_floor(report, keys, law)
                if self.form:
                    try:
                        self._add_form(report, keys, law, d)
                        fitted += 1
                    except BadInput as error:
                        failed_fits.setdefault(str(error), []).append(f"{metric_label(metric)} of {family}")
                for left_out in range(1, 1 + min(MAX_LEFT_OUT, law.sizes - 3)):
                    errors = prediction_errors(law, left_out, self.form, d)
                    report.add("prediction", errors.pop("prediction"), **keys, beside=errors, left_out=left_out)
        report.notes += reading.notes
        if failed_fits and not fitted:
            raise BadInput(next(iter(failed_fits)))
        report.notes += [f"Not fitted: {listed(cases)}. {reason}." for reason, cases in failed_fits.items()]
        if "prediction" not in report.questions:
            return report
        _draw(report)
        report.headline = _headline(report)
        return report

    def _add_floor(self, report: Report, keys: dict[str, Any], law: Law) -> None:
        """Add E of E + A S^-alpha, with its interval and its share of y at the largest size."""
        try:
            form = fit_floor(law.s, law.y)
        except BadInput:  # y rises with size
            return
        e = form.parameters["E"]
        ends = (e.low, e.high) if law.alpha.has_interval else (np.nan, np.nan)
        beside = {
            "largest_floor": ends[1] / law.y[-1],
            "alpha_above": form.parameters["alpha"].value,
            "aicc": form.aicc - power_law_aicc(law.s, law.y),
        }
        report.add("floor", e.value, **keys, ends=ends, beside=beside)

    def _add_form(self, report: Report, keys: dict[str, Any], law: Law, d: FloatArray) -> None:
        """Add the parameters of the user's own form. Raises BadInput if it cannot be fitted to this law's points."""
        form = fit_form(self.form, law.s, law.y, d)
        beside = {"aicc": form.aicc - power_law_aicc(law.s, law.y), "R2": form.r2}
        for name, parameter in form.parameters.items():
            ends = (parameter.low, parameter.high) if law.alpha.has_interval else (np.nan, np.nan)
            report.add("parameter", parameter.value, **keys, ends=ends, beside=beside, name=name)


def prediction_errors(law: Law, left_out: int, form: str, d: FloatArray) -> dict[str, float]:
    """Compute the errors of every form at the largest sizes. The forms are fitted without these sizes.

    Args:
        law: a law of m sizes. The forms are fitted to its sizes and values.
        left_out: the number of the largest sizes.
        form: the user's own form; empty if there is none.
        d: the training tokens of each size, (m,), for the user's form.

    Returns:
        The error of A S^-alpha as `prediction`, that of E + A S^-alpha as `with_floor`, and that of the user's form as
        `your_form`. NaN if a form cannot be fitted to the other sizes.

    """
    fitted_sizes = slice(None, -left_out)
    predicted_sizes = slice(-left_out, None)
    s, y = law.s[fitted_sizes], law.y[fitted_sizes]
    ln_y = np.log(law.y[predicted_sizes])
    power_law = fit(s, y)
    ln_ratios = ln_y - power_law.ln_a.value + power_law.alpha.value * np.log(law.s[predicted_sizes])
    errors = {"prediction": _root_mean_square_error(ln_ratios), "with_floor": np.nan}
    fits: dict[str, Callable[[], FormFit]] = {}
    if len(s) >= 4:
        fits["with_floor"] = partial(fit_floor, s, y, with_interval=False)
    if form:
        errors["your_form"] = np.nan
        fits["your_form"] = partial(fit_form, form, s, y, d[fitted_sizes], with_intervals=False)
    for name, fit_to_sizes in fits.items():
        with suppress(BadInput):  # the form cannot be fitted
            ln_ratios = ln_y - np.log(fit_to_sizes().curve(law.s[predicted_sizes], d[predicted_sizes]))
            errors[name] = _root_mean_square_error(ln_ratios)
    return errors


def _root_mean_square_error(ln_ratios: FloatArray) -> float:
    """Return the root mean square of measured / predicted - 1, from ln(measured / predicted), (sizes,)."""
    return float(np.sqrt(np.mean(np.expm1(ln_ratios) ** 2)))


def _draw(report: Report) -> None:
    """Draw the errors of all forms against the number of sizes left out."""
    rows = report.frame("prediction")
    names = {"prediction": "A S^-α", "with_floor": "E + A S^-α", "your_form": "your form"}
    columns = [name for name in names if name in rows]
    error = "error at the sizes left out"
    errors = rows.melt(["family", "dataset", "metric", "left_out"], columns, "form", error).dropna()
    errors["form"] = errors["form"].map(names)
    errors["panel"] = errors["family"] + " on " + errors["dataset"] + ": " + errors["metric"].map(metric_label)
    errors = errors.rename(columns={"left_out": "sizes left out"})
    report.figures["prediction"] = facets(
        errors, x="sizes left out", y=error, colour="form", facet="panel", log="", null=0.0
    )


def _headline(report: Report) -> str:
    """Return how often the form with a floor predicts better, and how often the law bends."""
    rows = report.frame("prediction").dropna(subset=["with_floor"])
    comparison = ""
    if len(rows):
        errors = rows.groupby(["family", "dataset", "metric"])[["prediction", "with_floor"]].mean()
        errors = errors.round(12)  # the errors of exact laws are rounding errors
        times = int((errors["with_floor"] < (1 - MIN_GAIN) * errors["prediction"]).sum())
        laws = counted(len(errors), "law")
        comparison = f"E + A S^-α predicts left-out sizes better than A S^-α in {times} of {laws} (a count, not a test)"
    if "bend" not in report.questions:
        return join_clauses(comparison or "forms are not compared, because E + A S^-α and a bend need at least 5 sizes")
    texts = {"above": "the law flattens", "below": "the law steepens"}
    bend_clause = verdict_clause(report.frame("bend"), texts, noun="law", none="no bend was found")
    return join_clauses(comparison, bend_clause)
