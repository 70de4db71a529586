"""Is the distribution of ranks lognormal? Exact truncated fits of every candidate, and what a lognormal implies.

Figure 8 and eqs. 9 to 21 of arXiv 2510.20387, on {1..V} with sums instead of integrals: ln P(k) = const - beta ln k
- gamma ln^2 k. gamma -> 0 is Zipf's law, where mu and sigma run away while the distribution does not; gamma < 0 is
neither. So (beta, gamma) come first, and mu, sigma only where gamma's interval lies above 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd

from rbptrack.analysis import Analyzer, Drawing, RankHistogram, RbptrackError, Report, Runs, Unreadable
from rbptrack.analysis.families import Family, Pooled, read_families
from rbptrack.analysis.findings import Finding, Verdict, around, by_sign
from rbptrack.analysis.rank_figures import (
    draw_appendix_terms,
    draw_implied,
    draw_lognormal_parameters,
    draw_misfit,
    draw_rank_distributions,
)
from rbptrack.analysis.rows import UNKNOWN, Column, OfFamily, OfSize, cells_of
from rbptrack.ranks import FloatArray, sum_by
from rbptrack.stats.intervals import Interval
from rbptrack.stats.linear import straight_line
from rbptrack.stats.power_law import fit_power_law
from rbptrack.stats.rank_distributions import CANDIDATES, Support
from rbptrack.stats.rank_fit import fit_all
from rbptrack.stats.rank_lognormal import integral_approximation
from rbptrack.stats.rank_sizes import RanksOfSize, fit_size, lognormal_trend

NAN = float("nan")
_LOW = "lower end of its interval (see interval_from)"
_SLOPE = "per unit of ln S; of entropy and -ln RBP_1 minus the exponent of A S^-alpha"
_SCATTER = "lower end of its interval (scatter between models, sampling error)"
NESTED = ("zipf", "point_mass_lognormal", "two_lognormals")
"""Candidates that a lognormal is a case of, or the other way round: Vuong's z is not normal for them."""


class Shape(StrEnum):
    """What the interval of gamma says, gamma free to be negative."""

    CONCAVE = "lognormal or another concave law"
    ZIPF = "cannot be told from Zipf's law"
    CONVEX = "convex: neither lognormal nor Zipf"
    UNKNOWN = "no interval: fewer than 10 documents"


Kl = Annotated[float, Column("KL divergence of the observed ranks from it beyond sampling noise, nats per token")]


@dataclass(kw_only=True)
class SummaryRow(OfSize):
    """One measurement in short."""

    best: Annotated[str, Column("of 9 candidates, that with the lowest AIC")]
    kl_best: Kl
    kl_lognormal: Kl
    kl_zipf: Kl
    gamma: Annotated[Interval, Column("in ln P(k) = const - beta ln k - gamma ln^2 k", title="γ", form=".4f")]
    shape: Annotated[Shape, Column("what the interval of gamma says")]
    mu_over_sigma: Annotated[float, Column("of the lognormal, where gamma lies above 0", title="μ/σ", form=".2f")]


@dataclass(kw_only=True)
class LognormalRow(OfSize):
    """The lognormal of one measurement, and what it implies."""

    beta: Annotated[Interval, Column("1 - mu/sigma^2, with gamma free to be negative", "β", form=".3f", low=_LOW)]
    gamma: Annotated[Interval, Column("1/(2 sigma^2), free to be negative", "γ", form=".4f", low=_LOW)]
    interval_from: Annotated[str, Column("documents resampled; without ranks, Fisher information, a design effect")]
    power_law_limit: Annotated[bool, Column("gamma's interval reaches 0 or below: mu, sigma are not identifiable")]
    mu: Annotated[float, Column("of the lognormal", title="μ")] = NAN
    sigma: Annotated[float, Column("of the lognormal", title="σ")] = NAN
    mu_over_sigma: Annotated[Interval, Column("their ratio", title="μ/σ", low=_LOW)] = UNKNOWN
    entropy: Annotated[float, Column("entropy of the observed ranks, plug-in", unit="nats")]
    entropy_miller_madow: Annotated[float, Column("the same, corrected for its downward bias")]
    entropy_implied: Annotated[float, Column("entropy of the fitted lognormal, exact sum")]
    entropy_integral: Annotated[float, Column("the appendix's integral approximation of it, for comparison")] = NAN
    neg_log_p1: Annotated[float, Column("observed -ln RBP_1")]
    neg_log_p1_implied: Annotated[float, Column("of the fitted lognormal, exact sum")]
    neg_log_p1_integral: Annotated[float, Column("the appendix's approximation, to compare; below 0: p_1 > 1")] = NAN
    neg_log_p1_corrected: Annotated[float, Column("the same with the terms at k = 1 that the integral drops")] = NAN
    square_term: Annotated[float, Column("mu^2/(2 sigma^2): with ln c it is -ln p_1 in the paper's appendix B.4")] = NAN
    log_c: Annotated[float, Column("ln of the sum over 1..|V| of exp(-(ln k - mu)^2/(2 sigma^2))/k, exact")] = NAN
    log_c_integral: Annotated[float, Column("ln[sigma sqrt(2 pi) Phi(mu/sigma)]: the appendix's integral for it")] = NAN
    kl_floor: Annotated[float, Column("KL per token that as many independent tokens from the best candidate show")]


