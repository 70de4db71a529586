"""Measurements for tests of the reading page: texts whose tokens are hard to display, and models that rank them."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.base.formatting import readable_text
from rbptrack.ranks import RankTable

EVIL = "</script><img src=x onerror=alert(1)>"
TEXTS = [
    ["One", " line", " of", " prose", ".", "\n", "Two", "\n\n", "And", " a", " third", "."],
    ["Price", ": ", "\udce2\udc82", "\udcac", "5", " \udcf0\udc9f", "\udc98", "\udc80", " done", "\udcc3"],
    ["السلام", " عليكم", " ورحمة", " الله", ".\n", "نماذج", " اللغة", " تتعل", "م", " ترتيب", " الكلمات", "."],
    ["x", EVIL, "<b>", "&amp;", "]]>", "<!--", "'", '"', "\u2028", "{{", "end"],
]
"""Documents as lists of the texts of their tokens.

A byte of an incomplete character is written as a surrogate. The first token of a document is not scored.
"""

SIZES = {"small": 1_000, "medium": 10_000, "large": 100_000}
"""Names of models and their numbers of parameters."""


class MemoryTexts(RankTables):
    """A store in memory that has rank tables, the texts of tokens, the unscored tokens and the documents."""

    def __init__(self, tables: Mapping[str, RankTable], documents: Sequence[Sequence[str]]) -> None:
        super().__init__(tables)
        self._documents = documents
        self._ids = token_ids(documents)

    def token_texts(self, run_id: str) -> Mapping[int, str]:
        return {number: text for text, number in self._ids.items()}

    def unscored(self, run_id: str) -> pd.DataFrame:
        tokens = [self._ids[texts[0]] for texts in self._documents]
        return pd.DataFrame({"document": range(len(tokens)), "position": 0, "token": tokens})

    def documents(self, run_id: str) -> pd.DataFrame:
        names = [f"doc {i}" for i in range(len(self._documents))]
        return pd.DataFrame({"document": range(len(names)), "id": names, "tokens": list(map(len, self._documents))})


def token_ids(documents: Sequence[Sequence[str]]) -> dict[str, int]:
    """Give each different text of a token an id, in order of first occurrence."""
    ids: dict[str, int] = {}
    for texts in documents:
        for text in texts:
            ids.setdefault(text, len(ids))
    return ids


def runs_with_ranks(
    ranks: Mapping[str, Sequence[Sequence[int]]],
    documents: Sequence[Sequence[str]] = TEXTS,
    sizes: Mapping[str, int] = SIZES,
    **columns: Any,
) -> Runs:
    """Make measurements of models with given ranks.

    A token of rank R has p = 1 / (R + 1). A model's first choice is the token itself if R is 1, and otherwise the first
    token of the document.

    Args:
        ranks: for each model, the ranks of each document's tokens without the first token, which is not scored.
        documents: the texts of the tokens of each document.
        sizes: the number of parameters of each model.
        **columns: further columns of the measurements.
    """
    ids = token_ids(documents)
    tables = {}
    rows: list[dict[str, Any]] = []
    for model, ranks_by_document in ranks.items():
        run_id = f"{len(rows):032x}"
        table = _rank_table(ranks_by_document, documents, ids)
        tables[run_id] = table
        row = {
            "run_id": run_id,
            "family": "toy",
            "size": model,
            "model": f"toy-{model}",
            "dataset": "hard",
            "non_embedding_params": sizes[model],
            "vocab_size": 50_000,
            "num_tokens": len(table),
            "documents_hash": "d",
        }
        rows.append(row | columns)
    return Runs(pd.DataFrame(rows), MemoryTexts(tables, documents))


def _rank_table(
    ranks_by_document: Sequence[Sequence[int]], documents: Sequence[Sequence[str]], ids: Mapping[str, int]
) -> RankTable:
    rows = []
    for number, (texts, ranks) in enumerate(zip(documents, ranks_by_document, strict=True)):
        for position, (text, rank) in enumerate(zip(texts[1:], ranks, strict=True), 1):
            top = ids[text] if rank == 1 else ids[texts[0]]
            rows.append((number, position, ids[text], rank, top))
    document, position, token, rank, top = np.array(rows).T
    zeros = np.zeros(len(rows))
    return RankTable.from_arrays(
        vocab_size=50_000,
        document=document,
        position=position,
        field=zeros,
        token=token,
        greater=rank - 1,
        ties=zeros,
        logprob=-np.log(rank + 1.0),
        top=top,
    )


def random_runs(
    documents: Sequence[Sequence[str]] = TEXTS, sizes: Mapping[str, int] = SIZES, seed: int = 0, **columns: Any
) -> Runs:
    """Make measurements with random ranks. No token has a worse rank in a larger model."""
    rng = np.random.default_rng(seed)
    difficulties = [rng.random(len(texts) - 1) for texts in documents]
    ranks = {}
    for model, s in sizes.items():
        spread = 11 - np.log10(s)
        ranks[model] = [np.ceil(np.exp(spread * difficulty**2)).astype(int).tolist() for difficulty in difficulties]
    return runs_with_ranks(ranks, documents, sizes, **columns)


def displayed_texts(documents: Collection[Sequence[str]] = TEXTS) -> list[str]:
    """Return the text of each document as the reading page displays it."""
    return [readable_text("".join(texts)) for texts in documents]


def page_data(page: str) -> Any:
    """Unpack the data that the script of a reading page displays."""
    packed = re.search(r'<script type="application/gzip" id="data">([^<]*)</script>', page)
    assert packed
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))
