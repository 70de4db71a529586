"""Are exponents the same? Paired contrasts alpha_a - alpha_b with a test of difference and one of equivalence.

arXiv 2510.20387 finds the exponents of cross-entropy and RBP_1 "nearly identical". Two intervals beside each other
cannot tell: most of their width is common to both. Here the law is fitted to the ratio of the two values, model by
model and over the same documents, which is free of what they share.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure

from rbptrack.analysis import (
    CE,
    Analyzer,
    BadInput,
    DocumentCounts,
    Drawing,
    Family,
    Report,
    Runs,
    be,
    colour_and_marker,
    counted,
    legend_of_all,
    listed,
    metric_label,
    metric_part,
    panel_per,
    rbp_name,
    read_families,
    spread,
    style,
)
from rbptrack.stats import (
    Contrast,
    LawValues,
    PowerLawFit,
    Spread,
    contrast,
    holm,
    law_values,
    laws_apart,
    ratio_law,
)

COLUMNS = {
    "contrasts": {
        "kind": "metrics of the same models and documents; datasets of the same models; or families on a dataset",
        "on": "what both share",
        "a": "the one side",
        "b": "the other",
        "alpha_a": "exponent of a",
        "alpha_b": "exponent of b",
        "difference": "alpha_a - alpha_b, from the law of the ratio (families: from two laws over the same documents)",
        "low": "lower end of its interval",
        "high": "upper end",
        "p_different": "of alpha_a = alpha_b",
        "p_corrected": "the same, corrected for the number of contrasts of its kind (Holm)",
        "margin": "difference below which exponents count as the same",
        "p_equivalent": "of a difference at or beyond the margin (two one-sided tests)",
        "verdict": "equivalent, different, both (different, but within the margin) or undecided",
    }
}
_LEGEND = 1.4  # inches


@dataclass(frozen=True)
class Measured:
    """The values of one family on one dataset, and its laws by metric."""

    family: Family
    values: LawValues
    laws: dict[str, PowerLawFit]


@dataclass(frozen=True)
class Pair:
    """Two sides, what they share, and the difference of their exponents."""

    kind: str
    on: str
    a: str
    b: str
    law_a: PowerLawFit
    law_b: PowerLawFit
    difference: float
    spread: Spread


@dataclass(kw_only=True)
class Contrasts(Analyzer):
    """Whether exponents are the same: CE against RBP_k, k against k', family against family, dataset against dataset.

    Attributes:
        ks: the k whose RBP_k are compared, each with CE and with each other.
        shown: the metric in which families and datasets are compared: 0 for CE, else k.
        margin: exponents that differ by less than this share of the larger count as the same.
        level: nominal coverage of the intervals; tests have size 1 - level.
        replicates: document bootstraps, drawn jointly for all sizes and metrics.

    """

    name: ClassVar[str] = "contrasts"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    shown: int = 1
    margin: float = 0.1
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Compare whatever has laws: families x datasets of at least 3 sizes."""
        if self.margin <= 0 or self.shown not in {0, *self.ks}:
            raise BadInput(
                f"analyzer.margin must be above 0 and analyzer.shown 0 or one of {self.ks}; "
                f"got margin={self.margin} shown={self.shown}"
            )
        report, measured = Report(summary="contrasts"), list[Measured]()

        def load(family: Family, run_id: str) -> DocumentCounts:
            family.require_ranks()
            return runs.document_counts(run_id, [k for k in self.ks if k <= family.vocab_size])

        for family, counts in read_families(runs, load, report.notes, least=3):
            values = law_values(counts, replicates=self.replicates)
            laws = {m: law for m in values.metrics if (law := values.fit(m, family.s, level=self.level))}
            measured.append(Measured(family, values, laws))
        pairs = [*self._metrics(measured), *self._datasets(measured), *self._families(measured)]
        if not pairs:
            raise report.nothing_found("nothing to compare")
        margins = [self.margin * max(p.law_a.alpha, p.law_b.alpha, 1e-9) for p in pairs]
        tested = [
            contrast(p.difference, p.spread, margin=margin, level=self.level)
            for p, margin in zip(pairs, margins, strict=True)
        ]
        corrected = np.empty(len(pairs))
        for kind in {p.kind for p in pairs}:
            places = [i for i, p in enumerate(pairs) if p.kind == kind]
            corrected[places] = holm([tested[i].p_different for i in places])
        rows = [_row(p, t, float(c)) for p, t, c in zip(pairs, tested, corrected, strict=True)]
        report.add_table("contrasts", rows, COLUMNS["contrasts"])
        report.notes[:0] = self._sentences(rows)
        report.headline = report.notes[0].rstrip(".")
        for row in rows:
            on = "/".join(map(metric_part, row["on"].split(", ")))
            where = f"{metric_part(row['a'])} - {metric_part(row['b'])}/{on}"
            report.metrics[f"alpha_difference/{where}"] = float(row["difference"])
        for kind in dict.fromkeys(p.kind for p in pairs):
            mine = [(p, t) for p, t in zip(pairs, tested, strict=True) if p.kind == kind]
            report.drawings[f"forest_{kind}"] = Drawing(
                _forest(mine),
                f"Exponent of a minus that of b, with {self.level:.0%} intervals. Grey: differences within the margin.",
            )
        return report

    def _metrics(self, measured: list[Measured]) -> Iterator[Pair]:
        for one in measured:
            for a, b in combinations(one.laws, 2):
                (y_a, draws_a), (y_b, draws_b) = one.values.of(b), one.values.of(a)  # RBP_k - CE, larger k - smaller k
                law = ratio_law(one.family.s, y_a, y_b, draws_a, draws_b, level=self.level)
                if law:
                    sides = metric_label(b), metric_label(a)
                    yield Pair("metrics", str(one.family), *sides, one.laws[b], one.laws[a], law.alpha, law.spread)

    def _datasets(self, measured: list[Measured]) -> Iterator[Pair]:
        metric = self._shown
        for one, two in combinations([m for m in measured if metric in m.laws], 2):
            if one.family.name != two.family.name or not np.array_equal(one.family.s, two.family.s):
                continue
            (y_a, draws_a), (y_b, draws_b) = one.values.of(metric), two.values.of(metric)
            # Other texts are drawn independently, though corpora of equally many documents share their draws.
            law = ratio_law(one.family.s, y_a, y_b, draws_a, np.roll(draws_b, 1, axis=1), level=self.level)
            if law:
                on = f"{one.family.name}, {metric_label(metric)}"
                names = one.family.dataset, two.family.dataset
                yield Pair("datasets", on, *names, one.laws[metric], two.laws[metric], law.alpha, law.spread)

    def _families(self, measured: list[Measured]) -> Iterator[Pair]:
        metric = self._shown
        for one, two in combinations([m for m in measured if metric in m.laws], 2):
            if one.family.dataset != two.family.dataset:
                continue
            same_texts = one.family.shares_texts(two.family)
            sides = ((one.family.s, one.values), (two.family.s, two.values))
            found = laws_apart(*sides, metric, same_texts=same_texts, level=self.level)
            if found:
                on, names = f"{one.family.dataset}, {metric_label(metric)}", (one.family.name, two.family.name)
                yield Pair("families", on, *names, found.a, found.b, found.alpha, found.alpha_spread)

    @property
    def _shown(self) -> str:
        return CE if self.shown == 0 else rbp_name(self.shown)

    def _sentences(self, rows: list[dict[str, Any]]) -> Iterator[str]:
        margin = f"{self.margin:z.0%} of the larger exponent"
        found = [r for r in rows if r["kind"] == "metrics"]
        for a, b in dict.fromkeys((r["a"], r["b"]) for r in found):
            yield f"{a} against {b}: {_counts([r for r in found if (r['a'], r['b']) == (a, b)], margin)}"
        for kind, shared in (("datasets", "the same models"), ("families", "the same dataset")):
            mine = [r for r in rows if r["kind"] == kind]
            if mine:
                yield f"Between {kind}, for {shared}: {_counts(mine, margin)}"


