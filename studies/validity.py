"""Do the intervals and tests hold? Draws from a known truth, analysed by the library's own functions.

    OMP_NUM_THREADS=1 python -m studies.validity                   # all, an hour of one core: studies/validity.csv
    python -m studies.validity laws emergence --draws 200          # some experiments, whose rows are replaced
    python -m studies.validity --table                             # docs/explanation/validity.md from the CSV

Each row of the CSV is a claim in a cell (one combination of settings, with a seed of its own): the share of draws in
which an interval covered the truth, or in which a test raised a false alarm.
"""

from __future__ import annotations

import argparse
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from rbptrack.analysis.plugin import import_file
from rbptrack.ranks import CE, DocumentCounts, FloatArray, IntArray, RankTable, log_grid
from rbptrack.stats.changes import Changes, PairCounts, judge
from rbptrack.stats.documents import Statistic, cross_entropy, estimate, missed, missed_over_ce, rbp
from rbptrack.stats.estimate import Estimate
from rbptrack.stats.laws import Law, law_in_k
from rbptrack.stats.laws import laws as laws_of
from studies.simulation import TOKENS, Documents, Family, Texts, difficulty_of

ROOT = Path(__file__).parent.parent
CSV = ROOT / "studies/validity.csv"
PAGE = ROOT / "docs/explanation/validity.md"
BEGIN = "<!-- made by studies/validity.py -->"
END = "<!-- end -->"

ALPHA = 0.1
APART = 0.03
MARGIN = 0.1  # of `same`: a share of CE's exponent, as in power_law

Settings = dict[str, Any]
Outcomes = Mapping[str, bool]


@dataclass(frozen=True)
class Experiment:
    """A simulation.

    Attributes:
        cells: the settings to go through.
        draw: one draw: which claims hold in it.
        draws: how many for each cell.

    """

    cells: Sequence[Settings]
    draw: Callable[[np.random.Generator, Settings], Outcomes]
    draws: int = 1000


def grid(**values: Sequence[Any]) -> list[Settings]:
    """Every combination of settings."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def covers(number: Estimate, truth: float) -> bool:
    """Whether its 95% interval holds the truth."""
    return abs(number.value - truth) <= number.half()


@cache
def plugin(name: str) -> Any:
    """The module of a built-in analyzer."""
    return import_file(ROOT / f"plugins/{name}.py")


def law(s: FloatArray, counts: Sequence[DocumentCounts], statistic: Statistic) -> Law:
    """The law of a statistic that is positive here at every size."""
    [fitted] = laws_of(s, counts, statistic)
    assert fitted is not None
    return fitted


def laws(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Laws in size: RBP_1 has CE's exponent, RBP_100 one that is larger by APART."""
    family = Family(cell["m"], cell["tau"], cell["ends"])
    documents = Documents.draw(rng, Texts(cell["D"], cell["tails"], cell["lengths"]))
    counts = family.measure(rng, documents, alpha_ce=ALPHA, alphas=(ALPHA, ALPHA + APART))
    of_ce = law(family.s, counts, cross_entropy)
    of_1, of_100 = (law(family.s, [of_size.select([k]) for of_size in counts], missed) for k in (1, 100))
    same = law(family.s, [of_size.select([1]) for of_size in counts], missed_over_ce)
    apart = law(family.s, [of_size.select([100]) for of_size in counts], missed_over_ce)
    outcomes = {
        "interval of CE's α": covers(of_ce.alpha, ALPHA),
        "interval of RBP_1's α": covers(of_1.alpha, ALPHA),
        "interval of RBP_100's α": covers(of_100.alpha, ALPHA + APART),
        "false: Δα differs, though equal": not covers(same.alpha, 0.0),
        "interval of Δα = 0.03": covers(apart.alpha, APART),
    }
    if cell["m"] >= 4:
        outcomes["false: largest size is off the law"] = not covers(of_ce.held_out(), 0.0)
    if cell["m"] >= 5:
        outcomes["false: a bend"] = not covers(of_ce.bend(), 0.0)
    return outcomes


