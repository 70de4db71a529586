"""Where the law holds and where it fails: RBP_k, CE and alpha by source of the documents (`dataset.group`).

A source is a domain: a site, a language, one of the corpora of a benchmark such as Paloma. Its documents are resampled
within it, so that its numbers are of this very domain; elsewhere sources are resampled, and numbers are of all texts.

Sources are compared by CE and RBP_k of the largest size (Welch, t with as many degrees of freedom as documents
decide) and by exponents, Holm-corrected over all pairs. Sources that are alike are called different in 2 to 5% of
simulations (levels) and in 1 to 2% (exponents); `studies/domains.py` repeats them. A source of fewer than ten
documents has no interval and is not compared. A higher CE says that a source is harder to predict for these models;
tokens differ in length between sources, so compare bits per byte before calling it worse.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import combinations
from typing import Any, ClassVar, TypeVar

import numpy as np

from rbptrack.analysis import Analyzer, BadInput, Drawing, Report, Runs, rbp_name
from rbptrack.analysis.bar_figures import Bar, bar_panels
from rbptrack.analysis.families import Family, read_families
from rbptrack.analysis.findings import around, corrected, sure
from rbptrack.analysis.rows import UNKNOWN
from rbptrack.ranks import CE, HEADLINE_KS, DocumentCounts, metric_label
from rbptrack.stats.contrasts import laws_apart
from rbptrack.stats.intervals import LEAST_DOCUMENTS, Interval
from rbptrack.stats.spread import Spread

from .findings import Contrast, ExponentsDiffer, LevelsDiffer
from .rows import ContrastRow, LawRow, SummaryRow, ValueRow
from .source import Source

C = TypeVar("C", bound=Contrast)

_NO_SOURCES = "no dataset has documents of two sources (dataset.group names their field)"


@dataclass(kw_only=True)
class Domains(Analyzer):
    """Where: RBP_k, CE and exponents by source of the documents (dataset.group), and which sources differ.

    Attributes:
        ks: the k to count at.
        shown: the k of the summary, figures and sentences.
        most: how many sources are kept apart, those of most tokens; the others are counted together.
        level: nominal coverage of the intervals; tests have size 1 - level, corrected over all pairs (Holm).

    """

    name: ClassVar[str] = "domains"
    ks: list[int] = field(default_factory=lambda: [*HEADLINE_KS])
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

        split = list[list[Source]]()
        for family, counts in read_families(runs, load, report.notes):
            names = runs.groups(family.run_ids[0][0])
            if len(set(names)) > 1:
                split.append(self._split(family, [reduce(operator.add, several) for several in counts], names))
                report.notes += _few(split[-1], len(set(names)))
        if not split:
            raise report.nothing_found(_NO_SOURCES)
        sources = [source for of_family in split for source in of_family]
        pairs = [pair for of_family in split for pair in self._pairs(of_family)]
        findings = corrected((self._with_power(pair, pairs) for pair in pairs), sure(self.level))
        report.findings += findings
        caption = f"CE and {self._label} of the largest size, and the exponent of {self._label}."
        report.add_rows("summary", map(self._summary, sources), caption=caption)
        report.add_rows("contrasts", map(_contrast, findings))
        laws = [row for source in sources for row in self._laws(source)]
        report.add_rows("laws", laws)
        report.add_rows("values", (row for source in sources for row in self._values(source)))
        report.add_metrics("alpha_of_source/{family}/{dataset}/{metric}/{source}", laws, "alpha")
        self._draw(report, sources)
        return report

    @property
    def _label(self) -> str:
        return metric_label(rbp_name(self.shown))

    def _split(self, family: Family, counts: Sequence[DocumentCounts], sources: Sequence[str]) -> list[Source]:
        """Return the sources, that of most tokens first."""
        names, place = np.unique(np.asarray(sources), return_inverse=True)
        tokens = np.bincount(place, weights=counts[-1].tokens)
        order = np.argsort(-tokens, kind="stable")
        rest = order[self.most :] if len(order) > self.most else order[:0]
        parts = [(str(names[i]), [i]) for i in order if i not in rest]
        parts += [(f"{len(rest)} other sources", rest.tolist())] if len(rest) else []
        return [
            Source(
                family=family,
                name=name,
                counts=[count.take(np.isin(place, places)) for count in counts],
                share=float(tokens[places].sum() / tokens.sum()),
                several=len(places) > 1,
                level=self.level,
            )
            for name, places in parts
        ]

    def _pairs(self, sources: Sequence[Source]) -> Iterator[Contrast]:
        """Yield every two sources with documents enough: the largest size's CE and RBP_k, and the exponents."""
        shown = rbp_name(self.shown)
        for source, than in combinations((source for source in sources if source.enough), 2):
            case = source.keys | {"than": than.name}
            family = source.family
            for metric in (CE, shown):
                share = source.shares[-1].get(metric)
                other = than.shares[-1].get(metric)
                if share and other and share.spread and other.spread:
                    quantity = {"quantity": f"{metric_label(metric)} of {family.labels[-1]}"}
                    spread = share.spread + other.spread
                    yield self._contrast(LevelsDiffer, case | quantity, share.value, other.value, spread)
            if not (source.values and than.values):
                continue
            sides = ((family.s, source.values), (family.s, than.values))
            if apart := laws_apart(*sides, shown, same_texts=False, level=self.level):
                quantity = {"quantity": f"α of {self._label}"}
                alphas = (apart.a.alpha, apart.b.alpha)
                yield self._contrast(ExponentsDiffer, case | quantity, *alphas, apart.alpha_spread)

    def _with_power(self, pair: Contrast, pairs: Sequence[Contrast]) -> Contrast:
        """Return the contrast, with the smallest difference that it would have shown among all tests of its
        question.
        """
        tests = sum(other.question == pair.question for other in pairs)
        return replace(pair, detectable=pair.spread.detectable(1 - (1 - self.level) / tests))

    def _contrast(self, question: type[C], case: dict[str, Any], value: float, than_value: float, spread: Spread) -> C:
        difference = Interval.around(value - than_value, spread.half(self.level))
        return question(
            case=case,
            value=value,
            than_value=than_value,
            spread=spread,
            p=spread.p(difference.value),
            **around(difference),
        )

    def _summary(self, source: Source) -> SummaryRow:
        shown = rbp_name(self.shown)
        counted = shown in source.shares[-1]
        return SummaryRow(
            **source.keys,
            documents=source.documents,
            share=source.share,
            ce=source.value(-1, CE),
            rbp=source.value(-1, shown) if counted else UNKNOWN,
            alpha=source.alpha(shown) if counted else UNKNOWN,
        )

    def _laws(self, source: Source) -> Iterator[LawRow]:
        for metric in source.values.metrics if source.values else ():
            if law := source.law(metric):
                alpha = source.alpha(metric)
                yield LawRow(**source.keys, metric=metric_label(metric), alpha=alpha, r2=law.r2)

    def _values(self, source: Source) -> Iterator[ValueRow]:
        for i, keys in enumerate(source.family.size_keys):
            for metric in source.shares[i]:
                value = source.value(i, metric)
                yield ValueRow(**keys, source=source.name, metric=metric_label(metric), value=value)

    def _draw(self, report: Report, sources: Sequence[Source]) -> None:
        """Draw cross-entropy and the exponent in each source."""
        shown = rbp_name(self.shown)
        ce = [(source, source.value(-1, CE)) for source in sources]
        alpha = [(source, source.alpha(shown)) for source in sources if source.law(shown)]
        for name, numbers, label in (
            ("exponent_by_source", alpha, f"α of {self._label}"),
            ("ce_by_source", ce, "CE of the largest size, nats"),
        ):
            if numbers:
                bars = [Bar(source.family.dataset, source.name, source.family.name, value) for source, value in numbers]
                caption = f"{label} in each source, with {self.level:z.0%} intervals over its documents."
                report.drawings[name] = Drawing(bar_panels(bars, xlabel=label, ylabel="source"), caption)


def _few(sources: Sequence[Source], count: int) -> Iterator[str]:
    """Yield the notes about sources that are too small, or too many."""
    family = sources[0].family
    small = [source for source in sources if source.documents < LEAST_DOCUMENTS and not source.several]
    if small:
        names = ", ".join(source.name for source in small[:3]) + (", ..." if len(small) > 3 else "")
        yield (
            f"{family}: {len(small)} of {count} sources have fewer than {LEAST_DOCUMENTS} documents ({names}): they "
            "have no interval and are not compared."
        )
    if sources[-1].several:
        yield (
            f"{family}: of {count} sources the {len(sources) - 1} of most tokens are kept apart "
            f"(analyzer.most={len(sources) - 1})."
        )


def _contrast(pair: Contrast) -> ContrastRow:
    return ContrastRow(
        **pair.case, difference=pair.interval, p=pair.p, p_corrected=pair.p_corrected, verdict=pair.verdict
    )
