"""Experiments on laws over sizes: exponents, their differences and means, forecasts, and forms with a floor.

Each function in `EXPERIMENTS` makes one draw: it simulates measurements, analyses them, and returns the outcome of each
claim. Its arguments are a generator of random numbers and the settings of a cell:

    m         number of sizes
    D         number of documents (in papers on scaling laws, D is the number of training tokens)
    tau       standard deviation of ln y of a model around its law
    tails     distribution of the difficulty of documents (see `Texts`)
    lengths   distribution of the lengths of documents (see `Texts`)
    sources   number of groups of documents
    number    number of families or datasets
    sd        standard deviation of the exponents of these families or datasets
    other     scatter of one family, divided by the scatter of the others
    slope     1, or -1 if documents that become easier with size faster in one family do so more slowly in the other
    ratio     size at which the second family has the value of the first family's size 1
    gap       exponent of the second family minus that of the first
    seeds     number of runs of each size
    common    share of the variance of the scatter that all runs of a size have in common
    ends, grows, ar, floor, broken   attributes of `Family` in studies/simulation.py
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from rbptrack.ranks import DocumentCounts, FloatArray
from rbptrack.ranks.near_copies import near_copy_groups
from rbptrack.stats import (
    Law,
    Row,
    adjust,
    ce_and_neg_log_rbp,
    combination,
    correlations,
    cross_entropy,
    crossing,
    estimate,
    fit,
    fit_floor,
    forecast,
    homogeneity,
    independent_difference,
    mean_over_datasets,
    mean_over_families,
    neg_log_rbp,
    neg_log_rbp_over_ce,
    paired_difference,
    share_scatter,
    size_ratio,
)
from rbptrack.stats.means import Mean
from studies.experiment import Experiment, Outcomes, Settings, coverage, fit_laws, grid, rejection
from studies.simulation import ALPHA, CE_OF_SMALLEST, EXPONENT_GAP, Documents, Family, Texts

MARGIN = 0.1
"""Differences below this share of CE's exponent count as the same, as in the analyzer `power_law`."""

TAILS = ("t3", "skewed")
FLOORS = (0.0, 0.1, 0.3, 0.5)


def _family(cell: Settings) -> Family:
    names = ("ends", "grows", "ar", "floor", "broken")
    return Family(cell["m"], cell["tau"], **{name: cell[name] for name in names if name in cell})


def _documents(rng: np.random.Generator, cell: Settings) -> Documents:
    """Draw the documents of a cell. If it does not set them, difficulty is skewed and lengths are uneven."""
    return Documents.draw(
        rng, Texts(cell["D"], cell.get("tails", "skewed"), cell.get("lengths", "uneven"), cell.get("sources", 0))
    )


