"""Experiments on single measurements, on pairs of measurements, and on the counts of analyzers in rank tables.

Each function in `EXPERIMENTS` makes one draw: it simulates measurements, analyses them, and returns the outcome of each
claim. Its arguments are a generator of random numbers and the settings of a cell:

    D          number of documents (in `_checkpoint_sizes`, d is the number of training tokens)
    m          number of sizes
    tails      distribution of the difficulty of documents, an attribute of `Texts` in studies/simulation.py
    lengths    distribution of the lengths of documents, an attribute of `Texts`
    tokens     number of tokens in the sample
    RBP        probability that a token succeeds
    N          number of tokens in a row
    sd         standard deviation of ln(-ln RBP) between documents
    differ     whether documents differ in difficulty
    times      mean damage, divided by the tolerance of `compare`
    sources    number of sources of the documents
    offsets    1 if models of one family share a part of their scores and proxies, otherwise 0
    condition  condition number of the columns ln S and ln D of the checkpoints
    tau        standard deviation of ln y of a checkpoint around the law
    ar         correlation between the scatter of neighbouring checkpoints
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from plugins.breakdown import GLOSSARY, compare_with_rest
from plugins.ce_parts import CeParts
from plugins.draft import KL, acceptance, draft_sums, tokens_per_call
from plugins.emergence import Emergence, estimate_from_many_documents
from plugins.emergence.counts import (
    count_windows,
    ln_against_expected,
    ln_against_mixture,
    ln_n_eff,
    n_eff,
    neg_log_p,
)
from plugins.lognormal import Lognormal, fit_ranks, maximum_likelihood, rank_sums
from plugins.proxies import PROXIES, kendall_tau, largest_by_chance, leave_families_out
from rbptrack.analysis import Report, Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.ranks import CE, DocumentCounts, FloatArray, IntArray, RankTable, log_grid
from rbptrack.stats import (
    cross_entropy,
    estimate,
    law_in_k,
    laws,
    y_with_intervals,
)
from rbptrack.stats.changes import Changes, PairCounts, judge
from studies.experiment import Experiment, Outcomes, Settings, coverage, fit_laws, grid, rejection
from studies.simulation import (
    ALPHA,
    CE_OF_SMALLEST,
    TOKENS,
    Documents,
    Family,
    Texts,
    difficulties,
    population,
    typical_document_y,
)

VOCABULARY = 2048  # number of entries
_KINDS = 400  # number of kinds of documents. Each kind has a distribution of ranks of its own.
TAILS = ("t3", "skewed")
LENGTHS = ("even", "uneven")


def numbers(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the intervals of CE, of RBP_1, and of the exponent beta in k, in one measurement."""
    documents = Documents.draw(rng, Texts(cell["D"], cell["tails"], cell["lengths"]))
    ks = log_grid(100).tolist()
    beta = 0.5
    counts = documents.measure(rng, ce=3.0, neg_log_rbp=1.1 * np.array(ks) ** -beta, ks=ks)
    in_k = law_in_k(counts, 100)
    rare_misses = documents.measure(rng, ce=3.0, neg_log_rbp=-np.log([0.99]), ks=[100])
    return {
        **_coverage_of_y("covers: CE", counts, 0, 3.0),
        **_coverage_of_y("covers: RBP_1", counts.select([1]), 1, 1.1),
        **_coverage_of_y("covers: RBP_100 of 99%", rare_misses, 1, -float(np.log(0.99))),
        **(coverage("covers: β in k", in_k[0], beta) if in_k else {}),
    }


def _coverage_of_y(claim: str, counts: DocumentCounts, place: int, truth: float) -> dict[str, bool]:
    """Return whether the interval of CE (place 0) or -ln RBP_k contains the truth, as `power_law` draws it."""
    _, low, high = (ends[place] for ends in y_with_intervals(counts))
    return {claim: low <= truth <= high} if np.isfinite(low) else {}


@cache
def _rank_probabilities(tails: str, mu: float) -> FloatArray:
    """Return the probability of each rank for every kind of document, (kinds, V).

    The distributions are lognormal, with a standard deviation of ln R of about 2. The kinds differ in the mean of ln R,
    which is mu on average. `tails` says how they differ, `t3` or `skewed`.
    """
    difficulty = difficulties(ndtri((np.arange(_KINDS) + 0.5) / _KINDS), tails)
    shifts = difficulty - difficulty.mean()
    ln_k = np.log(np.arange(1, VOCABULARY + 1))
    pmf = np.exp(-((ln_k - mu - shifts[:, None]) ** 2) / (2 * 2.0**2)) / np.arange(1, VOCABULARY + 1)
    return np.asarray(pmf / pmf.sum(axis=1, keepdims=True))


