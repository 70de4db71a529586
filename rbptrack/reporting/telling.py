"""From findings to words: the one place where sentences of analyses are put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from rbptrack.analysis.contract import Report
from rbptrack.analysis.findings import Finding, NothingToSay, Reason, by_question
from rbptrack.analysis.phrases import estimate
from rbptrack.base.errors import RbptrackError
from rbptrack.base.words import p_in_words
from rbptrack.reporting import sentences

Sentences = Callable[[Sequence[Finding]], Iterable[str]]


def tell(report: Report) -> None:
    """Put the sentences of a report's findings before its notes, and the first of them into an empty headline."""
    said = told(report.findings)
    report.notes[:0] = said
    if said and not report.headline:
        report.headline = said[0].rstrip(".")


def told(findings: Iterable[Finding]) -> list[str]:
    """The sentences of findings, question by question."""
    return [text for question, mine in by_question(findings).items() for text in sentences_of(question, mine)]


def sentences_of(question: str, findings: Sequence[Finding]) -> Iterator[str]:
    """The sentences of one question; the first says the whole. A question of others' is told case by case."""
    yield from _known().get(question, _plainly)(findings)


def skipped(error: RbptrackError) -> str:
    """Why an analyzer has nothing to say: `3 sizes needed and 2 there`; the error's own words where it has no code."""
    remarks = error.remarks if isinstance(error, NothingToSay) else []
    few = [one.values for one in remarks if one.reason == Reason.FEW_SIZES]
    if few and len(few) == len([one for one in remarks if one.reason not in (Reason.KINDS, Reason.SEVERAL_RUNS)]):
        return f"{max(v['needed'] for v in few)} sizes needed and {max(v['there'] for v in few)} there"
    if remarks and all(one.reason == Reason.NO_RANKS for one in remarks):
        return "imported without ranks"
    return " ".join(str(error).split())


@cache
def _known() -> dict[str, Sentences]:
    """Question -> its sentences, of every module of `rbptrack.reporting.sentences`."""
    modules = [import_module(f"{sentences.__name__}.{one.name}") for one in iter_modules(sentences.__path__)]
    return {question: says for module in modules for question, says in module.SENTENCES.items()}


def _plainly(findings: Sequence[Finding]) -> Iterable[str]:
    for one in findings:
        case = ", ".join(map(str, one.case.values()))
        p = one.p if one.p_corrected != one.p_corrected else one.p_corrected
        numbers = [estimate(one, ".4g")] * (one.estimate == one.estimate) + [p_in_words(p)] * (p == p)
        yield f"{one.question}, {case}: {', '.join([one.verdict, *numbers])}."
