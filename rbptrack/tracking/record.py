"""Write and read the folder of a finished measurement: its artifacts, and record.json with all its numbers.

record.json is written last. A folder with record.json is therefore complete on disk, and can be delivered to a store. A
folder without it is unfinished.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from rbptrack.analysis.rank_store import COUNTED_COLUMNS
from rbptrack.base.errors import MissingArtifact
from rbptrack.base.files import sha256, sync, write_whole
from rbptrack.base.parquet import write_table
from rbptrack.facts import FACT_BY_NAME, Place
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

_NOT_ARTIFACTS = (RECORD_FILE, STORE_FILE)  # names that begin with a dot, such as SEAL_FILE, are no artifacts either
MAX_TEXT_LENGTH = 5000
"""The largest number of characters in a tag or param. Longer texts are cut.

MLflow itself cuts params at 6,000 and tags at 8,000 characters. `verify` would report such a cut as a difference.
"""

_DIGEST_LENGTH = 8  # characters of the texts' hash in MLflow's dataset; the param documents_hash holds the whole hash


@dataclass
class Record:
    """The content of a run: its tags, params, metrics and the hashes of its files.

    Attributes:
        name: the name of the run, such as `pythia-70m / wiki`.
        tags: the tags of the run, such as fingerprint, family, model, dataset and commits.
        params: the params of the run.
        metrics: the metrics of the run; all are finite.
        curves: metrics with several values: pairs of step and value, by name. The step of `rbp_curve` is k.
        dataset: name, digest, source and profile of MLflow's dataset; empty if the run has no dataset.
        identity: everything that determines the numbers. The fingerprint is its hash. It is empty if the run is not a
            measurement.
        files: the SHA-256 of each artifact, by name.
        began: when the measurement began, in seconds since 1970.
        ended: when the measurement ended, in seconds since 1970.

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
        """The hash of everything that determines the numbers."""
        return self.tags[Tag.FINGERPRINT]

    def fact(self, name: str) -> str:
        """Return the text of a fact from the tags or params. It is empty if the fact is unknown."""
        if FACT_BY_NAME[name].place is Place.TAG:
            return self.tags.get(Tag.PREFIX + name, "")
        return self.params.get(name, "")

    def write(self, folder: Path) -> None:
        """Write the record to record.json in a folder, with the hashes of all files that are in the folder.

        These files and the seal are on the disk before record.json is written.
        """
        self.ended = self.ended or time.time()
        artifacts = []
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.name not in _NOT_ARTIFACTS and not path.name.startswith("."):
                artifacts.append(path)
        self.files = {path.name: sha256(path) for path in artifacts}
        for path in artifacts:
            sync(path)
        content = json.dumps(asdict(self), indent=1, sort_keys=True, allow_nan=False).encode()
        write_whole(folder / SEAL_FILE, record_seal(content))
        write_whole(folder / RECORD_FILE, content)

    @classmethod
    def parse(cls, content: bytes) -> Record:
        """Parse the content of record.json.

        Raises MissingArtifact if the content is not JSON, has other keys than a record, or has a curve that is not a
        list of pairs.
        """
        try:
            data = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise MissingArtifact(f"{RECORD_FILE} is damaged: it is not JSON") from error
        keys = {attribute.name for attribute in fields(cls)}
        if not isinstance(data, dict) or data.keys() != keys:
            raise MissingArtifact(f"{RECORD_FILE} is damaged: it must have the keys {', '.join(sorted(keys))}")
        try:
            data["curves"] = {
                name: [(int(step), float(value)) for step, value in curve] for name, curve in data["curves"].items()
            }
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise MissingArtifact(f"{RECORD_FILE} is damaged: a curve must be a list of pairs of numbers") from error
        return cls(**data)

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Read record.json in a folder. Raises MissingArtifact if it is damaged, and OSError if it cannot be read."""
        return cls.parse((folder / RECORD_FILE).read_bytes())


def record_seal(content: bytes) -> str:
    """Return the seal of a record: the SHA-256 (hex) of the content of record.json."""
    return hashlib.sha256(content).hexdigest()


def write_record(
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
    """Write the files of a measurement and its record into a folder that already holds ranks.parquet.

    The tables `documents` and `unscored` come from `Corpus.document_table` and `Corpus.unscored_table`. `token_texts`
    has the text of every token that occurs or that the model ranks first, by token ID. `began` is in seconds since
    1970. `notes` are remarks that readers of the numbers must know, in addition to those of the measurement.
    """
    record = _make_record(measurement, facts, documents, (*measurement.notes, *notes), began)
    measurement.histogram.write(folder / HISTOGRAM_FILE)
    write_table(folder / DOCUMENTS_FILE, pa.Table.from_pandas(documents, preserve_index=False))
    write_table(folder / UNSCORED_FILE, pa.Table.from_pandas(unscored, preserve_index=False))
    write_whole(folder / TOKENS_FILE, json.dumps({str(token): text for token, text in token_texts.items()}))
    write_whole(folder / CONFIG_FILE, facts.yaml())
    record.write(folder)
    return record


def _make_record(
    measurement: Measurement, facts: Facts, documents: pd.DataFrame, notes: Sequence[str], began: float
) -> Record:
    """Make the record of a measurement, without the hashes of its files."""
    counts = measurement.counts
    values = facts.values
    tags = facts.tags()
    if "group" in documents.columns:
        groups = documents["group"].astype(str).tolist()
        counts = counts.in_groups([groups[number] for number in counts.document.tolist()])
        tags[Tag.GROUPS] = str(len(set(groups)))
    distinct_notes = dict.fromkeys(" ".join(note.split()) for note in notes)
    if distinct_notes:
        tags[Tag.NOTES] = "; ".join(distinct_notes)[:MAX_TEXT_LENGTH]
    metrics = ce_and_rbp_metrics(measurement.histogram, counts)
    metrics |= size_metrics(int(str(values["non_embedding_params"])))
    metrics |= _other_metrics(measurement)
    return Record(
        facts.title,
        tags,
        {name: value[:MAX_TEXT_LENGTH] for name, value in facts.params().items()},
        metrics,
        curves={Metric.RBP_CURVE: rbp_curve(measurement.histogram)},
        dataset={
            "name": facts.config.dataset.name,
            "digest": str(values.get("documents_hash", ""))[:_DIGEST_LENGTH] or "unknown",
            "source": json.dumps({"source": values.get("dataset_commit", ""), "split": facts.config.dataset.split}),
            "profile": json.dumps({"documents": len(documents), "scored_tokens": measurement.num_tokens}),
        },
        identity=json.loads(json.dumps(dict(facts.identity), default=str)),  # with the types that JSON can keep
        began=began,
    )


def compute_histogram(ranks: Path) -> RankHistogram:
    """Compute how often each rank occurs in the rank table in a file. The table is read in pieces to save memory."""
    return reduce(operator.add, (piece.histogram() for piece in RankTable.read_pieces(ranks, COUNTED_COLUMNS)))


def ce_and_rbp_metrics(histogram: RankHistogram, counts: DocumentCounts) -> dict[str, float]:
    """Return CE (nats), rbp_<k>, their standard errors and the number of scored tokens as metrics.

    `counts` holds sums over documents, or over groups, from which the standard errors are computed. Its `ks` are the k
    of rbp_<k>. With too few documents, standard errors are left out.
    """
    names = [Metric.CE, *map(rbp_name, counts.ks)]
    values = [histogram.ce, *(histogram.rbp(k) for k in counts.ks)]
    variances = covariance(influences(counts, ce_and_rbp)[1]).diagonal()
    metrics = dict(zip(names, values, strict=True))
    metrics |= {se_name(name): float(np.sqrt(variance)) for name, variance in zip(names, variances, strict=True)}
    return _finite(metrics | {Metric.NUM_TOKENS: histogram.num_tokens})


def size_metrics(non_embedding_params: int) -> dict[str, float]:
    """Return S, the number of parameters without embeddings and output head, and its decimal logarithm as metrics."""
    return {
        Metric.NON_EMBEDDING_PARAMS: float(non_embedding_params),
        Metric.LOG10_NON_EMBEDDING_PARAMS: math.log10(max(1, non_embedding_params)),
    }


def rbp_curve(histogram: RankHistogram) -> list[tuple[int, float]]:
    """Return pairs of k and RBP_k on a logarithmic grid of k up to the size of the vocabulary."""
    grid = log_grid(histogram.vocab_size)
    return list(zip(grid.tolist(), histogram.rbp_curve(grid).tolist(), strict=True))


def _other_metrics(measurement: Measurement) -> dict[str, float]:
    """Return the metrics other than CE, RBP_k and S, such as parts of CE, ties, and the time of the measurement."""
    metrics: dict[str, float] = {
        Metric.BITS_PER_BYTE: measurement.bits_per_byte if measurement.num_bytes else math.nan,
        Metric.TIE_RATE: measurement.tie_rate,
        Metric.SECONDS: measurement.seconds,
        Metric.PEAK_MEMORY_BYTES: measurement.peak_memory_bytes,
        Metric.BATCH_TOKENS: measurement.batch_tokens,
        Metric.CHUNK_TOKENS: measurement.chunk_tokens,
    }
    if measurement.ce_parts:
        metrics[Metric.CE_RANK], metrics[Metric.CE_REST] = measurement.ce_parts
    if measurement.comparison:
        metrics |= asdict(measurement.comparison)
    if measurement.fresh_tokens and measurement.seconds:
        metrics[Metric.TOKENS_PER_SECOND] = measurement.fresh_tokens / measurement.seconds
    return _finite(metrics)


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
