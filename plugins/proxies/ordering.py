"""How well statistics order models by a task's scores, judged by other families, and over training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import special

from rbptrack.ranks import FloatArray, IntArray
from rbptrack.stats.intervals import worth
from rbptrack.stats.shares import Share
from rbptrack.stats.spread import Spread

_POWER = 0.8
_LEAST_FAMILIES = 4  # from which an error over families is given


@dataclass(frozen=True)
class Arrangement:
    """Which models are compared so that families need not be alike, and what chance does to such comparisons.

    Models of one family share a recipe, so that they do not count as independent. Either models are compared within
    their families, or families with each other, by the means of their models: whichever can tell more from chance.

    Attributes:
        groups: places of the models, or of the families, that are compared with each other, of each group.
        members: places of the models behind each of them.
        within: whether models of one family are compared; else families.
        chance: the probability of each difference of pairs in order and pairs out of order, -pairs..pairs.

    """

    groups: Sequence[IntArray]
    members: Sequence[IntArray]
    within: bool
    chance: FloatArray

    @classmethod
    def of(cls, families: Sequence[str]) -> Arrangement:
        """Arrange models by the families that they belong to."""
        family = np.unique(np.asarray(families), return_inverse=True)[1]
        of_family = [np.flatnonzero(family == i) for i in range(family.max() + 1)]
        models = [np.array([i]) for i in range(len(family))]
        inside = cls(of_family, models, True, _chance([len(group) for group in of_family]))
        between = cls([np.arange(len(of_family))], of_family, False, _chance([len(of_family)]))
        return inside if inside.chance[-1] <= between.chance[-1] else between

    @property
    def pairs(self) -> int:
        """How many pairs are compared."""
        return len(self.chance) // 2

    @property
    def units(self) -> int:
        """How many models, or families, are compared."""
        return len(self.members)

    def in_order(self, values: FloatArray, scores: FloatArray) -> int:
        """Return pairs in order less pairs out of order, by values and scores of the models, (models,) both."""
        total = 0.0
        value, score = (np.array([numbers[places].mean() for places in self.members]) for numbers in (values, scores))
        for group in self.groups:
            first, second = (group[places] for places in np.triu_indices(len(group), k=1))
            total += (np.sign(value[first] - value[second]) * np.sign(score[first] - score[second])).sum()
        return int(total)

    def p(self, in_order: int) -> float:
        """Return two-sided p of no association; exact without ties, and too large with them."""
        return min(1.0, 2 * float(self.chance[self.pairs + abs(in_order) :].sum())) if in_order else 1.0

    def detectable(self, level: float) -> float:
        """Return the smallest tau that would have been significant in 80% of such sets; NaN where none would.

        Source: the normal approximation to Kendall's score, its variance in proportion to 1 - tau^2 (Kendall, Rank
        Correlation Methods, 1948), above the exact quantile of chance.
        """
        tail = 2 * np.cumsum(self.chance[::-1])[: self.pairs]  # of pairs, pairs - 1, ..., 1 in order
        ordered = np.flatnonzero(tail < 1 - level)
        if not len(ordered):
            return float("nan")
        least = self.pairs - int(ordered[-1])
        score = np.arange(-self.pairs, self.pairs + 1)
        spread = float(np.sqrt(self.chance @ score**2)) * float(special.ndtri(_POWER))
        a = self.pairs**2 + spread**2
        b = -2 * self.pairs * least
        c = least**2 - spread**2
        tau = (-b + np.sqrt(max(b**2 - 4 * a * c, 0.0))) / (2 * a)  # pairs tau = least + spread sqrt(1 - tau^2)
        return float(tau)


def _chance(sizes: Sequence[int]) -> FloatArray:
    """Return the distribution of pairs in order less pairs out of order, over groups of so many, if orders are random.

    Source: the generating function of inversions, the product of 1 + x + ... + x^(i - 1) over i = 1..n.
    """
    inversions = np.ones(1)
    for size in sizes:
        for i in range(2, size + 1):
            inversions = np.convolve(inversions, np.full(i, 1 / i))
    chance = np.zeros(2 * len(inversions) - 1)
    chance[::2] = inversions
    return chance


@dataclass(frozen=True)
class Association:
    """How a proxy orders models by their scores.

    Attributes:
        spearman: of the proxy, turned so that better is higher, and the scores, over all models.
        kendall: tau over the pairs that are compared (`Arrangement`).
        p: two-sided p of no association, by these pairs.

    """

    spearman: float
    kendall: float
    p: float


def associated(values: FloatArray, scores: FloatArray, arrangement: Arrangement) -> Association:
    """Return how a proxy (turned so that higher is better) orders models by their scores, (models,) both.

    NaN where a value is unknown, or all are the same.

    Source: Spearman, American Journal of Psychology 15, 1904; Kendall, Biometrika 30, 1938, by strata of models.
    """
    if not np.isfinite(values).all() or np.ptp(values) == 0 or np.ptp(scores) == 0:
        return Association(float("nan"), float("nan"), float("nan"))
    from scipy import stats  # takes half a second: only where scores exist

    in_order = arrangement.in_order(values, scores)
    spearman = float(stats.spearmanr(values, scores).statistic)
    return Association(spearman, in_order / max(arrangement.pairs, 1), arrangement.p(in_order))


@dataclass(frozen=True)
class LeftOut:
    """How well proxies order models of families that did not choose them.

    Attributes:
        right: of pairs of models of two families left out, the share that the proxy chosen by the other families orders
            as the scores do (ties count half); its error is over families, from four of them.
        fixed: the same for each proxy without a choice, (proxies,).
        chosen: the proxies that were chosen, ascending.
        pairs: how many pairs.

    """

    right: Share
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
    first = first[unequal]
    second = second[unequal]
    agrees = np.sign(values[first] - values[second]) * np.sign(scores[first] - scores[second])[:, None]
    right = (agrees + 1) / 2  # (pairs, proxies)
    names = list(dict.fromkeys(families))
    chosen = set[int]()
    hits, pairs = np.zeros((2, len(names), len(names)))
    fixed = np.zeros(values.shape[1])
    for i, j in combinations(range(len(names)), 2):
        left = np.isin(family, [names[i], names[j]])
        choosing = ~left[first] & ~left[second]
        judged = left[first] & left[second] & (family[first] != family[second])
        if choosing.any() and judged.any():
            best = int(np.nanargmax(right[choosing].mean(axis=0)))
            chosen.add(best)
            hits[i, j] = right[judged, best].sum()
            pairs[i, j] = judged.sum()
            fixed += right[judged].sum(axis=0)
    count = int(pairs.sum())
    return LeftOut(_over_families(hits, pairs), fixed / count, sorted(chosen), count) if count else None


def _over_families(hits: FloatArray, pairs: FloatArray) -> Share:
    """Return the share of pairs, with its error over families: hits and pairs of each two, (families, families), i < j.

    Every two families give a number; its part that belongs to either family alone decides the error, to which the rest
    adds its own. Degrees of freedom as many as families decide (`worth`), less one. Simulated: the 95% interval of
    proxies of pure noise holds one half in 96 to 100% with 4 to 8 families (docs/validity.md).

    Source: the projection of a U-statistic of two arguments (Hoeffding, Annals of Mathematical Statistics 19, 1948).
    """
    total = pairs.sum()
    value = float(hits.sum() / total)
    count = len(pairs)
    residual = hits - value * pairs
    influence = (residual.sum(axis=0) + residual.sum(axis=1)) / max(count - 2, 1)
    if count < _LEAST_FAMILIES:
        return Share(value, None, influence)
    rest = (residual - influence[:, None] - influence)[np.triu_indices(count, k=1)]
    variance = count * (count - 1) * (influence**2).sum() + (rest**2).sum()
    return Share(value, Spread.estimated(float(np.sqrt(variance)) / total, max(worth(influence) - 1, 1.0)), influence)


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