@dataclass(kw_only=True)
class CandidateRow(OfSize):
    """One candidate fitted to one measurement."""

    candidate: Annotated[str, Column("the distribution, truncated to 1..V")]
    parameters: Annotated[int, Column("how many")]
    kl: Annotated[float, Column("KL divergence of the observed ranks from it, nats per token")]
    ks: Annotated[float, Column("max over k of |RBP_k fitted - RBP_k observed|: the discrete KS distance")]
    ks_at: Annotated[int, Column("the k of that maximum")]
    aic_above_best: Annotated[float, Column("AIC minus the least of the candidates; takes tokens for independent")]
    vuong_z: Annotated[float, Column("against the lognormal, clustered by document; positive: better than it")]
    nested: Annotated[bool, Column("holds the lognormal or is a case of it: z is not normal")]
    values: Annotated[str, Column("the fitted parameters, as named in rbptrack/stats/rank_distributions.py")]


@dataclass(kw_only=True)
class TrendRow(OfFamily):
    """How one quantity changes with size."""

    quantity: Annotated[str, Column("what changes with S")]
    sizes: Annotated[int, Column("how many: every one")]
    slope: Annotated[Interval, Column(_SLOPE, low=_SCATTER)]
    r2: Annotated[float, Column("of a line in ln S through the sizes that have the quantity; of the law", title="R²")]
    r2_in_s: Annotated[float, Column("of a line in S instead of ln S", title="R² in S")]


