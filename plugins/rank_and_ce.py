"""Is the law of RBP only that of cross-entropy? Both at equal loss; rank beside probability; what predicts sequences.

Figures 1, 2 and 8 and section 5.1 of arXiv 2510.20387. First: over all families, sizes and checkpoints, is -ln RBP_k
one curve of CE, and what is left at equal loss. Then how much of a rank follows from p(target) (at p at most 1/p
entries can have as much, so R <= 1/p), whether larger models rank better at equal p, and whether CE or RBP_k predicts,
at sizes and families left out, how often whole windows or answers succeed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis import Analyzer, BadInput, Drawing, Report, Runs, parse_rbp_name, rbp_name
from rbptrack.analysis.families import Family, Pooled, read_families
from rbptrack.analysis.family_figures import curve_panels, curves_of
from rbptrack.analysis.findings import Finding, Verdict, around, by_sign, corrected
from rbptrack.analysis.rank_figures import draw_ranks_at_p, draw_whole_windows
from rbptrack.analysis.rows import UNKNOWN, Column, Corrected, K, OfFamily, OfSize, P, columns_of
from rbptrack.ranks import FloatArray, metric_label
from rbptrack.stats.answers import Answers, read_answers
from rbptrack.stats.bootstrap import document_weights
from rbptrack.stats.equal_loss import collapse, families_needed, predict_left_out
from rbptrack.stats.intervals import Interval, percentiles, widening, worth
from rbptrack.stats.rank_and_probability import (
    PER_SIZE,
    RANK_EDGES,
    RankAndProbability,
    Rates,
    countable_ks,
    split_of_gain,
)

ALL = "all together"
_RESAMPLED = "lower end of its interval (documents resampled)"
Share = Annotated[float, Column("of the variance of ln R that -ln p explains at the largest size", form=".1%")]


@dataclass(kw_only=True)
class CollapseRow:
    """The curve of RBP_k over CE through all models on a dataset, or on all of them."""

    dataset: Annotated[str, Column("the dataset, or all of them")]
    k: K
    series: Annotated[int, Column("families, checkpoints and datasets that the points are of")]
    points: Annotated[int, Column("models on texts")]
    explained: Annotated[float, Column("share of the variance of ln(-ln RBP_k) that CE explains", form=".1%")]
    left: Annotated[float, Column("root mean square of what it leaves, as a share of -ln RBP_k", form=".1%")]
    farthest: Annotated[str, Column("the series that lies farthest from the others at equal loss")]
    apart: Annotated[Interval, Column("how far: its -ln RBP_k over the mean of all series, less 1", form=".1%")]
    p: P
    p_corrected: Corrected
    verdict: Annotated[str, Column("different; equivalent: every series within the margin; or undecided")]


@dataclass(kw_only=True)
class SummaryRow(OfFamily):
    """One family's gain between its smallest and its largest size."""

    sizes: Annotated[str, Column("smallest and largest size compared")]
    k: K
    gain: Annotated[float, Column("RBP_k of the largest size less that of the smallest")] = np.nan
    within_share: Annotated[
        Interval, Column("share of the gain at equal p(target): unseen by cross-entropy", form=".1%", low=_RESAMPLED)
    ] = UNKNOWN
    told_by_p: Share
    told_by_rank: Annotated[float, Column("share of the variance of -ln p that R explains there", form=".1%")]


@dataclass(kw_only=True)
class GainRow(OfFamily):
    """The gain between two neighbouring sizes, taken apart."""

    size: Annotated[str, Column("the larger size")]
    from_size: Annotated[str, Column("the next smaller one")]
    k: K
    gain: Annotated[float, Column("RBP_k of the larger less that of the smaller")]
    mix: Annotated[Interval, Column("part of it by tokens that move to higher p(target)", low=_RESAMPLED)]
    within: Annotated[Interval, Column("part of it by better ranks at equal p(target)", low=_RESAMPLED)]


