"""Forecasts beyond the largest size, as wide as forecasts from fewer sizes were wrong.

Every law is fitted again without its largest one, two and three sizes and set against the measurements there. A
straight line misses for two reasons, and each grows with the distance in its own way: models scatter, and laws
bend (a floor, a break). With e an error in ln y, and a the law's exponent,

    E (e / a)^2 = c noise^2 + b bend^2,  c, b >= 0
    noise = sqrt(1 + 1/k + d^2 / S_xx)   standard error of one more point of scatter 1, d from the mean of k points
    bend  = the error of a line through k points where ln y = (ln S)^2

and a forecast reaches t_n a sqrt(c noise^2 + 2 b bend^2) to each side: twice b, for a floor bends a law more and more.
c and b are those of all laws together, or of the law's own backtests where these make the interval wider. Laws of a
family share their models, and prefixes their sizes: n, the degrees of freedom, counts each model left out once; it is
one less for a single law.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import optimize, special

from rbptrack.ranks import FloatArray
from rbptrack.stats.intervals import Interval
from rbptrack.stats.power_law import PowerLawFit

WIDEST = 4.0
"""No number is given where the ends of its interval lie farther apart: from half of it to twice."""

_NONE = Interval(float("nan"))
_LEFT_OUT = (1, 2, 3)
_LEAST = 3  # sizes of a law
_STEEPER = 2.0  # how much more a law may bend beyond than within the sizes


@dataclass(frozen=True)
class Backtest:
    """What a law fitted to smaller sizes said of a larger one.

    Attributes:
        law: number of the law, in the order given.
        left_out: how many of the largest sizes it was fitted without.
        s: the size predicted.
        beyond: that size over the largest one fitted.
        error: ln(measured / predicted).
        noise: standard error of the prediction were scatter 1.
        bend: error of the prediction were ln y = (ln S)^2.

    """

    law: int
    left_out: int
    s: float
    beyond: float
    error: float
    noise: float
    bend: float


@dataclass(frozen=True)
class Forecast:
    """y of one more model, over the same texts, at a size that was not measured.

    Attributes:
        y: by the law, with its interval; NaN where refused.
        refused: why no number is given; empty where one is.

    """

    y: Interval
    refused: str = ""


@dataclass(frozen=True)
class Backtests:
    """How forecasts of some laws went, and forecasts as wide as that.

    Attributes:
        laws: the laws.
        made: backtests of those whose exponent's interval excludes 0.
        models: how many different models were left out: the degrees of freedom.

    """

    laws: Sequence[PowerLawFit]
    made: Sequence[Backtest]
    models: int

    def forecast(self, law: int, at: float, *, level: float = 0.95) -> Forecast:
        """Predict y of one more model of size `at` by a law's number.

        Source: this module's; simulated in studies/forecasts.py.
        """
        fit = self.laws[law]
        own_errors = [error_of_law for error_of_law in self.made if error_of_law.law == law]
        if not own_errors:
            why = "no law: alpha's interval includes 0" if fit.points > _LEAST else "a backtest needs 4 sizes"
            return Forecast(_NONE, why)
        farthest = sorted(error_of_law.beyond for error_of_law in own_errors)[-2:][0]  # of several, two have reached it
        if at > farthest * fit.s.max() * (1 + 1e-9):
            return Forecast(_NONE, f"beyond {farthest:.3g} times the largest size, as far as backtests reached")
        _, noise, bend = _line(np.log(fit.s), np.log(at))
        variance = max(c * noise**2 + _STEEPER * b * bend**2 for c, b in (self._pooled, self._parts(own_errors)))
        alone = (
            len({error_of_law.law for error_of_law in self.made}) == 1
        )  # c and b are then of the few errors that they are to cover
        quantile = float(special.stdtrit(max(self.models - alone, 1), 0.5 + level / 2))
        half = quantile * abs(fit.alpha) * float(np.sqrt(variance))
        if 2 * half > np.log(WIDEST):
            with np.errstate(over="ignore"):
                return Forecast(_NONE, f"by backtests it may lie anywhere within a factor of {np.exp(2 * half):.3g}")
        y = float(fit.predict(at))
        return Forecast(Interval(y, y * float(np.exp(-half)), y * float(np.exp(half))))

    @cached_property
    def _pooled(self) -> FloatArray:
        return self._parts(self.made)

    def _parts(self, made: Sequence[Backtest]) -> FloatArray:
        """Return C and b of some backtests, (2,), by least squares of (e / a noise)^2 on 1 and (bend / noise)^2."""
        error = np.array(
            [error_of_law.error / self.laws[error_of_law.law].alpha / error_of_law.noise for error_of_law in made]
        )
        bend = np.array([error_of_law.bend / error_of_law.noise for error_of_law in made])
        return np.asarray(optimize.nnls(np.column_stack([np.ones(len(made)), bend**2]), error**2)[0])


def backtest(laws: Sequence[PowerLawFit], families: Sequence[Hashable] = ()) -> Backtests:
    """Fit laws again without their largest one, two and three sizes, and predict those.

    Source: rolling-origin evaluation (Tashman, International Journal of Forecasting 16, 2000).

    Args:
        laws: of every family, dataset and metric.
        families: of each law, the family whose models it is of; none: all are of one.

    """
    owners = list(families) or [""] * len(laws)
    made = [
        error_of_law for i, law in enumerate(laws) if law.low > 0 or law.high < 0 for error_of_law in _backtests(i, law)
    ]
    return Backtests(laws, made, len({(owners[error_of_law.law], error_of_law.s) for error_of_law in made}))


def _backtests(number: int, law: PowerLawFit) -> Iterator[Backtest]:
    x = np.log(law.s)
    logs = np.log(law.y)
    for left_out in _LEFT_OUT:
        kept = law.points - left_out
        for j in range(kept, law.points) if kept >= _LEAST else ():
            weights, noise, bend = _line(x[:kept], x[j])
            error = float(logs[j] - weights @ logs[:kept])
            beyond = float(law.s[j] / law.s[kept - 1])
            yield Backtest(number, left_out, float(law.s[j]), beyond, error, noise, bend)


def _line(x: FloatArray, at: float) -> tuple[FloatArray, float, float]:
    """Return the weights (m,) of a line's value at `at`, through points at x, (m,), and `noise` and `bend` there."""
    centred = x - x.mean()
    away = float(at - x.mean())
    square = float(centred @ centred)
    weights = 1 / len(x) + away * centred / square
    return weights, float(np.sqrt(1 + weights @ weights)), abs(float(away**2 - weights @ centred**2))
