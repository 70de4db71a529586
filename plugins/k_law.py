"""The law in k: -ln RBP_k = B * k**-beta at fixed model, and what a larger k is worth in model size.

Figure 9, table 1 and eq. 10 of arXiv 2510.20387 and its draft. The slope is that of ln(-ln RBP_k) against ln k (the
authors' slope is -beta), by least squares over `log_grid(100)`: integers even in ln k. Over every integer 1..100, which
gives most of the weight to large k, it stands beside it as `beta_every_k`: the authors do not say which they used.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import special

from rbptrack.analysis import Analyzer, Drawing, Report, Runs
from rbptrack.analysis.families import Family, read_families
from rbptrack.analysis.family_figures import Curve, curve_panels, curves_of
from rbptrack.analysis.figures import MARKERS, SIZE, log_axis
from rbptrack.analysis.findings import Finding, Reason, Verdict, around
from rbptrack.analysis.published import published_beta
from rbptrack.analysis.rows import Column, Exponent, OfFamily, OfSize
from rbptrack.ranks import DocumentCounts, log_grid
from rbptrack.stats.intervals import Interval
from rbptrack.stats.k_law import KCurves, k_curves, worth_of_doubling
from rbptrack.stats.linear import straight_line

NAN = float("nan")
_DOTTED = (0, (1, 1.5))
_LARGEST_FACTOR = 1e6  # a factor in S that may be larger is not known, and not shown
_AGAINST_K = (
    "Points: measured -ln RBP_k at the k of the fit. Lines: B k^-beta, fitted to each size. Dotted, where there is "
    "one: the authors' published exponent, through the middle of the points."
)
_BETA = (
    "Exponent of the law in k of each model, with its {:z.0%} interval (documents resampled). Hollow, where there is "
    "one: the authors' published exponent."
)
_WORTH = "How many times larger a model must be to gain as much RBP as 2k gains over k (the paper's eq. 10)."
Curves = tuple[Family, KCurves]


@dataclass(kw_only=True)
class SlopeRow(OfSize):
    """The law in k of one model."""

    B: Annotated[float, Column("-ln RBP_1 by the line")]
    beta: Annotated[
        Interval,
        Column(
            "of -ln RBP_k = B k^-beta, over k even in ln k",
            title="β",
            form=".4f",
            low="lower end of its interval, studentized document bootstrap; from 10 documents",
        ),
    ]
    r2: Annotated[float, Column("R^2 of ln(-ln RBP_k) against ln k", title="R²", form=".4f")]
    largest_deviation: Annotated[float, Column("largest relative distance of -ln RBP_k from the line", form=".1%")]
    beta_at_1: Annotated[float, Column("local beta at k = 1, of a parabola in ln k", form=".3f")]
    beta_at_10: Annotated[float, Column("the same at k = 10", form=".3f")]
    beta_at_largest: Annotated[float, Column("the same at the largest k", form=".3f")]
    largest_k: Annotated[int, Column("of the fit")]
    beta_every_k: Annotated[float, Column("beta over every integer k instead", form=".4f")] = NAN
    r2_every_k: Annotated[float, Column("of that line", form=".4f")] = NAN


@dataclass(kw_only=True)
class WorthRow(OfFamily):
    """What going from k to 2k is worth in model size (`rbptrack.stats.k_law.worth_of_doubling`)."""

    k: Annotated[int, Column("from which k doubles")]
    alpha: Exponent
    beta: Annotated[float, Column("ln(y_k/y_2k)/ln 2 with y = -ln RBP, mean over sizes", title="β", form=".3f")]
    ratio: Annotated[float, Column("beta/alpha: dS/S per dk/k at constant RBP, up to sign (eq. 10)")]
    factor_in_s: Annotated[float, Column("2^(beta/alpha): the growth in S that has the effect of doubling k")]
    factor_low: Annotated[float, Column("lower end of its interval (Fieller)")]
    factor_high: Annotated[float, Column("upper end; infinite where alpha may be 0")]
    factor_measured: Annotated[float, Column("the same read off between measured sizes, geometric mean")]
    sizes_measured: Annotated[int, Column("over how many sizes")]


@dataclass(kw_only=True)
class KLaw(Analyzer):
    """-ln RBP_k = B k^-beta at fixed model, and what a larger k is worth in model size.

    Attributes:
        largest: the largest k of the fit; the law is not expected to hold beyond some 100.
        ks: the k at which the worth of a larger k is given.
        margin: relative distance of the points from the line within which the law counts as followed.
        level: nominal coverage of the intervals.
        replicates: document bootstraps, drawn jointly for all sizes of a family.

    """

    name: ClassVar[str] = "k_law"
    largest: int = 100
    ks: list[int] = field(default_factory=lambda: [1, 2, 5, 10, 20, 50])
    margin: float = 0.1
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Fit every model's curve; the trade-off needs at least 3 sizes."""
        report, curves_of_families = Report(summary="slopes"), list[Curves]()
        slopes, worth = list[SlopeRow](), list[WorthRow]()
        laws, trades = list[Finding](), list[Finding]()

        def load(family: Family, run_id: str) -> DocumentCounts:
            return runs.document_counts(run_id, self._every_k(family))

        for family, counts in read_families(runs, load, report.notes):
            curves = k_curves(counts, self._fitted_k(family), replicates=self.replicates, level=self.level)
            if curves is None:
                report.notes.append(
                    f"{family}: RBP_k is 0, 1 or unknown at nearly every k up to {self.largest}, so nothing is fitted."
                )
                continue
            curves_of_families.append((family, curves))
            slopes += _slope_rows(family, curves, counts)
            here = list(self._worth_rows(family, curves))
            worth += here
            laws.append(self._law(family, curves))
            trades.append(self._trade(family, here))
        if not curves_of_families:
            raise report.nothing_found("no measurement to fit")
        report.findings = laws + trades
        report.add_rows("slopes", slopes)
        report.add_rows("worth_of_k", worth, caption=_WORTH)
        for quantity in ("beta", "r2"):
            report.add_metrics(f"k_law_{quantity}/{{family}}/{{dataset}}/{{size}}", slopes, quantity)
        report.add_metrics("worth_of_double_k/{family}/{dataset}/rbp_{k}", worth, "factor_in_s")
        for name in sorted({family.name for family, _ in curves_of_families}):
            figure = _draw_against_k([one for one in curves_of_families if one[0].name == name])
            report.drawings[f"against_k_{name}"] = Drawing(figure, _AGAINST_K)
        figure = self._draw_beta(slopes, report.tables["slopes"].frame)
        report.drawings["beta_against_size"] = Drawing(figure, _BETA.format(self.level))
        if any(row.factor_high < _LARGEST_FACTOR for row in worth):
            report.drawings["worth_of_k"] = Drawing(_draw_worth(report.tables["worth_of_k"].frame), _WORTH)
        return report

    def _every_k(self, family: Family) -> list[int]:
        """Every integer k; of imported numbers without ranks, those that every run has."""
        if family.vocab_size:
            return list(range(1, min(self.largest, family.vocab_size) + 1))
        return [k for k in family.logged_ks if k <= self.largest]

    def _fitted_k(self, family: Family) -> list[int]:
        """The k of the fit: even in ln k; of imported numbers without ranks, all that there are."""
        return [int(k) for k in log_grid(self._every_k(family)[-1])] if family.vocab_size else self._every_k(family)

    def _worth_rows(self, family: Family, curves: KCurves) -> Iterator[WorthRow]:
        for k in self.ks if len(family.s) >= 3 else ():
            if one := worth_of_doubling(family.s, curves, k, level=self.level):
                yield WorthRow(**family.keys, k=k, **one)

    def _law(self, family: Family, curves: KCurves) -> Finding:
        """Whether the points of every size lie within the margin of their line."""
        fit, largest = curves.fit, int(curves.fit.ks[-1])
        off = fit.largest_deviation
        about: dict[str, Any] = {"beta": fit.beta, "sizes": family.labels, "largest_k": largest, "r2": fit.r2.min()}
        about |= {"local": (fit.local_beta(1).mean(), fit.local_beta(float(largest)).mean()), "margin": self.margin}
        if len(fit.beta) >= 3:
            trend = straight_line(np.log10(family.s), fit.beta)
            half = float(special.stdtrit(len(fit.beta) - 2, 0.5 + self.level / 2) * trend.error)
            about["trend"] = (trend.slope, trend.slope - half, trend.slope + half)
        verdict = Verdict.YES if off.max() <= self.margin else Verdict.NO
        about |= {"within": int((off <= self.margin).sum())}
        return Finding(question="law in k", case=family.keys, estimate=float(off.max()), verdict=verdict, extras=about)

    def _trade(self, family: Family, worth: Sequence[WorthRow]) -> Finding:
        """What doubling k is worth, at the k nearest 10 at which it is known."""
        question, case = "worth of a larger k", family.keys
        if not worth:
            few = {"needed": 3, "there": len(family.s)}
            return Finding(question=question, case=case, reason=Reason.FEW_SIZES, extras=few)
        known = [row for row in worth if row.factor_high < _LARGEST_FACTOR]
        if not known:
            return Finding(question=question, case=case, reason="no law in size")
        row = min(known, key=lambda row: abs(row.k - 10))
        about: dict[str, Any] = {"k": row.k, "measured": row.factor_measured}
        number = around(Interval(row.factor_in_s, row.factor_low, row.factor_high))
        return Finding(question=question, case=case, verdict=Verdict.YES, extras=about, **number)

    def _draw_beta(self, rows: Sequence[SlopeRow], table: pd.DataFrame) -> Figure:
        """Beta against S: one panel per dataset, one colour per family."""
        theirs = [published_beta(row.family, row.dataset, row.size) for row in rows]
        where = {"panel": "{dataset}", "series": "{family}"}
        hollow: dict[str, Any] = {"ls": "", "ms": 8, "mfc": "none", "mec": "black", "mew": 0.8}
        curves = [
            *curves_of(table, "S", "beta", **where, label="{family}", ends="bars"),
            *curves_of(table.assign(theirs=theirs), "S", "theirs", **where, **hollow),
        ]
        return curve_panels(curves, xlabel=SIZE, ylabel=f"β over k = 1 to {self.largest}", sharey=True)[0]


