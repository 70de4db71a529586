"""Which tokens follow the law: exponents by class and by position, and what makes the exponent grow with k.

Classes are kinds (word, identifier, number, punctuation, white space), whether a token begins a word, how frequent it
is in the corpus, and the dataset's field. All models of a family read the same tokens, so a class holds the same ones
for every size. The exponent of RBP_k is a weighted sum of those of the classes; between two k it changes because the
misses lie in other classes (mix) or because the classes' own exponents change (within). Positions in the text are
classes, too: bins that double in width, in the documents that reach the last one, early against late.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Annotated, Any, ClassVar

import numpy as np

from rbptrack.analysis import Analyzer, BadInput, Drawing, Report, Runs, rbp_name
from rbptrack.analysis.bar_figures import Bar, bar_panels
from rbptrack.analysis.families import Family, Pooled, few_sizes, read_families
from rbptrack.analysis.findings import Finding, around, corrected, sure
from rbptrack.analysis.rows import (
    R2,
    Column,
    Corrected,
    Exponent,
    NonEmbedding,
    OfFamily,
    OfMetric,
    P,
    columns_of,
    exponent,
)
from rbptrack.analysis.token_figures import draw_alpha_by_position, draw_positions
from rbptrack.ranks import CE, FloatArray, metric_label
from rbptrack.stats.bootstrap import document_weights
from rbptrack.stats.contrasts import ratio_law
from rbptrack.stats.intervals import Interval, percentiles
from rbptrack.stats.position import PositionCurves, PositionSums, position_curves
from rbptrack.stats.power_law import PowerLawFit
from rbptrack.stats.size_laws import fit_law
from rbptrack.stats.token_classes import BY, ClassCounts, change_of_exponent, ways_of_classing

Columns = dict[str, str | Column]
_RESAMPLED = "lower end of its interval (documents resampled: these models)"
_CLASS: Columns = {**columns_of(OfFamily), "by": "how tokens are classed", "class": "the class"}
_ALPHA: Columns = {
    "alpha": Column("exponent in the class (interval: scatter between models and documents)", title="α", form=".3f"),
    "alpha_low": "lower end of its interval",
    "alpha_high": "upper end",
}
_GAIN = Column("share of the growth of RBP_k (fall of CE) from the smallest to the largest size", form=".0%")
LAWS: Columns = _CLASS | {
    "metric": "CE or RBP_k",
    "share": Column("of the scored tokens", form=".1%"),
    **_ALPHA,
    "r2": "R^2 of the law on logarithms",
    "smallest": "CE or RBP_k at the smallest size",
    "largest": "at the largest",
    "gain": _GAIN,
}
SUMMARY: Columns = {name: LAWS[name] for name in (*_CLASS, "share", *_ALPHA, "gain")} | {
    "misses": Column("share of the tokens with R > k, at the largest size", form=".1%")
}
CONTRASTS: Columns = _CLASS | {
    "than": "the class that it is compared with",
    "difference": Column("exponent less that of the other class (same models and documents: paired)", form="+.3f"),
    "low": "lower end of its interval",
    "high": "upper end",
    "p": Column("two-sided p", form=".3g"),
    "p_corrected": Column("p, corrected over the pairs of the way of classing (Holm)", "p, corrected", form=".3g"),
}


@dataclass(kw_only=True)
class ExponentRow(OfFamily):
    """What changes the exponent from one k to the next."""

    by: Annotated[str, Column("how tokens are classed")]
    k: Annotated[int, Column("the larger k")]
    from_k: Annotated[int, Column("the smaller k")]
    change: Annotated[float, Column("alpha at the larger k less alpha at the smaller, as weighted sums over classes")]
    mix: Annotated[Interval, Column("part of it because misses lie in other classes", low=_RESAMPLED)]
    within: Annotated[Interval, Column("part of it because the classes' exponents change", low=_RESAMPLED)]
    covered: Annotated[float, Column("share of the weights in classes with a law at both k (the rest is left out)")]


@dataclass(kw_only=True)
class EarlyAndLateRow(OfMetric):
    """The law early against late, in the same models and documents."""

    early: Annotated[str, Column("positions")]
    late: Annotated[str, Column("positions")]
    y_early: Annotated[float, Column("CE or -ln RBP_k of the largest size, early")]
    y_late: Annotated[float, Column("late")]
    alpha_early: Annotated[float, Column("exponent of the law in size, early", title="α early", form=".3f")]
    alpha_late: Annotated[float, Column("late", title="α late", form=".3f")]
    difference: Annotated[Interval, Column("alpha late - alpha early (paired)", form="+.3f", bare=True)]
    p: P
    p_corrected: Corrected = np.nan


@dataclass(kw_only=True)
class OfBin(OfMetric):
    """Tokens of a bin of positions."""

    first: Annotated[int, Column("first position of the bin (tokens before it in its document)")]
    last: Annotated[int, Column("last position of the bin")]
    tokens: Annotated[int, Column("scored tokens in the bin")]


@dataclass(kw_only=True)
class BinLawRow(OfBin):
    """The law in a bin."""

    alpha: Exponent
    r2: R2


@dataclass(kw_only=True)
class CurveRow(OfBin):
    """One size in a bin."""

    size: Annotated[str, Column("the size as published")]
    S: NonEmbedding
    y: Annotated[float, Column("CE in nats, or -ln RBP_k")]
    se: Annotated[float, Column("standard error (document bootstrap)")]


@dataclass(frozen=True)
class Classed(Pooled):
    """One model's counts, by each way of classing tokens, and by position."""

    by: dict[str, ClassCounts]
    positions: PositionSums


