"""How good a model is as the draft of a larger one, in speculative decoding (Leviathan et al., arXiv 2211.17192).

Read from measurements with `reference=`: the reference is the large model, the measured one drafts for it, on the
dataset's texts in place of the reference's own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np

from rbptrack.analysis import Analyzer, BadInput, Drawing, Report, Runs
from rbptrack.analysis.families import Family, read_families
from rbptrack.analysis.family_figures import curve_panels, curves_of, side_by_side
from rbptrack.analysis.findings import Finding, around
from rbptrack.analysis.rows import R2, Column, Exponent, OfFamily, OfSize, cells_of, exponent
from rbptrack.stats.bootstrap import document_weights
from rbptrack.stats.intervals import Interval
from rbptrack.stats.power_law import PowerLawFit
from rbptrack.stats.reference import ReferenceSums, independent_run, speed_up
from rbptrack.stats.shares import Share
from rbptrack.stats.size_laws import fit_law

DRAFT, LAW = "draft", "acceptance in size"
SAMPLING = "sampling"
Reference = Annotated[str, Column("the large model, for which it drafts")]
Cost = Annotated[float, Column("time of a step of the draft over that of a pass of the reference", form=".3f")]


@dataclass(kw_only=True)
class SummaryRow(OfSize):
    """A model as a draft."""

    reference: Reference
    acceptance: Annotated[Interval, Column("share of drafted tokens that are accepted, sum of min(p, q)", form=".3f")]
    faster: Annotated[
        Interval, Column("tokens per time with drafts of the best length, to none", title="speed-up", form=".2f")
    ]
    best: Annotated[int, Column("length of draft at which the speed-up is largest", "best length")]
    accepted: Annotated[
        Interval, Column("accepted tokens of a draft of analyzer.length, from probabilities in a row", form=".2f")
    ]
    cost: Cost


@dataclass(kw_only=True)
class BranchRow(OfSize):
    """A draft with k branches."""

    reference: Reference
    branches: Annotated[str, Column("tokens that are tried at a place: the draft's first k; or one, by sampling")]
    share: Annotated[
        Interval,
        Column("share of places at which the reference's first token is among them (RBP_k of it)", form=".3f"),
    ]
    accepted: Annotated[Interval, Column("accepted tokens of a draft of analyzer.length", form=".2f")]


@dataclass(kw_only=True)
class SpeedRow(OfSize):
    """Drafts of one length."""

    reference: Reference
    length: Annotated[int, Column("tokens of a draft")]
    accepted: Annotated[Interval, Column("of them accepted", form=".2f")]
    independent: Annotated[float, Column("if tokens were accepted independently", form=".2f")]
    cost: Cost
    faster: Annotated[Interval, Column("tokens per time, relative to no draft", title="speed-up", form=".2f")]


@dataclass(kw_only=True)
class LawRow(OfFamily):
    """How acceptance rises with the draft's size."""

    reference: Reference
    branches: Annotated[str, Column("as in the table of branches")]
    sizes: Annotated[int, Column("sizes of the draft")]
    alpha: Exponent
    r2: R2


