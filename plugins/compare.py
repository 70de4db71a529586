"""Two families, checkpoints or precisions on the same texts, or one family on two datasets: what differs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

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
    legend_of_all,
    panel_per,
    read_families,
    short_number,
    style,
)
from rbptrack.stats import (
    BOOTSTRAP_SEED,
    FloatArray,
    PowerLawFit,
    bootstrap_metrics,
    document_weights,
    fit_power_law,
    law_values,
    paired_covariance,
)

CE = 0  # stands for cross-entropy where a k is expected
_LEGEND = 1.7  # inches
TEXT = "ln nats of the text"
SIDES = {"A": "one side", "B": "the other", "on": "the dataset or family that they share"}


@dataclass(frozen=True)
class Side:
    """One family on one dataset, and the counts of each size, ascending in S."""

    family: Family
    counts: Mapping[int, DocumentCounts]
    drawn: dict[tuple[int, int, int], FloatArray] = field(default_factory=dict)

    def draws(self, i: int, *, replicates: int, seed: int) -> FloatArray:
        """CE and RBP_k of the i-th size in bootstrap replicates, (replicates, 1 + ks); drawn once."""
        key = (i, replicates, seed)
        if key not in self.drawn:
            counts = self.counts[i]
            weights = document_weights(len(counts.document), replicates=replicates, seed=seed)
            self.drawn[key] = bootstrap_metrics(counts, weights)
        return self.drawn[key]

    @property
    def texts(self) -> str:
        """Hash of the texts."""
        return str(self.family.rows["documents_hash"].iloc[0])

    @property
    def base(self) -> str:
        """The family, whatever sets this part of it apart."""
        return str(self.family.rows["family"].iloc[0])


COLUMNS: dict[str, dict[str, str]] = {
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


@dataclass(kw_only=True)
class Compare(Analyzer):
    """Differences between families (or checkpoints) on the same texts, and between datasets for one family.

    Families are compared model by model at nearly equal S, over the same documents: both sides of a difference are
    resampled together. Two datasets hold other documents: their errors add. Where two families cut the text into other
    tokens, RBP_k and CE are means over different things; the nats that each needs for the whole text still compare.

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
        sides: list[Side] = []

        def load(family: Family, run_id: str) -> DocumentCounts:
            return runs.document_counts(run_id, [k for k in self.ks if k <= family.vocab_size])

        for family, counts in read_families(runs, load, report.notes):
            sides.append(Side(family, dict(enumerate(counts))))
        pairs = list(self._pairs(sides))
        if not pairs:
            there = ", ".join(f"{s.family.name}/{s.family.dataset}" for s in sides) or "nothing"
            raise RbptrackError(
                f"nothing to compare: two families on one dataset, or one family on two, are needed; there is {there}"
                + (f" (a={self.a} b={self.b})" if (self.a, self.b) != ("*", "*") else "")
            )
        differences = [row for a, b in pairs for row in self._differences(a, b, report)]
        if not differences:
            raise RbptrackError(f"nothing to compare: no two models of equal S (within a factor {self.within:g})")
        table = pd.DataFrame(differences)
        used = {id(side): side for pair in pairs for side in pair}
        laws = {key: _laws(side, self.replicates, self.level) for key, side in used.items() if len(side.family.s) >= 3}
        exponents = [row for a, b in pairs for row in self._exponents(a, b, laws)]
        summary = self._summary(table)
        report.add_table("summary", summary, COLUMNS["summary"])
        report.add_table("exponents", exponents, COLUMNS["exponents"])
        report.add_table("differences", table, COLUMNS["differences"])
        for row in summary.to_dict("records"):
            where = f"{row['A']} - {row['B']}/{row['on']}/{row['metric'].lower()}"
            report.metrics[f"difference/{where}"] = float(row["mean A - B"])
        for metric in (f"RBP_{self.shown}", "CE"):
            for paired, between in ((True, "families"), (False, "datasets")):
                rows = table[(table["metric"] == metric) & (table["paired"] == paired)]
                if len(rows):
                    name = f"{metric.lower()}_between_{between}"
                    report.drawings[name] = Drawing(
                        self._figure(rows, metric),
                        "Bars: 95 % intervals over documents. Every side beside the first of its panel.",
                    )
        report.notes += self._sentences(summary, table)
        clear = table[table["metric"].isin([f"RBP_{self.shown}"])]
        decided = int(((clear["low"] > 0) | (clear["high"] < 0)).sum())
        clearly = f"RBP_{self.shown} differs clearly in {decided} of {len(clear)} pairs of models"
        report.headline = f"{len(pairs)} comparison{'s' * (len(pairs) > 1)}: {clearly}"
        return report

    def _pairs(self, sides: list[Side]) -> Iterator[tuple[Side, Side]]:
        for one, two in combinations(sides, 2):
            same_texts = one.family.dataset == two.family.dataset and one.texts == two.texts
            same_family = one.family.name == two.family.name and one.family.dataset != two.family.dataset
            if not (same_texts or same_family):
                continue
            names = [f"{s.family.name}/{s.family.dataset}" for s in (one, two)]
            if fnmatchcase(names[0], self.a) and fnmatchcase(names[1], self.b):
                yield one, two
            elif fnmatchcase(names[1], self.a) and fnmatchcase(names[0], self.b):
                yield two, one

    def _models(self, a: Side, b: Side) -> Iterator[tuple[int, int]]:
        """Sizes of A and B that count as equal: each of A with the nearest of B."""
        for i, s in enumerate(a.family.s):
            j = int(np.abs(np.log(b.family.s / s)).argmin())
            if abs(np.log(b.family.s[j] / s)) <= np.log(self.within):
                yield i, j

    def _differences(self, a: Side, b: Side, report: Report) -> Iterator[dict[str, Any]]:
        paired = a.family.dataset == b.family.dataset
        pairs = list(self._models(a, b))
        labels = _labels(a, b)
        if not pairs:
            report.notes.append(f"{labels['A']} and {labels['B']}: no two models of equal S (within {self.within:g}).")
        for i, j in pairs:
            one, two = a, b
            if paired and not np.array_equal(a.counts[i].document, b.counts[j].document):
                left, right = _same_documents(a.counts[i], b.counts[j])
                one, two = Side(a.family, {i: left}), Side(b.family, {j: right})
            left, right = one.counts[i], two.counts[j]
            # Other documents: drawn independently of the first side's.
            seeds = (BOOTSTRAP_SEED, BOOTSTRAP_SEED if paired else BOOTSTRAP_SEED + 1)
            drawn = [
                side.draws(place, replicates=self.replicates, seed=seed)
                for side, place, seed in zip((one, two), (i, j), seeds, strict=True)
            ]
            common = labels | {
                "model_A": _model(a, i),
                "model_B": _model(b, j),
                "S_A": float(a.family.s[i]),
                "S_B": float(b.family.s[j]),
            }
            rest = {
                "paired": paired,
                "documents": min(len(left.document), len(right.document)),
                "same_tokens": bool(paired and left.tokens.sum() == right.tokens.sum()),
            }
            once = [bootstrap_metrics(c, np.ones((1, len(c.document))))[0] for c in (left, right)]
            for k in [CE, *(k for k in left.ks if k in right.ks)]:
                at = [0 if k == CE else c.ks.index(k) + 1 for c in (left, right)]
                metric = "CE" if k == CE else f"RBP_{k}"
                values, replicates = (
                    [float(v[c]) for v, c in zip(once, at, strict=True)],
                    [d[:, c] for d, c in zip(drawn, at, strict=True)],
                )
                yield common | self._row(metric, values, replicates) | rest
            if paired:
                weights = document_weights(len(left.document), replicates=self.replicates)
                text = [np.log(weights @ c.nats) for c in (left, right)]
                yield common | self._row(TEXT, [float(np.log(c.nats.sum())) for c in (left, right)], text) | rest

    def _row(self, metric: str, values: list[float], draws: list[FloatArray]) -> dict[str, Any]:
        tail = (1 - self.level) / 2
        low, high = np.quantile(draws[0] - draws[1], [tail, 1 - tail])
        return {
            "metric": metric,
            "value_A": float(values[0]),
            "value_B": float(values[1]),
            "difference": float(values[0] - values[1]),
            "low": float(low),
            "high": float(high),
        }

    def _exponents(self, a: Side, b: Side, laws: dict[int, dict[str, PowerLawFit]]) -> Iterator[dict[str, Any]]:
        left, right = laws.get(id(a), {}), laws.get(id(b), {})
        for metric in (m for m in left if m in right):
            one, two = left[metric], right[metric]
            both = float(np.hypot(one.se, two.se))
            freedom = both**4 / (one.se**4 / (one.points - 2) + two.se**4 / (two.points - 2)) if both > 0 else 1.0
            half = float(stats.t.ppf(0.5 + self.level / 2, freedom)) * both
            difference = one.alpha - two.alpha
            yield _labels(a, b) | {
                "metric": metric,
                "alpha_A": one.alpha,
                "alpha_B": two.alpha,
                "difference": difference,
                "low": difference - half,
                "high": difference + half,
            }

    def _summary(self, table: pd.DataFrame) -> pd.DataFrame:
        rows = []
        shown = table[table["metric"].isin(["CE", f"RBP_{self.shown}"])]
        for (a, b, on, metric), group in shown.groupby(["A", "B", "on", "metric"], sort=False):
            above, below = int((group["low"] > 0).sum()), int((group["high"] < 0).sum())
            better, worse = (below, above) if metric == "CE" else (above, below)
            rows.append(
                {
                    "A": a,
                    "B": b,
                    "on": on,
                    "metric": metric,
                    "models": len(group),
                    "mean A - B": float(group["difference"].mean()),
                    "A better": better,
                    "B better": worse,
                    "unclear": len(group) - better - worse,
                }
            )
        return pd.DataFrame(rows)

    def _sentences(self, summary: pd.DataFrame, table: pd.DataFrame) -> Iterator[str]:
        for row in summary[summary["metric"] == f"RBP_{self.shown}"].to_dict("records"):
            mean = row["mean A - B"]
            better = row["A"] if mean > 0 else row["B"]
            decided = row["A better"] if mean > 0 else row["B better"]
            yield (
                f"{row['A']} and {row['B']} on {row['on']}: RBP_{self.shown} is {abs(mean):.3f} higher for {better} on "
                f"average, clearly so in {decided} of {row['models']} pairs of models of equal S."
            )
        own = table[table["paired"] & ~table["same_tokens"]]
        for a, b in dict.fromkeys(zip(own["A"], own["B"], strict=True)):
            yield f"{a} and {b} cut the texts into other tokens: compare nats of the text, not RBP_k or CE per token."
        chance = f"{1 - self.level:.0%}"
        yield f"Of {self.level:.0%} intervals about {chance} exclude 0 by chance alone; there are {len(table)} here."

    def _figure(self, table: pd.DataFrame, metric: str) -> Figure:
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
                    bars = np.clip(
                        [points["difference"] - points["low"], points["high"] - points["difference"]], 0, None
                    )
                    x = points["S_A"] * 1.04**number  # so that bars do not hide each other
                    ax.errorbar(
                        x,
                        points["difference"],
                        yerr=bars,
                        fmt=marker,
                        ms=4.5,
                        lw=1,
                        color=colour,
                        label=label,
                    )
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


def _model(side: Side, i: int) -> str:
    return f"{side.base}-{side.family.labels[i]}"


def _same_documents(left: DocumentCounts, right: DocumentCounts) -> tuple[DocumentCounts, DocumentCounts]:
    """Both, for the documents in which both score tokens."""
    both = np.intersect1d(left.document, right.document)

    def of(counts: DocumentCounts) -> DocumentCounts:
        kept = np.isin(counts.document, both)
        return DocumentCounts(counts.ks, both, counts.tokens[kept], counts.nats[kept], counts.hits[kept])

    return of(left), of(right)


def _laws(side: Side, replicates: int, level: float) -> dict[str, PowerLawFit]:
    found = law_values(list(side.counts.values()), replicates=replicates)
    values, draws = found.values, found.draws
    laws = {}
    for column, metric in enumerate(["CE", *(f"RBP_{k}" for k in side.counts[0].ks)]):
        y, replicate = values[:, column], draws[:, :, column]
        if np.isfinite(y).all() and (y > 0).all() and np.isfinite(replicate).all() and (replicate > 0).all():
            covariance = paired_covariance(list(np.log(replicate)))
            laws[metric] = fit_power_law(side.family.s, y, covariance=covariance, level=level)
    return laws
