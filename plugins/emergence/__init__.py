"""Sequences of successes: independent or not, the size at which half of them succeed, and whole answers.

Figure 7 and eqs. 6 to 8 of arXiv 2510.20387 take tokens for independent: p_{N,k} = RBP_k^N, so -ln p = N A S^-alpha.
Here the share of windows is measured, set beside a ladder of nulls (independent; a share of hits that drifts with the
position; hits anywhere in their document; a first-order Markov chain), and alpha_N and C_N are fitted freely for every
N before they are compared with alpha and N C_1. By the law success is an S-shaped curve over ln S, steep in no special
place: S_50 is where half of the windows of N tokens (or of the whole answers) succeed. Whole answers are the last field
of datasets of several fields (question and answer, prompt and solution); k = 1 is the greedy exact match.

With run lengths L of hits and segment lengths n, p_N = sum max(L - N + 1, 0) / sum max(n - N + 1, 0); a masked token
or the document's end breaks a window. Intervals hold at all N of a model and k at once, so a true null is rejected at
some N in 5% of the measurements at most. N_eff = ln p_N / ln p_1.

S_50 is the size at which the law of that N gives one half, with Fieller's interval; beyond the largest size it is a
forecast, refused beyond 10 times that size and with fewer than 100 documents. By the law, success takes 1.34 / alpha
decades of S to go from 10 to 90%: 5 to 7 decades for alpha of 0.2 to 0.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from rbptrack.analysis import Analyzer, Drawing, Report, Runs, rbp_name
from rbptrack.analysis.families import Family, Pooled, few_sizes, read_families
from rbptrack.analysis.findings import Finding, Verdict, around, corrected
from rbptrack.analysis.rows import UNKNOWN, cells_of, columns_of, exponent
from rbptrack.ranks import HEADLINE_KS
from rbptrack.stats.answers import Answers, read_answers
from rbptrack.stats.bootstrap import document_weights, drawn_sums
from rbptrack.stats.intervals import detectable
from rbptrack.stats.power_law import PowerLawFit
from rbptrack.stats.segments import PositionBins
from rbptrack.stats.size_laws import fit_law

from .answers import answers_by_size
from .figures import draw_alpha_of_n, draw_answers, draw_half, draw_ladder, draw_success
from .findings import ExponentOfN, HalfSucceed, Independent, WholeAnswers
from .independence import LengthLaw, SuccessByLength, fit_length_laws, success_by_length
from .rows import ANSWER, AnswerRow, HalfRow, LengthRow, SummaryRow, WindowRow
from .thresholds import Threshold, threshold, width_in_decades
from .windows import WindowCounts, count_windows


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
    ks: list[int] = field(default_factory=lambda: [*HEADLINE_KS])
    lengths: list[int] = field(default_factory=lambda: [1, 2, 4, 8, 16, 32, 64])
    least_runs: int = 10
    least_documents: int = 5
    least_answers: int = 10
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Count windows and answers of every measurement; laws need at least 3 sizes."""
        report = Report(summary="summary")
        lengths = sorted({1, *self.lengths})
        bins: dict[str, PositionBins] = {}  # by family: all of its models read the same text

        def load(family: Family, run_id: str) -> Loaded:
            if str(family) not in bins:
                bins[str(family)] = PositionBins.of(lambda: runs.rank_pieces(run_id, version=1), lengths)
            ks = self._ks(family)
            windows = list[list[WindowCounts]]()
            answers = list[Answers]()
            for piece in runs.rank_pieces(run_id, version=1):
                windows.append(count_windows(piece, bins[str(family)], ks=ks, lengths=lengths))
                answers.append(read_answers(piece, ks, cut_at=family.cut_at))
            joined = map(WindowCounts.concatenate, zip(*windows, strict=True))
            return Loaded(dict(zip(ks, joined, strict=True)), Answers.concatenate(answers))

        studied = list[Studied]()
        for family, loaded in read_families(runs, load, report.notes):
            if not self._ks(family):
                report.notes.append(f"{family}: every k is at least |V| = {family.vocab_size}, so no window can fail.")
            elif len(family.s) < 3:
                report.notes.append(few_sizes(family))
            studied += self._studied(family, loaded)
        if not studied:
            raise report.nothing_found("no measurement with windows")
        self._ask_independent(report, studied)
        self._ask_half(report, studied)
        self._ask_answers(report, studied)
        return report

    def _ks(self, family: Family) -> list[int]:
        return [k for k in sorted(self.ks) if k < family.vocab_size]

    def _studied(self, family: Family, loaded: Sequence[Loaded]) -> Iterator[Studied]:
        for number, k in enumerate(self._ks(family)):
            documents = len(loaded[0].by_k[k].tokens)
            weights = document_weights(documents, replicates=self.replicates)
            sizes = [
                success_by_length(
                    run.by_k[k],
                    weights,
                    least_runs=self.least_runs,
                    least_documents=self.least_documents,
                    level=self.level,
                )
                for run in loaded
            ]
            laws = fit_length_laws(family.s, sizes, level=self.level)
            yield Studied(family, k, number, sizes, laws, [run.answers for run in loaded], documents)

    def _ask_independent(self, report: Report, studied: Sequence[Studied]) -> None:
        """Ask whether successes in a row are independent, what explains it if not, and whether alpha_N is alpha."""
        rows = list[WindowRow]()
        laws = list[LengthRow]()
        findings = list[Independent]()
        for case in studied:
            for keys, success in zip(case.family.size_keys, case.sizes, strict=True):
                of_size = [WindowRow(**keys, k=case.k, **success.columns(j)) for j in range(len(success.lengths))]
                rows += of_size
                findings.append(_independence(keys, case, success, of_size))
            laws += [LengthRow(**case.family.keys, k=case.k, **law.columns()) for law in case.laws]
        tests = sum(not finding.reason for finding in findings)
        findings = [
            replace(finding, detectable=detectable(finding.interval, level=self.level, tests=max(tests, 1)))
            for finding in findings
        ]
        report.findings += corrected(findings, self._dependent)
        report.findings += [finding for case in studied if case.k == studied[0].k for finding in _exponent_of_n(case)]
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

    def _dependent(self, finding: Finding) -> Verdict:
        rejected = not finding.reason and finding.p_corrected < 1 - self.level
        return Verdict.DIFFERENT if rejected else Verdict.UNTOLD

    def _ask_half(self, report: Report, studied: Sequence[Studied]) -> None:
        """Ask at what size half of the windows, or of the whole answers, succeed."""
        rows = list[HalfRow]()
        laws = list[tuple[Studied, str, PowerLawFit, Threshold]]()
        for case in studied:
            for n, law, largest in self._laws(case):
                half = threshold(law, 0.5, documents=case.documents)
                rows.append(_half_row(case, n, law, largest, half))
                laws.append((case, n, law, half))
        if not rows:
            return
        span = max(float(np.log10(law.s.max() / law.s.min())) for _, _, law, _ in laws)
        report.findings += [_half(row, half, span) for row, (*_, half) in zip(rows, laws, strict=True)]
        report.add_rows("thresholds", rows)
        report.add_metrics("s_50/{family}/{dataset}/k{k}_n{N}", rows, "s_50")
        windows = report.tables["windows"].frame
        least = rows[0].k
        drawn = {(str(case.family), n): (law, half) for case, n, law, half in laws if case.k == least}
        exact = " (greedy exact match)" if least == 1 else ""
        report.drawings["success"] = Drawing(
            draw_half(windows[windows["k"] == least], drawn),
            f"Points: share of windows of N tokens whose every token has R <= {least}{exact}, linear. Lines: "
            "exp(-A S^-alpha), dashed beyond the sizes measured. Crosses: S_50.",
        )

    def _laws(self, case: Studied) -> Iterator[tuple[str, PowerLawFit, float]]:
        """Yield each N, or `ANSWER`, its law, and the share that succeeds at the largest size."""
        success = case.sizes[-1]
        measured = dict(zip(success.lengths, np.exp(success.point["measured"][0]), strict=True))
        for law in case.laws:
            yield str(law.length), law.law, float(measured[law.length])
        yield from self._law_of_answers(case)

    def _law_of_answers(self, case: Studied) -> Iterator[tuple[str, PowerLawFit, float]]:
        """Yield the law of -ln share of whole answers over the sizes with enough successes."""
        whole = [answers.whole[:, case.number] for answers in case.answers]
        if not all(map(len, whole)):
            return
        by_source = [answers.by_source(case.number) for answers in case.answers]
        weights = document_weights(len(by_source[0]), replicates=self.replicates)
        p = np.array([succeeded.mean() for succeeded in whole])
        successes = np.array([round(float(succeeded.sum())) for succeeded in whole])
        enough = (successes >= self.least_runs) & (p > 0) & (p < 1)
        draws = np.stack([np.divide(*drawn_sums(weights, sums).T) for sums in by_source])
        with np.errstate(divide="ignore"):
            y = -np.log(p[enough])
            drawn = -np.log(draws[enough])
        law = fit_law(case.family.s[enough], y, drawn, level=self.level)
        if law:
            yield ANSWER, law, float(p[-1])

    def _ask_answers(self, report: Report, studied: Sequence[Studied]) -> None:
        """Ask whether RBP_k^length predicts how often whole answers succeed."""
        rows = []
        for case in studied:
            sizes = answers_by_size(
                case.family.s, case.answers, case.number, least=self.least_answers, level=self.level
            )
            rows += [AnswerRow(**case.family.size_keys[i], k=case.k, **cells) for i, cells in sizes]
        report.findings += [_answer(row, self.level) for row in rows]
        report.add_rows("answers", rows)
        report.add_metrics("answers/{family}-{size}/{dataset}/rbp_{k}", rows, "share")
        if rows:
            caption = "Points: share of whole answers, with Wilson's intervals. Lines: what independent tokens give."
            report.drawings["answers"] = Drawing(draw_answers(report.tables["answers"].frame), caption)


