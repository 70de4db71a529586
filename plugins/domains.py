"""Where the law holds and where it fails: RBP_k, CE and alpha by source of the documents (`dataset.group`).

A source is a domain: a site, a language, one of the corpora of a benchmark such as Paloma. Its documents are resampled
within it, so that its numbers are of this very domain; elsewhere sources are resampled, and numbers are of all texts.
"""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import combinations
from typing import Annotated, Any, ClassVar

import numpy as np

from rbptrack.analysis import Analyzer, BadInput, Drawing, Report, Runs, rbp_name
from rbptrack.analysis.bar_figures import Bar, bar_panels
from rbptrack.analysis.families import Family, read_families
from rbptrack.analysis.findings import Finding, corrected, sure
from rbptrack.analysis.rows import R2, UNKNOWN, Column, Corrected, Exponent, NonEmbedding, OfFamily, P, exponent
from rbptrack.ranks import CE, DocumentCounts, FloatArray, metric_label
from rbptrack.stats.contrasts import laws_apart
from rbptrack.stats.intervals import LEAST_DOCUMENTS, Interval, worth
from rbptrack.stats.power_law import PowerLawFit
from rbptrack.stats.shares import share_of
from rbptrack.stats.size_laws import LawValues, law_values
from rbptrack.stats.spread import Spread

LEVELS, EXPONENTS = "sources differ", "exponents of sources differ"
_NO_SOURCES = "no dataset has documents of two sources (dataset.group names their field)"


@dataclass(kw_only=True)
class OfSource(OfFamily):
    """A row about one source."""

    source: Annotated[str, Column("the source: a value of the field that dataset.group names")]


@dataclass(kw_only=True)
class SummaryRow(OfSource):
    """What is known of a source."""

    documents: Annotated[int, Column(f"its documents; no interval from fewer than {LEAST_DOCUMENTS}", form=",.0f")]
    share: Annotated[float, Column("its share of the scored tokens", form=".1%")]
    ce: Annotated[Interval, Column("cross-entropy of the largest size, nats", title="CE", form=".3f")]
    rbp: Annotated[Interval, Column("RBP_k of the largest size, at the k of analyzer.shown", title="RBP", form=".3f")]
    alpha: Annotated[Interval, Column("exponent of that RBP_k's law in size, in the source", title="α", form=".3f")]


@dataclass(kw_only=True)
class ValueRow(OfSource):
    """One metric of one model in a source."""

    size: Annotated[str, Column("the size as published")]
    S: NonEmbedding
    metric: Annotated[str, Column("CE in nats, or RBP_k")]
    value: Annotated[Interval, Column("its value (interval: documents of the source)", form=".4f", bare=True)]


@dataclass(kw_only=True)
class LawRow(OfSource):
    """The law in a source."""

    metric: Annotated[str, Column("CE or RBP_k")]
    alpha: Exponent
    r2: R2


@dataclass(kw_only=True)
class ContrastRow(OfSource):
    """Two sources against each other."""

    than: Annotated[str, Column("the source that it is compared with")]
    quantity: Annotated[str, Column("CE and RBP_k of the largest size, or the exponent of RBP_k")]
    difference: Annotated[
        Interval, Column("of the source less of the other, whose documents are others", form="+.3f", bare=True)
    ]
    p: P
    p_corrected: Corrected
    verdict: Annotated[str, Column("different or undecided")]


@dataclass(frozen=True)
class Domain:
    """One source of the documents that a family has read.

    Attributes:
        family: whose.
        source: its name.
        counts: by document, of each size, ascending in S.
        share: of the scored tokens.
        several: whether it is a rest of small sources put together, of which nothing but numbers is said.

    """

    family: Family
    source: str
    counts: list[DocumentCounts]
    share: float
    several: bool = False

    @property
    def documents(self) -> int:
        """How many."""
        return len(self.counts[0].document)

    @property
    def enough(self) -> bool:
        """Whether there are documents enough for intervals."""
        return self.documents >= LEAST_DOCUMENTS and not self.several

    @property
    def keys(self) -> dict[str, Any]:
        """What every row begins with."""
        return self.family.keys | {"source": self.source}

    @cached_property
    def values(self) -> LawValues | None:
        """What laws are fitted to; None with fewer than 3 sizes."""
        return law_values(self.counts) if len(self.counts) >= 3 else None

    def law(self, metric: str, level: float) -> PowerLawFit | None:
        """The law of one metric; None where there is none."""
        return self.values.fit(metric, self.family.s, level=level) if self.values else None

    def alpha(self, metric: str, level: float) -> Interval:
        """Its exponent."""
        law = self.law(metric, level)
        if self.enough:
            return exponent(law)
        return Interval(law.alpha) if law else UNKNOWN

    @cached_property
    def errors(self) -> list[dict[str, tuple[float, Spread]]]:
        """Every metric's value and error over documents, of each size: t with as many as decide (`worth`), less one."""
        return [
            {metric: _error(values, one.tokens) for metric, values in _by_document(one).items()} for one in self.counts
        ]

    def value(self, i: int, metric: str, level: float) -> Interval:
        """A metric of the i-th size."""
        value, spread = self.errors[i][metric]
        half = spread.half(level) if self.enough else np.nan
        return Interval(value, max(value - half, 0.0), min(value + half, np.inf if metric == CE else 1.0))


