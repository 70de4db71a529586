"""How much of cross-entropy, and of its fall, is rank? Both at equal loss; what predicts sequences.

CE = E[ln R] + E[-ln(p R)] exactly: a part that ranks alone fix, and the rest; each has a law in size and a share of the
fall of CE, and the rank part is a sum over k. Then figures 1, 2 and 8 and section 5.1 of arXiv 2510.20387: over all
families, sizes and checkpoints, is -ln RBP_k one curve of CE; do larger models rank better at equal p(target); and does
CE or RBP_k predict, at sizes and families left out, how often whole windows or answers succeed.

The rank part is computed from the counts of ranks, E[ln R] = sum over k of ln(1 + 1/k) (1 - RBP_k), the rest token by
token; the two must add up to CE to 1e-9. It differs from error entropy, which also falls when ranks become equally
bad.

At equal loss: -ln RBP_k against CE, a parabola in logarithms; families' offsets are tested with documents resampled.
Families with other tokenizers have other units of CE: compare bits per byte first. At equal p: the gain in RBP_k
between two sizes is split (Kitagawa) into tokens that move to a higher p, and better ranks at equal p; CE sees only
the former.

Predicting sequences: ln(-ln share) of a size or family left out is predicted by a line in ln CE and by one in ln(-ln
RBP_k). A winner is named under equality in 1 to 6% of simulations with sizes left out, 5 to 7% with families.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from rbptrack.analysis import Analyzer, BadInput, Drawing, Report, Runs, rbp_name
from rbptrack.analysis.families import Family, read_families
from rbptrack.analysis.findings import Finding, Verdict, around, by_sign, corrected, sure, within_margin
from rbptrack.analysis.rows import UNKNOWN, OfSize, columns_of, exponent
from rbptrack.ranks import BANDS, HEADLINE_KS, FloatArray, RankAndRest
from rbptrack.stats.answers import Answers, read_answers
from rbptrack.stats.intervals import Interval

from .counts import Counts, Everything, ends_at_p, per_size, resampled_points
from .equal_loss import Resampled, collapse, families_needed, predict_left_out
from .figures import draw_equal_loss, draw_ranks_at_p, draw_spectrum, draw_whole_windows
from .findings import CollapsesOnCe, ExponentsOfParts, Predicts, RanksAtEqualP, ShareOfFall
from .parts import Parts, detectable
from .rank_and_probability import PER_SIZE, RANK_EDGES, RankAndProbability, countable_ks, split_of_gain
from .rows import FallRow, GainRow, PartLawRow, PredictionRow, SpectrumRow, SplitRow, SummaryRow

ALL = "all together"


@dataclass(kw_only=True)
class RankAndCe(Analyzer):
    """How much of cross-entropy is rank, and whether ranks tell more: at equal loss, at equal p, of whole sequences.

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
    ks: list[int] = field(default_factory=lambda: [*HEADLINE_KS])
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
            joint = list[RankAndProbability]()
            answers = list[Answers]()
            split = list[RankAndRest]()
            lengths = sorted({*self.lengths, self.predicted})
            ks = sorted({1, *self.ks})
            for piece in runs.rank_pieces(run_id):
                joint.append(RankAndProbability.of(piece, lengths=lengths, ks=ks))
                answers.append(read_answers(piece, self.ks, cut_at=family.cut_at))
                split.append(RankAndRest.of(piece))
            return Counts(
                RankAndProbability.concatenate(joint), Answers.concatenate(answers), RankAndRest.concatenate(split)
            )

        everything = list(read_families(runs, load, report.notes))
        if not everything:
            raise report.nothing_found("no measurement with ranks")
        points = self._points(everything)
        self._ask_parts(report, everything)
        self._ask_equal_loss(report, points, resampled_points(everything, self.ks, replicates=self.replicates))
        self._ask_equal_p(report, everything)
        self._ask_predictions(report, points)
        report.summary = next(iter(report.tables))
        for name, (quantity, columns) in PER_SIZE.items():
            report.add_table(name, per_size(everything, quantity), {**columns_of(OfSize), **columns})
        report.drawings["equal_loss"] = Drawing(
            draw_equal_loss(points, rbp_name(self.shown)),
            f"-ln RBP_{self.shown} against CE, a point per model. If the law of RBP were only that of CE, all "
            "would lie on one curve.",
        )
        report.drawings["rank_and_probability"] = Drawing(
            draw_ranks_at_p({str(family): ends_at_p(family, counts) for family, counts in everything}),
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
            countable = ", ".join(str(edge - 1) for edge in RANK_EDGES[1:-1])
            raise BadInput(
                f"analyzer.ks={self.ks} analyzer.shown={self.shown}: expected k of {countable}, shown among them"
            )

    def _points(self, everything: Everything) -> pd.DataFrame:
        """Return a row per model on a text: its family, CE, RBP_k, and the shares of sequences of either kind that
        succeed.
        """
        rows = []
        for family, counts in everything:
            answered = all(len(size.answers.length) for size in counts)
            for size in counts:
                row: dict[str, Any] = {**family.keys, "series": str(family), "ce": size.joint.ce}
                row |= {"dataset": family.dataset + family.candidates, "candidates": family.candidates}
                for j, k in enumerate(self.ks):
                    row[f"rbp_{k}"] = size.joint.rbp(k)
                    row[f"windows_{k}"] = size.joint.success(self.predicted, k)
                    row[f"answers_{k}"] = size.answers.whole[:, j].mean() if answered else np.nan
                rows.append(row)
        return pd.DataFrame(rows)

    def _ask_parts(self, report: Report, everything: Everything) -> None:
        """Ask how much of CE, and of its fall with size, is rank, and whether rank falls faster than the rest."""
        split = list[tuple[Family, Parts]]()
        for family, counts in everything:
            impossible = sum(int(size.split.impossible.sum()) for size in counts)
            if impossible:
                tokens = f"{impossible:,} tokens have a p(target) above 1/R"
                report.notes.append(f"{family}: {tokens}, so that CE is not split into rank and rest.")
            else:
                sizes = [size.split for size in counts]
                split.append((family, Parts.of(sizes, replicates=self.replicates, level=self.level)))
        report.add_rows("split", (row for case in split for row in self._split_rows(*case)))
        falls = [self._fall_row(*case) for case in split if len(case[1].values) > 1]
        report.add_rows("fall", falls)
        report.add_metrics("rank_share_of_fall/{family}/{dataset}", falls, "share")
        report.findings += [ShareOfFall.of(row) for row in falls]
        self._ask_exponents(report, split)
        spectrum = [row for case in split for row in self._spectrum_rows(*case)]
        report.add_rows("spectrum", spectrum)
        if spectrum:
            report.drawings["spectrum"] = Drawing(
                draw_spectrum(spectrum),
                "Share of the fall of CE, from the smallest to the largest size, that lies in each band of k of "
                "sum over k of ln(1 + 1/k) (1 - RBP_k), with intervals. The bands add up to the rank part's share.",
            )

    def _split_rows(self, family: Family, parts: Parts) -> Iterator[SplitRow]:
        for i, (keys, values) in enumerate(zip(family.size_keys, parts.values, strict=True)):
            ce, rank, rest = values.tolist()
            yield SplitRow(**keys, ce=ce, rank=rank, rest=rest, share=parts.rank_share(i, self.level))

    def _fall_row(self, family: Family, parts: Parts) -> FallRow:
        fall, rank, _ = (parts.values[0] - parts.values[-1]).tolist()
        sizes = f"{family.labels[0]} to {family.labels[-1]}"
        row = FallRow(**family.keys, sizes=sizes, fall=fall, rank=rank)
        if parts.falls:
            row.share = parts.share_of_fall(self.level)
        return row

    def _ask_exponents(self, report: Report, split: Sequence[tuple[Family, Parts]]) -> None:
        rows = list[PartLawRow]()
        findings = list[ExponentsOfParts]()
        contrasts = [(family, parts, parts.contrast(family.s, self.level)) for family, parts in split]
        fitted = [(family, parts, law) for family, parts, law in contrasts if law]
        for family, parts, law in fitted:
            findings.append(
                ExponentsOfParts(
                    case=family.keys,
                    p=law.spread.p(law.alpha),
                    detectable=detectable(law, level=self.level, tests=len(fitted)),
                    **around(law.exponent),
                )
            )
            ce, rank, rest = (exponent(part) for part in parts.laws(family.s, self.level))
            rows.append(
                PartLawRow(
                    **family.keys,
                    alpha_ce=ce,
                    alpha_rank=rank,
                    alpha_rest=rest,
                    difference=law.exponent,
                    p=law.spread.p(law.alpha),
                    p_corrected=np.nan,
                )
            )
        findings = corrected(findings, sure(self.level))
        for row, finding in zip(rows, findings, strict=True):
            row.p_corrected = finding.p_corrected
        report.findings += findings
        report.add_rows("part_laws", rows)
        for part in ("rank", "rest"):
            report.add_metrics(f"alpha_of_{part}/{{family}}/{{dataset}}", rows, f"alpha_{part}")

    def _spectrum_rows(self, family: Family, parts: Parts) -> Iterator[SpectrumRow]:
        """Yield the bands of k below |V|; none where CE does not fall significantly."""
        if len(parts.values) < 2 or not parts.falls:
            return
        ends = [*(BANDS[1:] - 1), family.vocab_size]
        shares = parts.band_shares(self.level)
        for j, (first, last, share) in enumerate(zip(BANDS, ends, shares, strict=True)):
            if first < family.vocab_size:
                yield SpectrumRow(
                    **family.keys,
                    k=int(first),
                    last_k=int(min(last, family.vocab_size - 1)),
                    smallest=float(parts.bands[0, j]),
                    largest=float(parts.bands[-1, j]),
                    share=share,
                )

    def _ask_equal_loss(self, report: Report, points: pd.DataFrame, resampled: Mapping[int, Resampled]) -> None:
        """Ask whether all families, sizes and checkpoints lie on one curve of RBP_k over CE."""
        places = {
            dataset: rows.assign(series=rows["family"]) for dataset, rows in points.groupby("dataset", sort=False)
        }
        for candidates, rows in points.groupby("candidates", sort=False):
            if rows["dataset"].nunique() > 1:
                places[f"{ALL}{candidates}"] = rows
        curves = [self._collapsed(str(place), k, rows, resampled[k]) for place, rows in places.items() for k in self.ks]
        findings = corrected((curve for curve in curves if curve), self._decided)
        report.findings += findings
        report.add_rows("collapse", (curve.row() for curve in findings))

    def _collapsed(self, place: str, k: int, points: pd.DataFrame, resampled: Resampled) -> CollapsesOnCe | None:
        """Return the curve of one dataset, or of all together; None with too few points."""
        usable = points[points[f"rbp_{k}"].between(0, 1, inclusive="neither")]
        if len(usable) < 4 or np.ptp(usable["ce"]) == 0:
            return None
        series, names = pd.factorize(usable["series"])
        law = collapse(
            usable["ce"].to_numpy(),
            -np.log(usable[f"rbp_{k}"].to_numpy()),
            series,
            level=self.level,
            resampled=Resampled(resampled.ce[:, usable.index], resampled.y[:, usable.index], resampled.documents),
        )
        several = len(names) > 1
        at = int(np.argmax(np.abs(law.apart)))
        apart = UNKNOWN
        if several:
            apart = Interval(*np.expm1(law.apart[at] + np.array([0, -1, 1]) * law.half[at]))
        reason = ""
        if not np.isfinite(law.p):
            reason = "few points" if several else "one series"
        return CollapsesOnCe(
            case={"dataset": place, "metric": rbp_name(k)},
            p=law.p,
            reason=reason,
            margin=self.margin,
            series=len(names),
            points=law.points,
            explained=law.explained,
            left=law.left,
            farthest=names[at] if several else "",
            largest=float(np.max(np.expm1(np.abs(law.apart) + law.half))),
            **around(apart),
        )

    def _decided(self, finding: Finding) -> Verdict:
        near = isinstance(finding, CollapsesOnCe) and finding.largest <= self.margin
        if finding.p_corrected < 1 - self.level:
            return Verdict.CLOSE if near else Verdict.DIFFERENT
        return Verdict.SAME if near else Verdict.UNTOLD

    def _split(self, first: Counts, second: Counts, k: int) -> tuple[FloatArray, FloatArray]:
        """Mix and within, (2,), and their replicates, (replicates, 2)."""
        if len(first.joint.nats) != len(second.joint.nats):
            return np.full(2, np.nan), np.full((1, 2), np.nan)
        once, draws = first.rates(k, self.replicates)
        other, others = second.rates(k, self.replicates)
        return split_of_gain(once, other)[0], split_of_gain(draws, others)

    def _ask_equal_p(self, report: Report, everything: Everything) -> None:
        """Ask whether larger models rank better at equal p(target), which cross-entropy does not see."""
        summary = [self._summary_row(family, counts) for family, counts in everything]
        report.findings += map(self._finding, summary)
        report.add_rows("summary", summary)
        report.add_rows("gains", (row for family, counts in everything for row in self._gain_rows(family, counts)))
        report.add_metrics("within_share/{family}/{dataset}/rbp_{k}", summary, "within_share")

    def _summary_row(self, family: Family, counts: Sequence[Counts]) -> SummaryRow:
        row = SummaryRow(**family.keys, sizes=family.labels[0], k=self.shown)
        if len(counts) == 1:
            return row
        parts, draws = self._split(counts[0], counts[-1], self.shown)
        row.sizes = f"{family.labels[0]} and {family.labels[-1]}"
        row.gain = float(parts.sum())
        if abs(row.gain) > 2 * float(draws.sum(axis=1).std()):
            shares = draws[:, 1] / draws.sum(axis=1)
            row.within_share = counts[-1].interval(float(parts[1]) / row.gain, shares, self.level)
        return row

    def _finding(self, row: SummaryRow) -> RanksAtEqualP:
        share = row.within_share
        verdict = by_sign(share)
        if max(abs(share.low), abs(share.high)) <= self.margin:
            verdict = Verdict.SAME
        reason = ""
        if not np.isfinite(share.value):
            reason = "one size" if np.isnan(row.gain) else "no gain"
        return RanksAtEqualP(
            case=row.case(metric=rbp_name(self.shown)),
            verdict=within_margin(verdict, share, self.margin),
            reason=reason,
            margin=self.margin,
            gain=row.gain,
            sizes=row.sizes,
            **around(share),
        )

    def _gain_rows(self, family: Family, counts: Sequence[Counts]) -> Iterator[GainRow]:
        labels = family.labels
        for i in range(1, len(counts)):
            for k in self.ks:
                parts, draws = self._split(counts[i - 1], counts[i], k)
                mix, within = (counts[i].interval(float(parts[j]), draws[:, j], self.level) for j in (0, 1))
                yield GainRow(
                    **family.keys,
                    size=labels[i],
                    from_size=labels[i - 1],
                    k=k,
                    gain=float(parts.sum()),
                    mix=mix,
                    within=within,
                )

    def _ask_predictions(self, report: Report, points: pd.DataFrame) -> None:
        """Ask which of CE and RBP_k predicts whole sequences at sizes and at families left out: two questions."""
        rows = [row for left_out in ("sizes", "families") for row in self._predictions(report, points, left_out)]
        report.add_rows("predictions", rows)

    def _predictions(self, report: Report, points: pd.DataFrame, left_out: str) -> Iterator[PredictionRow]:
        outcomes = {"windows": f"{self.predicted} tokens in a row", "answers": "whole answers"}
        made = []
        for dataset, of_dataset in points.groupby("dataset", sort=False):
            for k, (column, outcome) in product(self.ks, outcomes.items()):
                measured = of_dataset[of_dataset[f"{column}_{k}"].notna()]
                share, ce, rbp = (measured[name].to_numpy() for name in (f"{column}_{k}", "ce", f"rbp_{k}"))
                families = pd.factorize(measured["family"])[0]
                if prediction := predict_left_out(share, ce, rbp, families, sizes=left_out == "sizes"):
                    made.append((str(dataset), outcome, k, prediction))
        needed = families_needed(len(made), self.level) if made and left_out == "families" else 0
        findings = corrected(
            (
                Predicts(
                    question=f"predicts, {left_out} left out",
                    case={"dataset": dataset, "outcome": outcome, "metric": rbp_name(k)},
                    p=prediction.p,
                    reason="few families" if prediction.families < needed else "",
                    left_out=left_out,
                    better=prediction.better,
                    needed=needed,
                )
                for dataset, outcome, k, prediction in made
            ),
            self._named,
        )
        report.findings += findings
        for (dataset, outcome, k, prediction), finding in zip(made, findings, strict=True):
            untold = f"needs {needed} families" if finding.reason else "undecided"
            cells = asdict(prediction)
            cells["better"] = untold if finding.verdict is Verdict.UNTOLD else prediction.better
            yield PredictionRow(
                dataset=dataset, outcome=outcome, k=k, left_out=left_out, p_corrected=finding.p_corrected, **cells
            )

    def _named(self, finding: Finding) -> Verdict:
        """Return YES: RBP_k predicts better; NO: CE does."""
        better = finding.better if isinstance(finding, Predicts) else "undecided"
        if finding.reason or finding.p_corrected > 1 - self.level or better == "undecided":
            return Verdict.UNTOLD
        return Verdict.NO if better == "CE" else Verdict.YES
