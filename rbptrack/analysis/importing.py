"""The base class of importers, and the checks of imported numbers.

An importer reads a file and yields what it holds:

    class Runs2024(Importer):
        \"\"\"Results of our old evaluation, runs2024.json.\"\"\"

        dataset: str = ""
        \"\"\"the texts\"\"\"

        def takes(self, path: Path) -> bool:
            return path.name == "runs2024.json"

        def read(self, path: Path) -> Iterator[Imported]:
            for row in load_json(path):  # load_json is in rbptrack.analysis
                yield ImportedMeasurement({"model": row["id"], "dataset": self.dataset, "ce": row["loss"]})

`check_imported` then compares all values with the rules. If a value breaks a rule, it raises an error that lists the
places of such values, and nothing is imported.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from rbptrack.analysis.plugin import Plugin
from rbptrack.analysis.rank_store import SCORES as SCORES  # for importers of scores
from rbptrack.analysis.rules import ROUNDED, ScoreRow
from rbptrack.analysis.rules import ImportedRow as ImportedRow  # for importers of rows
from rbptrack.analysis.scores import plain_name
from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import listed
from rbptrack.base.validation import broken_rules
from rbptrack.config.patterns import without_size
from rbptrack.ranks import CE, HEADLINE_KS, RankTable, parse_rbp_name, rbp_ks, rbp_name

_CE_TOLERANCE = 0.02  # relative difference of CE that is allowed, because means over batches weigh tokens unevenly
_MAX_FAULTS = 10  # the largest number of faults that a message lists


@dataclass(frozen=True)
class ImportedMeasurement:
    """The results of one model on one dataset, as an importer reads them. They are not checked yet.

    Attributes:
        columns: model, dataset, at least one result (`ce`, `rbp_10`, ...), and optionally other fields of `ImportedRow`
            and standard errors (`ce_se`). None, NaN and an empty text count as missing.
        place: the place in the file, such as `row 3`, for error messages.
        places: for columns that come from other places, these places by column.
        ranks: the ranks of all scored tokens, or None if they are unknown. The columns must agree with them.
        repo: the model's id on the Hugging Face Hub, or empty.
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
        columns: the columns of `SCORES`. `revision` and `n` may be missing.
        place: the place in the file, for error messages.

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
        """Whether a file or folder has the format that this importer reads."""

    @abstractmethod
    def read(self, path: Path) -> Iterator[Imported]:
        """Yield the measurements, scores and notes of a file or folder.

        Raises:
            BadInput: the file is not of the format. The error names the place, the value and the rule.

        """


@dataclass(frozen=True)
class CheckedMeasurement:
    """An imported measurement whose numbers were checked.

    Attributes:
        row: the checked numbers. If there are ranks, CE, RBP_k and the number of tokens are computed from them.
        imported: the measurement as the importer yielded it.

    """

    row: ImportedRow
    imported: ImportedMeasurement


@dataclass(frozen=True)
class CheckedContent:
    """The checked content of an imported file or folder.

    Attributes:
        measurements: the measurements, without repetition.
        scores: a row per model, revision and task, with the columns `SCORES`.
        notes: the importer's notes, without repetition.

    """

    measurements: list[CheckedMeasurement]
    scores: pd.DataFrame
    notes: list[str] = field(default_factory=list)


def family_and_size(model: str) -> tuple[str, str]:
    """Read family and size from a model's name: (`pythia`, `70m`) from `EleutherAI/pythia-70m`.

    The size is the part that looks like one, anywhere in the name: (`Qwen2.5-Instruct`, `0.5B`) from
    `Qwen2.5-0.5B-Instruct`. If there is none, the size is the part after the last hyphen: (`gpt2`, `medium`) from
    `gpt2-medium`.
    """
    name = model.rpartition("/")[2]
    family, size = without_size(name)
    if not size and "-" in name.strip("-"):
        family, _, size = name.rpartition("-")
    return family, size


