"""Which tokens follow the law: exponents by class and by position, and what makes the exponent grow with k.

Classes are kinds (word, identifier, number, punctuation, white space), whether a token begins a word, how frequent it
is in the corpus, and the dataset's field. All models of a family read the same tokens, so a class holds the same ones
for every size. The exponent of RBP_k is a weighted sum of those of the classes; between two k it changes because the
misses lie in other classes (mix) or because the classes' own exponents change (within). Positions in the text are
classes, too: bins that double in width, in the documents that reach the last one, early against late.

With y = -ln RBP_k, alpha = sum over classes of v_c alpha_c with v_c = w_c RBP_c y_c / (RBP y), w_c the class's share
of the tokens. The split between two k is Kitagawa's, at the middle of the sizes. Classes are compared by the law of
their ratio, over the same models and documents, Holm-corrected. Kinds and word beginnings need the texts of tokens,
which measurements keep beside their ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from rbptrack.analysis import Analyzer, BadInput, Drawing, Report, Runs, rbp_name
from rbptrack.analysis.bar_figures import Bar, bar_panels
from rbptrack.analysis.families import Family, Pooled, few_sizes, read_families
from rbptrack.analysis.findings import around, corrected, sure
from rbptrack.analysis.rows import exponent
from rbptrack.ranks import CE, HEADLINE_KS, FloatArray, metric_label
from rbptrack.stats.bootstrap import document_weights
from rbptrack.stats.contrasts import ratio_law
from rbptrack.stats.intervals import Interval, percentiles
from rbptrack.stats.power_law import PowerLawFit
from rbptrack.stats.size_laws import fit_law

from .classes import BY, ClassCounts, change_of_exponent, ways_of_classing
from .figures import draw_alpha_by_position, draw_positions
from .findings import ClassesDiffer, ClassLaw, ClassPair, LateAgainstEarly
from .position import PositionCurves, PositionSums, position_curves
from .rows import CONTRASTS, LAWS, SUMMARY, BinLawRow, CurveRow, EarlyAndLateRow, ExponentRow


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
    ks: list[int] = field(default_factory=lambda: [*HEADLINE_KS])
    shown: int = 10
    share: float = 0.5
    level: float = 0.95
    replicates: int = 500

    def analyze(self, runs: Runs) -> Report:
        """Return class the tokens of every measurement; laws need at least 3 sizes."""
        if self.shown not in self.ks:
            raise BadInput(f"analyzer.shown={self.shown}: expected one of analyzer.ks={self.ks}")
        report = Report()
        without = dict[str, None]()

        def load(family: Family, run_id: str) -> Classed:
            texts = runs.vocabulary(run_id)
            if not texts:
                without[str(family)] = None
            ks = [k for k in sorted(self.ks) if k < family.vocab_size]
            ways = list(ways_of_classing(runs.rank_pieces(run_id, version=1), texts))
            parts: dict[str, list[ClassCounts]] = {way.name: [] for way in ways}
            positions = []
            for piece in runs.rank_pieces(run_id, version=1):
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
                "an earlier version): kinds and places in words are left out."
            )
        return report

    @property
    def _label(self) -> str:
        return metric_label(rbp_name(self.shown))

    def _ask_classes(self, report: Report, everything: Sequence[tuple[Family, list[Classed]]]) -> None:
        """Ask which classes have other exponents than others, and what makes the exponent grow with k."""
        laws = list[dict[str, Any]]()
        exponents = list[ExponentRow]()
        pairs = list[ClassPair]()
        for family, loaded in everything:
            if len(family.s) < 3:
                report.notes.append(few_sizes(family))
                continue
            for by in loaded[0].by:
                if not all(by in run.by for run in loaded):
                    continue
                new_laws, new_exponents, new_pairs = self._of_classes(family, by, [run.by[by] for run in loaded])
                laws += new_laws
                exponents += new_exponents
                pairs += new_pairs
        drawn = [row for row in laws if row["metric"] == self._label]
        groups = dict.fromkeys((row["dataset"], row["family"], row["by"]) for row in drawn)
        report.findings += corrected((self._summary(key, drawn, exponents, pairs) for key in groups), sure(self.level))
        short = [{name: row.get(name, 1 - row["largest"]) for name in SUMMARY} for row in drawn]
        report.add_table("summary", short, SUMMARY)
        report.add_table("laws", laws, LAWS)
        report.add_table("contrasts", [pair.columns() for pair in pairs], CONTRASTS)
        report.add_rows("exponents", exponents)
        report.add_metrics("alpha_of_class/{family}/{dataset}/{metric}/{by}/{class}", laws, "alpha")
        if drawn:
            caption = f"Exponent of {self._label} in each class, with {self.level:z.0%} intervals."
            bars = [Bar(f"{row['dataset']}, {row['by']}", row["class"], row["family"], _interval(row)) for row in drawn]
            figure = bar_panels(bars, xlabel=f"α of {self._label}", ylabel="class of token")
            report.drawings["exponents_by_class"] = Drawing(figure, caption)

    def _of_classes(
        self, family: Family, by: str, counts: Sequence[ClassCounts]
    ) -> tuple[list[dict[str, Any]], list[ExponentRow], list[ClassPair]]:
        """Return the laws of every class, what changes the exponent between the k, and every two classes at the k
        shown.
        """
        weights = document_weights(len(counts[0].tokens), replicates=self.replicates)
        whole_text = np.ones((1, weights.shape[1]))
        once = np.stack([count.values(whole_text)[0] for count in counts])  # (m, classes, metrics)
        draws = np.stack([count.values(weights) for count in counts])  # (m, replicates, classes, metrics)
        share = counts[-1].tokens.sum(axis=0) / counts[-1].tokens.sum()
        names = counts[0].names
        metrics = [CE, *map(rbp_name, counts[0].ks)]
        rows = []
        laws = dict[tuple[int, int], PowerLawFit]()
        pairs = list[ClassPair]()
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
            if metric != rbp_name(self.shown):
                continue
            for a, b in combinations([c for c in range(len(names)) if (c, j) in laws], 2):
                ratio = ratio_law(
                    family.s, once[:, a, j], once[:, b, j], draws[:, :, a, j], draws[:, :, b, j], level=self.level
                )
                if ratio:
                    case = family.keys | {"by": BY[by], "class": names[a], "than": names[b]}
                    pairs.append(ClassPair(case=case, p=ratio.spread.p(ratio.alpha), **around(exponent(ratio))))
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
            mix, within = (
                Interval(float(part), *percentiles(replicates, level=self.level))
                for part, replicates in zip(parts, drawn.T, strict=True)
            )
            yield ExponentRow(
                **family.keys,
                by=BY[by],
                k=ks[j],
                from_k=ks[j - 1],
                change=float(parts.sum()),
                mix=mix,
                within=within,
                covered=float(share[there].sum()),
            )

    def _summary(
        self,
        key: tuple[str, str, str],
        rows: Sequence[Mapping[str, Any]],
        exponents: Sequence[ExponentRow],
        pairs: Sequence[ClassPair],
    ) -> ClassesDiffer:
        """Return the summary of one way of classing: the smallest and the largest exponent, and where the gain lies."""
        laws = [_class_law(row) for row in rows if (row["dataset"], row["family"], row["by"]) == key]
        lowest, highest = (pick(laws, key=lambda law: law.alpha.value) for pick in (min, max))
        p = [pair.p_corrected for pair in pairs if (pair.case["dataset"], pair.case["family"], pair.case["by"]) == key]
        changes = [row for row in exponents if (row.dataset, row.family, row.by) == key]
        return ClassesDiffer(
            case={"dataset": key[0], "family": key[1], "by": key[2]},
            estimate=highest.alpha.value - lowest.alpha.value,
            p=min(p, default=np.nan),
            metric=self._label,
            lowest=lowest,
            highest=highest,
            most=max(laws, key=lambda law: law.gain),
            pairs=len(p),
            change=sum(row.change for row in changes),
            within=sum(row.within.value for row in changes),
        )

    def _ask_positions(self, report: Report, everything: Sequence[tuple[Family, list[Classed]]]) -> None:
        """Ask whether the exponent differs between early and late positions."""
        positions = list[tuple[Family, PositionCurves]]()
        for family, loaded in everything:
            sums = [run.positions for run in loaded]
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
        findings = corrected((_late(row, read) for row in rows), sure(self.level))
        for row, finding in zip(rows, findings, strict=True):
            row.p_corrected = finding.p_corrected
        report.findings += findings
        laws = [row for family, curves in enough for row in self._bin_laws(family, curves)]
        report.add_rows("early_and_late", rows)
        report.add_rows("position_laws", laws)
        report.add_rows("position_curves", (row for case in positions for row in _curve_rows(*case)))
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
        """Yield the first half of the bins against the last bin, in the same models and documents."""
        half = max(1, len(curves.first) // 2)
        early = curves.in_bins(slice(0, half))
        late = curves.in_bins(slice(-1, None))
        spans = [f"{curves.first[i]} to {curves.last[j]}" for i, j in ((0, half - 1), (-1, -1))]
        for metric in curves.metrics:
            law_early = early.fit(metric, family.s, level=self.level)
            law_late = late.fit(metric, family.s, level=self.level)
            y_early, draws_early = early.of(metric)
            y_late, draws_late = late.of(metric)
            ratio = ratio_law(family.s, y_late, y_early, draws_late, draws_early, level=self.level)
            if law_early and law_late and ratio:
                yield EarlyAndLateRow(
                    **family.keys,
                    metric=metric_label(metric),
                    early=spans[0],
                    late=spans[1],
                    y_early=y_early[-1],
                    y_late=y_late[-1],
                    alpha_early=law_early.alpha,
                    alpha_late=law_late.alpha,
                    difference=exponent(ratio),
                    p=ratio.spread.p(ratio.alpha),
                )


def _interval(row: Mapping[str, Any]) -> Interval:
    return Interval(row["alpha"], row["alpha_low"], row["alpha_high"])


def _class_law(row: Mapping[str, Any]) -> ClassLaw:
    return ClassLaw(name=row["class"], alpha=_interval(row), share=float(row["share"]), gain=float(row["gain"]))


def _late(row: EarlyAndLateRow, read: Mapping[str, tuple[int, int]]) -> LateAgainstEarly:
    reached, documents = read[f"{row.family} on {row.dataset}"]
    return LateAgainstEarly(
        case=row.case(metric=row.metric.lower()),
        p=row.p,
        early=row.early,
        late=row.late,
        alpha_early=row.alpha_early,
        alpha_late=row.alpha_late,
        reached=reached,
        documents=documents,
        **around(row.difference),
    )


def _bin_cells(family: Family, curves: PositionCurves) -> list[dict[str, Any]]:
    tokens = curves.tokens / len(family.run_ids[0])
    cells = zip(curves.first, curves.last, tokens, strict=True)
    return [{"first": int(first), "last": int(last), "tokens": int(n)} for first, last, n in cells]


def _curve_rows(family: Family, curves: PositionCurves) -> Iterator[CurveRow]:
    bins = _bin_cells(family, curves)
    errors = curves.errors
    for column, metric in enumerate(curves.metrics):
        for i, keys in enumerate(family.size_keys):
            for j, cells in enumerate(bins):
                y = float(curves.values[i, j, column])
                se = float(errors[i, j, column])
                yield CurveRow(**keys, metric=metric_label(metric), **cells, y=y, se=se)
