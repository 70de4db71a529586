"""Do forecasts hold? Coverage and the share that is answered, by scenario: `python -m studies.forecasts [OUT.csv]`.

A store is simulated whole: families of m sizes a factor 4 apart, two datasets, five metrics with exponents .10 to .45.
Models scatter by tau (mostly alike in all metrics), documents have heavy or skewed tails, lengths differ, and all sizes
read the same ones. Truth is y of one more model over these texts. `rbptrack.stats.forecasts`, which takes one store at
a time, is written again for many at once, and checked to agree with it on the first store of every row.

In the scenarios named `one of`, one family follows another law than the rest; the column `least` is the coverage in the
family that fares worst. Found (studies/forecasts.csv; m = 4 to 10 sizes, 1 to 6 families, up to 16 times the largest
size, nominal 95%): the least coverage of any row of a scenario, and how many forecasts within 3 times are answered:

    plain 97%, 97 to 100% answered        skewed documents 97%, 98%
    floor of 10% 98%, 99%                 floor of 30% 100%, 96%
    the same, skewed and much scatter 92%, 93 to 96%
    broken 100%, 42 to 76%                one family of several differs 97% in that family, 83 to 100%

Of a store with one law only, 80% at the least were covered in floors of 10%; with a degree of freedom less 98%.
Farther, where only one backtest went (60 times), a floor of 10% was covered in 72% of the draws: hence that rule.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from rbptrack.stats.forecasts import WIDEST, backtest
from rbptrack.stats.power_law import fit_power_law

Array = np.ndarray[Any, Any]
ALPHAS = np.array([0.10, 0.17, 0.23, 0.28, 0.45])
RATIOS = np.array([1.5, 3.0, 10.0, 16.0])
STORES, DATASETS, FACTOR = 400, 2, 4.0
PLAIN = ("plain", 0.0, 0.0)
# name -> laws of the first family and of the others, tau, documents, their tails
SCENARIOS = {
    "plain, no scatter": (PLAIN, PLAIN, 0.0, 200, "t3"),
    "plain": (PLAIN, PLAIN, 0.005, 200, "t3"),
    "plain, much scatter": (PLAIN, PLAIN, 0.02, 200, "t3"),
    "skewed documents": (PLAIN, PLAIN, 0.01, 50, "skewed"),
    "floor 10%": (("floor", 0.1, 0.0), ("floor", 0.1, 0.0), 0.005, 200, "t3"),
    "floor 30%": (("floor", 0.3, 0.0), ("floor", 0.3, 0.0), 0.005, 200, "t3"),
    "floor 10%, skewed, scatter": (("floor", 0.1, 0.0), ("floor", 0.1, 0.0), 0.02, 200, "skewed"),
    "floor 30%, skewed, scatter": (("floor", 0.3, 0.0), ("floor", 0.3, 0.0), 0.02, 200, "skewed"),
    "broken early, flatter": (("broken", 0.5, 0.5), ("broken", 0.5, 0.5), 0.01, 200, "t3"),
    "broken late, flatter": (("broken", 0.5, 0.8), ("broken", 0.5, 0.8), 0.005, 200, "t3"),
    "broken late, steeper": (("broken", 2.0, 0.8), ("broken", 2.0, 0.8), 0.005, 200, "t3"),
    "broken, steeper, skewed": (("broken", 1.5, 0.65), ("broken", 1.5, 0.65), 0.01, 200, "skewed"),
    "one of them floor 30%": (("floor", 0.3, 0.0), PLAIN, 0.005, 200, "t3"),
    "one of them broken late": (("broken", 2.0, 0.8), PLAIN, 0.01, 200, "t3"),
}


@dataclass(frozen=True)
class Forecasts:
    """Half widths, errors and whether an answer is given, (stores, families, datasets, metrics, ratios).

    law: whether there is one (a textbook's t interval of alpha excludes 0), without the ratios.
    """

    law: Array
    half: Array
    error: Array
    given: Array


def main() -> None:
    """Simulate every scenario, write the rows and print the worst of each."""
    rows = pd.DataFrame([row for args in product(SCENARIOS, (4, 5, 6, 7, 10), (1, 3, 6)) for row in simulate(*args)])
    if len(sys.argv) > 1:
        rows.to_csv(sys.argv[1], index=False, float_format="%.3f")
    near = rows[rows["ratio"] <= 3].groupby("scenario", sort=False)["given"].mean().rename("given within 3 x")
    worst = rows.groupby("scenario", sort=False).agg({"coverage": "min", "least": "min", "given": "mean"})
    print(worst.join(near).to_string(float_format=lambda v: f"{v:.3f}"))


def simulate(scenario: str, m: int, families: int) -> Iterator[dict[str, Any]]:
    """Rows of one scenario, one per ratio; none of several families where there is one."""
    first, others, tau, documents, tails = SCENARIOS[scenario]
    if families == 1 and first != others:
        return
    rng = np.random.default_rng([list(SCENARIOS).index(scenario), m, families])
    x = np.log(FACTOR) * (np.arange(m) - m + 1.0)
    every = np.append(x, np.log(RATIOS))
    truth = np.stack([_truth(every, law) for law in [first, *[others] * (families - 1)]])[None, :, None]
    shape = (STORES, families, DATASETS, len(ALPHAS), len(every))
    alike, own = rng.standard_normal((*shape[:2], 1, 1, shape[4])), rng.standard_normal(shape)
    logs = truth + tau * (np.sqrt(0.8) * alike + np.sqrt(0.2) * own)
    for dataset in range(DATASETS):
        logs[:, :, dataset] += _texts(rng, shape[1:], every, documents, tails)
    forecasts = _forecasts(x, logs)
    _agrees(x, logs[0], forecasts)
    for i, ratio in enumerate(RATIOS):
        given, right = forecasts.given[..., i], np.abs(forecasts.error[..., i]) <= forecasts.half[..., i]
        each = [right[:, f][given[:, f]].mean() for f in range(families) if given[:, f].any()]
        row = {"scenario": scenario, "m": m, "families": families, "ratio": ratio, "given": given.mean()}
        yield row | {"coverage": right[given].mean() if given.any() else np.nan, "least": min(each, default=np.nan)}


def _truth(x: Array, law: tuple[str, float, float]) -> Array:
    """Ln y at x = ln S - ln of the largest S measured, (metrics, sizes)."""
    kind, how, part = law
    a = ALPHAS[:, None]
    if kind == "floor":
        return np.log(how + (1 - how) * np.exp(-a * x))
    return -a * (x + ((how - 1) * np.maximum(x - (1 - part) * x[0], 0) if kind == "broken" else 0))


def _texts(rng: np.random.Generator, shape: tuple[int, ...], x: Array, documents: int, tails: str) -> Array:
    """What the texts of one dataset do to ln y, (stores, families, metrics, sizes): they are the same for all sizes."""
    many = (STORES, documents)
    if tails == "t3":
        level, slope = 0.25 * rng.standard_t(3, many), 0.03 * rng.standard_t(3, many)
    else:
        level, slope = (s * np.expm1(0.8 * rng.standard_normal(many) - 0.32) for s in (1.0, 0.03))
    level, slope = np.maximum(1 + level, 0.02), np.maximum(slope, -0.9)
    length = np.exp(0.7 * rng.standard_normal(many))
    weight = length / length.sum(axis=1, keepdims=True) * level
    at = 2 * (x - x.min()) / -x.min() - 1  # from -1 to 1 over the sizes measured
    moved = weight.sum(axis=1)[:, None] + (weight * slope).sum(axis=1)[:, None] * at
    families, _, metrics, sizes = shape
    own = 0.05 * rng.standard_normal((STORES, families, 1, sizes))
    own = own + 0.02 * rng.standard_normal((STORES, families, metrics, sizes))
    return np.log(moved[:, None, None] + np.sqrt((weight**2).sum(axis=1))[:, None, None, None] * own)


def _forecasts(x: Array, logs: Array) -> Forecasts:
    """`Backtests.forecast` of every law in every store."""
    m = len(x)
    y, centred = logs[..., :m], x - x.mean()
    slope = y @ centred / (centred @ centred)
    left = y - y.mean(axis=-1, keepdims=True) - slope[..., None] * centred
    se = np.sqrt((left**2).sum(axis=-1) / (m - 2) / (centred @ centred))
    law = np.abs(slope) > stats.t.ppf(0.975, m - 2) * se
    errors, bends = [], list[float]()
    for kept in (k for k in (m - 1, m - 2, m - 3) if k >= 3):
        for j in range(kept, m):
            weights, noise, bend = _line(x[:kept], x[j])
            errors.append(np.where(law, (y[..., :kept] @ weights - y[..., j]) / slope / noise, 0.0))
            bends.append((bend / noise) ** 2)
    squares, bent = np.stack(errors) ** 2, np.array(bends)[:, None, None, None, None] * law
    pooled, own = (_parts(squares, bent, law[None] * np.ones_like(squares), axes) for axes in ((0, 2, 3, 4), (0,)))
    models = min(3, m - 3) * law.any(axis=(2, 3)).sum(axis=1)
    alone = law.sum(axis=(1, 2, 3)) == 1
    quantile = stats.t.ppf(0.975, np.maximum(models - alone, 1))[:, None, None, None]
    half, error = [], []
    for at in np.log(RATIOS):
        weights, noise, bend = _line(x, at)
        variance = np.maximum(*(c * noise**2 + 2 * b * bend**2 for c, b in (pooled, own)))
        half.append(quantile * np.abs(slope) * np.sqrt(variance))
        error.append(y @ weights - logs[..., m + len(error)])
    halves = np.stack(half, axis=-1)
    near = np.log(RATIOS) <= x[-1] - x[max(m - 3, 3 if m > 4 else 2)] + 1e-9
    return Forecasts(law, halves, np.stack(error, axis=-1), law[..., None] & near & (2 * halves <= np.log(WIDEST)))


def _parts(squares: Array, bent: Array, there: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Least squares of squared errors on 1 and squared bends, neither coefficient below 0, over some axes."""
    n, x, xx, y, xy = (v.sum(axis=axes, keepdims=True)[0] for v in (there, bent, bent**2, squares, bent * squares))
    with np.errstate(all="ignore"):
        several = n * xx - x * x
        c, b = (xx * y - x * xy) / several, (n * xy - x * y) / several
        flat = y * y * xx > xy * xy * n * (1 + 1e-9)  # of one coefficient alone, which leaves less
        alone = ~((c >= 0) & (b >= 0) & (several > 1e-9 * n * xx))
        c, b = np.where(alone, np.where(flat, y / n, 0), c), np.where(alone, np.where(flat, 0, xy / xx), b)
    return np.nan_to_num(c), np.nan_to_num(b)


def _line(x: Array, at: float) -> tuple[Array, float, float]:
    centred, away = x - x.mean(), at - x.mean()
    weights = 1 / len(x) + away * centred / (centred @ centred)
    return weights, float(np.sqrt(1 + weights @ weights)), float(abs(away**2 - weights @ centred**2))


def _agrees(x: Array, logs: Array, forecasts: Forecasts) -> None:
    """The first store through the real code, where that finds laws in the same places."""
    families, datasets, metrics, _ = logs.shape
    places = list(product(range(families), range(datasets), range(metrics)))
    laws = [fit_power_law(np.exp(x), np.exp(logs[place][: len(x)])) for place in places]
    if [law.low > 0 or law.high < 0 for law in laws] != [bool(forecasts.law[0, *place]) for place in places]:
        return
    tests = backtest(laws, [place[0] for place in places])
    for i, place in enumerate(places):
        for r, ratio in enumerate(RATIOS):
            made = tests.forecast(i, ratio)
            np.testing.assert_equal(
                made.refused == "", forecasts.given[0, *place, r], err_msg=f"{place} {ratio} {made}"
            )
            if not made.refused:
                np.testing.assert_allclose(np.log(made.y.high / made.y.value), forecasts.half[0, *place, r], rtol=1e-6)


if __name__ == "__main__":
    main()