@dataclass(kw_only=True)
class Domains(Analyzer):
    """Where: RBP_k, CE and exponents by source of the documents (dataset.group), and which sources differ.

    Attributes:
        ks: the k to count at.
        shown: the k of the summary, figures and sentences.
        most: how many sources are told apart, those of most tokens; the others are counted together.
        level: nominal coverage of the intervals; tests have size 1 - level, corrected over all pairs (Holm).

    """

    name: ClassVar[str] = "domains"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    shown: int = 10
    most: int = 20
    level: float = 0.95

    def analyze(self, runs: Runs) -> Report:
        """Split every family's documents by their source."""
        if self.shown not in self.ks or self.most < 2:
            raise BadInput(
                f"analyzer.shown must be one of analyzer.ks and analyzer.most at least 2; got shown={self.shown} "
                f"ks={self.ks} most={self.most}"
            )
        report = Report(summary="summary")
        if not runs.frame["groups"].notna().any():
            raise report.nothing_found(_NO_SOURCES)

        def load(family: Family, run_id: str) -> list[DocumentCounts]:
            family.require_ranks()
            ks = [k for k in sorted(self.ks) if k < family.vocab_size]
            return [runs.document_counts(run_id, ks, by_source=False)]  # a list, which is not summed by source

        split = list[list[Domain]]()
        for family, counts in read_families(runs, load, report.notes):
            sources = runs.groups(family.run_ids[0][0])
            if len(set(sources)) > 1:
                split.append(self._split(family, [reduce(operator.add, several) for several in counts], sources))
                report.notes += _few(split[-1], len(set(sources)))
        if not split:
            raise report.nothing_found(_NO_SOURCES)
        every = [domain for domains in split for domain in domains]
        findings = corrected((one for domains in split for one in self._pairs(domains)), sure(self.level))
        report.findings += findings
        caption = f"CE and {self._label} of the largest size, and the exponent of {self._label}."
        report.add_rows("summary", map(self._summary, every), caption=caption)
        report.add_rows("contrasts", map(_contrast, findings))
        laws = [row for domain in every for row in self._laws(domain)]
        report.add_rows("laws", laws)
        report.add_rows("values", (row for domain in every for row in self._values(domain)))
        report.add_metrics("alpha_of_source/{family}/{dataset}/{metric}/{source}", laws, "alpha")
        self._draw(report, every)
        return report

    @property
    def _label(self) -> str:
        return metric_label(rbp_name(self.shown))

    def _split(self, family: Family, counts: Sequence[DocumentCounts], sources: Sequence[str]) -> list[Domain]:
        """The sources, that of most tokens first."""
        names, place = np.unique(np.asarray(sources), return_inverse=True)
        tokens = np.bincount(place, weights=counts[-1].tokens)
        order = np.argsort(-tokens, kind="stable")
        rest = order[self.most :] if len(order) > self.most else order[:0]
        parts = [(str(names[i]), [i]) for i in order if i not in rest]
        parts += [(f"{len(rest)} other sources", rest.tolist())] if len(rest) else []
        return [
            Domain(
                family, name, [one.take(np.isin(place, mine)) for one in counts],
                float(tokens[mine].sum() / tokens.sum()), several=len(mine) > 1,
            )
            for name, mine in parts
        ]  # fmt: skip

    def _pairs(self, domains: Sequence[Domain]) -> Iterator[Finding]:
        """Every two sources with documents enough: the largest size's CE and RBP_k, and the exponents."""
        shown = rbp_name(self.shown)
        for one, other in combinations((domain for domain in domains if domain.enough), 2):
            case, family = one.keys | {"than": other.source}, one.family
            for metric in (CE, shown):
                if metric in one.errors[-1]:
                    (a, error_a), (b, error_b) = one.errors[-1][metric], other.errors[-1][metric]
                    quantity = f"{metric_label(metric)} of {family.labels[-1]}"
                    yield self._finding(LEVELS, case, quantity, (a, b), error_a + error_b)
            if not (one.values and other.values):
                continue
            sides = ((family.s, one.values), (family.s, other.values))
            if apart := laws_apart(*sides, shown, same_texts=False, level=self.level):
                alphas = (apart.a.alpha, apart.b.alpha)
                yield self._finding(EXPONENTS, case, f"α of {self._label}", alphas, apart.alpha_spread)

    def _finding(
        self, question: str, case: dict[str, str], quantity: str, values: tuple[float, float], spread: Spread
    ) -> Finding:
        difference, half = values[0] - values[1], spread.half(self.level)
        return Finding(
            question=question, case=case | {"quantity": quantity}, estimate=difference, low=difference - half,
            high=difference + half, p=spread.p(difference), extras={"values": values},
        )  # fmt: skip

    def _summary(self, domain: Domain) -> SummaryRow:
        shown = rbp_name(self.shown)
        known = shown in domain.errors[-1]
        return SummaryRow(
            **domain.keys, documents=domain.documents, share=domain.share, ce=domain.value(-1, CE, self.level),
            rbp=domain.value(-1, shown, self.level) if known else UNKNOWN,
            alpha=domain.alpha(shown, self.level) if known else UNKNOWN,
        )  # fmt: skip

    def _laws(self, domain: Domain) -> Iterator[LawRow]:
        for metric in domain.values.metrics if domain.values else ():
            if law := domain.law(metric, self.level):
                alpha = domain.alpha(metric, self.level)
                yield LawRow(**domain.keys, metric=metric_label(metric), alpha=alpha, r2=law.r2)

    def _values(self, domain: Domain) -> Iterator[ValueRow]:
        for i, keys in enumerate(domain.family.size_keys):
            for metric in domain.errors[i]:
                value = domain.value(i, metric, self.level)
                yield ValueRow(**keys, source=domain.source, metric=metric_label(metric), value=value)

    def _draw(self, report: Report, every: Sequence[Domain]) -> None:
        """Cross-entropy and the exponent in each source."""
        shown = rbp_name(self.shown)
        ce = [(domain, domain.value(-1, CE, self.level)) for domain in every]
        alpha = [(domain, domain.alpha(shown, self.level)) for domain in every if domain.law(shown, self.level)]
        for name, numbers, label in (
            ("exponent_by_source", alpha, f"α of {self._label}"),
            ("ce_by_source", ce, "CE of the largest size, nats"),
        ):
            if numbers:
                bars = [Bar(one.family.dataset, one.source, one.family.name, number) for one, number in numbers]
                caption = f"{label} in each source, with {self.level:z.0%} intervals over its documents."
                report.drawings[name] = Drawing(bar_panels(bars, xlabel=label, ylabel="source"), caption)


