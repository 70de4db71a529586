"""How well statistics order models by a task's scores, judged by other families, and over training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import special

from rbptrack.ranks import FloatArray


@dataclass(frozen=True)
class Association:
    """How a proxy orders models by their scores.

    Attributes:
        spearman: of the proxy, turned so that better is higher, and the scores.
        low: lower end of its interval, models resampled; NaN with fewer than 10 models.
        high: upper end.
        kendall: tau-b.
        p: exact two-sided p of no association, by tau.

    """

    spearman: float
    low: float
    high: float
    kendall: float
    p: float


def associated(values: FloatArray, scores: FloatArray, *, level: float, replicates: int, seed: int) -> Association:
    """Spearman's and Kendall's correlation of a proxy (turned so that higher is better) with scores, (models,) both.

    NaN where a value is not known, or all are the same.

    Source: Spearman, American Journal of Psychology 15, 1904; Kendall, Biometrika 30, 1938; the percentile interval of
    a bootstrap of models (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13).
    """
    unknown = float("nan")
    if not np.isfinite(values).all() or np.ptp(values) == 0 or np.ptp(scores) == 0:
        return Association(unknown, unknown, unknown, unknown, unknown)
    from scipy import stats  # takes half a second: only where there are scores

    tau = stats.kendalltau(values, scores)
    low = high = unknown
    if len(values) >= 10:
        picks = np.random.default_rng(seed).integers(len(values), size=(replicates, len(values)))
        ranks = [stats.rankdata(numbers[picks], axis=1) for numbers in (values, scores)]
        centred = [rank - rank.mean(axis=1, keepdims=True) for rank in ranks]
        with np.errstate(invalid="ignore"):
            draws = (centred[0] * centred[1]).sum(axis=1) / np.sqrt(
                np.prod([(c**2).sum(axis=1) for c in centred], axis=0)
            )
        tail = (1 - level) / 2
        low, high = map(float, np.nanquantile(draws, [tail, 1 - tail]))
    spearman = float(stats.spearmanr(values, scores).statistic)
    return Association(spearman, low, high, float(tau.statistic), float(tau.pvalue))


@dataclass(frozen=True)
class LeftOut:
    """How well proxies order models of families that did not choose them.

    Attributes:
        right: of pairs of models of two families left out, the share that the proxy chosen by the other families orders
            as the scores do (ties count half).
        fixed: the same for each proxy without a choice, (proxies,).
        chosen: the proxies that were chosen, ascending.
        pairs: how many pairs.

    """

    right: float
    fixed: FloatArray
    chosen: list[int]
    pairs: int


def leave_families_out(values: FloatArray, scores: FloatArray, families: Sequence[str]) -> LeftOut | None:
    """Choose the best proxy without two families, and judge it by the pairs of a model of the one and one of the other.

    Of pairs with one model that took part in the choice, even a proxy of pure noise orders 58% rightly (32 proxies, 16
    models): its place was chosen together with its score. So both models of a pair are left out.

    Args:
        values: of each proxy, turned so that higher is better, (models, proxies).
        scores: of a task, (models,).
        families: of each model.

    Returns:
        None with fewer than three families.

    Source: cross-validation by groups (Stone, Journal of the Royal Statistical Society B 36, 1974).

    """
    family = np.asarray(families)
    first, second = np.triu_indices(len(scores), k=1)
    unequal = scores[first] != scores[second]
    first, second = first[unequal], second[unequal]
    agrees = np.sign(values[first] - values[second]) * np.sign(scores[first] - scores[second])[:, None]
    right = (agrees + 1) / 2  # (pairs, proxies)
    chosen = set[int]()
    hits = 0.0
    fixed = np.zeros(values.shape[1])
    pairs = 0
    for names in combinations(dict.fromkeys(families), 2):
        left = np.isin(family, names)
        choosing = ~left[first] & ~left[second]
        judged = left[first] & left[second] & (family[first] != family[second])
        if choosing.any() and judged.any():
            best = int(np.nanargmax(right[choosing].mean(axis=0)))
            chosen.add(best)
            hits += right[judged, best].sum()
            fixed += right[judged].sum(axis=0)
            pairs += int(judged.sum())
    return LeftOut(hits / pairs, fixed / pairs, sorted(chosen), pairs) if pairs else None


@dataclass(frozen=True)
class Extrapolated:
    """Scores of the second half of a training, forecast from the first half.

    Attributes:
        error: mean |forecast - score| over the second half's checkpoints.
        constant: the same for the last score of the first half: a forecast that nothing changes.
        checkpoints: how many were fitted, and how many forecast.

    """

    error: float
    constant: float
    checkpoints: tuple[int, int]


def extrapolate(tokens: FloatArray, values: FloatArray, scores: FloatArray) -> Extrapolated | None:
    """Fit score against proxy over checkpoints up to half of the training tokens; forecast the later ones.

    The fit is a line in the proxy, kept between 0 and 1 as scores are. None with fewer than three checkpoints before,
    or without one after.

    Args:
        tokens: trained on by each checkpoint, (checkpoints,).
        values: the proxy there, (checkpoints,).
        scores: of the task, from 0 to 1, (checkpoints,).

    Source: least squares; backtesting by a held-out end (Tashman, International Journal of Forecasting 16, 2000).

    """
    early = tokens <= tokens.max() / 2
    if early.sum() < 3 or early.all() or np.ptp(values[early]) == 0:
        return None
    slope, middle = np.polyfit(values[early], scores[early], 1)
    forecast = np.clip(middle + slope * values[~early], 0, 1)
    last = scores[early][np.argmax(tokens[early])]
    return Extrapolated(
        float(np.abs(forecast - scores[~early]).mean()),
        float(np.abs(last - scores[~early]).mean()),
        (int(early.sum()), int((~early).sum())),
    )


def detectable_spearman(models: int, *, level: float = 0.95, power: float = 0.8) -> float:
    """The smallest Spearman correlation that so many models would have told from 0; NaN with fewer than 5.

    Source: Fisher's z with the variance 1.06 / (n - 3) of Fieller, Hartley and Pearson, Biometrika 44, 1957.
    """
    if models < 5:
        return float("nan")
    z = special.ndtri(0.5 + level / 2) + special.ndtri(power)
    return float(np.tanh(z * np.sqrt(1.06 / (models - 3))))
