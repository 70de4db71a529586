"""RBP_k at equal cross-entropy: whether families lie on one curve, and which of the two predicts an outcome better."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from rbptrack.ranks import FloatArray, IntArray
from rbptrack.stats.linear import least_squares


@dataclass(frozen=True)
class Collapse:
    """One curve of ln y over ln CE through the points of all series, and how far each series lies from it.

    Attributes:
        points: how many.
        explained: share of the variance of ln y that the curve explains.
        left: root mean square of what it leaves.
        apart: of each series, at equal loss: its ln y less the mean of all series, (series,).
        half: half the widths of their intervals, (series,); NaN where too few points are left.
        p: of no difference between series at equal loss; NaN for one series.

    """

    points: int
    explained: float
    left: float
    apart: FloatArray
    half: FloatArray
    p: float


@dataclass(frozen=True)
class Resampled:
    """The points of a curve in document bootstraps.

    Attributes:
        ce: (replicates, points).
        y: (replicates, points).
        documents: how many the smallest text has, or as many equal ones as decide it.

    """

    ce: FloatArray
    y: FloatArray
    documents: float


def collapse(
    ce: FloatArray, y: FloatArray, series: IntArray, *, level: float = 0.95, resampled: Resampled | None = None
) -> Collapse:
    """Fit a parabola (a line through fewer than 6 points) in ln CE, with and without an offset of each series.

    A point has a CE, a y = -ln RBP_k and the number of its series (a family at a checkpoint on a dataset), (points,).
    Models scatter independently about the curve; documents, which all sizes of a series share, move it as a whole, and
    no scatter about the curve shows that: the offsets' covariance over bootstraps is added.

    Source: the test of nested least squares (Fisher, Statistical Methods for Research Workers, 1925, section 41) as a
    Wald test of the offsets, with degrees of freedom of the sum of two covariances (Satterthwaite, Biometrics Bulletin
    2, 1946), and Hotelling's F for several offsets (Annals of Mathematical Statistics 2, 1931).
    """
    x = np.log(ce)
    y = np.log(y)
    centre = x.mean()
    width = max(float(np.ptp(x)), np.finfo(np.float64).tiny)
    several = int(series.max()) + 1
    # Each series' offset from the mean of all: the last is minus the sum of the others.
    code = np.vstack([np.eye(several - 1), -np.ones(several - 1)])
    powers = np.arange(3 if len(x) >= 6 else 2)

    def curve_of(log_ce: FloatArray) -> FloatArray:
        return np.asarray(((log_ce - centre) / width)[..., None] ** powers)

    design = np.concatenate([curve_of(x), code[series]], axis=-1)
    _, left = least_squares(design[:, : len(powers)], y)
    slopes, rest = least_squares(design, y)
    variation = float(np.sum((y - y.mean()) ** 2))
    explained = 1 - float(left @ left) / variation if variation > 0 else float("nan")
    apart = np.zeros(several)
    half = np.full(several, np.nan)
    p = float("nan")
    freedom = len(y) - int(np.linalg.matrix_rank(design))
    if several > 1:
        apart = code @ slopes[len(powers) :]
    if several > 1 and freedom > 0:
        offsets = slopes[len(powers) :]
        inverse = np.linalg.pinv(design.T @ design)[len(powers) :, len(powers) :]
        scatter = float(rest @ rest) / freedom * inverse
        sampling = np.zeros_like(scatter)
        documents = np.inf
        if resampled:
            usable = (np.isfinite(resampled.y) & (resampled.y > 0)).all(axis=1)
            curves = curve_of(np.log(resampled.ce[usable]))[..., 1:]
            drawn = offsets_of(curves, np.log(resampled.y[usable]), series)
            sampling = np.atleast_2d(np.cov(drawn[:, :-1], rowvar=False))
            documents = resampled.documents
        half = np.array([_half(row, scatter, sampling, freedom, documents, level) for row in code])
        p = _wald_p(offsets, scatter, sampling, freedom, documents)
    return Collapse(len(y), explained, float(np.sqrt(np.mean(left**2))), apart, half, p)


def offsets_of(curves: FloatArray, y: FloatArray, series: IntArray) -> FloatArray:
    """Return each series' offset from the mean of all, (replicates, series), where all follow one curve.

    Source: least squares with a constant for each series, which its means take out of every other column (Frisch and
    Waugh, Econometrica 1, 1933).

    Args:
        curves: the terms that all series share, without a constant, (replicates, points, terms).
        y: (replicates, points).
        series: the number of each point's series, (points,).

    """
    members = np.eye(int(series.max()) + 1)[series]
    means = (members / members.sum(axis=0)).T
    mean_y = y @ means.T
    mean_curves = means @ curves
    within = np.linalg.pinv(curves - mean_curves[:, series])
    slopes = within @ (y - mean_y[:, series])[..., None]
    levels = mean_y - (mean_curves @ slopes)[..., 0]
    return np.asarray(levels - levels.mean(axis=1, keepdims=True))


def _joint_freedom(scatter: float, sampling: float, freedom: float, documents: float) -> float:
    """Return degrees of freedom of a sum of two variances; the second comes from so many documents."""
    parts = scatter**2 / freedom + sampling**2 / max(documents - 1, 1)
    return (scatter + sampling) ** 2 / parts if parts > 0 else freedom


def _half(
    contrast: FloatArray, scatter: FloatArray, sampling: FloatArray, freedom: float, documents: float, level: float
) -> float:
    """Return half the width of the interval of one series' offset."""
    by_models = float(contrast @ scatter @ contrast)
    by_documents = float(contrast @ sampling @ contrast)
    joint = _joint_freedom(by_models, by_documents, freedom, documents)
    return float(special.stdtrit(joint, 0.5 + level / 2) * np.sqrt(by_models + by_documents))


