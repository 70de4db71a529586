"""Results that others computed, as records: the paper's authors' folders, and plain tables."""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from omegaconf import OmegaConf

from rbptrack.errors import BadInput
from rbptrack.ranks import RankTable
from rbptrack.sources.fingerprint import fingerprint
from rbptrack.tracking.record import Record, add_artifacts, curves, size_metrics
from rbptrack.version import __version__

_METRIC = re.compile(r"(ce|bits_per_byte|tie_rate|num_tokens|rbp_[1-9]\d*)(_se)?")
_PARAMS = {
    "non_embedding_params": "model.non_embedding_params",
    "vocab_size": "model.vocab_size",
    "seq_len": "dataset.seq_len",
    "num_documents": "dataset.num_documents",
    "dtype": "model.dtype",
    "sequence": "dataset.sequence",
}
_NEEDED = ("model", "dataset")


@dataclass(frozen=True)
class Names:
    """How a hub id reads in this store: its family and size, from conf/model."""

    known: Mapping[str, tuple[str, str]]

    @classmethod
    def of(cls, conf: Path) -> Names:
        """Every conf/model/**/*.yaml with a repo."""
        found = {}
        for path in sorted((conf / "model").rglob("*.yaml")):
            config = OmegaConf.to_container(OmegaConf.load(path))
            if isinstance(config, dict) and {"repo", "family", "size"} <= set(config):
                found[str(config["repo"]).lower()] = (str(config["family"]), str(config["size"]))
        return cls(found)

    def split(self, model: str) -> tuple[str, str]:
        """(`pythia`, `70m`) for `EleutherAI/pythia-70m`; at the last hyphen where conf/model does not know it."""
        if model.lower() in self.known:
            return self.known[model.lower()]
        family, hyphen, size = model.rpartition("/")[2].rpartition("-")
        return (family, size) if hyphen else (size, "")


def read_table(path: Path, names: Names) -> Iterator[Record]:
    """One record per row of a CSV or Parquet table.

    Columns: model, dataset, and ce or rbp_<k> are needed; family, size, non_embedding_params, num_tokens, vocab_size,
    seq_len, dtype, sequence and standard errors (`<metric>_se`) are taken where present. An empty cell is missing.

    Raises:
        BadInput: a column is missing, or a value cannot be; names row and column.

    """
    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(f"{path} cannot be read as a table: {' '.join(str(error).split())[:200]}") from error
    metrics = [c for c in frame.columns if _METRIC.fullmatch(str(c))]
    lacking = [c for c in _NEEDED if c not in frame.columns] + ([] if metrics else ["ce or rbp_<k>"])
    if lacking:
        raise BadInput(f"{path} lacks the column {', '.join(lacking)}; it has {', '.join(map(str, frame.columns))}")
    for number, row in enumerate(frame.to_dict("records"), start=2):
        values = {str(k): v for k, v in row.items() if not pd.isna(v)}
        numbers = {c: _number(values[c], f"{path}, line {number}, column {c}") for c in metrics if c in values}
        family, size = names.split(str(values.get("model", "")))
        family, size = str(values.get("family", family)), str(values.get("size", size))
        params = {name: values[c] for c, name in _PARAMS.items() if c in values}
        where = f"{path}, line {number}"
        yield _record("table", path, family, size, values, params | {"where": where}, numbers)


