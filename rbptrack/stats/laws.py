"""A law over the sizes of a family: y = A S^-alpha, by least squares of ln y on ln S.

`rbptrack.stats.lines` computes the numbers of a law and their errors. docs/explanation/validity.md shows how often such
intervals contain the true value in simulations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, nan

import numpy as np

from rbptrack.base.formatting import counted, listed
from rbptrack.ranks import CE, DocumentCounts, FloatArray, log_grid, metric_label, rbp_name
from rbptrack.stats.documents import MIN_UNITS, estimate, influences, shares_of_tokens
from rbptrack.stats.estimate import DocumentInfluences, Estimate
from rbptrack.stats.lines import Lines, lines_through
from rbptrack.stats.rounding import TIED
from rbptrack.stats.sums import Statistic, SumsLike, ce_and_neg_log_rbp, neg_log_rbp, only_totals

MIN_SIZES = 3
"""The fewest sizes of a law whose error is known. A law through fewer sizes fits exactly."""


@dataclass(frozen=True)
class Scatter:
    """The variance of ln y of models around their law.

    Attributes:
        variance: the variance, without the noise of documents.
        df: its degrees of freedom.

    """

    variance: float
    df: float


@dataclass(frozen=True)
class Law:
    """A law y = A S^-alpha: the least-squares line of ln y on ln S through at least 2 sizes.

    `fit` and `laws` create it. With 2 sizes the scatter of the models is unknown, and no number has an interval.

    Attributes:
        lines: the lines of all quantities that were fitted together.
        place: the place of this law's quantity among them.
        shared: the scatter that was estimated together with other laws (`share_scatter`); None if the scatter is that
            of this law alone. Alpha, A, and the values of the law have it in their error.

    """

    lines: Lines
    place: int
    shared: Scatter | None = None

    @property
    def s(self) -> FloatArray:
        """The sizes S, ascending, (m,)."""
        return self.lines.s

    @property
    def y(self) -> FloatArray:
        """The measured values, positive, (m,)."""
        return np.asarray(self.lines.y[self.place])

    @property
    def sigma(self) -> FloatArray:
        """The covariance of ln y over documents, (m, m).

        It is 0 if single documents are unknown, or if there are fewer than `documents.MIN_UNITS` documents.
        """
        return np.asarray(self.lines.sigma[self.place])

    @property
    def documents(self) -> DocumentInfluences | None:
        """The influences of documents on ln y, (documents, m).

        None if single documents are unknown, or if there are fewer than `documents.MIN_UNITS` documents.
        """
        documents = self.lines.documents
        if documents is None:
            return None
        return DocumentInfluences(documents.u[:, self.place], documents.shares)

    @property
    def sizes(self) -> int:
        """The number of sizes m."""
        return self.lines.sizes

    @property
    def alpha(self) -> Estimate:
        """The exponent alpha with its error."""
        return self._with_shared_scatter(self.lines.alpha[self.place], self.alpha_weights)

    @property
    def own_alpha(self) -> Estimate:
        """The exponent alpha with an error that uses the scatter of this law alone."""
        return self.lines.alpha[self.place]

    def spans(self, s: float) -> bool:
        """Return whether a size lies between the smallest and the largest one of the law."""
        return bool(self.s[0] * (1 - TIED) <= s <= self.s[-1] * (1 + TIED))

    def at(self, s: float) -> Estimate:
        """Return ln y of the law at a size s, with the error of the law."""
        weights = self.lines.weights_at(s)
        return self._with_shared_scatter(self.lines.line_estimates(weights)[self.place], weights)

    def _with_shared_scatter(self, own: Estimate, weights: FloatArray) -> Estimate:
        """Return a weighted sum of ln y whose error has the shared scatter, if there is one."""
        if self.shared is None:
            return own
        return replace(own, scatter=self.shared.variance * float(weights @ weights), df=self.shared.df)

    @property
    def alpha_weights(self) -> FloatArray:
        """Weights of ln y in alpha, (m,)."""
        return self.lines.alpha_weights

    def over(self, other: Law) -> Law:
        """Return the law of the ratio y / other.y.

        Its exponent is the exponent of this law minus that of the other. A deviation that a model has from both laws
        cancels. The errors over documents are added as independent errors.

        Args:
            other: the law of the same models on other documents.

        """
        parts = []
        if self.documents is not None:
            parts.append(self.documents)
        if other.documents is not None:
            parts.append(DocumentInfluences(-other.documents.u, other.documents.shares))
        documents = None
        if parts:
            u = np.concatenate([part.u for part in parts])
            documents = DocumentInfluences(u[:, None], np.concatenate([part.shares for part in parts]))
        return Law(Lines(self.s, (self.y / other.y)[None], (self.sigma + other.sigma)[None], documents), 0)

    @property
    def ln_a(self) -> Estimate:
        """The logarithm of the factor A with its error."""
        return self._with_shared_scatter(self.lines.ln_a[self.place], self.lines.ln_a_weights)

    @property
    def a(self) -> float:
        """The factor A."""
        with np.errstate(over="ignore"):
            return float(np.exp(self.ln_a.value))

    @property
    def r2(self) -> float:
        """Share of the variance of ln y that the line explains; NaN if y is constant or the law has 2 sizes."""
        total = self.lines.squares_around_mean[self.place]
        if self.sizes < 3 or not total > 0:
            return nan
        return float(1 - self.residuals @ self.residuals / total)

    @property
    def largest_deviation(self) -> float:
        """The largest abs(measured / law - 1) over the sizes; NaN if the law has 2 sizes."""
        if self.sizes < 3:
            return nan
        return float(np.abs(np.expm1(self.residuals)).max())

    @property
    def ends(self) -> tuple[float, float]:
        """The values A S^-alpha of the law at the smallest and at the largest size."""
        smallest, largest = (float(self.lines.weights_at(s) @ np.log(self.y)) for s in (self.s[0], self.s[-1]))
        return exp(smallest), exp(largest)

    def predict(self, s: float) -> Estimate:
        """Predict ln y of one more model of size s.

        The error includes the error of the law at s and the scatter of one model around the law.
        """
        return self.lines.line_estimates(self.lines.weights_at(s), models=1)[self.place]

    def held_out(self) -> Estimate:
        """Return ln(measured / predicted) at the largest size. The prediction is the law of all smaller sizes.

        It has an interval if there are at least 4 sizes. `numpy.expm1` converts the value and the ends of the interval
        to relative errors.
        """
        return self.lines.held_out[self.place]

    def bend(self) -> Estimate:
        """Return the coefficient c of ln y = a + b ln S + c (ln S)^2, with its error.

        A falling law flattens with size if c is above 0, and steepens if c is below 0. It is NaN with fewer than 3
        sizes, and has an error from 4 sizes on. With 4, the error has one degree of freedom.
        """
        return self.lines.bend[self.place]

    @property
    def residuals(self) -> FloatArray:
        """The deviations of ln y from the law, (m,)."""
        return np.asarray(self.lines.residuals[self.place])

    @property
    def noise(self) -> float:
        """The part of the sum of squared residuals that the noise of documents is expected to cause."""
        return float(self.lines.noise[self.place])

    @property
    def scatter(self) -> float:
        """The variance of the models around the law, without the noise of documents; NaN with 2 sizes."""
        return float(self.lines.scatter[self.place])


def fit(s: FloatArray, y: FloatArray, documents: Sequence[DocumentInfluences] | None = None) -> Law:
    """Fit the law y = A S^-alpha to points.

    Args:
        s: sizes S, in any order, (m,), at least 2 distinct ones. Points of equal size count as independent. Models that
            differ only in their seed are not independent (docs/explanation/validity.md). Sum them into one point first,
            as `read_families` does.
        y: positive values, (m,).
        documents: the influences of documents on ln y at each size, m of them. If all have the same number of
            documents, element i of each must belong to the same document. Otherwise the sizes count as measured on
            different documents. If None, intervals include only the scatter of the models.

    """
    values = np.asarray(y)[None]
    if documents is None:
        return Law(lines_through(s, values), 0)
    by_quantity = [DocumentInfluences(size.u[:, None], size.shares) for size in documents]
    return Law(lines_through(s, values, by_quantity), 0)


MOST_SHARED_DF = 3
"""The largest degrees of freedom of the scatter of a law that is estimated together with that of other families."""


def share_scatter(laws: Sequence[Mapping[str, Law]], families: Sequence[str]) -> list[dict[str, Law]]:
    """Estimate the scatter of laws of few sizes together with the laws of other families, for each metric.

    With m sizes, the scatter of one law has m - 2 degrees of freedom. The mean scatter of all families counts as many
    (moderated variances, Smyth 2004). Laws of one family share their models, so their scatter is averaged first. Laws
    with more than `MOST_SHARED_DF` degrees of freedom keep their own scatter, and so does everything if there is only
    one family. docs/explanation/validity.md shows how often such intervals contain the true value.

    Args:
        laws: the laws by metric of each family on each dataset.
        families: the name of the family of each element of `laws`.

    """
    shared = [dict(by_metric) for by_metric in laws]
    for metric in dict.fromkeys(metric for by_metric in laws for metric in by_metric):
        scatters: dict[str, list[Scatter]] = {}
        for by_metric, family in zip(laws, families, strict=True):
            if metric in by_metric and by_metric[metric].sizes > 2:
                law = by_metric[metric]
                scatters.setdefault(family, []).append(Scatter(law.scatter, law.sizes - 2))
        dfs = {family: min(scatter.df for scatter in of_family) for family, of_family in scatters.items()}
        total_df = sum(dfs.values())
        total = sum(dfs[name] * float(np.mean([each.variance for each in scatters[name]])) for name in scatters)
        for by_metric, family in zip(shared, families, strict=True):
            if metric not in by_metric or family not in dfs:
                continue
            law = by_metric[metric]
            own_df = law.sizes - 2
            prior_df = min(own_df, total_df - dfs[family])
            if 0 < own_df <= MOST_SHARED_DF and prior_df > 0:
                variance = (prior_df * total / total_df + own_df * law.scatter) / (prior_df + own_df)
                by_metric[metric] = replace(law, shared=Scatter(variance, prior_df + own_df))
    return shared


def laws_by_metric(s: FloatArray, counts: Sequence[DocumentCounts]) -> dict[str, Law]:
    """Return the law of cross-entropy as `ce`, and the law of -ln RBP_k as `rbp_<k>` for each k of the counts.

    A metric is left out if its value is not positive and finite at every size.

    Args:
        s: sizes S, (m,).
        counts: the counts of each size, m of them, with the same k and over the same documents.

    """
    names = [CE, *map(rbp_name, counts[0].ks)]
    by_name = zip(names, laws(s, counts, ce_and_neg_log_rbp), strict=True)
    return {name: law for name, law in by_name if law is not None}


def laws(s: FloatArray, sizes: Sequence[SumsLike], statistic: Statistic) -> list[Law | None]:
    """Fit a law to each value of a statistic of sums over documents.

    Args:
        s: sizes S, (m,), at least 2.
        sizes: the sums of each size, m of them, all over the same documents.
        statistic: a function that takes sums, (..., columns), and returns positive values, (...) or (..., values). An
            example is `neg_log_rbp`, which returns a value for each k.

    Returns:
        The law of each value, in the order of the values. It is None if the value is not positive and finite at every
        size.

    """

    def ln(totals: FloatArray) -> FloatArray:
        return np.log(np.asarray(statistic(totals), dtype=np.float64))

    values_by_size = []
    documents = []
    for size_sums in sizes:
        ln_y, u = influences(size_sums, ln)
        values_by_size.append(np.atleast_1d(ln_y))
        documents.append(DocumentInfluences(u.reshape(len(u), -1), shares_of_tokens(size_sums)))
    ln_values = np.stack(values_by_size, axis=-1)  # (values, m)
    fitted = np.flatnonzero(np.isfinite(ln_values).all(axis=1))
    by_value: list[Law | None] = [None] * len(ln_values)
    if len(fitted):
        fitted_documents = None
        if not any(map(only_totals, sizes)):
            fitted_documents = [DocumentInfluences(size.u[:, fitted], size.shares) for size in documents]
        lines = lines_through(s, np.exp(ln_values[fitted]), fitted_documents)
        for place, i in enumerate(fitted.tolist()):
            by_value[i] = Law(lines, place)
    return by_value


def missing_interval_clause(laws: Mapping[str, Law], counts: Sequence[DocumentCounts]) -> str:
    """Return a clause that says what the intervals of laws lack; empty if they lack nothing.

    The clause names the laws without an interval and says why. If there are too few documents, it says that intervals
    include only the scatter between models. `laws` has the laws by metric that were fitted to `counts`, the counts of
    each size.
    """
    metrics = [metric_label(metric) for metric, law in laws.items() if not law.alpha.has_interval]
    if metrics:
        return f"no interval for the law of {listed(metrics)}: {why_no_interval(counts)}"
    return few_documents_clause(counts) if laws else ""


def few_documents_clause(sizes: Sequence[SumsLike]) -> str:
    """Return a clause that says that there are too few documents for their error; empty if there are enough.

    It is also empty if single documents are unknown. sizes: the sums of each size that laws were fitted to.
    """
    fewest = min(sizes, key=_count_units)
    if any(map(only_totals, sizes)) or _count_units(fewest) >= MIN_UNITS:
        return ""
    return (
        "intervals and tests of laws in size include the scatter between models, but not the choice of documents, "
        f"because there are only {_too_few_clause(fewest)}"
    )


def why_no_interval(sizes: Sequence[SumsLike]) -> str:
    """Return a clause that says why a law has no interval. sizes: the sums of each size that the law was fitted to."""
    if len(sizes) == 2:
        return "2 sizes do not show the scatter around the law"
    return "if one certain document were left out, the values at some size would be 0 or 1"


def _count_units(sums: SumsLike) -> int:
    return len(sums if isinstance(sums, np.ndarray) else sums.sums)


def _too_few_clause(sums: SumsLike) -> str:
    """Return a clause that says how many documents or groups there are, and how many an interval needs."""
    unit = "group" if getattr(sums, "grouped", False) else "document"
    return f"{counted(_count_units(sums), unit)}, and at least {MIN_UNITS} are needed"


MIN_MISSES = 10
"""The fewest tokens with a rank above k that every model of a fit must have. With fewer, chance decides -ln RBP_k."""


def ks_with_enough_misses(counts: Sequence[DocumentCounts]) -> list[int]:
    """Return the k at which at least `MIN_MISSES` tokens of every model have a rank above k.

    A k is left out if one of the counts does not hold it. Counts that hold only totals (metrics imported without ranks)
    are not checked.

    Args:
        counts: the counts of each model, at least one.

    """
    ks = set(counts[0].ks)
    for model_counts in counts:
        misses = model_counts.tokens.sum() - model_counts.hits.sum(axis=0)
        enough = misses >= (0 if only_totals(model_counts) else MIN_MISSES)
        ks &= {k for k, is_enough in zip(model_counts.ks, enough, strict=True) if is_enough}
    return sorted(ks)


MIN_KS = 3
"""The fewest k through which a law in k is fitted."""


def law_in_k(counts: DocumentCounts, largest: int) -> tuple[Estimate, Law] | None:
    """Fit the law in k of one model, -ln RBP_k = B k^-beta, by least squares of ln(-ln RBP_k) on ln k.

    The k of the fit are evenly spaced in ln k. RBP_k is above 0 and below 1 at each of them, and at least `MIN_MISSES`
    tokens have a rank above k.

    Args:
        counts: the counts of the model at many k, ascending.
        largest: the largest k that may be used.

    Returns:
        Beta with its error over documents, and the fitted law. The `s` of this law are the k of the fit, and its `a` is
        B. None if there are fewer than `MIN_KS` such k.

    """
    hits = counts.hits.sum(axis=0)
    between = (hits > 0) & (hits < counts.tokens.sum())
    possible = set(ks_with_enough_misses([counts])) & set(log_grid(largest).tolist())
    ks = [k for k, is_between in zip(counts.ks, between, strict=True) if is_between and k in possible]
    if len(ks) < MIN_KS:
        return None
    fitted = counts.select(ks)
    line = fit(np.array(ks), neg_log_rbp(fitted.sums.sum(axis=0)))
    return estimate(fitted, lambda sums: np.asarray(np.log(neg_log_rbp(sums)) @ line.alpha_weights)), line


def why_no_law_in_k(largest: int) -> str:
    """Return a clause that says why `law_in_k` found too few k. largest: the largest k that might have been used."""
    return (
        f"at nearly every k up to {largest}, RBP_k is unknown or 0, or fewer than {MIN_MISSES} tokens have a rank "
        "above k"
    )


def why_no_interval_in_k(counts: DocumentCounts) -> str:
    """Return a clause that says why the law in k of one model has no interval. counts: the counts of the model."""
    if only_totals(counts):
        return "single documents are unknown, because it was imported without ranks"
    if len(counts.document) < MIN_UNITS:
        return _too_few_clause(counts)
    return "if one certain document were left out, RBP_k would be 0 or 1 at some k"
