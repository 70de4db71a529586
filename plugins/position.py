"""How ranks improve with the position in the text, and whether the law in size differs between early and late."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis import (
    CE,
    LAW_COLUMNS,
    Analyzer,
    BadInput,
    Curve,
    Drawing,
    Family,
    Report,
    Runs,
    counted,
    curve_panels,
    dataset_panels,
    law_axis_label,
    law_cells,
    legend_of_all,
    legend_room,
    log_axis,
    metric_label,
    metric_part,
    rbp_name,
    read_families,
    shared_columns,
    short_number,
    some_of,
    style,
    tallied,
)
from rbptrack.stats import FloatArray, PositionCurves, position_curves, position_sums, ratio_law

KEY = shared_columns("dataset", "family", "metric")
BIN = {
    "first": "first position of the bin (tokens before it in its document)",
    "last": "last position of the bin",
    "tokens": "scored tokens in the bin",
}
COLUMNS = {
    "early_and_late": KEY
    | {
        "early": "positions",
        "late": "positions",
        "y_early": "CE or -ln RBP_k of the largest size, early",
        "y_late": "late",
        "alpha_early": "exponent of the law in size, early",
        "alpha_late": "late",
        "difference": "alpha late - alpha early",
        "low": "lower end of its interval (same models, same documents: paired)",
        "high": "upper end",
    },
    "laws": KEY | BIN | shared_columns(*LAW_COLUMNS),
    "curves": KEY
    | shared_columns("size", "S")
    | BIN
    | {"y": "CE in nats, or -ln RBP_k", "se": "standard error (document bootstrap)"},
}
_LEGEND = 1.6  # inches


@dataclass(kw_only=True)
class Position(Analyzer):
    """How rank and cross-entropy improve with the position in the text, and the law in size early and late.

    Bins double in width. Only documents that reach the last bin count, so that every bin reads the same documents.
    Where sequences slide or are packed, a position beyond the sequence length has less context than its number says.

    Attributes:
        ks: the k to look at.
        shown: the k of the figures.
        share: the last bin is the last one that at least this share of the documents (and 5 of them) reach.
        level: nominal coverage of the intervals.
        replicates: document bootstraps, drawn jointly for all sizes of a family.

    """

    name: ClassVar[str] = "position"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    shown: int = 10
    share: float = 0.5
    level: float = 0.95
    replicates: int = 500

    def analyze(self, runs: Runs) -> Report:
        """Curves for every run; laws for families of at least 3 sizes."""
        if self.shown not in self.ks:
            raise BadInput(f"analyzer.shown={self.shown}: expected one of analyzer.ks={self.ks}")
        report = Report()
        found: list[tuple[Family, PositionCurves]] = []

        def load(_: Family, run_id: str) -> FloatArray:
            return np.concatenate([position_sums(piece, self.ks) for piece in runs.rank_pieces(run_id)])

        for family, sums in read_families(runs, load, report.notes):
            curves = position_curves(sums, self.ks, share=self.share, replicates=self.replicates)
            if curves is None:
                report.notes.append(f"{family}: fewer than 5 documents reach a second bin of positions.")
            else:
                found.append((family, curves))
        if not found:
            raise report.nothing_found("no measurement with positions")
        enough = [(family, curves) for family, curves in found if len(family.s) >= 3]
        laws = [row for family, curves in enough for row in self._law_rows(family, curves)]
        contrasts = [row for family, curves in enough for row in self._contrast_rows(family, curves)]
        report.add_table("early_and_late", contrasts, COLUMNS["early_and_late"])
        if contrasts:
            report.add_table("laws", laws, COLUMNS["laws"])
        report.add_table("curves", (r for one in found for r in _curve_rows(*one)), COLUMNS["curves"])
        for row in contrasts:
            path = "/".join(map(metric_part, (row["family"], row["dataset"], row["metric"].lower())))
            report.metrics[f"alpha_late_minus_early/{path}"] = row["difference"]
        report.notes += [self._sentence(*one, contrasts) for one in found]
        report.headline = self._headline(contrasts) or report.notes[-1].rstrip(".")
        self._draw(report, found, laws)
        return report

    @property
    def _shown(self) -> str:
        """The metric of the figures and sentences, beside CE."""
        return rbp_name(self.shown)

    def _law_rows(self, family: Family, curves: PositionCurves) -> Iterator[dict[str, Any]]:
        for metric in curves.metrics:
            for j, bin_cells in enumerate(_bin_cells(family, curves)):
                law = curves.in_bin(j).fit(metric, family.s, level=self.level)
                if law:
                    yield family.keys | {"metric": metric_label(metric)} | bin_cells | law_cells(law)

    def _contrast_rows(self, family: Family, curves: PositionCurves) -> Iterator[dict[str, Any]]:
        """The first half of the bins against the last bin, in the same models and documents."""
        half = max(1, len(curves.first) // 2)
        early, late = curves.in_bins(slice(0, half)), curves.in_bins(slice(-1, None))
        spans = {
            "early": f"{curves.first[0]} to {curves.last[half - 1]}",
            "late": f"{curves.first[-1]} to {curves.last[-1]}",
        }
        for metric in curves.metrics:
            law_early, law_late = (one.fit(metric, family.s, level=self.level) for one in (early, late))
            (y_early, draws_early), (y_late, draws_late) = early.of(metric), late.of(metric)
            ratio = ratio_law(family.s, y_late, y_early, draws_late, draws_early, level=self.level)
            if law_early and law_late and ratio:
                row = {"metric": metric_label(metric), **spans, "y_early": y_early[-1], "y_late": y_late[-1]}
                row |= {"alpha_early": law_early.alpha, "alpha_late": law_late.alpha}
                yield family.keys | row | {"difference": ratio.alpha, "low": ratio.low, "high": ratio.high}

    def _sentence(self, family: Family, curves: PositionCurves, contrasts: list[dict[str, Any]]) -> str:
        label = metric_label(self._shown)
        y = curves.values[-1, :, curves.metrics.index(self._shown)]
        text = (
            f"{family}: -ln {label} of the largest model goes from {y[0]:.3f} at {_positions(curves, 0)} to "
            f"{y[-1]:.3f} at {_positions(curves, -1)} (in those documents that reach position {curves.first[-1]}: "
            f"{some_of(curves.documents, curves.every_document, 'document')})."
        )
        mine = [row for row in contrasts if (row["family"], row["dataset"]) == (family.name, family.dataset)]
        return text + "".join(f" {_in_words(row)}" for row in mine if row["metric"] in ("CE", label))

    def _headline(self, contrasts: list[dict[str, Any]]) -> str:
        label = metric_label(self._shown)
        rows = [row for row in contrasts if row["metric"] == label]
        if not rows:
            return ""
        clear = [row for row in rows if row["low"] > 0 or row["high"] < 0]
        steeper = sum(row["difference"] > 0 for row in clear)
        if not clear:
            of = some_of(len(rows), len(rows), "comparison")
            return (
                f"whether the exponent of {label} differs between early and late positions is undecided in {of} (each "
                "a family on a dataset)"
            )
        counts = {"larger": steeper, "smaller": len(clear) - steeper}
        left = len(rows) - len(clear)
        return (
            f"compared with early positions, the exponent of {label} at late ones is {tallied(counts)} of "
            f"{counted(len(rows), 'comparison')} (each a family on a dataset, tested alone at {1 - self.level:.0%})"
            + (f"; {left} {'is' if left == 1 else 'are'} undecided" if left else "")
        )

    def _draw(self, report: Report, found: list[tuple[Family, PositionCurves]], laws: list[dict[str, Any]]) -> None:
        caption = (
            "Thick: the largest model. Thin: the smallest. Bands: 95% intervals (documents resampled). Every bin "
            "reads the same documents. Beyond the sequence length a token has less context than its position says."
        )
        report.drawings[f"{self._shown}_by_position"] = Drawing(_draw_curves(found, self._shown), caption)
        report.drawings["ce_by_position"] = Drawing(_draw_curves(found, CE), "The same for cross-entropy.")
        if laws:
            caption = "Exponent of the law in size over the tokens of each bin of positions, with its interval."
            report.drawings["alpha_by_position"] = Drawing(self._draw_alpha(pd.DataFrame(laws)), caption)

    def _draw_alpha(self, laws: pd.DataFrame) -> Figure:
        """Alpha of RBP_k and of CE (dashed) against the position."""
        label = metric_label(self._shown)
        curves, shown = [], laws[laws["metric"].isin(["CE", label])]
        for metric, line in ((label, "-"), ("CE", "--")):
            for (name, dataset), rows in shown[shown["metric"] == metric].groupby(["family", "dataset"]):
                x = np.sqrt(np.maximum(rows["first"], 0.5) * np.maximum(rows["last"], 0.5))
                curve = Curve(str(dataset), str(name), f"{name}, {metric}", x, rows["alpha"])
                options = {"ls": line, "marker": ".", "ms": 5, "lw": 1.4}
                curves.append(replace(curve, low=rows["alpha_low"], high=rows["alpha_high"], options=options))
        xlabel, ylabel = "position in the document, tokens", "α within the bin"
        figure, axes = curve_panels(curves, xlabel=xlabel, ylabel=ylabel, legend=_LEGEND, sharey=True)
        axes[0].set_ylim(min(0.0, float(shown["alpha"].min()) * 1.3), float(shown["alpha"].max()) * 1.4)
        return figure


def _bin_cells(family: Family, curves: PositionCurves) -> list[dict[str, int]]:
    tokens = curves.tokens / len(family.run_ids[0])
    cells = zip(curves.first, curves.last, tokens, strict=True)
    return [{"first": int(first), "last": int(last), "tokens": int(n)} for first, last, n in cells]


def _curve_rows(family: Family, curves: PositionCurves) -> Iterator[dict[str, Any]]:
    draws = np.where(np.isfinite(curves.draws), curves.draws, np.nan)  # NaN where a replicate has no hit
    spread = draws.std(axis=1, ddof=1)
    for column, metric in enumerate(curves.metrics):
        for i, size_keys in enumerate(family.size_keys):
            for j, cells in enumerate(_bin_cells(family, curves)):
                row = size_keys | {"metric": metric_label(metric)} | cells
                yield row | {"y": float(curves.values[i, j, column]), "se": float(spread[i, j, column])}


def _in_words(row: dict[str, Any]) -> str:
    early, late = f"{row['alpha_early']:.3f} at {row['early']}", f"{row['alpha_late']:.3f} at {row['late']}"
    unsure = "" if row["low"] > 0 or row["high"] < 0 else ", which includes 0"
    return (
        f"Alpha of {row['metric']} is {early} and {late} (interval of the difference: {row['low']:+z.3f} to "
        f"{row['high']:+z.3f}{unsure})."
    )


def _draw_curves(found: list[tuple[Family, PositionCurves]], metric: str) -> Figure:
    """CE or -ln RBP_k against the position: the smallest and the largest size of each family."""
    by_key = {(family.name, family.dataset): (family, curves) for family, curves in found}
    with style():
        room = legend_room((f"{name}, S = {short_number(999e6)}" for name, _ in by_key), least=_LEGEND)
        figure, panels = dataset_panels(by_key, legend=room)
        for ax, dataset, styles in panels:
            seen: list[FloatArray] = []
            for name, colour, *_ in styles:
                family, curves = by_key[name, dataset]
                column = curves.metrics.index(metric)
                for i, width in {0: 0.8, len(family.s) - 1: 2.0}.items():
                    y, draws = curves.values[i, :, column], curves.draws[i, :, :, column]
                    label = f"{name}, S = {short_number(family.s[i])}"
                    ax.plot(curves.centre, y, marker=".", ms=5, lw=width, color=colour, label=label)
                    low, high = np.quantile(np.where(np.isfinite(draws), draws, np.nan), [0.025, 0.975], axis=0)
                    ax.fill_between(curves.centre, low, high, color=colour, alpha=0.15, lw=0)
                    seen += [y, low, high]
            ax.set(xlabel="position in the document, tokens", ylabel=law_axis_label(metric))
            last = max(float(by_key[one.name, dataset][1].centre.max()) for one in styles)
            log_axis(ax.xaxis, low=0.8, high=last * 1.2)
            lines = np.concatenate(seen)
            lines = lines[np.isfinite(lines) & (lines > 0)]
            log_axis(ax.yaxis, low=lines.min() / 1.1, high=lines.max() * 1.1)
        legend_of_all(figure, legend=room)
        return figure


def _positions(curves: PositionCurves, j: int) -> str:
    return f"position{'' if curves.first[j] == curves.last[j] else 's'} {curves.span(j)}"