def _slope_rows(family: Family, curves: KCurves, counts: Sequence[DocumentCounts]) -> Iterator[SlopeRow]:
    fit, largest = curves.fit, int(curves.fit.ks[-1])
    columns = {
        "B": np.exp(fit.log_b),
        "r2": fit.r2,
        "largest_deviation": fit.largest_deviation,
        "beta_at_1": fit.local_beta(1),
        "beta_at_10": fit.local_beta(10),
        "beta_at_largest": fit.local_beta(largest),
    }
    for i, (keys, one) in enumerate(zip(family.size_keys, counts, strict=True)):
        cells: Any = {name: float(values[i]) for name, values in columns.items()}
        if family.vocab_size:
            every = np.arange(1, largest + 1)
            rbp = one.select(every.tolist()).hits.sum(axis=0) / one.tokens.sum()
            line = straight_line(np.log(every), np.log(-np.log(rbp)))
            cells |= {"beta_every_k": -line.slope, "r2_every_k": line.r2}
        yield SlopeRow(**keys, **cells, beta=curves.beta[i], largest_k=largest)


def _draw_against_k(fitted: list[Curves]) -> Figure:
    """The paper's figure 9: one panel per dataset, one colour per size."""
    drawn = []
    for family, curves in fitted:
        fit, ks, y = curves.fit, curves.fit.ks, curves.fit.y
        for i, label in enumerate(family.labels):
            place, points = (str(family), label), {"ls": "", "marker": MARKERS[i % len(MARKERS)], "markevery": 1}
            drawn.append(Curve(*place, f"{label}: β = {fit.beta[i]:.3f}", ks, y[i], options=points))
            drawn.append(Curve(*place, "", ks, fit.fitted[i], options={"marker": "", "lw": 1.1}))
            beta = published_beta(family.name, family.dataset, label)
            if np.isfinite(beta):  # through the middle of the points: they print no B
                theirs = np.exp(np.log(y[i]).mean()) * (ks / np.exp(np.log(ks).mean())) ** -beta
                drawn.append(Curve(*place, "", ks, theirs, options={"marker": "", "ls": _DOTTED, "lw": 1.6}))
    return curve_panels(drawn, xlabel="k", ylabel="−ln RBP$_k$", logs="xy", shades=True, height=3.6)[0]


