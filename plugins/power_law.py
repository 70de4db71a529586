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
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import Field, PositiveInt

from rbptrack.analysis import (
    S_COLUMNS,
    Analyzer,
    Family,
    Glossary,
    Report,
    Runs,
    Term,
    deciding_row,
    decision_clause,
    estimate_text,
    headline_metric,
    join_clauses,
    listed,
    p_text,
    range_text,
    read_families,
    verdict_clause,
)
from rbptrack.figures import explorer, facets, intervals
from rbptrack.ranks import (
    CE,
    HEADLINE_KS,
    DocumentCounts,
    FloatArray,
    log_grid,
    metric_label,
    parse_rbp_name,
    rbp_ks,
    rbp_name,
)
from rbptrack.stats import (
    MIN_MISSES,
    MIN_SIZES,
    MIN_TESTED_SIZES,
    Estimate,
    Law,
    Row,
    bend_text,
    ce_and_rbp,
    estimates,
    fit,
    forecast,
    ks_with_enough_misses,
    laws,
    laws_by_metric,
    missing_interval_clause,
    neg_log_rbp_over_ce,
    paired_difference,
    share_scatter,
    simultaneous_level,
    y_with_intervals,
)

MIN_R2 = 0.9
"""A law that explains a smaller share of the variance of ln y is marked as doubtful."""

FEW_SIZES = 3
"""If a law has at most this many sizes, the headline says first how much the metric improved."""

FEW_TOKENS = 100
"""A law is marked as doubtful if fewer tokens of the best model have a rank above k.

With 100 such tokens, chance alone gives -ln RBP_k an error of 10%.
"""

GLOSSARY: Glossary = {
    "alpha": Term(
        "exponent of the law in size y = A S^-α; y is cross-entropy in nats or -ln RBP_k; the interval assumes that "
        "models scatter alike and independently around the law",
        title="α",
    ),
    "own_low": Term("lower end of alpha by the scatter of its own law alone, if the interval uses other laws, too"),
    "own_high": Term("upper end of alpha by the scatter of its own law alone"),
    "delta_own_low": Term("lower end of delta by the scatter of its own law alone", "own low (Δα)"),
    "delta_own_high": Term("upper end of delta by the scatter of its own law alone", "own high (Δα)"),
    "improvement": Term(
        "CE or RBP_k of the largest model minus that of the smallest one; the interval includes the choice of "
        "documents, and not that of models",
        "largest minus smallest",
        "+.3f",
    ),
    "from_size": Term("the smallest size", "from"),
    "to_size": Term("the largest size", "to"),
    "before": Term("CE or RBP_k of the smallest model", "smallest", ".3f"),
    "after": Term("CE or RBP_k of the largest model", "largest", ".3f"),
    "A": Term("the law's factor, y at S = 1", title="A"),
    "largest_deviation": Term(
        "the largest abs(measured / law - 1) over the sizes", "largest deviation", ".1%", aside=True
    ),
    "sizes": Term("the number of sizes m", aside=True),
    "alpha_incl": Term("alpha if S includes embeddings and output head", "α (S incl. embeddings)", aside=True),
    "alpha_excl": Term("alpha if S excludes embeddings and output head", "α (S without embeddings)", aside=True),
    "delta": Term("exponent of -ln RBP_k minus that of CE: the exponent of their ratio", "Δα vs. CE", "+.3g"),
    "mean_alpha": Term("mean of α over the laws; no statement about other laws like them", "mean α"),
    "mean_delta": Term("mean of Δα over the laws; no statement about other laws like them", "mean Δα", "+.3g"),
    "held_out": Term(
        "measured / predicted - 1 at the largest size, by the law of all smaller ones", "held-out error", "+.1%"
    ),
    "forecast": (
        "CE or RBP_k of one more model of size S, by the simplest form of law that is not rejected; the interval "
        "contains those of all forms that are not rejected"
    ),
    "low_form": Term("the form of law that has the lower end", "lower end by"),
    "high_form": Term("the form of law that has the upper end", "upper end by"),
    "beyond": Term("S / largest measured size", form=".3g"),
    "p_of_alpha": Term("p-value of alpha = 0, for this k alone and not adjusted", "p (α)", ".3g"),
    "verdict_alpha": Term(
        "whether α differs from 0, by the p that is adjusted for all tested laws and k", "verdict (α)"
    ),
    "verdict_delta": Term(
        "whether Δα differs from 0, by the p that is adjusted for all tested laws and k", "verdict (Δα)"
    ),
    "bend": Term("coefficient of (ln S)^2 in a fit of ln y; above 0 the law bends upward", form="+.4f", aside=True),
    "tokens_above_k": Term("tokens of the best model with a rank above k", "tokens above k", ",.0f"),
    "doubt": Term(
        "reasons to doubt the law: it bends (p is that of this law alone, so that one of 20 straight laws is said to "
        f"bend); the smaller sizes mispredict the largest; R² is below {MIN_R2}; or fewer than {FEW_TOKENS} tokens of "
        "the best model have a rank above k",
        "fit",
    ),
    "alpha_low": "lower end of alpha",
    "alpha_high": "upper end of alpha",
    "band_low": "lower end of the band of alpha, which holds for all k of the law together",
    "band_high": "upper end of the band of alpha",
    "delta_low": "lower end of delta",
    "delta_high": "upper end of delta",
    "held_out_low": "lower end of the held-out error",
    "held_out_high": "upper end of the held-out error",
    "bend_low": "lower end of the bend",
    "bend_high": "upper end of the bend",
    "k": "the k of RBP_k; 0 for CE",
    "y": "CE in nats, or -ln RBP_k",
    "value": "CE in nats, or RBP_k",
    "S0": "the smallest size",
    "y0": "y of the law at S0",
    "S1": "the largest size",
    "y1": "y of the law at S1",
}


