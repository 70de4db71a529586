"""Two families, checkpoints or precisions on the same texts, or one family on two datasets: what differs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis import (
    Analyzer,
    BadInput,
    DocumentCounts,
    Drawing,
    Family,
    RbptrackError,
    Report,
    Runs,
    colour_and_marker,
    error_bars,
    legend_of_all,
    metric_label,
    panel_per,
    rbp_name,
    read_families,
    short_number,
    style,
)
from rbptrack.stats import (
    BOOTSTRAP_SEED,
    LOG_NATS,
    PowerLawFit,
    difference_interval,
    law_values,
    metric_draws,
    metric_values,
    on_common_documents,
    welch,
)

TEXT = "ln nats of the text"
SIDES = {"A": "one side", "B": "the other", "on": "the dataset or family that they share"}
COLUMNS = {
    "summary": SIDES
    | {
        "metric": "CE (lower is better) or RBP_k (higher is better)",
        "models": "pairs of models compared",
        "mean A - B": "mean of the differences",
        "A better": "pairs whose interval lies on A's side",
        "B better": "pairs whose interval lies on B's side",
        "unclear": "pairs whose interval includes 0",
    },
    "differences": SIDES
    | {
        "model_A": "its model",
        "model_B": "the other's",
        "S_A": "its size",
        "S_B": "the other's",
        "metric": f"CE (nats), RBP_k, or {TEXT} (difference of logarithms, free of the tokenizer)",
        "value_A": "its value",
        "value_B": "the other's",
        "difference": "A - B",
        "low": "lower end of its interval (documents resampled)",
        "high": "upper end",
        "paired": "whether both read the same documents",
        "documents": "documents compared (the smaller number where they differ)",
        "same_tokens": "whether both score equally many tokens of them",
    },
    "exponents": SIDES
    | {
        "metric": "CE or RBP_k",
        "alpha_A": "its exponent",
        "alpha_B": "the other's",
        "difference": "A - B",
        "low": "lower end of its interval (Welch, scatter between models included)",
        "high": "upper end",
    },
}
_LEGEND = 1.7  # inches


@dataclass(frozen=True)
class Side:
    """One family on one dataset, and the counts of each size, ascending in S."""

    family: Family
    counts: list[DocumentCounts]

    @property
    def texts(self) -> str:
        """Hash of the texts."""
        return str(self.family.rows["documents_hash"].iloc[0])

    def model(self, i: int) -> str:
        """The i-th model: its family, whatever sets this part of it apart, and its size."""
        return f"{self.family.rows['family'].iloc[0]}-{self.family.labels[i]}"

    def laws(self, *, replicates: int, level: float) -> dict[str, PowerLawFit]:
        """The laws in size, by metric; none of fewer than 3 sizes."""
        if len(self.family.s) < 3:
            return {}
        return law_values(self.counts, replicates=replicates).fits(self.family.s, level=level)


@dataclass(kw_only=True)
class Compare(Analyzer):
    """Differences between families (or checkpoints) on the same texts, and between datasets for one family.

    Families are compared model by model at nearly equal S, over the same documents: both sides of a difference are
    resampled together. Two datasets hold different documents: their errors add. Where two families cut the text into
    different tokens, RBP_k and CE are means over different things; the nats for the whole text still compare.

    Attributes:
        a: pattern over `family/dataset`: one side of the comparisons to make.
        b: pattern of the other side.
        ks: the k to compare at.
        shown: the k of the figures and sentences.
        within: largest ratio of two S that count as equal.
        level: nominal coverage of the intervals.
        replicates: document bootstraps.

    """

    name: ClassVar[str] = "compare"
    a: str = "*"
    b: str = "*"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    shown: int = 10
    within: float = 1.25
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Compare every two sides that share texts, and every two datasets of a family."""
        if self.shown not in self.ks:
            raise BadInput(f"analyzer.shown={self.shown}: expected one of analyzer.ks={self.ks}")
        report = Report(summary="summary")

        def load(family: Family, run_id: str) -> DocumentCounts:
            family.require_ranks()
            return runs.document_counts(run_id, [k for k in self.ks if k <= family.vocab_size])

        sides = [Side(family, counts) for family, counts in read_families(runs, load, report.notes)]
        pairs = list(self._pairs(sides))
        if not pairs:
            there = ", ".join(side.family.path for side in sides) or "nothing"
            raise RbptrackError(
                f"nothing to compare: two families on one dataset, or one family on two, are needed; there is {there}"
                + (f" (a={self.a} b={self.b})" if (self.a, self.b) != ("*", "*") else "")
            )
        differences = pd.DataFrame(row for a, b in pairs for row in self._difference_rows(a, b, report.notes))
        if differences.empty:
            raise RbptrackError(f"nothing to compare: no two models of equal S (within a factor {self.within:g})")
        summary = self._summary(differences)
        report.add_table("summary", summary, COLUMNS["summary"])
        report.add_table("exponents", self._exponent_rows(pairs), COLUMNS["exponents"])
        report.add_table("differences", differences, COLUMNS["differences"])
        for row in summary.to_dict("records"):
            path = f"{row['A']} - {row['B']}/{row['on']}/{row['metric'].lower()}"
            report.metrics[f"difference/{path}"] = float(row["mean A - B"])
        self._draw(report, differences)
        report.notes += self._sentences(summary, differences)
        clear = differences[differences["metric"] == self._label]
        decided = int(((clear["low"] > 0) | (clear["high"] < 0)).sum())
        clearly = f"{self._label} differs clearly in {decided} of {len(clear)} pairs of models"
        report.headline = f"{len(pairs)} comparison{'s' * (len(pairs) > 1)}: {clearly}"
        return report

    @property
    def _label(self) -> str:
        """The metric of the figures and sentences, beside CE."""
        return metric_label(rbp_name(self.shown))

    def _pairs(self, sides: list[Side]) -> Iterator[tuple[Side, Side]]:
        for one, two in combinations(sides, 2):
            if one.family.dataset == two.family.dataset:
                shared = one.texts == two.texts
            else:
                shared = one.family.name == two.family.name
            for a, b in ((one, two), (two, one)):
                if shared and fnmatchcase(a.family.path, self.a) and fnmatchcase(b.family.path, self.b):
                    yield a, b
                    break

    def _models(self, a: Side, b: Side) -> Iterator[tuple[int, int]]:
        """Sizes of A and B that count as equal: each of A with the nearest of B."""
        for i, s in enumerate(a.family.s):
            j = int(np.abs(np.log(b.family.s / s)).argmin())
            if abs(np.log(b.family.s[j] / s)) <= np.log(self.within):
                yield i, j

    def _difference_rows(self, a: Side, b: Side, notes: list[str]) -> Iterator[dict[str, Any]]:
        paired, labels = a.family.dataset == b.family.dataset, _labels(a, b)
        models = list(self._models(a, b))
        if not models:
            notes.append(f"{labels['A']} and {labels['B']}: no two models of equal S (within {self.within:g}).")
        for i, j in models:
            left, right = a.counts[i], b.counts[j]
            if paired:
                left, right = on_common_documents(left, right)
            seeds = (BOOTSTRAP_SEED, BOOTSTRAP_SEED + (not paired))  # other documents are drawn independently
            draws_a = metric_draws(left, replicates=self.replicates, seed=seeds[0])
            draws_b = metric_draws(right, replicates=self.replicates, seed=seeds[1])
            keys = labels | {"model_A": a.model(i), "model_B": b.model(j)}
            keys |= {"S_A": float(a.family.s[i]), "S_B": float(b.family.s[j])}
            rest = {"paired": paired, "documents": min(len(left.document), len(right.document))}
            rest["same_tokens"] = bool(paired and left.tokens.sum() == right.tokens.sum())
            value_a, value_b = metric_values(left), metric_values(right)
            for metric in (m for m in value_a if m in value_b and (paired or m != LOG_NATS)):
                values, drawn = (value_a[metric], value_b[metric]), (draws_a[metric], draws_b[metric])
                found = difference_interval(*values, *drawn, level=self.level)
                label = {"metric": TEXT if metric == LOG_NATS else metric_label(metric)}
                cells = {"value_A": values[0], "value_B": values[1], "difference": found.value}
                yield keys | label | cells | {"low": found.low, "high": found.high} | rest

    def _exponent_rows(self, pairs: list[tuple[Side, Side]]) -> Iterator[dict[str, Any]]:
        sides = {side.family.path: side for pair in pairs for side in pair}
        laws = {path: side.laws(replicates=self.replicates, level=self.level) for path, side in sides.items()}
        for a, b in pairs:
            left, right = laws[a.family.path], laws[b.family.path]
            for metric in (m for m in left if m in right):
                one, two = left[metric], right[metric]
                freedom = (one.points - 2, two.points - 2)
                found = welch(one.alpha, two.alpha, se=(one.se, two.se), freedom=freedom, level=self.level)
                row = {"metric": metric_label(metric), "alpha_A": one.alpha, "alpha_B": two.alpha}
                yield _labels(a, b) | row | {"difference": found.value, "low": found.low, "high": found.high}

    def _summary(self, differences: pd.DataFrame) -> pd.DataFrame:
        rows = []
        shown = differences[differences["metric"].isin(["CE", self._label])]
        for (a, b, on, metric), group in shown.groupby(["A", "B", "on", "metric"], sort=False):
            above, below = int((group["low"] > 0).sum()), int((group["high"] < 0).sum())
            better, worse = (below, above) if metric == "CE" else (above, below)
            row = {"A": a, "B": b, "on": on, "metric": metric, "models": len(group)}
            row |= {"mean A - B": float(group["difference"].mean()), "A better": better, "B better": worse}
            rows.append(row | {"unclear": len(group) - better - worse})
        return pd.DataFrame(rows)

    def _sentences(self, summary: pd.DataFrame, differences: pd.DataFrame) -> Iterator[str]:
        for row in summary[summary["metric"] == self._label].to_dict("records"):
            mean = row["mean A - B"]
            better = row["A"] if mean > 0 else row["B"]
            decided = row["A better"] if mean > 0 else row["B better"]
            yield (
                f"{row['A']} and {row['B']} on {row['on']}: {self._label} is {abs(mean):.3f} higher for {better} on "
                f"average, clearly so in {decided} of {row['models']} pairs of models of equal S."
            )
        own = differences[differences["paired"] & ~differences["same_tokens"]]
        for a, b in dict.fromkeys(zip(own["A"], own["B"], strict=True)):
            yield f"{a} and {b} cut the texts into different tokens: compare nats of the text, not RBP_k or CE."
        chance, count = f"{1 - self.level:.0%}", len(differences)
        yield f"Of {self.level:.0%} intervals about {chance} exclude 0 by chance alone; there are {count} here."

    def _draw(self, report: Report, differences: pd.DataFrame) -> None:
        caption = "Bars: 95 % intervals over documents. Every side beside the first of its panel."
        for metric in (self._label, "CE"):
            for paired, between in ((True, "families"), (False, "datasets")):
                rows = differences[(differences["metric"] == metric) & (differences["paired"] == paired)]
                if len(rows):
                    name = f"{metric.lower()}_between_{between}"
                    report.drawings[name] = Drawing(_draw_differences(rows, metric), caption)