def _counts(rows: list[dict[str, Any]], margin: str) -> str:
    def of(*verdicts: str) -> int:
        return sum(r["verdict"] in verdicts for r in rows)

    same, different = of("equivalent", "different, but within the margin"), of("different")
    said = {
        f"equivalent (within {margin})": same,
        "different": different,
        "undecided": of("undecided"),
    }
    found = {word: number for word, number in said.items() if number}
    every = "both" if len(rows) == 2 else f"all {len(rows)}"
    if len(rows) == 1:
        text = f"the one pair of exponents is {next(iter(found))}"
    elif len(found) == 1:
        text = f"{every} pairs of exponents are {next(iter(found))}"
    else:
        each = [f"{number} {be(number)} {word}" for word, number in found.items()]
        text = f"of {counted(len(rows), 'pair')} of exponents, {listed(each)}"
    return f"{text}; the difference is {spread([r['difference'] for r in rows], '+.3f', [r['on'] for r in rows])}."


def _row(pair: Pair, tested: Contrast, corrected: float) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": pair.kind, "on": pair.on, "a": pair.a, "b": pair.b}
    row |= {"alpha_a": pair.law_a.alpha, "alpha_b": pair.law_b.alpha, "difference": tested.difference}
    row |= {"low": tested.low, "high": tested.high, "p_different": tested.p_different, "p_corrected": corrected}
    return row | {"margin": tested.margin, "p_equivalent": tested.p_equivalent, "verdict": tested.verdict}


def _forest(pairs: list[tuple[Pair, Contrast]]) -> Figure:
    """One row per contrast, one panel per pair of sides (metrics) or per shared thing (datasets, families)."""
    metrics = pairs[0][0].kind == "metrics"

    def panel(p: Pair) -> str:
        return f"{p.a} − {p.b}" if metrics else p.on

    titles = list(dict.fromkeys(panel(p) for p, _ in pairs))
    labels = list(dict.fromkeys(p.on if metrics else f"{p.a} − {p.b}" for p, _ in pairs))
    with style():
        figure, axes = panel_per(titles, height=max(2.2, 0.28 * len(labels) + 1.2), legend=_LEGEND)
        for ax, title in zip(axes, titles, strict=True):
            for p, t in (pair for pair in pairs if panel(pair[0]) == title):
                at = labels.index(p.on if metrics else f"{p.a} − {p.b}")
                colour, marker = colour_and_marker(at)
                ax.barh(at, 2 * t.margin, left=-t.margin, height=0.8, color="#d9d9d9", lw=0)
                bars = [[max(t.difference - t.low, 0)], [max(t.high - t.difference, 0)]]
                ax.errorbar(t.difference, at, xerr=bars, fmt=marker, ms=4.5, color=colour, label=labels[at])
            ax.use_sticky_edges = False  # so that the grey bars' ends are seen
            ax.axvline(0, lw=0.9, color="#57606a")
            ax.set(xlabel="difference of exponents", yticks=[], ylim=(len(labels) - 0.4, -0.6))
            ax.set_ylabel("contrast")
        legend_of_all(figure, legend=_LEGEND)
        return figure