def _glossary_of_values(ks: Sequence[int]) -> Glossary:
    rbp = {rbp_name(k): Term(f"share of tokens with rank at most {k}", f"RBP_{k}", ".4f") for k in ks}
    return {CE: Term("cross-entropy, nats per token", "CE", ".4f"), **rbp}


@dataclass(frozen=True)
class _Fitted:
    """The counts and laws of one family on one dataset.

    Attributes:
        family: the family.
        s: the sizes S in the unit of the analyzer's option `unit`, (m,).
        all_counts: the counts of each size at every k of the grid, m of them.
        counts: the same at the k that laws are fitted to.
        laws: the laws by metric: ce, and rbp_<k> for each k. Empty if there is only one size.
        ratios: the laws of -ln RBP_k / CE by metric.

    """

    family: Family
    s: FloatArray
    all_counts: Sequence[DocumentCounts]
    counts: list[DocumentCounts]
    laws: dict[str, Law] = field(default_factory=dict)
    ratios: dict[str, Law] = field(default_factory=dict)


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
        report = Report({**_glossary_of_values(self.k), **GLOSSARY})
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
        law_rows: list[dict[str, object]] = []
        for family_laws in all_families:
            law_rows += _law_rows(family_laws)
        report.tables["points"] = _points(all_families)
        report.tables["laws"] = _with_verdicts(report, pd.DataFrame(law_rows))
        if is_fitted:
            report.figures["laws"] = _figure(report.tables["points"], report.tables["laws"], parse_rbp_name(metric))
            report.leading_columns = (
                "alpha",
                "verdict_alpha",
                "delta",
                "verdict_delta",
                "R2",
                "held_out",
                "bend",
                "doubt",
            )
        if "held_out" in report.questions:
            title = "held-out error at the largest size"
            held_out = report.frame("held_out").rename(columns={"held_out": title})
            report.figures["held_out"] = intervals(held_out, x=title, y="metric", null=0.0)
        report.headline = (
            self._headline(report, with_laws, metric) if with_laws else self._headline_without_laws(report)
        )
        return report

    @property
    def _metrics(self) -> list[str]:
        return [CE, *map(rbp_name, self.k)]

    def _read(self, runs: Runs) -> tuple[list[_Fitted], list[str]]:
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
            fitted = _Fitted(family, s, all_counts, counts)
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

    def _share_scatter(self, report: Report, families: Sequence[_Fitted]) -> list[_Fitted]:
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

    def _add_exponents(self, report: Report, family_laws: _Fitted, headline: str) -> None:
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

    def _add_improvements(self, report: Report, family_laws: _Fitted, headline: str) -> None:
        """Add CE and RBP_k of the largest model minus that of the smallest one."""
        largest, smallest = family_laws.counts[-1], family_laws.counts[0]
        labels = family_laws.family.labels
        keys = {**family_laws.family.keys, "from_size": labels[0], "to_size": labels[-1]}
        has_same_documents = np.array_equal(largest.document, smallest.document) and largest.grouped == smallest.grouped
        metrics = [CE, *map(rbp_name, largest.ks)]
        levels = zip(metrics, estimates(largest, ce_and_rbp), estimates(smallest, ce_and_rbp), strict=True)
        for metric, after, before in levels:
            if metric not in self._metrics or metric not in family_laws.laws:
                continue
            beside = {"before": before.value, "after": after.value}
            change = paired_difference(after, before) if has_same_documents else after - before
            report.add(
                "improvement", change, **keys, metric=metric, primary=metric == headline, null=0.0, beside=beside
            )

    def _add_forecasts(self, report: Report, family_laws: _Fitted, metric: str, law: Law) -> None:
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

    def _add_values(self, report: Report, families: Sequence[_Fitted]) -> None:
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
            report.figures["curves"] = _draw_curves(families)

    def _headline_without_laws(self, report: Report) -> str:
        """Say what values were measured, and that there are too few sizes for a law."""
        metric = headline_metric(report.questions)
        if metric not in report.questions:
            return f"A law in size needs at least {MIN_SIZES} sizes of one family. The notes say what was left out."
        values = report.frame(metric)[metric]
        over = f" over {len(values)} measurements" if len(values) > 1 else ""
        text = f"{metric_label(metric)} is {range_text(values, '.3f')}{over}."
        text += f" A law in size needs at least {MIN_SIZES} sizes of one family."
        if report.frame(metric)["family"].nunique() >= MIN_SIZES:
            text += " To give models one family, measure with model.family=NAME again, or use rbptrack label."
        return text

    def _headline(self, report: Report, families: Sequence[_Fitted], metric: str) -> str:
        """Say whether RBP_k improves with size, and whether faster than CE.

        A caution follows if laws bend or mispredict their largest size.
        """
        if "alpha" not in report.questions:
            return ""
        label = metric_label(metric)
        alpha = report.frame("alpha")
        improves = {
            "above": f"{label} improves with size",
            "below": f"{label} gets worse with size",
            "undecided": f"whether {label} improves with size is undecided",
        }
        first = decision_clause(report, "alpha", metric, improves)
        verdict = deciding_row(report, "alpha", metric).get("verdict", "")
        few_sizes = any(
            family_laws.laws[metric].sizes <= FEW_SIZES for family_laws in families if metric in family_laws.laws
        )
        change = _improvement_clause(report, metric) if few_sizes or verdict in ("", "undecided") else ""
        if not first:
            values = range_text(alpha[alpha["metric"] == metric]["alpha"])
            return join_clauses(change, f"{label}: α = {values}, without an interval; the report's notes say why")
        first = "; ".join(filter(None, [change, first]))
        caution = _caution_clause(metric, families)
        worse = [name for name in self._metrics if (alpha[alpha["metric"] == name]["verdict"] == "below").any()]
        if worse and metric not in worse:
            falls = alpha[alpha["metric"] == worse[-1]]
            words = {"below": f"{metric_label(worse[-1])} gets worse with size"}
            return join_clauses(first, verdict_clause(falls, words, noun="law", none=""), caution)
        if verdict != "above":
            return join_clauses(first, caution)
        against_ce = {
            "above": "faster than cross-entropy",
            "below": "more slowly than cross-entropy",
            "same": f"as fast as cross-entropy to within {self.margin:.0%}",
            "undecided": "whether faster than cross-entropy is undecided",
        }
        return join_clauses(first, decision_clause(report, "delta", metric, against_ce), caution)


