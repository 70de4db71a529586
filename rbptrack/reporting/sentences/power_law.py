"""The laws in size: exponents, whether RBP_k gains faster than CE, and how well they foretell the largest model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import by_where, estimate, interval, metric_of, where, with_verdict
from rbptrack.base.words import counted, listed, number, p_in_words, short_number, some_of

_NOTABLE = 0.02  # relative change of alpha by one size that is worth a sentence


def law_in_size(findings: Sequence[Finding]) -> Iterator[str]:
    """In how many laws larger models are better; then each family's exponents."""
    clear = some_of(len(with_verdict(findings, Verdict.YES)), len(findings), "law")
    inverse = with_verdict(findings, Verdict.NO)
    worse = f"; in {len(inverse)} they are worse (an inverse law)" if inverse else ""
    yield f"Larger models are better in {clear}{worse}."
    for place, mine in by_where(findings).items():
        about = mine[0].extras
        exponents = listed([f"{estimate(one)} for {metric_of(one)}" for one in mine])
        span = f"{about['sizes']} sizes, S = {short_number(about['smallest'])} to {short_number(about['largest'])}"
        yield f"{place}: alpha is {exponents} ({span}; {about['level']:.0%} intervals)."
        if inverse := with_verdict(mine, Verdict.NO):
            yield f"{place}: the law of {_metrics(inverse)} is inverse: larger models are worse."
        if unsure := with_verdict(mine, Verdict.UNTOLD):
            yield f"{place}: no law is claimed for {_metrics(unsure)}: the interval includes 0."
    yield _by_other(findings)


def _by_other(findings: Sequence[Finding]) -> str:
    """How much exponents change with the other count of parameters."""
    known = [one for one in findings if one.extras["other"]]
    if not known:
        return "The other count of parameters is not known of these models: alpha stands for one definition of S."
    by = "all parameters" if findings[0].extras["size"] == "non_embedding_params" else "non-embedding parameters"
    most = max(known, key=lambda one: abs(_change(one)))
    alphas = f"{number(most.estimate, '.3f')} becomes {number(most.extras['other'][0], '.3f')}"
    share = f"{abs(_change(most)):.0%}"
    return f"With S as {by}, alpha changes by up to {share} ({metric_of(most)} of {where(most)}: {alphas})."


def same_as_ce(findings: Sequence[Finding]) -> Iterator[str]:
    """How often RBP_k improves faster with S than CE does."""
    told = with_verdict(findings, Verdict.DIFFERENT)
    faster, slower = ([one for one in told if sign * one.estimate > 0] for sign in (1, -1))
    size = f"{findings[0].extras['margin']:.0%}"
    kinds = {
        "faster than CE": faster,
        "slower than CE": slower,
        f"as fast as CE (within {size})": with_verdict(findings, Verdict.SAME, Verdict.CLOSE),
    }
    counts = [f"{verdict} in {len(mine)}" for verdict, mine in kinds.items() if mine]
    if untold := with_verdict(findings, Verdict.UNTOLD):
        counts.append(f"undecided in {len(untold)}")
    if len(faster) == len(findings):
        gaps = [one.estimate for one in faster]
        by = interval(min(gaps), max(gaps)) if len(gaps) > 1 else number(gaps[0], ".3f")
        every, worst = some_of(len(gaps), len(gaps), "comparison"), p_in_words(max(one.p_corrected for one in faster))
        yield f"RBP_k improves faster with size than CE in {every}: its alpha is larger by {by} (corrected {worst})."
    else:
        yield f"Of {counted(len(findings), 'comparison')} with CE, RBP_k improves {listed(counts)}."


def at_largest(findings: Sequence[Finding]) -> Iterator[str]:
    """How the law of the smaller models foretells the largest one."""
    known = [one for one in findings if isfinite(one.estimate)]
    if not known:
        return
    low, high = (pick(known, key=lambda one: one.estimate) for pick in (min, max))
    worst = max(known, key=lambda one: abs(one.estimate))
    beyond = sum(abs(one.estimate) > 2 * one.extras["noise"] for one in known)
    ends = [f"{100 * abs(one.estimate):.0f}" for one in sorted((low, high), key=lambda one: abs(one.estimate))]
    if low.estimate < 0 < high.estimate:
        spread = f"between {-low.estimate:.0%} too low and {high.estimate:.0%} too high"
    else:
        spread = f"{' to '.join(dict.fromkeys(ends))}% too {'low' if high.estimate <= 0 else 'high'}"
    yield (
        f"From the smaller models, the law predicts CE and -ln RBP_k of the largest one {spread} (worst: "
        f"{metric_of(worst)} of {where(worst)}); {beyond} of {counted(len(known), 'error')} exceed twice their noise."
    )


def decides(findings: Sequence[Finding]) -> Iterator[str]:
    """Of each family, the size without which an exponent changes most."""
    for one in findings:
        if one.estimate > _NOTABLE:
            about = one.extras
            yield (
                f"{where(one)}: {about['size']} decides most; without it alpha of {metric_of(one)} is "
                f"{number(about['without'], '.3f')} instead of {number(about['alpha'], '.3f')}."
            )


def within_seeds(findings: Sequence[Finding]) -> Iterator[str]:
    """How far runs of one size scatter, and whether a power law fits within that."""
    for place, mine in by_where(findings).items():
        about, scatter = mine[0].extras, [100 * one.estimate for one in mine]
        rejected = with_verdict(mine, Verdict.NO)
        text = f"no power law fits {_metrics(rejected)} within that" if rejected else "power laws fit within that"
        yield (
            f"{place}: {about['runs']} runs of {counted(about['sizes'], 'size')} scatter by "
            f"{interval(min(scatter), max(scatter), '.1f')}% in y beyond sampling error; {text}."
        )


def _metrics(findings: Sequence[Finding]) -> str:
    return listed([metric_of(one) for one in findings])


def _change(one: Finding) -> float:
    return float((one.extras["other"][0] - one.estimate) / (abs(one.estimate) or 1.0))


SENTENCES = {
    "law in size": law_in_size,
    "same as CE": same_as_ce,
    "error at the largest": at_largest,
    "size that decides": decides,
    "fits within seeds": within_seeds,
}
