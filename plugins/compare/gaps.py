"""Where in the text two models of equal S differ: rows of `compare`, aligned by bytes whatever the tokenizers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rbptrack.analysis import Runs, Unreadable
from rbptrack.analysis.findings import around
from rbptrack.stats.shares import in_step, share_of
from rbptrack.stats.token_kinds import KINDS

from .aligned_texts import Gaps, text_gaps
from .findings import GapOnText
from .pairs import Pair
from .rows import GapRow, SegmentRow

ALL = "all"


@dataclass(frozen=True)
class Aligned:
    """The largest models of equal S of a pair, on the text that both have read.

    Attributes:
        a: name of the one.
        b: of the other.
        dataset: the text.
        gaps: the gaps on the text.
        sources: of the documents, where they are named.

    """

    a: str
    b: str
    dataset: str
    gaps: Gaps
    sources: Sequence[str]

    def findings(self, level: float) -> Iterator[GapOnText]:
        """Yield the gap in nats per byte, of the whole text and by kind of word."""
        sums = self.gaps.sums.in_groups(self.sources) if len(self.sources) else self.gaps.sums
        total = sums.num_bytes.sum()
        kinds = [slice(i, i + 1) for i in range(len(KINDS))]
        for columns, kind in zip([slice(None), *kinds], [ALL, *KINDS], strict=True):
            num_bytes, nats_a, nats_b = (
                part[:, columns].sum(axis=1) for part in (sums.num_bytes, sums.nats_a, sums.nats_b)
            )
            if not num_bytes.any():
                continue
            gap = share_of(nats_a - nats_b, num_bytes)
            yield GapOnText(
                case={"a": self.a, "b": self.b, "dataset": self.dataset, "words": kind},
                p=gap.p,
                share=num_bytes.sum() / total,
                nats_a=nats_a.sum() / num_bytes.sum(),
                nats_b=nats_b.sum() / num_bytes.sum(),
                behind_a=next(iter(self.gaps.best), None),
                behind_b=next(iter(self.gaps.worst), None),
                **around(gap.interval(level)),
            )

    def segments(self) -> Iterator[SegmentRow]:
        """Yield the worst in each direction."""
        for better, segments in ((self.a, self.gaps.worst), (self.b, self.gaps.best)):
            for segment in segments:
                yield SegmentRow(
                    A=self.a,
                    B=self.b,
                    on=self.dataset,
                    better=better,
                    nats=abs(segment.gap),
                    text=segment.text,
                    nats_A=segment.nats_a / segment.num_bytes,
                    nats_B=segment.nats_b / segment.num_bytes,
                    num_bytes=segment.num_bytes,
                    document=segment.document,
                )


def gap_row(gap: GapOnText) -> GapRow:
    """Return a corrected finding as a row."""
    return GapRow(
        A=gap.case["a"],
        B=gap.case["b"],
        on=gap.case["dataset"],
        words=gap.case["words"],
        share=gap.share,
        nats_A=gap.nats_a,
        nats_B=gap.nats_b,
        difference=gap.interval,
        p=gap.p,
        p_corrected=gap.p_corrected,
        verdict=gap.verdict,
    )


def align(
    runs: Runs, pairs: Sequence[Pair], notes: list[str], *, within: float, words: int, most: int, pairs_at_most: int
) -> Iterator[Aligned]:
    """Yield the largest two models of equal S of every pair of families on the same texts, the first `pairs_at_most`.

    Args:
        runs: the measurements.
        pairs: of families.
        notes: get a sentence for each pair that is left out.
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
            pieces = in_step(*(runs.rank_pieces(run_id, version=1) for run_id in ids))
            gaps = text_gaps(pieces, texts, words=words, most=most)
        except Unreadable:
            continue  # said where its counts were read
        a = pair.a.model(i)
        b = pair.b.model(j)
        dataset = pair.a.family.dataset
        unlike = gaps.unlike if gaps else "all"
        if unlike:
            notes.append(f"{a} and {b} on {dataset}: the words of {unlike} documents do not match.")
        if gaps:
            yield Aligned(a, b, dataset, gaps, _sources(runs, ids[0], gaps))


def _sources(runs: Runs, run_id: str, gaps: Gaps) -> list[str]:
    """Return the source of every document that was aligned; empty where none is named."""
    if not len(sources := runs.groups(run_id)):
        return []
    named = dict(zip(runs.document_counts(run_id, [], by_source=False).document.tolist(), sources, strict=True))
    return [named[number] for number in gaps.sums.document.tolist()]
