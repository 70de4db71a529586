"""Experiments on laws over sizes: exponents, their differences and means, forecasts, and forms with a floor.

Settings of cells that several experiments use:

    m         number of sizes
    D         number of documents
    tau       standard deviation of ln y of a model around its law
    tails     distribution of the difficulty of documents (see `Texts`)
    lengths   distribution of the lengths of documents (see `Texts`)
    sources   number of groups of documents
    number    number of families or datasets, whose exponents have the standard deviation sd
    other     factor by which one family scatters more than the others
    ends, grows, ar, floor, bend   see `Family`
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, reduce

import numpy as np

from rbptrack.ranks import DocumentCounts
from rbptrack.stats import (
    Law,
    cross_entropy,
    difference_of_exponents,
    estimate,
    fit,
    fit_floor,
    huber_alpha,
    mean_over_datasets,
    mean_over_families,
    neg_log_rbp,
    neg_log_rbp_over_ce,
    pooled_scatter,
    power_law_aicc,
)
from rbptrack.stats.contrasts import Mean
from studies.experiment import ALPHA, APART, Experiment, Outcomes, Settings, at, covered, grid, law, plugin, rejected
from studies.simulation import CE_OF_SMALLEST, Documents, Family, Texts

MARGIN = 0.1
"""Differences below this share of CE's exponent count as the same, as in the analyzer `power_law`."""

TAILS = ("t3", "skewed")


def _family(cell: Settings) -> Family:
    names = ("ends", "grows", "ar", "floor", "bend")
    return Family(cell["m"], cell["tau"], **{name: cell[name] for name in names if name in cell})


def _documents(rng: np.random.Generator, cell: Settings) -> Documents:
    return Documents.draw(
        rng, Texts(cell["D"], cell.get("tails", "skewed"), cell.get("lengths", "uneven"), cell.get("sources", 0))
    )


