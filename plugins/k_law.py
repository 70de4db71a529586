"""The law in k: -ln RBP_k = B * k**-beta at fixed model, and what a larger k is worth in model size.

Figure 9, table 1 and eq. 10 of arXiv 2510.20387 and its draft. The slope is that of ln(-ln RBP_k) against ln k (the
authors' slope is -beta), by least squares over `log_grid(100)`: integers even in ln k. Over every integer 1..100, which
gives most of the weight to large k, it stands beside it as `beta_every_k`: the authors do not say which they used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from rbptrack.analysis import (
    MARKERS,
    Analyzer,
    DocumentCounts,
    Drawing,
    Family,
    RankHistogram,
    Report,
    Runs,
    Unreadable,
    colour_and_marker,
    gradient,
    log_axis,
    log_grid,
    panel_per,
    read_families,
    short_number,
    style,
)
from rbptrack.stats import FloatArray, bootstrap_metrics, document_weights, fit_power_law, paired_covariance

_CELL = {
    "dataset": "the dataset",
    "family": "the family; with what sets this part apart where its runs disagree",
}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "summary": {
        **_CELL,
        "size": "the size as published",
        "S": "non-embedding parameters",
        "beta": "of -ln RBP_k = B k^-beta, over k even in ln k",
        "95 % over documents": "its interval, by document bootstrap",
        "R^2": "of ln(-ln RBP_k) against ln k",
        "largest deviation": "of -ln RBP_k from the line",
    },
    "slopes": {
        **_CELL,
        "size": "the size as published",
        "S": "non-embedding parameters",
        "B": "-ln RBP_1 by the line",
        "beta": "minus the slope of ln(-ln RBP_k) against ln k over log_grid(100), or the k of imported numbers",
        "beta_low": "lower end of its interval, by document bootstrap; empty for imported numbers",
        "beta_high": "upper end",
        "r2": "of that line",
        "largest_deviation": "largest relative distance of -ln RBP_k from the line",
        "beta_at_1": "local beta at k = 1, of a parabola in ln k",
        "beta_at_10": "the same at k = 10",
        "beta_at_largest": "the same at the largest k",
        "largest_k": "of the fit",
        "beta_every_k": "beta over every integer k instead",
        "r2_every_k": "of that line",
    },
    "worth_of_k": {
        **_CELL,
        "k": "from which k doubles",
        "alpha": "of -ln RBP_k = A S^-alpha at this k",
        "alpha_low": "lower end of its interval",
        "alpha_high": "upper end",
        "beta": "ln(y_k/y_2k)/ln 2 with y = -ln RBP, mean over sizes",
        "ratio": "beta/alpha: dS/S per dk/k at constant RBP, up to sign (eq. 10)",
        "factor_in_s": "2^(beta/alpha): the growth in S that has the effect of doubling k",
        "factor_low": "lower end of its interval (Fieller)",
        "factor_high": "upper end; infinite where alpha may be 0",
        "factor_measured": "the same read off between measured sizes, geometric mean",
        "sizes_measured": "over how many sizes",
    },
}


@dataclass(frozen=True)
class Curves:
    """-ln RBP_k of one family on one dataset, and the line and parabola through each size's curve.

    Attributes:
        family: the measurements.
        ks: the k of the fit where RBP_k is neither 0 nor 1 for any size, (ks,).
        y: -ln RBP_k, (m, ks).
        every: these k and those whose doubling is asked about, (every,).
        every_y: -ln RBP_k at them, (m, every).
        every_draws: the same in each bootstrap replicate, (m, replicates, every).
        beta: minus the slope of ln y against ln k, (m,).
        intercept: ln B, (m,).
        r2: of that line, (m,).
        beta_draws: beta in each replicate, (m, replicates).
        parabola: coefficients of 1, t, t^2 with t = ln k, of ln y, (m, 3).

    """

    family: Family
    ks: FloatArray
    y: FloatArray
    every: FloatArray
    every_y: FloatArray
    every_draws: FloatArray
    beta: FloatArray
    intercept: FloatArray
    r2: FloatArray
    beta_draws: FloatArray
    parabola: FloatArray

    def column(self, k: int) -> int:
        """Where `every` has k."""
        return int(np.searchsorted(self.every, k))

    def local_beta(self, k: float) -> FloatArray:
        """Minus the local slope of each size's parabola at k, (m,)."""
        return np.asarray(-(self.parabola[:, 1] + 2 * self.parabola[:, 2] * np.log(k)))


