"""Sequences of successes: independent or not, the size at which half of them succeed, and whole answers.

Figure 7 and eqs. 6 to 8 of arXiv 2510.20387 take tokens for independent: p_{N,k} = RBP_k^N, so -ln p = N A S^-alpha.
Here the share of windows is measured, set beside a ladder of nulls (independent; a share of hits that drifts with the
position; hits anywhere in their document; a first-order Markov chain), and alpha_N and C_N are fitted freely for every
N before they are compared with alpha and N C_1. By the law success is an S-shaped curve over ln S, steep in no special
place: S_50 is where half of the windows of N tokens (or of the whole answers) succeed. Whole answers are the last field
of datasets of several fields (question and answer, prompt and solution); k = 1 is the greedy exact match.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np

from rbptrack.analysis import Analyzer, Drawing, Report, Runs, rbp_name
from rbptrack.analysis.families import Family, Pooled, few_sizes, read_families
from rbptrack.analysis.findings import Finding, Verdict, around, corrected
from rbptrack.analysis.rows import R2, UNKNOWN, Column, Exponent, K, OfFamily, OfSize, cells_of, columns_of, exponent
from rbptrack.analysis.success_figures import draw_alpha_of_n, draw_answers, draw_half, draw_ladder, draw_success
from rbptrack.stats.answers import Answers, answers_by_size, read_answers
from rbptrack.stats.bootstrap import document_weights, drawn_sums
from rbptrack.stats.independence import LengthLaw, SuccessByLength, fit_length_laws, success_by_length
from rbptrack.stats.intervals import Interval
from rbptrack.stats.power_law import PowerLawFit
from rbptrack.stats.segments import PositionBins
from rbptrack.stats.size_laws import fit_law
from rbptrack.stats.success_runs import WindowCounts, count_windows
from rbptrack.stats.thresholds import Threshold, threshold, width_in_decades

ANSWER = "answer"
N = Annotated[int, Column("tokens in a row: consecutive scored tokens of one document")]
Eta = Annotated[float, Column("d ln(-ln p) / d ln N between the length before and N: 1 if independent", title="η")]
_P = "share of windows whose tokens all have R <= k; empty where refused (intervals: document bootstrap)"


@dataclass(kw_only=True)
class SummaryRow(OfFamily):
    """The largest size at the smallest k."""

    size: Annotated[str, Column("its largest size")]
    k: K
    N: N
    p: Annotated[float, Column("share of windows of N tokens that all have R <= k", form=".2e")]
    p_independent: Annotated[float, Column("RBP_k^N: what independent tokens would give", "RBP_k^N", form=".2e")]
    n_eff: Annotated[float, Column("how many independent tokens the window counts as", "N_eff", form=".2f")]
    eta: Eta
    verdict: Annotated[str, Column("the simplest process that explains it within its sampling error")]


@dataclass(kw_only=True)
class WindowRow(OfSize):
    """Windows of N tokens of one size."""

    k: K
    N: N
    p: Annotated[Interval, Column(_P)] = UNKNOWN
    rho: Annotated[Interval, Column("p / RBP_k^N")] = UNKNOWN
    p_independent: Annotated[float, Column("RBP_k^N")]
    p_position: Annotated[float, Column("p of independent hits whose share drifts with the position")]
    p_documents: Annotated[float, Column("p if hits fell anywhere in their document: a mixture over documents")]
    p_markov: Annotated[float, Column("p of a first-order chain: RBP_k q^(N-1), q the share of hits after one")]
    n_eff: Annotated[Interval, Column("ln p / ln RBP_k", "N_eff")] = UNKNOWN
    eta: Eta = np.nan
    by_position: Annotated[float, Column("share of ln p - N ln RBP_k that the drift gives", form=".0%")] = np.nan
    by_documents: Annotated[float, Column("share that the mixture over documents gives", form=".0%")] = np.nan
    by_neighbours: Annotated[float, Column("share that the chain gives", form=".0%")] = np.nan
    runs: Annotated[float, Column("distinct runs of at least N hits")]
    documents: Annotated[float, Column("documents that have one")]
    verdict: Annotated[str, Column("nulls whose distance to ln p has 0 in its interval, at all N > 2 at once")]


@dataclass(kw_only=True)
class LengthRow(OfFamily):
    """The law of one N."""

    k: K
    N: N
    sizes: Annotated[int, Column("sizes with enough runs: the law is fitted to these")]
    alpha: Annotated[Interval, Column("alpha_N of -ln p = C_N S^-alpha_N, fitted freely for this N", "α", form=".3f")]
    C: Annotated[float, Column("C_N, for S in parameters")]
    r2: R2
    alpha_change: Annotated[Interval, Column("alpha_N - alpha_1, same sizes, paired; independence says 0")]
    n_eff_per_n: Annotated[Interval, Column("N_eff / N, geometric mean over sizes; independence says 1")]


@dataclass(kw_only=True)
class HalfRow(OfFamily):
    """The size at which half of the windows, or of the answers, succeed."""

    k: Annotated[int, Column("a token succeeds where R <= k; 1 is the greedy exact match")]
    N: Annotated[str, Column("tokens in a row, or answer: the dataset's last field")]
    sizes: Annotated[int, Column("sizes with enough distinct runs: the law is fitted to these")]
    largest: Annotated[float, Column("share of windows that succeed at the largest size")]
    s_50: Annotated[Interval, Column("size at which half succeed, by the law", "S_50", form="short")]
    read_off: Annotated[float, Column("the same, read off between the two sizes measured", form="short")]
    what: Annotated[str, Column("measured: within the sizes; forecast: beyond the largest; refused, and why")]
    decades: Annotated[Interval, Column("decades of S from 10 to 90%: 1.34 / alpha", form=".1f")]
    alpha: Exponent


@dataclass(kw_only=True)
class AnswerRow(OfSize):
    """Whole answers of one size."""

    k: K
    answers: Annotated[int, Column("documents whose whole answer (the dataset's last field) was scored")]
    mean_length: Annotated[float, Column("tokens of an answer")]
    share: Annotated[
        Interval, Column("share of answers whose every token has R <= k (Wilson's interval, over documents or sources)")
    ]
    rbp_of_answer: Annotated[float, Column("RBP_k of the answers' tokens", "RBP_k of answers")]
    share_independent: Annotated[float, Column("mean over answers of rbp_of_answer^length")]
    share_by_law: Annotated[float, Column("the same with RBP_k from the law of the answers' tokens")] = np.nan


@dataclass(frozen=True)
class Loaded(Pooled):
    """What one run contributes: the window counts of each k, and whole answers."""

    by_k: dict[int, WindowCounts]
    answers: Answers


@dataclass(frozen=True)
class Studied:
    """One family at one k: success of each size, the laws of each N, and whole answers."""

    family: Family
    k: int
    number: int
    sizes: list[SuccessByLength]
    laws: list[LengthLaw]
    answers: list[Answers]
    documents: int


@dataclass(kw_only=True)
class Emergence(Analyzer):
    """Sequences of successes: independent or not, at what size half of them succeed, and whole answers.

    Attributes:
        ks: the k; 1 is the greedy exact match.
        lengths: the window lengths N; 1 is always among them.
        least_runs: an N is refused where fewer distinct runs of hits are that long,
        least_documents: or come from fewer documents.
        least_answers: a measurement with fewer whole answers is left out.
        level: nominal coverage of the intervals; tests have size 1 - level, corrected over all cases (Holm).
        replicates: document bootstraps, drawn jointly for all sizes of a family.

    """

    name: ClassVar[str] = "emergence"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    lengths: list[int] = field(default_factory=lambda: [1, 2, 4, 8, 16, 32, 64])
    least_runs: int = 10
    least_documents: int = 5
    least_answers: int = 10
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Count windows and answers of every measurement; laws need at least 3 sizes."""
        report, lengths = Report(summary="summary"), sorted({1, *self.lengths})
        bins: dict[str, PositionBins] = {}  # by family: all of its models read the same text

        def load(family: Family, run_id: str) -> Loaded:
            if str(family) not in bins:
                bins[str(family)] = PositionBins.of(lambda: runs.rank_pieces(run_id), lengths)
            at, ks = bins[str(family)], self._ks(family)
            windows, answers = list[list[WindowCounts]](), list[Answers]()
            for piece in runs.rank_pieces(run_id):
                windows.append(count_windows(piece, at, ks=ks, lengths=lengths))
                answers.append(read_answers(piece, ks, cut_at=family.cut_at))
            joined = map(WindowCounts.concatenate, zip(*windows, strict=True))
            return Loaded(dict(zip(ks, joined, strict=True)), Answers.concatenate(answers))

        every = list[Studied]()
        for family, loaded in read_families(runs, load, report.notes):
            if not self._ks(family):
                report.notes.append(f"{family}: every k is at least |V| = {family.vocab_size}, so no window can fail.")
            elif len(family.s) < 3:
                report.notes.append(few_sizes(family))
            every += self._studied(family, loaded)
        if not every:
            raise report.nothing_found("no measurement with windows")
        self._ask_independent(report, every)
        self._ask_half(report, every)
        self._ask_answers(report, every)
        return report

    def _ks(self, family: Family) -> list[int]:
        return [k for k in sorted(self.ks) if k < family.vocab_size]

    def _studied(self, family: Family, loaded: Sequence[Loaded]) -> Iterator[Studied]:
        least = {"least_runs": self.least_runs, "least_documents": self.least_documents}
        for number, k in enumerate(self._ks(family)):
            documents = len(loaded[0].by_k[k].tokens)
            weights = document_weights(documents, replicates=self.replicates)
            sizes = [success_by_length(one.by_k[k], weights, **least, level=self.level) for one in loaded]
            laws = fit_length_laws(family.s, sizes, level=self.level)
            yield Studied(family, k, number, sizes, laws, [one.answers for one in loaded], documents)

    def _ask_independent(self, report: Report, every: Sequence[Studied]) -> None:
        """Ask whether successes in a row are independent, what explains it if not, and whether alpha_N is alpha."""
        rows, laws, asked = list[WindowRow](), list[LengthRow](), list[Finding]()
        for one in every:
            for keys, success in zip(one.family.size_keys, one.sizes, strict=True):
                here = [WindowRow(**keys, k=one.k, **success.columns(j)) for j in range(len(success.lengths))]
                rows += here
                asked.append(_independence(keys, one, success, here))
            laws += [LengthRow(**one.family.keys, k=one.k, **law.columns()) for law in one.laws]
        report.findings += corrected(asked, self._dependent)
        report.findings += [finding for one in every if one.k == every[0].k for finding in _exponent_of_n(one)]
        largest = {(row.family, row.dataset): row.size for row in rows}  # rows ascend in S
        top = [row for row in rows if row.size == largest[row.family, row.dataset]]
        least = min(row.k for row in rows)
        names = columns_of(SummaryRow)
        shown = (SummaryRow(**{name: cells_of(row)[name] for name in names}) for row in top if row.k == least)
        report.add_rows("summary", shown)
        report.add_rows("windows", rows)
        report.add_rows("laws", laws)
        report.add_metrics("alpha_n{N}/{family}/{dataset}/rbp_{k}", laws, "alpha")
        report.add_metrics("n_eff_{N}/{family}/{dataset}/rbp_{k}", (row for row in top if row.N > 1), "n_eff")
        table = report.tables["windows"].frame
        for name in sorted(set(table["family"])):
            caption = "Points: share of windows of N tokens that all have R <= k. Dashes: RBP_k^N, as if independent."
            report.drawings[f"success_{name}"] = Drawing(draw_success(table[table["family"] == name]), caption)
        caption = (
            "Largest model of each family. Solid: measured, with intervals. Dashed: what each simpler process predicts."
        )
        report.drawings["ladder"] = Drawing(draw_ladder(table[table["k"] == least]), caption)
        if laws:
            caption = "Exponent at each N with enough runs at 4 sizes or more. Independence predicts a horizontal line."
            report.drawings["alpha_against_n"] = Drawing(draw_alpha_of_n(report.tables["laws"].frame), caption)

    def _dependent(self, one: Finding) -> Verdict:
        if one.reason:
            return Verdict.UNTOLD
        return Verdict.DIFFERENT if one.p_corrected < 1 - self.level else Verdict.SAME

    def _ask_half(self, report: Report, every: Sequence[Studied]) -> None:
        """Ask at what size half of the windows, or of the whole answers, succeed."""
        rows, told = list[HalfRow](), list[tuple[Studied, str, PowerLawFit, Threshold]]()
        for one in every:
            measured = dict(zip(one.sizes[-1].lengths, np.exp(one.sizes[-1].point["measured"][0]), strict=True))
            laws = [(str(law.length), law.law, float(measured[law.length])) for law in one.laws]
            for n, law, share in [*laws, *self._law_of_answers(one)]:
                half, width = threshold(law, 0.5, documents=one.documents), width_in_decades(law)
                what = "forecast" if half.forecast else "measured"
                if half.refused:
                    what = f"refused: {half.refused}"
                cells: dict[str, Any] = {"k": one.k, "N": n, "sizes": law.points, "largest": share, "what": what}
                cells |= {"s_50": half.size, "read_off": half.read_off, "decades": width, "alpha": exponent(law)}
                rows.append(HalfRow(**one.family.keys, **cells))
                told.append((one, n, law, half))
        if not rows:
            return
        span = max(float(np.log10(law.s.max() / law.s.min())) for _, _, law, _ in told)
        report.findings += [_half(row, half, span) for row, (*_, half) in zip(rows, told, strict=True)]
        report.add_rows("thresholds", rows)
        report.add_metrics("s_50/{family}/{dataset}/k{k}_n{N}", rows, "s_50")
        windows, least = report.tables["windows"].frame, rows[0].k
        drawn = {(str(one.family), n): (law, half) for one, n, law, half in told if one.k == least}
        report.drawings["success"] = Drawing(
            draw_half(windows[windows["k"] == least], drawn),
            f"Points: share of windows of N tokens whose every token has R <= {least}"
            + (" (greedy exact match)" if least == 1 else "")
            + ", linear. Lines: exp(-A S^-alpha), dashed beyond the sizes measured. Crosses: S_50.",
        )

    def _law_of_answers(self, one: Studied) -> Iterator[tuple[str, PowerLawFit, float]]:
        """The law of -ln share of whole answers over the sizes with enough successes."""
        whole = [answers.whole[:, one.number] for answers in one.answers]
        if not all(map(len, whole)):
            return
        units = [answers.by_source(one.number) for answers in one.answers]
        weights = document_weights(len(units[0]), replicates=self.replicates)
        p = np.array([each.mean() for each in whole])
        enough = (np.array([round(float(each.sum())) for each in whole]) >= self.least_runs) & (p > 0) & (p < 1)
        draws = np.stack([np.divide(*drawn_sums(weights, each).T) for each in units])
        if enough.sum() < 3:
            return
        with np.errstate(divide="ignore"):
            y, drawn = -np.log(p[enough]), -np.log(draws[enough])
        law = fit_law(one.family.s[enough], y, drawn, level=self.level)
        if law:
            yield ANSWER, law, float(p[-1])

    def _ask_answers(self, report: Report, every: Sequence[Studied]) -> None:
        """Ask whether RBP_k^length predicts how often whole answers succeed."""
        rows = []
        for one in every:
            cells = answers_by_size(one.family.s, one.answers, one.number, least=self.least_answers, level=self.level)
            rows += [AnswerRow(**one.family.size_keys[i], k=one.k, **each) for i, each in cells]
        report.findings += map(_answer, rows)
        report.add_rows("answers", rows)
        report.add_metrics("answers/{family}-{size}/{dataset}/rbp_{k}", rows, "share")
        if rows:
            caption = "Points: share of whole answers, with Wilson's intervals. Lines: what independent tokens give."
            report.drawings["answers"] = Drawing(draw_answers(report.tables["answers"].frame), caption)


