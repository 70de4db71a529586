"""Print every sentence that the analyzers write about ten sets of simulated measurements with a known truth.

    python -m studies.stores                  # all sets
    python -m studies.stores no-law imports   # some sets; --tables adds the tables

Read the sentences, and check that each one is clear, and true of its set. The line TRUTH says how the set was
simulated.
"""

from __future__ import annotations

import argparse
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.discovery import ANALYZERS, find_plugins
from rbptrack.ranks import FloatArray, RankTable, log_grid, rbp_name, se_name
from rbptrack.reporting import print_report, render, run_analyzers
from studies.synthetic import draw_ranks

VOCABULARY = 4096
DOCUMENTS = 150
TOKENS = 200


@dataclass(frozen=True)
class Law:
    """The true law of one family, y / y(1e8) = (1 - floor) (S / 1e8)^-alpha + floor. y is CE or -ln RBP_k.

    Attributes:
        alpha: the exponent of CE and of RBP_1.
        rise: the amount by which the exponent of RBP_k rises if k grows by a factor of e.
        floor: the share of y at S = 1e8 that does not fall with size.
        tau: the standard deviation of ln y of a model around its law.

    """

    alpha: float = 0.1
    rise: float = 0.0
    floor: float = 0.0
    tau: float = 0.01

    def relative_y(self, s: float, k: FloatArray) -> FloatArray:
        """Return y of RBP_k at size S, divided by y at S = 1e8."""
        alpha = self.alpha + self.rise * np.log(k)
        return np.asarray(self.floor + (1 - self.floor) * (s / 1e8) ** -alpha)


@cache
def _law_ks() -> FloatArray:
    """Return the k at which a law is evaluated, in ascending order. RBP_k is interpolated between them."""
    return np.asarray(log_grid(VOCABULARY, per_decade=24), dtype=np.float64)


def simulate_ranks(
    law: Law, s: float, *, dataset: str = "texts", documents: int = DOCUMENTS, model_seed: int = 0
) -> RankTable:
    """Simulate the ranks of one model on a dataset by `draw_ranks`.

    At S = 1e8, -ln RBP_k is 1.1 k^-0.4 (1 - (k / |V|)^0.5) and CE is about 3.5
    nats, apart from the scatter of the model.

    Args:
        law: the law of the model's family.
        s: the size S.
        dataset: the name of the dataset. Models share the difficulty of the tokens of a dataset.
        documents: the number of documents.
        model_seed: the seed of the model's own random numbers. Other random numbers are shared by all models.

    """
    shared = np.random.default_rng(sum(map(ord, dataset)))
    rng = np.random.default_rng([model_seed, int(s), int(1e6 * law.alpha)])
    tokens = documents * TOKENS
    k = _law_ks()
    neg_log_rbp = 1.1 * k**-0.4 * (1 - (k / VOCABULARY) ** 0.5) * law.relative_y(s, k)
    rank, document_difficulty, scatter = draw_ranks(
        shared, rng, k, neg_log_rbp, documents=documents, length=TOKENS, tau=law.tau
    )
    ce = 3.5 * float(law.relative_y(s, np.ones(1))[0]) * scatter
    # CE = E[ln R] + E[-ln pR]. The second part is drawn so that CE is as the law says.
    rest = np.maximum(ce - np.log(rank).mean(), 0.05) * np.exp(0.3 * document_difficulty - 0.3**2 / 2)
    logprob = -np.log(rank) - rest * rng.exponential(size=tokens)
    zeros = np.zeros(tokens)
    return RankTable.from_arrays(
        vocab_size=VOCABULARY,
        document=np.repeat(np.arange(documents), TOKENS),
        position=np.tile(np.arange(1, TOKENS + 1), documents),
        field=zeros,
        token=shared.zipf(1.3, tokens) % VOCABULARY,
        greater=rank - 1,
        ties=zeros,
        logprob=logprob,
        entropy=rng.exponential(size=tokens),
        top=np.where(rank == 1, shared.integers(VOCABULARY, size=tokens), 1),
        top_logprob=np.maximum(logprob, -0.5),
    )