def edge(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """RBP_1's exponent is off by exactly the margin of `same`."""
    family = Family(cell["m"], cell["tau"])
    documents = Documents.draw(rng, Texts(cell["D"], cell["tails"], "uneven"))
    off = MARGIN * ALPHA
    counts = family.measure(rng, documents, alpha_ce=ALPHA, alphas=(ALPHA + off, ALPHA))
    ratio = law(family.s, [of_size.select([1]) for of_size in counts], missed_over_ce)
    within = abs(ratio.alpha.value) + ratio.alpha.half() <= off
    return {"false: Δα counts as the same at the margin": within}


def families(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Two families with one exponent, measured on the same documents."""
    documents = Documents.draw(rng, Texts(cell["D"], cell["tails"], "uneven"))
    exponents = []
    for tau in (cell["tau"], cell["tau"] * cell["other"]):
        family = Family(cell["m"], tau)
        counts = family.measure(rng, documents, alpha_ce=ALPHA, alphas=(ALPHA, ALPHA))
        exponents.append(law(family.s, counts, cross_entropy).alpha)
    return {"false: exponents of two families differ": not covers(exponents[0] - exponents[1], 0.0)}


def sources(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Documents of sources that share three quarters of their difficulty's variance."""
    family = Family(cell["m"], cell["tau"])
    documents = Documents.draw(rng, Texts(cell["D"], cell["tails"], "uneven", cell["sources"]))
    counts = family.measure(rng, documents, alpha_ce=ALPHA, alphas=(ALPHA, ALPHA))
    grouped = [of_size.in_groups(documents.source.tolist()) for of_size in counts]
    outcomes = {}
    for name, units in (("sources given", grouped), ("sources not given", counts)):
        outcomes[f"interval of CE's α, {name}"] = covers(law(family.s, units, cross_entropy).alpha, ALPHA)
        outcomes[f"interval of CE, {name}"] = covers(estimate(units[-1], cross_entropy), _largest_ce(family))
    return outcomes


def _largest_ce(family: Family) -> float:
    return 3.5 * float((family.s[-1] / family.s[0]) ** -ALPHA)


def numbers(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Numbers of one measurement: CE, RBP_1, and the exponent in k."""
    documents = Documents.draw(rng, Texts(cell["D"], cell["tails"], cell["lengths"]))
    ks = log_grid(100).tolist()
    beta = 0.5
    counts = documents.measure(rng, ce=3.0, missed=1.1 * np.array(ks) ** -beta, ks=ks)
    outcomes = {
        "interval of CE": covers(estimate(counts, cross_entropy), 3.0),
        "interval of RBP_1": covers(estimate(counts.select([1]), rbp), np.exp(-1.1)),
    }
    law = law_in_k(counts)
    if law is not None:
        outcomes["interval of β in k"] = covers(law[0], beta)
    return outcomes


VOCABULARY = 2048
_KINDS = 400  # of documents, whose mu differ


@cache
def _rank_population(tails: str) -> tuple[FloatArray, FloatArray, float]:
    """The cumulative rank distribution of every kind of document, (kinds, V), and the truth: (beta, gamma), and by how
    many nats a token the lognormal describes the population better than Zipf's law.
    """
    difficulty = difficulty_of(ndtri((np.arange(_KINDS) + 0.5) / _KINDS), tails)
    shifts = difficulty - difficulty.mean()
    ln_k = np.log(np.arange(1, VOCABULARY + 1))
    pmf = np.exp(-((ln_k - 1.0 - shifts[:, None]) ** 2) / (2 * 2.0**2)) / np.arange(1, VOCABULARY + 1)
    pmf /= pmf.sum(axis=1, keepdims=True)
    means = np.array([(pmf @ ln_k).mean(), (pmf @ ln_k**2).mean()])
    fit = plugin("lognormal").maximum_likelihood
    theta, _, of_lognormal = fit(means, VOCABULARY)
    gain = pmf.mean(axis=0) @ (of_lognormal - fit(means[:1], VOCABULARY)[2])
    return np.cumsum(pmf, axis=1), theta, float(gain)


def lognormal(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Beta and gamma of the rank distribution where documents differ in mu; the truth is the population's fit."""
    module = plugin("lognormal")
    cumulative, theta, gain = _rank_population(cell["tails"])
    length = Documents.draw(rng, Texts(cell["D"], cell["tails"], cell["lengths"])).length
    parts = []
    for tokens in length:
        kind = cumulative[rng.integers(_KINDS)]
        parts.append(1 + np.searchsorted(kind, rng.random(tokens)))
    rank = np.minimum(np.concatenate(parts), VOCABULARY)
    ln = np.log(rank)
    document = np.repeat(np.arange(cell["D"]), length)
    sums = np.column_stack([np.bincount(document, weights=ln**power) for power in (0, 1, 2)])
    fitted = module.fit_ranks(module.RankSums(sums, _table(rank).histogram()))
    outcomes = {
        "interval of β of the ranks": covers(
            estimate(sums, lambda totals: fitted.quantities(totals)[..., 0]), theta[0]
        ),
        "interval of γ of the ranks": covers(
            estimate(sums, lambda totals: fitted.quantities(totals)[..., 1]), theta[1]
        ),
    }
    if fitted.gain.known:  # from 200 documents on, and not at Zipf's limit
        outcomes["interval of the lognormal's gain over Zipf's law"] = covers(fitted.gain, gain)
    return outcomes


def _table(rank: IntArray, length: int = 0) -> RankTable:
    """A rank table in memory: documents of one length, or one document."""
    length = length or len(rank)
    nothing = np.zeros(len(rank))
    return RankTable.from_arrays(
        vocab_size=VOCABULARY,
        document=np.repeat(np.arange(len(rank) // length), length),
        position=np.tile(np.arange(length), len(rank) // length),
        field=nothing,
        token=nothing,
        greater=rank - 1,
        ties=nothing,
        logprob=nothing - 1,
    )


def emergence(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Tokens that are hit independently of one another: N_eff is N."""
    module = plugin("emergence")
    rank: IntArray = np.where(rng.random(cell["D"] * TOKENS) < cell["RBP"], 1, 2)
    windows = module.count_windows(_table(rank, TOKENS), [1], [cell["N"]])[:, 0, 0]
    runs = windows[:, 4]
    if runs.sum() < 10 or np.count_nonzero(runs) < 5:  # as the analyzer's defaults
        return {}
    return {"false: tokens are not independent": not covers(estimate(windows, module.ln_n_eff), np.log(cell["N"]))}


def mixture(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Tokens that are independent within documents, which differ: nothing exceeds the mixture over documents."""
    module = plugin("emergence")
    y = -np.log(cell["RBP"]) * np.exp(cell["sd"] * rng.standard_normal(cell["D"]))
    rank: IntArray = np.where(rng.random(cell["D"] * TOKENS) < np.repeat(np.exp(-y), TOKENS), 1, 2)
    windows = module.count_windows(_table(rank, TOKENS), [1], [cell["N"]])[:, 0, 0]
    runs = windows[:, 4]
    if runs.sum() < 10 or np.count_nonzero(runs) < 5:  # as the analyzer's defaults
        return {}
    return {
        "false: tokens cluster within documents": not covers(estimate(windows, module.ln_against_mixture), 0.0),
    }


def answers(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Whole answers whose tokens are hit independently of one another: as many succeed as RBP^length says."""
    module = plugin("emergence")
    length = np.asarray(rng.integers(2, 8, size=cell["D"]))
    hits = rng.binomial(length, cell["RBP"])
    lengths = np.unique(length)
    sums = np.column_stack([hits == length, hits, length[:, None] == lengths]).astype(np.float64)
    if (hits == length).sum() < 10:
        return {}
    ratio = estimate(sums, partial(module.ln_against_expected, lengths.astype(np.float64)))
    return {"false: whole answers differ from independent tokens": not covers(ratio, 0.0)}


def changes(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """Two measurements of the same tokens, of which neither is better: documents change sides at random."""
    documents = Documents.draw(rng, Texts(cell["D"], cell["tails"], cell["lengths"]))
    a = documents.measure(rng, ce=3.0, missed=np.array([1.1, 0.25]), ks=(1, 100))
    b = documents.measure(rng, ce=3.0, missed=np.array([1.1, 0.25]), ks=(1, 100))
    pair = _paired(a, b)
    ce = pair.change(CE)
    worse_by = 0.05
    slower = _paired(a, DocumentCounts(b.ks, b.document, b.tokens, b.nats + worse_by * b.tokens, b.hits))
    return {
        "false: top tokens flip to one side (McNemar)": pair.flips.p() < 0.05,
        "interval of a change of CE": covers(ce.difference, 0.0),
        "interval of a change of RBP_1": covers(pair.change("rbp_1").difference, 0.0),
        "false: compare says worse, at the tolerance": judge([slower.change(CE)], worse_by, cell["D"]) == "worse",
        "false: compare says within, at the tolerance": judge([slower.change(CE)], worse_by, cell["D"]) == "within",
    }


def rare(rng: np.random.Generator, cell: Settings) -> Outcomes:
    """A measurement that damages few documents, so that the mean damage is a multiple of the tolerance."""
    tolerance = 0.01
    documents = Documents.draw(rng, Texts(cell["D"], "skewed", cell["lengths"]))
    a = documents.measure(rng, ce=3.0, missed=np.array([1.1]), ks=(1,))
    damaged = rng.random(cell["D"]) < cell["damaged"]
    noise = 0.01 * rng.standard_normal(cell["D"])
    damage = cell["times"] * tolerance / cell["damaged"] * damaged + noise
    worse = DocumentCounts(a.ks, a.document, a.tokens, a.nats + damage * a.tokens, a.hits)
    answer = judge([_paired(a, worse).change(CE)], tolerance, cell["D"])
    return {"false: compare says within, though 3% of the documents are damaged": answer == "within"}


def _paired(a: DocumentCounts, b: DocumentCounts) -> Changes:
    """As `stats.changes.compare` counts; of a document's hits of both, those in excess were gained or lost."""
    gained = np.maximum(b.hits[:, 0] - a.hits[:, 0], 0.0)
    lost = np.maximum(a.hits[:, 0] - b.hits[:, 0], 0.0)
    pairs = PairCounts(moved=gained + lost, same_top=a.tokens - gained - lost, lost=lost, gained=gained)
    return Changes(a, b, pairs, [])


TAILS = ("t3", "skewed")
LENGTHS = ("even", "uneven")

EXPERIMENTS = {
    "laws": Experiment(
        [
            *grid(m=(3, 4, 5, 7, 10), D=(20, 100), tails=TAILS, lengths=LENGTHS, tau=(0.0, 0.02), ends=(1.0,)),
            *grid(m=(7, 10), D=(20, 100), tails=("skewed",), lengths=("wild",), tau=(0.0, 0.02), ends=(1.0,)),
            *grid(m=(4, 7, 10), D=(100,), tails=TAILS, lengths=("uneven",), tau=(0.02,), ends=(3.6,)),
        ],
        laws,
    ),
    "edge": Experiment(grid(m=(4, 7, 10), D=(20, 100), tails=TAILS, tau=(0.0, 0.005)), edge),
    "families": Experiment(grid(m=(4, 7), D=(20, 100), tails=TAILS, tau=(0.01,), other=(0.0, 1.0, 4.0)), families),
    "sources": Experiment(
        grid(m=(4, 10), D=(200,), tails=TAILS, tau=(0.0, 0.02), sources=(25, 50)), sources
    ),
    "numbers": Experiment(grid(D=(20, 50, 200), tails=TAILS, lengths=LENGTHS), numbers, draws=4000),
    "lognormal": Experiment(grid(D=(20, 50, 200), tails=TAILS, lengths=LENGTHS), lognormal),
    "emergence": Experiment(grid(D=(20, 50, 200), RBP=(0.4, 0.8), N=(2, 4, 8, 16)), emergence, draws=500),
    "mixture": Experiment(grid(D=(20, 50, 200), RBP=(0.4, 0.8), N=(2, 4, 8), sd=(0.3, 0.6)), mixture, draws=500),
    "answers": Experiment(grid(D=(50, 200, 1000), RBP=(0.8, 0.95)), answers),
    "changes": Experiment(grid(D=(20, 50, 200), tails=TAILS, lengths=LENGTHS), changes, draws=2000),
    "rare": Experiment(
        grid(D=(20, 50, 100, 200), lengths=LENGTHS, damaged=(0.03,), times=(1.0, 2.0)), rare, draws=2000
    ),
}  # fmt: skip


def run(name: str, draws: int = 0) -> Iterator[dict[str, Any]]:
    """Rows of the CSV: every claim in every cell of an experiment."""
    experiment = EXPERIMENTS[name]
    for cell in experiment.cells:
        where = " ".join(f"{key}={value:g}" if not isinstance(value, str) else value for key, value in cell.items())
        rng = np.random.default_rng(zlib.crc32(f"{name} {where}".encode()))
        held: dict[str, list[bool]] = {}
        for _ in range(draws or experiment.draws):
            for claim, outcome in experiment.draw(rng, cell).items():
                held.setdefault(claim, []).append(outcome)
        for claim, outcomes in held.items():
            nominal = 5 if claim.startswith("false") else 95
            yield {
                "experiment": name,
                "claim": claim,
                "nominal": nominal,
                "where": where,
                "draws": len(outcomes),
                "percent": round(100 * float(np.mean(outcomes)), 2),
            }


def table(rows: pd.DataFrame) -> str:
    """The page's table: for each claim the median and the worst of its cells.

    A draw says nothing where the analyzer would refuse: cells of fewer than half of the draws are left out.
    """
    lines = [
        "| claim | nominal | median | worst | where | cells | draws a cell |",
        "|---|---:|---:|---:|---|---:|---:|",
    ]
    for _, of_claim in rows.groupby(["experiment", "claim", rows["where"].str.contains("ends=3.6")], sort=False):
        of_claim = of_claim[of_claim["draws"] >= of_claim["draws"].max() / 2]
        first = of_claim.iloc[0]
        is_test = first["nominal"] < 50
        worst = of_claim.sort_values("percent", ascending=not is_test).iloc[0]
        claim = first["claim"].removeprefix("false: ")
        if "ends=3.6" in first["where"]:
            claim += "; end sizes scatter 3.6 times as much"
        what = "false alarm: " if is_test else "covers: "
        where = re.sub(r" ends=\S+", "", worst["where"])
        median = of_claim["percent"].median()
        failed = worst["percent"] > first["nominal"] + 3 if is_test else worst["percent"] < first["nominal"] - 3
        shown = f"**{worst['percent']:.1f}**" if failed else f"{worst['percent']:.1f}"
        fewest = of_claim["draws"].min()
        most = of_claim["draws"].max()
        draws = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
        lines.append(
            f"| {what}{claim} | {first['nominal']} | {median:.1f} | {shown} | {where} | {len(of_claim)} | {draws} |"
        )
    return "\n".join(lines)


def write_page() -> None:
    """Put the table into the documentation."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not rest or not after:
        raise SystemExit(f"{PAGE} has no lines {BEGIN} and {END}")
    made = f"{BEGIN}\n\n{table(pd.read_csv(CSV))}\n\n{END}"
    PAGE.write_text(before + made + after, encoding="utf-8")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", help=f"{', '.join(EXPERIMENTS)}; all by default")
    parser.add_argument("--draws", type=int, default=0, help="for each cell, in place of each experiment's own number")
    parser.add_argument("--table", action="store_true", help="write the documentation's table and run nothing")
    options = parser.parse_args()
    if options.table:
        write_page()
        return
    unknown = sorted(set(options.experiments) - set(EXPERIMENTS))
    if unknown:
        parser.error(f"no experiment {', '.join(unknown)}: there are {', '.join(EXPERIMENTS)}")
    for name in options.experiments or EXPERIMENTS:
        began = time.monotonic()
        rows = pd.DataFrame(run(name, options.draws))
        others = pd.read_csv(CSV) if CSV.exists() else rows.iloc[:0]
        rows = pd.concat([others[others["experiment"] != name], rows])
        order = {known: number for number, known in enumerate(EXPERIMENTS)}
        rows.sort_values("experiment", key=lambda names: names.map(order), kind="stable").to_csv(CSV, index=False)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
