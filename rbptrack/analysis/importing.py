"""The base class of importers, and the checks of imported numbers.

An importer reads a file and yields its measurements, scores and notes:

    class Runs2024(Importer):
        \"\"\"Results of our old evaluation, runs2024.json.\"\"\"

        dataset: str = ""
        \"\"\"the texts\"\"\"

        def takes(self, path: Path) -> bool:
            return path.name == "runs2024.json"

        def read(self, path: Path) -> Iterator[Imported]:
            for row in load_json(path):  # load_json is in rbptrack.analysis
                yield ImportedMeasurement({"model": row["id"], "dataset": self.dataset, "ce": row["loss"]})

`check_imported` then checks all values. If a value breaks a rule, `check_imported` raises an error that lists the
places of such values, and nothing is imported.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from rbptrack.analysis.plugin import Plugin
from rbptrack.analysis.rank_store import SCORES
from rbptrack.analysis.rules import RESULTS, ROUNDING, ImportedRow, ScoreRow
from rbptrack.analysis.scores import plain_name
from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import listed
from rbptrack.base.validation import broken_rules
from rbptrack.config.patterns import separate_size
from rbptrack.ranks import CE, HEADLINE_KS, RankTable, parse_rbp_name, rbp_ks, rbp_name

_CE_TOLERANCE = 0.02  # the allowed relative difference of CE; a mean over batches does not weigh all tokens alike
_MISSING_TEXTS = ("", "nan", "na", "n/a", "<na>", "none", "null")  # what programs write for missing values
_ORGANISATION = re.compile(r"^[^_]+(?:_[^_]+)*__(?=[^_]+(?:_[^_]+)*$)")  # org__ in org__name
_DECIMAL_SIZE = re.compile(r"(?<=-)(\d+)_(\d+[kmbt])(?=$|-)", re.ASCII | re.IGNORECASE)
_BITS = re.compile(r"-\d+-?bit$", re.ASCII | re.IGNORECASE)
_MAX_FAULTS = 10  # the most faults or notes that a message lists


@dataclass(frozen=True)
class ImportedMeasurement:
    """The results of one model on one dataset, as an importer reads them, before `check_imported` checks them.

    Attributes:
        columns: model, dataset, at least one result (`ce`, `rbp_10`, ...), and optionally other fields of `ImportedRow`
            and standard errors (`ce_se`). None, NaN and an empty text count as missing.
        place: the place of the measurement in the file, such as `row 3`, for error messages.
        places: the places of columns that do not stand at `place`, by column.
        ranks: the ranks of all scored tokens, or None if they are unknown. The columns must agree with the ranks.
        repo: the model's ID on the Hugging Face Hub; empty if it is unknown.
        notes: a remark for users of these numbers.

    """

    columns: Mapping[str, object]
    place: str = ""
    places: Mapping[str, str] = field(default_factory=dict)
    ranks: RankTable | None = None
    repo: str = ""
    notes: str = ""


@dataclass(frozen=True)
class ImportedScore:
    """A model's score in a task, as an importer reads it.

    Attributes:
        columns: the score, by column. None, NaN and an empty text count as missing.

            - model: the name of the model, its ID on the Hugging Face Hub, or its path.
            - revision: the branch, tag or commit of the model. It may be missing; then it is the main revision.
            - task: the name of the task. It must name every condition that can change the score, such as the metric,
              the number of shots, a limit or a system prompt: a later score of the same model, revision and task
              replaces an earlier one.
            - score: a number. Without a unit it is a share from 0 to 1.
            - unit: the unit of the score. It may be missing. A score in `percent` is converted to a share. Any other
              unit becomes a part of the task's name, and the score may be any finite number.
            - n: the number of items of the task. It may be missing.

        place: the place of the score in the file, for error messages.

    """

    columns: Mapping[str, object]
    place: str = ""


@dataclass(frozen=True)
class ImportNote:
    """A sentence for the user about the import, such as which parts of the file were left out."""

    text: str


Imported = ImportedMeasurement | ImportedScore | ImportNote
"""The types of objects that an importer yields."""


class Importer(Plugin):
    """Base class of importers. Its fields are options of `rbptrack import PATH`."""

    @abstractmethod
    def takes(self, path: Path) -> bool:
        """Return whether a file or folder has the format that this importer reads."""

    @abstractmethod
    def read(self, path: Path) -> Iterator[Imported]:
        """Yield the measurements, scores and notes of a file or folder.

        Raises BadInput if the file does not have the importer's format. The error names the place, the value and the
        rule.
        """


@dataclass(frozen=True)
class CheckedMeasurement:
    """An imported measurement whose numbers were checked.

    Attributes:
        row: the checked numbers. If the ranks are known, CE, RBP_k and the number of tokens are computed from them.
        imported: the measurement as the importer yielded it.

    """

    row: ImportedRow
    imported: ImportedMeasurement


@dataclass(frozen=True)
class CheckedContent:
    """The checked content of an imported file or folder.

    Attributes:
        measurements: the measurements. Repeated ones are left out.
        scores: one row for each model, revision and task, with the columns `SCORES`.
        notes: the importer's notes. Repeated ones are left out.

    """

    measurements: list[CheckedMeasurement]
    scores: pd.DataFrame
    notes: list[str] = field(default_factory=list)


def family_and_size(model: str) -> tuple[str, str]:
    """Return the family and the size in a model's name: (`pythia`, `70m`) for `EleutherAI/pythia-70m`.

    The size is the part that looks like a number of parameters: (`Qwen2.5-Instruct`, `0.5B`) for
    `Qwen2.5-0.5B-Instruct`. If no part looks like a number, the size is the part after the last hyphen: (`gpt2`,
    `medium`) for `gpt2-medium`. The size is empty if the name has no hyphen. `1_6b` is read as the size `1.6b`, and
    `org__name` as `org/name`. A number of bits, such as `8-bit`, is not a size.
    """
    name = _ORGANISATION.sub("", model.rpartition("/")[2])
    name = _DECIMAL_SIZE.sub(r"\1.\2", name)
    family, size = separate_size(name)
    bits = "".join(_BITS.findall(name)[-1:])
    name = name.removesuffix(bits)
    if not size and "-" in name.strip("-"):
        family, _, size = name.rpartition("-")
        family += bits
    return family, size


def check_imported(
    path: Path, items: Iterable[Imported], read_name: Callable[[str], tuple[str, str]] = family_and_size
) -> CheckedContent:
    """Check the objects that an importer yields, and return them as rows.

    Args:
        path: the file or folder, for error messages.
        items: the objects that the importer's `read` yields.
        read_name: a function that returns family and size for the name of a model. It is called if a measurement lacks
            one of these columns.

    Raises:
        BadInput: a value breaks a rule, two rows of one measurement or score have different values, or nothing can be
            imported. The error lists the places.

    """
    faults: list[str] = []
    notes: dict[str, None] = {}
    rows: dict[tuple[object, ...], tuple[ImportedRow | ScoreRow, ImportedMeasurement | ImportedScore]] = {}
    for item in items:
        if isinstance(item, ImportNote):
            notes[item.text] = None
            continue
        try:
            row = _check_measurement(item, read_name) if isinstance(item, ImportedMeasurement) else _check_score(item)
        except ValidationError as error:
            faults += _describe_faults(error, item)
            continue
        except BadInput as error:
            faults += str(error).splitlines()
            continue
        earlier_row, earlier_item = rows.setdefault(row.key, (row, item))
        if isinstance(earlier_row, ScoreRow) and isinstance(row, ScoreRow):  # one of two files may lack n
            earlier_row.n = earlier_row.n or row.n
            row.n = row.n or earlier_row.n
        if differing := _differing_columns(earlier_row, row):
            name = " ".join(str(part) for part in row.key if part)
            other_place = earlier_item.place or "the same source"
            contradiction = f"{name}: the values of {listed(differing)} differ from those in {other_place}"
            faults.append(f"{_place_prefix(item.place)}{contradiction}")
    if faults:
        raise BadInput(_faults_message(path, faults))
    if not rows:
        raise BadInput("\n  ".join([f"{path} holds nothing to import", *list(notes)[:_MAX_FAULTS]]))
    return _checked_content(rows.values(), list(notes))


def _checked_content(
    rows: Iterable[tuple[ImportedRow | ScoreRow, ImportedMeasurement | ImportedScore]], notes: list[str]
) -> CheckedContent:
    """Separate rows of measurements from rows of scores. Each row comes with the object that it was made from."""
    measurements = []
    scores = []
    for row, item in rows:
        if isinstance(row, ImportedRow) and isinstance(item, ImportedMeasurement):
            measurements.append(CheckedMeasurement(row, item))
        else:
            scores.append(row.model_dump())
    frame = pd.DataFrame(scores, columns=list(SCORES))
    return CheckedContent(measurements, frame.astype({"score": "Float64", "n": "Int64"}), notes)


def _differing_columns(first: ImportedRow | ScoreRow, second: ImportedRow | ScoreRow) -> list[str]:
    first_values = first.model_dump()
    second_values = second.model_dump()
    names = first_values | second_values
    return [name for name in names if first_values.get(name) != second_values.get(name)]


def _check_score(item: ImportedScore) -> ScoreRow:
    """Check the columns of a score. Raises ValidationError if a column breaks a rule."""
    columns = _drop_missing(item.columns)
    if isinstance(model := columns.get("model"), str):
        columns["model"], commit = plain_name(model)
        if commit:
            columns.setdefault("revision", commit)
    if columns.get("revision") == "main":
        del columns["revision"]
    return ScoreRow.model_validate(columns)


def _check_measurement(item: ImportedMeasurement, read_name: Callable[[str], tuple[str, str]]) -> ImportedRow:
    """Check the columns of a measurement. If its ranks are known, compare the columns with numbers computed from them.

    Raises:
        ValidationError: a column breaks a rule.
        BadInput: a column disagrees with the ranks, or the table of ranks is empty.

    """
    columns = _drop_missing(item.columns)
    if isinstance(model := columns.get("model"), str):
        columns["model"] = plain_name(model)[0]
    if not {"family", "size"} <= columns.keys():
        family, size = read_name(str(columns.get("model", "unknown")))  # ImportedRow refuses a row without a model
        columns.setdefault("family", family)
        columns.setdefault("size", size)
    if item.ranks is None:
        return ImportedRow.model_validate(columns)
    if not len(item.ranks):
        raise BadInput(f"{_place_prefix(item.place)}the table of ranks is empty")
    computed = _compute_from_ranks(item.ranks, columns)
    stated = ImportedRow.model_validate({CE: computed[CE]} | columns).model_dump()
    faults = []
    for name, value in computed.items():
        if name in columns and abs(stated[name] - value) > _allowed_difference(name, value):
            place = item.places.get(name, item.place)
            fault = f"{name} is {_shorten_value(columns[name])}, but the ranks give {value:.6g}"
            faults.append(f"{_place_prefix(place)}{fault}")
    if faults:
        raise BadInput("\n".join(faults))
    return ImportedRow.model_validate(columns | computed)


def _compute_from_ranks(ranks: RankTable, columns: Iterable[str]) -> dict[str, float]:
    """Compute CE, the counts of tokens and documents, |V| and RBP_k from ranks.

    RBP_k is computed at the k of the named columns and at `HEADLINE_KS`.
    """
    ks = {k for k in rbp_ks(columns) if k <= ranks.vocab_size} | {k for k in HEADLINE_KS if k < ranks.vocab_size}
    counts = {"num_tokens": len(ranks), "documents": len(ranks.documents[0]), "vocab_size": ranks.vocab_size}
    return counts | {CE: ranks.ce} | {rbp_name(k): ranks.rbp(k) for k in sorted(ks)}


def _allowed_difference(name: str, value: float) -> float:
    """Return by how much the number in a file may differ from `value`, which was computed from the ranks."""
    if name == CE:
        return _CE_TOLERANCE * value
    return ROUNDING if parse_rbp_name(name) else 0.0


def _drop_missing(columns: Mapping[str, Any]) -> dict[str, object]:
    """Return the columns without missing values.

    Missing are None, NaN, an empty text and, except in a column of results, a text such as `nan`, `NA` or `None`.
    """
    present = {}
    for name, value in columns.items():
        is_missing = pd.api.types.is_scalar(value) and (pd.isna(value) or value == "")
        result = name.removesuffix("_se")
        if isinstance(value, str) and result not in (*RESULTS, "score") and not result.startswith("rbp_"):
            is_missing = value.strip().lower() in _MISSING_TEXTS
        if not is_missing:
            present[name] = value
    return present


def _describe_faults(error: ValidationError, item: ImportedMeasurement | ImportedScore) -> list[str]:
    """Return one line for each rule that a row breaks: the place, the rule and the value."""
    places = item.places if isinstance(item, ImportedMeasurement) else {}
    faults = []
    for broken in broken_rules(error):
        column = broken.name[:40]
        place = places.get(column) or ", ".join(filter(None, [item.place, column]))
        fault = f"{_place_prefix(place)}{broken.rule}"
        if not isinstance(broken.value, dict):  # a dict is the whole row
            fault += f"; got {_shorten_value(broken.value)}"
        faults.append(fault)
    return faults


def _faults_message(path: Path, faults: list[str]) -> str:
    """Return the message of the error that refuses a file: at most `_MAX_FAULTS` faults, one in each line."""
    if len(faults) == 1:
        return f"{path}, {faults[0]}. Nothing was imported"
    lines = [f"{path} has {len(faults)} faults; nothing was imported", *faults[:_MAX_FAULTS]]
    if len(faults) > _MAX_FAULTS:
        lines.append(f"... and {len(faults) - _MAX_FAULTS} more")
    return "\n  ".join(lines)


def _place_prefix(place: str) -> str:
    return f"{place}: " if place else ""


def _shorten_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}... ({len(text):,} characters)"
