"""Statistics of a model's tokens in known answers, and how well they order models by a task's scores.

In the manner of arXiv 2605.18607: token-level statistics over expert-written solutions order models by downstream
accuracy. The definitions here are ours. A statistic is averaged within a solution by a weighting, then over solutions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy import special

from rbptrack.ranks import FloatArray, IntArray, RankTable, rbp_name

STATISTICS = ("p", "ce", "entropy", "rbp", "log_rank", "inverse_rank", "margin", "share_first")
"""Per token: p(target), -ln p(target), the entropy, R <= k, ln R, 1/R, ln p(top) - ln p(target), R = 1."""

WEIGHTINGS = ("uniform", "entropy", "rarity", "position")
"""Of a solution's tokens: all alike; by the model's entropy there; by -ln of the token's frequency in the corpus; by
their place in the solution, 1 for the first, 2 for the second, ..."""

LOWER_IS_BETTER = frozenset({"ce", "entropy", "log_rank", "margin"})


@dataclass(frozen=True)
class Proxy:
    """A statistic and a weighting."""

    statistic: str
    weighting: str

    @property
    def sign(self) -> int:
        """1 where a higher value should go with a higher score, -1 where a lower one should."""
        return -1 if self.statistic in LOWER_IS_BETTER else 1


PROXIES = tuple(Proxy(statistic, weighting) for statistic in STATISTICS for weighting in WEIGHTINGS)


def rarity(occurrences: IntArray) -> FloatArray:
    """-ln of every token's frequency in a corpus, from how often each id is a target, (|V|,); at least once."""
    seen = np.maximum(occurrences, 1).astype(np.float64)
    return np.asarray(np.log(seen.sum()) - np.log(seen))


@dataclass(frozen=True)
class Solutions:
    """The proxies of one model, solution by solution.

    Attributes:
        document: numbers of the documents that have a solution, ascending, (solutions,).
        values: of each proxy in the order of `PROXIES`, (solutions, proxies); NaN where the table lacks a column.
        first: whether every token of the solution is ranked first, (solutions,).
        tokens: of each solution, (solutions,).

    """

    document: IntArray
    values: FloatArray
    first: npt.NDArray[np.bool_]
    tokens: IntArray

    @classmethod
    def of(cls, table: RankTable, field: int, rare: FloatArray, *, k: int) -> Solutions:
        """Count a piece of whole documents.

        Args:
            table: the ranks.
            field: the number of the dataset's field that holds solutions.
            rare: `rarity` of every token.
            k: of RBP_k.

        """
        mine = table.column("field") == field
        document, place, size = np.unique(table.column("document")[mine], return_inverse=True, return_counts=True)
        rank, logprob = table.rank[mine].astype(np.float64), table.column("logprob")[mine].astype(np.float64)
        unknown = np.full(len(rank), np.nan)
        late = table.version > 1
        entropy = table.column("entropy")[mine].astype(np.float64) if late else unknown
        margin = table.column("top_logprob")[mine].astype(np.float64) - logprob if late else unknown
        value: Mapping[str, FloatArray] = {
            "p": np.exp(logprob), "ce": -logprob, "entropy": entropy, "rbp": rank <= k, "log_rank": np.log(rank),
            "inverse_rank": 1 / rank, "margin": margin, "share_first": rank == 1,
        }  # fmt: skip
        starts = np.concatenate([[0], np.cumsum(size)[:-1]]).astype(np.int64)
        weight: Mapping[str, FloatArray] = {
            "uniform": np.ones(len(rank)),
            "entropy": entropy,
            "rarity": rare[table.column("token")[mine]],
            "position": np.arange(len(rank)) - starts[place] + 1.0,
        }

        def mean(proxy: Proxy) -> FloatArray:
            w = weight[proxy.weighting]
            total = np.bincount(place, weights=w, minlength=len(document))
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.asarray(
                    np.bincount(place, weights=w * value[proxy.statistic], minlength=len(document)) / total
                )

        values = np.column_stack([mean(proxy) for proxy in PROXIES]) if len(rank) else np.empty((0, len(PROXIES)))
        first = np.bincount(place, weights=rank > 1, minlength=len(document)) == 0
        return cls(document.astype(np.int64), values, first, size)

    @classmethod
    def concatenate(cls, parts: Sequence[Solutions]) -> Solutions:
        """Join the solutions of disjoint documents."""
        names = ("document", "values", "first", "tokens")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    @property
    def means(self) -> FloatArray:
        """Each proxy averaged over solutions, (proxies,)."""
        return np.asarray(self.values.mean(axis=0))


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
        ranks = [stats.rankdata(each[picks], axis=1) for each in (values, scores)]
        centred = [each - each.mean(axis=1, keepdims=True) for each in ranks]
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
    one, other = np.triu_indices(len(scores), k=1)
    told = scores[one] != scores[other]
    one, other = one[told], other[told]
    agrees = np.sign(values[one] - values[other]) * np.sign(scores[one] - scores[other])[:, None]
    right = (agrees + 1) / 2  # (pairs, proxies)
    chosen, hits, fixed, pairs = set[int](), 0.0, np.zeros(values.shape[1]), 0
    for names in combinations(dict.fromkeys(families), 2):
        left = np.isin(family, names)
        choosing = ~left[one] & ~left[other]
        judged = left[one] & left[other] & (family[one] != family[other])
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


def label(proxy: Proxy, k: int) -> str:
    """As tables name it: `rbp_10`, `ce by rarity`."""
    statistic = rbp_name(k) if proxy.statistic == "rbp" else proxy.statistic
    return statistic if proxy.weighting == "uniform" else f"{statistic} by {proxy.weighting}"