def _draw_differences(table: pd.DataFrame, metric: str) -> Figure:
    """A panel per dataset (families against the first of them), or per family (datasets against the first)."""
    with style():
        names = list(dict.fromkeys(table["on"]))
        labels: dict[str, int] = {}
        figure, axes = panel_per(names, legend=_LEGEND)
        for ax, name in zip(axes, names, strict=True):
            rows = table[table["on"] == name]
            first = rows["A"].iloc[0]
            for b, group in rows[rows["A"] == first].groupby("B", sort=False):
                label = f"{first} − {b}"
                number = labels.setdefault(label, len(labels))
                colour, marker = colour_and_marker(number)
                points = group.sort_values("S_A")
                x = points["S_A"] * 1.04**number  # so that bars do not hide each other
                cells = (points["difference"], points["low"], points["high"])
                error_bars(ax, x, *cells, capsize=0, fmt=marker, ms=4.5, lw=1, color=colour, label=label)
            ax.margins(y=0.1)
            ax.axhline(0, lw=0.9, color="#57606a")
            ax.set(xscale="log", xlabel="S, non-embedding parameters")
            ax.set_ylabel("difference in CE, nats" if metric == "CE" else f"difference in {metric}")
            ax.xaxis.set_major_formatter(short_number)
            ax.yaxis.set_major_formatter("{x:g}")
        legend_of_all(figure, legend=_LEGEND)
        return figure


def _labels(a: Side, b: Side) -> dict[str, Any]:
    """What the two sides differ in, and what they share."""
    if a.family.dataset == b.family.dataset:
        return {"A": a.family.name, "B": b.family.name, "on": a.family.dataset}
    return {"A": a.family.dataset, "B": b.family.dataset, "on": a.family.name}
