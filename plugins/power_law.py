"""Fit the law in size to -ln RBP_k = A S^-alpha and to cross-entropy, per family and dataset.

The figures are 3 to 6 of arXiv 2510.20387, which finds the exponents of cross-entropy and RBP_1 "nearly identical". Two
intervals cannot test this, because both exponents share models and documents. The law of the ratio of the two values
can: its exponent is the difference. The exponents count as equal if its interval lies within `margin` of CE's exponent.

The held-out error is that of the largest size, predicted by all smaller ones. Its interval, as a forecast's, assumes
that models scatter alike at all sizes, and no data can reveal a break beyond the sizes measured. The headline has a
caution if the smaller sizes mispredict the largest, or if E of E + A S^-alpha is above 0 (from 6 sizes). The analyzer
`forms` says more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import Field, PositiveInt

from rbptrack.analysis import (
    UNITS,
    Analyzer,
    BadInput,
    Family,
    Glossary,
    Report,
    Runs,
    Term,
    listed,
    read_families,
    sentence,
    spanned,
    verdicts,
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
    Estimate,
    Law,
    ce_and_missed,
    first_smallest,
    fit,
    fit_floor,
    half_widths,
    influences,
    ks_with_enough_misses,
    laws,
    laws_by_metric,
    missed_over_ce,
    why_no_interval,
)

MIN_R2 = 0.9
"""A law that explains less of the variance of ln y is called in doubt."""

FEW_MISSES = 100
"""Below so many misses of the best model, its -ln RBP_k has an error of 10% by chance alone."""

GLOSSARY: Glossary = {
    "alpha": Term("exponent of the law in size y = A S^-α; y is cross-entropy in nats or -ln RBP_k", title="α"),
    "A": Term("the law's factor, y at S = 1", title="A"),
    "R2": Term("share of the variance of ln y that the law explains; near 1 whatever the form", "R²", ".4f"),
    "misses": Term("the largest abs(measured / law - 1) over the sizes", "largest miss", ".1%", aside=True),
    "sizes": Term("the number of sizes m", aside=True),
    "alpha_incl": Term("alpha if S includes embeddings and output head", "α (S incl. embeddings)", aside=True),
    "alpha_excl": Term("alpha if S excludes embeddings and output head", "α (S without embeddings)", aside=True),
    "delta": Term("exponent of -ln RBP_k minus that of CE: the exponent of their ratio", "Δα vs. CE", "+.3g"),
    "held_out": Term(
        "measured / predicted - 1 at the largest size, by the law of all smaller ones", "held-out error", "+.1%"
    ),
    "forecast": "CE or RBP_k that the law gives one more model of size S",
    "beyond": Term("S over the largest size measured", form=".3g"),
    "bend": Term("square term of ln y over ln S; above 0 the law flattens", form="+.4f", aside=True),
    "missed": Term("tokens that the best model does not rank among its first k", "misses", ",.0f"),
    "doubt": Term(
        f"what speaks against the law: residuals with a pattern (the interval of the bend excludes 0; at the k of the "
        f"tables, also if that of E in E + A S^-α does), a largest size that the smaller ones mispredict, an R² below "
        f"{MIN_R2}, or fewer than {FEW_MISSES} misses",
        "fit",
    ),
    "delta_low": "lower end of delta",
    "delta_high": "upper end of delta",
    "held_out_low": "lower end of the held-out error",
    "held_out_high": "upper end of the held-out error",
    "bend_low": "lower end of the bend",
    "bend_high": "upper end of the bend",
    "k": "of RBP_k; 0 for CE",
    "y": "CE in nats, or -ln RBP_k",
    "value": "CE in nats, or RBP_k",
    "S0": "the smallest size",
    "y0": "the law there",
    "S1": "the largest size",
    "y1": "the law there",
}


@dataclass(frozen=True)
class FamilyLaws:
    """What was read of one family on one dataset.

    Attributes:
        family: the family.
        s: its sizes in the unit asked for, (m,).
        s_other: in the other unit, (m,).
        counts: of each size, m of them.
        laws: by metric, ce and rbp_<k>, each k of the grid; empty with one size.
        ratios: by metric, the laws of -ln RBP_k over CE; None if the metric has no such law.
        with_floor: the metrics of the tables for which the interval of E in E + A S^-alpha lies above 0.

    """

    family: Family
    s: FloatArray
    s_other: FloatArray
    counts: list[DocumentCounts]
    laws: dict[str, Law]
    ratios: dict[str, Law | None]
    with_floor: frozenset[str] = frozenset()


class PowerLaw(Analyzer):
    """The law in size of cross-entropy and RBP_k, and whether their exponents differ."""

    leads: ClassVar[bool] = True

    ks: tuple[PositiveInt, ...] = HEADLINE_KS
    """the k of the tables"""

    margin: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """two exponents count as equal if they differ by less than this share of the second exponent"""

    unit: Literal["non_embedding_params", "total_params"] = "non_embedding_params"
    """what S is, non_embedding_params or total_params (with embeddings and output head)"""

    at: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] = ()
    """sizes S to predict every metric at, such as 7e10"""

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        all_families, report.notes = self._read(runs)
        with_laws = [family_laws for family_laws in all_families if family_laws.laws]
        for family_laws in with_laws:
            self._add_exponents(report, family_laws)
        points: list[dict[str, object]] = []
        law_rows: list[dict[str, object]] = []
        for family_laws in all_families:
            points += _point_rows(family_laws)
            law_rows += _law_rows(family_laws)
        report.tables["points"] = pd.DataFrame(points)
        report.tables["laws"] = pd.DataFrame(law_rows)
        if law_rows:
            report.figures["laws"] = _figure(report.tables["points"], report.tables["laws"])
        if "held_out" in report.questions:
            title = "held-out error at the largest size"
            held_out = report.frame("held_out").rename(columns={"held_out": title})
            report.figures["held_out"] = intervals(held_out, x=title, y="metric", null=0.0)
        report.headline = self._headline(report, with_laws)
        return report

    @property
    def _metrics(self) -> list[str]:
        return [CE, *map(rbp_name, self.ks)]

    def _read(self, runs: Runs) -> tuple[list[FamilyLaws], list[str]]:
        """The laws of every family at every k of the grid, and notes; families of one size come without laws."""
        vocab_size = runs.frame["vocab_size"].max()
        largest = 1 if pd.isna(vocab_size) else int(vocab_size)
        ks = sorted({*log_grid(largest).tolist(), *self.ks, *rbp_ks(runs.frame.columns)})
        other = UNITS[1 - UNITS.index(self.unit)]
        all_families = []
        notes = []
        reading = read_families(runs, ks)
        for family, all_counts in reading:
            fitted_ks = ks_with_enough_misses(all_counts)
            counts = [of_size.select(fitted_ks) for of_size in all_counts]
            s = family.column(self.unit)
            left_out = [k for k in self.ks if k not in fitted_ks]
            if left_out:
                why = f"beyond |V|, not logged, or missed by fewer than {MIN_MISSES} tokens at the best model"
                notes.append(f"{family}: RBP at k = {listed(list(map(str, left_out)))} is left out: {why}.")
            if not np.isfinite(s).all():
                notes.append(f"{family}: {self.unit} is not known for every model, so there is no law.")
                continue
            if len(np.unique(s)) < 2:
                notes.append(f"{family}: one size has no law.")
                all_families.append(FamilyLaws(family, s, s, counts, {}, {}))
                continue
            by_metric = laws_by_metric(s, counts)
            notes += [f"{family}: {line}." for line in self._missing(by_metric, counts)]
            ratios: dict[str, Law | None] = {}
            if fitted_ks:
                ratios = dict(zip(map(rbp_name, fitted_ks), laws(s, counts, missed_over_ce), strict=True))
            with_floor = frozenset(
                metric for metric in self._metrics if metric in by_metric and _has_floor(by_metric[metric])
            )
            all_families.append(FamilyLaws(family, s, family.column(other), counts, by_metric, ratios, with_floor))
        return all_families, reading.notes + notes

    def _missing(self, laws: dict[str, Law], counts: Sequence[DocumentCounts]) -> Iterator[str]:
        """Why metrics have no law, or laws no interval."""
        without_law = [rbp_name(k) for k in self.ks if k in counts[0].ks and rbp_name(k) not in laws]
        if without_law:
            yield f"no law of {_labels(without_law)}, which is 0 or 1 at some size"
        unknown = [name for name in self._metrics if name in laws and not laws[name].alpha.known]
        if unknown:
            yield f"no interval for the law of {_labels(unknown)}: {why_no_interval(counts)}"

    def _add_exponents(self, report: Report, family_laws: FamilyLaws) -> None:
        """Add the answers about each law by itself, and about each RBP_k against CE."""
        for metric in self._metrics:
            law = family_laws.laws.get(metric)
            if law is None:
                continue
            keys = {**family_laws.family.keys, "metric": metric}
            beside = {"A": law.a, "R2": law.r2, "misses": law.largest_deviation, "sizes": law.sizes}
            if np.isfinite(family_laws.s_other).all():
                name = "alpha_incl" if self.unit == UNITS[0] else "alpha_excl"
                beside[name] = fit(family_laws.s_other, _values_of(law, family_laws.s)).alpha.value
            report.add("alpha", law.alpha, **keys, null=0.0, beside=beside)
            ce = family_laws.laws.get(CE)
            ratio = family_laws.ratios.get(metric)
            if ratio and ce:
                report.add("delta", ratio.alpha, **keys, null=0.0, margin=self.margin * abs(ce.alpha.value))
            if law.sizes >= 4:
                report.add("held_out", law.held_out(), **keys, null=0.0, show=np.expm1)
            for s in self.at:
                beyond = {"beyond": s / law.s[-1]}
                show = np.exp if metric == CE else _rbp_of_ln_y
                report.add("forecast", law.predict(s), **keys, show=show, beside=beyond, S=s)

    def _headline(self, report: Report, families: Sequence[FamilyLaws]) -> str:
        """Whether RBP_k improves with size at the k nearest 10, and faster than CE; with a caution about the law."""
        ks = [k for k in self.ks if rbp_name(k) in set(report.results["metric"])]
        if not ks:
            return ""
        metric = rbp_name(ks[first_smallest([abs(np.log(k / 10)) for k in ks])])  # of 1 and 100 the first
        label = metric_label(metric)
        alpha = report.frame("alpha").rename(columns={"alpha": "α"})
        rows = alpha[alpha["metric"] == metric]
        found = verdicts(
            rows,
            {"above": f"{label} improves with size", "below": f"{label} gets worse with size"},
            noun="law",
            none=f"no law of {label} in size was found",
            span="α",
            power=True,
        )
        if not found:
            return f"{label}: α = {spanned(rows['α'])}, without a test; the page says why."
        caution = _caution(report, metric, families)
        worse = [name for name in self._metrics if (alpha[alpha["metric"] == name]["verdict"] == "below").any()]
        if worse and metric not in worse:
            falls = alpha[alpha["metric"] == worse[-1]]
            words = {"below": f"{metric_label(worse[-1])} gets worse with size"}
            return sentence(found, verdicts(falls, words, noun="law", none=""), caution)
        if "delta" not in report.questions:
            return sentence(found, caution)
        delta = report.frame("delta")
        against_ce = {
            "above": "faster than cross-entropy",
            "below": "more slowly than cross-entropy",
            "same": "as fast as cross-entropy",
        }
        none = "no difference from cross-entropy was found"
        compared = verdicts(delta[delta["metric"] == metric], against_ce, noun="law", none=none, power=True)
        return sentence(found, compared if (rows["verdict"] == "above").any() else "", caution)


def _labels(metrics: Sequence[str]) -> str:
    return listed([metric_label(metric) for metric in metrics])


def _caution(report: Report, metric: str, families: Sequence[FamilyLaws]) -> str:
    """A clause if laws of a metric have a floor, or their smaller sizes mispredict the largest."""
    with_law = [family_laws for family_laws in families if metric in family_laws.laws]
    floors = [metric in family_laws.with_floor for family_laws in with_law]
    laws = [family_laws.laws[metric] for family_laws in with_law]
    mispredicts = [_mispredicts(law) for law in laws]
    doubtful = sum(map(any, zip(floors, mispredicts, strict=True)))
    if not doubtful:
        return ""
    if len(laws) == 1:
        faults = ["flattens"] if floors[0] else []
        faults += ["mispredicts its largest size"] if mispredicts[0] else []
        return f"caution: the law {listed(faults)}"
    if doubtful == 1:
        return f"caution: 1 of {len(laws)} laws flattens or mispredicts its largest size"
    return f"caution: {doubtful} of {len(laws)} laws flatten or mispredict their largest size"


def _mispredicts(law: Law) -> bool:
    """Whether the test of the held-out error finds one."""
    return law.sizes >= 4 and law.held_out().p() < 0.05


def _has_floor(law: Law) -> bool:
    """Whether the interval of E in E + A S^-alpha lies above 0."""
    if law.sizes < MIN_SIZES or not law.alpha.known:
        return False
    try:
        return fit_floor(law.s, law.y).parameters["E"].low > 0
    except BadInput:  # y rises with size
        return False


def _rbp_of_ln_y(ln_y: float) -> float:
    return float(np.exp(-np.exp(ln_y)))


def _values_of(law: Law, s: FloatArray) -> FloatArray:
    """The law's y in the order of sizes s, which need not ascend in the unit asked for."""
    y = np.empty(len(s))
    y[np.argsort(s)] = law.y
    return y