@cache
def _rank_distributions(tails: str, mu: float) -> FloatArray:
    """Return the probability of a rank of at most k, for every kind of document and every k, (kinds, V)."""
    return np.cumsum(_rank_probabilities(tails, mu), axis=1)


@cache
def _fit_population(tails: str, mu: float) -> tuple[FloatArray, float]:
    """Fit a lognormal to the ranks of the population of documents, in which each kind is equally frequent.

    Returns:
        The parameters beta and gamma, (2,), and the gain over Zipf's law in nats per token.

    """
    ln_k = np.log(np.arange(1, VOCABULARY + 1))
    pmf = _rank_probabilities(tails, mu)
    means = np.array([(pmf @ ln_k).mean(), (pmf @ ln_k**2).mean()])
    theta, _, lognormal_log_pmf = maximum_likelihood(means, VOCABULARY)
    zipf_log_pmf = maximum_likelihood(means[:1], VOCABULARY)[2]
    return np.asarray(theta), float(pmf.mean(axis=0) @ (lognormal_log_pmf - zipf_log_pmf))


def _draw_ranks(rng: np.random.Generator, tails: str, mu: float, kinds: Any, length: IntArray) -> IntArray:
    """Draw the ranks of all tokens, document by document, (tokens,).

    Args:
        rng: the generator of random numbers.
        tails: the distribution of difficulty, `t3` or `skewed`.
        mu: the mean of ln R over the kinds of documents.
        kinds: the kind of each document, (documents,).
        length: the number of tokens of each document, (documents,).

    """
    parts = []
    for kind, tokens in zip(kinds, length, strict=True):
        parts.append(1 + np.searchsorted(_rank_distributions(tails, mu)[kind], rng.random(tokens)))
    return np.asarray(np.minimum(np.concatenate(parts), VOCABULARY))


def _make_table(rank: IntArray, length: IntArray, vocab_size: int = VOCABULARY, **columns: FloatArray) -> RankTable:
    """Make a rank table.

    Args:
        rank: the ranks of all tokens, document by document, (tokens,).
        length: the number of tokens of each document, (documents,).
        vocab_size: the number of entries of the vocabulary.
        columns: further columns of the table, (tokens,). They replace the default values of columns.

    """
    zeros = np.zeros(len(rank))
    position = np.arange(len(rank)) - np.repeat(np.cumsum(length) - length, length)
    all_columns: dict[str, Any] = {"field": zeros, "token": zeros, "ties": zeros, "logprob": zeros - 1, **columns}
    return RankTable.from_arrays(
        vocab_size=vocab_size,
        document=np.repeat(np.arange(len(length)), length),
        position=position,
        greater=rank - 1,
        **all_columns,
    )


def _make_runs(s: FloatArray, tables: Sequence[RankTable]) -> Runs:
    """Return the measurements of one family on one dataset, with the rank table of each size S."""
    run_ids = [f"run {i}" for i in range(len(tables))]
    frame = pd.DataFrame({"run_id": run_ids, "model": run_ids, "non_embedding_params": np.rint(s)})
    return Runs(frame.assign(family="a", dataset="b"), RankTables(dict(zip(run_ids, tables, strict=True))))


