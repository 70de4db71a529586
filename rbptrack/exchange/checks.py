"""Check the measurements and scores that an importer yields, before they are added to a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from pydantic import BaseModel, ValidationError

from rbptrack.analysis.importing import Imported, ImportedMeasurement, ImportedScore, ImportNote
from rbptrack.analysis.model_names import family_and_size
from rbptrack.analysis.rank_store import SCORES
from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import listed
from rbptrack.base.validation import broken_rules
from rbptrack.exchange.measurements import check_measurement
from rbptrack.exchange.scores import ScoreRow, check_score
from rbptrack.exchange.values import place_prefix, shorten_value
from rbptrack.measurement.document import Measurement
from rbptrack.ranks import RankTable, rbp_name

_MAX_FAULTS = 10  # the most faults or notes that a message lists


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
    measurements: dict[str, tuple[Measurement, ImportedMeasurement]] = {}
    scores: dict[tuple[str, ...], tuple[ScoreRow, ImportedScore]] = {}
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
            if isinstance(item, ImportedMeasurement):
                measurement = check_measurement(item, read_name)
                earlier, earlier_item = measurements.setdefault(measurement.fingerprint, (measurement, item))
                name = f"{measurement.model} {measurement.dataset}"
                _check_equal(name, measurement, item.place, earlier, earlier_item.place)
            else:
                score = check_score(item)
                earlier_score, earlier_score_item = scores.setdefault(score.key, (score, item))
                earlier_score.n = earlier_score.n or score.n  # one of two files may lack n
                score.n = score.n or earlier_score.n
                _check_equal(score.name, score, item.place, earlier_score, earlier_score_item.place)
        except ValidationError as error:
            faults += _describe_faults(error, item)
        except BadInput as error:
            faults += str(error).splitlines()
    if faults:
        raise BadInput(_faults_message(path, faults))
    if not measurements and not scores:
        raise BadInput("\n  ".join([f"{path} holds nothing to import", *list(notes)[:_MAX_FAULTS]]))
    frame = pd.DataFrame([score.model_dump() for score, _ in scores.values()], columns=list(SCORES))
    return CheckedContent(
        [CheckedMeasurement(measurement, item.ranks) for measurement, item in measurements.values()],
        frame.astype({"score": "Float64", "n": "Int64"}),
        list(notes),
    )


def _check_equal(name: str, row: BaseModel, place: str, earlier: BaseModel, earlier_place: str) -> None:
    """Raise BadInput if two rows of one measurement or score differ. Notes and the curve of RBP_k are not compared."""
    values = row.model_dump(exclude={"notes", "rbp_curve"})
    earlier_values = earlier.model_dump(exclude={"notes", "rbp_curve"})
    differing = [column for column, value in values.items() if value != earlier_values[column]]
    if differing:
        raise BadInput(
            f"{place_prefix(place)}{name}: the values of {listed(differing)} differ from those in "
            f"{earlier_place or 'the same source'}"
        )


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
        fault = f"{place_prefix(place)}{broken.rule}"
        if not isinstance(broken.value, dict):  # a dict is the whole row
            fault += f"; got {shorten_value(broken.value)}"
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
