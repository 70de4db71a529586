"""Scores of tasks where people have them: tables, lm-evaluation-harness, inspect_ai, `.eval_results` of the hub."""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import yaml
import zstandard

from rbptrack.analysis import BadInput
from rbptrack.analysis.importing import (
    Fault,
    Imported,
    ImportedScore,
    Importer,
    Peek,
    first_line,
    limits,
    not_a_file,
    user_path,
)
from rbptrack.analysis.source import SCORES

from .table import check_once, rows_of_table

_METRICS = ("acc_norm", "acc", "accuracy", "exact_match", "pass@1", "pass_at_1", "mean", "f1", "value")
_MODEL_ARG = re.compile(r"(?:^|,)\s*(pretrained|model|revision)=([^,]*)")
_FILES = re.compile(r"(?:.*/)?(?:results_[^/]*\.json|[^/]*\.eval|\.eval_results/[^/]*\.ya?ml)")
_SUFFIXES = (".csv", ".parquet", ".json", ".eval", ".yaml", ".yml")

_NOT_SCORES = (
    KeyError, TypeError, AttributeError, ValueError, ArithmeticError, OSError, RecursionError, RuntimeError,
    struct.error, zipfile.BadZipFile, zstandard.ZstdError, yaml.YAMLError,
)  # fmt: skip
"""A file that is not of its format."""

_ZSTD = 93  # as zip files number the ways to compress
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # of an entry of a zip file: its signature, and the lengths of two fields

Row = dict[str, Any]
Item = ImportedScore | Fault


@dataclass(kw_only=True)
class Scores(Importer):
    """Scores of tasks: a table with the columns model, task, score; lm-evaluation-harness; inspect_ai; `.eval_results`.

    A .csv or .parquet has a row per model and task, where known with revision and n; a `results_*.json` is
    lm-evaluation-harness's, a .json or .eval inspect_ai's, and of a .yaml in a model repository's `.eval_results` the
    folder above names the model. A folder of them is read whole.

    Attributes:
        names: a CSV with the columns name (in the scores) and model (in the store).
        metric: the metric to take of a task that has several; by default the first of acc_norm, acc, exact_match, ...

    """

    name: ClassVar[str] = "scores"
    names: str = ""
    metric: str = ""

    def takes(self, file: Peek) -> bool:
        """Return a table of scores, a log or result of the programs above, or a folder of them."""
        if file.is_folder:
            return any(map(_FILES.fullmatch, file.names))
        if file.suffix in (".csv", ".parquet"):
            return {"task", "score"} <= set(file.columns)
        return file.suffix in _SUFFIXES

    def read(self, path: Path) -> Iterator[Imported]:
        """Yield a score per model, revision and task."""
        here = read_names(user_path(self.names)) if self.names else {}
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix.lower() in _SUFFIXES and file.is_file())
        for file in files:
            before = f"{file.relative_to(path)}, " if path.is_dir() else ""
            for item in _items(file, self.metric):
                placed = replace(item, place=f"{before}{item.place}")
                if isinstance(placed, ImportedScore) and isinstance(placed.model, str):
                    placed = replace(placed, model=here.get(placed.model, placed.model))
                yield placed


def read_names(path: Path) -> dict[str, str]:
    """Read a map of names: a CSV with the columns name (in the scores) and model (in the store)."""
    if fault := not_a_file(path):
        raise BadInput(f"{path} {fault}")
    problems = list[Fault]()
    columns, rows = rows_of_table(path, problems)
    check_once(path, columns, ["name", "model"])
    if not {"name", "model"} <= set(columns):
        raise BadInput(f"{path} lacks a column: expected name,model; it has {', '.join(columns)[:300]}")
    names: dict[str, str] = {}
    for place, cells in rows:
        name = str(cells.get("name", ""))
        model = str(cells.get("model", ""))
        if not name or not model:
            problems.append(Fault(place, "name and model are both needed"))
        elif names.setdefault(name, model) != model:
            problems.append(Fault(place, f"{name[:60]} is {names[name][:60]} above, and {model[:60]} here"))
    if problems:
        raise BadInput(f"{path}, {problems[0].place}: {problems[0].text}")
    return names


def _items(path: Path, metric: str) -> Iterator[Item]:
    suffix = path.suffix.lower()
    size = path.stat().st_size
    if suffix not in _SUFFIXES:
        raise BadInput(f"{path}: expected .csv, .parquet, .json, .eval, .yaml or a folder of them")
    if size > limits.BYTES_OF_TABLE and suffix != ".eval":  # of a log of inspect_ai its header alone is read
        raise BadInput(f"{path} has {size:,} bytes; scores have at most {limits.BYTES_OF_TABLE:,}")
    if suffix in (".csv", ".parquet"):
        yield from _table(path)
        return
    reader = {".json": _json, ".eval": _inspect_archive}.get(suffix, _hub)
    try:
        for row in reader(path, metric):
            yield ImportedScore(**row, place=f"{str(row['model'])[:60]} in {str(row['task'])[:60]}")
    except _NOT_SCORES as error:
        raise BadInput(f"{path} holds no scores: {type(error).__name__} {first_line(error)[:160]}") from error


