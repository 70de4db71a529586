"""The law in k: -ln RBP_k = B * k**-beta at fixed model, and what a larger k is worth in model size.

Figure 9, table 1 and eq. 10 of arXiv 2510.20387 and its draft. The slope is that of ln(-ln RBP_k) against ln k (the
authors' slope is -beta), by least squares over `log_grid(100)`: integers even in ln k. Over every integer 1..100, which
gives most of the weight to large k, it stands beside it as `beta_every_k`: the authors do not say which they used.

Beta's interval is a studentized document bootstrap, widened by a t quantile for as many equal documents as decide
beta; it covers 91 to 98% with 20 to 200 documents in simulation. R^2 of such curves is near 1 whatever their shape,
so the largest distance from the line and the local slopes at both ends stand beside it.

The worth of a larger k: at constant RBP, dS/S = -(alpha_k / alpha_S) dk/k (eq. 10). `factor_in_s` = 2^(beta / alpha)
is the growth in S that has the effect of doubling k, with Fieller's interval; `factor_measured` reads it off between
the measured sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy import special

from rbptrack.analysis import Analyzer, Drawing, Report, Runs
from rbptrack.analysis.families import Family, read_families
from rbptrack.analysis.findings import Reason, Verdict, around
from rbptrack.ranks import DocumentCounts, log_grid
from rbptrack.stats.intervals import Interval
from rbptrack.stats.linear import straight_line

from .curves import KCurves, k_curves, worth_of_doubling
from .figures import LARGEST_FACTOR, draw_against_k, draw_beta, draw_worth
from .findings import LawInK, WorthOfK
from .rows import SlopeRow, WorthRow, slope_rows

NAN = float("nan")
_AGAINST_K = (
    "Points: measured -ln RBP_k at the k of the fit. Lines: B k^-beta, fitted to each size. Dotted, if one is "
    "published: the authors' exponent, through the middle of the points."
)
_BETA = (
    "Exponent of the law in k of each model, with its {:z.0%} interval (documents resampled). Hollow, if one is "
    "published: the authors' exponent."
)
_WORTH = "How many times larger a model must be to gain as much RBP as 2k gains over k (the paper's eq. 10)."


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
        report = Report(summary="slopes")
        fitted = list[tuple[Family, KCurves]]()
        slopes = list[SlopeRow]()
        worth = list[WorthRow]()
        laws = list[LawInK]()
        trades = list[WorthOfK]()

        def load(family: Family, run_id: str) -> DocumentCounts:
            return runs.document_counts(run_id, self._every_k(family))

        for family, counts in read_families(runs, load, report.notes):
            curves = k_curves(counts, self._fitted_k(family), replicates=self.replicates, level=self.level)
            if curves is None:
                report.notes.append(
                    f"{family}: RBP_k is 0, 1 or unknown at nearly every k up to {self.largest}, so nothing is fitted."
                )
                continue
            fitted.append((family, curves))
            slopes += slope_rows(family, curves, counts)
            trade = list(self._worth_rows(family, curves))
            worth += trade
            laws.append(self._law(family, curves))
            trades.append(self._trade(family, trade))
        if not fitted:
            raise report.nothing_found("no measurement to fit")
        report.findings = [*laws, *trades]
        report.add_rows("slopes", slopes)
        report.add_rows("worth_of_k", worth, caption=_WORTH)
        for quantity in ("beta", "r2"):
            report.add_metrics(f"k_law_{quantity}/{{family}}/{{dataset}}/{{size}}", slopes, quantity)
        report.add_metrics("worth_of_double_k/{family}/{dataset}/rbp_{k}", worth, "factor_in_s")
        for name in sorted({family.name for family, _ in fitted}):
            figure = draw_against_k([case for case in fitted if case[0].name == name])
            report.drawings[f"against_k_{name}"] = Drawing(figure, _AGAINST_K)
        figure = draw_beta(slopes, report.tables["slopes"].frame, largest=self.largest)
        report.drawings["beta_against_size"] = Drawing(figure, _BETA.format(self.level))
        if any(row.factor_high < LARGEST_FACTOR for row in worth):
            report.drawings["worth_of_k"] = Drawing(draw_worth(report.tables["worth_of_k"].frame), _WORTH)
        return report

    def _every_k(self, family: Family) -> list[int]:
        """Return every integer k; of imported numbers without ranks, those that every run has."""
        if family.vocab_size:
            return list(range(1, min(self.largest, family.vocab_size) + 1))
        return [k for k in family.logged_ks if k <= self.largest]

    def _fitted_k(self, family: Family) -> list[int]:
        """Return the k of the fit: even in ln k; of imported numbers without ranks, all."""
        return [int(k) for k in log_grid(self._every_k(family)[-1])] if family.vocab_size else self._every_k(family)

    def _worth_rows(self, family: Family, curves: KCurves) -> Iterator[WorthRow]:
        for k in self.ks if len(family.s) >= 3 else ():
            if cells := worth_of_doubling(family.s, curves, k, level=self.level):
                yield WorthRow(**family.keys, k=k, **cells)

    def _law(self, family: Family, curves: KCurves) -> LawInK:
        """Return whether the points of every size lie within the margin of their line."""
        fit = curves.fit
        largest = int(fit.ks[-1])
        off = fit.largest_deviation
        trend = Interval(NAN)
        if len(fit.beta) >= 3:
            line = straight_line(np.log10(family.s), fit.beta)
            half = float(special.stdtrit(len(fit.beta) - 2, 0.5 + self.level / 2) * line.error)
            trend = Interval(line.slope, line.slope - half, line.slope + half)
        return LawInK(
            case=family.keys,
            estimate=float(off.max()),
            margin=self.margin,
            verdict=Verdict.YES if off.max() <= self.margin else Verdict.NO,
            beta=fit.beta.tolist(),
            sizes=family.labels,
            largest_k=largest,
            r2=float(fit.r2.min()),
            at_1=float(fit.local_beta(1).mean()),
            at_largest=float(fit.local_beta(float(largest)).mean()),
            within=int((off <= self.margin).sum()),
            trend=trend,
        )

    def _trade(self, family: Family, worth: Sequence[WorthRow]) -> WorthOfK:
        """Return the worth of doubling k, at the known k nearest 10."""
        sizes = len(family.s)
        if not worth:
            return WorthOfK(case=family.keys, reason=Reason.FEW_SIZES, sizes=sizes)
        finite = [row for row in worth if row.factor_high < LARGEST_FACTOR]
        if not finite:
            return WorthOfK(case=family.keys, reason="no law in size", sizes=sizes)
        row = min(finite, key=lambda row: abs(row.k - 10))
        factor = around(Interval(row.factor_in_s, row.factor_low, row.factor_high))
        return WorthOfK(
            case=family.keys, verdict=Verdict.YES, k=row.k, measured=row.factor_measured, sizes=sizes, **factor
        )
