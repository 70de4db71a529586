"""Classes of tokens, and early against late positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import estimate, interval, metric_of, where, with_verdict
from rbptrack.base.words import counted, listed, p_in_words, some_of


def classes(findings: Sequence[Finding]) -> Iterator[str]:
    """The headline: by which classes exponents differ; then each way of classing of each family."""
    differ = with_verdict(findings, Verdict.DIFFERENT)
    ends = [one.extras[end]["alpha"] for one in findings for end in ("lowest", "highest")]
    change, within = (sum(one.extras[name] for one in findings) for name in ("change", "within"))
    how = f" (by {listed(list(dict.fromkeys(one.case['by'] for one in differ)))})" if differ else ""
    text = (
        f"The exponent of {findings[0].extras['metric']} differs between classes of tokens in "
        f"{some_of(len(differ), len(findings), 'case')}{how}; in a class it is {interval(min(ends), max(ends))}"
    )
    if abs(change) > 1e-6:
        text += f". Of its change with k, {within / change:z.0%} lies within classes"
    yield f"{text}."
    for one in findings:
        low, high, most = (one.extras[name] for name in ("lowest", "highest", "most"))
        if not one.extras["pairs"]:
            yield f"{where(one)}, by {one.case['by']}: all tokens that have a law are in one class."
            continue
        apart = one.verdict is Verdict.DIFFERENT
        told = f"they differ, {p_in_words(one.p_corrected)}, corrected" if apart else "classes cannot be told apart"
        yield (
            f"{where(one)}, by {one.case['by']}: alpha is {_alpha(low)} in '{low['class']}' and {_alpha(high)} in "
            f"'{high['class']}' ({told}); '{most['class']}' ({most['share']:z.0%} of the tokens) accounts for "
            f"{most['gain']:z.0%} of the gain."
        )


def _alpha(row: Mapping[str, Any]) -> str:
    return f"{row['alpha']:.3f} ({interval(row['alpha_low'], row['alpha_high'])})"


def late(findings: Sequence[Finding]) -> Iterator[str]:
    """How the exponent changes along the text."""
    differ = with_verdict(findings, Verdict.DIFFERENT)
    cases = counted(len(findings), "case")
    if not differ:
        yield f"No evidence that exponents differ between early and late positions ({cases})."
        return
    larger = sum(one.estimate > 0 for one in differ)
    yield (
        f"At late positions the exponent is larger in {larger} and smaller in {len(differ) - larger} of {cases} (each "
        "a family, dataset and metric; corrected)."
    )
    for one in differ:
        early, at_end = one.extras["alphas"]
        reached, every = one.extras["documents"]
        yield (
            f"{where(one)}: alpha of {metric_of(one)} is {early:.3f} at positions {one.extras['early']} and "
            f"{at_end:.3f} at {one.extras['late']}, a difference of {estimate(one)} (in the "
            f"{some_of(reached, every, 'document')} that reach the last bin)."
        )


SENTENCES = {"classes of tokens": classes, "late against early": late}