def exponents(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the intervals of exponents and the tests of one family's law.

    RBP_1 has the exponent ALPHA, like CE. The exponent of RBP_100 is larger by EXPONENT_GAP.
    """
    family = _family(cell)
    counts = family.measure(rng, _documents(rng, cell), alphas=(ALPHA, ALPHA + EXPONENT_GAP))
    ce_law, rbp_1_law, rbp_100_law = fit_laws(family.s, counts, ce_and_neg_log_rbp)
    rbp_1_over_ce, rbp_100_over_ce = fit_laws(family.s, counts, neg_log_rbp_over_ce)
    [rbp_100_over_rbp_1] = fit_laws(family.s, counts, _rbp_100_over_rbp_1)
    outcomes = {
        **coverage("covers: CE's α", ce_law.alpha, ALPHA),
        **coverage("covers: RBP_1's α", rbp_1_law.alpha, ALPHA),
        **coverage("covers: RBP_100's α", rbp_100_law.alpha, ALPHA + EXPONENT_GAP),
        **coverage("covers: Δα = 0.03", rbp_100_over_ce.alpha, EXPONENT_GAP),
        **rejection("false: Δα differs, though equal", rbp_1_over_ce.alpha),
        **coverage("covers: RBP_100's α minus RBP_1's", rbp_100_over_rbp_1.alpha, EXPONENT_GAP),
    }
    claim = "share: RBP_1's α is covered by an interval that takes tokens for independent"
    outcomes[claim] = abs(rbp_1_law.alpha.value - ALPHA) <= 1.96 * _error_of_tokens(rbp_1_law, counts)
    if cell["m"] >= 4:
        outcomes |= rejection("false: largest size is off the law", ce_law.held_out())
    if cell["m"] >= 5:
        outcomes |= rejection("false: a bend", ce_law.bend())
    return outcomes


def _rbp_100_over_rbp_1(sums: FloatArray) -> FloatArray:
    """Return -ln RBP_100 / -ln RBP_1, (...)."""
    values = neg_log_rbp(sums)
    return np.asarray(values[..., 1] / values[..., 0])


def _error_of_tokens(rbp_1_law: Law, counts: Sequence[DocumentCounts]) -> float:
    """Compute the standard error of RBP_1's alpha as if tokens were independent and models did not scatter."""
    tokens = np.array([size_counts.tokens.sum() for size_counts in counts])
    share = np.exp(-rbp_1_law.y)
    variance_of_ln_y = (1 - share) / (tokens * share * rbp_1_law.y**2)
    return float(np.sqrt(rbp_1_law.alpha_weights**2 @ variance_of_ln_y))


def deciding(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the intervals of alpha and the test of Δα if few documents, the longest ones, decide the result.

    RBP_1 has the exponent of CE, so every difference that the test finds is a false alarm.
    """
    family = _family(cell)
    counts = family.measure(rng, _documents(rng, cell), alphas=(ALPHA, ALPHA + EXPONENT_GAP))
    ce_alpha, rbp_1_alpha, _ = (law.alpha for law in fit_laws(family.s, counts, ce_and_neg_log_rbp))
    delta_alpha = fit_laws(family.s, counts, neg_log_rbp_over_ce)[0].alpha
    return {
        **coverage("covers: CE's α", ce_alpha, ALPHA),
        **coverage("covers: RBP_1's α", rbp_1_alpha, ALPHA),
        "spread: width of CE's α": 2 * ce_alpha.half_width(),
        "spread: width of RBP_1's α": 2 * rbp_1_alpha.half_width(),
        **rejection("false: Δα differs, though equal", delta_alpha),
    }


def edge(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check how often the exponents of RBP_1 and CE are called the same if they differ by exactly the margin.

    Only smaller differences count as the same.
    """
    family = _family(cell)
    margin = MARGIN * ALPHA
    counts = family.measure(rng, _documents(rng, cell), alphas=(ALPHA + margin, ALPHA))
    delta_alpha = fit_laws(family.s, counts, neg_log_rbp_over_ce)[0].alpha
    return {"false: Δα counts as the same at the margin": abs(delta_alpha.value) + delta_alpha.half_width() <= margin}


def forecasts(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the intervals of forecasts of CE and -ln RBP_1 at 3 and 10 times the largest measured size.

    The model to forecast scatters around the law as much as the others. The true value is the value over the population
    of documents.
    """
    family = _family(cell)
    counts = family.measure(rng, _documents(rng, cell))
    ce_law, rbp_1_law, _ = fit_laws(family.s, counts, ce_and_neg_log_rbp)
    outcomes: dict[str, float] = {}
    for name, law, y_of_smallest in (("CE", ce_law, CE_OF_SMALLEST), ("RBP_1", rbp_1_law, 1.1)):
        for times in (3.0, 10.0):
            s = times * float(family.s[-1])
            [y] = family.y_at(np.array([s]), ALPHA)
            truth = float(np.log(y_of_smallest * y)) + family.tau * rng.standard_normal()
            predicted = forecast(law, s)
            if predicted is None:
                continue
            outcomes[f"covers: forecast of {name} at {times:g} times"] = predicted.low <= truth <= predicted.high
            by_line = law.predict(s)
            claim = f"share: A S^-alpha alone would cover {name} at {times:g} times"
            outcomes[claim] = abs(by_line.value - truth) <= by_line.half_width()
    return outcomes


def forms(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the test of fit and the interval of the floor E of CE.

    The true law of CE is E + A S^-alpha. E is 0 or a share (`floor`) of CE at the largest size.
    """
    family = _family(cell)
    [ce_law] = fit_laws(family.s, family.measure(rng, _documents(rng, cell)), cross_entropy)
    floor = CE_OF_SMALLEST * family.law_floor(ALPHA)
    fitted = fit_floor(ce_law)
    outcomes: dict[str, float] = {"covers: E": fitted is not None and fitted.low <= floor <= fitted.high}
    if fitted is not None:
        outcomes["median: largest floor that is permitted, % of CE at the largest size"] = (
            100 * fitted.high / ce_law.y[-1]
        )
    kind = "false: a bend" if floor == 0 else "found: a bend"
    return outcomes | rejection(kind, ce_law.bend())


def dependent(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the interval of alpha if neighbouring sizes scatter alike, and scatter dominates the noise of documents."""
    family = _family(cell)
    [ce_law] = fit_laws(family.s, family.measure(rng, _documents(rng, cell)), cross_entropy)
    return coverage("covers: CE's α, if neighbouring sizes scatter together", ce_law.alpha, ALPHA)


def outlier(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the interval of alpha if y of one model, at any size, is 10% too large."""
    family = _family(cell)
    y = family.curve(ALPHA) * family.scatter(rng, 1)[:, 0]
    y[rng.integers(family.sizes)] *= 1.1
    alpha = fit(family.s, y).alpha
    return coverage("covers: α, though one model is 10% off", alpha, ALPHA)


def power(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Count how often tests find effects that are large enough to matter.

    The tests are those of the analyzers `power_law` and `contrasts`.
    """
    family = _family(cell)
    documents = _documents(rng, cell)
    counts = family.measure(rng, documents, alphas=(ALPHA, ALPHA + EXPONENT_GAP))
    [ce_law] = fit_laws(family.s, counts, cross_entropy)
    [_, rbp_100_over_ce] = fit_laws(family.s, counts, neg_log_rbp_over_ce)
    [rbp_100_over_rbp_1] = fit_laws(family.s, counts, _rbp_100_over_rbp_1)
    mispredicted = _multiply_y(ce_law, np.append(np.ones(family.sizes - 1), 1.1))
    steeper = Family(family.sizes, family.tau).measure(rng, documents, alpha_ce=1.2 * ALPHA)
    [steeper_law] = fit_laws(family.s, steeper, cross_entropy)
    without_scatter = Family(family.sizes, 0.0).measure(rng, _documents(rng, cell), alpha_ce=1.2 * ALPHA)
    # On the second dataset, a model has its scatter on the first dataset, and half as much separate scatter.
    shared_scatter = ce_law.y / (CE_OF_SMALLEST * family.curve(ALPHA))
    separate_scatter = Family(family.sizes, family.tau / 2).scatter(rng, 1)[:, 0]
    [steeper_law_without_scatter] = fit_laws(family.s, without_scatter, cross_entropy)
    second_dataset_law = _multiply_y(steeper_law_without_scatter, shared_scatter * separate_scatter)
    return {
        "found: α = 0.1 of CE": ce_law.alpha.p() < 0.05,
        "found: RBP_100's α is larger than CE's by 30%": rbp_100_over_ce.alpha.p() < 0.05,
        "found: RBP_100's α is larger than RBP_1's by 30%": rbp_100_over_rbp_1.alpha.p() < 0.05,
        "found: CE at the largest size is off by 10%": mispredicted.held_out().p() < 0.05,
        "found: CE's α of two families differs by 20%": paired_difference(ce_law.alpha, steeper_law.alpha).p() < 0.05,
        "found: CE's α on two datasets differs by 20%": second_dataset_law.over(ce_law).alpha.p() < 0.05,
    }


def _multiply_y(measured: Law, factors: FloatArray) -> Law:
    """Return the law of the values y times factors, (m,). The errors over documents stay the same."""
    return Law(replace(measured.lines, y=measured.lines.y * factors), measured.place)


KS_TOGETHER = (1, 2, 5, 10, 30, 100)


def together(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Test whether the exponents of RBP_k differ from that of CE, for six k of several families on one dataset.

    The p are adjusted by the maximum of correlated scores, and by Holm's method. First all exponents are equal. Then
    all exponents of RBP_k are larger by EXPONENT_GAP.
    """
    family = Family(cell["m"], cell["tau"])
    documents = _documents(rng, cell)
    places = np.linspace(-1, 1, family.sizes)
    neg_log_rbp_of_smallest = 1.1 * np.array(KS_TOGETHER) ** -0.35
    outcomes: dict[str, float] = {}
    for alpha in (ALPHA, ALPHA + EXPONENT_GAP):
        rows = []
        for number in range(cell["number"]):
            factors = family.scatter(rng, 1 + len(KS_TOGETHER))
            ce = CE_OF_SMALLEST * family.curve(ALPHA) * factors[:, 0]
            neg_log_rbp = np.outer(family.curve(alpha), neg_log_rbp_of_smallest) * factors[:, 1:]
            counts = []
            for i, place in enumerate(places.tolist()):
                rbp = {"neg_log_rbp": neg_log_rbp[i], "ks": KS_TOGETHER}
                counts.append(documents.measure(rng, ce=ce[i], place=round(place, 6), **rbp))
            for law in fit_laws(family.s, counts, neg_log_rbp_over_ce):
                rows.append(Row(law.alpha, "texts", f"family {number}"))
        p = np.array([row.estimate.p() for row in rows])
        by_maximum = adjust(p, correlations(rows)) < 0.05
        by_holm = adjust(p, np.eye(len(rows))) < 0.05
        if alpha == ALPHA:
            outcomes["false: at least one of several Δα differs, though all are equal"] = float(by_maximum.any())
            claim = "share: at least one of several Δα differs, though all are equal, by Holm's method"
            outcomes[claim] = float(by_holm.any())
        else:
            outcomes["found: several Δα = 0.03"] = float(by_maximum.mean())
            outcomes["found: several Δα = 0.03, by Holm's method"] = float(by_holm.mean())
    return outcomes


def families(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Count false alarms of the test of whether two families differ in their exponents.

    Both families have the exponent ALPHA. They are measured on the same documents, and then on different documents.
    """
    documents = _documents(rng, cell)
    first_family = Family(cell["m"], cell["tau"])
    other_family = Family(cell["m"], cell["tau"] * cell["other"], slope=cell["slope"])
    cases = ((first_family, documents), (other_family, documents), (other_family, _documents(rng, cell)))
    laws = []
    for family, family_documents in cases:
        laws.append(fit_laws(family.s, family.measure(rng, family_documents), ce_and_neg_log_rbp))
    (ce_law, rbp_1_law, _), (other_ce_law, other_rbp_1_law, _), (ce_law_elsewhere, *_) = laws
    elsewhere = independent_difference(ce_law.alpha, ce_law_elsewhere.alpha)
    claim = "false: two families differ in {}, same documents"
    return {
        **rejection(claim.format("CE's α"), paired_difference(ce_law.alpha, other_ce_law.alpha)),
        **rejection(claim.format("RBP_1's α"), paired_difference(rbp_1_law.alpha, other_rbp_1_law.alpha)),
        **rejection("false: two families differ in CE's α, other documents", elsewhere),
    }


def datasets(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the mean of one family's exponents over datasets, and the tests whether they differ.

    Each model has scatter that is the same on all datasets, and half as much that is drawn for each dataset.
    """
    family = Family(cell["m"], 0.0)
    shared_scatter = Family(cell["m"], cell["tau"]).scatter(rng, 1)[:, 0]
    exponents = ALPHA + cell["sd"] * rng.standard_normal(cell["number"] + 1)  # the last one is not measured
    laws = []
    for alpha in exponents[:-1]:
        counts = family.measure(rng, _documents(rng, cell), alpha_ce=float(alpha))
        separate_scatter = Family(cell["m"], cell["tau"] / 2).scatter(rng, 1)[:, 0]
        [law] = fit_laws(family.s, counts, cross_entropy)
        laws.append(_multiply_y(law, shared_scatter * separate_scatter))
    outcomes: dict[str, float] = {}
    if not cell["sd"]:
        outcomes |= rejection("false: α differs between two datasets", laws[0].over(laws[1]).alpha)
    mean = mean_over_datasets(laws)
    p = homogeneity([Row(law.alpha, f"texts {i}", "family") for i, law in enumerate(laws)])
    subject = "the measured α of datasets differ"
    outcomes[f"found: {subject}, sd 0.02" if cell["sd"] else f"false: {subject}"] = p < 0.05
    return outcomes | _mean_outcomes(mean, "datasets", float(exponents[-1]))


def _mean_outcomes(mean: Mean | None, over: str, next_exponent: float) -> dict[str, float]:
    """Check the mean of exponents and their prediction interval.

    Args:
        mean: the mean over families or datasets. Without a mean, there are no outcomes.
        over: `families` or `datasets`, for the claims.
        next_exponent: the exponent of one more family or dataset, which the prediction interval should contain.

    """
    if mean is None:
        return {}
    outcomes: dict[str, float] = {}
    outcomes |= coverage(f"covers: mean α over {over}", mean.mean, ALPHA)
    return outcomes | {f"covers: prediction interval of α over {over}": mean.low <= next_exponent <= mean.high}


def means(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the means of exponents of several families on one dataset: random-effects means, and the headline's mean.

    If `other` is not 1, the first family scatters more than the others.
    """
    documents = _documents(rng, cell)
    exponents = ALPHA + cell["sd"] * rng.standard_normal(cell["number"] + 1)  # the last one is not measured
    laws = []
    for i, alpha in enumerate(exponents[:-1]):
        tau = cell["tau"] * (cell["other"] if i == 0 else 1.0)
        family = Family(cell["m"], tau, slope=1.0 - 2 * (i % 2))
        counts = family.measure(rng, documents, alpha_ce=float(alpha))
        laws += fit_laws(family.s, counts, cross_entropy)
    outcomes = _mean_outcomes(mean_over_families(laws), "families", float(exponents[-1]))
    rows = [Row(law.alpha, "texts", f"family {i}") for i, law in enumerate(laws)]
    measured = combination(rows, np.full(len(rows), 1 / len(rows)))
    outcomes |= coverage("covers: mean α of the measured families", measured, float(exponents[:-1].mean()))
    claim = "found: the measured α differ, sd 0.02" if cell["sd"] else "false: the measured α differ"
    return outcomes | {claim: homogeneity(rows) < 0.05}


def hard(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check exponents if 3% of the documents are very hard, so that a sample may hold none of them."""
    chosen = ("covers: CE's α", "covers: RBP_100's α", "false: Δα differs, though equal")
    outcomes = exponents(rng, cell)
    return {f"{claim}, 3% hard documents": outcomes[claim] for claim in chosen if claim in outcomes}


def equivalent(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the size at which a family has the value of another family's largest model, and the crossing of both.

    The second family has the value of the first one at `ratio` times the size if the exponents are equal. `gap` is the
    exponent of the second family minus ALPHA.
    """
    documents = _documents(rng, cell)
    first = Family(cell["m"], cell["tau"])
    second = Family(cell["m"], cell["tau"] * cell["other"])
    s = first.s * cell["ratio"]
    alpha = ALPHA + cell["gap"]
    reference, _, _ = fit_laws(first.s, first.measure(rng, documents), ce_and_neg_log_rbp)
    law, _, _ = fit_laws(s, second.measure(rng, documents, alpha_ce=alpha), ce_and_neg_log_rbp)
    found = size_ratio(law, reference, float(first.s[-1]), paired_difference)
    ln_range = float(np.log(first.s[-1] / first.s[0]))
    truth = np.log(cell["ratio"]) + (ALPHA / alpha - 1) * ln_range
    if found is None:
        return {"covers: size at which two families are equal": 0.0}
    outcomes: dict[str, float] = {
        "covers: size at which two families are equal": found.low <= np.exp(truth) <= found.high,
        "share: the interval of an equivalent size is unbounded": found.high == np.inf or found.low == 0,
    }
    if not truth:
        outcomes |= rejection("false: a family needs another size for the same CE", found.ln_ratio)
    elif not cell["gap"]:
        outcomes |= rejection("found: a family needs half the size for the same CE", found.ln_ratio)
    if cell["gap"]:
        # (S / (ratio s0))^-alpha = (S / s0)^-ALPHA
        crossing_at = float(first.s[0]) * float(np.exp(alpha * np.log(cell["ratio"]) / cell["gap"]))
        place = crossing(law, reference, paired_difference)
        outcomes["covers: size at which two families cross"] = place.low <= crossing_at <= place.high
    return outcomes


def shared(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check intervals of alpha of laws of few sizes, whose scatter is estimated together with other families.

    The first family scatters `other` times as much as the others.
    """
    documents = _documents(rng, cell)
    laws_of_families = []
    for i in range(cell["number"]):
        family = Family(cell["m"], cell["tau"] * (cell["other"] if i == 0 else 1.0), slope=1.0 - 2 * (i % 2))
        [law] = fit_laws(family.s, family.measure(rng, documents), cross_entropy)
        laws_of_families.append({"ce": law})
    fitted = [each["ce"] for each in share_scatter(laws_of_families, [str(i) for i in range(cell["number"])])]
    covered = [abs(law.alpha.value - ALPHA) <= law.alpha.half_width() for law in fitted]
    widths = [law.alpha.half_width() / law.own_alpha.half_width() for law in fitted[1:]]
    outcomes = {
        "covers: CE's α of few sizes, with the scatter of all families": float(np.mean(covered)),
        "median: interval of α of few sizes with the scatter of all families, % of that by its own": 100
        * float(np.mean(widths)),
    }
    if cell["other"] > 1:
        outcomes["covers: CE's α of few sizes, of the one family that scatters 4 times as much"] = float(covered[0])
    return outcomes


def seeds(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check the intervals of exponents if each size has several runs, which differ in their seed.

    The counts of a size's runs are summed into one point of the law. The runs of a size share the part `common` of the
    variance of their scatter.
    """
    family = Family(cell["m"], 0.0)
    documents = _documents(rng, cell)
    size_scatter = Family(cell["m"], cell["tau"] * cell["common"] ** 0.5).scatter(rng, 2)
    counts = []
    for i, ln_s_ratio in enumerate(np.log(family.s / family.s[0])):
        place = round(2 * i / (cell["m"] - 1) - 1, 6)
        counts_of_seeds = []
        for _ in range(cell["seeds"]):
            seed_scatter = Family(1, cell["tau"] * (1 - cell["common"]) ** 0.5).scatter(rng, 2)[0]
            y = np.exp(-ALPHA * ln_s_ratio) * size_scatter[i] * seed_scatter
            neg_log_rbp_1 = np.array([1.1 * y[1]])
            ce = CE_OF_SMALLEST * y[0]
            counts_of_seeds.append(documents.measure(rng, ce=ce, neg_log_rbp=neg_log_rbp_1, ks=(1,), place=place))
        counts.append(reduce(operator.add, counts_of_seeds))
    clause = "of which half of the scatter is common to a size" if cell["common"] else "whose scatter is independent"
    ce_law, rbp_1_law = fit_laws(family.s, counts, ce_and_neg_log_rbp)
    return {
        **coverage(f"covers: CE's α from seeds, {clause}", ce_law.alpha, ALPHA),
        **coverage(f"covers: RBP_1's α from seeds, {clause}", rbp_1_law.alpha, ALPHA),
    }


def sources(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check intervals and tests if documents come from sources, once with and once without the names of the sources.

    Documents of one source share three quarters of the variance of their difficulty. rbptrack calls sources *groups*.
    """
    family = _family(cell)
    documents = _documents(rng, cell)
    counts = family.measure(rng, documents)
    grouped = [size_counts.in_groups(documents.group.tolist()) for size_counts in counts]
    ce_of_largest = CE_OF_SMALLEST * float(family.curve(ALPHA)[-1])
    outcomes: dict[str, float] = {}
    for name, units in (("sources given", grouped), ("sources not given", counts)):
        ce_law, rbp_1_law, _ = fit_laws(family.s, units, ce_and_neg_log_rbp)
        [ratio, _] = fit_laws(family.s, units, neg_log_rbp_over_ce)
        outcomes |= coverage(f"covers: CE's α, {name}", ce_law.alpha, ALPHA)
        outcomes |= coverage(f"covers: RBP_1's α, {name}", rbp_1_law.alpha, ALPHA)
        if not family.tau:  # CE of the largest model is known only if it lies on the law
            outcomes |= coverage(f"covers: CE, {name}", estimate(units[-1], cross_entropy), ce_of_largest)
        outcomes |= rejection(f"false: Δα differs, though equal, {name}", ratio.alpha)
    return outcomes


def near_copies(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Check tests of one law if every document has near copies, once with and once without the search for them.

    A copy has the numbers of its original. A tenth of its tokens, at random places, is another one.
    """
    family = _family(cell)
    counts = family.measure(rng, _documents(rng, cell))
    original = np.tile(np.arange(cell["D"]), cell["copies"])
    tokens = rng.integers(30_000, size=(cell["D"], 100))[original]
    tokens = np.where(rng.random(tokens.shape) < 0.1, rng.integers(30_000, size=tokens.shape), tokens)
    groups = near_copy_groups(tokens.ravel(), np.full(len(tokens), 100))
    copied = [replace(size.take(original), document=np.arange(len(original))) for size in counts]
    outcomes: dict[str, float] = {"share: near copies form the right groups": (groups == original).all()}
    for name, units in (
        ("copies found", [size.in_groups(groups.tolist()) for size in copied]),
        ("copies not found", copied),
    ):
        ce_law, _, _ = fit_laws(family.s, units, ce_and_neg_log_rbp)
        outcomes |= coverage(f"covers: CE's α, {name}", ce_law.alpha, ALPHA)
        tests = [law.alpha.p(0.0) for law in fit_laws(family.s, units, neg_log_rbp_over_ce)]
        tests += [ce_law.bend().p(0.0), ce_law.held_out().p(0.0)]
        smallest = np.nanmin([*tests, 1.0]) * len(tests)
        outcomes[f"false: any of 4 conclusions (Bonferroni), {name}"] = smallest < 0.05
    return outcomes


EXPERIMENTS = {
    "near_copies": Experiment(
        grid(m=(7,), D=(10, 40), copies=(12,), tails=TAILS, lengths=("even",), tau=(0.0, 0.01)), near_copies
    ),
    "exponents": Experiment(
        [
            *grid(m=(3, 4, 5, 7, 10), D=(20, 100), tails=TAILS, lengths=("even", "uneven"), tau=(0.0, 0.02)),
            *grid(m=(4, 7), D=(5, 10), tails=TAILS, lengths=("even", "uneven"), tau=(0.0, 0.02)),
            *grid(m=(4, 7, 10), D=(100,), tails=TAILS, lengths=("uneven",), tau=(0.02,), ends=(3.6,)),
            *grid(m=(4, 7, 10), D=(100,), tails=TAILS, lengths=("uneven",), tau=(0.02,), grows=(4.0,)),
            *grid(m=(4, 7, 10), D=(100,), tails=TAILS, lengths=("uneven",), tau=(0.02,), ar=(0.7,)),
        ],
        exponents,
    ),
    "deciding": Experiment(
        grid(
            m=(7,), D=(20, 50, 135), tails=TAILS, lengths=("even", "uneven", "wild", "extreme"), tau=(0.0, 0.005, 0.02)
        ),
        deciding,
    ),
    "edge": Experiment(grid(m=(4, 7, 10), D=(20, 100), tails=TAILS, tau=(0.0, 0.005)), edge),
    "forecasts": Experiment(
        [
            *grid(m=(5, 8, 12), D=(100, 1000), tails=("t3",), lengths=("even",), tau=(0.005,), floor=FLOORS),
            *grid(m=(5, 8, 12), D=(100, 1000), tails=("t3",), lengths=("even",), tau=(0.005,), broken=(0.3,)),
        ],
        forecasts, draws=20,
    ),
    "forms": Experiment(
        grid(m=(5, 8, 12), D=(100, 1000), tails=("t3",), lengths=("even",), tau=(0.005, 0.02), floor=FLOORS),
        forms, draws=40,
    ),
    "dependent": Experiment(
        grid(m=(5, 7, 12), D=(60, 500), tails=("t3",), lengths=("even",), tau=(0.02,), ar=(0.5, 0.7)),
        dependent, draws=100,
    ),
    "outlier": Experiment(grid(m=(5, 7, 10), tau=(0.005, 0.01)), outlier, draws=50),
    "power": Experiment(grid(m=(5, 7, 10), D=(50, 200), tau=(0.01,)), power),
    "together": Experiment(
        grid(m=(4, 7, 10), D=(50, 200), tau=(0.005, 0.02), number=(1, 3)), together, draws=50
    ),
    "families": Experiment(
        grid(m=(4, 7), D=(20, 100), tails=TAILS, tau=(0.0, 0.01), other=(1.0, 4.0), slope=(1.0, -1.0)), families
    ),
    "datasets": Experiment(
        grid(m=(4, 7), D=(50, 200), tau=(0.01,), number=(3, 6), sd=(0.0, 0.02)), datasets
    ),
    "means": Experiment(
        grid(m=(4, 7), D=(50, 200), tau=(0.01,), number=(3, 6), sd=(0.0, 0.02), other=(1.0, 4.0)), means
    ),
    "hard": Experiment(
        grid(m=(5, 7), D=(30, 100, 300), tails=("hard",), lengths=("even",), tau=(0.0, 0.005)), hard
    ),
    "equivalent": Experiment(
        [
            *grid(m=(3, 4, 7), D=(50, 200), tau=(0.005, 0.02), other=(1.0, 4.0), ratio=(0.5, 1.0), gap=(0.0,)),
            *grid(m=(4, 7), D=(50, 200), tau=(0.005, 0.02), other=(1.0,), ratio=(0.5,), gap=(0.02,)),
        ],
        equivalent, draws=100,
    ),
    "shared": Experiment(
        grid(m=(3, 4, 5), D=(50, 200), tau=(0.005, 0.02), number=(2, 4), other=(1.0, 4.0)), shared, draws=100
    ),
    "seeds": Experiment(
        grid(m=(4, 7), D=(50, 200), tau=(0.01,), seeds=(2, 3), common=(0.0, 0.5)), seeds
    ),
    "sources": Experiment(
        grid(m=(4, 10), D=(200,), tails=TAILS, tau=(0.0, 0.02), sources=(25, 50)), sources
    ),
}  # fmt: skip
