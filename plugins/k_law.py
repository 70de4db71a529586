"""The law in k: -ln RBP_k = B * k**-beta at fixed model, and what a larger k is worth in model size.

Figure 9, table 1 and eq. 10 of arXiv 2510.20387 and its draft. The slope is that of ln(-ln RBP_k) against ln k (the
authors' slope is -beta), by least squares over `log_grid(100)`: integers even in ln k. Over every integer 1..100, which
gives most of the weight to large k, it stands beside it as `beta_every_k`: the authors do not say which they used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from rbptrack.analysis import (
    KEYS,
    MARKERS,
    Analyzer,
    DocumentCounts,
    Drawing,
    Family,
    Report,
    Runs,
    at_least,
    colour_and_marker,
    counted,
    error_bars,
    gradient,
    log_axis,
    log_grid,
    panel_per,
    published_beta,
    read_families,
    short_number,
    size_axis,
    spread,
    style,
)
from rbptrack.stats import KCurves, KLawFit, k_curves, worth_of_doubling

_DOTTED = (0, (1, 1.5))
_LARGEST_FACTOR = 1e6  # a factor in S that may be larger is not known, and not shown
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "summary": {
        **KEYS,
        "beta": "of -ln RBP_k = B k^-beta, over k even in ln k",
        "interval": "of beta, 95% unless the options say otherwise, by studentized document bootstrap",
        "R^2": "of ln(-ln RBP_k) against ln k",
        "largest deviation": "of -ln RBP_k from the line",
    },
    "slopes": {
        **KEYS,
        "B": "-ln RBP_1 by the line",
        "beta": "minus the slope of ln(-ln RBP_k) against ln k over log_grid(100), or the k of imported numbers",
        "beta_low": "lower end of its interval, studentized document bootstrap; empty for imported numbers",
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
        "dataset": KEYS["dataset"],
        "family": KEYS["family"],
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


Curves = tuple[Family, KCurves]


_FEW_DOCUMENTS = 100  # below it no bootstrap knows a skewed tail (docs/validity.md)


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
        few: list[str] = []

        def load(family: Family, run_id: str) -> DocumentCounts:
            return runs.document_counts(run_id, self._every_k(family))

        for family, counts in read_families(runs, load, report.notes):
            curves = k_curves(counts, self._fitted_k(family), replicates=self.replicates, level=self.level)
            if curves is None:
                report.notes.append(
                    f"{family}: RBP_k is 0, 1 or unknown at nearly every k up to {self.largest}, so nothing is fitted."
                )
                continue
            found.append((family, curves))
            if 1 < len(counts[0].document) < _FEW_DOCUMENTS:
                few.append(f"{family} ({len(counts[0].document)})")
            slopes += _slope_rows(family, curves, counts)
            here = self._worth_rows(family, curves)
            worth += here
            report.notes.append(" ".join([self._about_slopes(family, curves.fit), *self._about_worth(here)]))
        if not found:
            raise report.nothing_found("no measurement to fit")
        if few:
            report.notes.append(
                f"Fewer than {_FEW_DOCUMENTS} documents: {', '.join(few)}. Where their difficulty is skewed, "
                "95% intervals of beta cover 82 to 93% in simulation."
            )
        self._write(report, found, slopes, worth)
        return report

    def _write(
        self, report: Report, found: list[Curves], slopes: list[dict[str, Any]], worth: list[dict[str, Any]]
    ) -> None:
        """Tables, metrics, headline and figures."""
        table = pd.DataFrame(slopes)
        report.add_table("summary", _summary(table), COLUMNS["summary"])
        report.add_table("slopes", table, COLUMNS["slopes"])
        worth_caption = (
            "How many times larger a model must be to gain as much RBP as 2k gains over k (the paper's eq. 10)."
        )
        report.add_table("worth_of_k", worth, COLUMNS["worth_of_k"], caption=worth_caption)
        report.summary = "summary"
        for quantity in ("beta", "r2"):
            report.add_metrics(f"k_law_{quantity}/{{family}}/{{dataset}}/{{size}}", slopes, quantity)
        report.add_metrics("worth_of_double_k/{family}/{dataset}/rbp_{k}", worth, "factor_in_s")
        report.headline = (
            f"-ln RBP_k = B k^-beta holds roughly up to k = {int(table['largest_k'].max())}: R^2 is at least "
            f"{at_least(table['r2'].min(), 3)}, but points lie up to {table['largest_deviation'].max():.0%} off the "
            f"line; beta is {spread(table['beta'], '.3f')}"
        )
        for name in sorted({family.name for family, _ in found}):
            report.drawings[f"against_k_{name}"] = Drawing(
                _draw_against_k([one for one in found if one[0].name == name]),
                "Points: measured -ln RBP_k at the k of the fit. Lines: B k^-beta, fitted to each size. Dotted, where "
                "there is one: the authors' published exponent, through the middle of the points.",
            )
        report.drawings["beta_against_size"] = Drawing(
            self._draw_beta(table),
            f"Exponent of the law in k of each model, with its {self.level:z.0%} interval (documents resampled). "
            "Hollow, where there is one: the authors' published exponent.",
        )
        if worth:
            report.drawings["worth_of_k"] = Drawing(_draw_worth(pd.DataFrame(worth)), worth_caption)

    def _every_k(self, family: Family) -> list[int]:
        """Every integer k; of imported numbers without ranks, those that every run has."""
        if family.vocab_size:
            return list(range(1, min(self.largest, family.vocab_size) + 1))
        return [k for k in family.logged_ks if k <= self.largest]

    def _fitted_k(self, family: Family) -> list[int]:
        """The k of the fit: even in ln k; of imported numbers without ranks, all that there are."""
        return [int(k) for k in log_grid(self._every_k(family)[-1])] if family.vocab_size else self._every_k(family)

    def _worth_rows(self, family: Family, curves: KCurves) -> list[dict[str, Any]]:
        if len(family.s) < 3:
            return []
        worth = {k: worth_of_doubling(family.s, curves, k, level=self.level) for k in self.ks}
        return [family.keys | {"k": k} | asdict(one) for k, one in worth.items() if one]

    def _about_slopes(self, family: Family, fit: KLawFit) -> str:
        beta, first, last, largest = fit.beta, family.labels[0], family.labels[-1], fit.ks[-1]
        at_1, at_largest = fit.local_beta(1).mean(), fit.local_beta(float(largest)).mean()
        sizes = f"{beta[0]:.3f}" if len(beta) == 1 else f"{beta[0]:.3f} ({first}) to {beta[-1]:.3f} ({last})"
        bend = at_largest - at_1
        text = (
            f"{family}: fitted over k = {fit.ks[0]} to {largest}, beta is {sizes}. R^2 is at least "
            f"{at_least(fit.r2.min(), 4)}, but points lie up to {fit.largest_deviation.max():.1%} off the line: the "
            f"local slope {'steepens' if bend > 0 else 'flattens'} from {at_1:.2f} at k = 1 to {at_largest:.2f} at "
            f"k = {largest} (means over sizes)" + (", a bend that R^2 hides." if abs(bend) > 0.05 else ".")
        )
        if len(beta) < 3:
            there = counted(len(beta), "size")
            return f"{text} What a larger k is worth in S is not identifiable from {there}: it needs 3."
        trend = stats.linregress(np.log10(family.s), beta)
        half = float(stats.t.ppf(0.5 + self.level / 2, len(beta) - 2) * trend.stderr)
        moves = "so alpha changes by as much per factor 10 in k, and eq. 10 holds only locally."
        return (
            f"{text} Beta changes by {trend.slope:+z.3f} (± {half:.3f}) per factor 10 in S, "
            f"{'which is within its scatter.' if abs(trend.slope) <= half else moves}"
        )

    def _about_worth(self, worth: list[dict[str, Any]]) -> list[str]:
        if not worth:
            return []
        known = [row for row in worth if row["factor_high"] < _LARGEST_FACTOR]
        if not known:
            return ["Alpha is hardly distinguishable from 0, so what a larger k is worth in S is not identifiable."]
        row = min(known, key=lambda row: abs(row["k"] - 10))
        text = (
            f"Doubling k from {row['k']} raises RBP as much as a model {_times(row['factor_in_s'])} times as large "
            f"would ({self.level:z.0%} interval {_times(row['factor_low'])} to {_times(row['factor_high'])})"
        )
        if row["sizes_measured"]:
            text += f"; interpolated between the measured sizes, the factor is {_times(row['factor_measured'])}"
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
                    theirs = [published_beta(str(name), dataset, size) for size in rows["size"]]
                    ax.plot(rows["S"], theirs, marker, ms=8, mfc="none", mec="black", mew=0.8)
                size_axis(ax, here["S"])
                ax.set(ylabel=f"β over k = 1 to {self.largest}")
                ax.legend(loc="best")
            return figure


def _slope_rows(family: Family, curves: KCurves, counts: Sequence[DocumentCounts]) -> list[dict[str, Any]]:
    fit, largest = curves.fit, int(curves.fit.ks[-1])
    columns = {
        "B": np.exp(fit.log_b),
        "beta": fit.beta,
        "beta_low": curves.beta_low,
        "beta_high": curves.beta_high,
        "r2": fit.r2,
        "largest_deviation": fit.largest_deviation,
        "beta_at_1": fit.local_beta(1),
        "beta_at_10": fit.local_beta(10),
        "beta_at_largest": fit.local_beta(largest),
    }
    rows = []
    for i, (keys, one) in enumerate(zip(family.size_keys, counts, strict=True)):
        row = keys | {name: values[i] for name, values in columns.items()} | {"largest_k": largest}
        if family.vocab_size:
            every = np.arange(1, largest + 1)
            rbp = one.select(every.tolist()).hits.sum(axis=0) / one.tokens.sum()
            line = stats.linregress(np.log(every), np.log(-np.log(rbp)))
            row |= {"beta_every_k": -line.slope, "r2_every_k": line.rvalue**2}
        rows.append(row)
    return rows


def _draw_against_k(found: list[Curves]) -> Figure:
    """The paper's figure 9: one panel per dataset, one colour per size."""
    with style():
        figure, axes = panel_per([str(family) for family, _ in found], height=3.6)
        for ax, (family, curves) in zip(axes, found, strict=True):
            fit, ks, y = curves.fit, curves.fit.ks, curves.fit.y
            for i, colour in enumerate(gradient(len(y))):
                label = f"{family.labels[i]}: β = {fit.beta[i]:.3f}"
                ax.plot(ks, y[i], MARKERS[i % len(MARKERS)], ms=3.5, color=colour, label=label)
                ax.plot(ks, fit.fitted[i], "-", lw=1.1, color=colour)
                beta = published_beta(family.name, family.dataset, family.labels[i])
                if np.isfinite(beta):  # through the middle of the points: they print no B
                    middle, level = np.exp(np.log(ks).mean()), np.exp(np.log(y[i]).mean())
                    ax.plot(ks, level * (ks / middle) ** -beta, ls=_DOTTED, lw=1.3, color=colour)
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
            here = table[(table["dataset"] == dataset) & (table["factor_high"] < _LARGEST_FACTOR)]
            for name, rows in here.groupby("family"):
                colour, _ = colour_and_marker(names.index(name))
                ax.plot(rows["k"], rows["factor_in_s"], "-", color=colour, label=f"{name}, eq. 10")
                ax.fill_between(rows["k"], rows["factor_low"], rows["factor_high"], color=colour, alpha=0.15, lw=0)
                ax.plot(rows["k"], rows["factor_measured"], "o", ms=4.5, color=colour, label=f"{name}, measured")
            ax.axhline(1, color="0.4", lw=0.8, ls=":")
            ax.set(xlabel="k", ylabel="factor in S that 2k is worth over k")
            log_axis(ax.xaxis, low=table["k"].min() / 1.2, high=table["k"].max() * 1.2)
            if len(here):
                ax.legend(loc="best", fontsize=8.5)
        log_axis(axes[0].yaxis, low=max(min(finite.min(), 1) / 1.15, 0.2), high=max(min(finite.max() * 1.3, 100), 1.15))
        return figure


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    """The table for the terminal: texts, rounded."""
    ends = zip(table["beta_low"], table["beta_high"], strict=True)
    return pd.DataFrame(
        {
            **table[["dataset", "family", "size"]],
            "S": [short_number(s) for s in table["S"]],
            "beta": [f"{v:.4f}" for v in table["beta"]],
            "interval": [f"{a:.3f} .. {b:.3f}" if a == a else "" for a, b in ends],
            "R^2": [f"{v:.4f}" for v in table["r2"]],
            "largest deviation": [f"{v:z.1%}" for v in table["largest_deviation"]],
        }
    )


def _times(factor: float) -> str:
    """A factor that is known to a tenth at best: `1.4`, `27`, `1.2e+03`."""
    return f"{factor:.2g}" if factor >= 10 else f"{factor:.2f}"
