"""Fit the law in size to -ln RBP_k = A S^-alpha and to cross-entropy, per family and dataset.

The analyzer draws figures 3 to 6 of arXiv 2510.20387. This paper finds the exponents of cross-entropy and RBP_1 "nearly
identical". Comparing the two intervals does not test this, because both exponents are measured with the same models and
documents. The analyzer fits the law of the ratio -ln RBP_k / CE instead. Its exponent is the difference of the
exponents. They count as equal if the whole interval of the difference lies between -m and m. Here m is `margin` times
CE's exponent.

Every law of at least 4 sizes is tested for a bend: the coefficient of (ln S)^2 in a fit of ln y. The column `fit` and
the caution in the headline use this test. A forecast is given by every form of law that the data do not reject:
A S^-alpha, E + A S^-alpha and, with 8 sizes or more, a law with two exponents. Its interval contains the intervals of
all these forms. Whether a law breaks beyond the largest size cannot be tested.

The held-out error is the error at the largest size of the law through all smaller sizes. The headline has a caution if
the smaller sizes mispredict the largest one.

Intervals assume that models scatter alike and independently at all sizes. If neighbouring sizes deviate from the law
together, with a correlation of 0.7, and this scatter outweighs the noise of documents, intervals of alpha are too
narrow (docs/explanation/validity.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import Field, PositiveInt

from rbptrack.analysis import S_COLUMNS, Analyzer, Report, Runs, headline_metric, listed, read_families
from rbptrack.figures import intervals
from rbptrack.ranks import CE, HEADLINE_KS, DocumentCounts, log_grid, metric_label, parse_rbp_name, rbp_ks, rbp_name
from rbptrack.stats import (
    MIN_MISSES,
    MIN_SIZES,
    MIN_TESTED_SIZES,
    Law,
    ce_and_rbp,
    estimates,
    fit,
    forecast,
    independent_difference,
    ks_with_enough_misses,
    laws,
    laws_by_metric,
    missing_interval_clause,
    neg_log_rbp_over_ce,
    paired_difference,
    share_scatter,
    y_with_intervals,
)

from .glossary import GLOSSARY, glossary_of_values
from .headline import headline, headline_without_laws
from .tables import LEADING_COLUMNS, FittedFamily, draw_curves, draw_laws, table_of_laws, table_of_points


class PowerLaw(Analyzer):
    """The laws in size of cross-entropy and RBP_k, and the differences of their exponents."""

    leads: ClassVar[bool] = True

    k: tuple[PositiveInt, ...] = HEADLINE_KS
    """the k of the tables"""

    margin: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """the largest difference of exponents that counts as equal, as a share of CE's exponent"""

    unit: Literal["non_embedding_params", "total_params"] = "non_embedding_params"
    """the size S: non_embedding_params, or total_params (with embeddings and output head)"""

    at: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] = ()
    """sizes S to predict every metric at, such as 7e10"""

    def analyze(self, runs: Runs) -> Report:
        report = Report({**glossary_of_values(self.k), **GLOSSARY})
        all_families, report.notes = self._read(runs)
        all_families = self._share_scatter(report, all_families)
        with_laws = [family_laws for family_laws in all_families if family_laws.laws]
        metric = headline_metric(name for name in self._metrics if any(name in each.laws for each in with_laws))
        is_fitted = any(law.sizes >= MIN_SIZES for each in with_laws for law in each.laws.values())
        if not is_fitted:
            self._add_values(report, all_families)
        for family_laws in with_laws:
            self._add_exponents(report, family_laws, metric)
        report.add_means("alpha")
        report.add_means("delta")
        for family_laws in with_laws:
            self._add_improvements(report, family_laws, metric)
        report.tables["points"] = table_of_points(all_families)
        report.tables["laws"] = table_of_laws(report, with_laws)
        if is_fitted:
            report.figures["laws"] = draw_laws(report.tables["points"], report.tables["laws"], parse_rbp_name(metric))
            report.leading_columns = LEADING_COLUMNS
        if "held_out" in report.questions:
            title = "held-out error at the largest size"
            held_out = report.frame("held_out").rename(columns={"held_out": title})
            report.figures["held_out"] = intervals(held_out, x=title, y="metric", null=0.0)
        if with_laws:
            report.headline = headline(report, with_laws, metric, self.margin)
        else:
            report.headline = headline_without_laws(report)
        return report

    @property
    def _metrics(self) -> list[str]:
        return [CE, *map(rbp_name, self.k)]

    def _read(self, runs: Runs) -> tuple[list[FittedFamily], list[str]]:
        """Return the counts and laws of every family at every k of the grid, and notes.

        Families of one size are included without laws.
        """
        vocab_size = runs.frame["vocab_size"].max()
        largest = 1 if pd.isna(vocab_size) else int(vocab_size)
        ks = sorted({*log_grid(largest).tolist(), *self.k, *rbp_ks(runs.frame.columns)})
        all_families = []
        notes = []
        reading = read_families(runs, ks)
        for family, all_counts in reading:
            fitted_ks = ks_with_enough_misses(all_counts)
            counts = [size_counts.select(fitted_ks) for size_counts in all_counts]
            s = family.column(self.unit)
            left_out = [k for k in self.k if k not in fitted_ks]
            if left_out:
                why = f"above |V|, not logged, or fewer than {MIN_MISSES} tokens of the best model have a rank above k"
                notes.append(f"{family}: RBP_k is left out at k = {listed(list(map(str, left_out)))}: {why}.")
            fitted = FittedFamily(family, s, all_counts, counts)
            if not np.isfinite(s).all():
                notes.append(f"{family}: {self.unit} is not known for every model, so there is no law.")
            elif len(np.unique(s)) < 2:
                notes.append(f"{family}: no law, because there is only one size.")
            else:
                found = laws(s, counts, neg_log_rbp_over_ce) if fitted_ks else []
                ratios = {rbp_name(k): ratio for k, ratio in zip(fitted_ks, found, strict=True) if ratio}
                fitted = replace(fitted, laws=laws_by_metric(s, counts), ratios=ratios)
                notes += [f"{family}: {line}." for line in self._missing_clauses(fitted.laws, counts)]
            all_families.append(fitted)
        return all_families, reading.notes + notes

    def _share_scatter(self, report: Report, families: Sequence[FittedFamily]) -> list[FittedFamily]:
        """Return families whose laws of few sizes share the scatter of other families, and note that they do."""
        names = [family_laws.family.label for family_laws in families]
        shared = share_scatter([family_laws.laws for family_laws in families], names)
        ratios = share_scatter([family_laws.ratios for family_laws in families], names)
        few = []
        for family_laws, by_metric in zip(families, shared, strict=True):
            if any(law.shared is not None for law in by_metric.values()):
                few.append(str(family_laws.family))
        if few:
            report.notes.append(
                f"{listed(few)}: with so few sizes, intervals of α and Δα also use the scatter of the other families, "
                "and assume that all families scatter about alike. The columns own low and own high have the ends "
                "without this assumption."
            )
        return [
            replace(family_laws, laws=by_metric, ratios=ratios_by_metric)
            for family_laws, by_metric, ratios_by_metric in zip(families, shared, ratios, strict=True)
        ]

    def _missing_clauses(self, laws: dict[str, Law], counts: Sequence[DocumentCounts]) -> Iterator[str]:
        """Yield clauses that say which metrics have no law, or which laws have no interval, and why."""
        without_law = [metric_label(rbp_name(k)) for k in self.k if k in counts[0].ks and rbp_name(k) not in laws]
        if without_law:
            yield f"no law of {listed(without_law)}, which is 0 or 1 at some size"
        clause = missing_interval_clause({name: laws[name] for name in self._metrics if name in laws}, counts)
        if clause:
            yield clause

    def _add_exponents(self, report: Report, family_laws: FittedFamily, headline: str) -> None:
        """Add the results of each law: alpha, the difference from CE's alpha, the held-out error and forecasts.

        `headline` is the metric that the headline names.
        """
        s_other = family_laws.family.column(S_COLUMNS[1 - S_COLUMNS.index(self.unit)])
        for metric in self._metrics:
            law = family_laws.laws.get(metric)
            if law is None:
                continue
            keys = {**family_laws.family.keys, "metric": metric, "primary": metric == headline}
            beside = {"A": law.a, "R2": law.r2, "largest_deviation": law.largest_deviation, "sizes": law.sizes}
            if np.isfinite(s_other).all():
                name = "alpha_incl" if self.unit == S_COLUMNS[0] else "alpha_excl"
                ascending = np.argsort(family_laws.s, kind="stable")  # the order of the law's values
                beside[name] = fit(s_other[ascending], law.y).alpha.value
            report.add("alpha", law.alpha, **keys, null=0.0, beside=beside | _own_ends("", law), own=law.own_alpha)
            ce = family_laws.laws.get(CE)
            ratio = family_laws.ratios.get(metric)
            if ratio and ce:
                margin = self.margin * abs(ce.alpha.value)
                own_ends = _own_ends("delta_", ratio)
                report.add("delta", ratio.alpha, **keys, null=0.0, margin=margin, beside=own_ends, own=ratio.own_alpha)
            if law.sizes >= 4:
                report.add("held_out", law.held_out(), **keys, null=0.0, show=np.expm1)
            self._add_forecasts(report, family_laws, metric, law)

    def _add_improvements(self, report: Report, family_laws: FittedFamily, headline: str) -> None:
        """Add CE and RBP_k of the largest model minus that of the smallest one."""
        largest, smallest = family_laws.counts[-1], family_laws.counts[0]
        labels = family_laws.family.labels
        keys = {**family_laws.family.keys, "from_size": labels[0], "to_size": labels[-1]}
        minus = paired_difference if largest.has_rows_of(smallest) else independent_difference
        metrics = [CE, *map(rbp_name, largest.ks)]
        levels = zip(metrics, estimates(largest, ce_and_rbp), estimates(smallest, ce_and_rbp), strict=True)
        for metric, after, before in levels:
            if metric not in self._metrics or metric not in family_laws.laws:
                continue
            beside = {"before": before.value, "after": after.value}
            change = minus(after, before)
            report.add(
                "improvement", change, **keys, metric=metric, primary=metric == headline, null=0.0, beside=beside
            )

    def _add_forecasts(self, report: Report, family_laws: FittedFamily, metric: str, law: Law) -> None:
        """Add the forecasts of one metric at the sizes of the option `at`."""
        for s in self.at:
            predicted = forecast(law, s)
            if predicted is None:
                report.notes.append(
                    f"{family_laws.family}: no forecast of {metric_label(metric)} at S = {s:.3g}, because every "
                    f"form of law is rejected, or the law has no interval, or fewer than {MIN_TESTED_SIZES} sizes."
                )
                continue
            show = math.exp if metric == CE else _rbp_of_ln_y
            ends = [(show(predicted.low), predicted.low_form), (show(predicted.high), predicted.high_form)]
            (low, low_form), (high, high_form) = sorted(ends)
            beside = {"beyond": s / law.s[-1], "low_form": low_form, "high_form": high_form}
            keys = {**family_laws.family.keys, "metric": metric}
            report.add("forecast", show(predicted.value), **keys, ends=(low, high), beside=beside, S=s)

    def _add_values(self, report: Report, families: Sequence[FittedFamily]) -> None:
        """Add CE and RBP_k of every model and a figure of RBP_k against k, because there are no laws."""
        for each in families:
            for model, counts in zip(each.family.models, each.all_counts, strict=True):
                shown = counts.select([k for k in self.k if k in counts.ks])
                y, low, high = y_with_intervals(shown)
                report.add(CE, y[0], **each.family.keys, ends=(low[0], high[0]), model=model)
                for k, *values in zip(shown.ks, y[1:], high[1:], low[1:], strict=True):
                    value, lowest, highest = np.exp(-np.array(values))
                    report.add(rbp_name(k), value, **each.family.keys, ends=(lowest, highest), model=model)
        if any(counts.ks for each in families for counts in each.all_counts):
            report.figures["curves"] = draw_curves(families)


def _own_ends(prefix: str, law: Law) -> dict[str, float]:
    """Return the ends of alpha by the law's own scatter as columns; empty if its scatter is not shared."""
    if law.shared is None:
        return {}
    low, high = law.own_alpha.interval()
    return {f"{prefix}own_low": low, f"{prefix}own_high": high}


def _rbp_of_ln_y(ln_y: float) -> float:
    return float(np.exp(-np.exp(ln_y)))
