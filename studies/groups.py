"""Rows of `studies.validity` for documents that come from few sources, which are resampled in place of documents.

Counts of every row are in docs/validity.json. Sources are of even size, or (zipf=1) as large as 1, 1/2, 1/3, ... of the
largest, as those of mixtures are.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from rbptrack.ranks import sum_by
from rbptrack.stats.bootstrap import document_weights
from rbptrack.stats.intervals import widening, worth
from rbptrack.stats.size_laws import fit_law, widened
from studies.simulation import BOOTSTRAPS, MEAN_T3, Array, Design, Outcome, covers, experiment, grid, scatter, sizes

_ALPHA, _VALUE = "95 % interval of alpha covers", "y +- 1.96 of the logged errors covers"
_BLIND = "interval of alpha that takes documents as independent covers"


@experiment(
    "groups",
    truth="200 documents from few sources, rho the correlation of the difficulties (and of the slopes) of one source's",
    claims={_ALPHA: 0.95, _VALUE: 0.95, _BLIND: 0.95},
    designs=[
        *grid(m=(6,), documents=(200,), tau=(0.0, 0.01), groups=(10, 15, 20, 50), rho=(0.5, 0.6, 0.9)),
        *grid(m=(6,), documents=(200,), tau=(0.0, 0.01), groups=(15, 20, 30, 50), rho=(0.6,), zipf=(1.0,)),
    ],
)
def groups(rng: np.random.Generator, design: Design) -> Outcome:
    """Exponents and logged errors where sources are resampled (dataset.group)."""
    s = sizes(design.m)
    share = 1 / np.arange(1.0, int(design["groups"]) + 1) ** dict(design.more).get("zipf", 0.0)
    source = rng.choice(len(share), design.documents, p=share / share.sum())
    tokens, relative = _documents(rng, design, source)
    truth = s**-0.1 * scatter(rng, design)[:, 0]
    groups_by_case = {}
    for claim, units in ((_ALPHA, source), (_BLIND, np.arange(design.documents))):
        n, nats = sum_by(units, tokens), sum_by(units, tokens[:, None] * relative)
        n, nats = n[n > 0], nats[n > 0]
        weights = document_weights(len(n), replicates=BOOTSTRAPS)
        y, draws = truth * nats.sum(axis=0) / n.sum(), truth * (weights @ nats) / (weights @ n)[:, None]
        wide = draws.T
        if claim == _ALPHA:  # as `law_values` does where documents are grouped
            wide = widened(y[:, None], draws.T[..., None], widening(worth(np.sqrt(n)), 0.95))[..., 0]
        law = fit_law(s, y, wide)
        groups_by_case[claim] = law is not None and covers(law.low, 0.1, law.high)
        if claim == _ALPHA:
            half = stats.norm.ppf(0.975) * float(draws[:, 0].std(ddof=1)) * widening(worth(n), 0.95)
            groups_by_case[_VALUE] = abs(y[0] - truth[0]) <= half
    return groups_by_case


def _documents(rng: np.random.Generator, design: Design, source: Array) -> tuple[Array, Array]:
    """Tokens of each document, and its y at every size relative to the truth, (documents, m), whose mean is 1."""
    count, several, rho = len(source), int(design["groups"]), design["rho"]
    difficulty, slope = (
        np.sqrt(rho) * rng.standard_normal(several)[source] + np.sqrt(1 - rho) * rng.standard_normal(count)
        for _ in range(2)
    )
    if design.tails == "t3":
        heavy = (stats.t.ppf(stats.norm.cdf(z), 3) for z in (difficulty, slope))
        difficulty, slope = (scale * z for scale, z in zip((0.25, 0.03), heavy, strict=True))
        mean = MEAN_T3
    else:
        difficulty, slope = (scale * (np.exp(0.8 * z - 0.32) - 1) for scale, z in ((1.0, difficulty), (0.03, slope)))
        mean = 1.0
    own = 0.05 * rng.standard_normal((count, design.m))
    x = np.linspace(-1, 1, design.m)
    level = np.maximum(1 + difficulty, 0.02) / mean
    relative = level[:, None] * (1 + np.maximum(slope, -0.9)[:, None] * x) * np.maximum(1 + own, 0.1)
    return np.exp(0.7 * rng.standard_normal(count)), relative