def _half_row(case: Studied, n: str, law: PowerLawFit, largest: float, half: Threshold) -> HalfRow:
    what = "forecast" if half.forecast else "measured"
    return HalfRow(
        **case.family.keys,
        k=case.k,
        N=n,
        sizes=law.points,
        largest=largest,
        s_50=half.size,
        read_off=half.read_off,
        what=f"refused: {half.refused}" if half.refused else what,
        decades=width_in_decades(law),
        alpha=exponent(law),
    )


def _independence(
    keys: Mapping[str, Any], case: Studied, success: SuccessByLength, rows: Sequence[WindowRow]
) -> Independent:
    """Judge the independence of one size at one k: about the longest N > 2 that it allows."""
    seen = [row for row in rows if np.isfinite(row.n_eff.value) and row.N > 2]
    reason = ""
    if not seen:
        reason = "never fails" if rows[0].p.value == 1 else "few runs"
    return Independent(
        case={"dataset": keys["dataset"], "family": keys["family"], "size": keys["size"], "metric": rbp_name(case.k)},
        p=success.p_independent,
        reason=reason,
        window=seen[-1] if seen else None,
        largest=keys["size"] == case.family.labels[-1],
        null=float(seen[-1].N) if seen else np.nan,
        **around(seen[-1].n_eff if seen else UNKNOWN),
    )


