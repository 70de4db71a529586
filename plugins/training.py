"""The data and compute axes: y(S, D) = E + A S^-alpha + B D^-beta over training checkpoints, and compute-optimal sizes.

The form is that of Hoffmann et al. (arXiv 2203.15556, eq. 2), fitted to cross-entropy and to -ln RBP_k alike: it shows
whether the optimum of size at a given compute C = 6 S D is the same for ranks as for cross-entropy.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis import (
    CE,
    Analyzer,
    Drawing,
    Report,
    Runs,
    colour_and_marker,
    counted,
    legend_of_all,
    listed,
    log_axis,
    metric_label,
    metric_part,
    panel_per,
    parse_rbp_name,
    rbp_name,
    shared_columns,
    short_number,
    style,
)
from rbptrack.stats import TrainingLaw, fit_training_law, positive

KEY = shared_columns("dataset", "family", "metric")
COLUMNS = {
    "laws": KEY
    | {
        "alpha": "exponent of size S",
        "alpha_low": "lower end of its interval (checkpoints of a model move together)",
        "alpha_high": "upper end",
        "beta": "exponent of training tokens D",
        "beta_low": "lower end of its interval",
        "beta_high": "upper end",
        "E": "irreducible term, in y's unit; 0: none is needed",
        "optimum": "a of S*(C) ~ C^a, the best size at compute C = 6 S D: beta / (alpha + beta)",
        "optimum_low": "lower end of its interval",
        "optimum_high": "upper end",
        "r2": "R^2 on logarithms",
        "between": "scatter between models, in ln y",
        "within": "scatter between checkpoints of a model, in ln y",
        "models": "sizes",
        "checkpoints": "points fitted",
        "starts_agree": "whether fits from several starts ended at the same exponents",
    },
    "optimal_size": KEY
    | {
        "C": "compute, FLOPs (6 S D)",
        "S": "best size at it",
        "D": "tokens there",
        "tokens_per_parameter": "D / S",
    },
    "points": KEY
    | shared_columns("size")
    | {
        "S": "size",
        "D": "training tokens",
        "C": "6 S D",
        "y": "CE in nats, or -ln RBP_k",
        "residual": "ln y - ln of the law",
    },
}
_LEGEND = 1.5  # inches


@dataclass(frozen=True)
class Found:
    """The law of one metric over the checkpoints of one family on one dataset."""

    keys: dict[str, Any]
    metric: str
    rows: pd.DataFrame
    y: Any
    law: TrainingLaw


@dataclass(kw_only=True)
class Training(Analyzer):
    """Laws in size and training tokens over checkpoints (model=pythia-checkpoints/*), and compute-optimal sizes.

    A checkpoint's tokens D are its config's `model.training_tokens`, or what the option gives.

    Attributes:
        ks: the k beside cross-entropy; those that were logged are fitted.
        training_tokens: tokens D by pattern over model names, such as {"pythia-70m@step1000": 2.1e9}.
        level: nominal coverage of the intervals.

    """

    name: ClassVar[str] = "training"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    training_tokens: dict[str, float] = field(default_factory=dict)
    level: float = 0.95

    def analyze(self, runs: Runs) -> Report:
        """Fit every family x dataset with checkpoints of at least 3 sizes at 3 values of D."""
        report, found = Report(summary="laws"), list[Found]()
        frame = runs.frame.assign(D=[self._tokens(row) for row in runs.frame.to_dict("records")])
        frame = frame[frame["non_embedding_params"].notna() & (frame["D"] > 0)]
        for (family, dataset), rows in frame.groupby(["family", "dataset"], sort=True):
            sizes, several = rows["non_embedding_params"].nunique(), rows["D"].nunique()
            if min(sizes, several) < 3 or len(rows) < 8:
                if several > 1:
                    report.notes.append(
                        f"{family} on {dataset}: the law needs 8 checkpoints of 3 sizes at 3 values of D; there are "
                        f"{len(rows)} of {counted(sizes, 'size')} at {several}."
                    )
                continue
            found += self._fit({"dataset": str(dataset), "family": str(family)}, rows, report.notes)
        if not found:
            raise report.nothing_found(
                "no family has checkpoints: measure model=nano-checkpoints/* or give analyzer.training_tokens"
            )
        report.notes[:0] = self._sentences(found)
        report.headline = report.notes[0].rstrip(".")
        report.add_table("laws", map(_law_row, found), COLUMNS["laws"])
        report.add_table("optimal_size", (row for f in found for row in _optimal_rows(f)), COLUMNS["optimal_size"])
        report.add_table("points", (row for f in found for row in _point_rows(f)), COLUMNS["points"])
        for one in found:
            where = "/".join(map(metric_part, (one.keys["family"], one.keys["dataset"], one.metric)))
            report.metrics |= {f"training_alpha/{where}": one.law.alpha, f"training_beta/{where}": one.law.beta}
            report.metrics[f"compute_optimum/{where}"] = one.law.optimal
        report.drawings = {
            "against_tokens": Drawing(_against_tokens(found), "Points: checkpoints. Lines: the law at each size."),
            "isoflop": Drawing(_isoflop(found), "The law along constant compute C = 6 S D. Dots: the best size."),
        }
        return report

    def _tokens(self, row: dict[Any, Any]) -> float:
        given = [t for pattern, t in self.training_tokens.items() if fnmatchcase(str(row["model"]), pattern)]
        known = row["training_tokens"]
        return float(given[0]) if given else 0.0 if pd.isna(known) else float(known)

    def _fit(self, keys: dict[str, Any], rows: pd.DataFrame, notes: list[str]) -> Iterator[Found]:
        for metric in [CE, *map(rbp_name, self.ks)]:
            if metric not in rows or rows[metric].isna().any():
                continue
            logged = rows[metric].to_numpy(dtype=np.float64)
            with np.errstate(divide="ignore"):
                y = logged if metric == CE else -np.log(logged)
            if not positive(y):
                notes.append(
                    f"{keys['family']} on {keys['dataset']}: {metric_label(metric)} is 0 or 1 for some checkpoint."
                )
                continue
            law = fit_training_law(rows["non_embedding_params"], rows["D"], y, level=self.level)
            yield Found(keys | {"metric": metric_label(metric)}, metric, rows, y, law)

    def _sentences(self, found: list[Found]) -> Iterator[str]:
        for keys in {(f.keys["family"], f.keys["dataset"]): f.keys for f in found}.values():
            mine = [f for f in found if (f.keys["family"], f.keys["dataset"]) == (keys["family"], keys["dataset"])]
            law = mine[0].law
            optima = [
                f"{f.law.optimal:.2f} ({f.law.low[2]:.2f} to {f.law.high[2]:.2f}) for {f.keys['metric']}" for f in mine
            ]
            text = (
                f"{keys['family']} on {keys['dataset']}: by {law.points} checkpoints of {law.models} sizes, the best "
                f"size grows with compute as C^a, where a is {listed(optima)} ({self.level:z.0%} intervals)."
            )
            first, rest = mine[0].law, mine[1:]
            apart = [f.keys["metric"] for f in rest if f.law.low[2] > first.high[2] or f.law.high[2] < first.low[2]]
            if apart:
                text += f" The intervals of {', '.join(apart)} and {mine[0].keys['metric']} do not overlap."
            elif rest:
                text += f" These intervals distinguish no metric's optimum from that of {mine[0].keys['metric']}."
            unsure = [f.keys["metric"] for f in mine if not f.law.agreed]
            text += f" For {listed(unsure)} the fit is not identifiable: its starts disagree." if unsure else ""
            yield text


def _law_row(found: Found) -> dict[str, Any]:
    law = found.law
    row: dict[str, Any] = {}
    for name, value, low, high in zip(
        ("alpha", "beta", "optimum"), (law.alpha, law.beta, law.optimal), law.low, law.high, strict=True
    ):
        row |= {name: value, f"{name}_low": low, f"{name}_high": high}
    row |= {"E": law.e, "r2": law.r2, "between": law.between, "within": law.within}
    row |= {"models": law.models, "checkpoints": law.points, "starts_agree": law.agreed}
    return found.keys | {name: row[name] for name in list(COLUMNS["laws"])[len(KEY) :]}


def _budgets(found: Found) -> Any:
    """Compute budgets within what was measured, (4,)."""
    compute = 6 * found.rows["non_embedding_params"].to_numpy(np.float64) * found.rows["D"].to_numpy(np.float64)
    return np.geomspace(float(np.quantile(compute, 0.25)), float(np.quantile(compute, 0.9)), 4)


def _optimal_rows(found: Found) -> Iterator[dict[str, Any]]:
    for c, s in zip(_budgets(found), found.law.optimal_size(_budgets(found)), strict=True):
        d = c / 6 / s
        yield found.keys | {"C": float(c), "S": float(s), "D": float(d), "tokens_per_parameter": float(d / s)}


def _point_rows(found: Found) -> Iterator[dict[str, Any]]:
    s, d = (found.rows[name].to_numpy(np.float64) for name in ("non_embedding_params", "D"))
    residual = np.log(found.y) - np.log(found.law.predict(s, d))
    for i, size in enumerate(found.rows["size"]):
        row = {"size": str(size), "S": float(s[i]), "D": float(d[i]), "C": float(6 * s[i] * d[i])}
        yield found.keys | row | {"y": float(found.y[i]), "residual": float(residual[i])}


def _title(found: Found) -> str:
    return f"{found.keys['family']}, {found.keys['dataset']}: {found.keys['metric']}"


def _label(metric: str) -> str:
    return "CE, nats" if metric == CE else f"−ln RBP$_{{{parse_rbp_name(metric)}}}$"


def _against_tokens(found: list[Found]) -> Figure:
    with style():
        figure, axes = panel_per([_title(f) for f in found], legend=_LEGEND)
        for ax, one in zip(axes, found, strict=True):
            every, tokens = (one.rows[n].to_numpy(np.float64) for n in ("non_embedding_params", "D"))
            for i, s in enumerate(np.unique(every)):
                colour, marker = colour_and_marker(i)
                d, y = tokens[every == s], one.y[every == s]
                line = np.geomspace(d.min(), d.max(), 40)
                ax.plot(line, one.law.predict(np.full(40, s), line), lw=1.2, color=colour)
                ax.plot(d, y, marker, ms=4, color=colour, label=f"S = {short_number(float(s))}")
            ax.set(xlabel="D, training tokens", ylabel=_label(one.metric), xscale="log")
            log_axis(ax.yaxis, low=one.y.min() / 1.08, high=one.y.max() * 1.08)
        legend_of_all(figure, legend=_LEGEND)
        return figure


def _isoflop(found: list[Found]) -> Figure:
    with style():
        figure, axes = panel_per([_title(f) for f in found], legend=_LEGEND)
        for ax, one in zip(axes, found, strict=True):
            s = one.rows["non_embedding_params"].to_numpy(np.float64)
            sizes, seen = np.geomspace(s.min() / 2, s.max() * 2, 60), []
            for i, c in enumerate(_budgets(one)):
                y, best = one.law.predict(sizes, c / 6 / sizes), float(one.law.optimal_size(c))
                colour = colour_and_marker(i)[0]
                ax.plot(sizes, y, lw=1.3, color=colour, label=f"budget {i + 1}: C = {c:.1e}")
                if sizes[0] <= best <= sizes[-1]:
                    ax.plot([best], one.law.predict([best], [c / 6 / best]), "o", ms=5, color=colour)
                seen.append(y)
            ax.set(xlabel="S", ylabel=_label(one.metric), xscale="log")
            log_axis(ax.yaxis, low=np.min(seen) / 1.05, high=np.max(seen) * 1.05)
        legend_of_all(figure, legend=_LEGEND)
        return figure
