"""How uncertain published exponents are. Only their value and R^2 are printed."""

from __future__ import annotations

import numpy as np


def rounding_se(unit: float) -> float:
    """Return standard error of a number that was rounded to a multiple of a unit.

    Source: the standard deviation of a uniform distribution on -unit/2 .. unit/2.
    """
    return float(unit / 2 / np.sqrt(3))


def implied_se(alpha: float, r2: float, points: int, *, unit: float) -> float:
    """Return standard error of a published least-squares slope, from its R^2 and number of points.

    se = |alpha| sqrt((1 - R^2) / R^2 / (m - 2)), with the lowest R^2 that rounds to the published one, and the slope's
    own rounding added in quadrature.

    Source: R^2 = t^2 / (t^2 + m - 2) with t = alpha / se, for simple linear regression.

    Args:
        alpha: the slope.
        r2: coefficient of determination, as printed.
        points: m.
        unit: of the last printed digit of both, such as 0.001.

    """
    lowest = min(max(r2 - unit / 2, 1e-6), 1.0)
    return float(np.hypot(abs(alpha) * np.sqrt((1 - lowest) / lowest / max(points - 2, 1)), rounding_se(unit)))
