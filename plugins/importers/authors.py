"""The folders that the paper's authors' code writes: <dataset>/<org>/<model>/top<k>/metrics.json and ranks.json."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rbptrack.analysis import BadInput
from rbptrack.analysis.importing import (
    Fault,
    Imported,
    ImportedMeasurement,
    Importer,
    Peek,
    limits,
    not_a_file,
    user_path,
)
from rbptrack.ranks import CE, RankTable, parse_rbp_name, rbp_name

_SAME_CE = 1e-6
_LARGEST = limits.BYTES_OF_AUTHORS
_METRICS = re.compile(r"(?:.*/)?top[1-9]\d{0,9}/metrics\.json")


@dataclass(kw_only=True)
class Authors(Importer):
    """The folders that the paper's authors' code writes: <dataset>/<org>/<model>/top<k>/metrics.json and ranks.json.

    Attributes:
        sizes: a CSV with the columns model and non_embedding_params, which the folders lack.
        vocab_size: |V|, which ranks need; 0: only the metrics are imported.

    """

    name: ClassVar[str] = "authors"
    sizes: str = ""
    vocab_size: int = 0

    def takes(self, file: Peek) -> bool:
        """Return a folder that has such files."""
        return any(map(_METRICS.fullmatch, file.names))

    def read(self, path: Path) -> Iterator[Imported]:
        """Yield a measurement per dataset and model."""
        check_vocab_size(self.vocab_size)
        sizes = read_sizes(user_path(self.sizes)) if self.sizes else {}
        root = path.absolute()
        problems = list[Fault]()
        groups: dict[tuple[str, str], list[Path]] = {}
        for file in sorted(root.rglob("metrics.json")):
            top, model, org, dataset = (parent.name for parent in [*file.parents, *[Path()] * 4][:4])
            if re.fullmatch(r"top[1-9]\d{0,9}", top):
                groups.setdefault((dataset, f"{org}/{model}"), []).append(file)
        if not groups:
            raise BadInput(f"{path} holds no <dataset>/<org>/<model>/top<k>/metrics.json")
        for (dataset, model), files in groups.items():
            before = len(problems)
            group = _Group(root, dataset, model, files, problems)
            group.read_metrics()
            ranks = group.ranks(self.vocab_size)
            if len(problems) > before:
                continue
            columns = {"dataset": dataset, "model": model, "non_embedding_params": sizes.get(model), **group.columns}
            if ranks is not None:
                columns["vocab_size"] = self.vocab_size
            yield ImportedMeasurement(
                columns=columns,
                place=f"{dataset}/{model}",
                places=group.places,
                metrics=group.more,
                ranks=ranks,
                repo=model,
            )
        yield from problems


def check_vocab_size(vocab_size: int) -> None:
    """Raise BadInput for a |V| that none can be; 0 stands for none."""
    if not 0 <= vocab_size < limits.IDS:
        raise BadInput(f"vocab_size={vocab_size}: must be a whole number above 0")


def read_sizes(path: Path) -> dict[str, int]:
    """Read non-embedding parameters by hub id, from a CSV with the columns model and non_embedding_params."""
    if fault := not_a_file(path):
        raise BadInput(f"{path} {fault}")
    sizes: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for row in csv.DictReader(file):
                text = row["non_embedding_params"].strip()
                if re.fullmatch(r"[1-9]\d{0,17}", text, re.ASCII):
                    sizes[row["model"]] = int(text)
                else:
                    column = f"{path}, column non_embedding_params"
                    raise BadInput(f"{column}: must be a whole number above 0; got {text[:60]!r}")
    except (OSError, KeyError, ValueError, AttributeError, csv.Error) as error:
        raise BadInput(f"{path} is not a CSV with the columns model and non_embedding_params: {error}") from error
    return sizes


@dataclass
class _Group:
    """The files of one model on one dataset."""

    root: Path
    dataset: str
    model: str  # the model's hub id
    paths: Sequence[Path]  # its metrics.json, one per k
    faults: list[Fault]
    columns: dict[str, Any] = field(default_factory=dict)
    more: dict[str, float] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)  # the file and key that gave a column

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
                text = f"is {_shown(value)}, and {_shown(before)} for another k of the model"
                self.faults.append(Fault(f"{where}, {key}", text))
            if column == CE or parse_rbp_name(column):
                self.columns[column] = value
                self.places[column] = f"{where}, key {key}"
            else:
                self._success(column, value, f"{where}, key {key}")
        if not taken:
            self.faults.append(Fault(where, "holds none of mean_ce_loss, RBP_<k>, indicator, F_N=<n>"))

    def _success(self, column: str, value: object, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            self.faults.append(Fault(where, f"must be between 0 and 1; got {_shown(value)}"))
        else:
            self.more[column] = float(value)

    def ranks(self, vocab_size: int) -> RankTable | None:
        """Return the rank table of the first ranks.json; None without one, or with a faulty one."""
        path = next((p for path in self.paths if (p := path.with_name("ranks.json")).exists()), None)
        if not vocab_size or path is None:
            return None
        where = str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)
        data = _json(path, where, self.faults)
        return None if data is None else _table(data, vocab_size, where, self.faults)


def _column(key: str, k: int) -> str:
    """Return the metric that a key of metrics.json in top<k> is; empty for others."""
    if key == "mean_ce_loss":
        return CE
    if key == "indicator":
        return rbp_name(k)
    if re.fullmatch(r"RBP_\d{1,10}", key):
        return rbp_name(int(key.removeprefix("RBP_")))
    if re.fullmatch(r"F_N=\d{1,10}", key):
        return f"sequence_success_k{k}_n{int(key.removeprefix('F_N='))}"
    return ""


def _shown(value: object) -> str:
    """Return a value in a message, cut where it is long."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:40]}... ({len(text):,} characters)"


def _differs(value: object, before: object) -> bool:
    numbers = [v for v in (value, before) if isinstance(v, (int, float)) and abs(v) < 1e300]
    return len(numbers) == 2 and abs(numbers[0] - numbers[1]) > _SAME_CE


def _json(path: Path, where: str, problems: list[Fault]) -> Any:
    most = _LARGEST[path.name]
    try:
        if fault := not_a_file(path):
            problems.append(Fault(where, fault))
            return None
        if (size := path.stat().st_size) > most:
            remedy = "; without vocab_size=... the metrics are imported alone" if path.name == "ranks.json" else ""
            problems.append(Fault(where, f"has {size:,} bytes, and at most {most:,} are read{remedy}"))
            return None
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        problems.append(Fault(where, f"is not JSON: {error}"))
        return None


def _table(data: object, vocab_size: int, where: str, problems: list[Fault]) -> RankTable | None:
    """Return rows [rank, position, ce]: strict ranks, without ties. A position that does not rise begins a document."""
    try:
        rows = np.asarray(data, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        rows = np.empty(0)
    if rows.ndim != 2 or rows.shape[1] != 3 or not len(rows):
        problems.append(Fault(where, "does not hold rows [rank, position, ce]"))
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
            problems.append(Fault(f"{where}, row {first + 1}", f"{rule}; got {values[first]:g}"))
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
