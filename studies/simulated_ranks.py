"""Rows of `studies.validity` for analyzers of ranks: the law in k, emergence, error entropy, the lognormal."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from rbptrack.plugins.emergence.independence import success_by_length
from rbptrack.plugins.emergence.windows import count_windows
from rbptrack.plugins.error_entropy.decomposition import part_errors
from rbptrack.plugins.error_entropy.smooth_entropy import BinnedRanks, rank_bins, smooth_parts
from rbptrack.plugins.k_law.curves import beta_interval
from rbptrack.plugins.lognormal.rank_sizes import lognormal_trend

from rbptrack.ranks import DocumentCounts, RankTable, log_grid
from rbptrack.stats.bootstrap import document_weights
from rbptrack.stats.k_law import fit_k_law
from rbptrack.stats.segments import PositionBins
from studies.simulation import BOOTSTRAPS, Array, Design, Outcome, covers, experiment, grid, sizes

KS = log_grid(100)
LENGTHS = [1, 2, 4, 8, 16, 32]
VOCABULARY = 4096


def difficulty(rng: np.random.Generator, count: int, tails: str) -> Array:
    """How hard each document is, about 0, with heavy tails, (documents,)."""
    if tails == "t3":
        return 0.3 * rng.standard_t(3, size=count)
    return 0.6 * (np.exp(0.8 * rng.standard_normal(count)) - np.exp(0.32))


def lengths_of(rng: np.random.Generator, count: int) -> Array:
    """Tokens of each document: lognormal about 300, (documents,)."""
    return np.maximum(20, rng.lognormal(np.log(300), 0.8, size=count)).astype(np.int64)


def curves_of(rng: np.random.Generator, count: int, tails: str) -> tuple[Array, Array]:
    """Tokens of each document, and its RBP_k at KS: -ln RBP_k = B k^-beta with its own B and beta."""
    log_b = difficulty(rng, count, tails)
    steep = 0.15 * (rng.standard_t(3, count) if tails == "t3" else rng.standard_normal(count))
    slope = 0.4 + 0.3 * np.tanh(steep)
    p = np.exp(-np.exp(np.clip(log_b[:, None] - slope[:, None] * np.log(KS), -8, 5)))
    return lengths_of(rng, count), np.maximum.accumulate(p, axis=1)


@lru_cache(maxsize=2)
def true_beta(tails: str) -> float:
    """Beta of unlimited text."""
    tokens, p = curves_of(np.random.default_rng(0), 1_000_000, tails)
    return float(fit_k_law(KS, -np.log(tokens @ p / tokens.sum())[None]).beta[0])


@experiment(
    "k_law",
    truth="each document has its own B and beta",
    remark=(
        "Fewer than some 100 documents do not know a skewed tail: no bootstrap can tell what was not drawn. The interval is "
        "widened to what as many equal documents as decide beta allow, and the report says so."
    ),
    claims={"95 % interval of beta covers": 0.95},
    designs=grid(m=(1,), tau=(0.0,), documents=(20, 50, 200, 1000)),
)
def beta(rng: np.random.Generator, design: Design) -> Outcome:
    """The studentized interval of beta (k_law)."""
    tokens, p = curves_of(rng, design.documents, design.tails)
    shares = np.diff(p, axis=1, prepend=0, append=1)
    hits = np.cumsum(rng.multinomial(tokens, shares)[:, :-1], axis=1)
    counts = DocumentCounts(tuple(KS.tolist()), np.arange(len(tokens)), tokens, tokens.astype(float), hits)
    interval = beta_interval(counts, replicates=BOOTSTRAPS, level=0.95)
    return {"95 % interval of beta covers": covers(interval.low, true_beta(design.tails), interval.high)}


def ranks_table(document: Array, position: Array, rank: Array, logprob: Array) -> RankTable:
    """A rank table of tokens that all come from one field."""
    nothing = np.zeros(len(rank))
    columns = {"document": document, "position": position, "field": nothing, "token": nothing, "ties": nothing}
    return RankTable.from_arrays(vocab_size=VOCABULARY, **columns, greater=rank - 1, logprob=logprob)


@experiment(
    "emergence",
    truth="independent hits; at drift = 1 their share rises along the document",
    claims={"not what is true, at some N (false positive)": 0.05},
    designs=grid(m=(1,), tau=(0.0,), tails=("none",), drift=(0, 1)),
)
def verdicts(rng: np.random.Generator, design: Design) -> Outcome:
    """The verdicts of emergence at every N together."""
    tokens = lengths_of(rng, design.documents)
    document = np.repeat(np.arange(len(tokens)), tokens)
    position = np.arange(len(document)) - np.repeat(np.cumsum(tokens) - tokens, tokens)
    share = 0.35 + 0.35 * np.minimum(position / 600, 1) if design["drift"] else np.full(len(position), 0.55)
    rank = np.where(rng.random(len(position)) < share, 1, 9)
    table = ranks_table(document, position, rank, np.full(len(rank), -1.0))
    (counts,) = count_windows(table, PositionBins.of(lambda: [table], LENGTHS), ks=[1], lengths=LENGTHS)
    weights = document_weights(len(tokens), replicates=2 * BOOTSTRAPS)
    success = success_by_length(counts, weights, least_runs=10, least_documents=5, level=0.95)
    null = "position" if design["drift"] else "independent"
    tested = [null in success.consistent(j) for j in range(len(LENGTHS)) if success.tested(j)]
    return {"not what is true, at some N (false positive)": not all(tested) if tested else None}


RANKS = np.arange(1, VOCABULARY + 1)
LEVELS = np.linspace(-3, 6, 181)


@lru_cache(maxsize=1)
def rank_models() -> tuple[Array, Array]:
    """P(e) and the mean of ln p given e, for documents of each of LEVELS of difficulty, (levels, ranks)."""
    slope = 1.35 - 0.35 * np.tanh(LEVELS)
    p = np.exp(-slope[:, None] * np.log(RANKS - 0.6) - 2e-4 * RANKS)
    return p / p.sum(axis=1, keepdims=True), -0.5 - 0.85 * np.log(RANKS) - 0.25 * np.tanh(LEVELS)[:, None]


def levels_of(rng: np.random.Generator, count: int, tails: str) -> Array:
    """The level of difficulty of each document, (documents,)."""
    nearest = np.rint((np.clip(difficulty(rng, count, tails), -3, 6) + 3) / 0.05)
    return np.asarray(nearest.astype(np.int64))


@lru_cache(maxsize=2)
def true_parts(tails: str) -> tuple[float, ...]:
    """CE, H(P), KL and -ln Z of unlimited text."""
    p, logprob = rank_models()
    weight = np.bincount(levels_of(np.random.default_rng(0), 1_000_000, tails), minlength=len(LEVELS)) / 1e6
    every = weight @ p
    log_q = (weight[:, None] * p * logprob).sum(axis=0) / every
    ce, entropy = -float(every @ log_q), -float(every @ np.log(every))
    log_z = float(np.log(np.exp(log_q).sum()))
    return ce, entropy, ce - entropy + log_z, -log_z


@experiment(
    "error_entropy",
    truth="documents with their own distribution of ranks",
    remark="Wider than the jackknife makes them where few documents decide.",
    claims={"2 standard errors of H(P) cover": 0.95, "of KL": 0.95, "of -ln Z": 0.95},
    designs=grid(m=(1,), tau=(0.0,)),
)
def parts(rng: np.random.Generator, design: Design) -> Outcome:
    """The corrected parts of cross-entropy and their standard errors."""
    p, mean = rank_models()
    level = levels_of(rng, design.documents, design.tails)
    tokens = lengths_of(rng, design.documents)
    cumulated = p.cumsum(axis=1)
    rank = np.concatenate(
        [np.searchsorted(cumulated[i], rng.random(n)) + 1 for i, n in zip(level, tokens, strict=True)]
    )
    rank = np.minimum(rank, VOCABULARY)
    logprob = mean[np.repeat(level, tokens), rank - 1] + 0.5 * rng.standard_normal(len(rank))
    document = np.repeat(np.arange(len(tokens)), tokens)
    table = ranks_table(document, np.arange(len(rank)), rank, logprob)
    entropies, influence = smooth_parts(BinnedRanks.of(table, rank_bins(table.histogram())))
    half = 1.96 * part_errors(influence[None])[0]
    inside = np.abs(entropies - true_parts(design.tails)) <= half
    return dict(zip(("2 standard errors of H(P) cover", "of KL", "of -ln Z"), map(bool, inside[1:]), strict=True))


@experiment(
    "lognormal",
    truth="beta and gamma are lines in ln S; errors correlated at -0.9",
    remark="With 4 sizes and no scatter too wide, as alpha's.",
    claims={"95 % interval of gamma's change covers": 0.95, "of mu/sigma's change": 0.95},
    designs=grid(tau=(0.0, 1.0), tails=("normal",), documents=(200,)),
)
def trends(rng: np.random.Generator, design: Design) -> Outcome:
    """The lines of beta and gamma over sizes (lognormal); tau counts standard errors."""
    s = sizes(design.m)
    x = np.log(s) - np.log(s).mean()
    truth = np.column_stack([0.8 + 0.03 * x, 0.06 + 0.004 * x])
    root = np.linalg.cholesky([[1, -0.9], [-0.9, 1]]) * [[0.02], [0.004]]

    def errors(count: int) -> Array:
        shared, own = rng.standard_normal((count, 1, 2)), rng.standard_normal((count, len(s), 2))
        return np.asarray((0.8 * shared + 0.6 * own) @ root.T)

    estimate = truth + design.tau * rng.standard_normal(truth.shape) * [0.02, 0.004] + errors(1)[0]
    trend = lognormal_trend(s, estimate, estimate[:, None] + np.moveaxis(errors(BOOTSTRAPS), 0, 1), level=0.95)
    change = -0.03 / np.sqrt(0.12) - 0.2 * 0.004 / 0.12**1.5
    ratio = trend.mu_over_sigma
    return {
        "95 % interval of gamma's change covers": covers(trend.gamma.low, 0.004, trend.gamma.high),
        "of mu/sigma's change": covers(ratio.low, change, ratio.high) if ratio else None,
    }
