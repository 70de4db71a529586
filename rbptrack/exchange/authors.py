"""The folders that the paper's authors' code writes: <dataset>/<org>/<model>/top<k>/metrics.json and ranks.json."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from rbptrack.base.errors import BadInput
from rbptrack.base.files import kind_of
from rbptrack.exchange.faults import Faults
from rbptrack.exchange.imported import KnownModels, laid, record_of
from rbptrack.ranks import CE, RankTable, parse_rbp_name, rbp_name
from rbptrack.tracking.limits import BYTES_OF_AUTHORS
from rbptrack.tracking.record import Record
from rbptrack.tracking.rules import Count, MeasurementRow, Share, faults, shown
from rbptrack.tracking.schema import sequence_success_name

_SAME_CE = 1e-6
_ROUNDED = 1e-3  # of a share that was written with few digits
_BATCHED = 0.02  # of CE: a mean over batches weighs tokens unevenly


def read(
    root: Path,
    models: KnownModels,
    sizes: Mapping[str, int],
    rules: type[MeasurementRow],
    *,
    vocab_size: int,
    folder: Path,
) -> list[tuple[Record, Path]]:
    """Read one record per dataset and model, all of them checked, each with the folder of its artifacts.

    Without `vocab_size` (0), no rank table can be made of ranks.json. `sizes` are S by hub id, which the files lack.

    Raises:
        BadInput: files are not what they should be; names them.

    """
    problems = Faults(root)
    groups: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(root.absolute().rglob("metrics.json")):
        top, model, org, dataset = (parent.name for parent in [*path.parents, *[Path()] * 4][:4])
        if re.fullmatch(r"top[1-9]\d{0,9}", top):
            groups.setdefault((dataset, f"{org}/{model}"), []).append(path)
    if not groups:
        raise BadInput(f"{root} holds no <dataset>/<org>/<model>/top<k>/metrics.json")
    made = []
    for (dataset, model), paths in groups.items():
        before = len(problems)
        one = _Group(root.absolute(), dataset, model, paths, problems)
        one.read_metrics()
        ranks = one.ranks(vocab_size)
        family, size = models.split(model)
        about: dict[str, object] = {"dataset": dataset, "model": model, "family": family or None, "size": size}
        about |= {"non_embedding_params": sizes.get(model), "vocab_size": vocab_size or None}
        try:
            row = rules.of(about | one.columns)
        except ValidationError as error:
            for column, text in faults(error):
                problems.add(one.place(column), text)
        if len(problems) > before:
            continue
        if ranks is None:
            row = row.model_copy(update={"vocab_size": None})  # of interest beside ranks only
        else:
            one.compare(ranks)
            row = row.model_copy(update={"num_tokens": len(ranks)})
        record = record_of(row, more=one.more, ranked=ranks is not None, **one.source)
        made.append((record, laid(record, ranks, folder / record.fingerprint)))
    problems.refuse()
    return made


def read_sizes(path: Path) -> dict[str, int]:
    """Read non-embedding parameters by hub id, from a CSV with the columns model and non_embedding_params."""
    problems, sizes = Faults(path), dict[str, int]()
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for row in csv.DictReader(file):
                try:
                    sizes[row["model"]] = TypeAdapter(Count).validate_python(row["non_embedding_params"])
                except ValidationError as error:
                    problems.extend("sizes", [("non_embedding_params", text) for _, text in faults(error)])
    except (OSError, KeyError, ValueError, csv.Error) as error:
        raise BadInput(f"{path} is not a CSV with the columns model and non_embedding_params: {error}") from error
    problems.refuse()
    return sizes


@dataclass
class _Group:
    """The files of one model on one dataset."""

    root: Path
    dataset: str
    model: str  # the model's hub id
    paths: Sequence[Path]  # its metrics.json, one per k
    faults: Faults

    def __post_init__(self) -> None:
        self.columns: dict[str, Any] = {}
        self.more: dict[str, float] = {}
        self._places: dict[str, str] = {}

    @property
    def source(self) -> dict[str, Any]:
        """What a record says of where it is from."""
        return {"kind": "authors", "source": self.root, "repo": self.model}

    def place(self, column: str) -> str:
        """The file and key that gave a column."""
        return self._places.get(column, f"{self.dataset}/{self.model}, {column}")

    def read_metrics(self) -> None:
        """Read every metrics.json into columns."""
        for path in self.paths:
            where = str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)
            data = _json(path, where, self.faults)
            if data is not None:
                self._take(data, int(path.parent.name.removeprefix("top")), where)

    def _take(self, data: object, k: int, where: str) -> None:
        taken = 0
        for key, value in data.items() if isinstance(data, dict) else ():
            column = _column(key, k)
            if not column:
                continue
            taken += 1
            if column == CE and _differs(value, self.columns.get(CE)):
                before = self.columns[CE]
                self.faults.add(f"{where}, {key}", f"is {shown(value)}, and {shown(before)} for another k of the model")
            if column == CE or parse_rbp_name(column):
                self.columns[column], self._places[column] = value, f"{where}, key {key}"
            else:
                self._success(column, value, f"{where}, key {key}")
        if not taken:
            self.faults.add(where, "holds none of mean_ce_loss, RBP_<k>, indicator, F_N=<n>")

    def _success(self, column: str, value: object, where: str) -> None:
        try:
            self.more[column] = TypeAdapter(Share).validate_python(value)
        except ValidationError as error:
            self.faults.extend(where, [("", text) for _, text in faults(error)])

    def ranks(self, vocab_size: int) -> RankTable | None:
        """The rank table of the first ranks.json; None where there is none, or it has a fault."""
        path = next((p for path in self.paths if (p := path.with_name("ranks.json")).exists()), None)
        if not vocab_size or path is None:
            return None
        where = str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)
        data = _json(path, where, self.faults)
        return None if data is None else _table(data, vocab_size, where, self.faults)

    def compare(self, ranks: RankTable) -> None:
        """Note metrics that the ranks contradict."""
        for column, value in self.columns.items():
            k = parse_rbp_name(column)
            by_ranks = ranks.ce if k is None else ranks.rbp(k)
            allowed = _BATCHED * ranks.ce if k is None else _ROUNDED
            if abs(float(value) - by_ranks) > allowed:
                text = f"is {value}, but ranks.json beside it gives {by_ranks:.6g}; remove the one that is wrong"
                self.faults.add(self.place(column), text)


def _column(key: str, k: int) -> str:
    """The metric that a key of metrics.json in top<k> is; empty for others."""
    if key == "mean_ce_loss":
        return CE
    if key == "indicator":
        return rbp_name(k)
    if re.fullmatch(r"RBP_\d{1,10}", key):
        return rbp_name(int(key.removeprefix("RBP_")))
    if re.fullmatch(r"F_N=\d{1,10}", key):
        return sequence_success_name(k, int(key.removeprefix("F_N=")))
    return ""


def _differs(value: object, before: object) -> bool:
    numbers = [v for v in (value, before) if isinstance(v, (int, float)) and abs(v) < 1e300]
    return len(numbers) == 2 and abs(numbers[0] - numbers[1]) > _SAME_CE


def _json(path: Path, where: str, problems: Faults) -> Any:
    most = BYTES_OF_AUTHORS[path.name]
    try:
        if not path.is_file():
            problems.add(where, f"is {kind_of(path)}, not a file")
            return None
        if (size := path.stat().st_size) > most:
            remedy = "; without vocab_size=... the metrics are imported alone" * (path.name == "ranks.json")
            problems.add(where, f"has {size:,} bytes, and at most {most:,} are read{remedy}")
            return None
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        problems.add(where, f"is not JSON: {error}")
        return None


def _table(data: object, vocab_size: int, where: str, problems: Faults) -> RankTable | None:
    """Rows [rank, position, ce]: strict ranks, without ties. A position that does not rise begins a document."""
    try:
        rows = np.asarray(data, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        rows = np.empty(0)
    if rows.ndim != 2 or rows.shape[1] != 3 or not len(rows):
        problems.add(where, "does not hold rows [rank, position, ce]")
        return None
    rank, position, ce = rows.T
    rules = {
        f"a rank must be a whole number from 1 to vocab_size = {vocab_size:,}": (
            rank,
            (rank >= 1) & (rank <= vocab_size) & (rank == np.floor(rank)),
        ),
        "a position must be a whole number from 0": (
            position,
            (position >= 0) & (position < 2**31) & (position == np.floor(position)),
        ),
        "ce must be finite and not negative": (ce, np.isfinite(ce) & (ce >= 0) & (ce < 1e30)),
    }
    before = len(problems)
    for rule, (values, right) in rules.items():
        if not right.all():
            first = int(np.argmin(right))
            problems.add(f"{where}, row {first + 1}", f"{rule}; got {values[first]:g}")
    if len(problems) > before:
        return None
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
