"""Which tokens follow the law: exponents by class of token, and what makes the exponent grow with k.

Classes are kinds (word, identifier, number, punctuation, white space), whether a token begins a word, how frequent it
is in the corpus, and the dataset's field. All models of a family read the same tokens, so a class holds the same ones
for every size. The exponent of RBP_k is a weighted sum of those of the classes; between two k it changes because the
misses lie in other classes (mix) or because the classes' own exponents change (within).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure

from rbptrack.analysis import (
    CE,
    Analyzer,
    BadInput,
    Drawing,
    Family,
    RankTable,
    Report,
    Runs,
    family_legends,
    family_styles,
    grid_of,
    interval_columns,
    metric_label,
    rbp_name,
    read_families,
    shared_columns,
    spread,
    style,
)
from rbptrack.stats import (
    KINDS,
    ClassCounts,
    FloatArray,
    IntArray,
    PowerLawFit,
    class_weights,
    document_weights,
    fit_law,
    frequency_bins,
    kind_of,
    line_draws,
    mix_and_within,
    percentiles,
    starts_word,
)

BY = {
    "kind": "kind of token",
    "word": "place in the word",
    "frequency": "share of the corpus",
    "field": "field of the dataset",
}
SCATTER, DOCUMENTS = "scatter between models and documents", "documents resampled: these models"
COLUMNS = {
    "summary": {
        **shared_columns("dataset", "family"),
        "by": "how tokens are classed",
        "class": "the class",
        "share": "of the scored tokens",
        "misses": "share of the tokens with R > k, at the largest size",
        "alpha": "exponent of RBP_k in the class, and its interval",
        "gain": "share of the growth of RBP_k from the smallest to the largest size",
    },
    "laws": {
        **shared_columns("dataset", "family"),
        "by": "how tokens are classed",
        "class": "the class",
        "metric": "CE or RBP_k",
        "share": "of the scored tokens",
        **interval_columns("alpha", "exponent in the class", SCATTER),
        "r2": "R^2 of the law on logarithms",
        "smallest": "CE or RBP_k at the smallest size",
        "largest": "at the largest",
        "gain": "share of the growth of RBP_k (fall of CE) from the smallest to the largest size",
    },
    "exponents": {
        **shared_columns("dataset", "family"),
        "by": "how tokens are classed",
        "k": "the larger k",
        "from_k": "the smaller k",
        "change": "alpha at the larger k less alpha at the smaller, as weighted sums over classes",
        **interval_columns("mix", "part of it because misses lie in other classes", DOCUMENTS),
        **interval_columns("within", "part of it because the classes' exponents change", DOCUMENTS),
        "covered": "share of the weights that lie in classes with a law at both k (the rest is left out)",
    },
}


@dataclass(frozen=True)
class Classed:
    """One model's counts, by each way of classing tokens."""

    by: dict[str, ClassCounts]

    def __add__(self, other: "Classed") -> "Classed":
        return Classed({name: counts + other.by[name] for name, counts in self.by.items()})


@dataclass(frozen=True)
class Way:
    """A way of classing tokens.

    Attributes:
        name: of the way, as in `BY`.
        column: of the rank table that tells the class.
        place: the class of each value of that column.
        names: of the classes.

    """

    name: str
    column: str
    place: IntArray
    names: Sequence[str]


