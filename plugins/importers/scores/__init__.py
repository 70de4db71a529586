"""Import scores of tasks from tables, lm-evaluation-harness, lighteval and inspect_ai."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rbptrack.analysis import (
    TABLE_SUFFIXES,
    BadInput,
    Imported,
    ImportedScore,
    Importer,
    ImportNote,
    MissingKey,
    column_names,
    load_json,
    read_pairs,
    shortened_list,
)

from .harness import read_harness
from .inspect_ai import read_inspect
from .items import Item, Remark, Score, WrongShapeError
from .lighteval import read_lighteval
from .naming import model_name, task_name, unknown_settings
from .table import read_table

_FORMATS = {
    "harness": "a file of lm-evaluation-harness",
    "lighteval": "a file of lighteval",
    "inspect": "a log of inspect_ai",
}


class Scores(Importer):
    """Scores of tasks: a table, or files of lm-evaluation-harness, lighteval and inspect_ai.

    - A table has a row for each model and task, with the columns model, task and score. It may also have the columns
      revision, seed (of training), n, unit, metric, filter and shots, and columns for settings such as limit.
    - A JSON file with `results` is read as one of lm-evaluation-harness. If it also has `config_general`, it is read as
      one of lighteval.
    - A JSON file with `eval` is read as a log of inspect_ai. `inspect log convert --to json` converts an .eval file.

    All such files in a folder are read. Metric, filter, number of shots, and settings that change the prompt, the
    questions or the answers (`limit`, `system_instruction`) become part of a task's name. Settings that change a
    model's weights (`peft=`, `load_in_4bit=`) become part of the model's name.
    """

    names: str = ""
    """a CSV with the columns name (a model's name in the scores) and model (its name in the store)"""

    model: str = ""
    """name of the model, if the file does not name it. All scores must belong to this model"""

    metric: str = ""
    """the metric to use if a task has several, optionally with a filter, such as exact_match,flexible-extract. By
    default the first of acc_norm, acc, accuracy, exact_match, ..., with its first filter
    """

    unit: str = ""
    """the unit of scores that are not shares from 0 to 1: percent, or a name such as points"""

    def takes(self, path: Path) -> bool:
        return path.suffix.lower() == ".eval" or any(_recognise(file)[0] for file in _list_files(path))

    def read(self, path: Path) -> Iterator[Imported]:
        names = read_pairs(self.names, "name", "model", option="names")
        if path.suffix.lower() == ".eval":
            raise BadInput(f"{path} is a log of inspect_ai: convert it with `inspect log convert --to json` first")
        subjects_by_remark: dict[tuple[str, bool], dict[str, None]] = {}  # the key is (clause, is_left_out)
        models: dict[str, None] = {}
        unknown: dict[str, None] = {}
        for file in _list_files(path):
            relative_path = file.relative_to(path).as_posix() if path.is_dir() else ""
            for item in _read_items(file, relative_path, self.metric, self.unit):
                if isinstance(item, Remark):
                    subjects_by_remark.setdefault(item[1:], {})[item.subject] = None
                    continue
                if item.model is None and not self.model:
                    raise BadInput(f"{file} does not name the model of its scores: give model=NAME")
                model, task = model_name(item), task_name(item)
                unknown |= dict.fromkeys(unknown_settings(item))
                models[str(model)] = None
                columns: dict[str, object] = {"model": self.model or names.get(str(model), model)}
                columns |= {"revision": item.revision, "task": task}
                columns |= {"score": item.value, "n": item.n, "unit": item.unit or self.unit}
                location = item.place or f"{str(model)[:60]} in {task[:60]}"
                yield ImportedScore(columns, f"{relative_path}, {location}" if relative_path else location)
        if self.model and len(models) > 1:
            raise BadInput(
                f"{path}: model={self.model} names one model, but the scores are of {shortened_list(list(models))}. "
                "Leave out model="
            )
        for (clause, is_left_out), subjects in subjects_by_remark.items():
            yield ImportNote(f"{'left out: ' if is_left_out else ''}{shortened_list(list(subjects))}: {clause}")
        if unknown:
            yield ImportNote(
                f"{shortened_list(list(unknown))}: rbptrack does not know these settings. They became a part "
                "of the names of the tasks, because they may change the scores"
            )
        variants = [model for model in models if "+" in model and model not in names]
        if variants and not self.model:
            yield ImportNote(
                f"{shortened_list(variants)}: settings change the weights, so each of these counts as a separate "
                "model. names=FILE maps their names to names in the store"
            )


def _list_files(path: Path) -> list[Path]:
    """Return the file, or everything in the folder that is neither hidden nor a folder, also links to missing files."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if not file.is_dir() and not file.name.startswith("."))


def _recognise(file: Path) -> tuple[str, Any]:
    """Return the format of a file with scores, and the content of a JSON file.

    The format is a key of `_FORMATS`, or `table`, or empty if it is not known.
    """
    suffix = file.suffix.lower()
    content = None
    if suffix == ".json":
        try:
            content = load_json(file, finite=False)
        except BadInput:
            return "", None
        if isinstance(content, dict) and "eval" in content:
            return "inspect", content
        if isinstance(content, dict) and "results" in content:
            return "lighteval" if "config_general" in content else "harness", content
    if suffix in TABLE_SUFFIXES and {"task", "score"} <= column_names(file):
        return "table", None
    return "", content


def _read_items(file: Path, relative_path: str, metric: str, unit: str) -> list[Item]:
    """Return the scores of a file and remarks about it.

    `relative_path` is the file's path in the folder that is imported. It is empty if only this file is imported. In
    this case, BadInput is raised if the file cannot be read. BadInput is also raised if a table lacks a column.
    """
    file_format, content = _recognise(file)
    if not file_format and relative_path:
        return [Remark(relative_path, "not a file of scores")]
    if not file_format and isinstance(content, dict):
        raise MissingKey(
            f"{file} lacks the key results (lm-evaluation-harness, lighteval) or eval (inspect_ai); it has "
            f"{shortened_list(list(content)) or 'no key'}"
        )
    if file_format in ("", "table"):  # for an unknown format, this raises an error that names the columns
        return list(read_table(file))
    try:
        if file_format == "inspect":
            items = list(read_inspect(file, content, metric))
        elif file_format == "lighteval":
            items = list(read_lighteval(content, metric))
        else:
            items = list(read_harness(content, metric))
    except (WrongShapeError, RecursionError) as error:
        reason = f"cannot be read as {_FORMATS[file_format]}: {error}"
        if not relative_path:
            raise BadInput(f"{file} {reason}") from error
        return [Remark(relative_path, reason)]
    return [_refuse_wrong_value(item, unit) for item in items]


def _refuse_wrong_value(item: Item, unit: str) -> Item:
    """Return the item, or a remark instead of a score that is not a finite number, or not a share without a unit."""
    if not isinstance(item, Score):
        return item
    value = item.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value <= 1 or ((item.unit or unit) and abs(value) < 1e300):
            return item
    rule = "a score must be a number from 0 to 1"
    if not unit:
        rule += ", or the option unit must say its unit"
    shown = f"{value!r:.40}" if isinstance(value, str | int | float | None) else "an object or a list"
    return Remark(item.task, f"{rule}; got {shown}")
