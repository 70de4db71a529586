"""The distribution of ranks: which candidate is nearest, and whether a lognormal or Zipf's law may be true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import estimate, where, with_verdict
from rbptrack.base.words import number, some_of, spread


def shapes(findings: Sequence[Finding]) -> Iterator[str]:
    """The best candidate, and in how many measurements gamma allows a lognormal or Zipf's law."""
    names = [one.extras["best"] for one in findings]
    nearest = max(dict.fromkeys(names), key=names.count)
    convex, both = with_verdict(findings, Verdict.NO), with_verdict(findings, Verdict.UNTOLD)
    times = some_of(names.count(nearest), len(findings), "measurement")
    text = f"Of {findings[0].extras['candidates']} candidates the best (by AIC) is {nearest} in {times}; the lognormal "
    text += f"misses RBP_k by up to {max(one.extras['ks'] for one in findings):.3f}"
    if zipf := [one for one in both if isfinite(one.low)]:
        text += f"; in {len(zipf)} of {len(findings)} it cannot be told from Zipf's law"
    if convex:
        text += f"; in {len(convex)} of {len(findings)} gamma lies below 0, which excludes both"
    yield f"{text}."


def distributions(findings: Sequence[Finding]) -> Iterator[str]:
    """Of each family: how near the candidates come, how mu/sigma changes, and what the lognormals imply."""
    for one in findings:
        about, place = one.extras, where(one)
        kl = {name: spread([1e3 * v for v in values], ".1f", about["sizes"]) for name, values in about["kl"].items()}
        times = some_of(about["times"], len(about["sizes"]), "size")
        text = f"{place}: the best at {times} is {about['best']}. Beyond sampling noise, in 10^-3 nats per token, the "
        text += f"ranks lie {kl[about['nearest']]} from it"
        text += "" if about["nearest"] == "lognormal" else f", {kl['lognormal']} from the lognormal"
        yield f"{text} and {kl['zipf']} from Zipf's law. The lognormal misses RBP_k most at k = {about['ks'][1]:,}."
        if about["vuong"] > 2:
            z = f"Vuong's z at least {about['vuong']:.1f}"
            yield f"{place}: document by document too it fits better than the lognormal at every size ({z})."
        if isfinite(one.estimate):
            yield f"{place}: mu/sigma changes by {estimate(one, '+.3f')} per unit of ln S."
        else:
            yield f"{place}: how mu/sigma changes with S cannot be told: gamma may be near 0."
        off = spread(about["entropy_off"], "+.3f", unit="nats")
        text = f"{place}: the fitted lognormals imply an entropy that is off by {off}, and a -ln RBP_1 off by "
        text += spread(about["p1_off"], "+.1%")
        if len(about["exponents"]) == 2:
            text += "; its exponent would be {1:.3f} instead of {0:.3f}".format(*about["exponents"])
        if isfinite(about["integral_off"]):
            text += f"; the appendix's integral differs from the exact sum by up to {about['integral_off']:.2f}"
        yield f"{text}."
        if len(about["terms"]) > 1:
            (first, *before), (last, *after) = about["terms"][0], about["terms"][-1]
            square, log_c, both = (number(b - a, "+.2f") for a, b in zip(before, after, strict=True))
            yield (
                f"{place}: of -ln p_1 = ln c + mu^2/(2 sigma^2) (appendix B.4), from {first} to {last} the second term "
                f"changes by {square} and ln c by {log_c}, together by {both}."
            )


SENTENCES = {"shape of the ranks": shapes, "distribution of ranks": distributions}