@dataclass(frozen=True)
class Drafts:
    """The drafts of a family for one reference on one dataset, and what was counted of each, ascending in S."""

    family: Family
    reference: str
    counts: list[ReferenceSums]
    costs: list[float]
    level: float

    @cached_property
    def ways(self) -> list[str]:
        """Sampling, then each number of branches."""
        return [SAMPLING, *map(str, self.counts[0].ks)]

    @property
    def case(self) -> dict[str, str]:
        """What a finding is of."""
        return {"dataset": self.family.dataset, "family": self.family.name, "reference": self.reference}

    def keys(self, i: int) -> dict[str, Any]:
        """What a row about the i-th size begins with."""
        return {**self.family.size_keys[i], "reference": self.reference}

    def interval(self, share: Share) -> Interval:
        """A share with its interval over documents."""
        return share.interval(self.level)

    def rate(self, i: int, way: int) -> Interval:
        """The share of tokens that are accepted, of the i-th size."""
        one = self.counts[i]
        return self.interval(one.per_token(_hits(one, way)))

    def accepted(self, i: int, way: int, length: int) -> Interval:
        """The accepted tokens of a draft of some length."""
        return self.interval(self.counts[i].run(way, length))

    def faster(self, i: int, length: int) -> Interval:
        """The speed-up of drafts of some length."""
        run = self.accepted(i, 0, length)
        return Interval(*(speed_up(value, length, self.costs[i]) for value in (run.value, run.low, run.high)))

    def law(self, way: int) -> PowerLawFit | None:
        """-ln of the share of accepted tokens = A S^-alpha; None with fewer than 3 sizes, or where all are accepted."""
        if len(self.family.s) < 3:
            return None
        weights = document_weights(len(self.counts[0].tokens))
        sums = [(_hits(one, way), one.tokens) for one in self.counts]
        with np.errstate(divide="ignore", invalid="ignore"):
            y = -np.log([hits.sum() / tokens.sum() for hits, tokens in sums])
            draws = -np.log(np.stack([(weights @ hits) / (weights @ tokens) for hits, tokens in sums]))
        return fit_law(self.family.s, y, draws, level=self.level)


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
        every = [
            one for name in sorted(runs.frame["reference"].dropna().unique()) for one in self._read(runs, name, report)
        ]
        if not every:
            raise report.nothing_found("no measurement has a reference: measure a draft with reference=MODEL")
        rows = [self._summary(one, i) for one in every for i in range(len(one.counts))]
        report.add_rows("summary", rows)
        report.add_rows("branches", (row for one in every for row in self._branches(one)))
        report.add_rows("lengths", (row for one in every for row in self._lengths(one)))
        laws = [(one, way, law) for one in every for way in range(len(one.ways)) if (law := one.law(way))]
        report.add_rows(
            "laws",
            (
                LawRow(
                    **one.family.keys, reference=one.reference, branches=one.ways[way], sizes=law.points,
                    alpha=exponent(law), r2=law.r2,
                )
                for one, way, law in laws
            ),
        )  # fmt: skip
        report.findings += [self._finding(row) for row in rows]
        report.findings += [
            Finding(question=LAW, case=one.case, **around(law.exponent), extras={"sizes": law.points})
            for one, way, law in laws
            if way == 0
        ]
        report.add_metrics("acceptance/{family}/{dataset}/{reference}/{size}", map(cells_of, rows), "acceptance")
        report.notes.append(
            f"A step of the draft is taken to cost {self.cost:g} of a pass of the reference (analyzer.cost)."
            if self.cost
            else "What a step of the draft costs is taken from the parameters of both models, embeddings included; "
            "analyzer.cost= gives what was measured."
        )
        self._draw(report)
        return report

    def _read(self, runs: Runs, reference: str, report: Report) -> Iterator[Drafts]:
        """The families that were measured beside one reference."""
        beside = runs.own_copy()
        beside.frame = beside.frame[beside.frame["reference"] == reference]

        def load(family: Family, run_id: str) -> ReferenceSums:
            parts = [ReferenceSums.of(one, sorted(self.ks), longest=self.longest) for one in beside.rank_pieces(run_id)]
            return ReferenceSums.concatenate(parts)

        for family, counts in read_families(beside, load, report.notes):
            sizes, large = family.column("total_params"), family.column("reference_params")
            costs = [self.cost] * len(counts) if self.cost else (sizes / large).tolist()
            yield Drafts(family, reference, counts, costs, self.level)

    def _summary(self, one: Drafts, i: int) -> SummaryRow:
        lengths = range(1, self.longest + 1)
        speeds = [one.faster(i, length).value for length in lengths]
        best = lengths[int(np.nanargmax(speeds))] if np.isfinite(speeds).any() else 1
        rate = one.rate(i, 0)
        return SummaryRow(
            **one.keys(i), acceptance=rate,
            accepted=one.accepted(i, 0, self.length), cost=one.costs[i], best=best, faster=one.faster(i, best),
        )  # fmt: skip

    def _branches(self, one: Drafts) -> Iterator[BranchRow]:
        for i in range(len(one.counts)):
            for way, name in enumerate(one.ways):
                accepted = one.accepted(i, way, self.length)
                yield BranchRow(**one.keys(i), branches=name, share=one.rate(i, way), accepted=accepted)

    def _lengths(self, one: Drafts) -> Iterator[SpeedRow]:
        for i in range(len(one.counts)):
            for length in range(1, self.longest + 1):
                yield SpeedRow(
                    **one.keys(i), length=length, accepted=one.accepted(i, 0, length), cost=one.costs[i],
                    independent=independent_run(one.rate(i, 0).value, length), faster=one.faster(i, length),
                )  # fmt: skip

    def _finding(self, row: SummaryRow) -> Finding:
        case = {name: getattr(row, name) for name in ("dataset", "family", "size", "reference")}
        extras = {"accepted": row.accepted.value, "length": self.length, "best": row.best, "faster": row.faster}
        extras |= {"independent": independent_run(row.acceptance.value, self.length), "cost": row.cost}
        return Finding(question=DRAFT, case=case, **around(row.acceptance), extras=extras)

    def _draw(self, report: Report) -> None:
        table, about = report.tables["branches"].frame, {"panel": "{family} for {reference} on {dataset}"}
        named = table.assign(label=table["branches"].where(table["branches"] == SAMPLING, "k = " + table["branches"]))
        curves = side_by_side(
            curves_of(named, "S", "accepted", series="{label}", label="{label}", ends="bars", **about)
        )
        figure, _ = curve_panels(curves, xlabel="S of the draft", ylabel=f"accepted of {self.length}", legend=1.0)
        caption = f"Accepted tokens of a draft of {self.length}, by size of the draft and number of branches k."
        report.drawings["accepted"] = Drawing(figure, caption)


def _hits(sums: ReferenceSums, way: int) -> Any:
    """Accepted tokens, (documents,): by sampling, or with so many branches."""
    return sums.hits[:, way - 1] if way else sums.accept
