"""Laws in size and training tokens together, over checkpoints.

    y(S, D) = E + A S^-alpha + B D^-beta                      (Hoffmann et al. 2022, arXiv 2203.15556, eq. 2)

for any metric y (CE, or -ln RBP_k). At a given compute C = 6 S D the least y lies at

    S*(C) = G (C / 6)^(beta / (alpha + beta)),   D*(C) = (C / 6) / S*,   G = (alpha A / (beta B))^(1 / (alpha + beta))

Checkpoints of one model share its seed and recipe, so their errors go together: a scatter between models and one
between checkpoints of a model, both estimated from the residuals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from rbptrack.analysis import RbptrackError
from rbptrack.ranks import FloatArray
from rbptrack.stats.intervals import Interval

WORST_CONDITION = 25.0
"""Beyond it size and tokens go together, and their exponents cannot be separated (`design_condition`)."""

NAMES = ("log_e", "log_a", "alpha", "log_b", "beta")
_STARTS = [(share, alpha, beta) for share in (0.05, 0.4, 0.8) for alpha in (0.15, 0.5) for beta in (0.15, 0.5)]


@dataclass(frozen=True)
class TrainingLaw:
    """y = E + A S^-alpha + B D^-beta.

    Attributes:
        e: E, in y's unit; 0 where the points need none.
        alpha: exponent of size.
        beta: exponent of tokens.
        optimal: exponent a of S*(C) ~ C^a: beta / (alpha + beta).
        between: scatter between models, in ln y.
        within: scatter between checkpoints of a model, in ln y.
        r2: R^2 of ln y.
        points: checkpoints fitted.
        models: models fitted.
        agreed: whether the starts that came near the optimum ended at the same exponents.
        parameters: log_e, log_a, alpha, log_b, beta for S and D over their geometric means, (5,).
        centre: ln of those geometric means, (2,).

    """

    e: float
    alpha: Interval
    beta: Interval
    optimal: Interval
    between: float
    within: float
    r2: float
    points: int
    models: int
    agreed: bool
    parameters: FloatArray
    centre: FloatArray

    def predict(self, s: npt.ArrayLike, d: npt.ArrayLike) -> FloatArray:
        """Return the law's y at sizes s and tokens d."""
        x = np.log(np.asarray(s, dtype=np.float64)) - self.centre[0]
        t = np.log(np.asarray(d, dtype=np.float64)) - self.centre[1]
        return np.asarray(np.exp(_log_law(self.parameters, x, t)))

    def optimal_size(self, c: npt.ArrayLike) -> FloatArray:
        """Return S*(C), the size of least y at compute C = 6 S D."""
        _, log_a, alpha, log_b, beta = self.parameters
        x0, t0 = self.centre
        log_g = (np.log(alpha / beta) + (log_a + alpha * x0) - (log_b + beta * t0)) / (alpha + beta)
        return np.asarray(np.exp(log_g + beta / (alpha + beta) * np.log(np.asarray(c, dtype=np.float64) / 6)))


def design_condition(s: npt.ArrayLike, d: npt.ArrayLike) -> float:
    """Return the condition number of (ln S, ln D), centred: how far checkpoints can tell size and tokens apart.

    Infinite on a ray, D = k S, as compute-optimal training has it. In simulation the optimum's exponent has a standard
    error of .02 at 6, .08 at 22 and .15 at 93; on the ray its interval is narrow and wrong.

    Source: arXiv 2605.08541.
    """
    logs = np.log(np.column_stack([s, d]).astype(np.float64))
    largest, smallest = np.linalg.svd(logs - logs.mean(axis=0), compute_uv=False)
    return float(largest / smallest) if smallest > 1e-9 * largest else float("inf")


