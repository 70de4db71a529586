"""How ranks improve with the position in the text, and whether the law in size is another early than late."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis import (
    Analyzer,
    BadInput,
    Drawing,
    Family,
    RankTable,
    Report,
    Runs,
    colour_and_marker,
    legend_of_all,
    log_axis,
    panel_per,
    rbp_name,
    read_families,
    short_number,
    style,
)
from rbptrack.stats import FloatArray, PowerLawFit, document_weights, fit_power_law, paired_covariance

CE = 0  # stands for cross-entropy where a k is expected
_LEGEND = 1.6  # inches
KEY = {"dataset": "the dataset", "family": "the family", "metric": "CE (nats) or RBP_k"}
BIN = {"first": "first position of the bin (tokens before it in its document)", "last": "last position of the bin"}


@dataclass(frozen=True)
class Binned:
    """CE and -ln RBP_k by position, in documents that reach the last bin.

    Attributes:
        family: whose.
        first: first position of each bin, (bins,).
        last: last position, (bins,).
        tokens: scored tokens of each bin, (bins,).
        documents: how many documents count.
        every: how many there are.
        sums: per size, (documents, bins, 2 + ks): tokens, nats, hits.
        values: (m, bins, 1 + ks): CE, -ln RBP_k.
        draws: the same in bootstrap replicates, (m, replicates, bins, 1 + ks).

    """

    family: Family
    first: FloatArray
    last: FloatArray
    tokens: FloatArray
    documents: int
    every: int
    sums: list[FloatArray]
    values: FloatArray
    draws: FloatArray


COLUMNS: dict[str, dict[str, str]] = {
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
    "laws": KEY
    | BIN
    | {
        "tokens": "scored tokens in the bin",
        "alpha": "exponent of the law in size within the bin",
        "alpha_low": "lower end of its interval",
        "alpha_high": "upper end",
        "r2": "R^2 on logarithms",
    },
    "curves": KEY
    | {"size": "published label", "S": "size"}
    | BIN
    | {"tokens": "scored tokens in the bin", "y": "CE or -ln RBP_k", "se": "standard error (document bootstrap)"},
}


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
        report = Report(summary="")
        found: dict[tuple[str, str], Binned] = {}
        for family, sums in read_families(runs, lambda _, run_id: self._sums(runs.ranks(run_id)), report.notes):
            binned = self._bin(family, sums)
            if binned is None:
                report.notes.append(f"{family}: no 5 documents reach a second bin of positions.")
            else:
                found[family.name, family.dataset] = binned
        if not found:
            raise report.nothing_found("no measurement with positions")
        laws = [row for b in found.values() for row in self._laws(b)]
        contrasts = [row for b in found.values() for row in self._contrasts(b)]
        report.add_table("early_and_late", contrasts, COLUMNS["early_and_late"])
        if contrasts:
            report.add_table("laws", laws, COLUMNS["laws"])
        report.add_table("curves", [row for b in found.values() for row in self._curves(b)], COLUMNS["curves"])
        for row in contrasts:
            where = f"{row['family']}/{row['dataset']}/{row['metric'].lower()}"
            report.metrics[f"alpha_late_minus_early/{where}"] = row["difference"]
        report.drawings[f"{rbp_name(self.shown)}_by_position"] = Drawing(
            self._by_position(found, self.shown),
            "Thick: the largest size; thin: the smallest; bands: 95 % intervals "
            "(documents resampled). Every bin reads the same documents. Beyond the sequence length a token has "
            "less context than its position says.",
        )
        report.drawings["ce_by_position"] = Drawing(self._by_position(found, CE))
        if laws:
            report.drawings["alpha_by_position"] = Drawing(
                self._alpha(laws), "Exponent of the law in size among tokens at each position, with interval."
            )
        report.notes += [self._sentence(b, contrasts) for b in found.values()]
        report.headline = self._headline(contrasts) or report.notes[-1]
        return report

    def _sums(self, table: RankTable) -> FloatArray:
        """Tokens, nats and hits of each k, by document and bin of positions: (documents, 32, 2 + ks)."""
        _, document = table.documents
        place = np.frexp(table.column("position").astype(np.float64))[1]  # 0, 1, 2-3, 4-7, ... -> 0, 1, 2, 3, ...
        cell, size = document * 32 + place, (int(document.max()) + 1) * 32
        nats = -table.column("logprob").astype(np.float64)
        columns = [np.bincount(cell, minlength=size), np.bincount(cell, weights=nats, minlength=size)]
        columns += [np.bincount(cell[table.rank <= k], minlength=size) for k in self.ks]
        return np.stack(columns, axis=1, dtype=np.float64).reshape(-1, 32, 2 + len(self.ks))

    def _bin(self, family: Family, sums: list[FloatArray]) -> Binned | None:
        reached = sums[0][:, :, 0] > 0  # (documents, 32)
        enough = np.flatnonzero(reached.sum(axis=0) >= max(5, self.share * len(reached)))
        if len(enough) < 2:
            return None
        full = enough[-1]
        kept = reached[:, full]
        used = [b for b in range(full + 1) if sums[0][kept, b, 0].sum() >= 20]
        if len(used) < 2:
            return None
        part = [s[kept][:, used] for s in sums]
        weights = document_weights(int(kept.sum()), replicates=self.replicates)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.stack([_values(s.sum(axis=0)) for s in part])
            draws = np.stack([_values(np.tensordot(weights, s, axes=1)) for s in part])
        first = np.array([0 if b == 0 else 2 ** (b - 1) for b in used])
        last = np.array([0 if b == 0 else 2**b - 1 for b in used])
        tokens = part[0][:, :, 0].sum(axis=0) / len(family.run_ids[0])
        return Binned(family, first, last, tokens, int(kept.sum()), len(reached), part, values, draws)

    def _metrics(self) -> list[tuple[int, int]]:
        """Column and k of every metric."""
        return list(enumerate([CE, *self.ks]))

    def _curves(self, b: Binned) -> Iterator[dict[str, Any]]:
        spread = np.where(np.isfinite(b.draws), b.draws, np.nan).std(axis=1, ddof=1)  # NaN where a replicate has no hit
        for column, k in self._metrics():
            for i, label in enumerate(b.family.labels):
                for j in range(len(b.first)):
                    yield _key(b.family, k) | {
                        "size": label,
                        "S": float(b.family.s[i]),
                        "first": int(b.first[j]),
                        "last": int(b.last[j]),
                        "tokens": int(b.tokens[j]),
                        "y": float(b.values[i, j, column]),
                        "se": float(spread[i, j, column]),
                    }

    def _laws(self, b: Binned) -> Iterator[dict[str, Any]]:
        if len(b.family.s) < 3:
            return
        for column, k in self._metrics():
            for j in range(len(b.first)):
                law = self._fit(b.family.s, b.values[:, j, column], b.draws[:, :, j, column])
                if law:
                    yield _key(b.family, k) | {
                        "first": int(b.first[j]),
                        "last": int(b.last[j]),
                        "tokens": int(b.tokens[j]),
                        "alpha": law.alpha,
                        "alpha_low": law.low,
                        "alpha_high": law.high,
                        "r2": law.r2,
                    }

    def _fit(self, s: FloatArray, y: FloatArray, draws: FloatArray) -> PowerLawFit | None:
        if not (np.isfinite(y).all() and (y > 0).all() and np.isfinite(draws).all() and (draws > 0).all()):
            return None
        return fit_power_law(s, y, covariance=paired_covariance(list(np.log(draws))), level=self.level)

    def _contrasts(self, b: Binned) -> Iterator[dict[str, Any]]:
        """The first half of the bins against the last bin, in the same models and documents."""
        if len(b.family.s) < 3:
            return
        half = max(1, len(b.first) // 2)
        weights = document_weights(b.documents, replicates=self.replicates)
        parts = []
        for chosen in (slice(0, half), slice(-1, None)):
            sums = [s[:, chosen].sum(axis=1) for s in b.sums]  # (documents, 2 + ks)
            with np.errstate(divide="ignore", invalid="ignore"):
                parts.append(
                    (np.stack([_values(s.sum(axis=0)) for s in sums]), np.stack([_values(weights @ s) for s in sums]))
                )
        (early, early_draws), (late, late_draws) = parts
        for column, k in self._metrics():
            laws = [self._fit(b.family.s, y[:, column], draws[:, :, column]) for y, draws in parts]
            if laws[0] is None or laws[1] is None:
                continue
            ratio = self._fit(
                b.family.s,
                late[:, column] / early[:, column],
                late_draws[:, :, column] / early_draws[:, :, column],
            )
            if ratio:
                yield _key(b.family, k) | {
                    "early": f"{b.first[0]} to {b.last[half - 1]}",
                    "late": f"{b.first[-1]} to {b.last[-1]}",
                    "y_early": float(early[-1, column]),
                    "y_late": float(late[-1, column]),
                    "alpha_early": laws[0].alpha,
                    "alpha_late": laws[1].alpha,
                    "difference": ratio.alpha,
                    "low": ratio.low,
                    "high": ratio.high,
                }

    def _sentence(self, b: Binned, contrasts: list[dict[str, Any]]) -> str:
        column = self.ks.index(self.shown) + 1
        y = b.values[-1, :, column]
        text = (
            f"{b.family}: in {b.documents} of {b.every} documents (those that reach position {b.first[-1]}), -ln "
            f"RBP_{self.shown} of the largest size goes from {y[0]:.3f} at positions {_span(b, 0)} to {y[-1]:.3f} at "
            f"{_span(b, -1)}."
        )
        mine = [r for r in contrasts if (r["family"], r["dataset"]) == (b.family.name, b.family.dataset)]
        return text + "".join(f" {_verdict(row)}" for row in mine if row["metric"] in ("CE", f"RBP_{self.shown}"))

    def _headline(self, contrasts: list[dict[str, Any]]) -> str:
        rows = [r for r in contrasts if r["metric"] == f"RBP_{self.shown}"]
        clear = [r for r in rows if r["low"] > 0 or r["high"] < 0]
        if not rows:
            return ""
        steeper = sum(r["difference"] > 0 for r in clear)
        counts = (
            f"larger in {steeper}, smaller in {len(clear) - steeper}, not to be told apart in {len(rows) - len(clear)}"
        )
        return f"alpha of RBP_{self.shown} late against early: {counts} of {len(rows)} families x datasets"

    def _by_position(self, found: dict[tuple[str, str], Binned], k: int) -> Figure:
        datasets, names = sorted({d for _, d in found}), sorted({f for f, _ in found})
        column = {k: c for c, k in self._metrics()}[k]
        with style():
            figure, axes = panel_per(datasets, legend=_LEGEND)
            for ax, dataset in zip(axes, datasets, strict=True):
                seen: list[FloatArray] = []
                for name in (n for n in names if (n, dataset) in found):
                    b, colour = found[name, dataset], colour_and_marker(names.index(name))[0]
                    x = np.sqrt(np.maximum(b.first, 0.5) * np.maximum(b.last, 0.5))
                    for i, width in {0: 0.8, len(b.family.s) - 1: 2.0}.items():
                        y, draws = b.values[i, :, column], b.draws[i, :, :, column]
                        label = f"{name}, S = {short_number(b.family.s[i])}"
                        ax.plot(x, y, marker=".", ms=5, lw=width, color=colour, label=label)
                        low, high = np.quantile(np.where(np.isfinite(draws), draws, np.nan), [0.025, 0.975], axis=0)
                        ax.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
                        seen += [y, low, high]
                ax.set(xlabel="position in the document, tokens", xscale="log")
                ax.set_ylabel("CE, nats per token" if k == CE else f"−ln RBP$_{{{k}}}$")
                lines = np.concatenate(seen)
                lines = lines[np.isfinite(lines) & (lines > 0)]
                log_axis(ax.yaxis, low=lines.min() / 1.1, high=lines.max() * 1.1)
            legend_of_all(figure, legend=_LEGEND)
            return figure

    def _alpha(self, laws: list[dict[str, Any]]) -> Figure:
        table = pd.DataFrame(laws)
        datasets, names = sorted(set(table["dataset"])), sorted(set(table["family"]))
        with style():
            figure, axes = panel_per(datasets, sharey=True, legend=_LEGEND)
            for ax, dataset in zip(axes, datasets, strict=True):
                for metric, line in ((f"RBP_{self.shown}", "-"), ("CE", "--")):
                    for name in names:
                        rows = table[
                            (table["dataset"] == dataset) & (table["family"] == name) & (table["metric"] == metric)
                        ]
                        if rows.empty:
                            continue
                        colour = colour_and_marker(names.index(name))[0]
                        x = np.sqrt(np.maximum(rows["first"], 0.5) * np.maximum(rows["last"], 0.5))
                        ax.plot(
                            x, rows["alpha"], line, marker=".", ms=5, lw=1.4, color=colour, label=f"{name}, {metric}"
                        )
                        ax.fill_between(x, rows["alpha_low"], rows["alpha_high"], color=colour, alpha=0.13, lw=0)
                ax.set(xscale="log", xlabel="position in the document, tokens", ylabel="α within the bin")
            legend_of_all(figure, legend=_LEGEND)
            shown = table[table["metric"].isin(["CE", f"RBP_{self.shown}"])]["alpha"]
            axes[0].set_ylim(min(0.0, float(shown.min()) * 1.3), float(shown.max()) * 1.4)
            return figure


def _values(sums: FloatArray) -> FloatArray:
    """CE and -ln RBP_k from (..., 2 + ks) sums of tokens, nats and hits."""
    shares = sums[..., 1:] / sums[..., :1]
    return np.concatenate([shares[..., :1], -np.log(shares[..., 1:])], axis=-1)


def _key(family: Family, k: int) -> dict[str, Any]:
    return {"dataset": family.dataset, "family": family.name, "metric": "CE" if k == CE else f"RBP_{k}"}


def _span(b: Binned, j: int) -> str:
    return f"{b.first[j]} to {b.last[j]}" if b.first[j] != b.last[j] else f"{b.first[j]}"


def _verdict(row: dict[str, Any]) -> str:
    early, late = f"{row['alpha_early']:.3f} at {row['early']}", f"{row['alpha_late']:.3f} at {row['late']}"
    unsure = "" if row["low"] > 0 or row["high"] < 0 else ", not to be told apart"
    return (
        f"Alpha of {row['metric']} is {early} and {late} (difference {row['low']:+.3f} to {row['high']:+.3f}{unsure})."
    )