def _figure(points: pd.DataFrame, laws: pd.DataFrame) -> Any:
    """The explorer; of imports that have cross-entropy alone, its panels."""
    if (points["metric"] == "rbp").any():
        return explorer(points, laws)
    title = "cross-entropy, nats"
    return facets(points.rename(columns={"y": title}), x="S", y=title, log="xy")


def _law_rows(family_laws: FamilyLaws) -> list[dict[str, object]]:
    """A row for each law: what the explorer draws."""
    rows = []
    for metric, law in family_laws.laws.items():
        line = {"S0": law.s[0], "y0": law.at(law.s[0]), "S1": law.s[-1], "y1": law.at(law.s[-1])}
        numbers: dict[str, object] = {"A": law.a, "R2": law.r2, "misses": law.largest_deviation}
        numbers |= _with_ends("alpha", law.alpha) | {"p": law.alpha.p()} | _with_ends("bend", law.bend())
        held_out = law.held_out() if law.sizes >= 4 else Estimate(np.nan, df=np.nan)
        numbers |= {name: np.expm1(value) for name, value in _with_ends("held_out", held_out).items()}
        if ratio := family_laws.ratios.get(metric):
            numbers |= _with_ends("delta", ratio.alpha)
        missed = _fewest_missed(family_laws, metric)
        numbers |= {"missed": missed, "doubt": "; ".join(_doubts(family_laws, metric, missed))}
        rows.append(family_laws.family.keys | _metric_and_k(metric) | numbers | line)
    return rows


