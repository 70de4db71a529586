"""Did it hurt? asked of copies of nano-115k, none of which was made worse on purpose: `python -m studies.placebo [NOISE]`.

Each matrix of a copy gets independent noise, of NOISE times the standard deviation of its weights. Two questions:

    swapped: documents change sides at random, so that neither side is worse. Every `worse` is false.
    copies: one against another. Noise makes one of them worse in truth, if by little; `worse` says that the texts show it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from rbptrack.plugins.agreement.harm import harm_of
from rbptrack.plugins.agreement.rows import Compared

from rbptrack.analysis.findings import Verdict
from rbptrack.config.compose import Composer
from rbptrack.config.schema import EngineConfig
from rbptrack.engine.measure import measure
from rbptrack.models.causal import of_module
from rbptrack.models.loading import load_module
from rbptrack.ranks import RankTable
from rbptrack.sources.pin import of_model
from rbptrack.stats.pairs import PairSums, paired
from rbptrack.sweep.resolve import Resolver

CELL = ("model=nano/115k", "dataset=pydocs", "dataset.sequence=truncate")
KS = [1, 10, 100]
COPIES = 20
DELTA = 0.01
SWAPS = 2000


def main(noise: float = 0.01) -> None:
    tables = measured_copies(noise)
    sums = [PairSums.of(next(paired([a], [b])), KS) for a, b in permutations(tables, 2)]
    rng = np.random.default_rng(0)
    swaps = [swapped(sums[i], rng.random(len(sums[i].tokens)) < 0.5) for i in rng.integers(len(sums), size=SWAPS)]
    print(
        f"{COPIES} copies, noise {noise:g}: {len(tables[0]):,} tokens, {len(sums[0].tokens)} documents, delta {DELTA:g}"
    )
    for name, pairs in (("swapped", swaps), ("copies", sums)):
        findings = [harm_of([compared(p)], delta=DELTA, level=0.95) for p in pairs]
        harms = [[f.estimate for f in pair if f.verdict in (Verdict.YES, Verdict.CLOSE)] for pair in findings]
        harmed = [max(pair) for pair in harms if pair]
        within = sum(all(f.verdict in (Verdict.NO, Verdict.CLOSE) for f in pair) for pair in findings)
        print(
            f"{name}: {len(harmed)} of {len(pairs)} worse ({len(harmed) / len(pairs):.1%}), by {max(harmed, default=0):.4f} at most; {within} within delta"
        )


def measured_copies(noise: float) -> list[RankTable]:
    cell = Resolver().resolve(Composer("config", []).compose_typed(list(CELL)))
    config = Composer("config", []).compose_typed(list(CELL)).model
    corpus = cell.load_corpus()
    tables = []
    for seed in range(COPIES):
        module = load_module(config, of_model(config))
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in (weight for weight in module.parameters() if weight.ndim == 2):
                weight += noise * weight.std() * torch.randn(weight.shape, generator=draw)
        with TemporaryDirectory() as folder:
            result = measure(
                of_module(module, f"copy {seed}"), corpus, ks=KS, engine=EngineConfig(), folder=Path(folder)
            )
            tables.append(replace(result.ranks, table=result.ranks.table.combine_chunks()))
    return tables


def swapped(sums: PairSums, flip: Any) -> PairSums:
    """Exchange both models in some documents, in what harm is asked of."""
    ranks = np.where(flip, [sums.rank_b, sums.rank_a], [sums.rank_a, sums.rank_b])
    hits = np.where(flip[:, None], [sums.hits_b, sums.hits_a], [sums.hits_a, sums.hits_b])
    return replace(sums, rank_a=ranks[0], rank_b=ranks[1], hits_a=hits[0], hits_b=hits[1])


def compared(sums: PairSums) -> Compared:
    return Compared(
        dataset="pydocs", a="a", b="b", documents=sums, sums=sums, worst=[], lacking=set(), same_reference=False
    )


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