def _by_document(counts: DocumentCounts) -> dict[str, FloatArray]:
    """Sums by document, of which a metric is the total per token: nats of CE, hits of RBP_k."""
    return {CE: counts.nats} | {rbp_name(k): counts.hits[:, i] for i, k in enumerate(counts.ks)}


def _error(values: FloatArray, tokens: FloatArray) -> tuple[float, Spread]:
    share, weight = share_of(values, tokens), values - values.sum() / tokens.sum() * tokens
    se = share.spread.se if share.spread else np.nan
    return share.value, Spread.estimated(se, max(worth(weight) - 1, 1))


def _few(domains: Sequence[Domain], sources: int) -> Iterator[str]:
    """What is said of sources that are too small, or too many."""
    family, small = domains[0].family, [d for d in domains if d.documents < LEAST_DOCUMENTS and not d.several]
    if small:
        names = ", ".join(domain.source for domain in small[:3]) + (", ..." if len(small) > 3 else "")
        yield (
            f"{family}: {len(small)} of {sources} sources have fewer than {LEAST_DOCUMENTS} documents ({names}): they "
            "have no interval and are not compared."
        )
    if domains[-1].several:
        yield (
            f"{family}: of {sources} sources the {len(domains) - 1} of most tokens are told apart "
            f"(analyzer.most={len(domains) - 1})."
        )


def _contrast(one: Finding) -> ContrastRow:
    return ContrastRow(**one.case, difference=one.interval, p=one.p, p_corrected=one.p_corrected, verdict=one.verdict)
