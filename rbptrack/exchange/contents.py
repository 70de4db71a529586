"""What one measurement of a bundle must say: a record with lawful numbers, and files that give these numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError, field_validator

from rbptrack.base import limits
from rbptrack.base.errors import BadInput
from rbptrack.base.names import name_fault
from rbptrack.exchange.faults import Faults
from rbptrack.tracking.file_faults import EXACT, file_faults
from rbptrack.tracking.params import MeasurementParams, param_names
from rbptrack.tracking.record import FILE, Record
from rbptrack.tracking.rules import MeasurementRow, Number, OrNone, fault, faults, shown
from rbptrack.tracking.runs_table import columns_of
from rbptrack.tracking.schema import Kind, Metric, Tag

_KEY = re.compile(r"[/\w.\- :]{1,250}")


def _key(key: str) -> str:
    if not _KEY.fullmatch(key) or any(part in ("", ".", "..") for part in key.split("/")):
        raise fault("must be a name that MLflow takes", key)
    return key


Key = Annotated[str, AfterValidator(_key)]
TagValue = Annotated[str, StringConstraints(max_length=8000)]
ParamValue = Annotated[str, StringConstraints(max_length=6000)]


def _time(value: float) -> float:
    if not 0 <= value <= limits.TIME:
        raise fault("must be seconds since 1970", value)
    return value


Time = Annotated[Number, AfterValidator(_time)]


class _RecordFile(BaseModel):
    """record.json; `rbptrack.tracking.record.Record` explains its fields."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, StringConstraints(max_length=500)]
    tags: dict[Key, TagValue]
    params: dict[Key, ParamValue]
    metrics: dict[Key, Number]
    curves: dict[Literal["rbp_curve", "neg_log_rbp_curve"], dict[OrNone, Number]]
    dataset: dict[Literal["name", "digest", "source", "profile"], Annotated[str, StringConstraints(max_length=60000)]]
    started: Time
    ended: Time

    @field_validator("name")
    @classmethod
    def _printable(cls, name: str) -> str:
        if rule := name_fault(name[:100]):
            raise fault(rule, name)
        return name

    @field_validator("tags")
    @classmethod
    def _of_a_measurement(cls, tags: dict[str, str]) -> dict[str, str]:
        """Return the tags if all are rbptrack's and say that the record is a measurement."""
        foreign = next((tag for tag in tags if not tag.startswith(Tag.PREFIX)), "")
        if foreign:
            raise fault(f"begins with {Tag.PREFIX}", foreign, column="tags")
        if tags.get(Tag.KIND) != Kind.MEASUREMENT:
            raise fault(f"must be {Kind.MEASUREMENT}", tags.get(Tag.KIND, "nothing"), column=f"tags.{Tag.KIND}")
        for tag in (Tag.FINGERPRINT, Tag.RECORD):
            if not tags.get(tag):
                raise fault("must be there", column=f"tags.{tag}")
        return tags

    @field_validator("curves")
    @classmethod
    def _rises(cls, curves: dict[str, dict[int, float]]) -> dict[str, dict[int, float]]:
        """Return the curves if RBP_k is a share that does not fall with k."""
        curve = curves.get(Metric.RBP_CURVE, {})
        values = [curve[k] for k in sorted(curve)]
        if values and (values[0] < 0 or values[-1] > 1 or np.diff(values).min(initial=0) < -EXACT):
            raise fault("must rise with k, within 0 to 1", column=f"curves.{Metric.RBP_CURVE}")
        return curves


def check(folder: Path, fingerprint: str, rules: type[MeasurementRow], problems: Faults) -> None:
    """Note everything that is wrong with an unpacked measurement."""
    where = f"measurement {fingerprint[:12]}"
    path = folder / FILE
    if not path.exists():
        problems.add(where, f"{FILE} is missing")
        return
    before = len(problems)
    try:
        _RecordFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problems.extend(f"{where}, {FILE}", faults(error), noun="key")
        return
    record = Record.read(folder)
    where = f"measurement {fingerprint[:12]} ({record.name})"
    if record.fingerprint != fingerprint:
        problems.add(where, f"it calls itself {shown(record.fingerprint)}")
    try:
        params = MeasurementParams.read(record.params)
        rules.of(columns_of(record, params))
        problems.extend(where, _unclean(record, params), noun="param")
    except ValidationError as error:
        problems.extend(where, faults(error), noun="key")
    except BadInput as error:
        problems.add(where, str(error))
    if len(problems) == before:
        for file, text in file_faults(record, folder, bounded=True):
            problems.add(f"{where}, {file or FILE}", text)


def _unclean(record: Record, params: MeasurementParams) -> Iterator[tuple[str, str]]:
    """Yield params that are whole numbers but not written as such: 50257.0."""
    for attribute, name in param_names().items():
        value = getattr(params, attribute)
        if type(value) is int and record.params[name] != str(value):
            yield name, f"must be a whole number; got {shown(record.params[name])}"
