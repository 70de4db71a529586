"""What an importer is, and the checks that every imported number passes.

    class Runs2024(Importer):
        \"\"\"Results of our old evaluation, runs2024.json.\"\"\"

        dataset: str = ""
        \"\"\"the texts\"\"\"

        def takes(self, path: Path) -> bool:
            return path.name == "runs2024.json"

        def read(self, path: Path) -> Iterator[Imported]:
            for row in load_json(path):  # of rbptrack.analysis.reading
                yield ImportedMeasurement({"model": row["id"], "dataset": self.dataset, "ce": row["loss"]})

An importer reads and names; `checked` holds every value to the rules, and raises with the places of all that break one.
Nothing is imported then.
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
from rbptrack.base.validation import faults_of
from rbptrack.base.words import listed
from rbptrack.config.patterns import without_size
from rbptrack.ranks import CE, HEADLINE_KS, RankTable, parse_rbp_name, rbp_ks, rbp_name

_BATCHED = 0.02  # of CE: a mean of batches' means weighs tokens unevenly
_MAX_FAULTS = 10  # that a message lists


@dataclass(frozen=True)
class ImportedMeasurement:
    """What one model says about one dataset, as somebody else computed it. Nothing is checked yet.

    Attributes:
        columns: model and dataset, a result (`ce`, `rbp_10`, ...), and where known the other fields of `ImportedRow`
            and standard errors (`ce_se`). None, NaN and an empty text are missing.
        place: where it stands in the source, such as `row 3`.
        places: column -> where that value stands, where that is another place.
        ranks: the rank of every scored token, where they are known; what the columns say must agree with them.
        repo: the model's id on the Hugging Face Hub; empty where it has none.
        notes: what a user of these numbers must know.

    """

    columns: Mapping[str, object]
    place: str = ""
    places: Mapping[str, str] = field(default_factory=dict)
    ranks: RankTable | None = None
    repo: str = ""
    notes: str = ""


@dataclass(frozen=True)
class ImportedScore:
    """A model's score in a task: a mapping with the keys of `SCORES`, of which revision and n may be missing."""

    columns: Mapping[str, object]
    place: str = ""


@dataclass(frozen=True)
class ImportNote:
    """A sentence for the person who imports: what of the source was left out, or which of several values was taken."""

    text: str


Imported = ImportedMeasurement | ImportedScore | ImportNote
"""What an importer yields."""


class Importer(Plugin):
    """Base of importers. Its fields are options of `rbptrack import PATH`."""

    @abstractmethod
    def takes(self, path: Path) -> bool:
        """Whether this file or folder is of its format."""

    @abstractmethod
    def read(self, path: Path) -> Iterator[Imported]:
        """Yield what the file or folder holds.

        Raises:
            BadInput: it is not of the format; names the place, the value and the rule.

        """


@dataclass(frozen=True)
class CheckedMeasurement:
    """A measurement whose numbers hold to the rules.

    Attributes:
        row: its numbers; CE, RBP_k and the number of tokens are computed from the ranks where there are any.
        given: as the importer yielded it.

    """

    row: ImportedRow
    given: ImportedMeasurement


@dataclass(frozen=True)
class CheckedSource:
    """All that a source holds, checked.

    Attributes:
        measurements: each once.
        scores: a row per model, revision and task, with the columns `SCORES`.
        notes: what the importer said about it, each sentence once.

    """

    measurements: list[CheckedMeasurement]
    scores: pd.DataFrame
    notes: list[str] = field(default_factory=list)


def family_and_size(model: str) -> tuple[str, str]:
    """Split a model's name: (`pythia`, `70m`) of `EleutherAI/pythia-70m`.

    The size is the part that reads as one, wherever it stands: (`Qwen2.5-Instruct`, `0.5B`) of `Qwen2.5-0.5B-Instruct`.
    Without such a part it is what stands after the last hyphen: (`gpt2`, `medium`) of `gpt2-medium`.
    """
    name = model.rpartition("/")[2]
    family, size = without_size(name)
    if not size and "-" in name.strip("-"):
        family, _, size = name.rpartition("-")
    return family, size