@dataclass(kw_only=True)
class PredictionRow:
    """Whole sequences predicted by CE and by RBP_k."""

    dataset: Annotated[str, Column("the dataset")]
    outcome: Annotated[str, Column("what is predicted: windows of N tokens, or whole answers, with every R <= k")]
    k: Annotated[int, Column("of R <= k")]
    left_out: Annotated[str, Column("sizes one at a time, or families")]
    points: Annotated[int, Column("predictions made")]
    families: Annotated[int, Column("of which the points are")]
    error_ce: Annotated[float, Column("root mean square error of ln(-ln share), by a line in ln CE", "error by CE")]
    error_rbp: Annotated[float, Column("the same, by a line in ln(-ln RBP_k)", "error by RBP_k")]
    p: Annotated[
        float, Column("p of outcomes that lean to neither: whole families flipped, or a t test within families", "p")
    ]
    p_corrected: Corrected = np.nan
    better: Annotated[str, Column("which predicts better, or undecided; or how many families it takes to tell")] = ""


@dataclass(frozen=True)
class Counts(Pooled):
    """One model on one text; the runs of a size add."""

    joint: RankAndProbability
    answers: Answers
    _rates: dict[int, tuple[dict[int, Rates], dict[int, Rates]]] = field(default_factory=dict, repr=False)

    def rates(self, k: int, replicates: int) -> tuple[Rates, Rates]:
        """`Rates` once and in document bootstraps; kept, because neighbouring sizes share it."""
        if replicates not in self._rates:
            weights = document_weights(len(self.joint.tokens), replicates=replicates)
            once = np.ones((1, weights.shape[1]))
            self._rates[replicates] = Rates.of(self.joint, once), Rates.of(self.joint, weights)
        point, draws = self._rates[replicates]
        return point[k], draws[k]

    def interval(self, value: float, draws: FloatArray, level: float) -> Interval:
        """The percentile interval, its sides as much longer as few documents ask for."""
        wider = widening(worth(np.sqrt(self.joint.tokens.sum(axis=(1, 2)))), level)
        low, high = percentiles(draws, level=level)
        return Interval(value, value - wider * (value - low), value + wider * (high - value))


Everything = list[tuple[Family, list[Counts]]]
Columns = Callable[[RankAndProbability], Mapping[str, FloatArray]]


