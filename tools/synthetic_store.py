"""Make a tracking store of synthetic measurements with known laws, as large as a real study, without any model.

    python tools/synthetic_store.py FOLDER [--tokens 500000] [--documents 1000] [--datasets 6] [--models 24]

writes FOLDER/mlruns; `cd FOLDER && python -m rbptrack report` then analyses it. By default 24 models (the sizes of
Pythia, GPT-2, OPT and Qwen2.5) x 6 datasets of 500,000 tokens. -ln RBP_k = A_k S^-alpha_k with alpha_k = 0.06 + 0.012
ln k (+ 0.003 per family), a scatter of 1 % between models, documents that differ in difficulty, and tokens that all
models find hard or easy.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import special

from rbptrack.config.schema import TrackingConfig
from rbptrack.ranks import RankTable, log_grid, rbp_name
from rbptrack.tracking import Connection, MeasurementTags, Writer
from rbptrack.tracking.record import HISTOGRAM, RANKS
from rbptrack.tracking.schema import MeasurementParams, Metric

FAMILIES = {
    "pythia": {
        "14m": 1.2e6, "31m": 4.7e6, "70m": 18.9e6, "160m": 85.1e6, "410m": 302e6, "1b": 806e6, "1.4b": 1.2e9,
        "2.8b": 2.5e9, "6.9b": 6.4e9, "12b": 11.3e9,
    },
    "gpt2": {"small": 85.1e6, "medium": 302e6, "large": 708e6, "xl": 1.48e9},
    "opt": {"125m": 85.1e6, "350m": 302e6, "1.3b": 1.2e9, "2.7b": 2.5e9, "6.7b": 6.4e9},
    "qwen2.5": {"0.5b": 358e6, "1.5b": 1.3e9, "3b": 2.8e9, "7b": 6.5e9, "14b": 13.1e9},
}  # fmt: skip
DATASETS = ("wiki", "humaneval", "hotpotqa", "auslegal", "c4", "pile_github")
VOCABULARY = 50_304
KS = (1, 3, 10, 30, 100, 300, 1000, 3000)


def neg_log_rbp(k: np.ndarray, s: float, *, family: int, dataset: int) -> np.ndarray:
    """The law: -ln RBP_k at size s; falls with k as k^-0.4 and a cut-off at |V|."""
    alpha = 0.06 + 0.012 * np.log(k) + 0.003 * family
    level = (1.1 + 0.15 * dataset) * k**-0.4 * (1 - (k / VOCABULARY) ** 0.5)
    return level * (s / 1e8) ** -alpha


def ranks(hardness: np.ndarray, s: float, scatter: float, *, family: int, dataset: int) -> np.ndarray:
    """Ranks at quantiles `hardness` (uniform) of the law's distribution, (tokens,)."""
    grid = log_grid(VOCABULARY, per_decade=24)
    share = np.exp(-neg_log_rbp(grid, s, family=family, dataset=dataset) * scatter)
    share = np.maximum.accumulate(share)
    found = np.interp(hardness, share, np.log(grid), left=0.0)
    below = np.searchsorted(share, hardness)  # ranks on the grid where it is dense, spread between its points elsewhere
    return np.where(below < 12, grid[np.minimum(below, len(grid) - 1)], np.ceil(np.exp(found))).astype(np.int64)


def table(
    shared: np.ndarray, own: np.random.Generator, document: np.ndarray, position: np.ndarray, **law: object
) -> RankTable:
    """One measurement: what all models share of each token's difficulty, and the model's own part."""
    tokens = len(shared)
    hardness = special.ndtr(np.sqrt(0.8) * shared + np.sqrt(0.2) * own.normal(size=tokens))
    rank = np.clip(ranks(hardness, **law), 1, VOCABULARY)  # type: ignore[arg-type]
    logprob = -(0.25 * (law["s"] / 1e8) ** -0.05 + 1.1 * np.log(rank) + 0.3 * own.exponential(size=tokens))  # type: ignore[operator]
    per_document = tokens // (int(document[-1]) + 1)
    return RankTable.from_arrays(
        vocab_size=VOCABULARY,
        document=document,
        position=position,
        field=(position > 0.7 * per_document),
        token=np.minimum(np.random.default_rng(1).zipf(1.3, size=tokens), VOCABULARY) - 1,
        greater=rank - 1,
        ties=np.zeros(tokens),
        logprob=logprob,
    )


def log(
    writer: Writer, about: MeasurementTags, ranks_: RankTable, *, size: float, seq_len: int, documents: int
) -> None:
    """The measurement as a finished run."""
    histogram = ranks_.histogram()
    run_id = writer.begin(about.title, about.tags())
    params = replace(
        MeasurementParams.unknown(),
        revision="main",
        dtype="float32",
        tf32=False,
        non_embedding_params=int(size),
        total_params=int(size + 2 * VOCABULARY * 512),
        vocab_size=VOCABULARY,
        sequence="truncate",
        seq_len=seq_len,
        context=1,
        texts_hash=f"synthetic-{about.dataset}",
        num_documents=documents,
        candidates="vocabulary",
        rank="paper",
    )
    metrics = {Metric.CE: histogram.ce, Metric.NUM_TOKENS: histogram.num_tokens, Metric.TIE_RATE: 0.0}
    metrics |= {rbp_name(k): histogram.rbp(k) for k in KS}
    writer.log(run_id, params=params.params(), metrics=metrics)
    with tempfile.TemporaryDirectory() as name:
        ranks_.write(Path(name, RANKS))
        histogram.write(Path(name, HISTOGRAM))
        writer.log_folder(run_id, Path(name))
    writer.end(run_id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=500_000, help="per measurement")
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--datasets", type=int, default=len(DATASETS))
    parser.add_argument("--models", type=int, default=24, help="of the families in turn")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(options.folder)
    writer, began = Writer(Connection(TrackingConfig())), time.monotonic()
    models = [(f, family, label, s) for f, (family, sizes) in enumerate(FAMILIES.items()) for label, s in sizes.items()]
    each = options.tokens // options.documents
    document, position = (
        np.repeat(np.arange(options.documents), each),
        np.tile(np.arange(1, each + 1), options.documents),
    )
    for d, dataset in enumerate(DATASETS[: options.datasets]):
        rng = np.random.default_rng(d)
        run = np.convolve(rng.normal(size=len(document) + 4), np.full(5, 5**-0.5), mode="valid")  # hard stretches
        difficulty = rng.normal(0, 1, options.documents)[document]
        shared = np.sqrt(0.1) * difficulty + np.sqrt(0.3) * run + np.sqrt(0.6) * rng.normal(size=len(document))
        for f, family, label, s in models[: options.models]:
            own = np.random.default_rng([d, f, int(s)])
            scatter = float(np.exp(np.random.default_rng([f, int(s)]).normal(0, 0.01)))
            made = table(shared, own, document, position, s=s, scatter=scatter, family=f, dataset=d)
            about = MeasurementTags(
                f"{family}-{label}-{dataset}", family, label, f"{family}-{label}", dataset, "synthetic"
            )
            log(writer, about, made, size=s, seq_len=each + 1, documents=options.documents)
        print(f"{dataset}: {options.models} models, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
