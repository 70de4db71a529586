"""The first page: a row per family and dataset with what decides, and three to six sentences, from all findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import isfinite
from typing import Any

from rbptrack.analysis.findings import Finding, Verdict, by_question
from rbptrack.analysis.phrases import interval, metric_of, upper_first
from rbptrack.base.words import number
from rbptrack.ranks import CE, metric_label
from rbptrack.reporting.telling import sentences_of

QUESTIONS = (
    "law in size",
    "same as CE",
    "error at the largest",
    "bends",
    "collapses on CE",
    "laws apart",
)
"""Those whose first sentences stand below the first table and figure."""

_MOST = 6  # sentences

OTHER_S = {"non_embedding_params": "all parameters", "total_params": "non-embedding parameters"}
S_IN_WORDS = {
    "non_embedding_params": "non-embedding parameters",
    "total_params": "all parameters",
    "training_flops": "training FLOPs",
}

_AGAINST_CE = {
    Verdict.DIFFERENT: "differs",
    Verdict.SAME: "same",
    Verdict.CLOSE: "differs, but little",
    Verdict.UNTOLD: "undecided",
}
_NO_K = "no k"  # at which a law is straight
_BENDS = {Verdict.YES: "yes", Verdict.NO: "no", Verdict.UNTOLD: "cannot be told"}


@dataclass(frozen=True)
class Cell:
    """One metric of a family on a dataset, as texts; empty where it is not known.

    Attributes:
        alpha: by the S of the option.
        low_high: its interval.
        other: alpha and its interval by the other S.
        against_ce: its difference from CE's and the verdict.
        left_out: the signed error at the largest size left out, beside its noise.

    """

    alpha: str
    low_high: str
    other: str = ""
    against_ce: str = ""
    left_out: str = ""

    @property
    def texts(self) -> list[str]:
        """As columns of a table."""
        return [f"{self.alpha} ({self.low_high})", self.other, self.against_ce, self.left_out]


@dataclass(frozen=True)
class Row:
    """One family on one dataset.

    Attributes:
        family: its name.
        dataset: its name.
        sizes: how many.
        cells: by metric.
        straight: the largest k up to which the law is straight; empty where nobody asked.
        bends: by metric or for all, in words; empty where nobody asked.

    """

    family: str
    dataset: str
    sizes: int
    cells: Mapping[str, Cell]
    straight: str = ""
    bends: str = ""

    @property
    def line(self) -> str:
        """For a terminal: up to which k the law is straight, and whether it bends; empty where nobody asked."""
        to = f"at {_NO_K}" if self.straight == _NO_K else f"up to k = {self.straight}"
        said = [f"straight {to}"] * bool(self.straight)
        said += [f"bends: {self.bends}"] * bool(self.bends)
        return f"{self.family} on {self.dataset}: {'; '.join(said)}" if said else ""


@dataclass(frozen=True)
class Lead:
    """The first page.

    Attributes:
        metrics: the columns, `ce` first.
        rows: a family on a dataset each.
        size: what S is, in words.
        other: the other count of parameters, in words; empty where no model's is known.
        sentences: three to six of them, of all analyzers.

    """

    metrics: Sequence[str] = ()
    rows: Sequence[Row] = ()
    size: str = ""
    other: str = ""
    sentences: Sequence[str] = field(default_factory=list)

    @property
    def labels(self) -> list[str]:
        """The metrics for people."""
        return [metric_label(metric) for metric in self.metrics]

    def has(self, column: str) -> bool:
        """Whether any row has something to show in a column."""
        return any(getattr(row, column) for row in self.rows)

    @property
    def lines(self) -> dict[str, str]:
        """What the lines of a row are, by attributes of its cells: those that any cell has."""
        names = {"alpha": "α", "other": f"α, {self.other}", "against_ce": "less CE's", "left_out": "largest left out"}
        cells = [cell for row in self.rows for cell in row.cells.values()]
        return {key: name for key, name in names.items() if any(getattr(cell, key) for cell in cells)}


def lead_of(findings: Iterable[Finding]) -> Lead | None:
    """The first page of all findings of some measurements; None where no law was fitted."""
    asked = by_question(findings)
    laws = [one for one in asked.get("law in size", []) if one.extras["lead"]]
    if not laws:
        return None
    metrics = list(dict.fromkeys(one.case["metric"] for one in laws))
    metrics = [m for m in metrics if m == CE] + [m for m in metrics if m != CE]
    places = dict.fromkeys((one.case["family"], one.case["dataset"]) for one in laws)
    by_place: dict[tuple[Any, ...], list[Finding]] = {}
    for one in chain.from_iterable(asked.values()):
        by_place.setdefault((one.case.get("family"), one.case.get("dataset")), []).append(one)
    said = [next(sentences_of(question, asked[question]), "") for question in QUESTIONS if question in asked]
    size = laws[0].extras["size"]
    return Lead(
        metrics,
        [_row(place, metrics, by_question(by_place[place])) for place in places],
        S_IN_WORDS.get(size, size),
        OTHER_S.get(size, "") if any(one.extras["other"] for one in laws) else "",
        [upper_first(sentence) for sentence in said if sentence][:_MOST],
    )


def _row(place: tuple[str, str], metrics: Sequence[str], asked: Mapping[str, Sequence[Finding]]) -> Row:
    laws, contrasts, left_out = (
        {one.case["metric"]: one for one in asked.get(question, [])}
        for question in ("law in size", "same as CE", "error at the largest")
    )
    cells = {m: _cell(laws[m], contrasts.get(m), left_out.get(m)) for m in metrics if m in laws}
    straight = asked.get("straight up to k", [])
    bends = [one for one in asked.get("bends", []) if one.case.get("metric", CE) in metrics]
    sizes = max(one.extras["sizes"] for one in laws.values())
    return Row(*place, sizes, cells, _straight(straight[0]) if straight else "", _bends(bends))


def _cell(law: Finding, contrast: Finding | None, left_out: Finding | None) -> Cell:
    other = law.extras["other"]
    by_other = f"{number(other[0], '.3f')} ({interval(other[1], other[2])})" if other else ""
    against = f"{number(contrast.estimate, '+.3f')} {_AGAINST_CE[contrast.verdict]}" if contrast else ""
    error = ""
    if left_out and isfinite(left_out.estimate):
        error = f"{number(left_out.estimate, '+.1%')} ± {number(left_out.extras['noise'], '.1%')}"
    return Cell(number(law.estimate, ".3f"), interval(law.low, law.high), by_other, against, error)


def _straight(one: Finding) -> str:
    if not isfinite(one.estimate):
        return _NO_K
    last = one.estimate == one.extras.get("last_k")
    return f"{one.estimate:,.0f}" + " (the last tried)" * last


def _bends(findings: Sequence[Finding]) -> str:
    """Of all metrics that the page shows: their common verdict, or each verdict's metrics."""
    kinds: dict[Verdict, list[Finding]] = {}
    for one in findings:
        kinds.setdefault(one.verdict, []).append(one)
    said = []
    for verdict, mine in kinds.items():
        text = _BENDS.get(verdict, str(verdict))
        if len(kinds) > 1:
            text += f" ({', '.join(metric_of(one) if 'metric' in one.case else 'RBP_k' for one in mine)})"
        seen = [one.extras["floor_seen"] for one in mine if isfinite(one.extras.get("floor_seen", float("nan")))]
        if verdict is not Verdict.YES and seen:
            text += f" (a floor of {max(seen):.0%} would be seen)"
        elif verdict is Verdict.UNTOLD and any(isfinite(one.p) for one in mine):
            text += " (no floor would be seen)"
        said.append(text)
    return "; ".join(said)
