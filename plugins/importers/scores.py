"""Scores of tasks where people have them: tables, lm-evaluation-harness, inspect_ai, `.eval_results` of the Hub."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from rbptrack.analysis import BadInput
from rbptrack.analysis.importing import SCORES, Imported, ImportedScore, Importer
from rbptrack.analysis.reading import column_names, load_json, read_pairs, read_rows, read_small

_METRICS = ("acc_norm", "acc", "accuracy", "exact_match", "pass@1", "pass_at_1", "mean", "f1", "value")
_MODEL_ARG = re.compile(r"(?:^|,)\s*(pretrained|model|revision)=([^,]*)")
_SUFFIXES = (".csv", ".parquet", ".json", ".jsonl", ".yaml", ".yml")
_NOT_SCORES = (KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError, yaml.YAMLError)

Row = dict[str, Any]


class Scores(Importer):
    """Scores of tasks: a table with the columns model, task, score; lm-evaluation-harness; inspect_ai; `.eval_results`.

    A table has a row for each model and task, where known with revision and n; a JSON with `results` is
    lm-evaluation-harness's, one with `eval` inspect_ai's (`inspect log convert --to json` makes it of an .eval), and of
    a .yaml in a model repository's `.eval_results` the folder above names the model. A folder of them is read whole.
    """

    names: str = ""
    """a CSV with the columns name (in the scores) and model (in the store)"""

    metric: str = ""
    """the metric to take of a task that has several; by default the first of acc_norm, acc, exact_match, ..."""

    def takes(self, path: Path) -> bool:
        return any(_format(file) for file in _files(path))

    def read(self, path: Path) -> Iterator[Imported]:
        names = read_pairs(self.names, "name", "model", option="names")
        if path.suffix.lower() == ".eval":
            raise BadInput(f"{path} is a log of inspect_ai: `inspect log convert --to json` makes a .json of it")
        for file in _files(path):
            form = _format(file)
            file_place = ""
            if path.is_dir():
                file_place = f"{file.relative_to(path)}, "
            else:
                form = form or "table"  # so that its error names the columns that it lacks
            for place, row in self._scores(file, form):
                if isinstance(row["model"], str):
                    row["model"] = names.get(row["model"], row["model"])
                yield ImportedScore(row, file_place + place)

    def _scores(self, file: Path, form: str) -> Iterator[tuple[str, Row]]:
        """Where each score of a file stands, and its columns; form: its format, as `_format` names it."""
        if form == "table":
            yield from _table(file)
            return
        rows: list[Row] = []
        try:
            if form == "hub":
                rows = list(_hub(file))
            elif form == "inspect":
                rows = list(_inspect(load_json(file), self.metric))
            elif form == "harness":
                rows = list(_harness(load_json(file), self.metric))
        except _NOT_SCORES as error:
            reason = " ".join(str(error).split())[:160]  # YAML's errors have several lines
            raise BadInput(f"{file} holds no scores: {type(error).__name__} {reason}") from error
        for row in rows:
            yield f"{str(row['model'])[:60]} in {str(row['task'])[:60]}", row


def _files(path: Path) -> list[Path]:
    """The file, or those of a folder whose name may be that of scores."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix.lower() in _SUFFIXES and file.is_file())


def _format(file: Path) -> str:
    """`table`, `harness`, `inspect` or `hub`; empty for a file without scores."""
    if file.suffix.lower() in (".yaml", ".yml"):
        return "hub" if file.parent.name == ".eval_results" else ""
    columns = column_names(file)
    if {"task", "score"} <= columns:
        return "table"
    if not columns and file.suffix.lower() == ".json":
        content = load_json(file)
        if isinstance(content, dict) and "eval" in content:
            return "inspect"
        if isinstance(content, dict) and "results" in content:
            return "harness"
    return ""


def _table(path: Path) -> Iterator[tuple[str, Row]]:
    for place, row in read_rows(path):
        lacking = {"model", "task", "score"} - set(row)
        if lacking:
            raise BadInput(f"{path} lacks the column {', '.join(sorted(lacking))}; it has {', '.join(row)[:300]}")
        yield place, {name: row[name] for name in SCORES if name in row}


def _harness(content: Mapping[str, Any], metric: str) -> Iterator[Row]:
    """lm-evaluation-harness: `results` holds `acc,none` and the like for each task."""
    config = content.get("config") or {}
    arguments = config.get("model_args") or {}
    if isinstance(arguments, str):
        arguments = dict(_MODEL_ARG.findall(arguments))
    model = arguments.get("pretrained") or arguments.get("model") or content.get("model_name")
    samples = content.get("n-samples") or {}
    groups = content.get("groups") or {}  # averages of tasks that stand beside them
    for task, values in content["results"].items():
        numbers: dict[str, Any] = {}
        for name, value in values.items():
            if "_stderr" not in name and not isinstance(value, str):
                numbers.setdefault(name.partition(",")[0], value)  # of several filters the first
        score = _chosen(numbers, metric)
        if score is not None and task not in groups:
            n = (samples.get(task) or {}).get("effective")
            yield {"model": model, "revision": arguments.get("revision"), "task": task, "score": score, "n": n}


def _inspect(content: Mapping[str, Any], metric: str) -> Iterator[Row]:
    """inspect_ai: the log of one task. Its numbers of samples count every epoch of each."""
    if content.get("status") not in (None, "success"):
        return
    evaluation = content["eval"]
    results = content["results"]
    epochs = (evaluation.get("config") or {}).get("epochs") or 1
    samples = results.get("completed_samples") or results.get("total_samples")
    scorers = [score["name"] for score in results["scores"]]
    for score in results["scores"]:
        value = _chosen({name: entry["value"] for name, entry in score["metrics"].items()}, metric)
        if value is None:
            continue
        parts = [str(evaluation["task"]).rpartition("/")[2]]
        if len(scorers) > 1:
            parts.append(score["name"])
        if scorers.count(score["name"]) > 1 and score.get("reducer"):  # how the epochs of a sample become one score
            parts.append(score["reducer"])
        model = evaluation["model"]
        if isinstance(model, str):
            model = model.removeprefix("hf/")
        n = None if samples is None else math.ceil(samples / epochs)
        yield {"model": model, "task": "/".join(parts), "score": value, "n": n}


def _hub(path: Path) -> Iterator[Row]:
    """`.eval_results/*.yaml` in a model's repository: entries with a benchmark's id and a value."""
    for entry in yaml.safe_load(read_small(path, "import")):
        dataset = entry["dataset"]
        value = entry["value"]
        task = str(dataset["id"]).rpartition("/")[2]
        part = dataset.get("task_id")
        if part not in (None, "", "default"):
            task = f"{task}/{part}"
        if isinstance(value, (int, float)) and value > 1:  # a percentage, as in most benchmarks of the Hub
            value = value / 100
        yield {"model": path.resolve().parent.parent.name, "task": task, "score": value}


def _chosen(numbers: Mapping[str, object], metric: str) -> object:
    """The metric that is asked for, or the first known one; None without any."""
    names = [metric] if metric else _METRICS
    for name in names:
        if name in numbers:
            return numbers[name]
    return None
