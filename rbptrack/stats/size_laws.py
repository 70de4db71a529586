"""What laws in size are fitted to: CE and -ln RBP_k of every size of a family, with paired document bootstraps.

Where a value or a bootstrap replicate of it is 0, negative or infinite, its logarithm does not exist and no law is
fitted: `positive` is that rule for every analyzer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rbptrack.ranks import CE, DocumentCounts, FloatArray, rbp_name
from rbptrack.stats.bootstrap import BOOTSTRAP_REPLICATES, bootstrap_metrics, document_weights, paired_covariance
from rbptrack.stats.power_law import PowerLawFit, fit_power_law


def positive(values: npt.ArrayLike, axis: int | tuple[int, ...] | None = None) -> npt.NDArray[np.bool_]:
    """Whether numbers are finite and positive, so that a law, a line through their logarithms, can be fitted to them.

    Source: the domain of the logarithm in ln y = ln A - alpha ln S (arXiv 2510.20387).
    """
    numbers = np.asarray(values, dtype=np.float64)
    return np.asarray((np.isfinite(numbers) & (numbers > 0)).all(axis=axis))


def fit_law(s: npt.ArrayLike, y: FloatArray, draws: FloatArray, *, level: float = 0.95) -> PowerLawFit | None:
    """`fit_power_law` of y, (m,), with the sampling covariance of its joint bootstrap replicates, (m, replicates).

    None unless all numbers are `positive`.

    Source: `fit_power_law`, with Cov(ln y) estimated by the bootstrap over documents (Efron and Tibshirani, An
    Introduction to the Bootstrap, 1993, chapter 6).
    """
    if not (positive(y) and positive(draws)):
        return None
    return fit_power_law(s, y, covariance=paired_covariance(list(np.log(draws))), level=level)


@dataclass(frozen=True)
class LawValues:
    """CE and -ln RBP_k of every size of a family.

    Attributes:
        metrics: names of the columns: `ce`, then `rbp_<k>` of each k.
        values: (m, metrics): CE in nats, -ln RBP_k; infinite where RBP_k is 0.
        draws: the same in each bootstrap replicate, (m, replicates, metrics).

    """

    metrics: tuple[str, ...]
    values: FloatArray
    draws: FloatArray

    def of(self, metric: str) -> tuple[FloatArray, FloatArray]:
        """Values, (m,), and replicates, (m, replicates), of one metric."""
        column = self.metrics.index(metric)
        return self.values[:, column], self.draws[:, :, column]

    def of_ks(self, ks: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """-ln RBP_k, (m, ks), and its replicates, (m, replicates, ks)."""
        columns = [self.metrics.index(rbp_name(k)) for k in ks]
        # Contiguous, so that sums over them are taken in the same order whatever k are asked for.
        return np.ascontiguousarray(self.values[:, columns]), np.ascontiguousarray(self.draws[:, :, columns])

    def fit(self, metric: str, s: npt.ArrayLike, *, level: float = 0.95) -> PowerLawFit | None:
        """The law of one metric over sizes s, (m,); None where there is none (`fit_law`)."""
        y, draws = self.of(metric)
        return fit_law(s, y, draws, level=level)


def law_values(counts: Sequence[DocumentCounts], *, replicates: int = BOOTSTRAP_REPLICATES) -> LawValues:
    """CE and -ln RBP_k of every size, measured and in bootstrap replicates, which draw the same documents for all.

    Source: the two sides of arXiv 2510.20387's law; replicates as in `document_weights`.
    """
    weights = document_weights(len(counts[0].document), replicates=replicates)
    once = np.ones((1, len(counts[0].document)))
    return LawValues(
        metrics=(CE, *(rbp_name(k) for k in counts[0].ks)),
        values=np.concatenate([_negative_logs(bootstrap_metrics(c, once)) for c in counts]),
        draws=np.stack([_negative_logs(bootstrap_metrics(c, weights)) for c in counts]),
    )


def law_metrics(sums: FloatArray) -> FloatArray:
    """CE and -ln RBP_k, (..., 1 + ks), from sums of tokens, nats and hits, (..., 2 + ks).

    Source: the two sides of arXiv 2510.20387's law.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return _negative_logs(sums[..., 1:] / sums[..., :1])


def _negative_logs(metrics: FloatArray) -> FloatArray:
    """CE as it is, and -ln RBP_k in place of RBP_k."""
    with np.errstate(divide="ignore"):
        metrics[..., 1:] = -np.log(metrics[..., 1:])
    return metrics
