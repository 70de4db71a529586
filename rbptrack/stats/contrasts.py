"""Paired contrasts: whether two laws in size have the same exponent, told from the ratio of their values.

Two metrics of the same models over the same documents share most of their error: the same models scatter the same way,
and the same documents are easy or hard. Their ratio is free of what they share, so it tells alpha_a - alpha_b far more
sharply than two intervals beside each other:

    ln(y_a / y_b) = (ln A_a - ln A_b) - (alpha_a - alpha_b) ln S + e
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from rbptrack.errors import RbptrackError
from rbptrack.ranks import FloatArray
from rbptrack.stats.power_law import PowerLawFit
from rbptrack.stats.size_laws import fit_law


@dataclass(frozen=True)
class Contrast:
    """alpha_a - alpha_b, tested for difference and for equivalence.

    Attributes:
        difference: alpha_a - alpha_b.
        low: lower end of its interval.
        high: upper end.
        se: standard error, scatter between models included.
        freedom: degrees of freedom of the t distribution.
        p_different: two-sided p of alpha_a = alpha_b.
        margin: how far apart exponents may lie that count as the same.
        p_equivalent: p of |alpha_a - alpha_b| >= margin (two one-sided tests).
        size: the level of both tests, 1 - level of the interval.

    """

    difference: float
    low: float
    high: float
    se: float
    freedom: int
    p_different: float
    margin: float
    p_equivalent: float
    size: float

    @property
    def verdict(self) -> str:
        """`equivalent`, `different`, `different, but within the margin`, or `not to be told`."""
        different, equivalent = self.p_different < self.size, self.p_equivalent < self.size
        if different and equivalent:
            return "different, but within the margin"
        if different or equivalent:
            return "different" if different else "equivalent"
        return "not to be told"


def ratio_law(
    s: npt.ArrayLike,
    y_a: npt.ArrayLike,
    y_b: npt.ArrayLike,
    draws_a: FloatArray,
    draws_b: FloatArray,
    *,
    level: float = 0.95,
) -> PowerLawFit | None:
    """The law of y_a / y_b in S; its alpha is alpha_a - alpha_b (negative where b falls faster).

    Source: the difference of two laws ln y = ln A - alpha ln S (arXiv 2510.20387).

    Args:
        s: sizes S, (m,).
        y_a: values of the one metric, (m,).
        y_b: values of the other, of the same models, (m,).
        draws_a: document bootstraps of y_a, (m, replicates).
        draws_b: the same draws of documents for y_b, (m, replicates).
        level: nominal coverage of the interval.

    Returns:
        The fit; None where a value or a replicate is not finite and positive.

    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.asarray(y_a, dtype=np.float64) / np.asarray(y_b, dtype=np.float64)
        draws = np.asarray(draws_a / draws_b)
    return fit_law(s, ratio, draws, level=level)


def contrast(law: PowerLawFit, *, margin: float) -> Contrast:
    """Test the exponent of a `ratio_law` for difference from 0 and for equivalence with 0.

    The equivalence test is two one-sided t tests (Schuirmann 1987): equivalent at 5 % exactly where the 90 % interval
    of alpha_a - alpha_b lies within -margin..margin.

    Raises:
        RbptrackError: a margin that is not above 0.

    """
    if not margin > 0:
        raise RbptrackError(f"an equivalence margin must be above 0; got {margin}")
    freedom = law.points - 2
    t = stats.t(freedom)
    size = 1 - law.level
    if law.se == 0:
        equivalent = float(abs(law.alpha) >= margin)
        different = 1.0 if law.alpha == 0 else 0.0
    else:
        different = 2 * float(t.sf(abs(law.alpha) / law.se))
        equivalent = float(t.sf((margin - abs(law.alpha)) / law.se))  # the larger of the two one-sided p
    return Contrast(law.alpha, law.low, law.high, law.se, freedom, different, margin, equivalent, round(size, 12))


def unpaired(a: PowerLawFit, b: PowerLawFit) -> PowerLawFit:
    """alpha_a - alpha_b of laws over different models: a fit whose interval is Welch's, scatter included.

    Families that share no sizes have no ratio; their exponents are then taken as independent, which is conservative
    where they read the same documents. `points` holds the Welch-Satterthwaite degrees of freedom, rounded down, plus 2.

    Source: Welch, Biometrika 34, 1947.
    """
    both = float(np.hypot(a.se, b.se))
    parts = a.se**4 / (a.points - 2) + b.se**4 / (b.points - 2)
    freedom = max(1, int(both**4 / parts)) if parts > 0 else 1
    half = float(stats.t.ppf(0.5 + a.level / 2, freedom)) * both
    difference = a.alpha - b.alpha
    return PowerLawFit(
        alpha=difference,
        log_a=a.log_a - b.log_a,
        low=difference - half,
        high=difference + half,
        level=a.level,
        r2=float("nan"),
        tau=float(np.hypot(a.tau, b.tau)),
        se=both,
        points=freedom + 2,
        centre=(a.centre + b.centre) / 2,
        variance=np.array([[float("nan")] * 2, [float("nan"), both**2]]),
        s=np.empty(0),  # there are no common sizes
        y=np.empty(0),
        covariance=np.empty((0, 0)),
    )
