"""Check the measurements and scores that an importer yields, before they are added to a store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Self

import pandas as pd
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from rbptrack.analysis.importing import Imported, ImportedMeasurement, ImportedScore, ImportNote
from rbptrack.analysis.input_files import whole_number
from rbptrack.analysis.model_names import family_and_size, plain_name
from rbptrack.analysis.rank_store import SCORES
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.formatting import listed
from rbptrack.base.validation import broken_rules
from rbptrack.measurement.build import check_ranks, conditions, from_numbers, from_ranks, named_fields
from rbptrack.measurement.columns import DTYPE_BY_COLUMN, IMPORTABLE_COLUMNS
from rbptrack.measurement.document import ROUNDING, Measurement
from rbptrack.measurement.parts import MAX_TEXT_LENGTH, Count, Name, Text
from rbptrack.ranks import CE, HEADLINE_KS, RankSums, RankTable, is_rbp_column, parse_rbp_name, rbp_ks, rbp_name
from rbptrack.ranks.near_copies import near_copies_in


class _NamedModel(TypedDict):
    model: Name


_CE_TOLERANCE = 0.02  # the allowed relative difference of CE; a mean over batches does not weigh all tokens alike
_MISSING_TEXTS = ("", "nan", "na", "n/a", "<na>", "none", "null")  # what programs write for missing values
_PERCENT = ("percent", "%")
_SHARE = ("", "share")
_MAX_FAULTS = 10  # the most faults or notes that a message lists
_RESULTS = ("ce", "ce_rank", "ce_rest", "bits_per_byte", "tie_rate")  # a missing value in these columns is a fault
_ROUNDED_COUNTS = ("non_embedding_params", "total_params", "training_tokens", "num_tokens")  # may be written as `70M`
_MODEL: TypeAdapter[_NamedModel] = TypeAdapter(_NamedModel)
_SEED = re.compile(r"[-_. ]seed[-_. ]?(\d{1,9})(?=$|[-_@])", re.IGNORECASE)


class ScoreRow(BaseModel):
    """A model's score in a task, and the number of items n.

    Without a unit, the score is the share of the task's items that the model solves. A score in percent is converted to
    a share. Any other unit becomes a part of the task's name.
    """

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True, allow_inf_nan=False)

    model: Name
    revision: Text = ""
    unit: Annotated[Text, AfterValidator(str.lower)] = Field("", exclude=True)
    task: Name
    score: Annotated[float, BeforeValidator(lambda value: _to_number("score", value))]
    n: Annotated[Count | None, BeforeValidator(lambda value: _to_number("num_tokens", value))] = None

    @field_validator("score")
    @classmethod
    def _convert_to_share(cls, score: float, info: ValidationInfo) -> float:
        """Convert a percentage to a share. Raise ValueError for a number outside the range of its unit."""
        unit = info.data.get("unit", "")
        if unit in _PERCENT:
            if not 0 <= score <= 100:
                raise ValueError("must be from 0 to 100, because its unit is percent")
            return score / 100
        if unit in _SHARE and not 0 <= score <= 1:
            raise ValueError("must be from 0 to 1, or its unit must be given, such as percent or points")
        return score

    @model_validator(mode="after")
    def _add_unit_to_task(self) -> Self:
        if self.unit not in (*_PERCENT, *_SHARE):
            self.task = f"{self.task} ({self.unit})"
        return self

    @property
    def key(self) -> tuple[str, ...]:
        """The values that identify the score. Two rows with equal keys are the same score."""
        return (self.model, self.revision, self.task)

    @property
    def name(self) -> str:
        """The key as one text."""
        return " ".join(filter(None, self.key))


@dataclass(frozen=True)
class CheckedMeasurement:
    """An imported measurement whose numbers were checked.

    Attributes:
        measurement: the measurement. If the ranks are known, its results are computed from them.
        ranks: the ranks of all scored tokens, or None if they are unknown.

    """

    measurement: Measurement
    ranks: RankTable | None = None


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


def check_imported(
    path: Path, items: Iterable[Imported], read_name: Callable[[str], tuple[str, str]] = family_and_size
) -> CheckedContent:
    """Check the objects that an importer yields, and return their content.

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
    rows: dict[object, tuple[Measurement | ScoreRow, ImportedMeasurement | ImportedScore]] = {}
    for item in items:
        if isinstance(item, ImportNote):
            notes[item.text] = None
            continue
        if not isinstance(item, ImportedMeasurement | ImportedScore):
            raise BadInput(
                f"{path}: the importer yields objects of type {type(item).__name__}. It must yield "
                "ImportedMeasurement, ImportedScore and ImportNote"
            )
        try:
            row = _check_measurement(item, read_name) if isinstance(item, ImportedMeasurement) else _check_score(item)
        except ValidationError as error:
            faults += _describe_faults(error, item)
            continue
        except BadInput as error:
            faults += str(error).splitlines()
            continue
        key = row.key if isinstance(row, ScoreRow) else row.fingerprint
        earlier_row, earlier_item = rows.setdefault(key, (row, item))
        if isinstance(earlier_row, ScoreRow) and isinstance(row, ScoreRow):  # one of two files may lack n
            earlier_row.n = earlier_row.n or row.n
            row.n = row.n or earlier_row.n
        if differing := _differing_columns(earlier_row, row):
            other_place = earlier_item.place or "the same source"
            name = row.name if isinstance(row, ScoreRow) else f"{row.model} {row.dataset}"
            contradiction = f"{name}: the values of {listed(differing)} differ from those in {other_place}"
            faults.append(f"{_place_prefix(item.place)}{contradiction}")
    if faults:
        raise BadInput(_faults_message(path, faults))
    if not rows:
        raise BadInput("\n  ".join([f"{path} holds nothing to import", *list(notes)[:_MAX_FAULTS]]))
    return _checked_content(rows.values(), list(notes))


