"""Measurements beside their references, as `agreement` tells of them: KL, and the rank of the other's first token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd

from rbptrack.analysis.findings import Finding, Reason, Remark, around
from rbptrack.analysis.rows import Column
from rbptrack.analysis.runs import Runs, Unreadable
from rbptrack.ranks import FloatArray
from rbptrack.stats.agreement import share_of
from rbptrack.stats.intervals import Interval
from rbptrack.stats.reference import ReferenceSums

BESIDE = "KL to a reference"
_SAME_TOKENS = ("documents_hash", "sequence", "seq_len", "context", "candidates", "num_tokens")


@dataclass(kw_only=True)
class OfReference:
    """A row about a model beside its reference."""

    dataset: Annotated[str, Column("the dataset")]
    model: Annotated[str, Column("the model")]
    reference: Annotated[str, Column("its reference, on the same tokens in the same pass")]


@dataclass(kw_only=True)
class ReferenceRow(OfReference):
    """How far a model is from its reference."""

    kl: Annotated[Interval, Column("KL(reference || model), nats per token", title="KL", form=".3g")]
    kl_documents: Annotated[
        Interval, Column("its mean over documents, each with the same weight", title="KL by document", form=".3g")
    ]
    worst: Annotated[float, Column("of nine documents in ten it is at most", "9 in 10 below", form=".3g")]
    same_top: Annotated[
        Interval, Column("share of tokens at which both rank the same first", title="same top token", form=".2%")
    ]
    choice_in_model: Annotated[
        float, Column("of what the reference ranks first elsewhere, the share in the model's first 10", form=".1%")
    ]
    choice_in_reference: Annotated[
        float, Column("the other way round, where the reference was measured beside the model", form=".1%")
    ]


@dataclass(kw_only=True)
class FarRow(OfReference):
    """A document that is far from the reference."""

    document: Annotated[int, Column("its number in the selection (documents.parquet has its id)")]
    tokens: Annotated[int, Column("its scored tokens", form=",.0f")]
    kl: Annotated[float, Column("its KL(reference || model), nats per token", title="KL", form=".3g")]
    same_top: Annotated[
        float, Column("share of its tokens at which both rank the same first", "same top token", form=".1%")
    ]


@dataclass(frozen=True)
class Beside:
    """A measurement and what was counted of it beside its reference, by document and by source."""

    row: pd.Series[Any]
    documents: ReferenceSums
    sums: ReferenceSums

    @property
    def keys(self) -> dict[str, Any]:
        """What every row begins with."""
        precision = "" if self.row["dtype"] == "float32" else f" {self.row['dtype']}"  # as the reference's name has it
        model = f"{self.row['model']}{precision}"
        return {"dataset": self.row["dataset"], "model": model, "reference": self.row["reference"]}

    def near(self) -> float:
        """Of what the reference ranks first and the model does not, the share among the model's first 10."""
        choices = self.documents.choices
        return float(choices[:2].sum() / choices.sum()) if choices.any() else np.nan

    def reference_row(self, every: list[Beside], level: float) -> ReferenceRow:
        """Its row; `every` may hold the measurement the other way round."""
        sums, by_document = self.sums, self.documents.kl / self.documents.tokens
        other = next((one for one in every if self._turned(one)), None)
        return ReferenceRow(
            **self.keys,
            kl=_interval(sums.kl, sums.tokens, level),
            kl_documents=_interval(by_document, np.ones(len(by_document)), level),
            worst=float(np.quantile(by_document, 0.9)),
            same_top=_interval(sums.same_top, sums.tokens, level),
            choice_in_model=self.near(),
            choice_in_reference=other.near() if other else np.nan,
        )

    def _turned(self, other: Beside) -> bool:
        mine, theirs = self.row, other.row
        turned = (mine["commit"], mine["reference_commit"]) == (theirs["reference_commit"], theirs["commit"])
        return turned and other is not self and all(mine[name] == theirs[name] for name in _SAME_TOKENS)

    def far_rows(self, most: int) -> Iterator[FarRow]:
        """The documents of the largest KL per token."""
        sums = self.documents
        each = sums.kl / sums.tokens
        for i in np.argsort(-each, kind="stable")[:most]:
            same = sums.same_top[i] / sums.tokens[i]
            document, tokens = int(sums.document[i]), int(sums.tokens[i])
            yield FarRow(**self.keys, document=document, tokens=tokens, kl=float(each[i]), same_top=float(same))


def read_beside(runs: Runs, notes: list[str]) -> list[Beside]:
    """Every measurement with a reference; what cannot be read is named in the notes."""
    every = list[Beside]()
    for _, row in runs.frame[runs.frame["reference"].notna()].iterrows():
        run_id = str(row["run_id"])
        try:
            parts = [ReferenceSums.of(piece, [1]) for piece in runs.rank_pieces(run_id)]
            documents = ReferenceSums.concatenate(parts)
            sources = runs.groups(run_id)
        except Unreadable as error:
            notes.append(Remark(f"{row['model']} on {row['dataset']} is left out: {error}.", Reason.UNREADABLE))
            continue
        every.append(Beside(row, documents, documents.in_groups(sources) if len(sources) else documents))
        runs.was_read()
    return every


def findings_of(rows: list[ReferenceRow]) -> Iterator[Finding]:
    """A finding for each row."""
    for row in rows:
        case = {name: getattr(row, name) for name in ("dataset", "model", "reference")}
        extras = {"same_top": row.same_top.value, "near": row.choice_in_model}
        yield Finding(question=BESIDE, case=case, **around(row.kl), extras=extras)


def _interval(values: FloatArray, tokens: FloatArray, level: float) -> Interval:
    share = share_of(values, tokens)
    return Interval(share.value, *share.ends(level))