@dataclass(frozen=True)
class Loaded(Pooled):
    """One run's ranks: the histogram, and where ranks are stored each document's tokens as weights of the nodes."""

    histogram: RankHistogram
    documents: FloatArray | None

    def in_groups(self, groups: Sequence[str]) -> "Loaded":
        """By source in place of document."""
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
        trends = [list(self._trends(*one)) for one in fitted]
        rows = [row for *_, mine in fitted for row in mine]
        report.findings += [finding for one in fitted for finding in _shapes(*one)]
        report.findings += [_distribution(*one, slopes) for one, slopes in zip(fitted, trends, strict=True)]
        report.add_rows("summary", (row for one in fitted for row in _summary_rows(*one)))
        report.add_rows("lognormal", rows)
        report.add_rows("candidates", candidates)
        report.add_rows("trends", (row for mine in trends for row in mine))
        for quantity in ("beta", "gamma", "mu_over_sigma"):
            report.add_metrics(f"lognormal_{quantity}/{{family}}/{{dataset}}/{{size}}", rows, quantity)
        report.add_metrics("kl_{candidate}/{family}/{dataset}/{size}", candidates, "kl")
        report.drawings = _drawings([one[:2] for one in fitted], report.tables["lognormal"].frame)
        return report

    def _fitted(self, runs: Runs, notes: list[str]) -> Iterator[tuple[Family, list[RanksOfSize]]]:
        """Each family with those of its sizes to which something can be fitted."""

        def load(_: Family, run_id: str) -> Loaded:
            histogram = runs.histogram(run_id)
            support = Support.nodes(histogram.vocab_size)
            projected = []
            try:
                for piece in runs.rank_pieces(run_id):
                    present, document = piece.documents
                    projected.append(support.project_groups(document, piece.rank, groups=len(present)))
            except Unreadable:
                return Loaded(histogram, None)
            return Loaded(histogram, np.concatenate(projected))

        for family, loaded in read_families(runs, load, notes):
            sizes: list[RanksOfSize] = []
            fitted: list[float] = []
            every = fit_all([one.histogram for one in loaded])
            for one, fits, params, label in zip(loaded, every, family.s, family.labels, strict=True):
                effect = _design_effect(family.rows[family.rows["non_embedding_params"] == params])
                about: Any = {"effect": effect, "seed": int(params)}  # sizes apart: not paired
                about |= {"level": self.level, "replicates": self.replicates}
                try:
                    sizes.append(fit_size(one.histogram, one.documents, fits, **about))
                    fitted.append(params)
                except RbptrackError as error:
                    notes.append(f"{family}, {label}: {error}.")
            if sizes:
                yield _only(family, fitted), sizes

    def _candidate_rows(self, family: Family, sizes: list[RanksOfSize]) -> Iterator[CandidateRow]:
        for keys, size in zip(family.size_keys, sizes, strict=True):
            for name, fit in size.fits.items():
                cells: Any = {"kl": fit.kl, "ks": fit.ks, "ks_at": fit.ks_at, "nested": name in NESTED}
                cells |= {"aic_above_best": fit.aic - size.best.aic, "vuong_z": size.vuong.get(name, NAN)}
                values = ", ".join(f"{key} = {value:.6g}" for key, value in fit.parameters.items())
                yield CandidateRow(**keys, candidate=name, parameters=len(fit.parameters), **cells, values=values)

    def _trends(self, family: Family, sizes: list[RanksOfSize], rows: list[LognormalRow]) -> Iterator[TrendRow]:
        """Beta, gamma and mu/sigma against ln S, and the exponents of the measured and the implied curves."""
        if len(rows) < 3:
            return
        mine, known = pd.DataFrame(map(cells_of, rows)), not any(np.isnan(size.gamma.low) for size in sizes)
        theta, draws = np.stack([size.free for size in sizes]), np.stack([size.draws for size in sizes])
        trend = lognormal_trend(family.s, theta, draws, level=self.level)
        keys: Any = family.keys | {"sizes": len(sizes)}
        for quantity in ("beta", "gamma", "mu_over_sigma"):
            if slope := getattr(trend, quantity):
                r2, in_s = _r2(mine, quantity)
                shown = slope if known else Interval(slope.value)
                yield TrendRow(**keys, quantity=quantity, slope=shown, r2=r2, r2_in_s=in_s)
        for quantity in ("entropy", "entropy_implied", "neg_log_p1", "neg_log_p1_implied"):
            law = fit_power_law(family.s, mine[quantity].to_numpy(float), level=self.level)
            slope = Interval(-law.alpha, -law.high, -law.low)
            yield TrendRow(**keys, quantity=quantity, slope=slope, r2=law.r2, r2_in_s=NAN)


def _lognormal_rows(family: Family, sizes: list[RanksOfSize]) -> list[LognormalRow]:
    return [_lognormal_row(keys, size) for keys, size in zip(family.size_keys, sizes, strict=True)]


def _lognormal_row(keys: dict[str, Any], size: RanksOfSize) -> LognormalRow:
    h, implied = size.histogram, size.fits["lognormal"]
    share = h.count / h.num_tokens
    entropy = float(-share @ np.log(share))
    row = LognormalRow(
        **keys, beta=size.beta, gamma=size.gamma, interval_from=size.interval_from, power_law_limit=size.limit,
        entropy=entropy, entropy_miller_madow=entropy + (len(h.rank) - 1) / (2 * h.num_tokens),
        entropy_implied=implied.entropy, neg_log_p1=-float(np.log(h.rbp(1))),
        neg_log_p1_implied=-float(implied.log_pmf[0]), kl_floor=size.floor,
    )  # fmt: skip
    if size.limit:
        return row
    sigma = float(1 / np.sqrt(2 * size.free[1]))
    mu = float((1 - size.free[0]) * sigma**2)
    about, square = integral_approximation(mu, sigma), mu**2 / (2 * sigma**2)
    return replace(
        row, mu=mu, sigma=sigma, mu_over_sigma=Interval(mu / sigma, *size.ratio), square_term=square,
        entropy_integral=about.entropy, neg_log_p1_integral=about.neg_log_p1,
        neg_log_p1_corrected=about.neg_log_p1_corrected,
        log_c=row.neg_log_p1_implied - square, log_c_integral=about.neg_log_p1 - square,
    )  # fmt: skip


def _shape(gamma: Interval) -> Shape:
    if np.isnan(gamma.low):
        return Shape.UNKNOWN
    return {Verdict.NO: Shape.CONVEX, Verdict.YES: Shape.CONCAVE}.get(by_sign(gamma), Shape.ZIPF)


