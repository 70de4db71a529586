"""How good a model is as the draft of a larger one, in speculative decoding (Leviathan et al., arXiv 2211.17192).

Read from measurements with `reference=`: the reference is the large model, the measured one drafts for it, on the
dataset's texts in place of the reference's own.

Acceptance is the mean of sum min(p, q), with an interval over documents. Accepted tokens of a draft of L tokens: the
products of acceptances in a row, summed; `independent` is a + a^2 + ... + a^L. A tree that tries the draft's first k
tokens, where the reference decodes greedily, accepts RBP_k with the reference's choice as the target. Speed-up is
(accepted + 1) / (L c + 1), theorem 3.8 with the measured runs. The default cost c is the ratio of all parameters,
which ignores memory bandwidth and kernels: measure yours. On text that the reference writes itself, acceptance is
another number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rbptrack.analysis import Analyzer, BadInput, Drawing, Report, Runs
from rbptrack.analysis.families import Family, read_families
from rbptrack.analysis.family_figures import curve_panels, curves_of, side_by_side
from rbptrack.analysis.findings import around
from rbptrack.analysis.rows import cells_of
from rbptrack.stats.reference import ReferenceSums

from .acceptance import SAMPLING, Drafts, independent_run
from .findings import Acceptance, AcceptanceInSize
from .rows import BranchRow, LawRow, SpeedRow, SummaryRow


@dataclass(kw_only=True)
class Draft(Analyzer):
    """How good models are as drafts of a larger one: accepted tokens, branches, speed-up, and their law in size.

    Attributes:
        ks: numbers of branches: how many of the draft's first tokens are tried at a place.
        length: tokens of a draft.
        longest: the longest draft that is tried for the best length.
        cost: time of a step of the draft over that of a pass of the reference; 0: from all parameters of both.
        level: nominal coverage of the intervals.

    """

    name: ClassVar[str] = "draft"
    ks: list[int] = field(default_factory=lambda: [1, 2, 4, 8])
    length: int = 5
    longest: int = 12
    cost: float = 0.0
    level: float = 0.95

    def analyze(self, runs: Runs) -> Report:
        """Read every measurement with a reference as a draft of it."""
        if not 1 <= self.length <= self.longest or min(self.ks, default=0) < 1 or self.cost < 0:
            raise BadInput(
                "analyzer.length must be between 1 and analyzer.longest, analyzer.ks at least 1, analyzer.cost 0 or "
                f"more; got length={self.length} longest={self.longest} ks={self.ks} cost={self.cost}"
            )
        report = Report(summary="summary")
        references = sorted(runs.frame["reference"].dropna().unique())
        families = [drafts for name in references for drafts in self._read(runs, name, report)]
        if not families:
            raise report.nothing_found("no measurement has a reference: measure a draft with reference=MODEL")
        rows = [self._summary(drafts, i) for drafts in families for i in range(len(drafts.counts))]
        report.add_rows("summary", rows)
        report.add_rows("branches", (row for drafts in families for row in self._branches(drafts)))
        report.add_rows("lengths", (row for drafts in families for row in self._lengths(drafts)))
        report.findings += [self._finding(row) for row in rows]
        self._add_laws(report, families)
        report.add_metrics("acceptance/{family}/{dataset}/{reference}/{size}", map(cells_of, rows), "acceptance")
        report.notes.append(
            f"A step of the draft is taken to cost {self.cost:g} of a pass of the reference (analyzer.cost)."
            if self.cost
            else "What a step of the draft costs is taken from the parameters of both models, embeddings included; "
            "analyzer.cost= sets a measured cost."
        )
        self._draw(report)
        return report

    def _add_laws(self, report: Report, families: Sequence[Drafts]) -> None:
        """Add how acceptance rises with the draft's size, by sampling and by branches."""
        rows = list[LawRow]()
        for drafts in families:
            for way, name in enumerate(drafts.ways):
                if not (law := drafts.law(way)):
                    continue
                rows.append(
                    LawRow(
                        **drafts.family.keys,
                        reference=drafts.reference,
                        branches=name,
                        sizes=law.points,
                        alpha=law.exponent,
                        r2=law.r2,
                    )
                )
                if way == 0:
                    report.findings.append(AcceptanceInSize(case=drafts.case, **around(law.exponent)))
        report.add_rows("laws", rows)

    def _read(self, runs: Runs, reference: str, report: Report) -> Iterator[Drafts]:
        """Yield the families that were measured beside one reference."""
        beside = runs.own_copy()
        beside.frame = beside.frame[beside.frame["reference"] == reference]

        def load(family: Family, run_id: str) -> ReferenceSums:
            parts = [
                ReferenceSums.of(piece, sorted(self.ks), longest=self.longest) for piece in beside.rank_pieces(run_id)
            ]
            return ReferenceSums.concatenate(parts)

        for family, counts in read_families(beside, load, report.notes):
            sizes = family.column("total_params")
            large = family.column("reference_params")
            costs = [self.cost] * len(counts) if self.cost else (sizes / large).tolist()
            yield Drafts(family, reference, counts, costs, self.level)

    def _summary(self, drafts: Drafts, i: int) -> SummaryRow:
        lengths = range(1, self.longest + 1)
        speeds = [drafts.faster(i, length).value for length in lengths]
        best = lengths[int(np.nanargmax(speeds))] if np.isfinite(speeds).any() else 1
        return SummaryRow(
            **drafts.keys(i),
            acceptance=drafts.rate(i, 0),
            accepted=drafts.accepted(i, 0, self.length),
            cost=drafts.costs[i],
            best=best,
            faster=drafts.faster(i, best),
        )

    def _branches(self, drafts: Drafts) -> Iterator[BranchRow]:
        for i in range(len(drafts.counts)):
            for way, name in enumerate(drafts.ways):
                accepted = drafts.accepted(i, way, self.length)
                yield BranchRow(**drafts.keys(i), branches=name, share=drafts.rate(i, way), accepted=accepted)

    def _lengths(self, drafts: Drafts) -> Iterator[SpeedRow]:
        for i in range(len(drafts.counts)):
            for length in range(1, self.longest + 1):
                yield SpeedRow(
                    **drafts.keys(i),
                    length=length,
                    accepted=drafts.accepted(i, 0, length),
                    cost=drafts.costs[i],
                    independent=independent_run(drafts.rate(i, 0).value, length),
                    faster=drafts.faster(i, length),
                )

    def _finding(self, row: SummaryRow) -> Acceptance:
        return Acceptance(
            case=row.case(size=row.size, reference=row.reference),
            accepted=row.accepted.value,
            independent=independent_run(row.acceptance.value, self.length),
            length=self.length,
            best=row.best,
            faster=row.faster,
            cost=row.cost,
            **around(row.acceptance),
        )

    def _draw(self, report: Report) -> None:
        table = report.tables["branches"].frame
        named = table.assign(label=table["branches"].where(table["branches"] == SAMPLING, "k = " + table["branches"]))
        curves = side_by_side(
            curves_of(
                named,
                "S",
                "accepted",
                series="{label}",
                label="{label}",
                ends="bars",
                panel="{family} for {reference} on {dataset}",
            )
        )
        figure, _ = curve_panels(curves, xlabel="S of the draft", ylabel=f"accepted of {self.length}", legend=1.0)
        caption = f"Accepted tokens of a draft of {self.length}, by size of the draft and number of branches k."
        report.drawings["accepted"] = Drawing(figure, caption)