def exponents(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Simulate laws in size. RBP_1 has the exponent of CE, and the exponent of RBP_100 is larger by APART."""
    family = _family(cell)
    counts = family.measure(rng, _documents(rng, cell), alpha_ce=ALPHA, alphas=(ALPHA, ALPHA + APART))
    ce_law = law(family.s, counts, cross_entropy)
    rbp_1_law, rbp_100_law = (law(family.s, at(counts, k), neg_log_rbp) for k in (1, 100))
    equal_ratio = law(family.s, at(counts, 1), neg_log_rbp_over_ce)
    larger_ratio = law(family.s, at(counts, 100), neg_log_rbp_over_ce)
    rbp_100_over_rbp_1 = law(family.s, counts, lambda sums: neg_log_rbp(sums)[..., 1:] / neg_log_rbp(sums)[..., :1])
    outcomes = {
        **covered("covers: CE's α", ce_law.alpha, ALPHA),
        **covered("covers: RBP_1's α", rbp_1_law.alpha, ALPHA),
        **covered("covers: RBP_100's α", rbp_100_law.alpha, ALPHA + APART),
        **covered("covers: Δα = 0.03", larger_ratio.alpha, APART),
        **rejected("false: Δα differs, though equal", equal_ratio.alpha),
        **covered("covers: RBP_100's α minus RBP_1's", rbp_100_over_rbp_1.alpha, APART),
    }
    claim = "share: RBP_1's α is covered by an interval that takes tokens for independent"
    outcomes[claim] = abs(rbp_1_law.alpha.value - ALPHA) <= 1.96 * _error_of_tokens(rbp_1_law, counts)
    if cell["m"] >= 4:
        outcomes |= rejected("false: largest size is off the law", ce_law.held_out())
    if cell["m"] >= 5:
        outcomes |= rejected("false: a bend", ce_law.bend())
    return outcomes


def _error_of_tokens(rbp_1_law: Law, counts: Sequence[DocumentCounts]) -> float:
    """Compute the standard error of RBP_1's alpha as if tokens were independent and models did not scatter."""
    tokens = np.array([size_counts.tokens.sum() for size_counts in counts])
    share = np.exp(-rbp_1_law.y)
    variance_of_ln_y = (1 - share) / (tokens * share * rbp_1_law.y**2)
    return float(np.sqrt(rbp_1_law.alpha_weights**2 @ variance_of_ln_y))


def deciding(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Simulate seven sizes on documents of very different lengths. Check the intervals of alpha and the test of Δα."""
    family = _family(cell)
    counts = family.measure(rng, _documents(rng, cell), alpha_ce=ALPHA, alphas=(ALPHA, ALPHA + APART))
    ce_alpha = law(family.s, counts, cross_entropy).alpha
    rbp_1_alpha = law(family.s, at(counts, 1), neg_log_rbp).alpha
    delta_alpha = law(family.s, at(counts, 1), neg_log_rbp_over_ce).alpha
    return {
        **covered("covers: CE's α", ce_alpha, ALPHA),
        **covered("covers: RBP_1's α", rbp_1_alpha, ALPHA),
        "spread: width of CE's α": 2 * ce_alpha.half(),
        "spread: width of RBP_1's α": 2 * rbp_1_alpha.half(),
        "share: Δα is falsely found, of all draws": delta_alpha.testable and delta_alpha.p() < 0.05,
        "made: test of Δα": delta_alpha.testable,
        **rejected("false: Δα differs, though equal", delta_alpha),
    }


def edge(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Simulate an exponent of RBP_1 that differs from that of CE by exactly the margin of the verdict `same`."""
    family = _family(cell)
    margin = MARGIN * ALPHA
    counts = family.measure(rng, _documents(rng, cell), alpha_ce=ALPHA, alphas=(ALPHA + margin, ALPHA))
    ratio = law(family.s, at(counts, 1), neg_log_rbp_over_ce).alpha
    if not ratio.testable:
        return {}
    return {"false: Δα counts as the same at the margin": abs(ratio.value) + ratio.half() <= margin}


def forecasts(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Forecast CE and -ln RBP_1 of a model that is `times` times as large as the largest.

    The truth is the value over the population of documents.
    """
    family = _family(cell)
    counts = family.measure(rng, _documents(rng, cell), alpha_ce=ALPHA, alphas=(ALPHA, ALPHA))
    s = cell["times"] * float(family.s[-1])
    x = np.log(s / family.s[0])
    claim = "covers: forecast of {}"
    if family.floor:
        claim += ", though the law has a floor"
    outcomes: dict[str, float] = {}
    for name, statistic, first in (("CE", cross_entropy, CE_OF_SMALLEST), ("RBP_1", neg_log_rbp, 1.1)):
        floor = family.law_floor(ALPHA)
        truth = np.log(first * (floor + (1 - floor) * np.exp(-ALPHA * x))) + family.tau * rng.standard_normal()
        metric_law = law(family.s, at(counts, 1), statistic)
        outcomes |= covered(claim.format(name), metric_law.predict(s), float(truth))
    return outcomes


def forms(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Compare E + A S^-alpha with other forms. E is 0 or a share of CE at the largest size."""
    family = _family(cell)
    counts = family.measure(rng, _documents(rng, cell), alpha_ce=ALPHA, alphas=(ALPHA, ALPHA))
    ce_law = law(family.s, counts, cross_entropy)
    form = fit_floor(ce_law.s, ce_law.y)
    e = form.parameters["E"]
    floor = CE_OF_SMALLEST * family.law_floor(ALPHA)
    prefers_floor = form.aicc < power_law_aicc(ce_law.s, ce_law.y)
    floor_predicts_better = _predicts_better(ce_law)
    largest = {"covers: largest floor is not exceeded": floor <= e.high}
    if not floor:
        return largest | {
            "false: E above 0, though there is none": e.low > 0,
            "false: AICc prefers a floor, though there is none": prefers_floor,
            "share: a floor predicts left-out sizes better, though there is none": floor_predicts_better,
        }
    return largest | {
        "covers: E": e.low <= floor <= e.high,
        "found: E above 0": e.low > 0,
        "found: a bend": ce_law.bend().p() < 0.05,
        "share: AICc prefers a floor": prefers_floor,
        "share: a floor predicts left-out sizes better": floor_predicts_better,
    }


def _predicts_better(ce_law: Law) -> bool:
    """Return whether E + A S^-alpha predicts the largest sizes better than A S^-alpha.

    As in the headline of `forms`, the mean error must be lower by a share of at least MIN_GAIN.
    """
    module = plugin("forms")
    report = module.Report(module.GLOSSARY)
    nothing = np.full(ce_law.sizes, np.nan)
    module.Forms()._add_predictions(report, {"family": "a", "dataset": "b"}, ce_law, nothing)
    errors = report.frame("prediction").dropna(subset=["with_floor"])[["prediction", "with_floor"]].mean()
    return bool(errors["with_floor"] < (1 - module.MIN_GAIN) * errors["prediction"])


def outlier(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Compare Huber's alpha with least squares if one model, at an end or in the middle, is off by 10%."""
    family = _family(cell)
    y = family.curve(ALPHA) * family.scatter(rng, 1)[:, 0]
    y[rng.integers(family.sizes)] *= 1.1
    plain = fit(family.s, y).alpha
    return {
        **covered("covers: α, though one model is 10% off", plain, ALPHA),
        "share: Huber's α is nearer to the truth, if one model is 10% off": abs(huber_alpha(family.s, y) - ALPHA)
        < abs(plain.value - ALPHA),
    }


def smallest(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Simulate effects of the size that reports print as detectable. Tests should find 80% of these effects."""
    bend, delta_alpha = _detectable(tuple(cell.items()))
    bent = replace(_family(cell), bend=bend)
    counts = bent.measure(rng, _documents(rng, cell), alpha_ce=ALPHA, alphas=(ALPHA, ALPHA))
    outcomes = rejected(
        "promised: a bend of the smallest size that is found", law(bent.s, counts, cross_entropy).bend()
    )
    family = _family(cell)
    counts = family.measure(rng, _documents(rng, cell), alpha_ce=ALPHA, alphas=(ALPHA + delta_alpha, ALPHA))
    delta = law(family.s, at(counts, 1), neg_log_rbp_over_ce).alpha
    return outcomes | rejected("promised: Δα of the smallest size that is found", delta)


@cache
def _detectable(cell: tuple[tuple[str, object], ...]) -> tuple[float, float]:
    """Return the detectable bend and the detectable Δα: medians over simulations in which both effects are 0."""
    settings = dict(cell)
    rng = np.random.default_rng(0)
    family = _family(settings)
    smallest = []
    for _ in range(200):
        counts = family.measure(rng, _documents(rng, settings), alpha_ce=ALPHA, alphas=(ALPHA, ALPHA))
        bend = law(family.s, counts, cross_entropy).bend()
        delta = law(family.s, at(counts, 1), neg_log_rbp_over_ce).alpha
        smallest.append((bend.detectable(), delta.detectable()))
    bend, delta_alpha = np.median(smallest, axis=0).tolist()
    return bend, delta_alpha


def power(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Simulate true effects of a relevant size, and test for them as `power_law` and `contrasts` do."""
    family = _family(cell)
    documents = _documents(rng, cell)
    counts = family.measure(rng, documents, alpha_ce=ALPHA, alphas=(ALPHA, ALPHA + APART))
    ce_law = law(family.s, counts, cross_entropy)
    rbp_100_over_rbp_1 = law(family.s, counts, lambda sums: neg_log_rbp(sums)[..., 1:] / neg_log_rbp(sums)[..., :1])
    mispredicted = replace(ce_law, y=ce_law.y * np.append(np.ones(family.sizes - 1), 1.1))
    steeper = Family(family.sizes, family.tau).measure(rng, documents, alpha_ce=1.2 * ALPHA, alphas=(ALPHA, ALPHA))
    steeper_law = law(family.s, steeper, cross_entropy)
    other = Family(family.sizes, 0.0).measure(rng, _documents(rng, cell), alpha_ce=1.2 * ALPHA, alphas=(ALPHA, ALPHA))
    other_law = law(family.s, other, cross_entropy)
    shared = ce_law.y / (CE_OF_SMALLEST * family.curve(ALPHA))
    own = Family(family.sizes, family.tau / 2).scatter(rng, 1)[:, 0]
    with_scatter = replace(other_law, y=other_law.y * shared * own)
    return {
        "found: α = 0.1 of CE": ce_law.alpha.p() < 0.05,
        "found: RBP_100's α is larger than CE's by 30%": law(family.s, at(counts, 100), neg_log_rbp_over_ce).alpha.p()
        < 0.05,
        "found: RBP_100's α is larger than RBP_1's by 30%": rbp_100_over_rbp_1.alpha.p() < 0.05,
        "found: CE at the largest size is off by 10%": mispredicted.held_out().p() < 0.05,
        "found: CE's α of two families differs by 20%": difference_of_exponents(ce_law, steeper_law).p() < 0.05,
        "found: CE's α on two datasets differs by 20%": with_scatter.over(ce_law).alpha.p() < 0.05,
    }


def families(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Simulate two families with the same exponent, measured on the same documents or on different ones."""
    documents = _documents(rng, cell)
    one = Family(cell["m"], cell["tau"])
    other = Family(cell["m"], cell["tau"] * cell["other"], slope=cell["slope"])
    laws = []
    for family, read in ((one, documents), (other, documents), (other, _documents(rng, cell))):
        counts = family.measure(rng, read, alpha_ce=ALPHA, alphas=(ALPHA, ALPHA))
        laws.append((law(family.s, counts, cross_entropy), law(family.s, at(counts, 1), neg_log_rbp)))
    (ce_law, rbp_1_law), (other_ce_law, other_rbp_1_law), (ce_law_elsewhere, _) = laws
    claim = "false: two families differ in {}, same documents"
    return {
        **rejected(claim.format("CE's α"), difference_of_exponents(ce_law, other_ce_law)),
        **rejected(claim.format("RBP_1's α"), difference_of_exponents(rbp_1_law, other_rbp_1_law)),
        **rejected("false: two families differ in CE's α, other documents", ce_law.alpha - ce_law_elsewhere.alpha),
    }


def datasets(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Simulate one family on several datasets. A part of the scatter of its models is the same on all datasets."""
    family = Family(cell["m"], 0.0)
    shared = Family(cell["m"], cell["tau"]).scatter(rng, 1)[:, 0]
    exponents = ALPHA + cell["sd"] * rng.standard_normal(cell["number"] + 1)
    laws = []
    for alpha in exponents[:-1]:
        counts = family.measure(rng, _documents(rng, cell), alpha_ce=float(alpha), alphas=(ALPHA, ALPHA))
        own = Family(cell["m"], cell["tau"] / 2).scatter(rng, 1)[:, 0]
        exact = law(family.s, counts, cross_entropy)
        laws.append(replace(exact, y=exact.y * shared * own))
    outcomes: dict[str, float] = {}
    if not cell["sd"]:
        outcomes |= rejected("false: α differs between two datasets", laws[0].over(laws[1]).alpha)
    mean = mean_over_datasets(laws)
    return outcomes | _mean_outcomes(mean, "datasets", float(exponents[-1]), differ=bool(cell["sd"]))


def _mean_outcomes(mean: Mean | None, over: str, further: float, *, differ: bool) -> dict[str, float]:
    """Check the mean and the prediction interval of exponents around ALPHA, and the test whether they differ.

    The prediction interval should contain the exponent `further`.
    """
    if mean is None:
        return {}
    outcomes: dict[str, float] = {}
    outcomes |= covered(f"covers: mean α over {over}", mean.mean, ALPHA)
    kind = "found: α differs between {}, sd 0.02" if differ else "false: α differs between several {}"
    return outcomes | {
        f"covers: prediction interval of α over {over}": mean.low <= further <= mean.high,
        kind.format(over): mean.homogeneity < 0.05,
    }


def means(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Simulate several families on one dataset. Check the mean of their exponents, and errors from pooled scatter."""
    documents = _documents(rng, cell)
    exponents = ALPHA + cell["sd"] * rng.standard_normal(cell["number"] + 1)
    laws = []
    for i, alpha in enumerate(exponents[:-1]):
        tau = cell["tau"] * (cell["other"] if i == 0 else 1.0)
        family = Family(cell["m"], tau, slope=1.0 - 2 * (i % 2))
        counts = family.measure(rng, documents, alpha_ce=float(alpha), alphas=(ALPHA, ALPHA))
        laws.append(law(family.s, counts, cross_entropy))
    outcomes = _mean_outcomes(mean_over_families(laws), "families", float(exponents[-1]), differ=bool(cell["sd"]))
    what = "scatter of families pooled" if cell["other"] == 1 else "pooled, though one family scatters 4 times as much"
    variance, df = pooled_scatter(laws)
    return outcomes | covered(f"covers: CE's α, {what}", laws[0].alpha_with_scatter(variance, df), float(exponents[0]))


def seeds(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Simulate several seeds of each size, which are summed into one point and may share a part of their scatter."""
    family = Family(cell["m"], 0.0)
    documents = _documents(rng, cell)
    size_scatter = Family(cell["m"], cell["tau"] * cell["common"] ** 0.5).scatter(rng, 2)
    counts = []
    for i, x in enumerate(np.log(family.s / family.s[0])):
        place = round(2 * i / (cell["m"] - 1) - 1, 6)
        counts_of_seeds = []
        for _ in range(cell["seeds"]):
            y = (
                np.exp(-ALPHA * x)
                * size_scatter[i]
                * Family(1, cell["tau"] * (1 - cell["common"]) ** 0.5).scatter(rng, 2)[0]
            )
            neg_log_rbp_1 = np.array([1.1 * y[1]])
            ce = CE_OF_SMALLEST * y[0]
            counts_of_seeds.append(documents.measure(rng, ce=ce, neg_log_rbp=neg_log_rbp_1, ks=(1,), place=place))
        counts.append(reduce(operator.add, counts_of_seeds))
    said = "of which half of the scatter is common to a size" if cell["common"] else "whose scatter is independent"
    return {
        **covered(f"covers: CE's α from seeds, {said}", law(family.s, counts, cross_entropy).alpha, ALPHA),
        **covered(f"covers: RBP_1's α from seeds, {said}", law(family.s, counts, neg_log_rbp).alpha, ALPHA),
    }


def sources(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Simulate documents in groups. Documents of one group share three quarters of the variance of difficulty.

    The results call the groups sources.
    """
    family = _family(cell)
    documents = _documents(rng, cell)
    counts = family.measure(rng, documents, alpha_ce=ALPHA, alphas=(ALPHA, ALPHA))
    grouped = [size_counts.in_groups(documents.group.tolist()) for size_counts in counts]
    largest = CE_OF_SMALLEST * float(family.curve(ALPHA)[-1])
    outcomes: dict[str, float] = {}
    for name, units in (("sources given", grouped), ("sources not given", counts)):
        delta_alpha = law(family.s, at(units, 1), neg_log_rbp_over_ce).alpha
        outcomes |= covered(f"covers: CE's α, {name}", law(family.s, units, cross_entropy).alpha, ALPHA)
        outcomes |= covered(f"covers: RBP_1's α, {name}", law(family.s, at(units, 1), neg_log_rbp).alpha, ALPHA)
        if not family.tau:  # CE of the largest model is known only if it lies on the law
            outcomes |= covered(f"covers: CE, {name}", estimate(units[-1], cross_entropy), largest)
        outcomes |= rejected(f"false: Δα differs, though equal, {name}", delta_alpha)
    return outcomes


EXPERIMENTS = {
    "exponents": Experiment(
        [
            *grid(m=(3, 4, 5, 7, 10), D=(20, 100), tails=TAILS, lengths=("even", "uneven"), tau=(0.0, 0.02)),
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
        grid(m=(3, 4, 7, 10), D=(20, 100), tau=(0.0, 0.01), times=(3.0, 10.0, 100.0), floor=(0.0, 0.3)), forecasts
    ),
    "forms": Experiment(
        grid(m=(6, 8, 12), D=(50, 200), tau=(0.002, 0.01), floor=(0.0, 0.3)), forms, draws=40
    ),
    "outlier": Experiment(grid(m=(5, 7, 10), tau=(0.005, 0.01)), outlier, draws=50),
    "smallest": Experiment(grid(m=(5, 7, 10), D=(50, 200), tau=(0.0, 0.01)), smallest),
    "power": Experiment(grid(m=(5, 7, 10), D=(50, 200), tau=(0.01,)), power),
    "families": Experiment(
        grid(m=(4, 7), D=(20, 100), tails=TAILS, tau=(0.0, 0.01), other=(1.0, 4.0), slope=(1.0, -1.0)), families
    ),
    "datasets": Experiment(
        grid(m=(4, 7), D=(50, 200), tau=(0.01,), number=(3, 6), sd=(0.0, 0.02)), datasets
    ),
    "means": Experiment(
        grid(m=(4, 7), D=(50, 200), tau=(0.01,), number=(3, 6), sd=(0.0, 0.02), other=(1.0, 4.0)), means
    ),
    "seeds": Experiment(
        grid(m=(4, 7), D=(50, 200), tau=(0.01,), seeds=(2, 3), common=(0.0, 0.5)), seeds
    ),
    "sources": Experiment(
        grid(m=(4, 10), D=(200,), tails=TAILS, tau=(0.0, 0.02), sources=(25, 50)), sources
    ),
}  # fmt: skip