@dataclass(kw_only=True)
class Tokens(Analyzer):
    """Which tokens follow the law: exponents by kind, place in the word, frequency, field and position.

    Where sequences slide or are packed, a position beyond the sequence length has less context than its number says.

    Attributes:
        ks: the k.
        shown: the k of the sentences and figures.
        share: the last bin of positions is the last one that at least this share of the documents (and 5) reach.
        level: nominal coverage of the intervals; tests have size 1 - level, corrected over all cases (Holm).
        replicates: document bootstraps, drawn jointly for all sizes of a family.

    """

    name: ClassVar[str] = "tokens"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    shown: int = 10
    share: float = 0.5
    level: float = 0.95
    replicates: int = 500

    def analyze(self, runs: Runs) -> Report:
        """Class the tokens of every measurement; laws need at least 3 sizes."""
        if self.shown not in self.ks:
            raise BadInput(f"analyzer.shown={self.shown}: expected one of analyzer.ks={self.ks}")
        report, without = Report(), dict[str, None]()

        def load(family: Family, run_id: str) -> Classed:
            texts = runs.vocabulary(run_id)
            if not texts:
                without[str(family)] = None
            ks = [k for k in sorted(self.ks) if k < family.vocab_size]
            ways = list(ways_of_classing(runs.rank_pieces(run_id), texts))
            parts: dict[str, list[ClassCounts]] = {way.name: [] for way in ways}
            positions = []
            for piece in runs.rank_pieces(run_id):
                positions.append(PositionSums.of(piece, self.ks))
                for way in ways:
                    member = way.place[piece.column(way.column)]
                    parts[way.name].append(ClassCounts.of(piece, member, way.names, ks))
            by = {name: ClassCounts.concatenate(counted) for name, counted in parts.items()}
            return Classed(by, PositionSums.concatenate(positions))

        everything = list(read_families(runs, load, report.notes))
        if not everything:
            raise report.nothing_found("no measurement with ranks")
        self._ask_classes(report, everything)
        self._ask_positions(report, everything)
        if not report.tables:
            raise report.nothing_found("no measurement with ranks of 3 sizes, or with positions")
        report.summary = "summary" if "summary" in report.tables else next(iter(report.tables))
        if without:
            which = ", ".join(without) if len(without) <= 3 else f"{len(without)} families on their datasets"
            report.notes.append(
                f"{which}: the texts of tokens were not kept (the Python API, an import, "
                "an earlier version): kinds and places in words are not told."
            )
        return report

    @property
    def _label(self) -> str:
        return metric_label(rbp_name(self.shown))

    def _ask_classes(self, report: Report, everything: Sequence[tuple[Family, list[Classed]]]) -> None:
        """Ask which classes have other exponents than others, and what makes the exponent grow with k."""
        laws, exponents, pairs = list[dict[str, Any]](), list[ExponentRow](), list[Finding]()
        for family, loaded in everything:
            if len(family.s) < 3:
                report.notes.append(few_sizes(family))
                continue
            for by in (by for by in loaded[0].by if all(by in one.by for one in loaded)):
                classes = self._of_classes(family, by, [one.by[by] for one in loaded])
                laws, exponents, pairs = laws + classes[0], exponents + classes[1], pairs + classes[2]
        drawn = [row for row in laws if row["metric"] == self._label]
        groups = dict.fromkeys((row["dataset"], row["family"], row["by"]) for row in drawn)
        report.findings += corrected((self._summary(key, drawn, exponents, pairs) for key in groups), sure(self.level))
        short = [{name: row.get(name, 1 - row["largest"]) for name in SUMMARY} for row in drawn]
        report.add_table("summary", short, SUMMARY)
        report.add_table("laws", laws, LAWS)
        numbers = {"difference": "estimate", "low": "low", "high": "high", "p": "p", "p_corrected": "p_corrected"}
        rows = [{**one.case, **{column: getattr(one, name) for column, name in numbers.items()}} for one in pairs]
        report.add_table("contrasts", rows, CONTRASTS)
        report.add_rows("exponents", exponents)
        report.add_metrics("alpha_of_class/{family}/{dataset}/{metric}/{by}/{class}", laws, "alpha")
        if drawn:
            caption = f"Exponent of {self._label} in each class, with {self.level:z.0%} intervals."
            bars = [Bar(f"{row['dataset']}, {row['by']}", row["class"], row["family"], _interval(row)) for row in drawn]
            figure = bar_panels(bars, xlabel=f"α of {self._label}", ylabel="class of token")
            report.drawings["exponents_by_class"] = Drawing(figure, caption)

    def _of_classes(
        self, family: Family, by: str, counts: Sequence[ClassCounts]
    ) -> tuple[list[dict[str, Any]], list[ExponentRow], list[Finding]]:
        """The laws of every class, what changes the exponent between the k, and every two classes at the k shown."""
        weights = document_weights(len(counts[0].tokens), replicates=self.replicates)
        once = np.stack([one.values(np.ones((1, weights.shape[1])))[0] for one in counts])  # (m, classes, metrics)
        draws = np.stack([one.values(weights) for one in counts])  # (m, replicates, classes, metrics)
        share, names = counts[-1].tokens.sum(axis=0) / counts[-1].tokens.sum(), counts[0].names
        metrics = [CE, *map(rbp_name, counts[0].ks)]
        rows, laws, pairs = [], dict[tuple[int, int], PowerLawFit](), list[Finding]()
        for j, metric in enumerate(metrics):
            raw = once[:, :, j] if metric == CE else np.exp(-once[:, :, j])
            grown = share * (raw[-1] - raw[0])
            whole = float(np.nansum(grown))
            for c, name in enumerate(names):
                law = fit_law(family.s, once[:, c, j], draws[:, :, c, j], level=self.level) if share[c] else None
                if law is None:
                    continue
                laws[c, j] = law
                row = family.keys | {"by": BY[by], "class": name, "metric": metric_label(metric), "share": share[c]}
                row |= exponent(law).columns("alpha") | {"r2": law.r2, "smallest": raw[0, c], "largest": raw[-1, c]}
                rows.append(row | {"gain": float(grown[c] / whole) if whole else np.nan})
            there = [c for c in range(len(names)) if (c, j) in laws] if metric == rbp_name(self.shown) else []
            for one, other in combinations(there, 2):
                y, drawn = (once[:, one, j], once[:, other, j]), (draws[:, :, one, j], draws[:, :, other, j])
                if apart := ratio_law(family.s, *y, *drawn, level=self.level):
                    case = family.keys | {"by": BY[by], "class": names[one], "than": names[other]}
                    p, number = apart.spread.p(apart.alpha), around(exponent(apart))
                    pairs.append(Finding(question="classes differ", case=case, p=p, **number))
        return rows, list(self._exponents(family, by, draws, share, laws, counts[0].ks)), corrected(pairs)

    def _exponents(
        self,
        family: Family,
        by: str,
        draws: FloatArray,
        share: FloatArray,
        laws: Mapping[tuple[int, int], PowerLawFit],
        ks: Sequence[int],
    ) -> Iterator[ExponentRow]:
        """Mix and within of alpha between neighbouring k, at the middle of the sizes."""
        for j in range(1, len(ks)):
            there = [c for c in range(len(share)) if (c, j) in laws and (c, j + 1) in laws]
            if len(there) < 2:
                continue
            both = [([laws[c, m] for c in there], [draws[:, :, c, m] for c in there]) for m in (j, j + 1)]
            parts, drawn = change_of_exponent(family.s, share[there], *both)
            cells: dict[str, Any] = {"change": float(parts.sum()), "covered": float(share[there].sum())}
            for name, part, several in zip(("mix", "within"), parts, drawn.T, strict=True):
                cells[name] = Interval(float(part), *percentiles(several, level=self.level))
            yield ExponentRow(**family.keys, by=BY[by], k=ks[j], from_k=ks[j - 1], **cells)

    def _summary(
        self, key: tuple[str, str, str], rows: list[dict[str, Any]], exponents: list[ExponentRow], pairs: list[Finding]
    ) -> Finding:
        """What is told of one way of classing: the smallest and the largest exponent, and where the gain lies."""
        mine = [row for row in rows if (row["dataset"], row["family"], row["by"]) == key]
        low, high = min(mine, key=lambda r: float(r["alpha"])), max(mine, key=lambda r: float(r["alpha"]))
        p = [one.p_corrected for one in pairs if (one.case["dataset"], one.case["family"], one.case["by"]) == key]
        changes = [row for row in exponents if (row.dataset, row.family, row.by) == key]
        extras: dict[str, Any] = {"metric": self._label, "lowest": low, "highest": high}
        extras |= {"most": max(mine, key=lambda r: float(r["gain"])), "pairs": len(p)}
        extras |= {"change": sum(row.change for row in changes), "within": sum(row.within.value for row in changes)}
        return Finding(
            question="classes of tokens",
            case={"dataset": key[0], "family": key[1], "by": key[2]},
            estimate=high["alpha"] - low["alpha"],
            p=min(p, default=np.nan),
            extras=extras,
        )

    def _ask_positions(self, report: Report, everything: Sequence[tuple[Family, list[Classed]]]) -> None:
        """Ask whether the exponent differs between early and late positions."""
        positions = list[tuple[Family, PositionCurves]]()
        for family, loaded in everything:
            sums = [one.positions for one in loaded]
            curves = position_curves(sums, self.ks, share=self.share, replicates=self.replicates)
            if curves is None:
                report.notes.append(f"{family}: fewer than 5 documents reach a second bin of positions.")
            else:
                positions.append((family, curves))
        if not positions:
            return
        enough = [(family, curves) for family, curves in positions if len(family.s) >= 3]
        rows = [row for family, curves in enough for row in self._early_and_late(family, curves)]
        read = {str(family): (curves.documents, curves.every_document) for family, curves in positions}
        asked = corrected((_late(row, read) for row in rows), sure(self.level))
        for row, one in zip(rows, asked, strict=True):
            row.p_corrected = one.p_corrected
        report.findings += asked
        laws = [row for family, curves in enough for row in self._bin_laws(family, curves)]
        report.add_rows("early_and_late", rows)
        report.add_rows("position_laws", laws)
        report.add_rows("position_curves", (row for one in positions for row in _curve_rows(*one)))
        named = [replace(row, metric=row.metric.lower()) for row in rows]
        report.add_metrics("alpha_late_minus_early/{family}/{dataset}/{metric}", named, "difference")
        for metric in (rbp_name(self.shown), CE):
            caption = (
                f"{metric_label(metric)} of the largest (thick) and the smallest model. Bands: two standard errors. "
                "Every bin reads the same documents. Beyond the sequence length a token has less context."
            )
            report.drawings[f"{metric}_by_position"] = Drawing(draw_positions(positions, metric), caption)
        if laws:
            caption = "Exponent of the law in size over the tokens of each bin of positions, with its interval."
            report.drawings["alpha_by_position"] = Drawing(draw_alpha_by_position(laws, self._label), caption)

    def _bin_laws(self, family: Family, curves: PositionCurves) -> Iterator[BinLawRow]:
        for metric in curves.metrics:
            for j, cells in enumerate(_bin_cells(family, curves)):
                if law := curves.in_bin(j).fit(metric, family.s, level=self.level):
                    yield BinLawRow(**family.keys, metric=metric_label(metric), alpha=exponent(law), r2=law.r2, **cells)

    def _early_and_late(self, family: Family, curves: PositionCurves) -> Iterator[EarlyAndLateRow]:
        """The first half of the bins against the last bin, in the same models and documents."""
        half = max(1, len(curves.first) // 2)
        early, late = curves.in_bins(slice(0, half)), curves.in_bins(slice(-1, None))
        spans = [f"{curves.first[i]} to {curves.last[j]}" for i, j in ((0, half - 1), (-1, -1))]
        for metric in curves.metrics:
            law_early, law_late = (one.fit(metric, family.s, level=self.level) for one in (early, late))
            (y_early, draws_early), (y_late, draws_late) = early.of(metric), late.of(metric)
            ratio = ratio_law(family.s, y_late, y_early, draws_late, draws_early, level=self.level)
            if law_early and law_late and ratio:
                yield EarlyAndLateRow(
                    **family.keys, metric=metric_label(metric), early=spans[0], late=spans[1],
                    y_early=y_early[-1], y_late=y_late[-1], alpha_early=law_early.alpha, alpha_late=law_late.alpha,
                    difference=exponent(ratio), p=ratio.spread.p(ratio.alpha),
                )  # fmt: skip


def _interval(row: Mapping[str, Any]) -> Interval:
    return Interval(row["alpha"], row["alpha_low"], row["alpha_high"])


def _late(row: EarlyAndLateRow, read: Mapping[str, tuple[int, int]]) -> Finding:
    extras: Any = {"early": row.early, "late": row.late, "alphas": (row.alpha_early, row.alpha_late)}
    extras |= {"documents": read[f"{row.family} on {row.dataset}"]}
    case = row.case(metric=row.metric.lower())
    return Finding(question="late against early", case=case, p=row.p, extras=extras, **around(row.difference))


def _bin_cells(family: Family, curves: PositionCurves) -> list[dict[str, Any]]:
    tokens = curves.tokens / len(family.run_ids[0])
    cells = zip(curves.first, curves.last, tokens, strict=True)
    return [{"first": int(first), "last": int(last), "tokens": int(n)} for first, last, n in cells]


def _curve_rows(family: Family, curves: PositionCurves) -> Iterator[CurveRow]:
    bins, errors = _bin_cells(family, curves), curves.errors
    for column, metric in enumerate(curves.metrics):
        for i, keys in enumerate(family.size_keys):
            for j, cells in enumerate(bins):
                y, se = float(curves.values[i, j, column]), float(errors[i, j, column])
                yield CurveRow(**keys, metric=metric_label(metric), **cells, y=y, se=se)
