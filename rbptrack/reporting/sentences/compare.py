"""Two sides against each other: their laws, exponents, models, and what is left at equal cross-entropy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import estimate, interval, with_verdict
from rbptrack.base.words import counted, listed, number, short_number, some_of
from rbptrack.ranks import metric_label, parse_rbp_name

_FEW = 3  # pairs that are named
_SHOWN = 120  # characters of a text
_EXPONENTS = {
    Verdict.DIFFERENT: "different exponents",
    Verdict.CLOSE: "slightly different exponents",
    Verdict.SAME: "the same exponent",
    Verdict.UNTOLD: "exponents that cannot be told apart",
}


def laws_apart(findings: Sequence[Finding]) -> Iterator[str]:
    """Which sides follow different laws, and whether their exponents differ, in the metric that is shown."""
    mine = [one for one in findings if one.extras["shown"]]
    if not mine:
        return
    apart, metrics = with_verdict(mine, Verdict.DIFFERENT), listed(list(dict.fromkeys(map(_metric, mine))))
    if len(mine) <= _FEW:
        said = []
        for one in mine:
            law = "follow different laws" if one in apart else "may follow the same law"
            joint = "with" if one in apart else "and have"
            said.append(
                f"{_sides(one)} {law}, {joint} {_EXPONENTS[one.extras['exponents']]} ({_metric(one)}, {_on(one)})"
            )
        yield f"{'; '.join(said)}."
    else:
        steeper = sum(one.extras["exponents"] in (Verdict.DIFFERENT, Verdict.CLOSE) for one in mine)
        yield (
            f"{len(apart)} of {counted(len(mine), 'pair')} of families or datasets follow different laws, "
            f"{steeper} with different exponents ({metrics})."
        )
    for one in mine if len(mine) <= _FEW else ():
        yield (
            f"{_sides(one)} ({_on(one)}): the ratio of their laws at S = {short_number(one.extras['at'])} is "
            f"{estimate(one)}."
        )


def same_exponents(findings: Sequence[Finding]) -> Iterator[str]:
    """How many of all pairs and metrics have different, equal or undecided exponents."""
    words = {
        "differ": (Verdict.DIFFERENT, Verdict.CLOSE),
        "are the same within the margin": (Verdict.SAME,),
        "cannot be told apart": (Verdict.UNTOLD,),
    }
    counts = {text: len(with_verdict(findings, *verdicts)) for text, verdicts in words.items()}
    every = {len(findings): "all" if len(findings) > 1 else "it"}
    said = [f"{every.get(count, count)} {text}" for text, count in counts.items() if count]
    low, high = (end(one.estimate for one in findings) for end in (min, max))
    span = f"differences {interval(low, high, '+.3f')}" if len(findings) > 1 else f"difference {number(low, '+.3f')}"
    yield f"Of {counted(len(findings), 'pair')} of exponents, {listed(said)} ({span})."


def apart_at_equal_ce(findings: Sequence[Finding]) -> Iterator[str]:
    """Who ranks better at equal cross-entropy."""
    mine = [one for one in findings if one.extras["shown"]]
    apart = with_verdict(mine, Verdict.DIFFERENT)
    if mine and not apart:
        yield f"At equal cross-entropy no pair of families is told apart ({some_of(0, len(mine), 'pair')})."
    for one in apart[:_FEW]:
        better, other = (one.case["a"], one.case["b"]) if one.estimate < 1 else (one.case["b"], one.case["a"])
        yield (
            f"At equal cross-entropy {better} ranks better than {other} on {_on(one)}: -ln {_metric(one)} of "
            f"{one.case['a']} is {estimate(one)} times that of {one.case['b']}."
        )
    if len(apart) > _FEW:
        yield f"At equal cross-entropy {len(apart)} of {counted(len(mine), 'pair')} of families are told apart."


def models_differ(findings: Sequence[Finding]) -> Iterator[str]:
    """How many models of equal S differ on these very texts; of few pairs, which side is better."""
    total, sure = (
        sum(one.extras[n] for one in findings for n in names) for names in (["pairs"], ["a_better", "b_better"])
    )
    yield f"On these very texts {some_of(sure, total, 'comparison')} of models of equal S tells them apart."
    for one in findings if len(findings) <= 2 * _FEW else ():
        a, b, about = one.case["a"], one.case["b"], one.extras
        yield (
            f"{_sides(one)} on {_on(one)}: by {one.case['metric']}, {a} is better at {about['a_better']} and {b} at "
            f"{about['b_better']} of {counted(about['pairs'], 'size')}; another seed or recipe may differ as much."
        )


def gaps(findings: Sequence[Finding]) -> Iterator[str]:
    """What two models need per byte of the same text, and the words on which they differ most."""
    for names in list(dict.fromkeys(map(_models, findings)))[:_FEW]:
        whole, *kinds = (one for one in findings if _models(one) == names)
        better, other = names[:2] if whole.estimate < 0 else names[1::-1]
        less = number(abs(whole.estimate), ".3f")
        if whole.verdict is not Verdict.DIFFERENT:
            yield f"{names[0]} and {names[1]} need about the same nats per byte on {names[2]} (a difference of {less})."
            continue
        low, high = sorted((abs(whole.low), abs(whole.high)))
        text = f"{better} needs {less} ({interval(low, high)}) nats per byte less than {other} on {names[2]}"
        if sure := with_verdict(kinds, Verdict.DIFFERENT):
            most = max(sure, key=lambda one: abs(one.estimate))
            text += f"; the gap is widest on words of the kind '{most.case['words']}', {estimate(most, '+.3f')}"
        yield f"{text}."
        for model, segments in zip(names[:2], whole.extras["segments"], strict=True):
            for one in segments:
                said = " ".join(one.text.split())[:_SHOWN]
                yield f"{model} falls furthest behind, by {number(abs(one.gap), '.1f')} nats, on: {said}"


def _models(one: Finding) -> tuple[str, str, str]:
    return one.case["a"], one.case["b"], one.case["dataset"]


def _sides(one: Finding) -> str:
    return f"{one.case['a']} and {one.case['b']}"


def _on(one: Finding) -> str:
    return one.case.get("dataset") or one.case["family"]


def _metric(one: Finding) -> str:
    metric = one.case["metric"]
    return metric_label(metric) if metric == "ce" or parse_rbp_name(metric) else metric


SENTENCES = {
    "laws apart": laws_apart,
    "same exponents": same_exponents,
    "apart at equal CE": apart_at_equal_ce,
    "models differ": models_differ,
    "gap on the text": gaps,
}
