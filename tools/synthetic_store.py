"""Make a tracking store of synthetic measurements with known laws, as large as a real study, without any model.

    python tools/synthetic_store.py FOLDER [--tokens 500000] [--documents 1000] [--datasets 6] [--models 24]

writes FOLDER/mlruns; `cd FOLDER && python -m rbptrack report` then analyses it. By default 24 models (the sizes of
Pythia, GPT-2, OPT and Qwen2.5) x 6 datasets of 500,000 tokens. -ln RBP_k = A_k S^-alpha_k with alpha_k = 0.06 + 0.012
ln k (+ 0.003 per family), a scatter of 1% between models, documents that differ in difficulty, and tokens that all
models find hard or easy.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import special

from rbptrack.base import parquet
from rbptrack.config.schema import TrackingConfig
from rbptrack.ranks import RankHistogram, RankTable, log_grid, rbp_name
from rbptrack.tracking.params import MeasurementParams
from rbptrack.tracking.record import HISTOGRAM, RANKS, Record, curves, size_metrics
from rbptrack.tracking.schema import MeasurementTags, Metric
from rbptrack.tracking.store import Store

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
_BLOCK = 500_000  # tokens of a row group
KS = (1, 3, 10, 30, 100, 300, 1000, 3000)


def neg_log_rbp(k: np.ndarray, s: float, *, family: int, dataset: int) -> np.ndarray:
    """Return the law: -ln RBP_k at size s; falls with k as k^-0.4 and a cut-off at |V|."""
    alpha = 0.06 + 0.012 * np.log(k) + 0.003 * family
    level = (1.1 + 0.15 * dataset) * k**-0.4 * (1 - (k / VOCABULARY) ** 0.5)
    return level * (s / 1e8) ** -alpha


def ranks(hardness: np.ndarray, s: float, scatter: float, *, family: int, dataset: int) -> np.ndarray:
    """Ranks at quantiles `hardness` (uniform) of the law's distribution, (tokens,)."""
    grid = log_grid(VOCABULARY, per_decade=24)
    share = np.exp(-neg_log_rbp(grid, s, family=family, dataset=dataset) * scatter)
    share = np.maximum.accumulate(share)
    interpolated = np.interp(hardness, share, np.log(grid), left=0.0)
    below = np.searchsorted(share, hardness)  # ranks on the grid where it is dense, spread between its points elsewhere
    return np.where(below < 12, grid[np.minimum(below, len(grid) - 1)], np.ceil(np.exp(interpolated))).astype(np.int64)


def table(
    shared: np.ndarray,
    own: np.random.Generator,
    document: np.ndarray,
    position: np.ndarray,
    each: int,
    **law: object,
) -> RankTable:
    """Return one measurement: what all models share of each token's difficulty, and the model's own part."""
    tokens = len(shared)
    hardness = special.ndtr(np.sqrt(0.8) * shared + np.sqrt(0.2) * own.normal(size=tokens))
    rank = np.clip(ranks(hardness, **law), 1, VOCABULARY)  # type: ignore[arg-type]
    logprob = -(0.25 * (law["s"] / 1e8) ** -0.05 + 1.1 * np.log(rank) + 0.3 * own.exponential(size=tokens))  # type: ignore[operator]
    return RankTable.from_arrays(
        vocab_size=VOCABULARY,
        document=document,
        position=position,
        field=(position > 0.7 * each),
        token=np.minimum(np.random.default_rng([1, int(document[0])]).zipf(1.3, size=tokens), VOCABULARY) - 1,
        greater=rank - 1,
        ties=np.zeros(tokens),
        logprob=logprob,
    )


def difficulties(dataset: int, block: int, documents: int, each: int) -> np.ndarray:
    """Return what every model finds of the tokens of some documents, (tokens,): of the document, of stretches, of each token."""
    rng = np.random.default_rng([dataset, block])
    stretches = np.convolve(rng.normal(size=documents * each + 4), np.full(5, 5**-0.5), mode="valid")
    own = np.repeat(rng.normal(0, 1, documents), each)
    return np.sqrt(0.1) * own + np.sqrt(0.3) * stretches + np.sqrt(0.6) * rng.normal(size=documents * each)


def write(path: Path, *, documents: int, each: int, s: float, family: int, dataset: int) -> RankHistogram:
    """Return one model's table of a dataset, a row group of some documents at a time, and its histogram."""
    scatter = float(np.exp(np.random.default_rng([family, int(s)]).normal(0, 0.01)))
    block = max(1, _BLOCK // each)
    histogram: RankHistogram | None = None
    with ExitStack() as stack:
        file: parquet.TableWriter | None = None
        for first in range(0, documents, block):
            count = min(block, documents - first)
            document = np.repeat(np.arange(first, first + count), each)
            position = np.tile(np.arange(1, each + 1), count)
            shared = difficulties(dataset, first, count, each)
            own = np.random.default_rng([dataset, family, int(s), first])
            made = table(shared, own, document, position, each, s=s, scatter=scatter, family=family, dataset=dataset)
            file = file or stack.enter_context(parquet.TableWriter(path, made.described().schema))
            file.add(made.described())
            histogram = made.histogram() if histogram is None else histogram + made.histogram()
    assert histogram is not None
    return histogram


def measured(
    about: MeasurementTags, folder: Path, *, documents: int, each: int, s: float, family: int, dataset: int
) -> Record:
    """Write the measurement's files into a folder; returns its record."""
    histogram = write(folder / RANKS, documents=documents, each=each, s=s, family=family, dataset=dataset)
    histogram.write(folder / HISTOGRAM)
    params = replace(
        MeasurementParams.unknown(),
        revision="main",
        dtype="float32",
        tf32=False,
        non_embedding_params=int(s),
        total_params=int(s + 2 * VOCABULARY * 512),
        vocab_size=VOCABULARY,
        sequence="truncate",
        seq_len=each + 1,
        context=1,
        texts_hash=f"synthetic-{about.dataset}",
        num_documents=documents,
        candidates="vocabulary",
        rank="paper",
    )
    metrics = {Metric.CE: histogram.ce, Metric.NUM_TOKENS: histogram.num_tokens, Metric.TIE_RATE: 0.0}
    metrics |= {rbp_name(k): histogram.rbp(k) for k in KS} | size_metrics(int(s))
    return Record(about.title, about.tags(), params.params(), metrics, curves(histogram), ended=time.time())


def main() -> None:
    """Write the store that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=500_000, help="per measurement")
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--datasets", type=int, default=len(DATASETS))
    parser.add_argument("--models", type=int, default=24, help="of the families in turn")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(options.folder)
    writer, began = Store(TrackingConfig()).writer, time.monotonic()
    models = [(f, family, label, s) for f, (family, sizes) in enumerate(FAMILIES.items()) for label, s in sizes.items()]
    each = options.tokens // options.documents
    for d, dataset in enumerate(DATASETS[: options.datasets]):
        for f, family, label, s in models[: options.models]:
            about = MeasurementTags(
                f"{family}-{label}-{dataset}", family, label, f"{family}-{label}", dataset, "synthetic"
            )
            with tempfile.TemporaryDirectory() as name:
                record = measured(about, Path(name), documents=options.documents, each=each, s=s, family=f, dataset=d)
                writer.deliver(record, Path(name))
        print(f"{dataset}: {options.models} models, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
