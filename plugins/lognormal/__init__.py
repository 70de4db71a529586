"""Is the distribution of ranks lognormal? Exact truncated fits of every candidate, and what a lognormal implies.

Figure 8 and eqs. 9 to 21 of arXiv 2510.20387, on {1..V} with sums instead of integrals: ln P(k) = const - beta ln k
- gamma ln^2 k. gamma -> 0 is Zipf's law, where mu and sigma run away while the distribution does not; gamma < 0 is
neither. So (beta, gamma) come first, and mu, sigma only where gamma's interval lies above 0.

Nine candidates are fitted by maximum likelihood, each normalised by its sum over every rank: Zipf, lognormal (two
forms), Zipf-Mandelbrot, Weibull, negative binomial, a point mass at 1 with a lognormal, a shifted power law with
cutoff, and two lognormals. With beta = 1 - mu / sigma^2 and gamma = 1 / (2 sigma^2), an interval of gamma that
includes 0 means that the ranks agree with Zipf's law, too.

How far off: KL per token, beside the KL that independent tokens of the best candidate would show; the largest |RBP_k
fitted - observed|; AIC; Vuong's z against the lognormal, clustered by document. The integrals of the paper's appendix
stand beside the exact sums for comparison only: they can give p_1 > 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from rbptrack.analysis import Analyzer, Drawing, RankHistogram, RbptrackError, Report, Runs, Unreadable
from rbptrack.analysis.families import Family, Pooled, read_families
from rbptrack.analysis.findings import Verdict, around, by_sign
from rbptrack.analysis.rows import UNKNOWN, cells_of
from rbptrack.ranks import FloatArray, sum_by
from rbptrack.stats.intervals import Interval
from rbptrack.stats.linear import straight_line
from rbptrack.stats.power_law import fit_power_law

from .figures import (
    draw_appendix_terms,
    draw_implied,
    draw_lognormal_parameters,
    draw_misfit,
    draw_rank_distributions,
)
from .findings import DistributionOfRanks, ShapeOfRanks, Terms
from .rank_distributions import CANDIDATES, Support
from .rank_fit import fit_all
from .rank_lognormal import integral_approximation
from .rank_sizes import RanksOfSize, fit_size, lognormal_trend
from .rows import NAN, CandidateRow, LognormalRow, Shape, SummaryRow, TrendRow

NESTED = ("zipf", "point_mass_lognormal", "two_lognormals")
"""Candidates that a lognormal is a case of, or the other way round: Vuong's z is not normal for them."""


@dataclass(frozen=True)
class Loaded(Pooled):
    """One run's ranks: the histogram, and where ranks are stored each document's tokens as weights of the nodes."""

    histogram: RankHistogram
    documents: FloatArray | None

    def in_groups(self, groups: Sequence[str]) -> Loaded:
        """Sum by source instead of by document."""
        return self if self.documents is None else Loaded(self.histogram, sum_by(groups, self.documents))


