"""What an importer is: it says whether it takes a file, and yields the measurements or scores in it.

    @dataclass(kw_only=True)
    class Runs2024(Importer):
        \"\"\"Results of our old evaluation, runs2024.json.\"\"\"

        dataset: str = ""                       # `import runs2024.json dataset=wiki`

        def takes(self, file: Peek) -> bool:
            return file.path.name == "runs2024.json"

        def read(self, path: Path) -> Iterator[Imported]:
            for row in json.loads(path.read_text()):
                yield ImportedMeasurement(columns={"model": row["id"], "dataset": self.dataset, "ce": row["loss"]})

rbptrack checks every value, names each fault with its place, and imports all of it or nothing.
"""

from __future__ import annotations

import csv
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rbptrack.analysis.plugin import Plugin
from rbptrack.base import limits
from rbptrack.base.errors import first_line
from rbptrack.base.files import kind_of
from rbptrack.base.user_paths import user_path
from rbptrack.ranks import RankTable

__all__ = [
    "Fault",
    "Imported",
    "ImportedMeasurement",
    "ImportedScore",
    "Importer",
    "Peek",
    "first_line",
    "limits",
    "not_a_file",
    "user_path",
]

_HEAD = 1 << 16  # bytes of a file that importers may look at
_NAMES = 10_000  # files of a folder


@dataclass(frozen=True)
class Peek:
    """What importers may know of a file or folder before it is read.

    Attributes:
        path: where it is; a file or folder that is there.

    """

    path: Path

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.path.is_dir()

    @property
    def suffix(self) -> str:
        """The ending of its name, in lower case: `.csv`."""
        return self.path.suffix.lower()

    @cached_property
    def head(self) -> bytes:
        """The first 64 KiB of a file; empty for a folder."""
        if not self.path.is_file():
            return b""
        with self.path.open("rb") as file:
            return file.read(_HEAD)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of a .csv or .parquet table; empty for anything else."""
        if self.suffix == ".parquet":
            try:
                return tuple(pq.read_schema(self.path).names)
            except (OSError, pa.ArrowException):
                return ()
        if self.suffix == ".csv" and self.head:
            line = self.head.decode("utf-8-sig", errors="replace").splitlines()[:1]
            return tuple(cell.strip() for cell in next(csv.reader(line), []))
        return ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The files of a folder and of the folders in it, as relative paths; at most 10,000 of them."""
        names = []
        for path in self.path.rglob("*") if self.is_folder else ():
            if path.is_file():
                names.append(path.relative_to(self.path).as_posix())
            if len(names) >= _NAMES:
                break
        return tuple(names)


@dataclass(frozen=True, kw_only=True)
class ImportedMeasurement:
    """What one model says about one dataset, as somebody else computed it.

    Attributes:
        columns: model and dataset, a result (`ce`, `rbp_10`, ...), and where known family, size, non_embedding_params,
            total_params, training_tokens, vocab_size, seq_len, context, num_documents, num_tokens, dtype, sequence,
            bits_per_byte, tie_rate, and standard errors (`ce_se`). None is missing.
        place: where it stands in the file, such as `row 3`, for its faults.
        places: column -> where that value stands, where it is another place.
        metrics: numbers beside the columns, by name.
        ranks: the rank of every scored token, where they are known. Without a result in the columns CE and RBP_k are
            computed from them; else they must give what the columns say.
        repo: the model's id on the hub; empty where it has none.
        format: of the file, such as `table`; the importer's name, if it is empty.
        notes: what a user of these numbers must know.

    """

    columns: Mapping[str, object]
    place: str = ""
    places: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    ranks: RankTable | None = None
    repo: str = ""
    format: str = ""
    notes: str = ""


@dataclass(frozen=True, kw_only=True)
class ImportedScore:
    """A model's score in a task.

    Attributes:
        model: its name, here or there (`EleutherAI/pythia-70m`).
        task: its name.
        score: the share of items that are right, from 0 to 1.
        revision: of the model; empty for the main one.
        n: how many items the task has; None if unknown.
        place: where it stands in the file.

    """

    model: object
    task: object
    score: object
    revision: object = ""
    n: object = None
    place: str = ""


@dataclass(frozen=True)
class Fault:
    """A fault of the file, with its place. All faults are reported together, and nothing is imported.

    Attributes:
        place: such as `line 3, column ce`; empty: the file as a whole.
        text: such as `is not CSV`.

    """

    place: str
    text: str


Imported = ImportedMeasurement | ImportedScore | Fault


@dataclass(kw_only=True)
class Importer(Plugin):
    """Base of importers: the subclass is a dataclass, its fields are options of `import FILE`."""

    @abstractmethod
    def takes(self, file: Peek) -> bool:
        """Return whether this is a file or folder of its format; reads no more than what `file` shows."""

    @abstractmethod
    def read(self, path: Path) -> Iterator[Imported]:
        """Yield the contents of the file or folder, and its faults.

        Raises:
            BadInput: it cannot be read at all.

        """


def not_a_file(path: Path) -> str:
    """Return the reason why a path cannot be read as a file; empty if it can."""
    return "" if path.is_file() else f"is {kind_of(path)}, not a file"