def _summary_rows(family: Family, sizes: list[RanksOfSize], rows: list[LognormalRow]) -> Iterator[SummaryRow]:
    for keys, size, row in zip(family.size_keys, sizes, rows, strict=True):
        kl: Any = {f"kl_{name}": size.fits[name].kl - size.floor for name in ("lognormal", "zipf")}
        kl |= {"kl_best": size.best.kl - size.floor, "best": size.best.candidate.label}
        ratio = row.mu_over_sigma.value
        yield SummaryRow(**keys, **kl, gamma=row.gamma, shape=_shape(row.gamma), mu_over_sigma=ratio)


def _shapes(family: Family, sizes: list[RanksOfSize], rows: list[LognormalRow]) -> Iterator[Finding]:
    """Of each measurement, whether the distribution of its ranks is concave, as a lognormal's is."""
    verdicts = {Shape.CONCAVE: Verdict.YES, Shape.CONVEX: Verdict.NO}
    for size, row in zip(sizes, rows, strict=True):
        about = {"best": size.best.candidate.label, "ks": size.fits["lognormal"].ks, "candidates": len(CANDIDATES)}
        shape, case = _shape(row.gamma), row.case(size=row.size)
        verdict = verdicts.get(shape, Verdict.UNTOLD)
        yield Finding(
            question="shape of the ranks", case=case, verdict=verdict, reason=shape.value, extras=about,
            **around(row.gamma),
        )  # fmt: skip


def _distribution(
    family: Family, sizes: list[RanksOfSize], rows: list[LognormalRow], trends: Sequence[TrendRow]
) -> Finding:
    """Of a family: which candidate is nearest, and what the fitted lognormals imply."""
    names = [size.best.candidate.name for size in sizes]
    best = max(dict.fromkeys(names), key=names.count)
    scores = [size.vuong[best] for size in sizes if best in size.vuong]
    slopes = {one.quantity: one for one in trends}
    off = [row.neg_log_p1_integral - row.neg_log_p1_implied for row in rows]
    identified = [row for row in rows if np.isfinite(row.square_term)]
    about: dict[str, Any] = {
        "sizes": family.labels,
        "best": CANDIDATES[best].label,
        "times": names.count(best),
        "kl": {n: [s.fits[n].kl - s.floor for s in sizes] for n in dict.fromkeys((best, "lognormal", "zipf"))},
        "nearest": best,
        "ks": max((s.fits["lognormal"].ks, s.fits["lognormal"].ks_at) for s in sizes),
        "vuong": min(scores) if scores else NAN,
        "entropy_off": [row.entropy_implied - row.entropy for row in rows],
        "p1_off": [row.neg_log_p1_implied / row.neg_log_p1 - 1 for row in rows],
        "exponents": [-slopes[n].slope.value for n in ("neg_log_p1", "neg_log_p1_implied") if n in slopes],
        "integral_off": max((abs(v) for v in off if v == v), default=NAN),
        "terms": [(row.size, row.square_term, row.log_c, row.neg_log_p1_implied) for row in identified],
    }
    ratio = slopes.get("mu_over_sigma")
    number = around(ratio.slope if ratio else UNKNOWN)
    return Finding(question="distribution of ranks", case=family.keys, extras=about, **number)


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
            "(Zipf's law), mu/sigma is not identifiable and not drawn.",
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
    """R^2 of a line in ln S, and in S, over the sizes that have the quantity; NaN where they are fewer than 3."""
    known = table[table[quantity].notna()]
    if len(known) < 3:
        return np.nan, np.nan
    s, y = known["S"].to_numpy(float), known[quantity].to_numpy(float)
    return tuple(float(straight_line(x, y).r2) for x in (np.log(s), s))  # type: ignore[return-value]


def _design_effect(rows: pd.DataFrame) -> float:
    """How many times the variance of independent tokens the logged RBP_k have: mean over the logged k, at least 1."""
    effects = [1.0]
    for column in (c for c in rows.columns if c.startswith("rbp_") and f"{c}_se" in rows.columns):
        p, se = rows[column].mean(), rows[f"{column}_se"].mean()
        if pd.notna(p) and pd.notna(se) and 0 < p < 1:
            effects.append(float(se**2 * rows["num_tokens"].sum() / (p * (1 - p))))
    return max(1.0, float(np.mean(effects[1:] or effects)))
