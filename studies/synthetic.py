"""Synthetic measurements of studies, benchmarks and tests: ranks that follow a law, and folders of finished cells."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.special import ndtr

from rbptrack.base.files import write_whole
from rbptrack.base.parquet import write_table
from rbptrack.config.paths import cells_folder
from rbptrack.config.schema import Config
from rbptrack.measurement.build import from_ranks
from rbptrack.measurement.describe import config_yaml, describe
from rbptrack.measurement.document import fingerprint
from rbptrack.measurement.files import (
    CONFIG_FILE,
    DOCUMENTS_FILE,
    HISTOGRAM_FILE,
    RANKS_FILE,
    TOKENS_FILE,
    UNSCORED_FILE,
)
from rbptrack.measurement.record import MeasurementRecord
from rbptrack.ranks import FloatArray, IntArray, RankSums, RankTable


def draw_ranks(
    shared: np.random.Generator,
    separate: np.random.Generator,
    k: FloatArray,
    neg_log_rbp: FloatArray,
    *,
    documents: int,
    length: int,
    tau: float,
) -> tuple[IntArray, FloatArray, float]:
    """Draw the ranks of one model from a law.

    The rank of a token depends on its difficulty. Most of the difficulty is the same for all models: a part belongs to
    the document and a part to the token.

    Args:
        shared: the random numbers that all models of a dataset have in common.
        separate: the random numbers of this model.
        k: the k at which the law is given, ascending from 1 to |V|, (ks,). RBP_k is interpolated between them.
        neg_log_rbp: -ln RBP_k of the law, (ks,).
        documents: the number of documents.
        length: the number of tokens of each document.
        tau: the standard deviation of ln(-ln RBP_k) of a model around its law.

    Returns:
        The ranks, (tokens,), the part of the difficulty that belongs to the document of each token, (tokens,), and the
        factor by which the model's -ln RBP_k differs from the law.

    """
    tokens = documents * length
    document_difficulty = np.repeat(shared.standard_normal(documents), length)
    difficulty = np.sqrt(0.1) * document_difficulty + np.sqrt(0.7) * shared.standard_normal(tokens)
    uniform = ndtr(difficulty + np.sqrt(0.2) * separate.standard_normal(tokens))
    scatter = float(np.exp(tau * separate.standard_normal()))
    # RBP_k is the distribution function of ranks: its inverse turns a uniform number into a rank.
    rank = np.ceil(np.exp(np.interp(uniform, np.exp(-neg_log_rbp * scatter), np.log(k), left=0.0))).astype(np.int64)
    return np.clip(rank, 1, int(k[-1])), document_difficulty, scatter


def describe_cell(config: Config) -> dict[str, Any]:
    """Return the description of a synthetic cell. Its weights are identified by the labels of the model."""
    model = config.model
    commit = f"org/{model.family}@{model.size}-{model.seed}"
    description = describe(config, commit=commit, tokenizer_rules="rules", texts=config.dataset.name)
    return description | {"architecture": "gpt_neox"}


def write_cell(
    ranks: RankTable,
    config: Config,
    values: Mapping[str, object],
    *,
    documents: int,
    groups: int = 0,
    folder: Path | None = None,
) -> Path:
    """Write the folder of a finished cell, and return its path.

    Args:
        ranks: the rank table. All documents have the same number of tokens.
        config: the configuration of the cell.
        values: further fields of the measurement, by name. `commit` identifies the weights.
        documents: the number of documents.
        groups: the number of groups to which the documents belong in turn; 0 means that groups are unknown.
        folder: the folder. None means the one in mlruns/cells that is named by the fingerprint.

    """
    description = describe_cell(config) | {"documents": documents} | dict(values)
    folder = folder or cells_folder() / fingerprint(description)
    folder.mkdir(parents=True, exist_ok=True)
    length = len(ranks) // documents
    table = pd.DataFrame({"document": range(documents), "id": [f"doc {i}" for i in range(documents)]})
    table = table.assign(tokens=length, bytes=4 * length)
    if groups:
        table["group"] = [f"site {i % groups}" for i in range(documents)]
    measurement = from_ranks(
        description,
        RankSums.of([ranks], config.k.values, ranks.vocab_size),
        groups=table["group"].tolist() if groups else (),
        bits_per_byte=ranks.ce / (4 * np.log(2)),
        seconds=2.0,
        tokens_per_second=len(ranks) / 2,
        peak_memory_bytes=10**9,
        batch_tokens=2048,
        chunk_tokens=512,
    )
    unscored_position = 0 if ranks.column("position").min() else length
    unscored = pd.DataFrame({"document": range(documents), "position": unscored_position, "token": 1})
    ranks.write(folder / RANKS_FILE)
    ranks.histogram().write(folder / HISTOGRAM_FILE)
    write_table(folder / DOCUMENTS_FILE, pa.Table.from_pandas(table, preserve_index=False))
    write_table(folder / UNSCORED_FILE, pa.Table.from_pandas(unscored, preserve_index=False))
    write_whole(folder / TOKENS_FILE, json.dumps({"0": " the", "1": "<s>"}))
    write_whole(folder / CONFIG_FILE, config_yaml(config))
    MeasurementRecord(measurement=measurement, began=time.time() - 2).write(folder)
    return folder
