"""A finished measurement as a folder: its artifacts, and record.json, which names them and holds every number.

A folder without record.json is unfinished. With it the folder is complete on the disk, and may go to a store.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from rbptrack.analysis.rank_store import COUNTED
from rbptrack.base.files import sha256, sync, write_whole
from rbptrack.base.parquet import write_table
from rbptrack.facts import BY_NAME, Place
from rbptrack.ranks import DocumentCounts, RankHistogram, RankTable, log_grid, rbp_name, se_name
from rbptrack.ranks.measurement import Measurement
from rbptrack.stats.documents import ce_and_rbp, covariance, influences
from rbptrack.tracking.facts import Facts
from rbptrack.tracking.names import (
    CONFIG_FILE,
    DOCUMENTS_FILE,
    HISTOGRAM_FILE,
    RECORD_FILE,
    SEAL_FILE,
    STORE_FILE,
    TOKENS_FILE,
    UNSCORED_FILE,
    Metric,
    Tag,
)

_NO_ARTIFACTS = (RECORD_FILE, SEAL_FILE, STORE_FILE)
MAX_TEXT_LENGTH = 5000
"""Characters of a tag or param; MLflow cuts longer ones, which then differ from the seal."""

_DIGEST = 8  # characters of the texts' hash that MLflow shows beside a dataset; all of it is a tag


@dataclass
class Record:
    """Everything that a measurement says.

    Attributes:
        name: the run's name, `pythia-70m / wiki`.
        tags: its identity: fingerprint, family, model, dataset, commits.
        params: what tells runs apart.
        metrics: its numbers, all of them finite.
        curves: metric -> pairs of step and value; of `rbp_curve` the step is k.
        dataset: name, digest, source and profile of MLflow's dataset input.
        identity: what the fingerprint is the hash of; empty where that is not known, as of imported numbers.
        files: artifact -> SHA-256.
        began: seconds since 1970.
        ended: seconds since 1970.

    """

    name: str
    tags: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    dataset: dict[str, str] = field(default_factory=dict)
    identity: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    began: float = field(default_factory=time.time)
    ended: float = 0.0

    @property
    def fingerprint(self) -> str:
        """What determines the measurement's numbers, as a hash."""
        return self.tags[Tag.FINGERPRINT]

    def fact(self, name: str) -> str:
        """A fact that a tag or param states; empty if it is not known."""
        if BY_NAME[name].place is Place.TAG:
            return self.tags.get(Tag.PREFIX + name, "")
        return self.params.get(name, "")

    def write(self, folder: Path) -> None:
        """Hash and sync the folder's artifacts, and write record.json last, after its seal."""
        self.ended = self.ended or time.time()
        artifacts = [path for path in sorted(folder.iterdir()) if _is_artifact(path)]
        self.files = {path.name: sha256(path) for path in artifacts}
        for path in artifacts:
            sync(path)
        text = json.dumps(asdict(self), indent=1, sort_keys=True, allow_nan=False).encode()
        write_whole(folder / SEAL_FILE, seal_of(text))
        write_whole(folder / RECORD_FILE, text)

    @classmethod
    def parse(cls, text: bytes) -> Record:
        """Read record.json; raises ValueError, TypeError or KeyError if it is not a record."""
        data = json.loads(text)
        try:
            data["curves"] = {
                name: [(int(step), float(value)) for step, value in curve] for name, curve in data["curves"].items()
            }
        except OverflowError as error:
            raise ValueError("a number of a curve has too many digits") from error
        return cls(**data)

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Read the record of a folder."""
        return cls.parse((folder / RECORD_FILE).read_bytes())


def seal_of(text: bytes) -> str:
    """The seal of a record: the SHA-256 of record.json."""
    return hashlib.sha256(text).hexdigest()


def lay_out(
    folder: Path,
    measurement: Measurement,
    facts: Facts,
    *,
    documents: pd.DataFrame,
    unscored: pd.DataFrame,
    token_texts: Mapping[int, str],
    began: float,
    notes: Sequence[str] = (),
) -> Record:
    """Complete the folder of a measurement, which holds its ranks.parquet, and write its record.

    Args:
        folder: of the cell.
        measurement: its numbers.
        facts: what it is of.
        documents: document (its number in the rank table), id, tokens, bytes, and group where groups are known.
        unscored: document, position and token of the tokens that the model read and that have no rank.
        token_texts: the text of every token that occurs or that the model ranks first, by id.
        began: when the measurement began, in seconds since 1970.
        notes: beside the measurement's own, what a reader must know.

    """
    record = _record_of(measurement, facts, documents, (*measurement.notes, *notes), began)
    measurement.histogram.write(folder / HISTOGRAM_FILE)
    write_table(folder / DOCUMENTS_FILE, pa.Table.from_pandas(documents, preserve_index=False))
    write_table(folder / UNSCORED_FILE, pa.Table.from_pandas(unscored, preserve_index=False))
    write_whole(folder / TOKENS_FILE, json.dumps({str(token): text for token, text in token_texts.items()}))
    write_whole(folder / CONFIG_FILE, facts.yaml())
    record.write(folder)
    return record


def _record_of(
    measurement: Measurement, facts: Facts, documents: pd.DataFrame, notes: Sequence[str], began: float
) -> Record:
    """The record of a measurement, still without its files."""
    counts = measurement.counts
    values = facts.values
    tags = facts.tags()
    if "group" in documents.columns:
        groups = documents["group"].astype(str).tolist()
        counts = counts.in_groups([groups[number] for number in counts.document.tolist()])
        tags[Tag.GROUPS] = str(len(set(groups)))
    different_notes = dict.fromkeys(" ".join(note.split()) for note in notes)
    if different_notes:
        tags[Tag.NOTES] = "; ".join(different_notes)[:MAX_TEXT_LENGTH]
    metrics = numbers(measurement.histogram, counts) | size_metrics(int(str(values["non_embedding_params"])))
    return Record(
        facts.title,
        tags,
        {name: value[:MAX_TEXT_LENGTH] for name, value in facts.params().items()},
        metrics | _metrics_of_run(measurement),
        curves={Metric.RBP_CURVE: rbp_curve(measurement.histogram)},
        dataset={
            "name": facts.config.dataset.name,
            "digest": str(values.get("documents_hash", ""))[:_DIGEST] or "unknown",
            "source": json.dumps({"source": values.get("dataset_commit", ""), "split": facts.config.dataset.split}),
            "profile": json.dumps({"documents": len(documents), "scored_tokens": measurement.num_tokens}),
        },
        identity=json.loads(json.dumps(dict(facts.identity), default=str)),  # as whoever reads the file has it
        began=began,
    )


def histogram_of(ranks: Path) -> RankHistogram:
    """The histogram of a rank table, read in pieces."""
    return reduce(operator.add, (piece.histogram() for piece in RankTable.read_pieces(ranks, COUNTED)))


def numbers(histogram: RankHistogram, counts: DocumentCounts) -> dict[str, float]:
    """CE and rbp_<k> for the k of the counts, with standard errors over documents (or groups) where they suffice."""
    names = [Metric.CE, *map(rbp_name, counts.ks)]
    values = [histogram.ce, *(histogram.rbp(k) for k in counts.ks)]
    variances = covariance(influences(counts, ce_and_rbp)[1]).diagonal()
    metrics = dict(zip(names, values, strict=True))
    metrics |= {se_name(name): float(np.sqrt(variance)) for name, variance in zip(names, variances, strict=True)}
    return _finite(metrics | {Metric.NUM_TOKENS: histogram.num_tokens})


def size_metrics(non_embedding_params: int) -> dict[str, float]:
    """S and its logarithm."""
    return {
        Metric.NON_EMBEDDING_PARAMS: float(non_embedding_params),
        Metric.LOG10_NON_EMBEDDING_PARAMS: math.log10(max(1, non_embedding_params)),
    }


def rbp_curve(histogram: RankHistogram) -> list[tuple[int, float]]:
    """RBP_k over a log grid of k up to |V|."""
    grid = log_grid(histogram.vocab_size)
    return list(zip(grid.tolist(), histogram.rbp_curve(grid).tolist(), strict=True))


def _metrics_of_run(measurement: Measurement) -> dict[str, float]:
    """What is known beside CE and RBP_k: the parts of CE, ties, a reference's comparison, time and memory."""
    metrics: dict[str, float] = {
        Metric.BITS_PER_BYTE: measurement.bits_per_byte if measurement.num_bytes else math.nan,
        Metric.TIE_RATE: measurement.tie_rate,
        Metric.SECONDS: measurement.seconds,
        Metric.PEAK_MEMORY_BYTES: measurement.peak_memory_bytes,
        Metric.BATCH_TOKENS: measurement.batch_tokens,
        Metric.CHUNK_TOKENS: measurement.chunk_tokens,
    }
    if measurement.split:
        metrics[Metric.CE_RANK], metrics[Metric.CE_REST] = measurement.split
    if measurement.compared:
        metrics |= asdict(measurement.compared)
    if measurement.fresh_tokens and measurement.seconds:
        metrics[Metric.TOKENS_PER_SECOND] = measurement.fresh_tokens / measurement.seconds
    return _finite(metrics)


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def _is_artifact(path: Path) -> bool:
    return path.is_file() and path.name not in _NO_ARTIFACTS and not path.name.startswith(".")