class Measurements:
    """A list of simulated measurements in memory."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._tables: dict[str, RankTable] = {}

    def add(
        self, law: Law, s: float, *, family: str = "alpha", model_seed: int = 0, ranks: bool = True, **facts: Any
    ) -> None:
        """Simulate one measurement, and add it to the list.

        Args:
            law: the law of the family.
            s: the size S.
            family: the name of the family.
            model_seed: the seed of the model's own random numbers. Other random numbers are shared by all models.
            ranks: whether the measurement has ranks. Without ranks it looks like imported results.
            facts: values of columns of `Runs.frame` that replace the default values.

        """
        dataset = facts.get("dataset", "texts")
        documents = facts.get("documents", DOCUMENTS)
        table = simulate_ranks(law, s, dataset=dataset, documents=documents, model_seed=model_seed)
        size = f"{s / 1e6:.0f}m"
        run_id = f"{len(self._rows):032x}"
        row: dict[str, Any] = {
            "run_id": run_id,
            "fingerprint": run_id,
            "family": family,
            "size": size,
            "model": f"{family}-{size}",
            "dataset": dataset,
            "sweep": "study",
            "dtype": "float32",
            "sequence": "slide",
            "seq_len": TOKENS + 1,
            "context": 1,
            "candidates": "vocabulary",
            "rank": "paper",
            "documents_hash": dataset,
            "vocab_size": VOCABULARY,
            "non_embedding_params": int(s),
            "total_params": int(s + 2 * VOCABULARY * 512),
            "num_tokens": len(table),
            "documents": documents,
            "ce": table.ce,
            "ce_se": 0.01,
        }
        for k in (1, 10, 100):
            row[rbp_name(k)] = table.rbp(k)
            row[se_name(rbp_name(k))] = 0.005
        if ranks:
            self._tables[run_id] = table
        else:
            row |= {"without_ranks": True, "imported": "results", "imported_from": "results.csv"}
            for name in ("sequence", "seq_len", "context", "documents_hash", "num_tokens", "documents", "ce_se"):
                del row[name]
            for k in (1, 10, 100):
                del row[se_name(rbp_name(k))]
        self._rows.append(row | facts)

    def runs(self) -> Runs:
        """Return all measurements, as if a store had been read."""
        return Runs(pd.DataFrame(self._rows), RankTables(self._tables))


def one_family(law: Law, sizes: int = 6, **facts: Any) -> Runs:
    """Simulate one family with sizes from 1M to 1B parameters.

    Args:
        law: the law of the family.
        sizes: the number of sizes.
        facts: further arguments of `Measurements.add`, the same for all sizes.

    """
    measurements = Measurements()
    for s in np.geomspace(1e6, 1e9, sizes):
        measurements.add(law, float(s), **facts)
    return measurements.runs()


def two_families(alpha_law: Law, beta_law: Law) -> Runs:
    """Simulate two families, alpha and beta, with six sizes each, on the same texts."""
    measurements = Measurements()
    for family, law in (("alpha", alpha_law), ("beta", beta_law)):
        for s in np.geomspace(1e6, 1e9, 6):
            measurements.add(law, float(s), family=family, model_seed=ord(family[0]))
    return measurements.runs()


def seeds() -> Runs:
    """Simulate three seeds of each of four sizes."""
    measurements = Measurements()
    for s in np.geomspace(1e6, 1e9, 4):
        for seed in range(3):
            measurements.add(Law(), float(s), model_seed=seed, seed=seed, model=f"alpha-{s / 1e6:.0f}m-seed{seed}")
    return measurements.runs()


def checkpoints() -> Runs:
    """Simulate five checkpoints of each of four sizes.

    A checkpoint is as good as a fully trained model of a smaller, effective size, so y falls with the number of
    training tokens, too.
    """
    measurements = Measurements()
    for s in np.geomspace(1e6, 1e9, 4):
        for step, tokens in ((1000, 2e9), (4000, 8e9), (16000, 3.2e10), (64000, 1.28e11), (128000, 2.56e11)):
            effective_size = float(s) / (1 + 4e9 / tokens)
            size = f"{s / 1e6:.0f}m"
            measurements.add(
                Law(),
                effective_size,
                model_seed=1,
                non_embedding_params=int(s),
                size=size,
                training_tokens=tokens,
                checkpoint=f"step{step}",
                model=f"alpha-{size}@step{step}",
            )
    return measurements.runs()


# For each set: the text of its line TRUTH, and the function that simulates the set.
STORES: dict[str, tuple[str, Callable[[], Runs]]] = {
    "true-law": ("CE and every RBP_k follow S^-0.1; models scatter by 1%", lambda: one_family(Law())),
    "no-law": ("nothing depends on size; models scatter by 2%", lambda: one_family(Law(alpha=0.0, tau=0.02))),
    "inverse": (
        "CE and RBP_1 follow S^-0.1; RBP_k has the exponent 0.1 - 0.03 ln k, so RBP_100 gets worse with size",
        lambda: one_family(Law(rise=-0.03)),
    ),
    "two-equal": ("both families follow S^-0.1", lambda: two_families(Law(), Law())),
    "two-different": (
        "alpha follows S^-0.08, beta S^-0.14",
        lambda: two_families(Law(alpha=0.08, tau=0.005), Law(alpha=0.14, tau=0.005)),
    ),
    "bent": (
        "y is proportional to 0.6 + 0.4 (S/1e8)^-0.3, so the law flattens",
        lambda: one_family(Law(alpha=0.3, floor=0.6, tau=0.002), sizes=8),
    ),
    "five-documents": ("as true-law, with 5 documents", lambda: one_family(Law(), documents=5)),
    "imports": ("as true-law, but only metrics were imported", lambda: one_family(Law(), ranks=False)),
    "seeds": ("as true-law, with three seeds of each of four sizes", seeds),
    "checkpoints": ("a law in size at each number of training tokens D; models also get better with D", checkpoints),
}


def sentences_of_page(page: str) -> Iterator[str]:
    """Yield the texts of at least five words in an HTML page. Scripts, styles, tables and SVG pictures are left out."""
    page = re.sub(r"(?s)<(script|style|table|svg).*?</\1>", " ", page)
    for text in re.split(r"(?s)<[^>]*>", page):
        words = html.unescape(text).split()
        if len(words) >= 5:
            yield " ".join(words)


def main() -> None:
    """Simulate the chosen sets, and print what the analyzers and the report's page say about each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*", help=f"all by default: {', '.join(STORES)}")
    parser.add_argument("--tables", action="store_true", help="also print the tables of results")
    options = parser.parse_args()
    analyzers = [analyzer() for analyzer in find_plugins(ANALYZERS).load_matching(["*"])]
    for name in options.stores or STORES:
        truth, simulate = STORES[name]
        print(f"\n######## {name}\nTRUTH: {truth}")
        runs = simulate()
        analyses = run_analyzers(runs, analyzers, processes=1)
        printed = set()
        for analysis in analyses:
            print(f"\n---- {analysis.name}: {analysis.sentence}")
            if options.tables:
                print_report(analysis)
            elif analysis.report is not None:
                print(*analysis.report.notes, sep="\n")
            if analysis.report is not None:
                printed |= {analysis.report.headline, *analysis.report.notes}
        print("\n---- other sentences of the page")
        for sentence in dict.fromkeys(sentences_of_page(render(runs, analyses))):
            if sentence not in printed:
                print(sentence)


if __name__ == "__main__":
    main()