@dataclass(kw_only=True)
class Lognormal(Analyzer):
    """The distribution of ranks: is it lognormal, what else, and what would a lognormal imply.

    Attributes:
        level: nominal coverage of the intervals.
        replicates: document bootstraps of (beta, gamma), drawn jointly for all sizes of a family.

    """

    name: ClassVar[str] = "lognormal"
    level: float = 0.95
    replicates: int = 500

    def analyze(self, runs: Runs) -> Report:
        """Fit every measurement; trends need at least 3 sizes."""
        report = Report(summary="summary")
        fitted = [(family, sizes, _lognormal_rows(family, sizes)) for family, sizes in self._fitted(runs, report.notes)]
        if not fitted:
            raise report.nothing_found("no measurement to fit")
        candidates = [row for family, sizes, _ in fitted for row in self._candidate_rows(family, sizes)]
        trends = [list(self._trends(*case)) for case in fitted]
        rows = [row for *_, family_rows in fitted for row in family_rows]
        report.findings += [finding for _, sizes, family_rows in fitted for finding in _shapes(sizes, family_rows)]
        report.findings += [_distribution(*case, slopes) for case, slopes in zip(fitted, trends, strict=True)]
        report.add_rows("summary", (row for case in fitted for row in _summary_rows(*case)))
        report.add_rows("lognormal", rows)
        report.add_rows("candidates", candidates)
        report.add_rows("trends", (row for slopes in trends for row in slopes))
        for quantity in ("beta", "gamma", "mu_over_sigma"):
            report.add_metrics(f"lognormal_{quantity}/{{family}}/{{dataset}}/{{size}}", rows, quantity)
        report.add_metrics("kl_{candidate}/{family}/{dataset}/{size}", candidates, "kl")
        report.drawings = _drawings([(family, sizes) for family, sizes, _ in fitted], report.tables["lognormal"].frame)
        return report

    def _fitted(self, runs: Runs, notes: list[str]) -> Iterator[tuple[Family, list[RanksOfSize]]]:
        """Yield each family with those of its sizes to which something can be fitted."""

        def load(_: Family, run_id: str) -> Loaded:
            histogram = runs.histogram(run_id)
            support = Support.nodes(histogram.vocab_size)
            projected = []
            try:
                for piece in runs.rank_pieces(run_id, version=1):
                    present, document = piece.documents
                    projected.append(support.project_groups(document, piece.rank, groups=len(present)))
            except Unreadable:
                return Loaded(histogram, None)
            return Loaded(histogram, np.concatenate(projected))

        for family, loaded in read_families(runs, load, notes):
            sizes: list[RanksOfSize] = []
            fitted: list[float] = []
            fits_by_size = fit_all([size.histogram for size in loaded])
            for size, fits, params, label in zip(loaded, fits_by_size, family.s, family.labels, strict=True):
                effect = _design_effect(family.rows[family.rows["non_embedding_params"] == params])
                try:
                    of_size = fit_size(
                        size.histogram,
                        size.documents,
                        fits,
                        effect=effect,
                        seed=int(params),  # sizes apart: not paired
                        level=self.level,
                        replicates=self.replicates,
                    )
                    sizes.append(of_size)
                    fitted.append(params)
                except RbptrackError as error:
                    notes.append(f"{family}, {label}: {error}.")
            if sizes:
                yield _only(family, fitted), sizes

    def _candidate_rows(self, family: Family, sizes: list[RanksOfSize]) -> Iterator[CandidateRow]:
        for keys, size in zip(family.size_keys, sizes, strict=True):
            for name, fit in size.fits.items():
                yield CandidateRow(
                    **keys,
                    candidate=name,
                    parameters=len(fit.parameters),
                    kl=fit.kl,
                    ks=fit.ks,
                    ks_at=fit.ks_at,
                    aic_above_best=fit.aic - size.best.aic,
                    vuong_z=size.vuong.get(name, NAN),
                    nested=name in NESTED,
                    values=", ".join(f"{key} = {value:.6g}" for key, value in fit.parameters.items()),
                )

    def _trends(self, family: Family, sizes: list[RanksOfSize], rows: list[LognormalRow]) -> Iterator[TrendRow]:
        """Yield Beta, gamma and mu/sigma against ln S, and the exponents of the measured and the implied curves."""
        if len(rows) < 3:
            return
        table = pd.DataFrame(map(cells_of, rows))
        with_intervals = not any(np.isnan(size.gamma.low) for size in sizes)
        theta = np.stack([size.free for size in sizes])
        draws = np.stack([size.draws for size in sizes])
        trend = lognormal_trend(family.s, theta, draws, level=self.level)
        keys: Any = family.keys | {"sizes": len(sizes)}
        for quantity in ("beta", "gamma", "mu_over_sigma"):
            if slope := getattr(trend, quantity):
                r2, in_s = _r2(table, quantity)
                shown = slope if with_intervals else Interval(slope.value)
                yield TrendRow(**keys, quantity=quantity, slope=shown, r2=r2, r2_in_s=in_s)
        for quantity in ("entropy", "entropy_implied", "neg_log_p1", "neg_log_p1_implied"):
            law = fit_power_law(family.s, table[quantity].to_numpy(float), level=self.level)
            slope = Interval(-law.alpha, -law.high, -law.low)
            yield TrendRow(**keys, quantity=quantity, slope=slope, r2=law.r2, r2_in_s=NAN)