@dataclass(kw_only=True)
class KLaw(Analyzer):
    """-ln RBP_k = B k^-beta at fixed model, and what a larger k is worth in model size.

    Attributes:
        largest: the largest k of the fit; the law is not expected to hold beyond some 100.
        ks: the k at which the worth of a larger k is given.
        level: nominal coverage of the intervals.
        replicates: document bootstraps, drawn jointly for all sizes of a family.

    """

    name: ClassVar[str] = "k_law"
    largest: int = 100
    ks: list[int] = field(default_factory=lambda: [1, 2, 5, 10, 20, 50])
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Fit every model's curve; the trade-off needs at least 3 sizes."""
        report = Report()
        found: list[Curves] = []
        slopes: list[dict[str, Any]] = []
        worth: list[dict[str, Any]] = []

        def load(family: Family, run_id: str) -> Both:
            counts = runs.document_counts(run_id, self._every(family))
            try:
                return Both(counts, runs.histogram(run_id))
            except Unreadable:
                return Both(counts, None)

        for family, loaded in read_families(runs, load, report.notes):
            curves = self._curves(family, [both.counts for both in loaded])
            if curves is None:
                report.notes.append(
                    f"{family}: RBP_k is 0 or 1 or unknown at nearly every k <= {self.largest}: nothing to fit."
                )
                continue
            found.append(curves)
            slopes += self._slopes(curves, [both.histogram for both in loaded])
            here = self._worth(curves)
            worth += here
            report.notes.append(f"{family}: {self._sentences(curves, here)}")
        if not found:
            raise report.nothing_found("no measurement to fit")
        table = pd.DataFrame(slopes)
        report.add_table("summary", _summary(table), COLUMNS["summary"])
        report.add_table("slopes", table, COLUMNS["slopes"])
        worth_caption = "At constant RBP: how much larger a model equals going from k to 2k (eq. 10)."
        report.add_table("worth_of_k", worth, COLUMNS["worth_of_k"], caption=worth_caption)
        report.summary = "summary"
        for row in slopes:
            for quantity in ("beta", "r2"):
                name = f"k_law_{quantity}/{row['family']}/{row['dataset']}/{row['size']}"
                report.metrics[name] = row[quantity]
        for row in worth:
            report.metrics[f"worth_of_double_k/{row['family']}/{row['dataset']}/rbp_{row['k']}"] = row["factor_in_s"]
        report.headline = (
            f"beta {table['beta'].min():.3f} to {table['beta'].max():.3f} over {len(table)} measurements, R^2 at least "
            f"{table['r2'].min():.4f}, points up to {table['largest_deviation'].max():.0%} off the line"
        )
        names = sorted({c.family.name for c in found})
        for name in names:
            report.drawings[f"against_k_{name}"] = Drawing(
                self._against_k([c for c in found if c.family.name == name]),
                "Points: the k of the fit; lines: B k^-beta of each size.",
            )
        report.drawings["beta_against_size"] = Drawing(
            self._beta_against_size(found), f"{self.level:.0%} intervals over documents."
        )
        if worth:
            report.drawings["worth_of_k"] = Drawing(
                self._worth_figure(report.tables["worth_of_k"].frame), worth_caption
            )
        return report

    def _every(self, family: Family) -> list[int]:
        """The k of the fit, and those whose doubling is asked about."""
        grid = self._grid(family)
        if not family.vocab_size:
            return grid
        pairs = [k for k in self.ks if 2 * k <= min(self.largest, family.vocab_size)]
        return sorted({*grid, *pairs, *(2 * k for k in pairs)})

    def _grid(self, family: Family) -> list[int]:
        """The k of the fit: even in ln k; of imported numbers without ranks, those that every run has."""
        if family.vocab_size:
            return [int(k) for k in log_grid(min(self.largest, family.vocab_size))]
        return [k for k in family.logged_ks if k <= self.largest]

    def _curves(self, family: Family, counts: list[DocumentCounts]) -> Curves | None:
        if not counts[0].ks:
            return None
        weights = document_weights(len(counts[0].document), replicates=self.replicates)
        one = np.ones((1, len(counts[0].document)))
        with np.errstate(divide="ignore"):
            y = np.stack([-np.log(bootstrap_metrics(c, one)[0, 1:]) for c in counts])
            draws = np.stack([-np.log(bootstrap_metrics(c, weights)[:, 1:]) for c in counts])
        usable = (np.isfinite(draws) & (draws > 0)).all(axis=(0, 1)) & (np.isfinite(y) & (y > 0)).all(axis=0)
        if usable.sum() < 4:
            return None
        every, all_y, all_draws = np.asarray(counts[0].ks)[usable], y[:, usable], draws[:, :, usable]
        fitted = np.isin(every, self._grid(family))
        ks, y, draws = every[fitted], all_y[:, fitted], all_draws[:, :, fitted]
        t, logs = np.log(ks), np.log(y)
        line = np.linalg.pinv(np.column_stack([np.ones(len(t)), t]))  # (2, ks)
        coefficients = logs @ line.T  # (m, 2)
        residual = logs - coefficients @ np.stack([np.ones(len(t)), t])
        parabola = logs @ np.linalg.pinv(np.vander(t, 3, increasing=True)).T
        return Curves(
            family=family,
            ks=ks,
            y=y,
            every=every,
            every_y=all_y,
            every_draws=all_draws,
            beta=-coefficients[:, 1],
            intercept=coefficients[:, 0],
            r2=1 - (residual**2).sum(axis=1) / ((logs - logs.mean(axis=1, keepdims=True)) ** 2).sum(axis=1),
            beta_draws=-(np.log(draws) @ line[1]) if len(weights[0]) > 1 else np.full(draws.shape[:2], np.nan),
            parabola=parabola,
        )

    def _slopes(self, c: Curves, histograms: list[RankHistogram | None]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        every = np.arange(1, int(c.ks[-1]) + 1)
        tail = 50 * (1 - self.level)
        for i, (s, size) in enumerate(zip(c.family.s, c.family.labels, strict=True)):
            whole = histograms[i]
            plain = stats.linregress(np.log(every), np.log(-np.log(whole.rbp_curve(every)))) if whole else None
            low, high = np.percentile(c.beta_draws[i], [tail, 100 - tail])
            fitted = np.exp(c.intercept[i]) * c.ks ** -c.beta[i]
            rows.append(
                {
                    "dataset": c.family.dataset,
                    "family": c.family.name,
                    "size": size,
                    "S": s,
                    "B": float(np.exp(c.intercept[i])),
                    "beta": float(c.beta[i]),
                    "beta_low": float(low),
                    "beta_high": float(high),
                    "r2": float(c.r2[i]),
                    "largest_deviation": float(np.abs(c.y[i] / fitted - 1).max()),
                    "beta_at_1": float(c.local_beta(1)[i]),
                    "beta_at_10": float(c.local_beta(10)[i]),
                    "beta_at_largest": float(c.local_beta(float(c.ks[-1]))[i]),
                    "largest_k": int(c.ks[-1]),
                    "beta_every_k": -float(plain.slope) if plain else np.nan,
                    "r2_every_k": float(plain.rvalue**2) if plain else np.nan,
                }
            )
        return rows

    def _worth(self, c: Curves) -> list[dict[str, Any]]:
        """Eq. 10, dS/S = -(alpha_k/alpha_S) dk/k, as the factor in S that a doubling of k is worth."""
        if len(c.family.s) < 3:
            return []
        rows = []
        for k in (k for k in self.ks if {k, 2 * k} <= {*c.every.tolist()}):
            j = c.column(k)
            covariance = paired_covariance(list(np.log(c.every_draws[:, :, j])))
            law = fit_power_law(c.family.s, c.every_y[:, j], covariance=covariance, level=self.level)
            middle = np.log(c.every_y[:, j] / c.every_y[:, c.column(2 * k)]) / np.log(2)  # beta between k and 2k
            beta, beta_se = float(middle.mean()), float(middle.std(ddof=1) / np.sqrt(len(middle)))
            quantile = float(stats.t.ppf(0.5 + self.level / 2, law.points - 2))
            low, high = fieller(beta, law.alpha, beta_se, law.se, quantile=quantile)
            measured, pairs = _interpolated(c, k)
            rows.append(
                {
                    "dataset": c.family.dataset,
                    "family": c.family.name,
                    "k": k,
                    "alpha": law.alpha,
                    "alpha_low": law.low,
                    "alpha_high": law.high,
                    "beta": beta,
                    "ratio": beta / law.alpha,
                    "factor_in_s": float(2 ** (beta / law.alpha)),
                    "factor_low": float(2**low),
                    "factor_high": float(2**high),
                    "factor_measured": measured,
                    "sizes_measured": pairs,
                }
            )
        return rows

    def _sentences(self, c: Curves, worth: list[dict[str, Any]]) -> str:
        bend = c.local_beta(float(c.ks[-1])).mean() - c.local_beta(1).mean()
        fitted = np.exp(c.intercept)[:, None] * c.ks ** -c.beta[:, None]
        off = float(np.abs(c.y / fitted - 1).max())
        first, last = c.family.labels[0], c.family.labels[-1]
        sizes = f"{c.beta[0]:.3f}" if len(c.beta) == 1 else f"{c.beta[0]:.3f} ({first}) to {c.beta[-1]:.3f} ({last})"
        notes = [
            f"beta is {sizes} over k = {c.ks[0]} to {c.ks[-1]}, R^2 at least {c.r2.min():.4f}; the points "
            f"are up to {off:.1%} off the line, and the local slope {'steepens' if bend > 0 else 'flattens'} from "
            f"{c.local_beta(1).mean():.2f} at k = 1 to {c.local_beta(float(c.ks[-1])).mean():.2f} at k = {c.ks[-1]} "
            "(means over sizes)" + (": R^2 near 1 hides that bend." if abs(bend) > 0.05 else ".")
        ]
        if len(c.beta) >= 3:
            trend = stats.linregress(np.log10(c.family.s), c.beta)
            half = float(stats.t.ppf(0.5 + self.level / 2, len(c.beta) - 2) * trend.stderr)
            steady = abs(trend.slope) <= half
            notes.append(
                f"Beta changes by {trend.slope:+.3f} (± {half:.3f}) per factor 10 in S, "
                + (
                    "no trend beyond its scatter."
                    if steady
                    else "so alpha changes by as much per factor 10 in k: eq. 10 is local."
                )
            )
        else:
            notes.append(f"The trade-off is not identifiable from {len(c.beta)} size(s), 3 are needed.")
        known = [w for w in worth if np.isfinite(w["factor_high"])]
        if known:
            w = min(known, key=lambda w: abs(w["k"] - 10))
            text = (
                f"Doubling k from {w['k']} is worth {w['factor_in_s']:.2f} times the size "
                f"({self.level:.0%} interval {w['factor_low']:.2f} to {w['factor_high']:.2f})"
            )
            if w["sizes_measured"]:
                text += f"; read off between the measured sizes: {w['factor_measured']:.2f}"
            notes.append(text + ".")
        elif worth:
            notes.append("Alpha is not distinguishable from 0, so the worth of a larger k is not identifiable.")
        return " ".join(notes)

    def _against_k(self, found: list[Curves]) -> Figure:
        """The paper's figure 9: one panel per dataset, one colour per size."""
        with style():
            figure, axes = panel_per([str(c.family) for c in found], height=3.6)
            for ax, c in zip(axes, found, strict=True):
                low, high = c.y.min() / 1.3, c.y.max() * 1.3
                for i, colour in enumerate(gradient(len(c.beta))):
                    label = f"{c.family.labels[i]}: β = {c.beta[i]:.3f}"
                    ax.plot(c.ks, c.y[i], MARKERS[i % len(MARKERS)], ms=3.5, color=colour, label=label)
                    ax.plot(c.ks, np.exp(c.intercept[i]) * c.ks ** -c.beta[i], "-", lw=1.1, color=colour)
                ax.set(xlabel="k", ylabel="−ln RBP$_k$")
                log_axis(ax.xaxis, low=c.ks[0] / 1.15, high=c.ks[-1] * 1.15)
                log_axis(ax.yaxis, low=low / (high / low) ** 0.25, high=high)
                ax.legend(loc="lower left", fontsize=7.5, ncols=2 if len(c.beta) > 5 else 1)
            return figure

    def _beta_against_size(self, found: list[Curves]) -> Figure:
        datasets = sorted({c.family.dataset for c in found})
        names = sorted({c.family.name for c in found})
        with style():
            figure, axes = panel_per(datasets, sharey=True)
            tail = 50 * (1 - self.level)
            for ax, dataset in zip(axes, datasets, strict=True):
                here = [c for c in found if c.family.dataset == dataset]
                for c in here:
                    colour, marker = colour_and_marker(names.index(c.family.name))
                    low, high = np.percentile(c.beta_draws, [tail, 100 - tail], axis=1)
                    error = np.clip([c.beta - low, high - c.beta], 0, None)
                    ax.errorbar(
                        c.family.s,
                        c.beta,
                        yerr=error,
                        fmt=f"{marker}-",
                        lw=1.0,
                        ms=4.5,
                        capsize=2,
                        color=colour,
                        label=c.family.name,
                    )
                sizes = np.concatenate([c.family.s for c in here])
                ax.set(xlabel="S, non-embedding parameters", ylabel=f"β over k = 1 to {self.largest}")
                log_axis(ax.xaxis, low=sizes.min() / 1.5, high=sizes.max() * 1.5)
                ax.legend()
            return figure

    def _worth_figure(self, table: pd.DataFrame) -> Figure:
        datasets, names = sorted(set(table["dataset"])), sorted(set(table["family"]))
        with style():
            figure, axes = panel_per(datasets, sharey=True)
            for ax, dataset in zip(axes, datasets, strict=True):
                for name in names:
                    rows = table[(table["dataset"] == dataset) & (table["family"] == name)]
                    rows = rows[np.isfinite(rows["factor_high"])]
                    if not len(rows):
                        continue
                    colour, _ = colour_and_marker(names.index(name))
                    ax.plot(rows["k"], rows["factor_in_s"], "-", color=colour, label=f"{name}, eq. 10")
                    ax.fill_between(rows["k"], rows["factor_low"], rows["factor_high"], color=colour, alpha=0.15, lw=0)
                    ax.plot(rows["k"], rows["factor_measured"], "o", ms=4.5, color=colour, label=f"{name}, measured")
                ax.axhline(1, color="0.4", lw=0.8, ls=":")
                ax.set(xlabel="k", ylabel="factor in S that 2k is worth over k")
                log_axis(ax.xaxis, low=table["k"].min() / 1.2, high=table["k"].max() * 1.2)
                ax.legend(fontsize=8.5)
            log_axis(axes[0].yaxis, **_range(table))
            return figure


@dataclass(frozen=True)
class Both:
    """What one run's fit reads; runs of one size add."""

    counts: DocumentCounts
    histogram: RankHistogram | None

    def __add__(self, other: "Both") -> "Both":
        whole = self.histogram + other.histogram if self.histogram and other.histogram else None
        return Both(self.counts + other.counts, whole)


def fieller(a: float, b: float, a_se: float, b_se: float, *, quantile: float) -> tuple[float, float]:
    """Fieller's interval of a/b for independent, normal a and b; (-inf, inf) where b may be 0."""
    g = (quantile * b_se / b) ** 2
    if g >= 1:
        return -np.inf, np.inf
    ratio = a / b
    half = quantile / abs(b) * np.sqrt(a_se**2 * (1 - g) + ratio**2 * b_se**2)
    return float((ratio - half) / (1 - g)), float((ratio + half) / (1 - g))


def _interpolated(c: Curves, k: int) -> tuple[float, int]:
    """The factor from S to the size that has at k what S has at 2k: geometric mean over sizes, and of how many."""
    x = np.log(c.family.s)
    at, twice = np.log(c.every_y[:, c.column(k)]), np.log(c.every_y[:, c.column(2 * k)])
    if (np.diff(at) >= 0).any():
        return float("nan"), 0  # a larger model is not better: there is no unique size to read off
    inside = (twice <= at[0]) & (twice >= at[-1])
    reached = np.interp(-twice[inside], -at, x)
    factors = reached - x[inside]
    return (float(np.exp(factors.mean())), int(inside.sum())) if inside.any() else (float("nan"), 0)


def _range(table: pd.DataFrame) -> dict[str, float]:
    finite = table[["factor_in_s", "factor_low", "factor_high", "factor_measured"]].to_numpy(dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    return {"low": float(max(min(finite.min(), 1) / 1.15, 0.2)), "high": float(min(finite.max() * 1.3, 100))}


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    """The table for the terminal: texts, rounded."""
    ends = zip(table["beta_low"], table["beta_high"], strict=True)
    interval = [f"{a:.3f} .. {b:.3f}" if a == a else "" for a, b in ends]
    return pd.DataFrame(
        {
            "dataset": table["dataset"],
            "family": table["family"],
            "size": table["size"],
            "S": [short_number(s) for s in table["S"]],
            "beta": [f"{v:.4f}" for v in table["beta"]],
            "95 % over documents": interval,
            "R^2": [f"{v:.4f}" for v in table["r2"]],
            "largest deviation": [f"{v:.1%}" for v in table["largest_deviation"]],
        }
    )
