"""record.json: the content of a run with the hashes of its files. Its hash is the seal of the run.

record.json is written last. A folder with record.json is therefore complete on disk, and can be delivered to a store. A
folder without it is unfinished.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from rbptrack.base.errors import BadInput, MissingArtifact
from rbptrack.base.files import read_regular, sha256, sync, write_whole
from rbptrack.base.validation import broken_rules
from rbptrack.measurement.document import CURVE, Measurement
from rbptrack.measurement.files import RECORD_FILE, SEAL_FILE

_NOT_ARTIFACTS = (RECORD_FILE, "store.json")  # hidden files, such as SEAL_FILE, are no artifacts either

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 (hex)."""

FileName = Annotated[str, Field(pattern=r"^[^/\p{Cc}]{1,255}$")]
"""The name of a file in the folder of a run, without a path."""


class _Sealed(BaseModel):
    """Base class of the contents of record.json.

    Attributes:
        files: the SHA-256 of each artifact, by name.
        began: when the measurement or report began, in seconds since 1970.
        ended: when it ended, in seconds since 1970.

    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    files: dict[FileName, Digest] = {}
    began: Annotated[float, Field(ge=0, lt=2**40)] = Field(default_factory=time.time)
    ended: Annotated[float, Field(ge=0, lt=2**40)] = 0.0

    def write(self, folder: Path) -> str:
        """Write record.json with the hashes of all files that are in a folder. Returns its seal.

        The files and the seal are on the disk before record.json is written.
        """
        self.ended = self.ended or time.time()
        artifacts = []
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.name not in _NOT_ARTIFACTS and not path.name.startswith("."):
                artifacts.append(path)
        self.files = {path.name: sha256(path) for path in artifacts}
        for path in artifacts:
            sync(path)
        content = self.model_dump_json(indent=1).encode()
        seal = record_seal(content)
        write_whole(folder / SEAL_FILE, seal)
        write_whole(folder / RECORD_FILE, content)
        return seal


class MeasurementRecord(_Sealed):
    """The content of record.json of a measurement. The labels of the run may change later."""

    kind: Literal["measurement"] = "measurement"
    measurement: Measurement

    @property
    def title(self) -> str:
        return self.measurement.title

    @property
    def fingerprint(self) -> str:
        """The hash of everything that determines the numbers."""
        return self.measurement.fingerprint

    @property
    def tags(self) -> dict[str, str]:
        return self.measurement.tags()

    @property
    def params(self) -> dict[str, str]:
        return self.measurement.params()

    @property
    def metrics(self) -> dict[str, float]:
        return self.measurement.metrics()

    @property
    def curves(self) -> dict[str, dict[int, float]]:
        return {CURVE: self.measurement.rbp_curve} if self.measurement.rbp_curve else {}


class ReportRecord(_Sealed):
    """The content of record.json of a sweep, an analysis or scores.

    Attributes:
        title: the name of the run.
        tags: the tags of the run.
        params: the params of the run.
        metrics: the metrics of the run.
        covered_run_ids: the run IDs of the measurements that the sweep or analysis used.

    """

    kind: Literal["report"] = "report"
    title: str
    tags: dict[str, str] = {}
    params: dict[str, str] = {}
    metrics: dict[str, float] = {}
    covered_run_ids: list[str] = []

    curves: ClassVar[dict[str, dict[int, float]]] = {}


Record = MeasurementRecord | ReportRecord
"""The content of record.json. `curves` holds the metrics with several values: the values by step, by name."""

_RECORDS: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="kind")])


def parse_record(content: bytes) -> Record:
    """Parse the content of record.json. Raises MissingArtifact if it is not JSON, or if a value breaks a rule."""
    try:
        return _RECORDS.validate_json(content, strict=True)
    except ValidationError as error:
        raise MissingArtifact(f"{RECORD_FILE} is damaged: {next(broken_rules(error)).sentence}") from error


def parse_measurement(content: bytes) -> MeasurementRecord:
    """Parse the record.json of a measurement. Raises MissingArtifact as `parse_record`, and for a report's record."""
    record = parse_record(content)
    if not isinstance(record, MeasurementRecord):
        raise MissingArtifact(f"{RECORD_FILE} is not the record of a measurement")
    return record


def read_measurement(folder: Path) -> MeasurementRecord:
    """Read the record of a measurement in a folder.

    Raises MissingArtifact if it is damaged, and OSError if it cannot be read.
    """
    return parse_measurement(read_record(folder / RECORD_FILE))


def read_record(path: Path) -> bytes:
    """Return the content of record.json.

    Raises MissingArtifact if it is not a regular file, and OSError if it cannot be read.
    """
    try:
        return read_regular(path)
    except BadInput as error:
        raise MissingArtifact(str(error)) from error


def record_seal(content: bytes) -> str:
    """Return the seal of a record: the SHA-256 (hex) of the content of record.json."""
    return hashlib.sha256(content).hexdigest()
