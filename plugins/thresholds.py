"""Emergence as it is usually drawn: success of whole sequences, linear, against ln S; where it passes one half.

A sequence succeeds where every token has R <= k; k = 1 is the greedy exact match. By the law -ln p = A S^-alpha success
is an S-shaped curve over ln S whatever the task, steep in no special place (arXiv 2510.20387). S_50 is the size at
which half of the windows of N tokens (or of the whole answers) succeed; the width is how many decades of S lie between
10 and 90%.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure

from rbptrack.analysis import (
    Analyzer,
    Drawing,
    Family,
    Report,
    Runs,
    counted,
    gradient,
    grid_of,
    interval_columns,
    legend_of_all,
    listed,
    read_families,
    shared_columns,
    short_number,
    size_axis,
    spread,
    style,
)
from rbptrack.stats import (
    FloatArray,
    PowerLawFit,
    RunSuccess,
    Threshold,
    document_weights,
    drawn_sums,
    fit_law,
    threshold,
    width_in_decades,
)

COLUMNS = {
    "summary": {
        **shared_columns("dataset", "family"),
        "k": "a token succeeds where R <= k; 1 is the greedy exact match",
        "N": "tokens in a row, or answer",
        "S_50": "size at which half of the windows succeed, and its interval",
        "decades": "of S from 10 to 90%",
    },
    "thresholds": {
        **shared_columns("dataset", "family"),
        "k": "a token succeeds where R <= k; 1 is the greedy exact match",
        "N": "tokens in a row, or answer: the dataset's last field",
        "sizes": "sizes with enough distinct runs: the law is fitted to these",
        "largest": "share of windows that succeed at the largest size",
        **interval_columns("s_50", "size at which half succeed, by the law", "scatter between models and documents"),
        "read_off": "the same, read off between the two sizes measured",
        "what": "measured: within the sizes; forecast: beyond the largest; refused, and why",
        **interval_columns("decades", "decades of S from 10 to 90%: 1.34 / alpha", "that of alpha"),
        **interval_columns("alpha", "exponent of -ln p", "scatter between models and documents"),
    },
    "success": {
        **shared_columns("dataset", "family", "size", "S", "k"),
        "N": "tokens in a row, or answer",
        **interval_columns("share", "share of windows that succeed", "documents resampled"),
        "runs": "distinct runs of at least N successes",
    },
}
_ANSWER = "answer"
_DECADES = "decades of S"

Laws = dict[tuple[str, int, object], tuple[PowerLawFit, Threshold]]  # by family, k and N


@dataclass(kw_only=True)
class Thresholds(Analyzer):
    """At what size whole sequences succeed: S_50 and the width of the rise, for every N.

    Attributes:
        ks: the k; 1 is the greedy exact match.
        lengths: the N.
        least_runs: an N is refused at sizes where fewer distinct runs of successes are that long.
        level: nominal coverage of the intervals.
        replicates: document bootstraps, drawn jointly for all sizes of a family.

    """

    name: ClassVar[str] = "thresholds"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    lengths: list[int] = field(default_factory=lambda: [1, 2, 4, 8, 16])
    least_runs: int = 10
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Count windows of every measurement; laws need at least 3 sizes."""
        report = Report(summary="summary")
        rows, shares = list[dict[str, Any]](), list[dict[str, Any]]()
        laws: Laws = {}

        def load(family: Family, run_id: str) -> RunSuccess:
            ks = [k for k in self.ks if k < family.vocab_size]
            truncated = str(family.rows.iloc[0]["sequence"]) == "truncate"
            cut = int(family.rows.iloc[0]["seq_len"]) if truncated else None
            pieces = runs.rank_pieces(run_id)
            return RunSuccess.concatenate([RunSuccess.of(p, ks=ks, lengths=self.lengths, cut_at=cut) for p in pieces])

        for family, counts in read_families(runs, load, report.notes, least=3):
            here = []
            outcomes: list[int | str] = [*self.lengths]
            if all(len(c.answers.length) for c in counts):
                outcomes.append(_ANSWER)
            for n in outcomes:
                for k in counts[0].ks:
                    p, draws, distinct = _shares(counts, k, n, self.replicates)
                    tails = [(1 - self.level) / 2, (1 + self.level) / 2]
                    low, high = np.quantile(draws, tails, axis=1)
                    for keys, cells in zip(family.size_keys, zip(p, low, high, distinct, strict=True), strict=True):
                        row = dict(zip(("share", "share_low", "share_high", "runs"), cells, strict=True))
                        shares.append(keys | {"k": k, "N": n} | row)
                    enough = (distinct >= self.least_runs) & (p > 0) & (p < 1)
                    law = self._law(family.s[enough], p[enough], draws[enough])
                    if law:
                        found = threshold(law, 0.5, documents=len(counts[0].windows))
                        laws[str(family), k, n] = law, found
                        here.append(family.keys | {"k": k, "N": n, "largest": p[-1]} | _cells(law, found))
            rows += here
            report.notes.append(_sentence(family, here))
        if not rows:
            raise report.nothing_found("no measurement with windows")
        report.add_table("summary", map(_in_words, rows), COLUMNS["summary"])
        report.add_table("thresholds", rows, COLUMNS["thresholds"])
        report.add_table("success", shares, COLUMNS["success"])
        report.add_metrics("s_50/{family}/{dataset}/k{k}_n{N}", rows, "s_50")
        report.headline = _headline(rows, max(float(np.log10(law.s.max() / law.s.min())) for law, _ in laws.values()))
        report.drawings["success"] = Drawing(
            _draw(shares, laws, self.ks[0]),
            f"Points: share of windows of N tokens whose every token has R <= {self.ks[0]}"
            + (" (greedy exact match)" if self.ks[0] == 1 else "")
            + ", linear. Lines: exp(-A S^-alpha), dashed beyond the sizes measured. Small crosses: S_50.",
        )
        return report

    def _law(self, s: FloatArray, p: FloatArray, draws: FloatArray) -> PowerLawFit | None:
        with np.errstate(divide="ignore"):
            return fit_law(s, -np.log(p), -np.log(draws), level=self.level) if len(s) >= 3 else None