def _wald_p(offsets: FloatArray, scatter: FloatArray, sampling: FloatArray, freedom: float, documents: float) -> float:
    """Return P of offsets that are all 0."""
    count = len(offsets)
    distance = float(offsets @ np.linalg.pinv(scatter + sampling) @ offsets) / count
    joint = _joint_freedom(float(np.trace(scatter)), float(np.trace(sampling)), freedom, documents)
    if sampling.any():  # a covariance estimated in every direction; the scatter's shape is known
        left = max(joint - count + 1, 1.0)
        return float(special.fdtrc(count, left, distance * left / joint))
    return float(special.fdtrc(count, joint, distance))


def held_out_errors(x: FloatArray, y: FloatArray, groups: IntArray) -> FloatArray:
    """Return error of y at each point, predicted by a line in x through the points of all other groups, (points,).

    Groups of one point each leave sizes out; groups of a family's points leave families out. NaN where the others hold
    fewer than 3 points or one x only.

    Source: cross-validation (Stone, Journal of the Royal Statistical Society B 36, 1974).
    """
    errors = np.full(len(x), np.nan)
    for group in np.unique(groups):
        kept = groups != group
        if kept.sum() >= 3 and np.ptp(x[kept]) > 0:
            slope, level = np.polyfit(x[kept], y[kept], 1)
            errors[~kept] = level + slope * x[~kept] - y[~kept]
    return errors


@dataclass(frozen=True)
class Leaning:
    """Towards which of two predictors an outcome leans: whether one of them tells more of it than the other.

    If both only repeat one quantity, each with errors of its own and equally large, then what their mean leaves of the
    outcome does not go with their difference, whichever sign that has.

    Attributes:
        lean: above 0 towards the first, below 0 towards the second.
        p: of a lean of 0.

    """

    lean: float
    p: float

    @classmethod
    def across(cls, first: FloatArray, second: FloatArray, y: FloatArray, families: IntArray) -> Leaning:
        """Test with one law for all families: the difference changes its sign for all points of a family together.

        Points of a family share what sets it apart, so they are never flipped one by one; p is at least
        2^(1 - families).

        Source: Fisher's randomisation test (The Design of Experiments, 1935, section 21), whole clusters at a time.
        """
        _, gap, rest = _sum_gap_rest(first, second, y)
        parts = np.array([(gap * rest)[families == family].sum() for family in np.unique(families)])
        return cls(float(parts.sum()), sign_flip_p(parts))

    @classmethod
    def within(cls, first: FloatArray, second: FloatArray, y: FloatArray, families: IntArray) -> Leaning:
        """Test with a law of its own for each family: the t test of the difference beside the mean.

        The error of its coefficient allows for points that scatter differently; a family of fewer than 4 points tells
        nothing.

        Source: the test of one of two rival regressors (Hotelling, Annals of Mathematical Statistics 11, 1940), with
        the standard error HC3 of MacKinnon and White, Journal of Econometrics 29, 1985.
        """
        members = [families == family for family in np.unique(families)]
        parts = [_sum_gap_rest(first[own], second[own], y[own]) for own in members if own.sum() >= 4]
        if not parts:
            return cls(0.0, 1.0)
        hat = np.concatenate([1 / len(total) + total**2 for total, _, _ in parts])
        gap, rest = (np.concatenate([_unit(part[i]) for part in parts]) for i in (1, 2))
        square = float(gap @ gap)
        lean = float(gap @ rest) / square if square else 0.0
        left = (rest - lean * gap) / np.maximum(1 - hat - gap**2 / max(square, _TINY), 0.02)
        error = float(np.sqrt(np.sum((gap * left) ** 2))) / max(square, _TINY)
        freedom = len(gap) - 2 * len(parts) - 1
        return cls(lean, float(2 * special.stdtr(freedom, -abs(lean) / error)) if error > 0 else 1.0)