def _lognormal_rows(family: Family, sizes: list[RanksOfSize]) -> list[LognormalRow]:
    return [_lognormal_row(keys, size) for keys, size in zip(family.size_keys, sizes, strict=True)]


def _lognormal_row(keys: Mapping[str, Any], size: RanksOfSize) -> LognormalRow:
    h = size.histogram
    implied = size.fits["lognormal"]
    share = h.count / h.num_tokens
    entropy = float(-share @ np.log(share))
    row = LognormalRow(
        **keys,
        beta=size.beta,
        gamma=size.gamma,
        interval_from=size.interval_from,
        power_law_limit=size.limit,
        entropy=entropy,
        entropy_miller_madow=entropy + (len(h.rank) - 1) / (2 * h.num_tokens),
        entropy_implied=implied.entropy,
        neg_log_p1=-float(np.log(h.rbp(1))),
        neg_log_p1_implied=-float(implied.log_pmf[0]),
        kl_floor=size.floor,
    )
    if size.limit:
        return row
    sigma = float(1 / np.sqrt(2 * size.free[1]))
    mu = float((1 - size.free[0]) * sigma**2)
    integral = integral_approximation(mu, sigma)
    square = mu**2 / (2 * sigma**2)
    return replace(
        row,
        mu=mu,
        sigma=sigma,
        mu_over_sigma=Interval(mu / sigma, *size.ratio),
        square_term=square,
        entropy_integral=integral.entropy,
        neg_log_p1_integral=integral.neg_log_p1,
        neg_log_p1_corrected=integral.neg_log_p1_corrected,
        log_c=row.neg_log_p1_implied - square,
        log_c_integral=integral.neg_log_p1 - square,
    )


def _shape(gamma: Interval) -> Shape:
    if np.isnan(gamma.low):
        return Shape.UNKNOWN
    return {Verdict.NO: Shape.CONVEX, Verdict.YES: Shape.CONCAVE}.get(by_sign(gamma), Shape.ZIPF)


def _summary_rows(family: Family, sizes: list[RanksOfSize], rows: list[LognormalRow]) -> Iterator[SummaryRow]:
    for keys, size, row in zip(family.size_keys, sizes, rows, strict=True):
        yield SummaryRow(
            **keys,
            best=size.best.candidate.label,
            kl_best=size.best.kl - size.floor,
            kl_lognormal=size.fits["lognormal"].kl - size.floor,
            kl_zipf=size.fits["zipf"].kl - size.floor,
            gamma=row.gamma,
            shape=_shape(row.gamma),
            mu_over_sigma=row.mu_over_sigma.value,
        )


def _shapes(sizes: list[RanksOfSize], rows: list[LognormalRow]) -> Iterator[ShapeOfRanks]:
    """Yield, for each measurement, whether the distribution of its ranks is concave, as a lognormal's is."""
    verdicts = {Shape.CONCAVE: Verdict.YES, Shape.CONVEX: Verdict.NO}
    for size, row in zip(sizes, rows, strict=True):
        shape = _shape(row.gamma)
        yield ShapeOfRanks(
            case=row.case(size=row.size),
            verdict=verdicts.get(shape, Verdict.UNTOLD),
            reason=shape.value,
            best=size.best.candidate.label,
            candidates=len(CANDIDATES),
            distance=size.fits["lognormal"].ks,
            **around(row.gamma),
        )