def _with_ends(name: str, estimate: Estimate) -> dict[str, float]:
    """A number and its ends, as columns: low and high of alpha, bend_low and bend_high of bend."""
    low, high = estimate.interval()
    prefix = "" if name == "alpha" else f"{name}_"
    return {name: estimate.value, f"{prefix}low": low, f"{prefix}high": high}


def _fewest_missed(family_laws: FamilyLaws, metric: str) -> float:
    """How many tokens the best model does not rank among its first k; NaN for CE and unknown numbers of tokens."""
    if metric == CE or family_laws.family.rows["num_tokens"].isna().any():
        return np.nan
    counts = family_laws.counts
    place = counts[0].ks.index(parse_rbp_name(metric))
    return float(min(of_size.tokens.sum() - of_size.hits[:, place].sum() for of_size in counts))


def _doubts(family_laws: FamilyLaws, metric: str, missed: float) -> Iterator[str]:
    """What speaks against a law: a pattern in residuals, a mispredicted largest size, scatter, few misses."""
    law = family_laws.laws[metric]
    low, high = law.bend().interval()
    if low > 0 or metric in family_laws.with_floor:
        yield "flattens"
    if high < 0:
        yield "steepens"
    if _mispredicts(law):
        yield "off at its largest size"
    if law.r2 < MIN_R2:
        yield "models scatter"
    if missed < FEW_MISSES:
        yield "few misses"


def _point_rows(family_laws: FamilyLaws) -> list[dict[str, object]]:
    """A row for each model and metric: what the explorer draws."""
    rows: list[dict[str, object]] = []
    for model, s, counts in zip(family_laws.family.models, family_laws.s, family_laws.counts, strict=True):
        ln_y, u = influences(counts, lambda sums: np.log(ce_and_missed(sums)))
        half = half_widths(u)
        y = np.exp(ln_y)
        columns = {"value": np.append(y[0], np.exp(-y[1:])), "y": y, "low": y * np.exp(-half), "high": y * np.exp(half)}
        keys = family_laws.family.keys | {"model": model, "S": s}
        for i, metric in enumerate([CE, *map(rbp_name, counts.ks)]):
            if np.isfinite(ln_y[i]):
                rows.append(keys | _metric_and_k(metric) | {name: column[i] for name, column in columns.items()})
    return rows


def _metric_and_k(metric: str) -> dict[str, object]:
    if metric == CE:
        return {"metric": CE, "k": 0}
    return {"metric": "rbp", "k": parse_rbp_name(metric)}