def _improvement_clause(report: Report, metric: str) -> str:
    """Say how much a metric changed from the smallest to the largest model."""
    rows = report.frame("improvement")
    rows = rows[rows["metric"] == metric]
    label = metric_label(metric)
    if len(rows) > 1:
        texts = {"above": f"{label} of the largest model is above that of the smallest one"}
        texts["below"] = f"{label} of the largest model is below that of the smallest one"
        none = f"{label} changes by {range_text(rows['improvement'], '+.3f')} from the smallest to the largest model"
        return verdict_clause(
            rows.rename(columns={"improvement": "difference"}), texts, noun="case", none=none, span="difference"
        )
    row = rows.iloc[0]
    change = estimate_text(row["improvement"], row["low"], row["high"], "+.3f")
    ends = f"from {row['before']:.3f} at {row['from_size']} to {row['after']:.3f} at {row['to_size']}"
    return ", ".join(filter(None, [f"{label} changes {ends}, by {change}", p_text(row["p_adjusted"])]))


def _own_ends(prefix: str, law: Law) -> dict[str, float]:
    """Return the ends of alpha by the law's own scatter as columns; empty if its scatter is not shared."""
    if law.shared is None:
        return {}
    low, high = law.own_alpha.interval()
    return {f"{prefix}own_low": low, f"{prefix}own_high": high}


