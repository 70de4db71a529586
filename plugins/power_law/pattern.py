"""Whether the errors of laws at the next larger size have one sign more often than chance gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import nan
from typing import Self

import numpy as np

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.laws import FamilyLaw
from rbptrack.analysis.phrases import where, with_verdict
from rbptrack.base.words import counted, p_in_words
from rbptrack.ranks import FloatArray
from rbptrack.stats import linear

_DRAWS = 4000
_NONE = 1e-9  # errors of ln y that are rounding
_LEAST = 4  # sizes: two errors


@dataclass(frozen=True, kw_only=True)
class OneSign(Finding):
    """Mean sign of measured less predicted ln y, each size by the law of all smaller ones: -1 to 1.

    Above 0, larger models are worse than the smaller ones' law predicts.

    Attributes:
        errors: how many, over sizes and metrics.
        above: how many of them are above 0.
        reachable: p where all errors had one sign.

    """

    question: str = "sign of errors"
    errors: int
    above: int
    reachable: float = nan

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say which laws curve, and where that is undecided."""
        for finding in with_verdict(findings, Verdict.DIFFERENT):
            worse = finding.estimate > 0
            alike = finding.above if worse else finding.errors - finding.above
            side, word = ("above", "worse") if worse else ("below", "better")
            yield (
                f"{where(finding)}: the laws curve. Measured CE and -ln RBP_k of the next larger model lie {side} "
                f"the smaller ones' law in {alike} of {finding.errors} cases: larger models are {word} than the law "
                f"predicts ({p_in_words(finding.p_corrected)}, corrected)."
            )
        if undecided := with_verdict(findings, Verdict.UNTOLD):
            cases = counted(len(undecided), "case")
            text = f"Undecided in {cases}: whether the laws' errors at the next size have one sign"
            few = sum(finding.reachable * len(findings) >= 0.05 for finding in undecided)
            yield text + (
                f"; in {few} of them no pattern of signs could be significant (too few sizes)." if few else "."
            )


def sign_test(laws: Sequence[FamilyLaw]) -> OneSign | None:
    """Test the signs over sizes and metrics of a family on a dataset; None under 4 sizes.

    The null is drawn: power laws with their sampling errors and their scatter between models, both with the same
    deviates for all metrics, as a model that is ahead is so in all of them. Metrics that do not move together make the
    test conservative.

    Source: recursive residuals (Brown, Durbin and Evans, Journal of the Royal Statistical Society B 37, 1975), their
    signs by a parametric bootstrap.

    Args:
        laws: of the metrics, over the same sizes.

    """
    usable = [law for law in laws if law.law.points >= _LEAST and len(set(law.law.s)) == law.law.points]
    if not usable:
        return None
    deviates = np.random.default_rng(20251022).standard_normal((2, _DRAWS, usable[0].law.points))
    observed = []
    drawn = np.zeros(_DRAWS)
    for law in usable:
        order = np.argsort(law.law.s)
        weights = _next_errors(np.log(law.law.s[order]))
        observed.append(_signs(np.log(law.law.y[order]) @ weights.T))
        values, vectors = np.linalg.eigh(law.law.covariance[np.ix_(order, order)])
        root = vectors * np.sqrt(np.clip(values, 0, None)) @ vectors.T
        drawn += _signs((deviates[0] @ root + law.law.tau * deviates[1]) @ weights.T).sum(axis=1)
    signs = np.concatenate(observed)
    return OneSign(
        case=usable[0].family.keys,
        estimate=float(signs.mean()),
        p=_p(drawn, abs(float(signs.sum()))),
        errors=len(signs),
        above=int((signs > 0).sum()),
        reachable=_p(drawn, float(len(signs))),
    )


def _p(drawn: FloatArray, total: float) -> float:
    return float((np.abs(drawn) >= total).sum() + 1) / (_DRAWS + 1)


def _signs(errors: FloatArray) -> FloatArray:
    return np.sign(np.where(np.abs(errors) > _NONE, errors, 0.0))


def _next_errors(x: FloatArray) -> FloatArray:
    """Return weights of ln y in measured less predicted at each size but the first two, (m - 2, m).

    Each size is predicted by the line through all smaller ones.
    """
    rows = np.zeros((len(x) - 2, len(x)))
    for place, row in enumerate(rows, start=2):
        before = x[:place]
        row[:place] = -np.array([1.0, x[place] - before.mean()]) @ linear.inverse(linear.centred(before))
        row[place] = 1.0
    return rows
