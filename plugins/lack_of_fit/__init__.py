"""The limits of the law in size: does it bend, up to which k does it hold, and what ends it.

Section 4.3 and open question 2 of arXiv 2510.20387: for k near |V| almost every token is a hit, few misses are left to
count, and what looks like a broken law may be noise. One test of each family on a dataset asks whether its laws bend,
at all k together; a floor (an irreducible term) is spoken of only where it outlives correction, both ways to count S,
and the loss of the smallest model.

The test: ln y_ik = a_k - alpha_k ln S_i + q_k c(S_i) + e_ik, where c is the part of (ln S)^2 that no line explains.
The covariance is that of the paired document bootstrap plus scatter between models proportional to alpha_k. q_k = 0
is tested once for all k, and p is Holm-corrected over families and datasets. It needs 5 sizes. A bend is reported
only if a third of it remains without the smallest or the largest size; with 6 sizes whose end sizes scatter 3.6 times
as much, false alarms are 1 to 6%. If no bend is detected, `floor_seen` is the smallest floor that would be detected
with 80% power.

k* is the largest k at which, and at every smaller k, no bend is detected. Forms by maximum likelihood: M0 the power
law, M1 with a floor E >= 0 (from 6 sizes, with a profile interval), M2 broken (from 12), preferred if AICc is lower by
more than 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pandas as pd

from rbptrack.analysis import Analyzer, Report, Runs, rbp_name
from rbptrack.analysis.families import Family, families, read_families
from rbptrack.analysis.findings import Reason, Verdict, around, corrected, sure
from rbptrack.analysis.laws import LawReader
from rbptrack.analysis.sizes import SizeUnit
from rbptrack.ranks import CE, DocumentCounts, log_grid
from rbptrack.stats.intervals import Interval
from rbptrack.stats.power_law import PowerLawFit, fit_power_law
from rbptrack.stats.size_laws import LawValues, law_values, positive

from .bends import LEAST_KEPT, LEAST_SIZES, floor_test
from .each_k import EachK, laws_at_each_k, most_misses
from .figures import draw
from .findings import Bends, Floor, StraightUpTo
from .law_forms import Forms, fit_forms
from .rows import DocumentRow, Metric, TokenRow, floor_rows, form_rows, k_rows, model_rows, summary_row

_MISSES = "Where the misses (rank above k) are, at the first k at which no law is seen, or else at the largest k."

Judged = tuple[Family, EachK]


@dataclass(kw_only=True)
class LackOfFit(Analyzer):
    """Does the law in size bend, up to which k does it hold, and what ends it: noise, a bend or an inverse trend.

    Each k below |V| is one of: *inverse* (alpha's interval lies below 0), *systematic deviation* (the family's one test
    over all k says that the law bends, and this k's departure is not 0), *noise-limited* (alpha's interval includes 0,
    or too few misses are left to tell), *no bend detected*.

    Attributes:
        ks: the k that forms and floors are shown for, beside CE.
        per_decade: how many k per decade are looked at, up to |V|.
        least_misses: fewest tokens with rank above k, in any size, from which anything is fitted.
        margin: departure from a line, in ln y, within which a law counts as straight.
        top: how many documents and tokens to name.
        level: nominal coverage of the intervals and bands; tests have size 1 - level.
        replicates: document bootstraps, and simulations of R^2.

    """

    name: ClassVar[str] = "lack_of_fit"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100, 1000])
    per_decade: int = 12
    least_misses: int = 10
    margin: float = 0.05
    top: int = 5
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Judge every k of every family x dataset that has at least 3 sizes."""
        report = Report(summary="summary")
        judged = list[Judged]()
        laws = list[tuple[Family, str, PowerLawFit]]()
        documents = list[DocumentRow]()
        tokens = list[TokenRow]()
        for family, counts in read_families(runs, lambda f, i: self._load(runs, f, i), report.notes, least=3):
            values = law_values(counts, replicates=self.replicates)
            grid = [count.select(self._grid(family)) for count in counts]
            at_each_k = laws_at_each_k(
                grid,
                values,
                family.s,
                least_misses=self.least_misses,
                margin=self.margin,
                level=self.level,
                replicates=self.replicates,
            )
            judged.append((family, at_each_k))
            laws += self._laws(family, values)
            missed = most_misses(grid, family.s, at_each_k.focus, self.top)
            documents += [DocumentRow(**family.keys, k=at_each_k.focus, **cells) for cells in missed]
            tokens += self._tokens(family, runs, at_each_k.focus)
        if any(not family.vocab_size for family in families(runs, [], least=3)):
            reader = LawReader(self.ks, 1, SizeUnit("non_embedding_params", {}), self.level, self.replicates)
            laws += [(law.family, law.metric, law.law) for law in reader.read(runs, []) if law.logged]
        if not laws:
            raise report.nothing_found("no measurement to judge")
        forms = fit_forms((law.s, law.y, law.covariance) for *_, law in laws)
        metrics = [_metric(*law, form, tests=len(laws)) for law, form in zip(laws, forms, strict=True)]
        self._judge(report, judged, metrics)
        report.add_rows("documents", documents, caption=_MISSES)
        report.add_rows("tokens", tokens)
        report.add_rows("models", (row for case in judged for row in model_rows(*case)))
        if judged:
            verdicts = report.tables["verdicts"].frame
            report.drawings = draw(judged, verdicts, margin=self.margin, level=self.level)
        else:
            report.summary = "floors" if "floors" in report.tables else "forms"  # floors need 6 sizes
        return report

    def _judge(self, report: Report, judged: list[Judged], metrics: Sequence[Metric]) -> None:
        """Ask for bends, floors and the k up to which laws hold; correct over all, and make the tables."""
        bends = self._bends(judged, metrics)
        floors = self._floors(metrics)
        for i, bend in enumerate(bends[: len(judged)]):
            family, at_each_k = judged[i]
            judged[i] = (family, replace(at_each_k, bends=bend.verdict == Verdict.YES))
        report.findings = [*bends, *(self._straight(*case) for case in judged), *floors]
        report.add_rows("summary", (summary_row(*case, bend) for case, bend in zip(judged, bends, strict=False)))
        report.add_rows("verdicts", (row for case in judged for row in k_rows(*case)))
        report.add_rows("floors", (row for metric in metrics for row in floor_rows(metric, floors)))
        report.add_rows("forms", (row for metric in metrics for row in form_rows(metric, floors)))
        report.metrics = {f"k_star/{family.path}": float(at_each_k.k_star) for family, at_each_k in judged}
        report.metrics |= {
            f"surface_p/{family.path}": at_each_k.surface.p for family, at_each_k in judged if at_each_k.surface
        }

    def _grid(self, family: Family) -> list[int]:
        return [int(k) for k in log_grid(family.vocab_size, per_decade=self.per_decade)[:-1]]

    def _load(self, runs: Runs, family: Family, run_id: str) -> DocumentCounts:
        family.require_ranks()
        ks = [k for k in self.ks if k <= family.vocab_size]
        return runs.document_counts(run_id, sorted({*self._grid(family), *ks}))

    def _laws(self, family: Family, values: LawValues) -> Iterator[tuple[Family, str, PowerLawFit]]:
        """Yield CE's law, and those of the k asked for."""
        for metric in (CE, *map(rbp_name, self.ks)):
            if metric in values.metrics and (law := values.fit(metric, family.s, level=self.level)):
                yield family, metric, law

    def _bends(self, judged: Sequence[Judged], metrics: Sequence[Metric]) -> list[Bends]:
        """Return one finding for each family on a dataset, over all k, or without ranks of each metric; p are
        corrected.
        """
        ranked = {family.path for family, _ in judged}
        logged = [(metric, metric.test) for metric in metrics if metric.family.path not in ranked and metric.test]
        cases = sum(at_each_k.surface is not None for _, at_each_k in judged) + len(logged)
        findings = [self._bend_of(*case, cases) for case in judged]
        for metric, test in logged:
            findings.append(
                Bends(
                    case=metric.case,
                    p=test.p_bend,
                    kept=test.kept,
                    size=1 - self.level,
                    floor_seen=test.floor_seen,
                    margin=self.margin,
                    straight=max(-test.departure.low, test.departure.high) <= self.margin,
                    **around(test.departure),
                )
            )
        return corrected(findings, self._whether)

    def _whether(self, bends: Bends) -> Verdict:
        if bends.p_corrected < 1 - self.level:
            return Verdict.YES if bends.kept >= LEAST_KEPT else Verdict.UNTOLD
        return Verdict.NO if bends.straight else Verdict.UNTOLD

    def _bend_of(self, family: Family, at_each_k: EachK, cases: int) -> Bends:
        """Return the one test of a family: over all k, at the k whose bend is clearest."""
        bends = Bends(case=family.keys, needed=LEAST_SIZES, sizes=len(family.s), margin=self.margin)
        surface = at_each_k.surface
        if surface is None or at_each_k.limit is None:
            return replace(bends, reason=Reason.FEW_SIZES)
        at = int(np.argmax(np.abs(surface.bend) / np.maximum(surface.bend_se, 1e-300)))
        low, high = surface.bend_band
        return replace(
            bends,
            k=int(surface.ks[at]),
            p=surface.p,
            kept=surface.kept,
            size=1 - self.level,
            floor_seen=surface.floor_seen(family.s, cases=cases),
            straight=bool(at_each_k.limit.shown == surface.ks[-1]),
            **around(Interval(float(surface.bend[at]), float(low[at]), float(high[at]))),
        )

    def _floors(self, metrics: Sequence[Metric]) -> list[Floor]:
        """Return whether each tested metric has a floor; p are corrected over all of them."""
        findings = [
            Floor(case=metric.case, p=metric.test.p_floor, **around(metric.forms.fits[1].share))
            for metric in metrics
            if metric.test
        ]
        return corrected(findings, sure(self.level, Verdict.YES))

    def _straight(self, family: Family, at_each_k: EachK) -> StraightUpTo:
        return StraightUpTo(
            case=family.keys,
            estimate=at_each_k.k_star or float("nan"),
            margin=self.margin,
            last_k=at_each_k.last_k,
            vocabulary=family.vocab_size,
            ks=[law.k for law in at_each_k.laws],
            verdicts=[verdict.value for verdict in at_each_k.verdicts],
            shown=at_each_k.limit.shown if at_each_k.limit else 0,
            exceeded=at_each_k.limit.exceeded if at_each_k.limit else 0,
        )

    def _tokens(self, family: Family, runs: Runs, k: int) -> Iterator[TokenRow]:
        """Yield the right tokens that the largest model most often ranks above k."""
        run_id = family.run_ids[-1][0]
        occurrences = pd.Series(dtype=int)
        misses = pd.Series(dtype=int)
        for piece in runs.rank_pieces(run_id, version=1):
            token = pd.Series(piece.column("token"))
            occurrences = occurrences.add(token.value_counts(), fill_value=0)
            misses = misses.add(token[piece.rank > k].value_counts(), fill_value=0)
        most = misses.sort_index().sort_values(ascending=False, kind="stable")[: self.top]
        for i, text in zip(most.index.tolist(), runs.token_texts(run_id, most.index), strict=True):
            yield TokenRow(
                **family.keys,
                k=k,
                token=text,
                id=int(i),
                misses=int(most[i]),
                share=float(most[i] / misses.sum()),
                occurrences=int(occurrences[i]),
            )


def _metric(family: Family, metric: str, law: PowerLawFit, forms: Forms, *, tests: int) -> Metric:
    s = family.column("total_params")
    other = None
    if positive(s) and np.ptp(s) > 0:
        other = fit_power_law(s, law.y, covariance=law.covariance, level=law.level)
    test = floor_test(law, other, tests=tests) if law.points > LEAST_SIZES and law.alpha > 0 else None
    return Metric(family, metric, test, forms)