def read_authors(
    root: Path, names: Names, sizes: Mapping[str, int], *, vocab_size: int
) -> Iterator[tuple[Record, RankTable | None]]:
    """What the authors' code writes: <root>/<dataset>/<org>/<model>/top<k>/metrics.json, and ranks.json beside it.

    Args:
        root: the folder.
        names: families and sizes of hub ids.
        sizes: non-embedding parameters by hub id; their files do not hold them.
        vocab_size: |V|, without which a rank table cannot be made of ranks.json; 0: not known.

    Yields:
        A record per dataset and model, and its rank table, or None.

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
    for (dataset, model), paths in groups.items():
        numbers: dict[str, float] = {}
        for path in paths:
            numbers |= _authors_metrics(path, int(path.parent.name[3:]), numbers)
        family, size = names.split(model)
        params: dict[str, object] = {"model.repo": model, "where": str(paths[0].parent.parent)}
        params |= {"model.non_embedding_params": sizes[model]} if model in sizes else {}
        ranks = next((r for p in paths if (r := _authors_ranks(p.with_name("ranks.json"), vocab_size))), None)
        if ranks:
            params["model.vocab_size"] = vocab_size
            numbers["num_tokens"] = len(ranks)
        yield _record("authors", root, family, size, {"dataset": dataset, "model": model}, params, numbers), ranks


def _authors_metrics(path: Path, k: int, before: Mapping[str, float]) -> dict[str, float]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} is not JSON: {error}") from error
    found: dict[str, float] = {}
    for key, value in data.items() if isinstance(data, dict) else ():
        where = f"{path}, {key}"
        if key == "mean_ce_loss":
            found["ce"] = _number(value, where)
        elif key == "indicator" or re.fullmatch(r"RBP_\d+", key):
            found[f"rbp_{k if key == 'indicator' else int(key[4:])}"] = _number(value, where, share=True)
        elif re.fullmatch(r"F_N=\d+", key):
            found[f"sequence_success_k{k}_n{int(key[4:])}"] = _number(value, where, share=True)
    if not found:
        raise BadInput(f"{path} holds none of mean_ce_loss, RBP_<k>, indicator, F_N=<n>")
    if "ce" in found and abs(found["ce"] - before.get("ce", found["ce"])) > 1e-6:
        raise BadInput(f"{path}: mean_ce_loss is {found['ce']}, and {before['ce']} for another k of the same model")
    return found


def _authors_ranks(path: Path, vocab_size: int) -> RankTable | None:
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


def _record(
    kind: str,
    source: Path,
    family: str,
    size: str,
    values: Mapping[str, Any],
    params: Mapping[str, object],
    numbers: Mapping[str, float],
) -> Record:
    where, params = params["where"], {k: v for k, v in params.items() if k != "where"}
    if "model.non_embedding_params" in params:
        params["model.non_embedding_params"] = _count(params["model.non_embedding_params"], str(where))
    content = {"imported": kind, "family": family, "size": size, **params, **numbers}
    content |= {"model": str(values["model"]), "dataset": str(values["dataset"])}
    model = f"{family}-{size}" if size else family
    tags = {
        "rbptrack.kind": "measurement",
        "rbptrack.version": __version__,
        "rbptrack.imported": f"{kind}: {source.name}",
        "rbptrack.fingerprint": fingerprint(content),
        "rbptrack.family": family,
        "rbptrack.size": size,
        "rbptrack.model": model,
        "rbptrack.dataset": str(values["dataset"]),
        "rbptrack.sweep": "",
    }
    record = Record(f"{model} / {values['dataset']}", tags, {k: str(v) for k, v in params.items()})
    record.started = record.ended = time.time()
    record.metrics = dict(numbers)
    if "model.non_embedding_params" in params:
        record.metrics |= size_metrics(int(str(params["model.non_embedding_params"])))
    known = {int(n[4:]): v for n, v in numbers.items() if n.startswith("rbp_") and n[4:].isdigit()}
    record.curves = {
        "rbp_curve": dict(sorted(known.items())),
        "neg_log_rbp_curve": {k: float(-np.log(v)) for k, v in sorted(known.items()) if 0 < v < 1},
    }
    return record


def complete(record: Record, ranks: RankTable | None, folder: Path) -> Path:
    """Lay the artifacts of an imported measurement into a folder: those that its ranks give, or none."""
    if ranks is not None:
        ranks.write(folder / "all.parquet")
        histogram = ranks.histogram()
        add_artifacts(folder, ranks=folder / "all.parquet", histogram=histogram, title=record.name)
        (folder / "all.parquet").unlink()
        record.curves = curves(histogram)
    return folder


def read_sizes(path: Path) -> dict[str, int]:
    """Non-embedding parameters by hub id, from a CSV with the columns model and non_embedding_params."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return {row["model"]: _count(row["non_embedding_params"], str(path)) for row in csv.DictReader(file)}
    except (OSError, KeyError) as error:
        raise BadInput(f"{path} is not a CSV with the columns model and non_embedding_params: {error}") from error


def _number(value: object, where: str, *, share: bool = False) -> float:
    share = share or bool(re.search(r"rbp_\d+$|tie_rate$", where))
    try:
        number = float(str(value))
    except ValueError as error:
        raise BadInput(f"{where}: expected a number, got {value!r}") from error
    if not np.isfinite(number) or number < 0 or (share and number > 1):
        raise BadInput(f"{where}: must be {'between 0 and 1' if share else 'finite and not negative'}; got {value}")
    return number


def _count(value: object, where: str) -> int:
    number = _number(value, f"{where}, non_embedding_params")
    if number < 1 or number != int(number):
        raise BadInput(f"{where}: non_embedding_params must be a whole number above 0; got {value}")
    return int(number)
