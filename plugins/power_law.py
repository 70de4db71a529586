"""The law in size: -ln RBP_k = A * S**-alpha per family, dataset and k, and the same for cross-entropy.

Figures in the manner of the paper's figures 3 to 6 (arXiv 2510.20387).
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analyzer import Analyzer, Report, Runs
from rbptrack.errors import RbptrackError
from rbptrack.families import Family, read_families
from rbptrack.figures import COLOURS, MARKERS, log_axis, panels, short_number, style
from rbptrack.ranktable import DocumentCounts, log_grid
from rbptrack.statistics import (
    FloatArray,
    PowerLawFit,
    bootstrap_metrics,
    document_weights,
    fit_power_law,
    leave_largest_out,
    paired_covariance,
)

CE = 0  # stands for cross-entropy where a k is expected


@dataclass(frozen=True)
class Fit:
    """One fitted law and its points: sizes s and values y, each (m,), and y's standard errors in ln y."""

    k: int
    s: FloatArray
    y: FloatArray
    log_se: FloatArray
    law: PowerLawFit
    left_out: float


@dataclass(kw_only=True)
class PowerLaw(Analyzer):
    """-ln RBP_k = A S^-alpha (and CE): exponents, intervals, R^2.

    Attributes:
        ks: the k of the table and of the figures' panels.
        curve_points: how many k per decade the exponent is fitted at for the curves of alpha and R^2 against k.
        level: nominal coverage of the intervals.
        replicates: document bootstraps, drawn jointly for all sizes of a family.

    """

    name: ClassVar[str] = "power_law"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100, 1000])
    curve_points: int = 8
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Fit every family x dataset that has at least 3 sizes."""
        report = Report()
        laws: dict[tuple[str, str], dict[int, Fit]] = {}

        def load(family: Family, run_id: str) -> DocumentCounts:
            return runs.document_counts(run_id, self._ks(family))

        for family, counts in read_families(runs, load, report.notes, least=3):
            laws[family.name, family.dataset] = self._fit_group(family, counts, report)
        if not laws:
            raise RbptrackError(" ".join(report.notes) or "no measurement to fit")
        table = pd.DataFrame([self._row(f, d, fit) for (f, d), fits in laws.items() for fit in fits.values()])
        shown = table[table["k"].isin([CE, *self.ks])]
        report.tables = {"laws": _summary(shown), "fits": table}
        report.summary = "laws"
        for row in shown.itertuples():
            for quantity in ("alpha", "alpha_low", "alpha_high", "r2"):
                metric = "ce" if row.k == CE else f"rbp_{row.k}"
                report.metrics[f"{quantity}/{row.family}/{row.dataset}/{metric}"] = float(getattr(row, quantity))
        panel_ks = [k for k in [*self.ks, CE] if any(k in fits for fits in laws.values())]
        report.figures = {
            **{_figure_name(k): self._against_size(laws, k) for k in panel_ks},
            "alpha_against_k": self._against_k(laws, "alpha"),
            "r2_against_k": self._against_k(laws, "r2"),
        }
        report.notes += [self._sentence(f, d, fits) for (f, d), fits in laws.items()]
        return report

    def _ks(self, family: Family) -> list[int]:
        grid = log_grid(family.vocab_size, per_decade=self.curve_points)
        return sorted({*grid.tolist(), *(k for k in self.ks if k <= family.vocab_size)})

    def _fit_group(self, family: Family, counts: list[DocumentCounts], report: Report) -> dict[int, Fit]:
        sizes, ks = family.s, self._ks(family)
        values = np.stack([_point(c) for c in counts])  # (m, 1 + ks): CE, then -ln RBP_k
        draws = np.stack(self._replicates(counts))  # (m, replicates, 1 + ks)
        fits: dict[int, Fit] = {}
        for column, k in enumerate([CE, *ks]):
            y, replicate = values[:, column], draws[:, :, column]
            if not (np.isfinite(y).all() and (y > 0).all() and np.isfinite(replicate).all() and (replicate > 0).all()):
                if k in self.ks:
                    report.notes.append(f"RBP_{k} is 0 or 1 (or nearly) for some size: no law is fitted to it.")
                continue
            covariance = paired_covariance(list(np.log(replicate)))
            law = fit_power_law(sizes, y, covariance=covariance, level=self.level)
            fits[k] = Fit(k, sizes, y, np.sqrt(np.diag(covariance)), law, leave_largest_out(sizes, y))
        return fits

    def _replicates(self, counts: list[DocumentCounts]) -> list[FloatArray]:
        """CE and -ln RBP_k in each replicate; the same documents for every size, because all read the same text."""
        weights = document_weights(len(counts[0].document), replicates=self.replicates)
        draws = []
        for c in counts:
            metrics = bootstrap_metrics(c, weights)
            with np.errstate(divide="ignore"):
                metrics[:, 1:] = -np.log(metrics[:, 1:])
            draws.append(metrics)
        return draws

    def _row(self, family: str, dataset: str, fit: Fit) -> dict[str, object]:
        law = fit.law
        return {
            "dataset": dataset,
            "family": family,
            "metric": "CE" if fit.k == CE else f"RBP_{fit.k}",
            "k": fit.k,
            "sizes": law.points,
            "alpha": law.alpha,
            "alpha_low": law.low,
            "alpha_high": law.high,
            "alpha_se": law.se,
            "A": float(np.exp(law.log_a)),
            "r2": law.r2,
            "tau": law.tau,
            "left_out_error": fit.left_out,
        }

    def _sentence(self, family: str, dataset: str, fits: dict[int, Fit]) -> str:
        some = next(iter(fits.values()))
        ks = [k for k in self.ks if k in fits]
        parts = [f"k = {k}: {fits[k].law.alpha:.3f} ({fits[k].law.low:.3f} to {fits[k].law.high:.3f})" for k in ks]
        unsure = [k for k in ks if fits[k].law.low <= 0]
        text = (
            f"{family} on {dataset}: over {some.law.points} sizes (S = {short_number(some.s.min())} to "
            f"{short_number(some.s.max())}) alpha is {'; '.join(parts)} ({self.level:.0%} intervals)."
        )
        if unsure:
            text += f" At k = {', '.join(map(str, unsure))} the interval includes 0: no law is claimed."
        return text

    def _against_size(self, laws: dict[tuple[str, str], dict[int, Fit]], k: int) -> Figure:
        """The paper's figures 3 to 5: one panel per dataset, one colour per family, log-log."""
        datasets = sorted({d for _, d in laws})
        families = sorted({f for f, _ in laws})
        with style():
            figure, axes = panels(1, len(datasets))
            for ax, dataset in zip(axes[0], datasets, strict=True):
                drawn = [(f, laws[f, dataset][k]) for f in families if k in laws.get((f, dataset), {})]
                for family, fit in drawn:
                    colour, marker = _look(families.index(family))
                    line = np.geomspace(fit.s.min(), fit.s.max(), 50)
                    label = f"{family}: α = {fit.law.alpha:.3f}, R² = {fit.law.r2:.3f}"
                    ax.errorbar(
                        fit.s,
                        fit.y,
                        yerr=1.96 * fit.log_se * fit.y,
                        fmt=marker,
                        ms=4.5,
                        color=colour,
                        label=label,
                    )
                    ax.plot(line, fit.law.predict(line), "-", lw=1.2, color=colour)
                ax.set(title=dataset, xlabel="S, non-embedding parameters")
                if drawn:
                    low_s, high_s = min(f.s.min() for _, f in drawn), max(f.s.max() for _, f in drawn)
                    low_y, high_y = min(f.y.min() for _, f in drawn), max(f.y.max() for _, f in drawn)
                    log_axis(ax.xaxis, low=low_s / 1.5, high=high_s * 1.5)
                    log_axis(ax.yaxis, low=low_y / 1.12, high=high_y * 1.25)
                    ax.legend(loc="upper right", fontsize=8.5)
            axes[0][0].set_ylabel("CE, nats per token" if k == CE else f"−ln RBP$_{{{k}}}$")
            return figure

    def _against_k(self, laws: dict[tuple[str, str], dict[int, Fit]], quantity: str) -> Figure:
        """The paper's figure 6: alpha or R^2 against k, cross-entropy's as a dashed line."""
        datasets = sorted({d for _, d in laws})
        families = sorted({f for f, _ in laws})
        with style():
            figure, axes = panels(1, len(datasets), sharey=True)
            for ax, dataset in zip(axes[0], datasets, strict=True):
                for family in (f for f in families if (f, dataset) in laws):
                    fits, (colour, _) = laws[family, dataset], _look(families.index(family))
                    ks = sorted(k for k in fits if k != CE)
                    ax.plot(
                        ks,
                        [getattr(fits[k].law, quantity) for k in ks],
                        "-",
                        lw=1.5,
                        color=colour,
                        label=f"{family}, RBP$_k$",
                    )
                    if quantity == "alpha":
                        low, high = [fits[k].law.low for k in ks], [fits[k].law.high for k in ks]
                        ax.fill_between(
                            ks, low, high, color=colour, alpha=0.15, lw=0, label=f"{self.level:.0%} interval"
                        )
                    if CE in fits:
                        ax.axhline(
                            getattr(fits[CE].law, quantity),
                            ls="--",
                            lw=1.1,
                            color=colour,
                            label=f"{family}, CE",
                        )
                ax.set(title=dataset, xlabel="k")
                ax.set_xscale("log")
                ax.legend(fontsize=8.5)
            self._limit(axes[0], laws, quantity)
            axes[0][0].set_ylabel("α" if quantity == "alpha" else "R² of the fit on log axes")
            return figure

    def _limit(self, axes: Any, laws: dict[tuple[str, str], dict[int, Fit]], quantity: str) -> None:
        """Let the interesting range fill the panel: intervals that explode near |V| are cut off."""
        every = [f for fits in laws.values() for f in fits.values()]
        if quantity == "r2":
            axes[0].set_ylim(max(0.0, min(f.law.r2 for f in every) - 0.03), 1.005)
        else:
            top = max(f.law.alpha for f in every)
            low = min(0.0, *(f.law.alpha for f in every))
            axes[0].set_ylim(low * 1.1, top * 1.25)


def _point(counts: DocumentCounts) -> FloatArray:
    """CE and -ln RBP_k of one run, (1 + ks,)."""
    total = counts.sums.sum(axis=0)
    with np.errstate(divide="ignore"):
        return np.concatenate([[total[1] / total[0]], -np.log(total[2:] / total[0])])


def _look(number: int) -> tuple[str, str]:
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]


def _figure_name(k: int) -> str:
    return "ce_against_size" if k == CE else f"rbp_{k}_against_size"


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    """The table for the terminal: texts, rounded."""
    interval = [f"{a:.3f} .. {b:.3f}" for a, b in zip(table["alpha_low"], table["alpha_high"], strict=True)]
    left_out = ["" if e != e else f"{e:+.1%}" for e in table["left_out_error"]]
    return pd.DataFrame(
        {
            "dataset": table["dataset"],
            "family": table["family"],
            "metric": table["metric"],
            "alpha": [f"{v:.4f}" for v in table["alpha"]],
            "95 % interval": interval,
            "R^2": [f"{v:.4f}" for v in table["r2"]],
            "sizes": table["sizes"],
            "largest, left out": left_out,
        }
    )