def _draw_curves(families: Sequence[_Fitted]) -> Any:
    """Draw RBP_k of each model against k, with a panel for each dataset."""
    frames = []
    for each in families:
        for model, counts in zip(each.family.models, each.all_counts, strict=True):
            rbp = counts.hits.sum(axis=0) / counts.tokens.sum()
            frames.append(pd.DataFrame(each.family.keys | {"model": model, "k": counts.ks, "RBP_k": rbp}))
    curves = pd.concat(frames, ignore_index=True)
    if curves.duplicated(["model", "dataset", "k"]).any():  # models of one name that differ for example in precision
        curves["model"] += " (" + curves["family"] + ")"
    return facets(curves.drop(columns="family"), x="k", y="RBP_k", colour="model")


def _caution_clause(metric: str, families: Sequence[_Fitted]) -> str:
    """Return a clause about the laws of a metric that bend or mispredict their largest size; empty if none does."""
    num_laws = 0
    doubtful = []
    for family_laws in families:
        law = family_laws.laws.get(metric)
        if law is None:
            continue
        num_laws += 1
        faults = [*filter(None, [bend_text(law)]), *(["mispredicts its largest size"] if _mispredicts(law) else [])]
        if faults:
            doubtful.append(f"of {family_laws.family} {listed(faults)}")
    label = metric_label(metric)
    if len(doubtful) > 1:
        return f"caution: {len(doubtful)} of {num_laws} laws of {label} bend or mispredict their largest size"
    return f"caution: the law of {label} {doubtful[0]}" if doubtful else ""


def _mispredicts(law: Law) -> bool:
    """Whether the held-out error at the largest size differs significantly from 0."""
    if law.sizes < 4:
        return False
    low, high = law.held_out().interval()  # takes less time than a p-value
    return low > 0 or high < 0


def _rbp_of_ln_y(ln_y: float) -> float:
    return float(np.exp(-np.exp(ln_y)))


def _figure(points: pd.DataFrame, laws: pd.DataFrame, k: int | None) -> Any:
    """Draw the explorer at k. If there are no values of RBP_k, draw cross-entropy against size instead."""
    points = points[np.isfinite(points["S"])]
    if k is not None:
        return explorer(points, laws.rename(columns={"alpha_low": "low", "alpha_high": "high"}), k)
    title = "cross-entropy, nats"
    return facets(points.rename(columns={"y": title}), x="S", y=title, log="xy")


def _with_verdicts(report: Report, laws: pd.DataFrame) -> pd.DataFrame:
    """Return the table of laws with the columns verdict_alpha and verdict_delta. They say if a k was not tested."""
    if laws.empty:
        return laws
    names = np.where(laws["metric"] == CE, CE, "rbp_" + laws["k"].astype(str))
    cases = list(zip(laws["family"], laws["dataset"], names, strict=True))
    tested = {name for question in report.questions for name in report.frame(question)["metric"]}
    columns = {}
    for question in ("alpha", "delta"):
        if question not in report.questions or report.frame(question)["p"].isna().all():
            continue
        rows = report.frame(question)[["family", "dataset", "metric"]].itertuples(index=False, name=None)
        texts = dict(zip(rows, report.verdict_texts(question), strict=True))
        untested = ["" if name in tested else "not tested at this k" for name in names]
        columns[f"verdict_{question}"] = [texts.get(*pair) for pair in zip(cases, untested, strict=True)]
    return laws.assign(**columns)


