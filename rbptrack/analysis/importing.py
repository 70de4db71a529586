"""The base class of importers, and the objects that they yield.

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

rbptrack then checks all values. If a value breaks a rule, an error lists the places of such values, and nothing is
imported.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rbptrack.analysis.plugin import Plugin
from rbptrack.ranks import RankTable


@dataclass(frozen=True)
class ImportedMeasurement:
    """The results of one model on one dataset, as an importer reads them. They are not checked yet.

    Attributes:
        columns: model, dataset, at least one result (`ce`, `rbp_10`, ...), and optionally other columns of
            `IMPORTABLE_COLUMNS` and standard errors (`ce_se`, `rbp_10_se`). None, NaN and an empty text count as
            missing.
        place: the place of the measurement in the file, such as `row 3`, for error messages.
        places: the places of columns that do not stand at `place`, by column.
        ranks: the ranks of all scored tokens, or None if they are unknown. The columns must agree with the ranks.
            Standard errors are computed from the ranks, and those of the columns are not used.
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
