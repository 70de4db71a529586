"""Ranks as one plain table, a row per token or per document, that people join with their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from rbptrack.base.errors import DISK_FULL, MissingArtifact, RbptrackError
from rbptrack.base.files import unfinished
from rbptrack.base.words import for_spreadsheets
from rbptrack.console.output import complain
from rbptrack.ranks import ADDED, COMPARED, IDS, SCHEMA, RankTable, rbp_ks, rbp_name
from rbptrack.tracking.groups import DOCUMENTS
from rbptrack.tracking.reader import Reader

_OF_RUN = ("model", "dataset", "run_id")
_TEXTS = [(name, pa.string()) for name in (*_OF_RUN, "id", "group")]


def write(reader: Reader, runs: pd.DataFrame, out: Path, *, documents: bool, tokens: bool) -> int:
    """Write the ranks of measurements as one CSV or Parquet file, whole or not at all; returns how many it holds.

    Some documents are in memory at a time. A measurement that cannot be read is named on standard error and left out.

    Args:
        reader: of the store where they are.
        runs: `Runs.frame` of the measurements.
        out: the file; its ending says which kind.
        documents: a row per document, with its scored tokens, their UTF-8 bytes (where the measurement kept them), CE
            in nats, bits per byte and each RBP_k that was logged; else a row per token.
        tokens: whether rows of tokens hold ids, from which the text can be read.

    Raises:
        RbptrackError: none can be read.

    """
    written = 0
    ks = rbp_ks(runs.columns)
    schema = _schema(ks, documents=documents, tokens=tokens, compared=bool(runs["reference"].notna().any()))
    opened: Any = pyarrow.csv.CSVWriter if out.suffix == ".csv" else pq.ParquetWriter
    quoted = for_spreadsheets if out.suffix == ".csv" else str
    with unfinished(out, durable=True) as place:
        with opened(place, schema) as file:
            for names in zip(*(runs[column] for column in _OF_RUN), strict=True):
                run: dict[str, Any] = dict(zip(_OF_RUN, names, strict=True))
                try:
                    about = _documents(reader, run["run_id"])
                    for _ in reader.rank_pieces(run["run_id"]):  # damage may show after the last one only
                        pass
                except (RbptrackError, OSError) as error:
                    if getattr(error, "errno", None) in DISK_FULL:
                        raise
                    complain(f"run {run['run_id']} is left out: {error}")
                    continue
                of_run = {name: quoted(text) for name, text in run.items()}
                texts = about[["id", "group"]].map(quoted, na_action="ignore")
                for ranks in reader.rank_pieces(run["run_id"]):
                    columns = _per_document(ranks, ks, about) if documents else _per_token(ranks)
                    rows = texts.reindex(columns["document"]).assign(**of_run | columns)
                    file.write_table(pa.Table.from_pandas(rows, schema, preserve_index=False))
                written += 1
        if not written:
            raise RbptrackError("none of these measurements can be read: no table was written")
    return written


def _schema(ks: list[int], *, documents: bool, tokens: bool, compared: bool) -> pa.Schema:
    if documents:
        counts = [("document", pa.int32()), ("tokens", pa.int64()), ("bytes", pa.int64())]
        shares = [(name, pa.float64()) for name in ("ce", "bits_per_byte", *map(rbp_name, ks))]
        return pa.schema([*_TEXTS, *counts, *shares])
    fields = [*SCHEMA, pa.field("rank", pa.int32()), *ADDED, *(COMPARED if compared else ())]
    return pa.schema([*_TEXTS, *(field for field in fields if tokens or field.name not in IDS)])


def _documents(reader: Reader, run_id: str) -> pd.DataFrame:
    """Return each document's facts by its number: id, and group and bytes where they were kept."""
    try:
        documents = pd.read_parquet(reader.artifact(run_id, DOCUMENTS)).set_index("document")
    except MissingArtifact:  # an import, or of an early version
        documents = pd.DataFrame()
    return documents.reindex(columns=["id", "group", "bytes"])


def _per_token(ranks: RankTable) -> dict[str, Any]:
    unknown = () if ranks.ties_known else ("greater", "ties")
    names = [name for name in ranks.table.column_names if name not in unknown]
    columns = {name: ranks.column(name) for name in names} | {"rank": ranks.rank}
    return columns | {name: None for name in (*unknown, *ADDED.names, *COMPARED.names) if name not in columns}


def _per_document(ranks: RankTable, ks: list[int], about: pd.DataFrame) -> dict[str, Any]:
    counts = ranks.document_counts(ks)
    num_bytes = about["bytes"].reindex(counts.document).to_numpy(dtype=np.float64)
    shares = zip(ks, (counts.hits / counts.tokens[:, None]).T, strict=True)
    return {
        "document": counts.document,
        "tokens": counts.tokens,
        "bytes": pd.array(num_bytes, dtype="Int64"),
        "ce": counts.nats / counts.tokens,
        "bits_per_byte": counts.nats / (np.log(2) * num_bytes),
        **dict.fromkeys(map(rbp_name, ks)),
        **{rbp_name(k): share for k, share in shares if k <= ranks.vocab_size},
    }