@dataclass(kw_only=True)
class RankAndCe(Analyzer):
    """Whether ranks tell more than cross-entropy: at equal loss, at equal probability, and of whole sequences.

    Attributes:
        ks: the k; one of 1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 3000.
        shown: the k of the sentences and figures.
        lengths: the N of windows of consecutive tokens.
        predicted: the N whose success is predicted at sizes left out.
        margin: how far families may lie apart at equal loss, as a share of -ln RBP_k, and count as one curve.
        level: nominal coverage of the intervals; tests have size 1 - level.
        replicates: document bootstraps.

    """

    name: ClassVar[str] = "rank_and_ce"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    shown: int = 10
    lengths: list[int] = field(default_factory=lambda: [1, 2, 4, 8, 16])
    predicted: int = 8
    margin: float = 0.1
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Count ranks and probabilities together in every measurement."""
        self._check()
        report = Report()

        def load(family: Family, run_id: str) -> Counts:
            joint, answers = list[RankAndProbability](), list[Answers]()
            lengths, ks = sorted({*self.lengths, self.predicted}), sorted({1, *self.ks})
            for piece in runs.rank_pieces(run_id):
                joint.append(RankAndProbability.of(piece, lengths=lengths, ks=ks))
                answers.append(read_answers(piece, self.ks, cut_at=family.cut_at))
            return Counts(RankAndProbability.concatenate(joint), Answers.concatenate(answers))

        everything = list(read_families(runs, load, report.notes))
        if not everything:
            raise report.nothing_found("no measurement with ranks")
        points = self._points(everything)
        self._ask_equal_loss(report, points)
        self._ask_equal_p(report, everything)
        self._ask_predictions(report, points)
        report.summary = next(iter(report.tables))
        for name, (quantity, columns) in PER_SIZE.items():
            report.add_table(name, _per_size(everything, quantity), {**columns_of(OfSize), **columns})
        report.drawings["equal_loss"] = Drawing(
            self._draw_equal_loss(points),
            f"-ln RBP_{self.shown} against CE, a point per model. If the law of RBP were only that of CE, all "
            "would lie on one curve.",
        )
        report.drawings["rank_and_probability"] = Drawing(
            draw_ranks_at_p({str(family): _ends(family, counts) for family, counts in everything}),
            "Ranks at equal p(target): median, and 5 to 95%, of the smallest and the largest size. Grey: above the "
            "bound R <= 1/p. Bins of 0.25 nats and more; of a bin of ranks the first.",
        )
        report.drawings["windows"] = Drawing(
            draw_whole_windows({f"{f}, {f.labels[-1]}": c[-1].joint.whole_windows() for f, c in everything}),
            "Whole windows at the largest size: measured, and as predicted by RBP_1 or by CE alone.",
        )
        return report

    def _check(self) -> None:
        unknown = [k for k in self.ks if k not in countable_ks(self.ks)]
        if unknown or self.shown not in self.ks:
            known = ", ".join(str(edge - 1) for edge in RANK_EDGES[1:-1])
            raise BadInput(
                f"analyzer.ks={self.ks} analyzer.shown={self.shown}: expected k of {known}, shown among them"
            )

    def _points(self, everything: Everything) -> pd.DataFrame:
        """A row per model on a text: its family, CE, RBP_k, and the shares of sequences of either kind that succeed."""
        rows = []
        for family, counts in everything:
            answered = all(len(one.answers.length) for one in counts)
            for one in counts:
                row: dict[str, Any] = family.keys | {"series": str(family), "ce": one.joint.ce}
                for j, k in enumerate(self.ks):
                    row |= {f"rbp_{k}": one.joint.rbp(k), f"windows_{k}": one.joint.success(self.predicted, k)}
                    row[f"answers_{k}"] = one.answers.whole[:, j].mean() if answered else np.nan
                rows.append(row)
        return pd.DataFrame(rows)

    def _ask_equal_loss(self, report: Report, points: pd.DataFrame) -> None:
        """Ask whether all families, sizes and checkpoints lie on one curve of RBP_k over CE."""
        places = {
            dataset: mine.assign(series=mine["family"]) for dataset, mine in points.groupby("dataset", sort=False)
        }
        places |= {ALL: points} if len(places) > 1 else {}
        asked = [one for place in places for k in self.ks if (one := self._collapsed(str(place), k, places[place]))]
        findings = corrected(asked, self._decided)
        report.findings += findings
        report.add_rows("collapse", map(_collapse_row, findings))

    def _collapsed(self, place: str, k: int, points: pd.DataFrame) -> Finding | None:
        """The curve of one dataset, or of all together; None where there are too few points for one."""
        mine = points[points[f"rbp_{k}"].between(0, 1, inclusive="neither")]
        if len(mine) < 4 or np.ptp(mine["ce"]) == 0:
            return None
        series, names = pd.factorize(mine["series"])
        law = collapse(mine["ce"].to_numpy(), -np.log(mine[f"rbp_{k}"].to_numpy()), series, level=self.level)
        several, at = len(names) > 1, int(np.argmax(np.abs(law.apart)))
        apart = UNKNOWN
        if several:
            apart = Interval(*np.expm1(law.apart[at] + np.array([0, -1, 1]) * law.half[at]))
        extras: dict[str, Any] = {"series": len(names), "points": law.points, "explained": law.explained}
        extras |= {"left": law.left, "farthest": names[at] if several else "", "margin": self.margin}
        extras["largest"] = float(np.max(np.expm1(np.abs(law.apart) + law.half)))
        reason = ""
        if not np.isfinite(law.p):
            reason = "few points" if several else "one series"
        return Finding(
            question="collapses on CE",
            case={"dataset": place, "metric": rbp_name(k)},
            p=law.p,
            reason=reason,
            extras=extras,
            **around(apart),
        )

    def _decided(self, one: Finding) -> Verdict:
        near = one.extras["largest"] <= self.margin
        if one.p_corrected < 1 - self.level:
            return Verdict.CLOSE if near else Verdict.DIFFERENT
        return Verdict.SAME if near else Verdict.UNTOLD

    def _split(self, first: Counts, second: Counts, k: int) -> tuple[FloatArray, FloatArray]:
        """Mix and within, (2,), and their replicates, (replicates, 2)."""
        if len(first.joint.nats) != len(second.joint.nats):
            return np.full(2, np.nan), np.full((1, 2), np.nan)
        (once, draws), (other, others) = (one.rates(k, self.replicates) for one in (first, second))
        return split_of_gain(once, other)[0], split_of_gain(draws, others)

    def _ask_equal_p(self, report: Report, everything: Everything) -> None:
        """Ask whether larger models rank better at equal p(target), which cross-entropy does not see."""
        summary = [self._summary_row(family, counts) for family, counts in everything]
        report.findings += map(self._finding, summary)
        report.add_rows("summary", summary)
        report.add_rows("gains", (row for family, counts in everything for row in self._gain_rows(family, counts)))
        for quantity, name in (("within_share", "/rbp_{k}"), ("told_by_p", "")):
            report.add_metrics(f"{quantity}/{{family}}/{{dataset}}{name}", summary, quantity)

    def _summary_row(self, family: Family, counts: Sequence[Counts]) -> SummaryRow:
        last = counts[-1].joint
        told: dict[str, Any] = {"told_by_p": last.told_by_p, "told_by_rank": last.told_by_rank}
        row = SummaryRow(**family.keys, sizes=family.labels[0], k=self.shown, **told)
        if len(counts) == 1:
            return row
        parts, draws = self._split(counts[0], counts[-1], self.shown)
        row.sizes, row.gain = f"{family.labels[0]} and {family.labels[-1]}", float(parts.sum())
        if abs(row.gain) > 2 * float(draws.sum(axis=1).std()):
            shares = draws[:, 1] / draws.sum(axis=1)
            row.within_share = counts[-1].interval(float(parts[1]) / row.gain, shares, self.level)
        return row

    def _finding(self, row: SummaryRow) -> Finding:
        share = row.within_share
        near = max(abs(share.low), abs(share.high)) <= self.margin
        reason = ""
        if not np.isfinite(share.value):
            reason = "one size" if np.isnan(row.gain) else "no gain"
        return Finding(
            question="ranks at equal p",
            case=row.case(metric=rbp_name(self.shown)),
            verdict=Verdict.SAME if near else by_sign(share),
            reason=reason,
            extras={"gain": row.gain, "sizes": row.sizes, "told_by_p": row.told_by_p},
            **around(share),
        )

    def _gain_rows(self, family: Family, counts: Sequence[Counts]) -> Iterator[GainRow]:
        labels = family.labels
        for i in range(1, len(counts)):
            for k in self.ks:
                parts, draws = self._split(counts[i - 1], counts[i], k)
                mix, within = (counts[i].interval(float(parts[j]), draws[:, j], self.level) for j in (0, 1))
                cells: Any = {"k": k, "gain": float(parts.sum()), "mix": mix, "within": within}
                yield GainRow(**family.keys, size=labels[i], from_size=labels[i - 1], **cells)

    def _ask_predictions(self, report: Report, points: pd.DataFrame) -> None:
        """Ask which of CE and RBP_k predicts whole sequences at sizes and at families left out: two questions."""
        names, rows = (
            {"windows": f"{self.predicted} tokens in a row", "answers": "whole answers"},
            list[PredictionRow](),
        )
        for left_out in ("sizes", "families"):
            made = []
            for dataset, every in points.groupby("dataset", sort=False):
                for k, (column, outcome) in product(self.ks, names.items()):
                    mine = every[every[f"{column}_{k}"].notna()]
                    share, ce, rbp = (mine[name].to_numpy() for name in (f"{column}_{k}", "ce", f"rbp_{k}"))
                    number = pd.factorize(mine["family"])[0]
                    if one := predict_left_out(share, ce, rbp, number, sizes=left_out == "sizes"):
                        made.append(((str(dataset), outcome, k), one))
            needed = families_needed(len(made), self.level) if made and left_out == "families" else 0
            asked = [
                Finding(
                    question=f"predicts, {left_out} left out",
                    case={"dataset": dataset, "outcome": outcome, "metric": rbp_name(k)},
                    p=one.p,
                    reason="few families" if one.families < needed else "",
                    extras={"needed": needed, "better": one.better},
                )
                for (dataset, outcome, k), one in made
            ]
            report.findings += (findings := corrected(asked, self._named))
            for ((dataset, outcome, k), one), finding in zip(made, findings, strict=True):
                untold = f"needs {needed} families" if finding.reason else "undecided"
                better = untold if finding.verdict is Verdict.UNTOLD else one.better
                cells = asdict(one) | {"better": better, "p_corrected": finding.p_corrected}
                rows.append(PredictionRow(dataset=dataset, outcome=outcome, k=k, left_out=left_out, **cells))
        report.add_rows("predictions", rows)

    def _named(self, one: Finding) -> Verdict:
        """YES: RBP_k predicts better; NO: CE does."""
        if one.reason or one.p_corrected > 1 - self.level or one.extras["better"] == "undecided":
            return Verdict.UNTOLD
        return Verdict.NO if one.extras["better"] == "CE" else Verdict.YES

    def _draw_equal_loss(self, points: pd.DataFrame) -> Figure:
        """Figure 8a of arXiv 2510.20387, with both axes logarithmic."""
        metric = rbp_name(self.shown)
        drawn = points.assign(y=-np.log(points[metric].where(points[metric].between(0, 1, inclusive="neither"))))
        curves = list(curves_of(drawn, "ce", "y", panel="{dataset}", series="{family}", label="{family}"))
        ylabel = f"−ln {metric_label(metric)}"
        return curve_panels(curves, xlabel="CE, nats", ylabel=ylabel, logs="xy", sharey=True)[0]


def _collapse_row(one: Finding) -> CollapseRow:
    told: dict[str, Any] = {name: one.extras[name] for name in ("series", "points", "explained", "left", "farthest")}
    told |= {"apart": one.interval, "p": one.p}
    k, verdict = parse_rbp_name(one.case["metric"]) or 0, one.reason or one.verdict
    return CollapseRow(dataset=one.case["dataset"], k=k, p_corrected=one.p_corrected, verdict=verdict, **told)


def _per_size(
    everything: Everything, columns: Callable[[RankAndProbability], Mapping[str, FloatArray]]
) -> pd.DataFrame:
    """A table of what each size of each family has, its sizes in order."""
    sizes = [(keys, one) for family, counts in everything for keys, one in zip(family.size_keys, counts, strict=True)]
    return pd.concat([pd.DataFrame(keys | dict(columns(one.joint))) for keys, one in sizes], ignore_index=True)


def _ends(family: Family, counts: Sequence[Counts]) -> dict[str, Mapping[str, FloatArray]]:
    """Ranks at equal p of the smallest and the largest size, by label."""
    return {family.labels[i]: counts[i].joint.at_equal_p() for i in sorted({0, len(counts) - 1})}
