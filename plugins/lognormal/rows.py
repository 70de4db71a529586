"""Rows of the tables of the distribution of ranks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from rbptrack.analysis.rows import UNKNOWN, Column, OfFamily, OfSize
from rbptrack.stats.intervals import Interval

NAN = float("nan")
_LOW = "lower end of its interval (see interval_from)"
_SLOPE = "per unit of ln S; of entropy and -ln RBP_1 minus the exponent of A S^-alpha"
_SCATTER = "lower end of its interval (scatter between models, sampling error)"


class Shape(StrEnum):
    """What the interval of gamma says, gamma free to be negative."""

    CONCAVE = "lognormal or another concave law"
    ZIPF = "undecided against Zipf's law"
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
    values: Annotated[str, Column("the fitted parameters, as named in plugins/lognormal/rank_distributions.py")]


@dataclass(kw_only=True)
class TrendRow(OfFamily):
    """How one quantity changes with size."""

    quantity: Annotated[str, Column("what changes with S")]
    sizes: Annotated[int, Column("how many: every one")]
    slope: Annotated[Interval, Column(_SLOPE, low=_SCATTER)]
    r2: Annotated[float, Column("of a line in ln S through the sizes that have the quantity; of the law", title="R²")]
    r2_in_s: Annotated[float, Column("of a line in S instead of ln S", title="R² in S")]
