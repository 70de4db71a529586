"""Measurements beside their references, as `agreement` tells of them: KL, and the rank of the other's first token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd

from rbptrack.analysis.findings import Reason, Remark, around
from rbptrack.analysis.rows import Column
from rbptrack.analysis.runs import Runs, Unreadable
from rbptrack.stats.intervals import Interval
from rbptrack.stats.reference import ReferenceSums
from rbptrack.stats.shares import share_of

from .findings import FromReference

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
    """A measurement and its counts beside its reference, by document and by source."""

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
        """Return the share of the reference's first tokens, other than the model's, that are among the model's first
        10.
        """
        choices = self.documents.choices
        return float(choices[:2].sum() / choices.sum()) if choices.any() else np.nan

    def reference_row(self, models: list[Beside], level: float) -> ReferenceRow:
        """Return the reference's row; `models` may hold the measurement the other way round."""
        sums = self.sums
        by_document = self.documents.kl / self.documents.tokens
        other = next((model for model in models if self._turned(model)), None)
        return ReferenceRow(
            **self.keys,
            kl=share_of(sums.kl, sums.tokens).positive(level),
            kl_documents=share_of(by_document, np.ones(len(by_document))).positive(level),
            worst=float(np.quantile(by_document, 0.9)),
            same_top=share_of(sums.same_top, sums.tokens).interval(level, lowest=0.0, highest=1.0),
            choice_in_model=self.near(),
            choice_in_reference=other.near() if other else np.nan,
        )

    def _turned(self, other: Beside) -> bool:
        row = self.row
        turned = other.row
        both_ways = (row["commit"], row["reference_commit"]) == (turned["reference_commit"], turned["commit"])
        return both_ways and other is not self and all(row[name] == turned[name] for name in _SAME_TOKENS)

    def far_rows(self, most: int) -> Iterator[FarRow]:
        """Yield the documents of the largest KL per token."""
        sums = self.documents
        per_token = sums.kl / sums.tokens
        for i in np.argsort(-per_token, kind="stable")[:most]:
            tokens = sums.tokens[i]
            yield FarRow(
                **self.keys,
                document=int(sums.document[i]),
                tokens=int(tokens),
                kl=float(per_token[i]),
                same_top=float(sums.same_top[i] / tokens),
            )


def read_beside(runs: Runs, notes: list[str]) -> list[Beside]:
    """Return every measurement with a reference; what cannot be read is named in the notes."""
    models = list[Beside]()
    for _, row in runs.frame[runs.frame["reference"].notna()].iterrows():
        run_id = str(row["run_id"])
        try:
            parts = [ReferenceSums.of(piece, [1]) for piece in runs.rank_pieces(run_id)]
            documents = ReferenceSums.concatenate(parts)
            sources = runs.groups(run_id)
        except Unreadable as error:
            notes.append(Remark(f"{row['model']} on {row['dataset']} is left out: {error}.", Reason.UNREADABLE))
            continue
        models.append(Beside(row, documents, documents.in_groups(sources) if len(sources) else documents))
        runs.was_read()
    return models


def findings_of(rows: list[ReferenceRow]) -> Iterator[FromReference]:
    """Yield a finding for each row."""
    for row in rows:
        case = {"dataset": row.dataset, "model": row.model, "reference": row.reference}
        yield FromReference(case=case, same_top=row.same_top.value, **around(row.kl))
