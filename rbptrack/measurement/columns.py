"""The columns of `Runs.frame`, and the fields in which measurements must agree. Both follow from `Measurement`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pandas as pd

from rbptrack.measurement.document import PARTS, SCALAR_FIELDS, Measurement, names_of
from rbptrack.measurement.parts import Fact, Key, Label, Part, Result, Subject, Within

_DTYPES = {str: "string", int: "Int64", float: "Float64", bool: "boolean", datetime: "datetime64[us, UTC]"}


def _plain_type(annotation: Any) -> type:
    """Return the plain type of an annotation, such as int for `Annotated[int, ...] | None`."""
    origin = get_origin(annotation)
    if origin is Annotated or origin is Union or origin is UnionType:
        return _plain_type(get_args(annotation)[0])
    plain: type = annotation
    return plain


OF_RUN: Mapping[str, Part] = {
    "run_id": Fact(Subject.RUN, "MLflow's ID of the run", is_hash=True),
    "started": Fact(Subject.RUN, "time at which the measurement began"),
    "fingerprint": Fact(Subject.RUN, "hash of all keys: everything that determines the numbers", is_hash=True),
    "model": Label(Subject.MODEL, "name from family, size, seed and checkpoint, such as `pythia-70m@step1000`"),
}
"""Columns that are not fields of a measurement: they follow from it, or MLflow knows them."""

COLUMN_PARTS: Mapping[str, Part] = {**OF_RUN, **{name: PARTS[name] for name in SCALAR_FIELDS}}
"""The part of each column of `Runs.frame`, except rbp_<k> and rbp_<k>_se."""

DTYPE_BY_COLUMN: Mapping[str, str] = {
    **dict.fromkeys(OF_RUN, "string"),
    "started": _DTYPES[datetime],
    **{name: _DTYPES[_plain_type(Measurement.model_fields[name].annotation)] for name in SCALAR_FIELDS},
}
"""The columns of `Runs.frame` and their types. `Runs` adds `name` in front, and rbp_<k> and rbp_<k>_se at the end."""

LAW_COLUMNS = tuple(name for name, part in PARTS.items() if part.within is Within.LAW)
"""Columns in which all runs of one law must have equal values."""

POINT_COLUMNS = tuple(name for name, part in PARTS.items() if part.within is Within.POINT)
"""Columns in which all runs of one size of a law must have equal values."""

SAME_TOKENS_COLUMNS = tuple(name for name, part in PARTS.items() if part.same_tokens)
"""Columns in which measurements of the same tokens have equal values."""

IMPORTABLE_COLUMNS = tuple(name for name in SCALAR_FIELDS if PARTS[name].importable)
"""Columns that a table of results may contain, in addition to `model`, rbp_<k> and rbp_<k>_se."""

WEIGHTS_COLUMNS = ("commit", "imported_as")
"""Columns that say which weights were measured. Imported measurements have names instead of a commit."""

_DISTINGUISHING = [
    name
    for name, part in PARTS.items()
    if not isinstance(part, Result) and (isinstance(part, Label | Key) or part.within is not Within.NOTHING)
] + ["reference"]

SAME_RANKS_COLUMNS = tuple(
    dict.fromkeys(
        name
        for name in (*_DISTINGUISHING, *SAME_TOKENS_COLUMNS)
        # Groups and references do not change ranks. The hash of the documents stands for their origin.
        if name not in ("group", "reference", "reference_commit", "reference_dtype", "texts")
    )
)
"""Columns in which measurements with the same ranks have equal values."""

DISTINGUISHING_COLUMNS = tuple(sorted(_DISTINGUISHING, key=lambda name: PARTS[name].is_hash))
"""Columns that distinguish measurements, in their order in names. Hashes are last, because they say the least."""


def labels_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the labels of each row of `Runs.frame`. Missing labels get the default of their field."""
    rows = []
    for row in frame[list(names_of(Label))].astype(object).to_dict("records"):
        labels: dict[str, Any] = {}
        for name, value in row.items():
            labels[str(name)] = Measurement.model_fields[str(name)].default if pd.isna(value) else value
        rows.append(labels)
    return rows