def _independence(keys: dict[str, Any], one: Studied, success: SuccessByLength, rows: Sequence[WindowRow]) -> Finding:
    """Of one size at one k: about the longest N > 2 that it allows."""
    seen = [row for row in rows if np.isfinite(row.n_eff.value) and row.N > 2]
    reason = ""
    if not seen:
        reason = "never fails" if rows[0].p.value == 1 else "few runs"
    extras = {"row": cells_of(seen[-1]) if seen else {}, "largest": keys["size"] == one.family.labels[-1]}
    case = {"dataset": keys["dataset"], "family": keys["family"], "size": keys["size"], "metric": rbp_name(one.k)}
    number = around(seen[-1].n_eff if seen else UNKNOWN)
    return Finding(
        question="successes independent", case=case, p=success.p_independent, reason=reason, extras=extras, **number
    )


def _exponent_of_n(one: Studied) -> Iterator[Finding]:
    """Whether alpha_N is alpha at the longest N that half of the sizes have, 4 at least."""
    m = len(one.family.s)
    longest = [(law, law.change) for law in one.laws if law.change and law.law.points >= max(4, m / 2)]
    for last, change in longest[-1:]:
        verdict = Verdict.UNTOLD if change.low <= 0 <= change.high else Verdict.DIFFERENT
        extras: dict[str, Any] = {"N": last.length, "alpha": last.law.alpha, "sizes": last.law.points, "of": m}
        extras |= {"per_token": last.per_token}
        case = one.family.keys | {"metric": rbp_name(one.k)}
        yield Finding(question="exponent of N", case=case, verdict=verdict, extras=extras, **around(exponent(change)))


def _half(row: HalfRow, half: Threshold, span: float) -> Finding:
    verdict = Verdict.UNTOLD if half.refused else Verdict.YES
    extras = {"forecast": half.forecast and not half.refused, "decades": row.decades.value, "span": span}
    about: Any = {"case": row.case(metric=rbp_name(row.k), N=row.N), "verdict": verdict, "reason": half.refused}
    return Finding(question="half succeed", extras=extras, **about, **around(row.s_50))


def _answer(row: AnswerRow) -> Finding:
    inside = row.share.low <= row.share_independent <= row.share.high
    verdict = Verdict.SAME if inside else Verdict.DIFFERENT
    extras = {"independent": row.share_independent, "answers": row.answers, "length": row.mean_length, "S": row.S}
    case = row.case(size=row.size, metric=rbp_name(row.k))
    return Finding(question="whole answers", case=case, verdict=verdict, extras=extras, **around(row.share))
