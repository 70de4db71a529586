"""Texts with tokens that are hard to show, and models that rank them: for the reading page's tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.base.formatting import readable
from rbptrack.ranks import RankTable

EVIL = "</script><img src=x onerror=alert(1)>"
TEXTS = [
    ["One", " line", " of", " prose", ".", "\n", "Two", "\n\n", "And", " a", " third", "."],
    ["Price", ": ", "\udce2\udc82", "\udcac", "5", " \udcf0\udc9f", "\udc98", "\udc80", " done", "\udcc3"],
    ["السلام", " عليكم", " ورحمة", " الله", ".\n", "نماذج", " اللغة", " تتعل", "م", " ترتيب", " الكلمات", "."],
    ["x", EVIL, "<b>", "&amp;", "]]>", "<!--", "'", '"', "\u2028", "{{", "end"],
]
"""The documents, each as the texts of its tokens, bytes of part characters as surrogates. The first is not scored."""

SIZES = {"small": 1_000, "medium": 10_000, "large": 100_000}


class Texts(RankTables):
    """Rank tables in memory with everything that the reading page needs."""

    def __init__(self, tables: Mapping[str, RankTable], documents: Sequence[Sequence[str]]) -> None:
        super().__init__(tables)
        self._documents = documents
        self._ids = ids_of(documents)

    def token_texts(self, run_id: str) -> Mapping[int, str]:
        return {number: text for text, number in self._ids.items()}

    def unscored(self, run_id: str) -> pd.DataFrame:
        tokens = [self._ids[texts[0]] for texts in self._documents]
        return pd.DataFrame({"document": range(len(tokens)), "position": 0, "token": tokens})

    def documents(self, run_id: str) -> pd.DataFrame:
        names = [f"doc {i}" for i in range(len(self._documents))]
        return pd.DataFrame({"document": range(len(names)), "id": names, "tokens": list(map(len, self._documents))})


def ids_of(documents: Sequence[Sequence[str]]) -> dict[str, int]:
    """A number for each text of a token."""
    return {text: number for number, text in enumerate(dict.fromkeys(text for texts in documents for text in texts))}


def read_runs(
    ranks: Mapping[str, Sequence[Sequence[int]]],
    documents: Sequence[Sequence[str]] = TEXTS,
    sizes: Mapping[str, int] = SIZES,
    **columns: Any,
) -> Runs:
    """Measurements of models whose ranks are given by document, of all tokens but each document's first."""
    ids = ids_of(documents)
    tables = {}
    rows = []
    for model, of_documents in ranks.items():
        run_id = f"{len(rows):032x}"
        filled: dict[str, list[int]] = {name: [] for name in ("document", "position", "token", "greater", "top")}
        for number, (texts, of_document) in enumerate(zip(documents, of_documents, strict=True)):
            for position, (text, rank) in enumerate(zip(texts[1:], of_document, strict=True), 1):
                values = (number, position, ids[text], rank - 1, ids[text] if rank == 1 else ids[texts[0]])
                for name, value in zip(filled, values, strict=True):
                    filled[name].append(value)
        all_ranks = np.array(filled["greater"]) + 1
        zeros = np.zeros(len(all_ranks))
        tables[run_id] = RankTable.from_arrays(
            vocab_size=50_000, field=zeros, ties=zeros, logprob=-np.log(all_ranks + 1.0), **filled
        )
        about = {"run_id": run_id, "family": "toy", "size": model, "model": f"toy-{model}", "dataset": "hard"}
        numbers = {"non_embedding_params": sizes[model], "vocab_size": 50_000, "num_tokens": len(all_ranks)}
        rows.append(about | numbers | {"documents_hash": "d"} | columns)
    return Runs(pd.DataFrame(rows), Texts(tables, documents))


def seeded_runs(
    documents: Sequence[Sequence[str]] = TEXTS, sizes: Mapping[str, int] = SIZES, seed: int = 0, **columns: Any
) -> Runs:
    """Measurements in which larger models rank better."""
    rng = np.random.default_rng(seed)
    difficulty = [rng.random(len(texts) - 1) for texts in documents]
    ranks = {}
    for model, s in sizes.items():
        spread = 11 - np.log10(s)
        ranks[model] = [np.ceil(np.exp(spread * of_document**2)).astype(int).tolist() for of_document in difficulty]
    return read_runs(ranks, documents, sizes, **columns)


def shown(documents: Collection[Sequence[str]] = TEXTS) -> list[str]:
    """The documents as a reader sees them."""
    return [readable("".join(texts)) for texts in documents]