@dataclass(kw_only=True)
class Tokens(Analyzer):
    """Which tokens follow the law: exponents by kind, place in the word, frequency and field; what drives alpha(k).

    Attributes:
        ks: the k.
        shown: the k of the sentences and figures.
        level: nominal coverage of the intervals.
        replicates: document bootstraps, drawn jointly for all sizes of a family.

    """

    name: ClassVar[str] = "tokens"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    shown: int = 10
    level: float = 0.95
    replicates: int = 500

    def analyze(self, runs: Runs) -> Report:
        """Class the tokens of every measurement; laws need at least 3 sizes."""
        if self.shown not in self.ks:
            raise BadInput(f"analyzer.shown={self.shown}: expected one of analyzer.ks={self.ks}")
        report, without = Report(summary="summary"), dict[str, None]()

        def load(family: Family, run_id: str) -> Classed:
            texts = runs.vocabulary(run_id)
            if not texts:
                without[str(family)] = None
            ks = [k for k in sorted(self.ks) if k < family.vocab_size]
            ways = list(_ways(runs.rank_pieces(run_id), texts))
            parts: dict[str, list[ClassCounts]] = {way.name: [] for way in ways}
            for piece in runs.rank_pieces(run_id):
                for way in ways:
                    member = way.place[piece.column(way.column)]
                    parts[way.name].append(ClassCounts.of(piece, member, way.names, ks))
            return Classed({by: ClassCounts.concatenate(counted) for by, counted in parts.items()})

        laws, exponents, drawn = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
        for family, loaded in read_families(runs, load, report.notes, least=3):
            ways = [by for by in loaded[0].by if all(by in one.by for one in loaded)]
            for by in ways:
                found = self._of_classes(family, by, [one.by[by] for one in loaded])
                laws += found[0]
                exponents += found[1]
            report.notes += self._sentences(family, laws, exponents)
        if not laws:
            raise report.nothing_found("no measurement with ranks of 3 sizes")
        if without:
            which = ", ".join(without) if len(without) <= 3 else f"{len(without)} families on their datasets"
            report.notes.append(
                f"{which}: the texts of tokens were not kept (the Python API, an import, "
                "an earlier version): kinds and places in words are not told."
            )
        drawn = [row for row in laws if row["metric"] == self._label]
        report.add_table("summary", map(_in_words, drawn), COLUMNS["summary"])
        report.add_table("laws", laws, COLUMNS["laws"])
        report.add_table("exponents", exponents, COLUMNS["exponents"])
        report.add_metrics("alpha_of_class/{family}/{dataset}/{metric}/{by}/{class}", laws, "alpha")
        report.headline = _headline(drawn, exponents)
        report.drawings["exponents_by_class"] = Drawing(
            _draw(drawn, self._label), f"Exponent of {self._label} in each class, with {self.level:z.0%} intervals."
        )
        return report

    @property
    def _label(self) -> str:
        return metric_label(rbp_name(self.shown))

    def _of_classes(
        self, family: Family, by: str, counts: Sequence[ClassCounts]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The laws of every class, and what changes the exponent between the k."""
        weights = document_weights(len(counts[0].tokens), replicates=self.replicates)
        once = np.stack([one.values(np.ones((1, weights.shape[1])))[0] for one in counts])  # (m, classes, metrics)
        draws = np.stack([one.values(weights) for one in counts])  # (m, replicates, classes, metrics)
        share = counts[-1].tokens.sum(axis=0) / counts[-1].tokens.sum()
        metrics = [CE, *map(rbp_name, counts[0].ks)]
        rows, laws = [], dict[tuple[int, int], PowerLawFit]()
        for j, metric in enumerate(metrics):
            raw = once[:, :, j] if metric == CE else np.exp(-once[:, :, j])
            grown = share * (raw[-1] - raw[0])
            whole = float(np.nansum(grown))
            for c, name in enumerate(counts[0].names):
                law = fit_law(family.s, once[:, c, j], draws[:, :, c, j], level=self.level) if share[c] else None
                if law is None:
                    continue
                laws[c, j] = law
                row = family.keys | {"by": BY[by], "class": name, "metric": metric_label(metric), "share": share[c]}
                row |= {"alpha": law.alpha, "alpha_low": law.low, "alpha_high": law.high, "r2": law.r2}
                row |= {
                    "smallest": raw[0, c],
                    "largest": raw[-1, c],
                    "gain": float(grown[c] / whole) if whole else np.nan,
                }
                rows.append(row)
        found = self._exponents(family, by, draws, share, laws, counts[0].ks)
        return rows, list(found)

    def _exponents(
        self,
        family: Family,
        by: str,
        draws: FloatArray,
        share: FloatArray,
        laws: Mapping[tuple[int, int], PowerLawFit],
        ks: Sequence[int],
    ) -> Iterator[dict[str, Any]]:
        """Mix and within of alpha between neighbouring k, at the middle of the sizes."""
        at = float(np.exp(np.log(family.s).mean()))
        for j in range(1, len(ks)):
            there = [c for c in range(len(share)) if (c, j) in laws and (c, j + 1) in laws]
            if len(there) < 2:
                continue
            points, drawn, covered = [], [], 1.0
            for metric in (j, j + 1):
                of = [laws[c, metric] for c in there]
                y = np.array([float(law.predict(at)) for law in of])
                lines = [line_draws(family.s, draws[:, :, c, metric], at=at) for c in there]
                y_draws = np.exp(np.stack([level for level, _ in lines], axis=1))
                v, v_draws = class_weights(share[there], y), class_weights(share[there], y_draws)
                covered = min(covered, float(share[there].sum()))
                points.append((v / v.sum(), np.array([law.alpha for law in of])))
                alphas = np.stack([alpha for _, alpha in lines], axis=1)
                drawn.append((v_draws / v_draws.sum(axis=1, keepdims=True), alphas))
            parts, part_draws = mix_and_within(*points), mix_and_within(*drawn)
            row = family.keys | {"by": BY[by], "k": ks[j], "from_k": ks[j - 1], "covered": covered}
            row["change"] = float(sum(part.sum() for part in parts))
            for name, part, several in zip(("mix", "within"), parts, part_draws, strict=True):
                low, high = percentiles(several.sum(axis=1), level=self.level)
                row |= {name: float(part.sum()), f"{name}_low": low, f"{name}_high": high}
            yield row

    def _sentences(self, family: Family, laws: list[dict[str, Any]], exponents: list[dict[str, Any]]) -> Iterator[str]:
        """Which classes have the largest and smallest exponent, and what makes alpha grow with k."""
        keys = family.keys
        for by in dict.fromkeys(row["by"] for row in laws):
            mine = [
                row for row in laws if row["by"] == by and row["metric"] == self._label and keys.items() <= row.items()
            ]
            if len(mine) < 2:
                yield f"{family}, by {by}: all tokens that have a law are in one class."
                continue
            low, high = min(mine, key=lambda r: float(r["alpha"])), max(mine, key=lambda r: float(r["alpha"]))
            sure = low["alpha_high"] < high["alpha_low"]
            most = max(mine, key=lambda r: float(r["gain"]))
            text = (
                f"{family}, by {by}: alpha of {self._label} is {_alpha(low)} in '{low['class']}' and {_alpha(high)} "
                f"in '{high['class']}'{'' if sure else ' (intervals overlap)'}; '{most['class']}' "
                f"({most['share']:z.0%} of the tokens) accounts for {most['gain']:z.0%} of the gain."
            )
            found = [row for row in exponents if row["by"] == by and keys.items() <= row.items()]
            if found:
                change, mix, within = (sum(row[name] for row in found) for name in ("change", "mix", "within"))
                text += (
                    f" From k = {found[0]['from_k']} to {found[-1]['k']} alpha changes by {change:+z.3f}: {mix:+z.3f} "
                    f"because misses lie in other classes, {within:+z.3f} within classes."
                )
            yield text


def _headline(rows: list[dict[str, Any]], exponents: list[dict[str, Any]]) -> str:
    """The class with the largest share of the gain, and which part of alpha's change with k lies within classes."""
    most = max(rows, key=lambda row: float(row["gain"]))
    alphas = [float(row["alpha"]) for row in rows]
    text = f"alpha of {most['metric']} in each class of tokens is {spread(alphas, '.2f')}"
    change, within = (sum(float(row[name]) for row in exponents) for name in ("change", "within"))
    if exponents and abs(change) > 1e-6:
        text += f"; of its change with k, {within / change:z.1%} lies within classes and "
        text += f"{1 - within / change:z.1%} comes from which classes the misses are in"
    return text


def _ways(pieces: Iterable[RankTable], texts: Mapping[int, str]) -> Iterator[Way]:
    """Each way of classing the tokens of a rank table that gives more than one class."""
    occurrences: dict[str, list[IntArray]] = {"token": [], "field": []}
    unknown = False
    for piece in pieces:
        unknown |= bool(len(piece)) and int(piece.column("token").min()) < 0
        for column, counts in occurrences.items():
            counts.append(np.bincount(np.maximum(piece.column(column), 0)))
    times, fields = (_added(counts) for counts in occurrences.values())
    ids = np.flatnonzero(times).tolist()
    last_field = len(fields) - 1
    known = bool(ids) and not unknown
    if known and texts:
        kind, start = np.full(len(times), len(KINDS) - 1), np.ones(len(times), dtype=np.int64)
        for i in ids:
            text = texts.get(i, "")
            kind[i], start[i] = kind_of(text), 0 if starts_word(text) else 1
        yield Way("kind", "token", kind, KINDS)
        yield Way("word", "token", start, ("begins a word", "inside a word"))
    if known:
        yield Way("frequency", "token", *frequency_bins(times))
    if last_field > 0:
        yield Way("field", "field", np.arange(last_field + 1), [f"field {i}" for i in range(last_field + 1)])


def _added(parts: Sequence[IntArray]) -> IntArray:
    """Counts of 0, 1, ... of several pieces, each as long as its largest value asks, added up."""
    total = np.zeros(max(map(len, parts), default=0), dtype=np.int64)
    for counts in parts:
        total[: len(counts)] += counts
    return total


def _alpha(row: Mapping[str, Any]) -> str:
    return f"{row['alpha']:.3f} ({row['alpha_low']:.3f} to {row['alpha_high']:.3f})"


def _in_words(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row for the terminal: texts, rounded."""
    texts = {"share": f"{row['share']:z.1%}", "misses": f"{1 - row['largest']:z.1%}", "alpha": _alpha(row)}
    return {n: row[n] for n in ("dataset", "family", "by", "class")} | texts | {"gain": f"{row['gain']:z.0%}"}


def _draw(rows: list[dict[str, Any]], label: str) -> Figure:
    """A panel per dataset and way of classing, the classes below each other, families as colours."""
    panels = list(dict.fromkeys(f"{row['dataset']}, {row['by']}" for row in rows))
    families = family_styles(row["family"] for row in rows)
    apart = min(0.15, 0.9 / len(families))
    with style():
        figure, axes = grid_of(panels, ["alpha"], height=3.0, left=1.35)
        for panel in panels:
            ax = axes[panel, "alpha"]
            mine = [row for row in rows if f"{row['dataset']}, {row['by']}" == panel]
            names = list(dict.fromkeys(row["class"] for row in mine))
            for number, one in enumerate(families):
                points = [row for row in mine if row["family"] == one.name]
                middle = [row["alpha"] for row in points]
                places = [names.index(row["class"]) + apart * (number - (len(families) - 1) / 2) for row in points]
                bars = [[row["alpha"] - row["alpha_low"], row["alpha_high"] - row["alpha"]] for row in points]
                drawn = {"fmt": one.marker, "ms": 5, "capsize": 2, "color": one.colour, "label": one.name}
                ax.errorbar(middle, places, xerr=np.array(bars).reshape(-1, 2).T, **drawn)
            ax.set_yticks(range(len(names)), names)
            ax.axvline(0, lw=0.8, color="0.5")
            ax.set(title=panel, xlabel=f"α of {label}", ylim=(len(names) - 0.5, -0.5))
            ax.set_ylabel("class of token")
        if len(families) > 1:
            family_legends(figure, list(axes.values()), (one.name for one in families), loc="best", fontsize=8)
        return figure
