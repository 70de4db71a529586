"""What laws in size are fitted to: CE and -ln RBP_k of every size of a family, with paired document bootstraps.

Where a value or a bootstrap replicate of it is 0, negative or infinite, its logarithm does not exist and no law is
fitted: `positive` is that rule for every analyzer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from rbptrack.ranks import CE, DocumentCounts, FloatArray, rbp_name
from rbptrack.stats.bootstrap import BOOTSTRAP_REPLICATES, bootstrap_metrics, document_weights, paired_covariance
from rbptrack.stats.intervals import widening, worth
from rbptrack.stats.power_law import PowerLawFit, enough_sizes, fit_power_laws


def positive(values: npt.ArrayLike, axis: int | tuple[int, ...] | None = None) -> npt.NDArray[np.bool_]:
    """Return whether numbers are finite and positive, so that a law, a line through their logarithms, can be fitted to
    them.

    Source: the domain of the logarithm in ln y = ln A - alpha ln S (arXiv 2510.20387).
    """
    numbers = np.asarray(values, dtype=np.float64)
    ends = numbers.min(axis=axis, initial=np.inf), numbers.max(axis=axis, initial=-np.inf)  # NaN where any is
    return np.asarray((ends[0] > 0) & (ends[1] < np.inf))


def fit_law(s: npt.ArrayLike, y: FloatArray, draws: FloatArray, *, level: float = 0.95) -> PowerLawFit | None:
    """Return `fit_power_law` of y, (m,), with the sampling covariance of its joint bootstrap replicates, (m,
    replicates).

    None unless all numbers are `positive` and the sizes are `enough_sizes`.

    Source: `fit_power_law`, with Cov(ln y) estimated by the bootstrap over documents (Efron and Tibshirani, An
    Introduction to the Bootstrap, 1993, chapter 6).
    """
    return fit_laws(s, y[None], draws[None], level=level)[0]


def fit_laws(s: npt.ArrayLike, y: FloatArray, draws: FloatArray, *, level: float = 0.95) -> list[PowerLawFit | None]:
    """Return `fit_law` of each of several metrics: y, (metrics, m), and replicates, (metrics, m, replicates).

    Source: `fit_law`.
    """
    usable = positive(y, axis=1) & positive(draws, axis=(1, 2))
    if not (usable.any() and enough_sizes(s)):
        return [None] * len(y)
    # One after another: fresh memory for the logarithms of all would take longer than they do.
    covariance = np.stack([paired_covariance(np.log(values)) for values in compress(draws, usable)])
    laws = iter(fit_power_laws(s, y[usable], covariance=covariance, level=level))
    return [next(laws) if fitted else None for fitted in usable]


@dataclass(frozen=True)
class LawValues:
    """CE and -ln RBP_k of every size of a family.

    Attributes:
        metrics: names of the columns: `ce`, then `rbp_<k>` of each k.
        values: (m, metrics): CE in nats, -ln RBP_k; infinite where RBP_k is 0.
        draws: the same in each bootstrap replicate, (m, replicates, metrics).
        factor: by which draws were `widened`: over sources, which are few and of uneven size.

    """

    metrics: tuple[str, ...]
    values: FloatArray
    draws: FloatArray
    factor: float = 1.0

    def of(self, metric: str) -> tuple[FloatArray, FloatArray]:
        """Return values, (m,), and replicates, (m, replicates), of one metric."""
        column = self.metrics.index(metric)
        return self.values[:, column], self.draws[:, :, column]

    def only(self, metrics: Collection[str]) -> LawValues:
        """Select some metrics, as far as they exist."""
        columns = [i for i, metric in enumerate(self.metrics) if metric in metrics]
        named = tuple(self.metrics[i] for i in columns)
        return LawValues(named, self.values[:, columns], self.draws[:, :, columns], self.factor)

    def of_ks(self, ks: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Return -ln RBP_k, (m, ks), and its replicates, (m, replicates, ks)."""
        columns = [self.metrics.index(rbp_name(k)) for k in ks]
        # Contiguous, so that sums over them are taken in the same order whatever k are asked for.
        return np.ascontiguousarray(self.values[:, columns]), np.ascontiguousarray(self.draws[:, :, columns])

    def fit(self, metric: str, s: npt.ArrayLike, *, level: float = 0.95) -> PowerLawFit | None:
        """Return the law of one metric over sizes s, (m,); None without one (`fit_law`)."""
        return fit_law(s, *self.of(metric), level=level)

    def fit_each(self, s: npt.ArrayLike, *, level: float = 0.95) -> dict[str, PowerLawFit]:
        """Return the laws over sizes s, (m,), of all metrics that have one, by metric."""
        laws = fit_laws(s, self.values.T, np.moveaxis(self.draws, 2, 0), level=level)
        return {metric: law for metric, law in zip(self.metrics, laws, strict=True) if law}


def law_values(counts: Sequence[DocumentCounts], *, replicates: int = BOOTSTRAP_REPLICATES) -> LawValues:
    """Return CE and -ln RBP_k of every size, measured and in bootstrap replicates, which draw the same documents for
    all.

    Source: the two sides of arXiv 2510.20387's law; replicates as in `document_weights`.
    """
    weights = document_weights(len(counts[0].document), replicates=replicates)
    once = np.ones((1, len(counts[0].document)))
    metrics = (CE, *(rbp_name(k) for k in counts[0].ks))
    draws = np.empty((len(metrics), len(counts), len(weights)))  # one metric after another, as laws are fitted
    for place, sums in enumerate(counts):
        draws[:, place] = bootstrap_metrics(sums, weights).T
    values = np.concatenate([_negative_logs(bootstrap_metrics(c, once)) for c in counts])
    logs = _negative_logs(draws.transpose(1, 2, 0))
    factor = widening(worth(np.sqrt(counts[0].tokens)), 0.95) if counts[0].grouped else 1.0
    if factor != 1:
        logs = widened(values, logs, factor)
    return LawValues(metrics, values, logs, factor)


def widened(values: FloatArray, draws: FloatArray, factor: float) -> FloatArray:
    """Return replicates, (m, replicates, metrics), that lie `factor` times as far from the values, (m, metrics), in ln
    y.

    Those without a logarithm stay. Where all are `positive`, covariances of ln y are factor^2 times as large.

    Source: `widening` by the effective number of sources (`worth`).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        further = values[:, None] * (draws / values[:, None]) ** factor
    return np.where(np.isfinite(further) & (further > 0), further, draws)


def law_metrics(sums: FloatArray) -> FloatArray:
    """Return CE and -ln RBP_k, (..., 1 + ks), from sums of tokens, nats and hits, (..., 2 + ks).

    Source: the two sides of arXiv 2510.20387's law.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return _negative_logs(sums[..., 1:] / sums[..., :1])


def _negative_logs(metrics: FloatArray) -> FloatArray:
    """Return CE as it is, and -ln RBP_k in place of RBP_k."""
    shares = metrics[..., 1:]
    with np.errstate(divide="ignore"):
        np.negative(np.log(shares, out=shares), out=shares)
    return metrics