def lognormal(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the intervals of beta and gamma of ranks, and of the gain over Zipf's law, if documents differ.

    The true values are those of the fit to the population.
    """
    theta, gain = _fit_population(cell["tails"], 1.0)
    mu_over_sigma = (1 - theta[0]) / np.sqrt(2 * theta[1])
    length = Documents.draw(rng, Texts(cell["D"], cell["tails"], cell["lengths"])).length
    kinds = rng.integers(_KINDS, size=cell["D"])
    table = _make_table(_draw_ranks(rng, cell["tails"], 1.0, kinds, length), length)
    fitted = fit_ranks(rank_sums([table], table.histogram()))
    outcomes = {
        **coverage("covers: β of the ranks", fitted.estimates["beta"], theta[0]),
        **coverage("covers: γ of the ranks", fitted.estimates["gamma"], theta[1]),
        **coverage("covers: the lognormal's gain over Zipf's law", fitted.gain, gain),  # printed from 200 documents on
    }
    if fitted.has_mu_and_sigma:
        outcomes |= coverage("covers: μ/σ of the ranks", fitted.estimate("mu_over_sigma"), mu_over_sigma)
    if fitted.estimate("gamma").has_interval:
        outcomes["found: ranks curve as a lognormal's"] = fitted.estimate("gamma").p() < 0.05
    return outcomes


def slopes(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the intervals of the slopes of beta and gamma in ln S.

    The true slopes are those of the lines through the values of the population.
    """
    s = Family(cell["m"], 0.0).s
    mus = np.round(np.linspace(1.0, 0.0, cell["m"]), 6)
    length = np.full(cell["D"], TOKENS)
    kinds = rng.integers(_KINDS, size=cell["D"])
    tables = [_make_table(_draw_ranks(rng, cell["tails"], float(mu), kinds, length), length) for mu in mus]
    lines = Lognormal().analyze(_make_runs(s, tables)).frame("slope").set_index("quantity")
    theta = np.array([_fit_population(cell["tails"], float(mu))[0] for mu in mus])
    truth = np.polyfit(np.log(s), theta, 1)[0]
    return {
        **_coverage_by_row("covers: slope of β in ln S", lines.loc["beta"], truth[0]),
        **_coverage_by_row("covers: slope of γ in ln S", lines.loc["gamma"], truth[1]),
    }


def _coverage_by_row(claim: str, row: Any, truth: float) -> dict[str, bool]:
    """Return `{claim: whether the interval of a row of a report contains the truth}`; empty if it has no interval."""
    return {} if np.isnan(row["low"]) else {claim: bool(row["low"] <= truth <= row["high"])}


def ce_parts(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the intervals of the parts of CE over sizes: their shares in the fall of CE, and the exponent of E[ln R].

    Ranks are lognormal. The difference between -ln p and ln R has an exponential distribution.
    """
    s = Family(cell["m"], 0.0).s
    mus = np.round(np.linspace(1.0, 0.0, cell["m"]), 6)
    mean_rests = np.linspace(1.5, 1.2, cell["m"])
    length = np.full(cell["D"], TOKENS)
    kinds = rng.integers(_KINDS, size=cell["D"])
    document_factor = np.repeat(np.exp(0.3 * rng.standard_normal(cell["D"]) - 0.3**2 / 2), length)
    ln_k = np.log(np.arange(1, VOCABULARY + 1))
    truths = []
    tables = []
    for mu, mean_rest in zip(mus.tolist(), mean_rests.tolist(), strict=True):
        rank = _draw_ranks(rng, cell["tails"], mu, kinds, length)
        rest = mean_rest * document_factor * rng.exponential(size=len(rank))
        tables.append(_make_table(rank, length, logprob=-np.log(rank) - rest))
        shares = _rank_probabilities(cell["tails"], mu).mean(axis=0)
        ln_rank = float(shares @ ln_k)
        entropy = float(-shares @ np.log(shares))
        truths.append([ln_rank + mean_rest, ln_rank, mean_rest, entropy])
    ce, *_ = population_parts = np.array(truths).T
    slope = dict(zip(("ce", "rank", "rest", "error_entropy"), _slopes_against(ce, population_parts), strict=True))
    report = CeParts().analyze(_make_runs(s, tables))
    outcomes: dict[str, float] = {}
    if "share" in report.questions:
        share = report.frame("share").set_index("metric")
        outcomes |= _coverage_by_row("covers: share of E[ln R] in the fall of CE", share.loc["rank"], slope["rank"])
        outcomes |= _coverage_by_row(
            "covers: share of H(P) in the fall of CE", share.loc["error_entropy"], slope["error_entropy"]
        )
    per_decade = report.frame("per_decade").set_index("metric")
    truth = np.polyfit(np.log10(s), population_parts[1], 1)[0]
    outcomes |= _coverage_by_row("covers: change of E[ln R] per decade", per_decade.loc["rank"], truth)
    delta = report.frame("delta").set_index("metric").loc["rank"]
    truth = -np.polyfit(np.log(s), np.log(population_parts[1] / ce), 1)[0]
    return outcomes | _coverage_by_row("covers: Δα of E[ln R] and CE", delta, truth)


def _slopes_against(ce: FloatArray, parts: FloatArray) -> FloatArray:
    """Return the slope of each part in CE by least squares, (parts,). `ce` is (m,) and `parts` is (parts, m)."""
    deviation = ce - ce.mean()
    return np.asarray(parts @ deviation / (deviation @ deviation))


def entropy(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Compute how much of the bias of the entropy Miller and Madow's correction removes.

    The entropy is that of lognormal ranks among 50,304 entries. It is estimated from a sample of independent tokens.
    """
    cumulative, truth = _wide_rank_distribution()
    rank = 1 + np.searchsorted(cumulative, rng.random(cell["tokens"])).clip(max=len(cumulative) - 1)
    table = _make_table(rank, np.array([len(rank)]), len(cumulative), logprob=-np.log(rank) - 1.0)
    [parts] = CeParts().analyze(_make_runs(np.ones(1), [table])).tables["parts"].to_dict("records")
    correction = parts["miller_madow"] - parts["error_entropy"]
    claim = "median: share of H(P)'s bias that Miller and Madow's correction removes, %"
    return {claim: float(100 * correction / (truth - parts["error_entropy"]))}


@cache
def _wide_rank_distribution() -> tuple[FloatArray, float]:
    """Return the cumulative distribution of lognormal ranks among 50,304 entries, and its entropy in nats."""
    ln_k = np.log(np.arange(1, 50_305))
    pmf = np.exp(-((ln_k + 5.0) ** 2) / (2 * 4.0**2) - ln_k)
    pmf /= pmf.sum()
    return np.cumsum(pmf), float(-pmf @ np.log(pmf))


def emergence(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Count false alarms of the test of whether tokens succeed independently of each other.

    They do, so the true N_eff is N.
    """
    windows = _count_windows(rng.random(cell["D"] * TOKENS) < cell["RBP"], cell["D"], cell["N"])
    if not Emergence().has_enough_runs(windows):
        return {}
    return rejection(
        "false: tokens are not independent", estimate_from_many_documents(windows, ln_n_eff), np.log(cell["N"])
    )


def _count_windows(hit: Any, documents: int, n: int) -> FloatArray:
    """Count windows of n tokens in documents of equal length, as `emergence` does, (documents, 6).

    hit: whether each token succeeds, (tokens,).
    """
    rank: IntArray = np.where(hit, 1, 2)
    table = _make_table(rank, np.full(documents, len(rank) // documents))
    return count_windows(table, [1], [n])[:, 0, 0]


def mixture(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the intervals of p_N and N_eff, and the test of whether tokens that succeed cluster within documents.

    Documents differ in difficulty. Three cases are simulated: tokens of one document are independent, they depend
    on their position, or they really cluster.
    """
    y = -np.log(cell["RBP"]) * np.exp(cell["sd"] * rng.standard_normal(cell["D"]))
    share = np.repeat(np.exp(-y), TOKENS)
    is_early = np.tile(np.arange(TOKENS) < TOKENS // 4, cell["D"])
    hits_by_claim = {
        "false: tokens cluster within documents": rng.random(len(share)) < share,
        "share: called clustering, though only the first quarter of each text is twice as hard": (
            rng.random(len(share)) < np.where(is_early, share**2, share)
        ),
        "found: clustering, every tenth token succeeds if the token before it does": _draw_clustered_hits(rng, share),
    }
    outcomes: dict[str, float] = {}
    for claim, hit in hits_by_claim.items():
        windows = _count_windows(hit, cell["D"], cell["N"])
        if not Emergence().has_enough_runs(windows):
            continue
        outcomes |= rejection(claim, estimate(windows, ln_against_mixture))
        if claim.startswith("false"):
            normal, weights = np.polynomial.hermite_e.hermegauss(61)
            y_of_kinds = -np.log(cell["RBP"]) * np.exp(cell["sd"] * normal)
            p_1, p_n = (float(weights @ np.exp(-n * y_of_kinds) / weights.sum()) for n in (1, cell["N"]))
            ln_neg_log_p = estimate_from_many_documents(windows, lambda sums: np.log(neg_log_p(sums)))
            outcomes |= coverage("covers: p_N, documents differ", ln_neg_log_p, np.log(-np.log(p_n)))
            ln_n = np.log(np.log(p_n) / np.log(p_1))
            outcomes |= coverage(
                "covers: N_eff, documents differ", estimate_from_many_documents(windows, ln_n_eff), ln_n
            )
    return outcomes


def _draw_clustered_hits(rng: np.random.Generator, share: FloatArray) -> Any:
    """Draw whether tokens succeed if one token in ten copies the outcome of the token before it.

    `share` is the probability that each token succeeds, (tokens,).
    """
    hit = rng.random(len(share)) < share
    copies = rng.random(len(share)) < 0.1
    copies[::TOKENS] = False
    source = np.maximum.accumulate(np.where(copies, 0, np.arange(len(share))))
    return hit[source]


def alpha_n(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the interval of alpha_N, the exponent in size of -ln p_N, and its comparison with alpha.

    p_N is the probability that N tokens in a row succeed. The true exponents are those of the lines through the
    values of the population.
    """
    s = Family(cell["m"], 0.0).s
    neg_log_rbp = 0.5 * (s / s[0]) ** -0.1
    documents = Documents.draw(rng, Texts(cell["D"], cell["tails"], "even"))
    difficulty = documents.difficulty if cell["differ"] else np.ones(cell["D"])
    sizes = []
    truths = []
    for value in neg_log_rbp:
        y = float(typical_document_y(np.array([value]), cell["tails"], 0.0)[0]) if cell["differ"] else value
        share = np.repeat(np.exp(-y * difficulty), TOKENS)
        sizes.append(_count_windows(rng.random(len(share)) < share, cell["D"], cell["N"]))
        r, weights = population(cell["tails"], 0.0) if cell["differ"] else (np.ones(1), np.ones(1))
        p_n = float(weights @ np.exp(-y * cell["N"] * r))
        truths.append((-np.log(p_n), np.log(p_n) / np.log(weights @ np.exp(-y * r))))
    if not all(map(Emergence().has_enough_runs, sizes)):
        return {}
    alpha, delta = (-np.polyfit(np.log(s), np.log(truth), 1)[0] for truth in zip(*truths, strict=True))
    [law_of_p_n] = laws(s, sizes, neg_log_p)
    [law_of_n_eff] = laws(s, sizes, n_eff)
    if not law_of_p_n or not law_of_n_eff:
        return {}
    outcomes = coverage("covers: α_N", law_of_p_n.alpha, alpha)
    if cell["differ"]:
        return outcomes | coverage("covers: α_N - α", law_of_n_eff.alpha, delta)
    return outcomes | rejection("false: α_N differs from α", law_of_n_eff.alpha)


def answers(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the test of whether whole answers succeed as often as RBP^length predicts.

    They do if tokens succeed independently. If answers differ in difficulty, more answers succeed.
    """
    length = np.asarray(rng.integers(2, 8, size=cell["D"]))
    lengths = np.unique(length)
    outcomes: dict[str, float] = {}
    for claim, sd in (  # sd is the standard deviation of ln(-ln RBP) between answers
        ("false: whole answers differ from independent tokens", 0.0),
        ("found: whole answers succeed more often, answers differ by sd 0.5", 0.5),
    ):
        shares = cell["RBP"] ** np.exp(sd * rng.standard_normal(len(length)))
        hits = rng.binomial(length, shares)
        if (hits == length).sum() < Emergence().min_runs:
            continue
        sums = np.column_stack([length, hits == length, hits, length[:, None] == lengths]).astype(np.float64)
        outcomes |= rejection(claim, estimate(sums, partial(ln_against_expected, lengths.astype(np.float64))))
    return outcomes


def changes(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the intervals, tests and verdicts of `compare` for two measurements of the same documents.

    Neither measurement is better. For the claims `found`, a third one has a better RBP_1, or a CE that is worse by
    twice the tolerance.
    """
    documents = Documents.draw(rng, Texts(cell["D"], cell["tails"], cell["lengths"]))
    a, b = (documents.measure(rng, ce=3.0, neg_log_rbp=np.array([1.1, 0.25]), ks=(1, 100)) for _ in range(2))
    better = documents.measure(rng, ce=3.0, neg_log_rbp=np.array([1.02, 0.25]), ks=(1, 100))
    pair = _pair(a, b)
    ce = pair.change(CE)
    same_top = 0.97
    noise = 0.03 * rng.standard_normal(cell["D"])  # nats per token
    changed = replace(a, nats=a.nats + noise * a.tokens)
    unchanged, at_tolerance, at_twice_tolerance = (_verdict(a, changed, worse_by) for worse_by in (0.0, 0.01, 0.02))
    typical_y = typical_document_y(np.array([-np.log(same_top)]), cell["tails"], 0.0)
    num_same = rng.binomial(documents.length, np.exp(-typical_y * documents.difficulty)).astype(np.float64)
    same_pair = replace(pair, pairs=replace(pair.pairs, same_top=num_same))
    return {
        **rejection("false: top tokens flip to one side (McNemar)", pair.mcnemar),
        **coverage("covers: change of CE", ce.difference, 0.0),
        **coverage("covers: change of RBP_1", pair.change("rbp_1").difference, 0.0),
        **coverage("covers: share of tokens with the same top token, 97%", same_pair.same_top, same_top),
        "false: compare says worse, at the tolerance": at_tolerance == "worse",
        "false: compare says within, at the tolerance": at_tolerance == "within",
        "found: top tokens flip to one side, RBP_1 33 to 36% (McNemar)": _pair(a, better).mcnemar.p() < 0.05,
        "found: compare says worse, at twice the tolerance of 0.01 nats": at_twice_tolerance == "worse",
        "found: compare says within (or rare), if nothing changed": unchanged in ("within", "rare"),
    }


def _verdict(a: DocumentCounts, b: DocumentCounts, worse_by: float) -> str:
    """Return the answer of `compare --tolerance 0.01` after b is made worse by `worse_by` nats per token."""
    worse = replace(b, nats=b.nats + worse_by * b.tokens)
    return judge([_pair(a, worse).change(CE)], 0.01, len(a.document))


def rare(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Count how often `compare` misses damage to 3% of the documents or sources.

    The mean damage over all documents is `times` the tolerance.
    """
    tolerance = 0.01
    documents = Documents.draw(rng, Texts(cell["D"], "skewed", cell["lengths"]))
    a = documents.measure(rng, ce=3.0, neg_log_rbp=np.array([1.1]), ks=(1,))
    source: IntArray = np.arange(cell["D"])
    if "sources" in cell:
        source = np.asarray(rng.integers(cell["sources"], size=cell["D"]))
    damaged = rng.random((cell["D"],))[source] < 0.03
    noise = 0.01 * rng.standard_normal(cell["D"])
    damage = cell["times"] * tolerance / 0.03 * damaged + noise
    worse = replace(a, nats=a.nats + damage * a.tokens)
    answer = judge([_pair(a, worse).change(CE)], tolerance, cell["D"])
    units = "sources that are not named" if "sources" in cell else "documents"
    times = "twice the tolerance" if cell["times"] == 2 else "the tolerance"
    return {
        f"false: compare says within, though 3% of the {units} are damaged, on average by {times}": answer == "within"
    }


def _pair(a: DocumentCounts, b: DocumentCounts) -> Changes:
    """Pair two measurements by document.

    If b has more hits in a document than a, the additional hits count as gained; if it has fewer, as lost.
    """
    gained = np.maximum(b.hits[:, 0] - a.hits[:, 0], 0.0)
    lost = np.maximum(a.hits[:, 0] - b.hits[:, 0], 0.0)
    pairs = PairCounts(moved=gained + lost, same_top=a.tokens - gained - lost, lost=lost, gained=gained)
    return Changes(a, b, pairs, [])


def breakdown(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the tests whether a class of tokens differs from the rest in level and exponent.

    One token in five belongs to the class. For the claims `false`, the class is like the rest. For the claims `found`,
    it differs in both.
    """
    family = Family(cell["m"], 0.01)
    documents = Documents.draw(rng, Texts(cell["D"], "skewed", "uneven"))
    class_lengths = np.maximum(rng.binomial(documents.length, 0.2), 1)
    outcomes: dict[str, float] = {}
    shared_scatter = family.scatter(rng, 2)
    for class_factor, class_alpha in ((1.0, 0.1), (1.1, 0.13)):  # the second class is 10% easier at the largest size
        pairs = []
        for i, ln_s_ratio in enumerate(np.log(family.s / family.s[0])):
            class_and_rest = []
            for length, factor, alpha in ((class_lengths, class_factor, class_alpha), (documents.length, 1.0, 0.1)):
                part = replace(documents, length=length)
                y = factor * np.exp(-alpha * ln_s_ratio) * shared_scatter[i]
                neg_log_rbp = np.array([1.1 * y[1]])
                class_and_rest.append(part.measure(rng, ce=3.5 * y[0], neg_log_rbp=neg_log_rbp, ks=(10,)).sums)
            pairs.append(np.stack(class_and_rest, axis=1))
        outcomes |= _class_outcomes(family, pairs, class_differs=class_factor > 1)
    return outcomes


def _class_outcomes(family: Family, pairs: Sequence[FloatArray], *, class_differs: bool) -> dict[str, float]:
    """Compare a class of tokens with the rest, as the analyzer `breakdown` does.

    `pairs` are the sums of the class and of the rest at each size, m arrays of (documents, 2, 2 + ks).
    """
    report = Report(GLOSSARY)
    case = {"family": "a", "dataset": "b", "by": "kind", "class": "number"}
    compare_with_rest(report, case, [CE, "rbp_10"], family.s, pairs)
    outcomes: dict[str, float] = {}
    for question, quantity in (("level", "level"), ("delta", "exponent")):
        for _, row in report.frame(question).iterrows():
            metric = "CE" if row["metric"] == CE else "RBP_k"
            claim = f"false: a class of tokens has another {quantity} of {metric}"
            if class_differs:
                by = "10%" if question == "level" else "30%"
                claim = f"found: a class of tokens has another {quantity} of {metric}, by {by}"
            if not np.isnan(row["p"]):
                outcomes[claim] = bool(row["p"] < 0.05)
    if class_differs:
        alpha = report.frame("alpha").set_index("metric").loc[CE]
        return outcomes | _coverage_by_row("covers: α within a class of tokens", alpha, 0.13)
    return outcomes


def draft(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the intervals of a draft's acceptance, KL, tokens per call of the reference, and speed-up.

    Acceptance differs between documents, and between the tokens of a document.
    """
    a, b = 6.0, 3.0  # the parameters of the beta distribution of a document's acceptance
    length = Documents.draw(rng, Texts(cell["D"], "skewed", cell["lengths"])).length
    share = np.repeat(rng.beta(a, b, size=cell["D"]), length)
    accept = rng.beta(3 * share, 3 * (1 - share))
    rank: IntArray = np.ones(len(share), dtype=np.int64)
    sums = draft_sums(_make_table(rank, length, accept=accept, kl=0.4 * rng.exponential(size=len(share))), 12)
    lengths = np.arange(1, 13)
    times = 0.1 * lengths + 1  # of drafting that many tokens and one call of the reference
    truths = 1 + np.cumsum(np.cumprod((a + lengths - 1) / (a + b + lengths - 1)))
    speed_ups = [tokens_per_call(sums, length, time=time) for length, time in zip(lengths.tolist(), times, strict=True)]
    speed_up = max(speed_ups, key=lambda estimate: estimate.value)
    return {
        **coverage("covers: acceptance of a draft", estimate(sums, acceptance), a / (a + b)),
        **coverage("covers: KL of a draft", estimate(sums, lambda x: x[..., KL] / x[..., 0]), 0.4),
        **coverage("covers: tokens per call of the reference", tokens_per_call(sums, 5), truths[4]),
        **coverage("covers: speed-up with drafts of the best length", speed_up, float((truths / times).max())),
    }


def proxies(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check whether the best proxy is called better than chance, with sixteen models of four families.

    At first, no proxy depends on the scores. For the last claim, three of them do, with a correlation of 0.8.
    """
    number = len(PROXIES)
    families = np.repeat(np.arange(4), 4)
    scores = cell["offsets"] * rng.standard_normal(4)[families] + rng.standard_normal(16)
    noise = cell["offsets"] * rng.standard_normal((4, number))[families] + rng.standard_normal((16, number))
    exceeds = _exceeds_chance(noise, scores)
    if cell["offsets"]:
        return {"false: best proxy exceeds chance, though models come in families": exceeds}
    left_out = leave_families_out(noise, scores, families)
    assert left_out is not None
    with_signal = noise.copy()
    with_signal[:, :3] = 0.8 * scores[:, None] + 0.6 * noise[:, :3]
    return {
        "false: best proxy exceeds chance": exceeds,
        "share: proxies of pure noise order 65% of pairs or more rightly": left_out.right_share >= 0.65,
        "found: best proxy exceeds chance, correlation 0.8": _exceeds_chance(with_signal, scores),
    }


def _exceeds_chance(values: FloatArray, scores: FloatArray) -> bool:
    """Return whether the largest Kendall's tau of proxies, (models, proxies), and scores, (models,), exceeds chance."""
    return max(kendall_tau(proxy, scores) for proxy in values.T) > largest_by_chance(values, scores)


def training(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the change of CE's exponent in size over training, for the first and the last of six checkpoints.

    CE falls with size and with training by factors that do not depend on each other, so the exponent does not change.
    The scatter of neighbouring checkpoints of a model is correlated by `ar`.
    """
    family = Family(cell["m"], cell["tau"])
    documents = Documents.draw(rng, Texts(cell["D"], "skewed", "uneven"))
    scatter = rng.standard_normal((2, cell["m"]))
    correlation = cell["ar"] ** 5
    scatter[1] = correlation * scatter[0] + np.sqrt(1 - correlation**2) * scatter[1]
    sums = []
    for i, place in enumerate(np.linspace(-1, 1, cell["m"])):
        by_checkpoint = []
        for factor, deviation in zip((1.5, 1.0), scatter[:, i], strict=True):
            ce = CE_OF_SMALLEST * factor * family.curve(ALPHA)[i] * np.exp(cell["tau"] * deviation)
            counts = documents.measure(rng, ce=ce, neg_log_rbp=np.ones(1), ks=(1,), place=round(float(place), 6))
            by_checkpoint.append(counts.sums)
        sums.append(np.stack(by_checkpoint, axis=1))
    [ratio] = fit_laws(family.s, sums, lambda x: cross_entropy(x[..., 1, :]) / cross_entropy(x[..., 0, :]))
    return {
        **coverage("covers: change of CE's exponent over training", ratio.alpha, 0.0),
        **rejection("false: CE's exponent changes over training", ratio.alpha),
    }


EXPERIMENTS = {
    "numbers": Experiment(grid(D=(5, 10, 20, 50, 200), tails=TAILS, lengths=LENGTHS), numbers, draws=400),
    "lognormal": Experiment(grid(D=(20, 50, 200), tails=TAILS, lengths=LENGTHS), lognormal, draws=100),
    "slopes": Experiment(grid(m=(3, 5), D=(50, 200), tails=TAILS), slopes, draws=25),
    "ce_parts": Experiment(grid(m=(4, 6), D=(50, 200), tails=TAILS), ce_parts, draws=25),
    "entropy": Experiment(grid(tokens=(50_000, 170_000, 500_000)), entropy, draws=10),
    "emergence": Experiment(grid(D=(60, 200), RBP=(0.4, 0.8), N=(2, 4, 8, 16)), emergence),
    "mixture": Experiment(grid(D=(20, 60, 200), RBP=(0.4, 0.8), N=(2, 4, 8), sd=(0.3, 0.6)), mixture, draws=100),
    "alpha_n": Experiment(
        grid(m=(3, 5), D=(50, 200), tails=TAILS, N=(2, 4, 8), differ=(False, True)), alpha_n, draws=50
    ),
    "answers": Experiment(grid(D=(50, 200, 1000), RBP=(0.8, 0.95)), answers),
    "changes": Experiment(grid(D=(20, 50, 200), tails=TAILS, lengths=LENGTHS), changes),
    "rare": Experiment(
        [
            *grid(D=(20, 50, 100, 200), lengths=LENGTHS, times=(1.0, 2.0)),
            *grid(D=(200,), lengths=("uneven",), times=(1.0, 2.0), sources=(20, 50)),
        ],
        rare,
    ),
    "breakdown": Experiment(grid(m=(4, 7), D=(50, 200)), breakdown, draws=50),
    "draft": Experiment(grid(D=(20, 50, 200), lengths=LENGTHS), draft, draws=50),
    "proxies": Experiment(grid(offsets=(0.0, 1.0)), proxies, draws=50),
    "training": Experiment(
        grid(m=(3, 6), D=(50, 200), tau=(0.002, 0.01), ar=(0.0, 0.9)), training
    ),
}  # fmt: skip
