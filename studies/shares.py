"""Ratios of sums over documents, as agreement, draft, domains and text gaps have them; and families left out."""

from __future__ import annotations

import numpy as np
from rbptrack.plugins.proxies.ordering import Arrangement, associated, leave_families_out

from rbptrack.stats.shares import share_of
from studies.simulation import Array, Design, Outcome, covers, experiment


def _designs(*tails: str) -> list[Design]:
    return [
        Design(m=1, documents=documents, tails=kind, tau=0.0, more=(("lengths", lengths),))
        for documents in (20, 10, 50, 135)
        for kind in tails
        for lengths in (1.5, 0.6)
    ]


def _lengths(rng: np.random.Generator, design: Design) -> Array:
    return np.asarray(np.maximum(8, rng.lognormal(5, design["lengths"], design.documents)))


@experiment(
    "difference",
    truth="documents whose difference is 0 in the mean; sd of ln length as said",
    claims={"95% interval of a difference covers": 0.95},
    designs=_designs("t3", "skewed"),
    remark="Wide where few documents hold most tokens: as many degrees of freedom as documents decide.",
)
def difference(rng: np.random.Generator, design: Design) -> Outcome:
    """A ratio of sums that may have either sign: agreement's changes, gaps, domains' CE."""
    tokens = _lengths(rng, design)
    skewed = rng.lognormal(0, 0.8, design.documents) - np.exp(0.32)
    level = rng.standard_t(3, design.documents) if design.tails == "t3" else skewed
    interval = share_of(tokens * level, tokens).interval(0.95)
    return {"95% interval of a difference covers": covers(interval.low, 0.0, interval.high)}


@experiment(
    "kl",
    truth="documents whose KL is lognormal, sigma = .8",
    claims={"95% interval of KL covers": 0.95},
    designs=_designs("skewed"),
)
def kl(rng: np.random.Generator, design: Design) -> Outcome:
    """A mean above 0 of skewed numbers: KL to a reference (agreement)."""
    tokens = _lengths(rng, design)
    interval = share_of(tokens * rng.lognormal(0, 0.8, design.documents), tokens).positive(0.95)
    return {"95% interval of KL covers": covers(interval.low, float(np.exp(0.32)), interval.high)}


@experiment(
    "proxies",
    truth="32 proxies of pure noise; families (m) of four models, whose means lie `offset` sd apart",
    claims={"an order beyond chance (false positive)": 0.05, "95% interval of pairs right holds one half": 0.95},
    designs=[
        Design(m=m, documents=1, tails="none", tau=0.0, more=(("offset", offset),))
        for m in (4, 6, 8)
        for offset in (0.0, 1.0, 2.0)
    ],
    remark="The interval is wide: as many degrees of freedom as families decide.",
)
def proxies(rng: np.random.Generator, design: Design) -> Outcome:
    """Kendall's p within families of one proxy, and the proxy that other families choose (proxies)."""
    family = np.repeat(np.arange(design.m), 4)
    values = rng.normal(size=(len(family), 32)) + design["offset"] * rng.normal(size=(design.m, 32))[family]
    scores = rng.normal(size=len(family)) + design["offset"] * rng.normal(size=design.m)[family]
    names = [str(name) for name in family]
    p = associated(values[:, 0], scores, Arrangement.of(names)).p
    left = leave_families_out(values, scores, names)
    interval = left.right.interval(0.95) if left else None
    return {
        "an order beyond chance (false positive)": p < 0.05,
        "95% interval of pairs right holds one half": interval and covers(interval.low, 0.5, interval.high),
    }
