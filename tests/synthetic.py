"""Synthetic measurements with a known law: `Runs` without a model or a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analyzer import COLUMNS, Runs
from rbptrack.ranktable import RankTable

Law = Callable[[float], tuple[Sequence[float], float]]


def rank_table(
    p: Sequence[float], ce: float, *, documents: int, tokens: int, vocab_size: int, rng: np.random.Generator
) -> RankTable:
    """Tokens with ranks drawn from the pmf p over 1..len(p) and log-probabilities around -ce."""
    n = documents * tokens
    rank = rng.choice(len(p), size=n, p=np.asarray(p) / np.sum(p)) + 1
    return RankTable.from_arrays(
        vocab_size=vocab_size,
        document=np.repeat(np.arange(documents), tokens),
        position=np.tile(np.arange(1, tokens + 1), documents),
        field=np.zeros(n),
        token=np.zeros(n),
        greater=rank - 1,
        ties=np.zeros(n),
        logprob=np.full(n, -ce),
    )


def one_law(alpha: float, a: float) -> Law:
    """-ln RBP_1 = a * S**-alpha and CE twice that; the other ranks share what is left in fixed proportions."""

    def at(s: float) -> tuple[list[float], float]:
        y = a * s**-alpha
        p1 = np.exp(-y)
        rest = np.geomspace(1, 1e-3, 63)
        return [p1, *((1 - p1) * rest / rest.sum())], 2 * y

    return at


def family_runs(sizes: Sequence[float], *, alpha: float, a: float, **options: Any) -> Runs:
    """A family whose -ln RBP_1 is a * S**-alpha up to sampling noise, and whose CE is 2 a * S**-alpha exactly."""
    return runs_from(sizes, one_law(alpha, a), **options)


def runs_from(
    sizes: Sequence[float],
    law: Law,
    *,
    family: str = "toy",
    dataset: str = "text",
    tokens: int = 500,
    seed: int = 0,
    **changes: object,
) -> Runs:
    """A family of 40 documents whose ranks are drawn from `law(s)`: the pmf over 1..64, and CE."""
    rng = np.random.default_rng(seed)
    tables, rows = {}, []
    for i, s in enumerate(sizes):
        pmf, ce = law(s)
        run_id = f"{family}-{dataset}-{i}"
        table = tables[run_id] = rank_table(pmf, ce, documents=40, tokens=tokens, vocab_size=64, rng=rng)
        row: dict[str, object] = dict.fromkeys(COLUMNS)
        row |= {
            "run_id": run_id,
            "family": family,
            "size": f"{s:.0f}",
            "model": f"{family}-{s:.0f}",
            "dataset": dataset,
        }
        row |= {"fingerprint": run_id, "sweep": "s", "dtype": "float32", "sequence": "slide", "documents_hash": "h"}
        row |= {"revision": "main", "context": 32, "total_params": int(s) + 64}
        row |= {"seq_len": 256, "vocab_size": 64, "non_embedding_params": int(s), "num_tokens": len(table)}
        row |= {"num_documents": 40, "ce": table.ce, "ce_se": 0.0, "bits_per_byte": 1.0, "tie_rate": 0.0}
        row |= {f"rbp_{k}": table.rbp(k) for k in (1, 10)}
        rows.append(row | changes)
    frame = pd.DataFrame(rows)
    return Runs(frame, histogram=lambda r: tables[r].histogram(), ranks=lambda r: tables[r])


def together(*runs: Runs) -> Runs:
    """Several families in one table."""
    frame = pd.concat([r.frame for r in runs], ignore_index=True)

    def owner(run_id: str) -> Runs:
        return next(r for r in runs if run_id in set(r.frame["run_id"]))

    return Runs(frame, histogram=lambda r: owner(r).histogram(r), ranks=lambda r: owner(r).ranks(r))