def _law_rows(family_laws: _Fitted) -> list[dict[str, object]]:
    """Return a row for each law of a family. The explorer draws these rows."""
    rows = []
    fewest_above_k = _fewest_tokens_above_k(family_laws)
    level = _level_of_band(family_laws)
    for metric, law in family_laws.laws.items():
        y0, y1 = law.ends
        line = {"S0": law.s[0], "y0": y0, "S1": law.s[-1], "y1": y1}
        numbers = {"A": law.a, "R2": law.r2, "largest_deviation": law.largest_deviation}
        numbers |= _with_ends("alpha", law.alpha) | {"p_of_alpha": law.alpha.p()} | _with_ends("bend", law.bend())
        numbers["band_low"], numbers["band_high"] = law.alpha.interval(level)
        held_out = law.held_out() if law.sizes >= 4 else Estimate(np.nan, df=np.nan)
        numbers |= {name: np.expm1(value) for name, value in _with_ends("held_out", held_out).items()}
        if ratio := family_laws.ratios.get(metric):
            numbers |= _with_ends("delta", ratio.alpha)
        numbers["tokens_above_k"] = fewest_above_k.get(metric, np.nan)
        doubts = _doubts(law, numbers["tokens_above_k"])
        keys = {**family_laws.family.keys, "metric": CE if metric == CE else "rbp", "k": parse_rbp_name(metric) or 0}
        rows.append(keys | numbers | {"doubt": "; ".join(doubts)} | line)
    return rows


def _level_of_band(family_laws: _Fitted) -> float:
    """Return the level of single intervals that makes the intervals of alpha hold for all k together at 95%."""
    keys = family_laws.family.keys
    exponents = [law.alpha for metric, law in family_laws.laws.items() if metric != CE and law.alpha.has_interval]
    return simultaneous_level([Row(alpha, keys["dataset"], keys["family"]) for alpha in exponents])


def _with_ends(name: str, estimate: Estimate) -> dict[str, float]:
    """Return a number and the ends of its interval as columns, such as bend, bend_low and bend_high."""
    low, high = estimate.interval()
    return {name: estimate.value, f"{name}_low": low, f"{name}_high": high}


def _fewest_tokens_above_k(family_laws: _Fitted) -> dict[str, float]:
    """Return how many tokens of the best model have a rank above k, by metric; empty if it is unknown."""
    if family_laws.family.rows["num_tokens"].isna().any():
        return {}
    above_k = [counts.tokens.sum() - counts.hits.sum(axis=0) for counts in family_laws.counts]
    metrics = map(rbp_name, family_laws.counts[0].ks)
    return dict(zip(metrics, np.min(above_k, axis=0).tolist(), strict=True))


def _doubts(law: Law, tokens_above_k: float) -> Iterator[str]:
    """Yield reasons to doubt a law. tokens_above_k: the tokens of the best model with a rank above k."""
    if bend := bend_text(law):
        yield bend
    if _mispredicts(law):
        yield "off at its largest size"
    if law.r2 < MIN_R2:
        yield "models scatter"
    if tokens_above_k < FEW_TOKENS:
        yield "few tokens above k"


def _points(families: Sequence[_Fitted]) -> pd.DataFrame:
    """Return a table with a row for each model and metric of the families. The explorer draws these rows."""
    frames = []
    for family_laws in families:
        for model, s, counts in zip(family_laws.family.models, family_laws.s, family_laws.counts, strict=True):
            y, low, high = y_with_intervals(counts)
            names = family_laws.family.keys | {"model": model, "S": s}
            names |= {"metric": [CE, *["rbp"] * len(counts.ks)], "k": [0, *counts.ks]}
            values = {"value": np.append(y[0], np.exp(-y[1:])), "y": y, "low": low, "high": high}
            frames.append(pd.DataFrame(names | values)[np.isfinite(y) & (y > 0)])
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