_TINY = float(np.finfo(np.float64).tiny)


def _sum_gap_rest(first: FloatArray, second: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the sum of two predictors at one scale (of length 1), their difference, and what the sum leaves of y."""
    a, b, y = (values - values.mean() for values in (first, second, y))
    a, b = (_unit(x) * np.sign(x @ y) for x in (a, b))
    total = _unit(a + b)
    return total, a - b, y - total * (total @ y)


def _unit(values: FloatArray) -> FloatArray:
    return np.asarray(values / max(float(np.sqrt(values @ values)), _TINY))


def sign_flip_p(differences: FloatArray, *, draws: int = 9999) -> float:
    """Return P of a sum of 0 if each difference could as well have had the other sign; exact for up to 13 of them.

    Source: Fisher's randomisation test (The Design of Experiments, 1935, section 21).
    """
    n = len(differences)
    least = abs(differences.sum()) * (1 - 1e-12)
    if n <= 13:
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return float(np.mean(np.abs(signs @ differences) >= least))
    signs = np.random.default_rng(n).choice([-1, 1], size=(draws, n))
    return float((1 + np.sum(np.abs(signs @ differences) >= least)) / (draws + 1))


def families_needed(cases: int, level: float) -> int:
    """Return whole families that signs must be flipped of, so that the smallest p, 2^(1 - F), passes `cases` corrected
    tests.

    Source: `Leaning.across`; corrected as Holm does the smallest p.
    """
    return int(np.ceil(np.log2(2 * cases / (1 - level)) - 1e-9))


@dataclass(frozen=True)
class Prediction:
    """Shares of whole sequences of left-out models, predicted by CE and by RBP_k.

    Attributes:
        points: predictions made.
        families: number of families of the points.
        error_ce: root mean square error of ln(-ln share), by a line in ln CE.
        error_rbp: the same, by a line in ln(-ln RBP_k).
        p: of outcomes that lean to neither.
        better: `RBP_k` or `CE`; `undecided` where the errors and what the outcomes lean to disagree.

    """

    points: int
    families: int
    error_ce: float
    error_rbp: float
    p: float
    better: str


def predict_left_out(
    share: FloatArray, ce: FloatArray, rbp: FloatArray, families: IntArray, *, sizes: bool
) -> Prediction | None:
    """Predict each size from the others of its family, or each family from the others; None where too little is left.

    Source: `held_out_errors` and `Leaning`.

    Args:
        share: of sequences that succeed, (points,).
        ce: cross-entropy, (points,).
        rbp: RBP_k, (points,).
        families: of the points.
        sizes: whether sizes are left out, each family with a law of its own; else families.

    """
    usable = (share > 0) & (share < 1) & (rbp > 0) & (rbp < 1)
    y = np.log(-np.log(share[usable]))
    families = families[usable]
    predictors = (np.log(ce[usable]), np.log(-np.log(rbp[usable])))
    names = np.unique(families)
    errors = []
    for x in predictors:
        error = np.full(len(y), np.nan) if sizes else held_out_errors(x, y, families)
        for own in (families == family for family in names if sizes):
            error[own] = held_out_errors(x[own], y[own], np.arange(own.sum()))
        errors.append(error)
    made = np.isfinite(errors[0]) & np.isfinite(errors[1])
    if made.sum() < 4 or (not sizes and len(names) < 2):
        return None
    error_ce, error_rbp = (float(np.sqrt(np.mean(error[made] ** 2))) for error in errors)
    leaning = (Leaning.within if sizes else Leaning.across)(*predictors, y, families)
    agrees = (leaning.lean < 0) == (error_rbp < error_ce)
    better = "undecided"
    if agrees:
        better = "RBP_k" if leaning.lean < 0 else "CE"
    return Prediction(int(made.sum()), len(names), error_ce, error_rbp, leaning.p, better)