def _shares(
    counts: Sequence[RunSuccess], k: int, n: int | str, replicates: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Share of successes, (m,), its bootstraps, (m, replicates), and distinct runs, (m,)."""
    found, draws, distinct = [], [], []
    for one in counts:
        successes, windows, runs = one.of_answers(k) if n == _ANSWER else one.of_windows(k, int(n))
        weights = document_weights(len(windows), replicates=replicates)
        found.append(successes.sum() / max(windows.sum(), 1))
        draws.append(drawn_sums(weights, successes) / np.maximum(drawn_sums(weights, windows), 1))
        distinct.append(runs)
    return np.array(found), np.stack(draws), np.array(distinct)


def _cells(law: PowerLawFit, found: Threshold) -> dict[str, Any]:
    width = width_in_decades(law)
    row: dict[str, Any] = {"sizes": law.points, "alpha": law.alpha, "alpha_low": law.low, "alpha_high": law.high}
    row |= found.size.columns("s_50") | width.columns("decades")
    what = f"refused: {found.refused}" if found.refused else "forecast" if found.forecast else "measured"
    return row | {"read_off": found.read_off, "what": what}


def _in_words(row: dict[str, Any]) -> dict[str, Any]:
    """The row for the terminal: texts, rounded."""
    keys = {name: row[name] for name in ("dataset", "family", "k", "N")}
    width = f"{row['decades']:.1f}" if np.isfinite(row["decades"]) else ""
    if row["what"].startswith("refused"):
        return keys | {"S_50": f"not identifiable: {row['what'].removeprefix('refused: ')}", "decades": width}
    return keys | {"S_50": _size(row), "decades": width}


def _size(row: dict[str, Any]) -> str:
    high = f"to {short_number(row['s_50_high'])}" if np.isfinite(row["s_50_high"]) else "and more"
    forecast = ", a forecast" if row["what"] == "forecast" else ""
    return f"{short_number(row['s_50'])} ({short_number(row['s_50_low'])} {high}{forecast})"


def _sentence(family: Family, rows: list[dict[str, Any]]) -> str:
    """About the smallest k: S_50 of each N, and the width."""
    if not rows:
        return f"{family}: too few distinct runs of successes at 3 sizes: S_50 is not identifiable."
    k = min(row["k"] for row in rows)
    parts, refused = list[str](), dict[str, list[str]]()
    for row in (row for row in rows if row["k"] == k):
        what = "whole answers" if row["N"] == _ANSWER else f"N = {row['N']}"
        if row["what"].startswith("refused"):
            refused.setdefault(row["what"].removeprefix("refused: "), []).append(what)
        else:
            parts.append(f"S_50 is {_size(row)} for {what}")
    parts += [f"S_50 is not identifiable for {listed(whats)} ({reason})" for reason, whats in refused.items()]
    widths = [row["decades"] for row in rows if row["k"] == k and np.isfinite(row["decades"])]
    width = f" By the laws the rise from 10% to 90% takes {spread(widths, '.1f', unit=_DECADES)}." if widths else ""
    match = " (greedy exact match)" if k == 1 else ""
    return f"{family}, k = {k}{match}: half of all windows succeed at S_50; {'; '.join(parts)}.{width}"


def _headline(rows: list[dict[str, Any]], longest: float) -> str:
    """In how many cases S_50 is told, and how wide the rise is, beside the decades of S of the widest family."""
    told = [row for row in rows if not row["what"].startswith("refused")]
    widths = [row["decades"] for row in rows if np.isfinite(row["decades"])]
    if not widths:
        return "the size at which half of the windows succeed is not identifiable in any case"
    forecasts = sum(row["what"] == "forecast" for row in told)
    return (
        f"the size at which half of the windows succeed is identifiable in {len(told)} of "
        f"{counted(len(rows), 'case')}, {forecasts or 'none'} of them by extrapolation; by the fitted laws the rise "
        f"from 10% to 90% success takes {spread(widths, '.1f', unit=_DECADES)}, where the sizes measured span at most "
        f"{longest:.1f}"
    )


def _draw(shares: list[dict[str, Any]], laws: Laws, k: int) -> Figure:
    """Linear success against ln S: a panel per family and dataset, N as colour."""
    mine = [row for row in shares if row["k"] == k]
    names = list(dict.fromkeys(f"{row['family']} on {row['dataset']}" for row in mine))
    lengths = list(dict.fromkeys(row["N"] for row in mine))
    colours = dict(zip(lengths, gradient(len(lengths)), strict=True))
    with style():
        figure, axes = grid_of(names, ["success"], height=3.0, legend=1.3)
        for name in names:
            ax = axes[name, "success"]
            here = [row for row in mine if f"{row['family']} on {row['dataset']}" == name]
            s = np.unique([row["S"] for row in here])
            for n in dict.fromkeys(row["N"] for row in here):
                points = [row for row in here if row["N"] == n]
                label = "whole answers" if n == _ANSWER else f"N = {n}"
                sizes, y = [r["S"] for r in points], [r["share"] for r in points]
                ends = [[r[end] for r in points] for end in ("share_low", "share_high")]
                ax.vlines(sizes, *ends, colors=[colours[n]])
                ax.plot(sizes, y, "o", ms=4, color=colours[n], label=label)
                if told := laws.get((name, k, n)):
                    law, found = told
                    for low, high, line in ((s[0], s[-1], "-"), (s[-1], 30 * s[-1], "--")):
                        x = np.geomspace(low, high, 60)
                        ax.plot(x, np.exp(-law.predict(x)), line, lw=1.2, color=colours[n])
                    if np.isfinite(found.size.value):
                        ax.plot(found.size.value, 0.5, "x", ms=7, mew=2, color=colours[n])
            size_axis(ax, [s[0], 20 * s[-1]])
            ax.axhline(0.5, lw=0.8, color="0.5")
            ax.set(title=f"{name}, k = {k}", ylabel="share of windows that succeed", ylim=(-0.03, 1.03))
        legend_of_all(figure, legend=1.3)
        return figure
