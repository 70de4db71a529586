"""Two families, checkpoints or precisions on the same texts, or one family on two datasets: what differs.

Four questions have four answers: whether two *models* of equal S differ on these very texts, whether the *laws* lie
apart (other models of the same recipes would differ), whether their *exponents* do, and whether anything is left at
equal cross-entropy. Tokens of different tokenizers do not compare: whole words (`words_10`: -ln of the share of words
whose every token has R <= 10) and bits per byte take the place of RBP_k and CE. The difference by
place in the text is in nats per byte, which any two tokenizers share.

Each question is Holm-corrected over all pairs and metrics. Laws over the same sizes are compared by the law of their
ratio. Models of equal S (within 25%) are compared on these very texts by a joint document bootstrap; another seed of
the same recipe may differ as much, so only *laws* speaks about recipes. At equal CE the error is the scatter around
the law in CE (false alarms 1 to 7% at a nominal 5). Datasets are compared by their laws only: that one text is easier
says nothing about a model.

A word is a run of characters without white space, with the white space before it; it succeeds if every token that
reaches into it has R <= k. For `gaps`, a token's nats are spread evenly over its bytes, and documents whose words do
not match are left out and counted. Text without white space between words (Chinese, Japanese) has long words: read
bits per byte there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from rbptrack.analysis import Analyzer, BadInput, Drawing, Report, Runs, metric_part, rbp_name
from rbptrack.analysis.axes import SIZE
from rbptrack.analysis.bar_figures import Bar, bar_panels
from rbptrack.analysis.family_figures import curve_panels, curves_of, side_by_side
from rbptrack.analysis.findings import Finding, NothingToSay, Verdict, around, corrected, sure, within_margin
from rbptrack.analysis.rows import exponent
from rbptrack.ranks import CE, HEADLINE_KS, metric_label
from rbptrack.stats.contrasts import Apart, contrast, holm, verdict_of
from rbptrack.stats.intervals import Interval

from .caveats import caveats
from .differences import LOG_NATS, Difference, simultaneous_differences
from .findings import ApartAtEqualCe, LawsApart, ModelsDiffer, SameExponents
from .gaps import align, gap_row
from .pairs import BITS, Pair, Side, pairs_of, read_sides, with_words
from .rows import TEXT, EqualRow, LawRow, ModelRow, PairRow, SummaryRow, WordRow
from .split import CAPTION, split_rows

_Law = tuple[LawRow, LawsApart, SameExponents]


@dataclass(kw_only=True)
class Compare(Analyzer):
    """What differs between families, checkpoints or precisions on the same texts, and in a family between datasets.

    Attributes:
        a: pattern over `family/dataset`: one side of the comparisons to make.
        b: pattern of the other side.
        ks: the k to compare at.
        shown: the k of the figures and sentences.
        within: largest ratio of two S that count as equal.
        margin: exponents that differ by less than this share of the larger count as the same.
        level: nominal coverage of the intervals; tests have size 1 - level.
        replicates: document bootstraps of the differences between models.
        gaps: of how many pairs of families the text is shown on which their largest models of equal S differ most.
        words: of a segment of text.
        worst: segments that are shown in each direction.

    """

    name: ClassVar[str] = "compare"
    a: str = "*"
    b: str = "*"
    ks: list[int] = field(default_factory=lambda: [*HEADLINE_KS])
    shown: int = 10
    within: float = 1.25
    margin: float = 0.1
    level: float = 0.95
    replicates: int = 1000
    gaps: int = 4
    words: int = 16
    worst: int = 10

    def analyze(self, runs: Runs) -> Report:
        """Compare every two sides that share texts, and every two datasets of a family."""
        if self.shown not in self.ks or self.margin <= 0:
            raise BadInput(
                f"analyzer.shown must be one of analyzer.ks and analyzer.margin above 0; got shown={self.shown} "
                f"ks={self.ks} margin={self.margin:g}"
            )
        report = Report()
        sides = read_sides(runs, self.ks, report.notes)
        pairs = with_words(runs, pairs_of(sides, self.a, self.b), self.ks)
        if not pairs:
            there = ", ".join(side.path for side in sides) or "nothing"
            raise NothingToSay(
                f"nothing to compare: it takes two families on one dataset, or one family on two; the store has {there}"
                + (f" (a={self.a} b={self.b})" if (self.a, self.b) != ("*", "*") else "")
            )
        families = [pair for pair in pairs if pair.same_dataset]
        models = self._corrected_models([row for pair in families for row in self._models(pair)])
        laws = self._laws(pairs)
        equal = self._at_equal_ce(families)
        if not models and not laws:
            raise NothingToSay(
                f"nothing to compare: no two models of equal S (within a factor {self.within:g}), no laws of 3 sizes"
            )
        summary = list(self._summary(pairs, models, laws))
        report.findings += [apart for _, apart, _ in laws]
        report.findings += [same for *_, same in laws]
        report.findings += [apart for _, apart in equal]
        report.findings += _of_models(summary)
        split = split_rows(runs, pairs, self.level)
        report.findings += [part for _, part in split]
        report.add_rows("summary", summary)
        report.add_rows("laws", (row for row, *_ in laws))
        report.add_rows("at_equal_ce", (_equal_row(*case) for case in equal))
        report.add_rows("models", models)
        report.add_rows("rank_and_rest", (row for row, _ in split), caption=CAPTION)
        self._add_metrics(report, models, laws)
        self._gaps(report, runs, families)
        self._words(report, pairs)
        self._draw(report, pairs, laws)
        report.notes += caveats(pairs, models)
        report.summary = next(name for name in ("summary", "gaps", "models") if name in report.tables)
        return report

    def _shown(self, pair: Pair) -> tuple[str, str]:
        """Return the metrics of figures and sentences: that of the option, and cross-entropy or what stands for it."""
        if pair.same_dataset and pair.other_tokens and pair.a.words and pair.b.words:
            return f"words_{self.shown}", BITS
        return rbp_name(self.shown), CE

    def _models(self, pair: Pair) -> Iterator[tuple[ModelRow, Difference]]:
        """Yield each model of A against the nearest of B, where their S count as equal; `agreement` has one model
        twice.
        """
        if pair.same_family and pair.a.counts and pair.b.counts:
            return
        for i, j in pair.equal_sizes(self.within):
            for metric, difference, how in pair.differences(i, j, self.ks, replicates=self.replicates):
                row = ModelRow(
                    **pair.keys,
                    metric=TEXT if metric == LOG_NATS else metric_label(metric),
                    model_A=pair.a.model(i),
                    model_B=pair.b.model(j),
                    S_A=float(pair.a.family.s[i]),
                    S_B=float(pair.b.family.s[j]),
                    value_A=difference.a,
                    value_B=difference.b,
                    difference=Interval(difference.value),
                    **how,
                )
                yield row, difference

    def _corrected_models(self, pairs: list[tuple[ModelRow, Difference]]) -> list[ModelRow]:
        """Return the rows with intervals and p that hold for all cases together."""
        reach, p = simultaneous_differences([difference for _, difference in pairs], level=self.level)
        return [
            replace(row, difference=Interval.around(difference.value, reach * difference.se), p=float(p_of_row))
            for (row, difference), p_of_row in zip(pairs, p, strict=True)
        ]

    def _laws(self, pairs: list[Pair]) -> list[_Law]:
        """Return laws against each other in S: a row, whether they lie apart, and whether their exponents are the
        same.
        """
        cases = [(pair, *law) for pair in pairs for law in pair.laws(at_equal_ce=False, level=self.level)]
        margins = [self.margin * max(apart.a.alpha, apart.b.alpha, 1e-9) for *_, apart in cases]
        tests = [
            contrast(apart.alpha, apart.alpha_spread, margin=margin, level=self.level)
            for (*_, apart), margin in zip(cases, margins, strict=True)
        ]
        equivalent = holm([test.p_equivalent for test in tests])
        exponents = corrected(
            (
                SameExponents(
                    case=pair.case(metric),
                    p=test.p_different,
                    margin=test.margin,
                    p_equivalent=float(p),
                    **around(test.difference),
                )
                for (pair, metric, _), test, p in zip(cases, tests, equivalent, strict=True)
            ),
            self._of_exponents,
        )
        levels = corrected(
            (
                LawsApart(
                    case=pair.case(metric),
                    p=apart.level_spread.p(apart.level),
                    at=apart.at,
                    exponents=same.verdict,
                    shown=metric == self._shown(pair)[0],
                    **around(_ratio(apart, self.level)),
                )
                for (pair, metric, apart), same in zip(cases, exponents, strict=True)
            ),
            sure(self.level),
        )
        return [
            (_law_row(*case, level, same), level, same)
            for case, level, same in zip(cases, levels, exponents, strict=True)
        ]

    def _of_exponents(self, finding: Finding) -> Verdict:
        equivalent = finding.p_equivalent if isinstance(finding, SameExponents) else np.nan
        verdict = Verdict(verdict_of(finding.p_corrected, equivalent, size=1 - self.level))
        return within_margin(verdict, finding.interval, finding.margin)

    def _at_equal_ce(self, pairs: list[Pair]) -> list[tuple[Pair, ApartAtEqualCe]]:
        cases = [(pair, *law) for pair in pairs for law in pair.laws(at_equal_ce=True, level=self.level)]
        findings = corrected(
            (
                ApartAtEqualCe(
                    case=pair.case(metric),
                    p=apart.level_spread.p(apart.level),
                    at=apart.at,
                    shown=metric == self._shown(pair)[0],
                    **around(_ratio(apart, self.level)),
                )
                for pair, metric, apart in cases
            ),
            sure(self.level),
        )
        return [(pair, finding) for (pair, *_), finding in zip(cases, findings, strict=True)]

    def _summary(self, pairs: list[Pair], models: list[ModelRow], laws: list[_Law]) -> Iterator[SummaryRow]:
        laws_by_keys = {(row.A, row.B, row.on, row.metric): (level, same) for row, level, same in laws}
        for pair in pairs:
            for metric in reversed(self._shown(pair)):
                keys = pair.keys | {"metric": _label(metric)}
                rows = [row for row in models if vars(row).items() >= keys.items()]
                law = laws_by_keys.get((keys["A"], keys["B"], keys["on"], keys["metric"]))
                if not rows and not law:
                    continue
                decided = [row.difference.value for row in rows if row.p < 1 - self.level]
                above = sum(difference > 0 for difference in decided)
                below = sum(difference < 0 for difference in decided)
                yield SummaryRow(
                    **keys,
                    pairs=len(rows),
                    A_better=below if metric == CE else above,
                    B_better=above if metric == CE else below,
                    undecided=len(rows) - len(decided),
                    families=law[0].verdict if law else "no laws",
                    exponents=law[1].verdict if law else "no laws",
                )

    def _add_metrics(self, report: Report, models: list[ModelRow], laws: list[_Law]) -> None:
        def name(quantity: str, row: PairRow) -> str:
            a, b, on = map(metric_part, (row.A, row.B, row.on))
            return f"{quantity}/{a} - {b}/{on}/{metric_part(row.metric)}"

        by_name: dict[str, list[float]] = {}
        for row in models:
            key = name("difference", replace(row, metric=row.metric.lower()))
            by_name.setdefault(key, []).append(row.difference.value)
        report.metrics |= {key: float(np.mean(values)) for key, values in by_name.items()}
        report.metrics |= {name("alpha_difference", law): law.difference.value for law, *_ in laws}

    def _gaps(self, report: Report, runs: Runs, pairs: list[Pair]) -> None:
        """Add the places in the text where models of equal S differ, in nats per byte."""
        if not self.gaps:
            return
        texts = list(
            align(
                runs,
                pairs,
                report.notes,
                within=self.within,
                words=self.words,
                most=self.worst,
                pairs_at_most=self.gaps,
            )
        )
        findings = corrected((gap for text in texts for gap in text.findings(self.level)), sure(self.level))
        report.findings += findings
        report.add_rows("gaps", map(gap_row, findings))
        report.add_rows("segments", (row for text in texts for row in text.segments()))

    def _words(self, report: Report, pairs: list[Pair]) -> None:
        """Add the laws of whole words and of bits per byte of every family whose words were counted."""
        sides = {side.path: side for pair in pairs for side in (pair.a, pair.b) if side.word_values}
        rows = [row for side in sides.values() for row in _word_rows(side, self.level)]
        report.add_rows("words", rows, caption="Whole words, whatever the tokenizer.")
        report.add_metrics("alpha_of_words/{family}/{dataset}/{metric}", rows, "alpha")

    def _draw(self, report: Report, pairs: list[Pair], laws: list[_Law]) -> None:
        if "models" in report.tables:
            self._draw_models(report)
        shown = {(*pair.keys.values(), _label(self._shown(pair)[0])) for pair in pairs}
        gaps = [
            Bar(f"{row.on}, {row.metric}", f"{row.A} − {row.B}", "", row.difference, row.margin)
            for row, *_ in laws
            if (row.A, row.B, row.on, row.metric) in shown
        ]
        if gaps:
            caption = f"Exponent of one side minus the other's, {self.level:z.0%} intervals. Grey: counts as the same."
            figure = bar_panels(gaps, xlabel="difference of exponents", ylabel="pair")
            report.drawings["exponents"] = Drawing(figure, caption)

    def _draw_models(self, report: Report) -> None:
        caption = f"A's value minus B's, with {self.level:z.0%} intervals over documents that hold for all at once."
        table = report.tables["models"].frame.rename(columns={"low": "difference_low", "high": "difference_high"})
        for label in (_label(rbp_name(self.shown)), "CE"):
            rows = table[(table["metric"] == label) & table["paired"]]
            if not len(rows):
                continue
            sides = "{A} − {B}"
            curves = curves_of(rows, "S_A", "difference", panel="{on}", series=sides, label=sides, ls="", ends="bars")
            unit = "CE, nats" if label == "CE" else label
            figure, axes = curve_panels(side_by_side(curves), xlabel=SIZE, ylabel=f"difference in {unit}", legend=1.7)
            for ax in axes:
                ax.axhline(0, lw=0.9, color="#57606a")
            report.drawings[f"{label.lower()}_between_families"] = Drawing(figure, caption)


def _label(metric: str) -> str:
    return metric if metric == BITS or metric.startswith("words_") else metric_label(metric)


def _ratio(apart: Apart, level: float) -> Interval:
    """Return the ratio of two laws at one place."""
    half = apart.level_spread.half(level)
    low, middle, high = np.exp([apart.level - half, apart.level, apart.level + half])
    return Interval(float(middle), float(low), float(high))


def _law_row(pair: Pair, metric: str, apart: Apart, level: LawsApart, same: SameExponents) -> LawRow:
    return LawRow(
        **pair.keys,
        metric=_label(metric),
        at_S=apart.at,
        ratio=level.interval,
        p_families=level.p_corrected,
        alpha_A=apart.a.alpha,
        alpha_B=apart.b.alpha,
        difference=same.interval,
        p_exponents=same.p_corrected,
        margin=same.margin,
        p_equivalent=same.p_equivalent,
        verdict=same.verdict,
    )


def _equal_row(pair: Pair, apart: ApartAtEqualCe) -> EqualRow:
    return EqualRow(
        **pair.keys,
        metric=_label(apart.case["metric"]),
        at=apart.at,
        ratio=apart.interval,
        p=apart.p_corrected,
        verdict=apart.verdict,
    )


def _word_rows(side: Side, level: float) -> Iterator[WordRow]:
    values = side.word_values
    if not values:
        return
    for metric in values.metrics:
        law = values.fit(metric, side.family.s, level=level)
        if not law:
            continue
        y = values.of(metric)[0]
        shown = y if metric == BITS else np.exp(-y)
        yield WordRow(
            **side.family.keys,
            metric=metric,
            alpha=exponent(law),
            r2=law.r2,
            smallest=float(shown[0]),
            largest=float(shown[-1]),
        )


def _of_models(summary: Iterable[SummaryRow]) -> Iterator[ModelsDiffer]:
    """Compare models of equal S on these texts."""
    for row in summary:
        if row.pairs:
            yield ModelsDiffer(
                case={"a": row.A, "b": row.B, "dataset": row.on, "metric": row.metric},
                verdict=Verdict.DIFFERENT if row.A_better + row.B_better else Verdict.UNTOLD,
                pairs=row.pairs,
                a_better=row.A_better,
                b_better=row.B_better,
            )