def _table(path: Path) -> Iterator[Item]:
    problems = list[Fault]()
    columns, rows = rows_of_table(path, problems)
    lacking = [name for name in ("model", "task", "score") if name not in columns]
    if lacking:
        raise BadInput(f"{path} lacks the column {', '.join(lacking)}; it has {', '.join(columns)[:300]}")
    check_once(path, columns, SCORES)
    for place, cells in rows:
        row = {name: cells.get(name) for name in ("model", "task", "score", "n")}
        yield ImportedScore(**row, revision=cells.get("revision", ""), place=place)
    yield from problems


def _json(path: Path, metric: str) -> Iterator[Row]:
    content = json.loads(path.read_text(encoding="utf-8"))
    yield from _inspect(content, metric) if "eval" in content else _harness(content, metric)


def _harness(content: Mapping[str, Any], metric: str) -> Iterator[Row]:
    """Yield the scores of lm-evaluation-harness: `results` holds `acc,none` and the like for each task."""
    config = content.get("config") or {}
    arguments = config.get("model_args") or {}
    if isinstance(arguments, str):
        arguments = dict(_MODEL_ARG.findall(arguments))
    model = arguments.get("pretrained") or arguments.get("model") or content.get("model_name")
    revision = arguments.get("revision") or ""
    sizes = content.get("n-samples") or {}
    groups = content.get("groups") or {}  # averages of tasks that stand beside them
    for task, values in content["results"].items():
        numbers = {
            name.partition(",")[0]: value
            for name, value in reversed(values.items())  # of several filters the first stays
            if _is_number(value) and "_stderr" not in name
        }
        chosen = _chosen(numbers, metric)
        if chosen is not None and task not in groups:
            n = (sizes.get(task) or {}).get("effective")
            yield {"model": model, "revision": revision, "task": task, "score": chosen, "n": n}


def _inspect(content: Mapping[str, Any], metric: str) -> Iterator[Row]:
    """Yield the scores of inspect_ai, from the header of a log. Its numbers of samples count every epoch of each."""
    if content.get("status") not in (None, "success"):
        return
    about = content["eval"]
    results = content["results"]
    epochs = (about.get("config") or {}).get("epochs") or 1
    samples = results.get("completed_samples") or results.get("total_samples")
    scorers = Counter(score["name"] for score in results["scores"])
    for score in results["scores"]:
        numbers = {name: entry["value"] for name, entry in score["metrics"].items()}
        if (chosen := _chosen(numbers, metric)) is None:
            continue
        parts = [str(about["task"]).rpartition("/")[2]]
        if len(results["scores"]) > 1:
            parts.append(score["name"])
        if scorers[score["name"]] > 1 and score.get("reducer"):  # how the epochs of a sample become one score
            parts.append(score["reducer"])
        model = str(about["model"]).removeprefix("hf/")
        n = None if samples is None else -(-samples // epochs)
        yield {"model": model, "revision": "", "task": "/".join(parts), "score": chosen, "n": n}


def _inspect_archive(path: Path, metric: str) -> Iterator[Row]:
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo("header.json")
        if limits.out_of_proportion(entry.file_size, entry.compress_size) or entry.file_size > limits.BYTES["json"]:
            raise BadInput(f"{path}: header.json would unpack to {entry.file_size:,} bytes")
        content = _of_zstd(path, entry) if entry.compress_type == _ZSTD else archive.read(entry)
    yield from _inspect(json.loads(content), metric)


def _of_zstd(path: Path, entry: zipfile.ZipInfo) -> bytes:
    """Return an entry compressed by zstd, as inspect_ai writes them; Python's zipfile reads such from 3.14 on."""
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        header = file.read(_LOCAL_HEADER.size)
        signature, name_length, more_length = _LOCAL_HEADER.unpack(header)
        if signature != b"PK\3\4":
            raise zipfile.BadZipFile("an entry does not begin where the table of contents says")
        file.seek(name_length + more_length, os.SEEK_CUR)
        packed = file.read(entry.compress_size)
    with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as reader:
        content = reader.read(entry.file_size + 1)
    if len(content) != entry.file_size or zlib.crc32(content) != entry.CRC:
        raise zipfile.BadZipFile(f"{entry.filename} is damaged")
    return content


def _hub(path: Path, _: str) -> Iterator[Row]:
    """Yield the scores of `.eval_results/*.yaml` in a model's repository: a list of entries with a benchmark's id and a
    value.
    """
    repository = path.parent.parent if path.parent.name == ".eval_results" else path.parent
    for entry in yaml.safe_load(path.read_text(encoding="utf-8")):
        dataset = entry["dataset"]
        value = entry["value"]
        task = str(dataset["id"]).rpartition("/")[2]
        part = dataset.get("task_id")
        if part not in (None, "", "default"):
            task = f"{task}/{part}"
        is_percentage = _is_number(value) and value > 1  # as in most benchmarks of the hub
        share = value / 100 if is_percentage else value
        yield {"model": repository.resolve().name, "revision": "", "task": task, "score": share, "n": None}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _chosen(numbers: Mapping[str, object], metric: str) -> object:
    """Return the requested metric, or the first known one; None without any."""
    return next((numbers[name] for name in ([metric] if metric else _METRICS) if name in numbers), None)