def _checked_content(
    rows: Iterable[tuple[Measurement | ScoreRow, ImportedMeasurement | ImportedScore]], notes: list[str]
) -> CheckedContent:
    """Separate rows of measurements from rows of scores. Each row comes with the object that it was made from."""
    measurements = []
    scores = []
    for row, item in rows:
        if isinstance(row, Measurement) and isinstance(item, ImportedMeasurement):
            measurements.append(CheckedMeasurement(row, item.ranks))
        else:
            scores.append(row.model_dump())
    frame = pd.DataFrame(scores, columns=list(SCORES))
    return CheckedContent(measurements, frame.astype({"score": "Float64", "n": "Int64"}), notes)


def _differing_columns(first: Measurement | ScoreRow, second: Measurement | ScoreRow) -> list[str]:
    """Return the columns in which two rows differ. Notes and the curve of RBP_k are not compared."""
    first_values = first.model_dump(exclude={"notes"})
    second_values = second.model_dump(exclude={"notes"})
    return [name for name in first_values if first_values[name] != second_values[name] and name != "rbp_curve"]


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


def _check_measurement(item: ImportedMeasurement, read_name: Callable[[str], tuple[str, str]]) -> Measurement:
    """Check the columns of a measurement. If its ranks are known, compare the columns with numbers computed from them.

    Raises:
        ValidationError: a column breaks a rule.
        BadInput: a column is unknown, disagrees with the ranks, or the table of ranks is empty.

    """
    columns = {name: _to_number(name, value) for name, value in _drop_missing(item.columns).items()}
    for name in columns:
        if name not in ("model", *IMPORTABLE_COLUMNS) and not is_rbp_column(name):
            raise BadInput(f"{_place_prefix(item.place)}the column {name[:40]} cannot be imported")
    if "model" not in columns:
        raise BadInput(f"{_place_prefix(item.place)}model is missing")
    columns["model"] = plain_name(_MODEL.validate_python(columns)["model"])[0]
    named = dict(columns)
    name = str(columns["model"])
    if seed := _SEED.search(name):
        name = name[: seed.start()] + name[seed.end() :]
        named.setdefault("seed", int(seed[1]))
    if not {"family", "size"} <= columns.keys():
        family, size = read_name(name)
        named.setdefault("family", family)
        named.setdefault("size", size)
    if named.get("checkpoint") == "main":
        del named["checkpoint"]
    facts = {"repo": item.repo, "notes": " ".join(item.notes.split())[:MAX_TEXT_LENGTH]}
    if item.ranks is None:
        return from_numbers(named, imported_as=conditions(columns), **facts)
    if not len(item.ranks):
        raise BadInput(f"{_place_prefix(item.place)}the table of ranks is empty")
    try:
        check_ranks(item.ranks)
    except RbptrackError as error:
        raise BadInput(f"{_place_prefix(item.place)}{error}") from error
    return _check_against_ranks(item, item.ranks, named, conditions(columns), facts)


