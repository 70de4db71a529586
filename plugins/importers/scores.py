"""Scores of tasks where people have them: tables, lm-evaluation-harness, inspect_ai, `.eval_results` of the hub."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import yaml

from rbptrack.analysis import BadInput
from rbptrack.analysis.importing import (
    Imported,
    ImportedScore,
    Importer,
    Peek,
    first_line,
    limits,
    not_a_file,
    user_path,
)
from rbptrack.analysis.runs import SCORES

_METRICS = ("acc_norm", "acc", "accuracy", "exact_match", "pass@1", "pass_at_1", "mean", "f1", "value")
_MODEL_ARG = re.compile(r"(?:^|,)\s*(pretrained|model|revision)=([^,]*)")
_FILES = re.compile(r"(?:.*/)?(?:results_[^/]*\.json|[^/]*\.eval|\.eval_results/[^/]*\.ya?ml)")
_SUFFIXES = (".csv", ".parquet", ".json", ".eval", ".yaml", ".yml")

Row = dict[str, Any]


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
        """A table of scores, a log or result of the programs above, or a folder of them."""
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
            files = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
        for file in files:
            for row in _rows(file, self.metric):
                model = row["model"]
                if isinstance(model, str):
                    model = here.get(model, model).strip()
                where = f"{str(model)[:60]} in {str(row['task'])[:60]}"
                place = f"{file.relative_to(path)}, {where}" if path.is_dir() else where
                yield ImportedScore(**(row | {"model": model}), place=place)


def read_names(path: Path) -> dict[str, str]:
    """Read a map of names: a CSV with the columns name (in the scores) and model (in the store)."""
    if fault := not_a_file(path):
        raise BadInput(f"{path} {fault}")
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as a table: {first_line(error)[:200]}") from error
    if not {"name", "model"} <= set(table.columns):
        raise BadInput(f"{path} lacks a column: expected name,model; it has {', '.join(table.columns)}")
    return dict(zip(table["name"], table["model"], strict=True))


def _rows(path: Path, metric: str) -> Iterator[Row]:
    reader = _reader_of(path)
    if reader is None:
        raise BadInput(f"{path}: expected .csv, .parquet, .json, .eval, .yaml or a folder of them")
    if path.stat().st_size > limits.BYTES_OF_TABLE:
        raise BadInput(f"{path} has {path.stat().st_size:,} bytes; scores have at most {limits.BYTES_OF_TABLE:,}")
    try:
        yield from reader(path, metric)
    except (KeyError, TypeError, AttributeError, ValueError, OSError, zipfile.BadZipFile, yaml.YAMLError) as error:
        raise BadInput(f"{path} holds no scores: {type(error).__name__} {first_line(error)[:160]}") from error


def _reader_of(path: Path) -> Callable[[Path, str], Iterator[Row]] | None:
    kinds: dict[str, Callable[[Path, str], Iterator[Row]]] = {
        ".csv": _table, ".parquet": _table, ".json": _json, ".eval": _inspect_archive, ".yaml": _hub, ".yml": _hub,
    }  # fmt: skip
    return kinds.get(path.suffix)


def _table(path: Path, _: str) -> Iterator[Row]:
    table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, dtype=str)
    if len(table) > limits.ROWS_OF_TABLE:
        raise BadInput(f"{path} has more than {limits.ROWS_OF_TABLE:,} rows")
    lacking = [name for name in ("model", "task", "score") if name not in table.columns]
    if lacking:
        raise BadInput(
            f"{path} lacks the column {', '.join(lacking)}; it has {', '.join(map(str, table.columns))[:300]}"
        )
    for cells in table.reindex(columns=list(SCORES)).to_dict("records"):
        yield {str(name): None if value != value else value for name, value in cells.items()}


def _json(path: Path, metric: str) -> Iterator[Row]:
    content = json.loads(path.read_text(encoding="utf-8"))
    yield from _inspect(content, metric) if "eval" in content else _harness(content, metric)


def _harness(content: Mapping[str, Any], metric: str) -> Iterator[Row]:
    """Of lm-evaluation-harness: `results` holds `acc,none` and the like for each task."""
    config = content.get("config") or {}
    arguments = config.get("model_args") or {}
    if isinstance(arguments, str):
        arguments = dict(_MODEL_ARG.findall(arguments))
    model = arguments.get("pretrained") or arguments.get("model") or content.get("model_name")
    revision = arguments.get("revision") or ""
    sizes = content.get("n-samples") or {}
    for task, values in content["results"].items():
        numbers = {
            name.partition(",")[0]: value
            for name, value in reversed(values.items())  # of several filters the first stays
            if isinstance(value, (int, float)) and "_stderr" not in name
        }
        if (chosen := _chosen(numbers, metric)) is not None:
            n = (sizes.get(task) or {}).get("effective")
            yield {"model": model, "revision": revision, "task": task, "score": chosen, "n": n}


def _inspect(content: Mapping[str, Any], metric: str) -> Iterator[Row]:
    """Of inspect_ai: the header of a log."""
    if content.get("status") not in (None, "success"):
        return
    about, results = content["eval"], content["results"]
    for score in results["scores"]:
        numbers = {name: each["value"] for name, each in score["metrics"].items()}
        if (chosen := _chosen(numbers, metric)) is not None:
            task = str(about["task"]).rpartition("/")[2]
            several = f"/{score['name']}" if len(results["scores"]) > 1 else ""
            n = results.get("completed_samples") or results.get("total_samples")
            model = str(about["model"]).removeprefix("hf/")
            yield {"model": model, "revision": "", "task": f"{task}{several}", "score": chosen, "n": n}


def _inspect_archive(path: Path, metric: str) -> Iterator[Row]:
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo("header.json")
        if limits.out_of_proportion(entry.file_size, entry.compress_size) or entry.file_size > limits.BYTES["json"]:
            raise BadInput(f"{path}: header.json would unpack to {entry.file_size:,} bytes")
        yield from _inspect(json.loads(archive.read(entry)), metric)


def _hub(path: Path, _: str) -> Iterator[Row]:
    """Of `.eval_results/*.yaml` in a model's repository: a list of entries with a benchmark's id and a value."""
    repository = path.parent.parent if path.parent.name == ".eval_results" else path.parent
    for entry in yaml.safe_load(path.read_text(encoding="utf-8")):
        dataset = entry["dataset"]
        value = float(entry["value"])
        task = str(dataset["id"]).rpartition("/")[2]
        part = dataset.get("task_id")
        if part not in (None, "", "default"):
            task = f"{task}/{part}"
        share = value / 100 if value > 1 else value  # the hub's are percentages in most benchmarks
        yield {"model": repository.resolve().name, "revision": "", "task": task, "score": share, "n": None}


def _chosen(numbers: Mapping[str, float], metric: str) -> float | None:
    """The metric that is asked for, or the first that is known; None where there is none."""
    return next((float(numbers[name]) for name in ([metric] if metric else _METRICS) if name in numbers), None)
