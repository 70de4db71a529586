"""CE and -ln RBP_k by position in the document, in bins that double in width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rbptrack.ranks import CE, DocumentSums, FloatArray, RankTable, rbp_name, sum_by
from rbptrack.stats.bootstrap import document_weights, drawn_sums
from rbptrack.stats.size_laws import LawValues, law_metrics

_BINS = 32  # bin b holds the positions 2^(b-1) .. 2^b - 1, bin 0 position 0
_LEAST_DOCUMENTS = 5
_LEAST_TOKENS = 20


@dataclass(frozen=True)
class PositionSums(DocumentSums):
    """Sums by document and bin of positions; bin b holds positions 2^(b-1) .. 2^b - 1, bin 0 position 0.

    Attributes:
        sums: tokens, nats and hits of each k, (documents, 32, 2 + ks), float64.
        groups: the source of each document, (documents,); empty where documents are resampled.

    """

    SUMMED = ("sums",)

    sums: FloatArray
    groups: Sequence[str] = ()

    @classmethod
    def of(cls, table: RankTable, ks: Sequence[int]) -> PositionSums:
        """Count a rank table or a piece of whole documents.

        Source: sums as in `RankTable.document_counts`, taken apart by position.
        """
        _, document = table.documents
        place = np.frexp(table.column("position").astype(np.float64))[1]  # 0, 1, 2-3, 4-7, ... -> 0, 1, 2, 3, ...
        cell = document * _BINS + place
        size = (int(document.max()) + 1) * _BINS
        nats = -table.column("logprob").astype(np.float64)
        columns = [np.bincount(cell, minlength=size), np.bincount(cell, weights=nats, minlength=size)]
        columns += [np.bincount(cell[table.rank <= k], minlength=size) for k in ks]
        return cls(np.stack(columns, axis=1, dtype=np.float64).reshape(-1, _BINS, 2 + len(ks)))

    def in_groups(self, groups: Sequence[str]) -> PositionSums:
        """Add the source of each document: which of them count was decided document by document."""
        return replace(self, groups=groups)

    def of_documents(self, kept: FloatArray, bins: Sequence[int]) -> FloatArray:
        """Select some bins of the kept documents, or of their sources."""
        sums = self.sums[kept][:, bins]
        return sum_by(np.asarray(self.groups)[kept].tolist(), sums) if len(self.groups) else sums


@dataclass(frozen=True)
class PositionCurves:
    """CE and -ln RBP_k of m sizes by position, in documents that reach the last bin.

    Attributes:
        metrics: `ce`, then `rbp_<k>` of each k.
        first: first position of each bin, (bins,).
        last: last position, (bins,).
        tokens: scored tokens of each bin, over the runs of the smallest size together, (bins,).
        documents: how many documents count.
        every_document: their number.
        sums: per size, (documents, bins, 2 + ks): tokens, nats, hits.
        values: CE and -ln RBP_k, (m, bins, metrics).
        draws: the same in bootstrap replicates, (m, replicates, bins, metrics).

    """

    metrics: tuple[str, ...]
    first: FloatArray
    last: FloatArray
    tokens: FloatArray
    documents: int
    every_document: int
    sums: list[FloatArray]
    values: FloatArray
    draws: FloatArray

    @property
    def centre(self) -> FloatArray:
        """Where each bin is drawn on a logarithmic axis: the geometric mean of its ends, (bins,)."""
        return np.asarray(np.sqrt(np.maximum(self.first, 0.5) * np.maximum(self.last, 0.5)))

    @property
    def errors(self) -> FloatArray:
        """Standard errors by the bootstrap, (m, bins, metrics); NaN where a replicate has no hit."""
        return np.asarray(np.where(np.isfinite(self.draws), self.draws, np.nan).std(axis=1, ddof=1))

    def in_bin(self, j: int) -> LawValues:
        """Return the values that laws are fitted to within bin j."""
        return LawValues(self.metrics, self.values[:, j], self.draws[:, :, j])

    def in_bins(self, chosen: slice) -> LawValues:
        """Return the values that laws are fitted to over several bins together."""
        weights = document_weights(len(self.sums[0]), replicates=self.draws.shape[1])
        sums = [s[:, chosen].sum(axis=1) for s in self.sums]  # (documents, 2 + ks)
        values = np.stack([law_metrics(s.sum(axis=0)) for s in sums])
        return LawValues(self.metrics, values, np.stack([law_metrics(drawn_sums(weights, s)) for s in sums]))


def position_curves(
    sums: Sequence[PositionSums], ks: Sequence[int], *, share: float, replicates: int
) -> PositionCurves | None:
    """Return the curves of a family; None where fewer than two bins have enough documents and tokens.

    Source: means over the same documents in every bin, so that positions differ in nothing else; replicates as in
    `document_weights`.

    Args:
        sums: of each size, over the same documents, (m,).
        ks: the k of the sums.
        share: the last bin is the last one that at least this share of the documents (and 5 of them) reach.
        replicates: document bootstraps, drawn jointly for all sizes.

    """
    reached = sums[0].sums[:, :, 0] > 0  # (documents, 32)
    enough = np.flatnonzero(reached.sum(axis=0) >= max(_LEAST_DOCUMENTS, share * len(reached)))
    if len(enough) < 2:
        return None
    kept = reached[:, enough[-1]]
    used = [b for b in range(enough[-1] + 1) if sums[0].sums[kept, b, 0].sum() >= _LEAST_TOKENS]
    if len(used) < 2:
        return None
    part = [size.of_documents(kept, used) for size in sums]
    weights = document_weights(len(part[0]), replicates=replicates)
    return PositionCurves(
        metrics=(CE, *map(rbp_name, ks)),
        first=np.array([0 if b == 0 else 2 ** (b - 1) for b in used]),
        last=np.array([0 if b == 0 else 2**b - 1 for b in used]),
        tokens=part[0][:, :, 0].sum(axis=0),
        documents=int(kept.sum()),
        every_document=len(reached),
        sums=part,
        values=np.stack([law_metrics(s.sum(axis=0)) for s in part]),
        draws=np.stack([law_metrics(drawn_sums(weights, s)) for s in part]),
    )
