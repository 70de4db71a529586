"""Synthetic measurements of studies, benchmarks and tests: ranks that follow a law, and folders of finished cells."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import ndtr

from rbptrack.config.schema import Config
from rbptrack.ranks import FloatArray, IntArray, RankTable
from rbptrack.ranks.measurement import RANKS_FILE, Measurement
from rbptrack.tracking import Facts, write_record


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


def write_cell(
    folder: Path,
    ranks: RankTable,
    config: Config,
    identity: Mapping[str, object],
    values: Mapping[str, object],
    *,
    documents: int,
    groups: int = 0,
) -> None:
    """Write the folder of a finished cell.

    Args:
        folder: the folder, which exists.
        ranks: the rank table. All documents have the same number of tokens.
        config: the configuration of the cell.
        identity: the identity of the measurement.
        values: facts about the measurement, by name.
        documents: the number of documents.
        groups: the number of groups to which the documents belong in turn; 0 means that groups are unknown.

    """
    ranks.write(folder / RANKS_FILE)
    measurement = Measurement(
        folder,
        ranks.histogram(),
        ranks.document_counts(config.k.values),
        num_bytes=4 * len(ranks),
        tied_tokens=0,
        seconds=2.0,
        fresh_tokens=len(ranks),
        peak_memory_bytes=10**9,
        batch_tokens=2048,
        chunk_tokens=512,
    )
    length = len(ranks) // documents
    document_table = pd.DataFrame({"document": range(documents), "id": [f"doc {i}" for i in range(documents)]})
    document_table = document_table.assign(tokens=length, bytes=4 * length)
    if groups:
        document_table["group"] = [f"site {i % groups}" for i in range(documents)]
    unscored_position = 0 if ranks.column("position").min() else length
    write_record(
        folder,
        measurement,
        Facts.collect(config, identity, values),
        documents=document_table,
        unscored=pd.DataFrame({"document": range(documents), "position": unscored_position, "token": 1}),
        token_texts={0: " the", 1: "<s>"},
        began=time.time() - 2,
    )
