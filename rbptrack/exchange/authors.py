"""The folders that the paper's authors' code writes: <dataset>/<org>/<model>/top<k>/metrics.json and ranks.json."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from rbptrack.errors import BadInput
from rbptrack.exchange.imported import Imported, KnownModels, count, number
from rbptrack.ranks import RankTable, rbp_name
from rbptrack.tracking.record import Record, add_artifacts, curves
from rbptrack.tracking.schema import MeasurementParams, Metric, sequence_success_name


def read(
    root: Path, models: KnownModels, sizes: Mapping[str, int], *, vocab_size: int, folder: Path
) -> list[tuple[Record, Path]]:
    """Read one record per dataset and model, each with the folder of its artifacts.

    Args:
        root: the folder.
        models: give families and sizes of hub ids.
        sizes: non-embedding parameters by hub id, which the authors' files do not hold.
        vocab_size: |V|, without which no rank table can be made of ranks.json; 0: not known.
        folder: an empty folder, in which the artifacts are laid.

    Raises:
        BadInput: a file is not what it should be.

    """
    groups: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(root.rglob("metrics.json")):
        top, model, org, dataset = (path.parents[i].name for i in range(4))
        if re.fullmatch(r"top\d+", top):
            groups.setdefault((dataset, f"{org}/{model}"), []).append(path)
    if not groups:
        raise BadInput(f"{root} holds no <dataset>/<org>/<model>/top<k>/metrics.json")
    found = []
    for (dataset, model), paths in groups.items():
        metrics: dict[str, float] = {}
        for path in paths:
            metrics |= _metrics(path, int(path.parent.name.removeprefix("top")), metrics)
        ranks = next((r for p in paths if (r := _ranks(p.with_name("ranks.json"), vocab_size))), None)
        params = replace(MeasurementParams.unknown(), repo=model, non_embedding_params=sizes.get(model))
        if ranks:
            params = replace(params, vocab_size=vocab_size)
            metrics[Metric.NUM_TOKENS] = len(ranks)
        family, size = models.split(model)
        record = Imported(
            kind="authors",
            source=root,
            family=family,
            size=size,
            model=model,
            dataset=dataset,
            params=params,
            metrics=metrics,
        ).record()
        own = folder / record.fingerprint
        own.mkdir()
        if ranks:
            _add_ranks(record, ranks, own)
        found.append((record, own))
    return found


def read_sizes(path: Path) -> dict[str, int]:
    """Read non-embedding parameters by hub id, from a CSV with the columns model and non_embedding_params."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            where = f"{path}, non_embedding_params"
            return {row["model"]: count(row["non_embedding_params"], where) for row in csv.DictReader(file)}
    except (OSError, KeyError) as error:
        raise BadInput(f"{path} is not a CSV with the columns model and non_embedding_params: {error}") from error


def _metrics(path: Path, k: int, before: Mapping[str, float]) -> dict[str, float]:
    """The numbers of one metrics.json; before: those of the same model's other k."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} is not JSON: {error}") from error
    found: dict[str, float] = {}
    for key, value in data.items() if isinstance(data, dict) else ():
        where = f"{path}, {key}"
        if key == "mean_ce_loss":
            found[Metric.CE] = number(value, where)
        elif key == "indicator":
            found[rbp_name(k)] = number(value, where, share=True)
        elif re.fullmatch(r"RBP_\d+", key):
            found[rbp_name(int(key.removeprefix("RBP_")))] = number(value, where, share=True)
        elif re.fullmatch(r"F_N=\d+", key):
            found[sequence_success_name(k, int(key.removeprefix("F_N=")))] = number(value, where, share=True)
    if not found:
        raise BadInput(f"{path} holds none of mean_ce_loss, RBP_<k>, indicator, F_N=<n>")
    ce, other = found.get(Metric.CE), before.get(Metric.CE)
    if ce is not None and other is not None and abs(ce - other) > 1e-6:
        raise BadInput(f"{path}: mean_ce_loss is {ce}, and {other} for another k of the same model")
    return found


def _ranks(path: Path, vocab_size: int) -> RankTable | None:
    """Rows [rank, position, ce]: strict ranks, without ties. A position that does not rise begins a document."""
    if not vocab_size or not path.exists():
        return None
    try:
        rows = np.asarray(json.loads(path.read_text(encoding="utf-8")), dtype=np.float64)
        rank, position, ce = rows.T
    except (OSError, ValueError, TypeError) as error:
        raise BadInput(f"{path} does not hold rows [rank, position, ce]: {error}") from error
    if not len(rows) or rank.min() < 1 or rank.max() > vocab_size:
        raise BadInput(
            f"{path}: ranks must be between 1 and vocab_size={vocab_size}; got {rank.min():.0f} to {rank.max():.0f}"
        )
    document = np.concatenate([[0], np.cumsum(np.diff(position) <= 0)])
    return RankTable.from_arrays(
        vocab_size=vocab_size,
        document=document,
        position=position,
        field=np.zeros(len(rows)),
        token=np.full(len(rows), -1),
        greater=rank - 1,
        ties=np.zeros(len(rows)),
        logprob=-ce,
    )


def _add_ranks(record: Record, ranks: RankTable, folder: Path) -> None:
    """Lay rank table, histogram and figure into the record's folder; the record gets the curves of all k."""
    table, histogram = folder / "unlinked.parquet", ranks.histogram()
    ranks.write(table)
    add_artifacts(folder, ranks=table, histogram=histogram, title=record.name)
    table.unlink()
    record.curves = curves(histogram)
