"""Two families, checkpoints or precisions on the same texts, or one family on two datasets: what differs.

Four questions have four answers: whether two *models* of equal S differ on these very texts, whether the *laws* lie
apart (other models of the same recipes would differ), whether their *exponents* do, and whether anything is left at
equal cross-entropy. Tokens of different tokenizers do not compare: whole words (`words_10`: -ln of the share of words
whose every token has R <= 10) and bits per byte take the place of RBP_k and CE. Where in the text two models differ is
said in nats per byte, which any two tokenizers share.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from rbptrack.analysis import Analyzer, BadInput, Drawing, Report, Runs, metric_part, rbp_name
from rbptrack.analysis.bar_figures import Bar, bar_panels
from rbptrack.analysis.family_figures import curve_panels, curves_of, side_by_side
from rbptrack.analysis.figures import SIZE
from rbptrack.analysis.findings import Finding, NothingToSay, Verdict, around, corrected, sure
from rbptrack.analysis.pairs import BITS, Pair, Side, pairs_of, read_sides, with_words
from rbptrack.analysis.rows import R2, Column, Exponent, OfMetric, exponent
from rbptrack.analysis.text_gaps import align, gap_row
from rbptrack.ranks import CE, metric_label
from rbptrack.stats.contrasts import Apart, contrast, holm, verdict_of
from rbptrack.stats.differences import LOG_NATS, Difference, simultaneous_differences
from rbptrack.stats.intervals import Interval

TEXT = "ln nats of the text"
LAWS, EXPONENTS, EQUAL_CE, MODELS = "laws apart", "same exponents", "apart at equal CE", "models differ"
_LOW = "lower end of its interval: documents, and scatter between models"
_AT_ONCE = "lower end of its interval (documents resampled; all hold at once)"
_SURE = "with all other cases taken into account"


@dataclass(kw_only=True)
class PairRow:
    """A row about two sides."""

    A: Annotated[str, Column("one side")]
    B: Annotated[str, Column("the other")]
    on: Annotated[str, Column("the dataset or family that they share")]
    metric: Annotated[str, Column("CE, RBP_k; across tokenizers bits per byte, words_k")]


@dataclass(kw_only=True)
class SummaryRow(PairRow):
    """What is found of one pair and metric."""

    pairs: Annotated[int, Column("pairs of models of equal S; none between datasets")]
    A_better: Annotated[int, Column(f"pairs in which A's model is better on these texts ({_SURE})", title="A better")]
    B_better: Annotated[int, Column("pairs in which B's is", title="B better")]
    undecided: Annotated[int, Column("pairs that these texts do not distinguish, or without a standard error")]
    families: Annotated[str, Column("whether the laws lie apart: other models of the same recipes would differ, too")]
    exponents: Annotated[str, Column("whether the exponents differ")]


@dataclass(kw_only=True)
class LawRow(PairRow):
    """The laws of both sides against each other."""

    at_S: Annotated[
        float, Column("where the laws are compared: the middle of the sizes that both have", "S", form="short")
    ]
    ratio: Annotated[
        Interval,
        Column("A's CE or -ln RBP_k over B's there, by their laws: below 1, A is better", form=".3f", low=_LOW),
    ]
    p_families: Annotated[float, Column(f"p of a ratio of 1, {_SURE} (Holm)", "p of equal laws", form=".3g")]
    alpha_A: Annotated[float, Column("A's exponent", title="α of A", form=".3f")]
    alpha_B: Annotated[float, Column("B's", title="α of B", form=".3f")]
    difference: Annotated[Interval, Column("A's exponent less B's", form="+.3f", low=_LOW, bare=True)]
    p_exponents: Annotated[float, Column(f"p of equal exponents, {_SURE} (Holm)", "p of equal α", form=".3g")]
    margin: Annotated[float, Column("difference below which exponents count as the same", form=".3f")]
    p_equivalent: Annotated[float, Column("p of a difference at or beyond the margin, likewise", form=".3g")]
    verdict: Annotated[str, Column("of the exponents: equivalent, different, both (within the margin) or undecided")]


@dataclass(kw_only=True)
class EqualRow(PairRow):
    """What is left at equal cross-entropy."""

    at: Annotated[
        float, Column("CE in nats (across tokenizers bits per byte): the middle of what both have", form=".3f")
    ]
    ratio: Annotated[Interval, Column("A's -ln RBP_k over B's there: below 1, A ranks better at equal CE", form=".3f")]
    p: Annotated[float, Column(f"p of a ratio of 1, {_SURE} (Holm)", form=".3g")]
    verdict: Annotated[str, Column("different or undecided")]


@dataclass(kw_only=True)
class ModelRow(PairRow):
    """Two models of equal S on the same texts."""

    model_A: Annotated[str, Column("its model")]
    model_B: Annotated[str, Column("the other's")]
    S_A: Annotated[float, Column("its size", title="S of A", form="short")]
    S_B: Annotated[float, Column("the other's", title="S of B", form="short")]
    value_A: Annotated[
        float, Column(f"CE (nats), RBP_k, or {TEXT} (differences are free of the tokenizer)", form=".4f")
    ]
    value_B: Annotated[float, Column("the other's", form=".4f")]
    difference: Annotated[Interval, Column("A - B", form="+.4f", low=_AT_ONCE, bare=True)]
    p: Annotated[float, Column(f"p of no difference on these texts, {_SURE}", form=".3g")] = np.nan
    paired: Annotated[bool, Column("whether both were read over the same documents")] = False
    documents: Annotated[float, Column("documents compared; empty for imported metrics", form=",.0f")] = np.nan
    same_tokens: Annotated[bool | None, Column("whether both score equally many tokens of them")] = None


@dataclass(kw_only=True)
class WordRow(OfMetric):
    """The law of whole words, or of bits per byte."""

    alpha: Exponent
    r2: R2
    smallest: Annotated[float, Column("bits per byte, or share of whole words, at the smallest size", form=".3f")]
    largest: Annotated[float, Column("at the largest", form=".3f")]


_Law = tuple[LawRow, Finding, Finding]  # and whether laws lie apart, and exponents are the same


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
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
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
        laws, equal = self._laws(pairs), self._at_equal_ce(families)
        if not models and not laws:
            raise NothingToSay(
                f"nothing to compare: no two models of equal S (within a factor {self.within:g}), no laws of 3 sizes"
            )
        summary = list(self._summary(pairs, models, laws))
        report.findings += [level for _, level, _ in laws] + [same for *_, same in laws] + [one for _, one in equal]
        report.findings += _of_models(summary)
        report.add_rows("summary", summary)
        report.add_rows("laws", (row for row, *_ in laws))
        report.add_rows("at_equal_ce", (_equal_row(*one) for one in equal))
        report.add_rows("models", models)
        self._add_metrics(report, models, laws)
        self._gaps(report, runs, families)
        self._words(report, pairs)
        self._draw(report, pairs, laws)
        report.notes += _caveats(pairs, models)
        report.summary = next(name for name in ("summary", "gaps", "models") if name in report.tables)
        return report

    def _shown(self, pair: Pair) -> tuple[str, str]:
        """The metrics of figures and sentences: that of the option, and cross-entropy or what stands for it."""
        if pair.same_dataset and pair.other_tokens and pair.a.words and pair.b.words:
            return f"words_{self.shown}", BITS
        return rbp_name(self.shown), CE

    def _models(self, pair: Pair) -> Iterator[tuple[ModelRow, Difference]]:
        """Each model of A against the nearest of B, where their S count as equal; `agreement` has one model twice."""
        if pair.same_family and pair.a.counts and pair.b.counts:
            return
        for i, j in pair.equal_sizes(self.within):
            about: dict[str, Any] = {"model_A": pair.a.model(i), "model_B": pair.b.model(j)}
            about |= {"S_A": float(pair.a.family.s[i]), "S_B": float(pair.b.family.s[j])}
            for metric, one, how in pair.differences(i, j, self.ks, replicates=self.replicates):
                about |= {"metric": TEXT if metric == LOG_NATS else metric_label(metric)}
                values: Any = {"value_A": one.a, "value_B": one.b, "difference": Interval(one.value)}
                yield ModelRow(**pair.keys | about | how | values), one

    def _corrected_models(self, pairs: list[tuple[ModelRow, Difference]]) -> list[ModelRow]:
        """The rows with intervals and p that hold for all cases together."""
        reach, p = simultaneous_differences([one for _, one in pairs], level=self.level)
        ends = [Interval.around(one.value, reach * one.se) for _, one in pairs]
        return [
            replace(row, difference=difference, p=float(each))
            for (row, _), difference, each in zip(pairs, ends, p, strict=True)
        ]

    def _laws(self, pairs: list[Pair]) -> list[_Law]:
        """Laws against each other in S: a row, whether they lie apart, and whether their exponents are the same."""
        size = 1 - self.level
        cases = [(pair, *one) for pair in pairs for one in pair.laws(at_equal_ce=False, level=self.level)]
        margins = [self.margin * max(one.a.alpha, one.b.alpha, 1e-9) for *_, one in cases]
        tests = [
            contrast(one.alpha, one.alpha_spread, margin=margin, level=self.level)
            for (*_, one), margin in zip(cases, margins, strict=True)
        ]
        equivalent = holm([one.p_equivalent for one in tests])
        exponents = corrected(
            (
                Finding(question=EXPONENTS, case=pair.case(metric), **around(one.difference),
                        p=one.p_different, extras={"p_equivalent": float(p), "margin": one.margin})
                for (pair, metric, _), one, p in zip(cases, tests, equivalent, strict=True)
            ),
            lambda one: verdict_of(one.p_corrected, one.extras["p_equivalent"], size=size),
        )  # fmt: skip
        levels = corrected(
            (
                _ratio(
                    LAWS, pair, metric, one, self.level, exponents=same.verdict, shown=metric == self._shown(pair)[0]
                )
                for (pair, metric, one), same in zip(cases, exponents, strict=True)
            ),
            sure(self.level),
        )
        return [
            (_law_row(*case, level, same), level, same)
            for case, level, same in zip(cases, levels, exponents, strict=True)
        ]

    def _at_equal_ce(self, pairs: list[Pair]) -> list[tuple[Pair, Finding]]:
        cases = [(pair, *one) for pair in pairs for one in pair.laws(at_equal_ce=True, level=self.level)]
        findings = corrected(
            (_ratio(EQUAL_CE, *case, self.level, shown=case[1] == self._shown(case[0])[0]) for case in cases),
            sure(self.level),
        )
        return [(pair, one) for (pair, *_), one in zip(cases, findings, strict=True)]

    def _summary(self, pairs: list[Pair], models: list[ModelRow], laws: list[_Law]) -> Iterator[SummaryRow]:
        known = {(row.A, row.B, row.on, row.metric): (level, same) for row, level, same in laws}
        for pair in pairs:
            for metric in reversed(self._shown(pair)):
                keys = pair.keys | {"metric": _label(metric)}
                mine = [row for row in models if vars(row).items() >= keys.items()]
                law = known.get((keys["A"], keys["B"], keys["on"], keys["metric"]))
                if mine or law:
                    sure = [row.difference.value for row in mine if row.p < 1 - self.level]
                    above, below = sum(d > 0 for d in sure), sum(d < 0 for d in sure)
                    better, worse = (below, above) if metric == CE else (above, below)
                    yield SummaryRow(
                        **keys, pairs=len(mine), A_better=better, B_better=worse, undecided=len(mine) - len(sure),
                        families=law[0].verdict if law else "no laws", exponents=law[1].verdict if law else "no laws",
                    )  # fmt: skip

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
        """Where in the text models of equal S differ, in nats per byte."""
        limits = {"words": self.words, "most": self.worst, "pairs_at_most": self.gaps}
        every = list(align(runs, pairs, report.notes, within=self.within, **limits)) if self.gaps else []
        findings = corrected((one for each in every for one in each.findings(self.level)), sure(self.level))
        report.findings += findings
        report.add_rows("gaps", map(gap_row, findings))
        report.add_rows("segments", (row for each in every for row in each.segments()))

    def _words(self, report: Report, pairs: list[Pair]) -> None:
        """The laws of whole words and of bits per byte of every family whose words were counted."""
        sides = {side.path: side for pair in pairs for side in (pair.a, pair.b) if side.word_values}
        rows = [row for side in sides.values() for row in _word_rows(side, self.level)]
        report.add_rows("words", rows, caption="Whole words, whatever the tokenizer.")
        report.add_metrics("alpha_of_words/{family}/{dataset}/{metric}", rows, "alpha")

    def _draw(self, report: Report, pairs: list[Pair], laws: list[_Law]) -> None:
        caption = f"A's value less B's, with {self.level:z.0%} intervals over documents that hold for all at once."
        if "models" in report.tables:
            table = report.tables["models"].frame.rename(columns={"low": "difference_low", "high": "difference_high"})
            for label in (_label(rbp_name(self.shown)), "CE"):
                rows, unit = table[(table["metric"] == label) & table["paired"]], "CE, nats" if label == "CE" else label
                if len(rows):
                    where = {"panel": "{on}", "series": "{A} − {B}", "label": "{A} − {B}", "ls": "", "ends": "bars"}
                    figure, axes = curve_panels(
                        side_by_side(curves_of(rows, "S_A", "difference", **where)),
                        xlabel=SIZE, ylabel=f"difference in {unit}", legend=1.7,
                    )  # fmt: skip
                    for ax in axes:
                        ax.axhline(0, lw=0.9, color="#57606a")
                    report.drawings[f"{label.lower()}_between_families"] = Drawing(figure, caption)
        shown = {(*pair.keys.values(), _label(self._shown(pair)[0])) for pair in pairs}
        gaps = [
            Bar(f"{row.on}, {row.metric}", f"{row.A} − {row.B}", "", row.difference, row.margin)
            for row, *_ in laws
            if (row.A, row.B, row.on, row.metric) in shown
        ]
        if gaps:
            caption = f"Exponent of one side less the other's, {self.level:z.0%} intervals. Grey: counts as the same."
            figure = bar_panels(gaps, xlabel="difference of exponents", ylabel="pair")
            report.drawings["exponents"] = Drawing(figure, caption)


def _label(metric: str) -> str:
    return metric if metric == BITS or metric.startswith("words_") else metric_label(metric)


def _ratio(question: str, pair: Pair, metric: str, one: Apart, level: float, **extras: Any) -> Finding:
    """A finding about the ratio of two laws at one place."""
    half, middle = one.level_spread.half(level), one.level
    ratio = Interval(*map(float, np.exp([middle, middle - half, middle + half])))
    p, about = one.level_spread.p(middle), extras | {"at": one.at}
    return Finding(question=question, case=pair.case(metric), p=p, extras=about, **around(ratio))


def _law_row(pair: Pair, metric: str, one: Apart, level: Finding, same: Finding) -> LawRow:
    return LawRow(
        **pair.keys, metric=_label(metric), at_S=one.at, ratio=level.interval, p_families=level.p_corrected,
        alpha_A=one.a.alpha, alpha_B=one.b.alpha, difference=same.interval,
        p_exponents=same.p_corrected, verdict=same.verdict, **same.extras,
    )  # fmt: skip


def _equal_row(pair: Pair, one: Finding) -> EqualRow:
    about: Any = {"at": one.extras["at"], "ratio": one.interval, "p": one.p_corrected, "verdict": one.verdict}
    return EqualRow(**pair.keys, metric=_label(one.case["metric"]), **about)


def _word_rows(side: Side, level: float) -> Iterator[WordRow]:
    values = side.word_values
    for metric in values.metrics if values else ():
        if values and (law := values.fit(metric, side.family.s, level=level)):
            y = values.of(metric)[0]
            first, last = (y if metric == BITS else np.exp(-y))[[0, -1]]
            cells: Any = {"alpha": exponent(law), "r2": law.r2, "smallest": float(first), "largest": float(last)}
            yield WordRow(**side.family.keys, metric=metric, **cells)


def _of_models(summary: Iterable[SummaryRow]) -> Iterator[Finding]:
    """How many models of equal S differ on these very texts."""
    for row in (row for row in summary if row.pairs):
        sure = row.A_better + row.B_better
        yield Finding(
            question=MODELS,
            case={"a": row.A, "b": row.B, "dataset": row.on, "metric": row.metric},
            verdict=Verdict.DIFFERENT if sure else Verdict.UNTOLD,
            extras={"pairs": row.pairs, "a_better": row.A_better, "b_better": row.B_better},
        )


def _caveats(pairs: list[Pair], models: list[ModelRow]) -> Iterator[str]:
    for side in {side.path: side for pair in pairs for side in (pair.a, pair.b)}.values():
        moved = side.family.column("split_difference")
        if np.isfinite(moved).any():
            yield (
                f"{side.path}: {np.isfinite(moved).sum()} of {len(moved)} models were split in half precision, which "
                f"moved some ranks (logits differ by up to {np.nanmax(moved):.2g} of the largest from the whole "
                "model's): differences of a few places against them are of the split, not of the models."
            )
    for pair in (pair for pair in pairs if pair.same_dataset and pair.other_tokens):
        instead = "whole words and bits per byte, as here" if pair.a.words and pair.b.words else "nats of the text"
        text = f"{pair.keys['A']} and {pair.keys['B']} cut {pair.keys['on']} into different tokens: compare {instead}"
        yield f"{text}, not RBP_k or CE."
    for a, b in dict.fromkeys((row.A, row.B) for row in models if not row.documents > 0):
        yield (
            f"{a} and {b}: imported without ranks; logged values, taken to be of the same texts, with logged "
            "standard errors where there are any. Without them a difference is undecided."
        )