def _check_against_ranks(
    item: ImportedMeasurement, ranks: RankTable, columns: dict[str, Any], imported_as: str, facts: dict[str, str]
) -> Measurement:
    """Build a measurement from its ranks. Raises BadInput if a column disagrees with them."""
    ks = {k for k in rbp_ks(columns) if k <= ranks.vocab_size} | {k for k in HEADLINE_KS if k < ranks.vocab_size}
    sums = RankSums.of([ranks], sorted(ks), ranks.vocab_size)
    stated = from_numbers({CE: ranks.ce} | columns, imported_as=imported_as)
    fields = named_fields(columns) | {"documents": len(ranks.documents[0]), "imported_as": imported_as}
    measurement = from_ranks(fields, sums, groups=near_copies_in(ranks), notes=[facts["notes"]], repo=facts["repo"])
    computed = {name: getattr(measurement, name) for name in ("num_tokens", "documents", "vocab_size", *_RESULTS)}
    computed |= {rbp_name(k): share for k, share in measurement.rbp.items()}
    faults = []
    for name, value in computed.items():
        if name not in columns:
            continue
        k = parse_rbp_name(name)
        number = getattr(stated, name) if k is None else stated.rbp.get(k)
        if value is None or abs(number - value) > _allowed_difference(name, value):
            place = item.places.get(name, item.place)
            given = "do not give it" if value is None else f"give {value:.6g}"
            fault = f"{name} is {_shorten_value(item.columns[name])}, but the ranks {given}"
            faults.append(f"{_place_prefix(place)}{fault}")
    if faults:
        raise BadInput("\n".join(faults))
    return measurement


def _to_number(name: str, value: object) -> object:
    """Convert a cell of a table to the type of its column. A text that is not a number is returned unchanged.

    Booleans and texts such as `0_5`, which Python reads as numbers, are returned as texts, which the rules refuse.
    """
    dtype = DTYPE_BY_COLUMN.get(name, "Float64" if is_rbp_column(name) or name == "score" else "string")
    if dtype == "string":
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        return str(value) if is_number else value
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        return f"{value} (not a number)"
    if dtype == "Int64" or name in _ROUNDED_COUNTS:
        return whole_number(value, with_letters=name in _ROUNDED_COUNTS)
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _allowed_difference(name: str, value: float) -> float:
    """Return by how much the number in a file may differ from `value`, which was computed from the ranks."""
    if name == "tie_rate" or parse_rbp_name(name):
        return ROUNDING
    return _CE_TOLERANCE * abs(value) if name in _RESULTS else 0.0


def _drop_missing(columns: Mapping[str, Any]) -> dict[str, object]:
    """Return the columns without missing values.

    Missing are None, an empty text and, except in a column of results, NaN and texts such as `nan`, `NA` or `None`.
    """
    present = {}
    for name, value in columns.items():
        result = name.removesuffix("_se")
        is_missing = pd.api.types.is_scalar(value) and (value == "" if isinstance(value, str) else pd.isna(value))
        if result in (*_RESULTS, "score") or result.startswith("rbp_"):
            is_missing = is_missing and not isinstance(value, float)
        elif isinstance(value, str):
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
        if column == "rbp_curve":  # without ranks, it repeats rbp
            continue
        if column in ("rbp", "rbp_se") and len(broken.place) > 1:
            column = rbp_name(int(broken.place[1])) + column.removeprefix("rbp")
        place = places.get(column) or ", ".join(filter(None, [item.place, column]))
        fault = f"{_place_prefix(place)}{broken.rule}"
        if not isinstance(broken.value, dict):  # a dict is the whole row
            fault += f"; got {_shorten_value(broken.value)}"
        if column in ("ce_rank", "ce_rest") and column not in item.columns:
            fault += ", computed from the other parts of ce"
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