def fit_training_law(s: npt.ArrayLike, d: npt.ArrayLike, y: npt.ArrayLike, *, level: float = 0.95) -> TrainingLaw:
    """Fit y = E + A S^-alpha + B D^-beta on logarithms, from several starts.

    Intervals are t with models - 3 degrees of freedom (models alone tell E, A and alpha), on a covariance that lets all
    checkpoints of a model move together: (J' J)^-1 J' V J (J' J)^-1 with V = between^2 (same model) + within^2 I.

    Source: Hoffmann et al. 2022, arXiv 2203.15556, eq. 2, fitted on logarithms as there.

    Args:
        s: size S of each checkpoint, (n,).
        d: training tokens D of each, (n,).
        y: positive values, (n,).
        level: nominal coverage.

    Raises:
        RbptrackError: fewer than 3 sizes, 3 values of D or 8 points, values that are not positive, or sizes and tokens
            that go together.

    """
    size, tokens, values = (np.asarray(v, dtype=np.float64) for v in (s, d, y))
    if len(np.unique(size)) < 3 or len(np.unique(tokens)) < 3 or len(size) < 8:
        raise RbptrackError(
            f"a law in S and D needs 3 sizes, 3 values of D and 8 checkpoints; got {len(np.unique(size))}, "
            f"{len(np.unique(tokens))} and {len(size)}"
        )
    if not all(np.isfinite(v).all() and (v > 0).all() for v in (size, tokens, values)):
        raise RbptrackError("a law in S and D needs positive, finite values")
    if (condition := design_condition(size, tokens)) > WORST_CONDITION:
        raise RbptrackError(
            f"tokens go with sizes (condition {condition:.3g}, at most {WORST_CONDITION:g}; D / S from "
            f"{(tokens / size).min():.3g} to {(tokens / size).max():.3g}): their exponents cannot be separated"
        )
    centre = np.array([np.log(size).mean(), np.log(tokens).mean()])
    x = np.log(size) - centre[0]
    t = np.log(tokens) - centre[1]
    logs = np.log(values)
    fits = [_from(start, x, t, logs) for start in _STARTS]
    best = min(fits, key=lambda f: float(f.cost))
    near = [f.x for f in fits if f.cost <= best.cost * 1.002 + 1e-12]
    residual = logs - _log_law(best.x, x, t)
    _, member = np.unique(size, return_inverse=True)
    between2, within2 = _clustered(residual, member, len(best.x))
    jacobian = np.asarray(best.jac)[: len(logs)]
    bread = np.linalg.pinv(jacobian.T @ jacobian, rcond=1e-10)
    same = (member[:, None] == member[None, :]).astype(np.float64)
    variance = bread @ jacobian.T @ (between2 * same + within2 * np.eye(len(logs))) @ jacobian @ bread
    models = int(member.max()) + 1
    quantile = float(special.stdtrit(max(1, models - 3), 0.5 + level / 2))
    _, _, alpha, _, beta = best.x
    gradient = np.zeros((3, 5))
    gradient[0, 2] = gradient[1, 4] = 1.0
    gradient[2, 2] = -beta / (alpha + beta) ** 2
    gradient[2, 4] = alpha / (alpha + beta) ** 2
    half = quantile * np.sqrt(np.maximum(np.diag(gradient @ variance @ gradient.T), 0))
    at = np.array([alpha, beta, beta / (alpha + beta)])
    first, second, optimal = map(Interval.around, at.tolist(), half.tolist())
    total = float(np.sum((logs - logs.mean()) ** 2))
    e = float(np.exp(best.x[0]))
    return TrainingLaw(
        e=0.0 if e < 1e-4 * values.min() else e,
        alpha=first,
        beta=second,
        optimal=optimal,
        between=float(np.sqrt(between2)),
        within=float(np.sqrt(within2)),
        r2=1 - float(residual @ residual) / total if total > 0 else float("nan"),
        points=len(logs),
        models=models,
        agreed=len(near) >= 2 and bool(np.ptp(np.array(near)[:, [2, 4]], axis=0).max() < 0.02),
        parameters=best.x,
        centre=centre,
    )


def _log_law(p: FloatArray, x: FloatArray, t: FloatArray) -> FloatArray:
    return np.asarray(np.logaddexp(np.logaddexp(p[0], p[1] - p[2] * x), p[3] - p[4] * t))


def _from(start: tuple[float, float, float], x: FloatArray, t: FloatArray, logs: FloatArray) -> optimize.OptimizeResult:
    share, alpha, beta = start
    least = float(logs.min())
    middle = float(np.exp(logs.mean()))
    rest = np.log(max(middle - share * np.exp(least), 0.05 * middle) / 2)
    guess = np.array([np.log(share) + least, rest, alpha, rest, beta])
    low = np.array([least - 15, least - 15, 1e-3, least - 15, 1e-3])
    high = np.array([least, logs.max() + 15, 5.0, logs.max() + 15, 5.0])
    return optimize.least_squares(
        lambda p: logs - _log_law(p, x, t), np.clip(guess, low + 1e-9, high - 1e-9), bounds=(low, high), x_scale="jac"
    )


def _clustered(residual: FloatArray, member: npt.NDArray[np.int_], parameters: int) -> tuple[float, float]:
    """Return variance between models and within, by moments, with the parameters taken off the degrees of freedom."""
    groups = int(member.max()) + 1
    times = np.bincount(member)
    means = np.bincount(member, weights=residual) / times
    n = len(residual)
    within = float(np.sum((residual - means[member]) ** 2)) / max(1, n - groups - (parameters - 2))
    between = float(np.sum(times * means**2)) / max(1, groups - 3)
    return max(0.0, (between - within) / float(times.mean())), within