def check_imported(
    path: Path, items: Iterable[Imported], read_name: Callable[[str], tuple[str, str]] = family_and_size
) -> CheckedContent:
    """Check the objects that an importer yields, and return them as rows.

    Args:
        path: the file or folder, for error messages.
        items: the objects that the importer's `read` yields.
        read_name: function that returns family and size for a name of a model. It is called if a measurement does not
            have both columns.

    Raises:
        BadInput: a value breaks a rule, a number appears with two different values, or there is nothing to import. The
            error lists the places.

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
        earlier, first = rows.setdefault(row.key, (row, item))
        if isinstance(earlier, ScoreRow) and isinstance(row, ScoreRow):  # one of two files may lack n
            earlier.n = earlier.n or row.n
            row.n = row.n or earlier.n
        if differing := _differing_columns(earlier, row):
            what = " ".join(str(part) for part in row.key if part)
            where = first.place or "the same source"
            faults.append(
                f"{_place_prefix(item.place)}{what}: the values of {listed(differing)} differ from those in {where}"
            )
    if faults:
        raise BadInput(_faults_message(path, faults))
    if not rows:
        raise BadInput("\n  ".join([f"{path} holds nothing to import", *list(notes)[:_MAX_FAULTS]]))
    measurements = []
    scores = []
    for row, item in rows.values():
        if isinstance(row, ImportedRow) and isinstance(item, ImportedMeasurement):
            measurements.append(CheckedMeasurement(row, item))
        else:
            scores.append(row.model_dump())
    frame = pd.DataFrame(scores, columns=list(SCORES))
    return CheckedContent(measurements, frame.astype({"score": "Float64", "n": "Int64"}), list(notes))


def _differing_columns(one: ImportedRow | ScoreRow, other: ImportedRow | ScoreRow) -> list[str]:
    """Return the names of the columns in which two rows differ."""
    values = one.model_dump()
    others = other.model_dump()
    return [name for name in values | others if values.get(name) != others.get(name)]


def _check_score(item: ImportedScore) -> ScoreRow:
    """Check the columns of a score. Raises ValidationError if one breaks a rule."""
    columns = _without_missing(item.columns)
    if isinstance(model := columns.get("model"), str):
        columns["model"], commit = plain_name(model)
        if commit:
            columns.setdefault("revision", commit)
    if columns.get("revision") == "main":
        del columns["revision"]
    return ScoreRow.model_validate(columns)


def _check_measurement(item: ImportedMeasurement, read_name: Callable[[str], tuple[str, str]]) -> ImportedRow:
    """Check the columns of a measurement. If it has ranks, compute its numbers from them and compare.

    Raises:
        ValidationError: a column breaks a rule.
        BadInput: a column disagrees with the ranks, or the table of ranks is empty.

    """
    columns = _without_missing(item.columns)
    if isinstance(model := columns.get("model"), str):
        columns["model"] = plain_name(model)[0]
    if not {"family", "size"} <= columns.keys():
        family, size = read_name(str(columns.get("model", "unknown")))  # ImportedRow refuses a row without a model
        columns.setdefault("family", family)
        columns.setdefault("size", size)
    if item.ranks is None:
        return ImportedRow.model_validate(columns)
    if not len(item.ranks):
        raise BadInput(f"{_place_prefix(item.place)}its table of ranks is empty")
    computed = _compute_from_ranks(item.ranks, columns)
    stated = ImportedRow.model_validate({CE: computed[CE]} | columns).model_dump()
    wrong = []
    for name, value in computed.items():
        if name in columns and abs(stated[name] - value) > _allowed_difference(name, value):
            place = item.places.get(name, item.place)
            wrong.append(
                f"{_place_prefix(place)}{name} is {_shorten_value(columns[name])}, but its ranks give {value:.6g}"
            )
    if wrong:
        raise BadInput("\n".join(wrong))
    return ImportedRow.model_validate(columns | computed)


def _compute_from_ranks(ranks: RankTable, columns: Iterable[str]) -> dict[str, float]:
    """Compute CE, counts, and RBP_k for the k of the columns from ranks."""
    ks = {k for k in rbp_ks(columns) if k <= ranks.vocab_size} | {k for k in HEADLINE_KS if k < ranks.vocab_size}
    counts = {"num_tokens": len(ranks), "documents": len(ranks.documents[0]), "vocab_size": ranks.vocab_size}
    return counts | {CE: ranks.ce} | {rbp_name(k): ranks.rbp(k) for k in sorted(ks)}


def _allowed_difference(name: str, value: float) -> float:
    """Return the allowed difference between a stated number and `value`, which was computed from the ranks."""
    if name == CE:
        return _CE_TOLERANCE * value
    return ROUNDED if parse_rbp_name(name) else 0.0


def _without_missing(columns: Mapping[str, Any]) -> dict[str, object]:
    """Return the cells that are not missing (None, NaN or an empty text)."""
    present = {}
    for name, value in columns.items():
        missing = pd.api.types.is_scalar(value) and (pd.isna(value) or value == "")
        if not missing:
            present[name] = value
    return present


def _describe_faults(error: ValidationError, item: ImportedMeasurement | ImportedScore) -> list[str]:
    """Return a line with place, rule and value for each rule that a row breaks."""
    places = item.places if isinstance(item, ImportedMeasurement) else {}
    faults = []
    for broken in broken_rules(error):
        column = broken.name[:40]
        place = places.get(column) or ", ".join(filter(None, [item.place, column]))
        got = (
            "" if isinstance(broken.value, dict) else f"; got {_shorten_value(broken.value)}"
        )  # a dict is the whole row
        faults.append(f"{_place_prefix(place)}{broken.rule}{got}")
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
