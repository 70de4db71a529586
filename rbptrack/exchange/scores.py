"""Scores of tasks where people have them: tables, lm-evaluation-harness, inspect_ai, `.eval_results` of the hub."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from rbptrack.analysis.runs import SCORES
from rbptrack.base.errors import BadInput, first_line
from rbptrack.exchange import eval_results
from rbptrack.tracking import limits

_METRICS = ("acc_norm", "acc", "accuracy", "exact_match", "pass@1", "pass_at_1", "mean", "f1", "value")
_MODEL_ARG = re.compile(r"(?:^|,)\s*(pretrained|model|revision)=([^,]*)")

Row = dict[str, Any]


def read(path: Path, *, names: Mapping[str, str], metric: str = "") -> pd.DataFrame:
    """Read scores from a file, or from every such file of a folder.

    Args:
        path: a .csv or .parquet with the columns model, task, score, and where known revision and n; a `results_*.json`
            of lm-evaluation-harness; a .json or .eval of inspect_ai; a .yaml of a model repository's `.eval_results`
            (the folder above it names the model); or a folder of them.
        names: model's name there -> its name here.
        metric: the metric to take of a task that has several; by default the first of acc_norm, acc, exact_match, ...

    Returns:
        A row per model, revision and task, with the columns of `rbptrack.analysis.contract.SCORES`.

    Raises:
        BadInput: a file is none of these, a score is no number, or one model has two scores of a task; names it.

    """
    files = sorted(each for each in path.rglob("*") if _reader_of(each)) if path.is_dir() else [path]
    if not files:
        raise BadInput(
            f"{path} holds no scores: expected .csv, .parquet, results_*.json, .eval or .eval_results/*.yaml"
        )
    rows = [{**row, "place": str(file)} for file in files for row in _rows(file, metric)]
    for row in rows:
        row["model"] = names.get(str(row["model"]), str(row["model"])).strip()
        _check(row)
    frame = pd.DataFrame(rows, columns=[*SCORES, "place"]).astype({"score": "float64", "n": "Float64"})
    frame["revision"] = frame["revision"].fillna("").astype(str)
    keys = ["model", "revision", "task"]
    twice = frame[frame.duplicated(keys, keep=False)].drop_duplicates([*keys, "score"])
    doubled = twice[twice.duplicated(keys, keep=False)]
    if len(doubled):
        one, other = doubled.sort_values(keys).iloc[0], doubled.sort_values(keys).iloc[1]
        raise BadInput(
            f"{one['model']} has two scores of {one['task']}: {one['score']:g} in {one['place']} and "
            f"{other['score']:g} in {other['place']}; leave one out"
        )
    return frame.drop_duplicates(keys).drop(columns="place").reset_index(drop=True)


def read_names(path: Path) -> dict[str, str]:
    """A map of names: a CSV with the columns name (in the scores) and model (in the store)."""
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
    return kinds.get(path.suffix) if path.is_file() else None


def _check(row: Row) -> None:
    place = row["place"]
    if not row["model"] or not str(row["task"]).strip():
        raise BadInput(f"{place}: a score has no model or no task")
    try:
        row["score"] = float(row["score"])
    except (TypeError, ValueError):
        row["score"] = float("nan")
    if not 0 <= row["score"] <= 1:
        raise BadInput(
            f"{place}: the score of {row['model']} in {row['task']} must be a share from 0 to 1 "
            "(divide a percentage by 100)"
        )


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
    return eval_results.read(path)


def _chosen(numbers: Mapping[str, float], metric: str) -> float | None:
    """The metric that is asked for, or the first that is known; None where there is none."""
    return next((float(numbers[name]) for name in ([metric] if metric else _METRICS) if name in numbers), None)