def _draw_worth(table: pd.DataFrame) -> Figure:
    """What doubling k is worth, against k: by eq. 10 with its interval, and as read off between sizes."""
    quantities = table[["factor_in_s", "factor_low", "factor_high", "factor_measured"]].to_numpy(dtype=np.float64)
    finite = quantities[np.isfinite(quantities)]
    known = table[table["factor_high"] < _LARGEST_FACTOR]
    known = known.rename(columns={"factor_low": "factor_in_s_low", "factor_high": "factor_in_s_high"})
    where = {"panel": "{dataset}", "series": "{family}"}
    points: dict[str, Any] = {"ls": "", "marker": "o", "ms": 4.5, "markevery": 1}
    curves = [
        *curves_of(known, "k", "factor_in_s", **where, label="{family}, eq. 10", ends="band", marker=""),
        *curves_of(known, "k", "factor_measured", **where, label="{family}, measured", **points),
    ]
    figure, axes = curve_panels(curves, xlabel="k", ylabel="factor in S that 2k is worth over k", sharey=True)
    for ax in axes:
        ax.axhline(1, color="0.4", lw=0.8, ls=":")
        log_axis(ax.yaxis, low=max(min(finite.min(), 1) / 1.15, 0.2), high=max(min(finite.max() * 1.3, 100), 1.15))
    return figure
