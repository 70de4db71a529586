"""What two models differ by on the same tokens: the rows and findings that a comparison of any two has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, Self

from rbptrack.analysis.findings import Finding, Verdict, around, corrected, sure
from rbptrack.analysis.phrases import estimate, with_verdict
from rbptrack.analysis.rows import Column, Corrected, P
from rbptrack.base.words import counted, listed, number, some_of
from rbptrack.ranks import CE, metric_label
from rbptrack.stats.intervals import Interval
from rbptrack.stats.pairs import PAIR_LABELS, Change

_FEW = 4  # pairs that are named

Case = Mapping[str, str]
"""Of two models: `dataset`, `a` and `b`."""


@dataclass(kw_only=True)
class MetricChange:
    """A metric in both models."""

    metric: Annotated[str, Column("CE, its parts, entropy of the model's distribution, KL (nats); RBP_k")]
    value_A: Annotated[float, Column("of A", form=".4f")]  # noqa: N815
    value_B: Annotated[float, Column("of B", form=".4f")]  # noqa: N815
    difference: Annotated[Interval, Column("B - A (documents paired)", form="+.4f", bare=True)]
    p: P
    p_corrected: Corrected
    detectable: Annotated[
        float,
        Column("smallest difference that these texts could have shown, corrected (80% power)", form=".4f"),
    ]
    verdict: Annotated[str, Column("different or undecided")]


@dataclass(frozen=True, kw_only=True)
class Changed(Finding):
    """A metric of the second model minus that of the first, over the same tokens.

    Attributes:
        a: the metric in the first model.
        b: in the second.
        tests: number of tests that p is corrected for.

    """

    question: str = "changed"
    a: float
    b: float
    tests: int

    @property
    def label(self) -> str:
        """The metric as people write it: CE, RBP_10, rank part of CE."""
        metric = self.case["metric"]
        return PAIR_LABELS.get(metric) or metric_label(metric)

    @property
    def cells(self) -> dict[str, Any]:
        """Return the fields of a `MetricChange`."""
        return {
            "metric": self.label,
            "value_A": self.a,
            "value_B": self.b,
            "difference": self.interval,
            "p": self.p,
            "p_corrected": self.p_corrected,
            "detectable": self.detectable,
            "verdict": self.verdict,
        }

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say what differs; of what does not, the smallest difference that we could have detected."""
        pairs = list(dict.fromkeys((f.case["dataset"], f.case["a"], f.case["b"]) for f in findings))
        if len(pairs) == 1:
            yield from _one_pair(findings)
            return
        different = some_of(len(with_verdict(findings, Verdict.DIFFERENT)), len(findings), "difference")
        yield f"CE, its parts, entropy or RBP_k differ significantly in {different} (corrected)."
        shown = [finding for finding in findings if finding.case["metric"] == CE]
        for change in shown if len(shown) <= _FEW else ():
            case = change.case
            text = f"CE of {case['b']} minus CE of {case['a']} on {case['dataset']} is {estimate(change, '+.4f')} nats"
            if change.verdict is not Verdict.DIFFERENT and isfinite(change.detectable):
                text += f"; we could have detected {number(change.detectable, '.4f')} (80% power)"
            yield f"{text}."


def _one_pair(findings: Sequence[Changed]) -> Iterator[str]:
    case = findings[0].case
    both = f"{case['a']} and {case['b']} on {case['dataset']}"
    different = with_verdict(findings, Verdict.DIFFERENT)
    tests = f"corrected for {counted(findings[0].tests, 'test')}"
    if different:
        texts = [f"{change.label} {number(change.estimate, '+.4f')}" for change in different]
        yield f"{both} differ significantly in {listed(texts)} ({tests})."
    elif findings[0].tests:
        yield f"No significant difference between {both} ({tests})."
    else:
        yield f"No test of {both}: fewer than 10 documents, or no sampling error is known."
    undecided = [change for change in findings if change not in different and isfinite(change.detectable)]
    least = [f"{number(change.detectable, '.4f')} in {change.label}" for change in undecided if change.detectable > 0]
    if least:
        yield f"Undecided: we could have detected differences of {listed(least)} (80% power)."


def changed(changes: Sequence[tuple[Case, str, Change]], level: float) -> list[Changed]:
    """Test differences between pairs of models.

    Args:
        changes: the pair, the metric and its change.
        level: nominal coverage of the intervals; tests have size 1 - level, corrected over all of them (Holm).

    """
    tests = sum(isfinite(change.difference.p) for *_, change in changes)
    decides = 1 - (1 - level) / max(tests, 1)
    findings = [
        Changed(
            case={**case, "metric": metric},
            a=change.a,
            b=change.b,
            p=change.difference.p,
            detectable=change.difference.detectable(decides),
            tests=tests,
            **around(change.difference.interval(level)),
        )
        for case, metric, change in changes
    ]
    return corrected(findings, sure(level))
