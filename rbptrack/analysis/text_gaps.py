"""Where in the text two models of equal S differ: rows of `compare`, aligned by bytes whatever the tokenizers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from rbptrack.analysis.findings import Finding
from rbptrack.analysis.pairs import Pair
from rbptrack.analysis.rows import Column, Corrected, P
from rbptrack.analysis.runs import Runs, Unreadable
from rbptrack.stats.intervals import Interval
from rbptrack.stats.shares import in_step, share_of
from rbptrack.stats.text_gaps import Gaps, Segment, text_gaps
from rbptrack.stats.token_kinds import KINDS

GAPS, ALL = "gap on the text", "all"


@dataclass(kw_only=True)
class OfTwoModels:
    """A row about two models of equal S on one text."""

    A: Annotated[str, Column("one model")]
    B: Annotated[str, Column("the other, of about the same S")]
    on: Annotated[str, Column("the dataset")]


@dataclass(kw_only=True)
class GapRow(OfTwoModels):
    """Nats per byte of words of a kind."""

    words: Annotated[str, Column("words of which kind, punctuation around them left away; other: mixed, as in code")]
    share: Annotated[float, Column("of the bytes that both have scored in whole words", form=".1%")]
    nats_A: Annotated[float, Column("nats per byte of A", title="nats per byte, A", form=".4f")]
    nats_B: Annotated[float, Column("of B", title="B", form=".4f")]
    difference: Annotated[
        Interval, Column("A's less B's: below 0, A is better (documents paired)", form="+.4f", bare=True)
    ]
    p: P
    p_corrected: Corrected
    verdict: Annotated[str, Column("different or undecided")]


@dataclass(kw_only=True)
class SegmentRow(OfTwoModels):
    """A piece of text on which one model is much better."""

    better: Annotated[str, Column("the model that is better there")]
    nats: Annotated[float, Column("nats that the other needs more", form=".1f")]
    text: Annotated[str, Column("the segment")]
    nats_A: Annotated[float, Column("nats per byte of A", title="nats per byte, A", form=".3f")]
    nats_B: Annotated[float, Column("of B", title="B", form=".3f")]
    num_bytes: Annotated[int, Column("bytes of the segment", title="bytes")]
    document: Annotated[int, Column("number of its document (documents.parquet has its id)")]


@dataclass(frozen=True)
class Aligned:
    """The largest models of equal S of a pair, on the text that both have read.

    Attributes:
        a: name of the one.
        b: of the other.
        dataset: the text.
        gaps: what was found.
        sources: of the documents, where they are named.

    """

    a: str
    b: str
    dataset: str
    gaps: Gaps
    sources: Sequence[str]

    @property
    def keys(self) -> dict[str, str]:
        """What every row begins with."""
        return {"A": self.a, "B": self.b, "on": self.dataset}

    def findings(self, level: float) -> Iterator[Finding]:
        """The gap in nats per byte, of the whole text and by kind of word."""
        sums = self.gaps.sums.in_groups(self.sources) if len(self.sources) else self.gaps.sums
        total = sums.num_bytes.sum()
        for i, kind in ((slice(None), ALL), *((slice(i, i + 1), kind) for i, kind in enumerate(KINDS))):
            size, a, b = (one[:, i].sum(axis=1) for one in (sums.num_bytes, sums.nats_a, sums.nats_b))
            if size.any():
                gap = share_of(a - b, size)
                ends = gap.interval(level)
                values: dict[str, Any] = {"share": size.sum() / total, "nats_A": a.sum() / size.sum()}
                values |= {"nats_B": b.sum() / size.sum(), "segments": (self.gaps.best[:1], self.gaps.worst[:1])}
                case = {"a": self.a, "b": self.b, "dataset": self.dataset, "words": kind}
                yield Finding(
                    question=GAPS, case=case, estimate=gap.value, low=ends.low, high=ends.high, p=gap.p, extras=values
                )

    def segments(self) -> Iterator[SegmentRow]:
        """The worst in each direction."""
        for better, extremes in ((self.a, self.gaps.worst), (self.b, self.gaps.best)):
            for one in extremes:
                yield self._segment(better, one)

    def _segment(self, better: str, one: Segment) -> SegmentRow:
        return SegmentRow(
            **self.keys, better=better, nats=abs(one.gap), text=one.text, nats_A=one.nats_a / one.num_bytes,
            nats_B=one.nats_b / one.num_bytes, num_bytes=one.num_bytes, document=one.document,
        )  # fmt: skip


def gap_row(one: Finding) -> GapRow:
    """A corrected finding as a row."""
    about: dict[str, Any] = {name: one.extras[name] for name in ("share", "nats_A", "nats_B")}
    about |= {"A": one.case["a"], "B": one.case["b"], "on": one.case["dataset"], "words": one.case["words"]}
    return GapRow(**about, difference=one.interval, p=one.p, p_corrected=one.p_corrected, verdict=one.verdict)


def align(
    runs: Runs, pairs: Sequence[Pair], notes: list[str], *, within: float, words: int, most: int, pairs_at_most: int
) -> Iterator[Aligned]:
    """The largest two models of equal S of every pair of families on the same texts, the first `pairs_at_most`.

    Args:
        runs: the measurements.
        pairs: of families.
        notes: get a sentence for what is left out.
        within: largest ratio of two S that count as equal.
        words: of a segment.
        most: segments of each direction.
        pairs_at_most: rank tables are read anew for each, which takes time.

    """
    ranked = [pair for pair in pairs if pair.a.counts and pair.b.counts]
    comparable = [pair for pair in ranked if any(pair.equal_sizes(within))]
    if len(comparable) > pairs_at_most:
        notes.append(
            f"Gaps on the text are shown for {pairs_at_most} of {len(comparable)} pairs of families "
            "(analyzer.gaps; analyzer.a and analyzer.b choose pairs)."
        )
    for pair in comparable[:pairs_at_most]:
        i, j = list(pair.equal_sizes(within))[-1]
        ids = (pair.a.family.run_ids[i][0], pair.b.family.run_ids[j][0])
        texts = (runs.vocabulary(ids[0]), runs.vocabulary(ids[1]))
        if not all(texts):
            continue
        try:
            pieces = in_step(*(runs.rank_pieces(run_id) for run_id in ids))
            gaps = text_gaps(pieces, texts, words=words, most=most)
        except Unreadable:
            continue  # said where its counts were read
        names, dataset = (pair.a.model(i), pair.b.model(j)), pair.a.family.dataset
        unlike = gaps.unlike if gaps else "all"
        if unlike:
            notes.append(f"{names[0]} and {names[1]} on {dataset}: the words of {unlike} documents do not match.")
        if gaps:
            yield Aligned(*names, dataset, gaps, _sources(runs, ids[0], gaps))


def _sources(runs: Runs, run_id: str, gaps: Gaps) -> list[str]:
    """The source of every document that was aligned; empty where none is named."""
    if not len(sources := runs.groups(run_id)):
        return []
    named = dict(zip(runs.document_counts(run_id, [], by_source=False).document.tolist(), sources, strict=True))
    return [named[number] for number in gaps.sums.document.tolist()]