def _exponent_of_n(case: Studied) -> Iterator[ExponentOfN]:
    """Yield whether alpha_N is alpha at the longest N that half of the sizes have, 4 at least."""
    m = len(case.family.s)
    longest = [law for law in case.laws if law.change and law.per_token and law.law.points >= max(4, m / 2)]
    for law in longest[-1:]:
        change = exponent(law.change)
        yield ExponentOfN(
            case={**case.family.keys, "metric": rbp_name(case.k)},
            verdict=Verdict.UNTOLD if change.low <= 0 <= change.high else Verdict.DIFFERENT,
            detectable=law.change.spread.detectable(law.change.level) if law.change else np.nan,
            length=law.length,
            alpha=law.law.alpha,
            sizes=law.law.points,
            of=m,
            per_token=law.per_token or UNKNOWN,
            **around(change),
        )


def _half(row: HalfRow, half: Threshold, span: float) -> HalfSucceed:
    return HalfSucceed(
        case=row.case(metric=rbp_name(row.k), N=row.N),
        verdict=Verdict.UNTOLD if half.refused else Verdict.YES,
        reason=half.refused,
        forecast=bool(half.forecast and not half.refused),
        decades=row.decades.value,
        span=span,
        **around(row.s_50),
    )


def _answer(row: AnswerRow, level: float) -> WholeAnswers:
    inside = row.share.low <= row.share_independent <= row.share.high
    return WholeAnswers(
        case=row.case(size=row.size, metric=rbp_name(row.k)),
        verdict=Verdict.UNTOLD if inside else Verdict.DIFFERENT,
        independent=row.share_independent,
        answers=row.answers,
        length=row.mean_length,
        s=row.S,
        null=row.share_independent,
        detectable=detectable(row.share, level=level),
        **around(row.share),
    )