def checked(
    source: Path, items: Iterable[Imported], split: Callable[[str], tuple[str, str]] = family_and_size
) -> CheckedSource:
    """Hold everything that an importer yields to the rules.

    Args:
        source: the file or folder, for messages.
        items: what the importer's `read` yields.
        split: gives the family and size of a model where the columns do not.

    Raises:
        BadInput: a value breaks a rule, two values of one number differ, or nothing is there. Lists the places.

    """
    faults: list[str] = []
    notes: dict[str, None] = {}
    rows: dict[tuple[object, ...], tuple[ImportedRow | ScoreRow, ImportedMeasurement | ImportedScore]] = {}
    for item in items:
        if isinstance(item, ImportNote):
            notes[item.text] = None
            continue
        try:
            row = _measurement(item, split) if isinstance(item, ImportedMeasurement) else _score(item)
        except ValidationError as error:
            faults += _faults(error, item)
            continue
        except BadInput as error:
            faults += str(error).splitlines()
            continue
        earlier, first = rows.setdefault(row.key, (row, item))
        if isinstance(earlier, ScoreRow) and isinstance(row, ScoreRow):  # n may stand in one of two files
            earlier.n = earlier.n or row.n
            row.n = row.n or earlier.n
        if differing := _differing(earlier, row):
            what = " ".join(str(part) for part in row.key if part)
            where = first.place or "the same source"
            faults.append(f"{_at(item.place)}{what}: {listed(differing)} other than in {where}")
    if faults:
        raise BadInput(_message(source, faults))
    if not rows:
        raise BadInput("\n  ".join([f"{source} holds nothing to import", *list(notes)[:_MAX_FAULTS]]))
    measurements = []
    scores = []
    for row, item in rows.values():
        if isinstance(row, ImportedRow) and isinstance(item, ImportedMeasurement):
            measurements.append(CheckedMeasurement(row, item))
        else:
            scores.append(row.model_dump())
    frame = pd.DataFrame(scores, columns=list(SCORES))
    return CheckedSource(measurements, frame.astype({"score": "Float64", "n": "Int64"}), list(notes))


def _differing(one: ImportedRow | ScoreRow, other: ImportedRow | ScoreRow) -> list[str]:
    """The columns in which two rows differ."""
    values = one.model_dump()
    others = other.model_dump()
    return [name for name in values | others if values.get(name) != others.get(name)]


def _score(item: ImportedScore) -> ScoreRow:
    columns = _present(item.columns)
    if isinstance(model := columns.get("model"), str):
        columns["model"], commit = plain_name(model)
        if commit:
            columns.setdefault("revision", commit)
    if columns.get("revision") == "main":
        del columns["revision"]
    return ScoreRow.model_validate(columns)


def _measurement(item: ImportedMeasurement, split: Callable[[str], tuple[str, str]]) -> ImportedRow:
    """The row of a measurement; of its ranks' numbers, where it has ranks, those that came with them must agree."""
    columns = _present(item.columns)
    if isinstance(model := columns.get("model"), str):
        columns["model"] = plain_name(model)[0]
    if not {"family", "size"} <= columns.keys():
        family, size = split(str(columns.get("model", "unknown")))  # whether there is a model, the row's rules say
        columns.setdefault("family", family)
        columns.setdefault("size", size)
    if item.ranks is None:
        return ImportedRow.model_validate(columns)
    if not len(item.ranks):
        raise BadInput(f"{_at(item.place)}its table of ranks is empty")
    computed = _from_ranks(item.ranks, columns)
    given = ImportedRow.model_validate({CE: computed[CE]} | columns).model_dump()
    wrong = []
    for name, value in computed.items():
        if name in columns and abs(given[name] - value) > _allowed(name, value):
            place = item.places.get(name, item.place)
            wrong.append(f"{_at(place)}{name} is {_shown(columns[name])}, but its ranks give {value:.6g}")
    if wrong:
        raise BadInput("\n".join(wrong))
    return ImportedRow.model_validate(columns | computed)


def _from_ranks(ranks: RankTable, columns: Iterable[str]) -> dict[str, float]:
    """CE, counts, and RBP_k at the k of the columns, as ranks give them."""
    ks = {k for k in rbp_ks(columns) if k <= ranks.vocab_size} | {k for k in HEADLINE_KS if k < ranks.vocab_size}
    counts = {"num_tokens": len(ranks), "documents": len(ranks.documents[0]), "vocab_size": ranks.vocab_size}
    return counts | {CE: ranks.ce} | {rbp_name(k): ranks.rbp(k) for k in sorted(ks)}


def _allowed(name: str, value: float) -> float:
    """How far a number may lie from that of its ranks."""
    if name == CE:
        return _BATCHED * value
    return ROUNDED if parse_rbp_name(name) else 0.0


def _present(columns: Mapping[str, Any]) -> dict[str, object]:
    """The cells that are not empty."""
    present = {}
    for name, value in columns.items():
        missing = pd.api.types.is_scalar(value) and (pd.isna(value) or value == "")
        if not missing:
            present[name] = value
    return present


def _faults(error: ValidationError, item: ImportedMeasurement | ImportedScore) -> list[str]:
    """A line for each rule that a row breaks: its place, the rule, and the value."""
    places = item.places if isinstance(item, ImportedMeasurement) else {}
    faults = []
    for fault in faults_of(error):
        column = fault.name[:40]
        place = places.get(column) or ", ".join(filter(None, [item.place, column]))
        got = "" if isinstance(fault.given, dict) else f"; got {_shown(fault.given)}"  # a dict is the whole row
        faults.append(f"{_at(place)}{fault.rule}{got}")
    return faults


def _message(source: Path, faults: list[str]) -> str:
    if len(faults) == 1:
        return f"{source}, {faults[0]}. Nothing was imported"
    lines = [f"{source} has {len(faults)} faults; nothing was imported", *faults[:_MAX_FAULTS]]
    if len(faults) > _MAX_FAULTS:
        lines.append(f"... and {len(faults) - _MAX_FAULTS} more")
    return "\n  ".join(lines)


def _at(place: str) -> str:
    return f"{place}: " if place else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}... ({len(text):,} characters)"
