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
    error_bars,
    gradient,
    log_axis,
    log_grid,
    panel_per,
    read_families,
    short_number,
    size_axis,
    style,
)
from rbptrack.stats import (
    FloatArray,
    KLawFit,
    fieller,
    fit_k_law,
    fit_power_law,
    k_slopes,
    law_values,
    paired_covariance,
    size_factor_read_off,
)

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
class Loaded:
    """What one run's fit reads; the runs of one size add up."""

    counts: DocumentCounts
    histogram: RankHistogram | None

    def __add__(self, other: "Loaded") -> "Loaded":
        whole = self.histogram + other.histogram if self.histogram and other.histogram else None
        return Loaded(self.counts + other.counts, whole)


@dataclass(frozen=True)
class Curves:
    """-ln RBP_k of one family on one dataset, at the k where RBP_k is neither 0 nor 1 for any size.

    Attributes:
        family: the measurements.
        fit: the line and parabola through each size's curve, at the k of the fit.
        beta_draws: beta in each bootstrap replicate, (m, replicates); NaN where there is one document only.
        ks: the k of the fit, and those whose doubling is asked about, (ks,).
        y: -ln RBP_k at them, (m, ks).
        draws: the same in each replicate, (m, replicates, ks).

    """

    family: Family
    fit: KLawFit
    beta_draws: FloatArray
    ks: FloatArray
    y: FloatArray
    draws: FloatArray

    def column(self, k: int) -> int:
        """Where `ks` has k."""
        return int(np.searchsorted(self.ks, k))


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

        def load(family: Family, run_id: str) -> Loaded:
            counts = runs.document_counts(run_id, self._every_k(family))
            try:
                return Loaded(counts, runs.histogram(run_id))
            except Unreadable:
                return Loaded(counts, None)

        for family, loaded in read_families(runs, load, report.notes):
            curves = self._curves(family, [one.counts for one in loaded])
            if curves is None:
                report.notes.append(
                    f"{family}: RBP_k is 0 or 1 or unknown at nearly every k <= {self.largest}: nothing to fit."
                )
                continue
            found.append(curves)
            slopes += self._slopes(curves, [one.histogram for one in loaded])
            here = self._worth(curves)
            worth += here
            report.notes.append(" ".join([self._about_slopes(curves), *self._about_worth(here)]))
        if not found:
            raise report.nothing_found("no measurement to fit")
        self._write(report, found, slopes, worth)
        return report

    def _write(
        self, report: Report, found: list[Curves], slopes: list[dict[str, Any]], worth: list[dict[str, Any]]
    ) -> None:
        """Tables, metrics, headline and figures."""
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
        for name in sorted({c.family.name for c in found}):
            report.drawings[f"against_k_{name}"] = Drawing(
                _draw_against_k([c for c in found if c.family.name == name]),
                "Points: the k of the fit; lines: B k^-beta of each size.",
            )
        report.drawings["beta_against_size"] = Drawing(
            self._draw_beta(table), f"{self.level:.0%} intervals over documents."
        )
        if worth:
            report.drawings["worth_of_k"] = Drawing(_draw_worth(pd.DataFrame(worth)), worth_caption)

    def _every_k(self, family: Family) -> list[int]:
        """The k of the fit, and those whose doubling is asked about."""
        grid = self._fitted_k(family)
        if not family.vocab_size:
            return grid
        pairs = [k for k in self.ks if 2 * k <= min(self.largest, family.vocab_size)]
        return sorted({*grid, *pairs, *(2 * k for k in pairs)})

    def _fitted_k(self, family: Family) -> list[int]:
        """The k of the fit: even in ln k; of imported numbers without ranks, those that every run has."""
        if family.vocab_size:
            return [int(k) for k in log_grid(min(self.largest, family.vocab_size))]
        return [k for k in family.logged_ks if k <= self.largest]

    def _curves(self, family: Family, counts: list[DocumentCounts]) -> Curves | None:
        if not counts[0].ks:
            return None
        values, draws = law_values(counts, replicates=self.replicates)
        y, draws = values[:, 1:], draws[:, :, 1:]  # without CE
        usable = (np.isfinite(draws) & (draws > 0)).all(axis=(0, 1)) & (np.isfinite(y) & (y > 0)).all(axis=0)
        if usable.sum() < 4:
            return None
        ks, y, draws = np.asarray(counts[0].ks)[usable], y[:, usable], draws[:, :, usable]
        fitted = np.isin(ks, self._fitted_k(family))
        beta_draws = k_slopes(ks[fitted], draws[:, :, fitted])
        if len(counts[0].document) == 1:
            beta_draws = np.full_like(beta_draws, np.nan)
        return Curves(family, fit_k_law(ks[fitted], y[:, fitted]), beta_draws, ks, y, draws)

    def _slopes(self, c: Curves, histograms: list[RankHistogram | None]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        largest = int(c.fit.ks[-1])
        every = np.arange(1, largest + 1)
        for i, (s, size) in enumerate(zip(c.family.s, c.family.labels, strict=True)):
            whole = histograms[i]
            plain = stats.linregress(np.log(every), np.log(-np.log(whole.rbp_curve(every)))) if whole else None
            low, high = np.percentile(c.beta_draws[i], [50 * (1 - self.level), 50 * (1 + self.level)])
            row: dict[str, Any] = {"dataset": c.family.dataset, "family": c.family.name, "size": size, "S": s}
            row |= {"B": np.exp(c.fit.log_b[i]), "beta": c.fit.beta[i], "beta_low": low, "beta_high": high}
            row |= {"r2": c.fit.r2[i], "largest_deviation": c.fit.largest_deviation[i]}
            row |= {"beta_at_1": c.fit.local_beta(1)[i], "beta_at_10": c.fit.local_beta(10)[i]}
            row |= {"beta_at_largest": c.fit.local_beta(largest)[i], "largest_k": largest}
            row["beta_every_k"] = -plain.slope if plain else np.nan
            row["r2_every_k"] = plain.rvalue**2 if plain else np.nan
            rows.append(row)
        return rows

    def _worth(self, c: Curves) -> list[dict[str, Any]]:
        """Eq. 10, dS/S = -(alpha_k/alpha_S) dk/k, as the factor in S that a doubling of k is worth."""
        if len(c.family.s) < 3:
            return []
        rows = []
        for k in (k for k in self.ks if {k, 2 * k} <= {*c.ks.tolist()}):
            y, doubled = c.y[:, c.column(k)], c.y[:, c.column(2 * k)]
            covariance = paired_covariance(list(np.log(c.draws[:, :, c.column(k)])))
            law = fit_power_law(c.family.s, y, covariance=covariance, level=self.level)
            betas = np.log(y / doubled) / np.log(2)  # between k and 2k
            beta, beta_se = float(betas.mean()), float(betas.std(ddof=1) / np.sqrt(len(betas)))
            quantile = float(stats.t.ppf(0.5 + self.level / 2, law.points - 2))
            low, high = fieller(beta, law.alpha, beta_se, law.se, quantile=quantile)
            measured, sizes = size_factor_read_off(c.family.s, y, doubled)
            row: dict[str, Any] = {"dataset": c.family.dataset, "family": c.family.name, "k": k}
            row |= {"alpha": law.alpha, "alpha_low": law.low, "alpha_high": law.high}
            row |= {"beta": beta, "ratio": beta / law.alpha, "factor_in_s": float(2 ** (beta / law.alpha))}
            row |= {"factor_low": float(2**low), "factor_high": float(2**high)}
            rows.append(row | {"factor_measured": measured, "sizes_measured": sizes})
        return rows

    def _about_slopes(self, c: Curves) -> str:
        beta, first, last, largest = c.fit.beta, c.family.labels[0], c.family.labels[-1], c.fit.ks[-1]
        at_1, at_largest = c.fit.local_beta(1).mean(), c.fit.local_beta(float(largest)).mean()
        sizes = f"{beta[0]:.3f}" if len(beta) == 1 else f"{beta[0]:.3f} ({first}) to {beta[-1]:.3f} ({last})"
        bend = at_largest - at_1
        text = (
            f"{c.family}: beta is {sizes} over k = {c.fit.ks[0]} to {largest}, R^2 at least {c.fit.r2.min():.4f}; the "
            f"points are up to {c.fit.largest_deviation.max():.1%} off the line, and the local slope "
            f"{'steepens' if bend > 0 else 'flattens'} from {at_1:.2f} at k = 1 to {at_largest:.2f} at k = {largest} "
            "(means over sizes)" + (": R^2 near 1 hides that bend." if abs(bend) > 0.05 else ".")
        )
        if len(beta) < 3:
            return f"{text} The trade-off is not identifiable from {len(beta)} size(s), 3 are needed."
        trend = stats.linregress(np.log10(c.family.s), beta)
        half = float(stats.t.ppf(0.5 + self.level / 2, len(beta) - 2) * trend.stderr)
        moves = "so alpha changes by as much per factor 10 in k: eq. 10 is local."
        return (
            f"{text} Beta changes by {trend.slope:+.3f} (± {half:.3f}) per factor 10 in S, "
            f"{'no trend beyond its scatter.' if abs(trend.slope) <= half else moves}"
        )

    def _about_worth(self, worth: list[dict[str, Any]]) -> list[str]:
        if not worth:
            return []
        known = [row for row in worth if np.isfinite(row["factor_high"])]
        if not known:
            return ["Alpha is not distinguishable from 0, so the worth of a larger k is not identifiable."]
        row = min(known, key=lambda row: abs(row["k"] - 10))
        text = (
            f"Doubling k from {row['k']} is worth {row['factor_in_s']:.2f} times the size "
            f"({self.level:.0%} interval {row['factor_low']:.2f} to {row['factor_high']:.2f})"
        )
        if row["sizes_measured"]:
            text += f"; read off between the measured sizes: {row['factor_measured']:.2f}"
        return [f"{text}."]

    def _draw_beta(self, table: pd.DataFrame) -> Figure:
        """Beta against S: one panel per dataset, one colour per family."""
        datasets, names = sorted(set(table["dataset"])), sorted(set(table["family"]))
        with style():
            figure, axes = panel_per(datasets, sharey=True)
            for ax, dataset in zip(axes, datasets, strict=True):
                here = table[table["dataset"] == dataset]
                for name, rows in here.groupby("family"):
                    colour, marker = colour_and_marker(names.index(name))
                    drawn = {"fmt": f"{marker}-", "lw": 1.0, "ms": 4.5, "color": colour, "label": name}
                    error_bars(ax, rows["S"], rows["beta"], rows["beta_low"], rows["beta_high"], **drawn)
                size_axis(ax, here["S"])
                ax.set(ylabel=f"β over k = 1 to {self.largest}")
                ax.legend()
            return figure


def _draw_against_k(found: list[Curves]) -> Figure:
    """The paper's figure 9: one panel per dataset, one colour per size."""
    with style():
        figure, axes = panel_per([str(c.family) for c in found], height=3.6)
        for ax, c in zip(axes, found, strict=True):
            ks, y = c.fit.ks, c.fit.y
            for i, colour in enumerate(gradient(len(y))):
                label = f"{c.family.labels[i]}: β = {c.fit.beta[i]:.3f}"
                ax.plot(ks, y[i], MARKERS[i % len(MARKERS)], ms=3.5, color=colour, label=label)
                ax.plot(ks, c.fit.fitted[i], "-", lw=1.1, color=colour)
            low, high = y.min() / 1.3, y.max() * 1.3
            ax.set(xlabel="k", ylabel="−ln RBP$_k$")
            log_axis(ax.xaxis, low=ks[0] / 1.15, high=ks[-1] * 1.15)
            log_axis(ax.yaxis, low=low / (high / low) ** 0.25, high=high)
            ax.legend(loc="lower left", fontsize=7.5, ncols=2 if len(y) > 5 else 1)
        return figure


def _draw_worth(table: pd.DataFrame) -> Figure:
    """What doubling k is worth, against k: by eq. 10 with its interval, and as read off between sizes."""
    datasets, names = sorted(set(table["dataset"])), sorted(set(table["family"]))
    quantities = table[["factor_in_s", "factor_low", "factor_high", "factor_measured"]].to_numpy(dtype=np.float64)
    finite = quantities[np.isfinite(quantities)]
    with style():
        figure, axes = panel_per(datasets, sharey=True)
        for ax, dataset in zip(axes, datasets, strict=True):
            here = table[(table["dataset"] == dataset) & np.isfinite(table["factor_high"])]
            for name, rows in here.groupby("family"):
                colour, _ = colour_and_marker(names.index(name))
                ax.plot(rows["k"], rows["factor_in_s"], "-", color=colour, label=f"{name}, eq. 10")
                ax.fill_between(rows["k"], rows["factor_low"], rows["factor_high"], color=colour, alpha=0.15, lw=0)
                ax.plot(rows["k"], rows["factor_measured"], "o", ms=4.5, color=colour, label=f"{name}, measured")
            ax.axhline(1, color="0.4", lw=0.8, ls=":")
            ax.set(xlabel="k", ylabel="factor in S that 2k is worth over k")
            log_axis(ax.xaxis, low=table["k"].min() / 1.2, high=table["k"].max() * 1.2)
            ax.legend(fontsize=8.5)
        log_axis(axes[0].yaxis, low=max(min(finite.min(), 1) / 1.15, 0.2), high=min(finite.max() * 1.3, 100))
        return figure


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    """The table for the terminal: texts, rounded."""
    ends = zip(table["beta_low"], table["beta_high"], strict=True)
    return pd.DataFrame(
        {
            **table[["dataset", "family", "size"]],
            "S": [short_number(s) for s in table["S"]],
            "beta": [f"{v:.4f}" for v in table["beta"]],
            "95 % over documents": [f"{a:.3f} .. {b:.3f}" if a == a else "" for a, b in ends],
            "R^2": [f"{v:.4f}" for v in table["r2"]],
            "largest deviation": [f"{v:.1%}" for v in table["largest_deviation"]],
        }
    )