def _distribution(
    family: Family, sizes: list[RanksOfSize], rows: list[LognormalRow], trends: Sequence[TrendRow]
) -> DistributionOfRanks:
    """Return a family's nearest candidate, and what the fitted lognormals imply."""
    names = [size.best.candidate.name for size in sizes]
    nearest = max(dict.fromkeys(names), key=names.count)
    scores = [size.vuong[nearest] for size in sizes if nearest in size.vuong]
    slopes = {trend.quantity: trend for trend in trends}
    off = [row.neg_log_p1_integral - row.neg_log_p1_implied for row in rows]
    ratio = slopes.get("mu_over_sigma")
    return DistributionOfRanks(
        case=family.keys,
        sizes=family.labels,
        nearest=nearest,
        best=CANDIDATES[nearest].label,
        times=names.count(nearest),
        kl={
            name: [size.fits[name].kl - size.floor for size in sizes]
            for name in dict.fromkeys((nearest, "lognormal", "zipf"))
        },
        misses_at=max((size.fits["lognormal"].ks, size.fits["lognormal"].ks_at) for size in sizes)[1],
        vuong=min(scores, default=NAN),
        entropy_off=[row.entropy_implied - row.entropy for row in rows],
        p1_off=[row.neg_log_p1_implied / row.neg_log_p1 - 1 for row in rows],
        exponents=[-slopes[name].slope.value for name in ("neg_log_p1", "neg_log_p1_implied") if name in slopes],
        integral_off=max((abs(distance) for distance in off if np.isfinite(distance)), default=NAN),
        terms=[
            Terms(row.size, row.square_term, row.log_c, row.neg_log_p1_implied)
            for row in rows
            if np.isfinite(row.square_term)
        ],
        **around(ratio.slope if ratio else UNKNOWN),
    )


def _drawings(fitted: list[tuple[Family, list[RanksOfSize]]], table: pd.DataFrame) -> dict[str, Drawing]:
    drawings = {
        "distribution": Drawing(
            draw_rank_distributions(fitted),
            "Largest model of each family. Points: observed shares in bins even in ln k. Lines: the best of the "
            "candidates, the lognormal and Zipf's law, fitted to all ranks.",
        ),
        "misfit": Drawing(
            draw_misfit(fitted),
            "KL divergence of the observed ranks from each candidate. Dotted: what sampling alone would give, for "
            "as many independent tokens drawn from the best candidate.",
        ),
        "parameters": Drawing(
            draw_lognormal_parameters(table),
            "Parameters of ln P(k) = const - beta ln k - gamma ln^2 k. Where the interval of gamma includes "
            "0 (Zipf's law), mu/sigma is not identifiable and not drawn.",
        ),
        "implied": Drawing(
            draw_implied(table),
            "Solid: observed. Dashed: exact sums over the fitted lognormal. Dotted: the integral approximations of "
            "the paper's appendix, which also ignore that ranks end at |V|.",
        ),
    }
    if table["square_term"].notna().any():
        drawings["appendix_terms"] = Drawing(
            draw_appendix_terms(table[table["square_term"].notna()]),
            "-ln p_1 = ln c + mu^2/(2 sigma^2), the terms of appendix B.4 of arXiv 2510.20387, where mu and sigma "
            "are identified. Where the terms nearly cancel, neither alone shows how -ln p_1 falls.",
        )
    return drawings


def _only(family: Family, sizes: list[float]) -> Family:
    return Family(family.name, family.dataset, family.rows[family.rows["non_embedding_params"].isin(sizes)])


def _r2(table: pd.DataFrame, quantity: str) -> tuple[float, float]:
    """Return R^2 of a line in ln S, and in S, over the sizes that have the quantity; NaN where they are fewer than
    3.
    """
    rows = table[table[quantity].notna()]
    if len(rows) < 3:
        return np.nan, np.nan
    s = rows["S"].to_numpy(float)
    y = rows[quantity].to_numpy(float)
    return float(straight_line(np.log(s), y).r2), float(straight_line(s, y).r2)


def _design_effect(rows: pd.DataFrame) -> float:
    """Return the variance of the logged RBP_k over that of independent tokens: mean over the logged k, at least 1."""
    effects = [1.0]
    for column in (c for c in rows.columns if c.startswith("rbp_") and f"{c}_se" in rows.columns):
        p = rows[column].mean()
        se = rows[f"{column}_se"].mean()
        if pd.notna(p) and pd.notna(se) and 0 < p < 1:
            effects.append(float(se**2 * rows["num_tokens"].sum() / (p * (1 - p))))
    return max(1.0, float(np.mean(effects[1:] or effects)))
