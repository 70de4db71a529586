"""What a measurement's row must satisfy: the schema of everything imported, and of every run that is read.

A run of the store may have been written by hand or by an older version, and a table by anybody; both become a
`MeasurementRow` before any analyzer sees them. pydantic does the checking; the sentences are ours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, field_validator
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidationInfo

from rbptrack.base.names import name_fault
from rbptrack.ranks import ABOVE_ZERO, is_rbp_column, parse_rbp_name, se_name

LARGEST_COUNT = 10**18  # fits into 64 bits
LARGEST_VOCABULARY = 2**31 - 1  # ranks are stored in 32 bits
_LARGEST = 1e300  # MLflow stores an infinity as 1.8e308
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WORDS = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_ROUNDING = 1e-9  # of shares: RBP_k may fall by no more from one k to the next


def shown(value: object) -> str:
    """Return a value in a message: quoted where it is text, and cut where it is long."""
    text = value if isinstance(value, str) else str(value)[:1000]
    short = text if len(text) <= 60 else f"{text[:40]}... ({len(text):,} characters)"
    return repr(short) if isinstance(value, str) else short


def fault(rule: str, value: object = None, *, column: str = "") -> PydanticCustomError:
    """Return the error for a value that breaks a rule; a column is given where the rule is about several."""
    text = rule if value is None else f"{rule}; got {shown(value)}"
    return PydanticCustomError("rule", "{said}", {"said": text, "column": column})


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise fault("expected a number", value)
    if isinstance(value, str) and not _DECIMAL.fullmatch(value.strip()):
        raise fault("must be finite" if _WORDS.fullmatch(value.strip()) else "expected a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not abs(number) < _LARGEST:
        raise fault("must be finite", value)
    return number


def _not_negative(value: object) -> float:
    if (number := _number(value)) < 0:
        raise fault("must not be negative", value)
    return number


def _nats(value: object) -> float:
    """Return a cross-entropy; a sure model's of version 0.1 may be a little below 0, and is 0."""
    number = _number(value)
    return 0.0 if -ABOVE_ZERO <= number < 0 else _not_negative(value)


def _share(value: object) -> float:
    if not 0 <= (number := _number(value)) <= 1:
        raise fault("must be between 0 and 1", value)
    return number


def whole(least: int, most: int) -> Callable[[object], int]:
    """Return a check for whole numbers from least to most, which a text gives as digits and nothing else."""

    def check(value: object) -> int:
        rule = f"must be a whole number from {least} to {most:,}" if least == 0 else "must be a whole number above 0"
        digits = isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value.strip(), re.ASCII)
        if isinstance(value, str) and not digits:
            raise fault(rule, value)  # 50257.0 was a whole number before it became a float
        if isinstance(value, bool) or (number := _number(value)) != int(number) or number < least:
            raise fault(rule, value)
        if number > most:
            raise fault(f"must be at most {most:,}", value)
        return int(value)  # type: ignore[call-overload, no-any-return]

    return check


def _name(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # a size label of digits in a Parquet file
    if not isinstance(value, str):
        raise fault("expected a name", value)
    if rule := name_fault(value):
        raise fault(rule, value)
    return value.strip()


def _label(value: object) -> str:
    return "" if value == "" else _name(value)


Number = Annotated[float, BeforeValidator(_number)]
NotNegative = Annotated[float, BeforeValidator(_not_negative)]
Nats = Annotated[float, BeforeValidator(_nats)]
Share = Annotated[float, BeforeValidator(_share)]
Count = Annotated[int, BeforeValidator(whole(1, LARGEST_COUNT))]
Small = Annotated[int, BeforeValidator(whole(1, LARGEST_VOCABULARY))]
OrNone = Annotated[int, BeforeValidator(whole(0, LARGEST_VOCABULARY))]
Name = Annotated[str, BeforeValidator(_name)]
Label = Annotated[str, BeforeValidator(_label)]

RESULT = "result"
"""Marks a field of `MeasurementRow` that every run measures beside RBP_k."""


class MeasurementRow(BaseModel):
    """One measurement as a row: who and what it is of, and its numbers. None: not known.

    `rbp` holds RBP_k, and `errors` standard errors, by the names of their columns (`rbp_10`, `rbp_10_se`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: Name
    model: Name
    family: Name
    size: Label = ""
    non_embedding_params: Count | None = None
    total_params: Count | None = None
    training_tokens: NotNegative | None = None
    vocab_size: Small | None = None
    seq_len: Small | None = None
    context: OrNone | None = None
    num_documents: Small | None = None
    num_tokens: Count | None = None
    dtype: Label | None = None
    sequence: Label | None = None
    ce: Annotated[Nats | None, RESULT] = None
    ce_rank: Annotated[Nats | None, RESULT] = None
    ce_rest: Annotated[Number | None, RESULT] = None
    bits_per_byte: Annotated[Nats | None, RESULT] = None
    tie_rate: Annotated[Share | None, RESULT] = None
    rbp: dict[str, Share] = {}
    errors: dict[str, NotNegative] = {}

    @classmethod
    def of(cls, columns: Mapping[str, object]) -> Self:
        """Check a row given as column -> value; a missing value is None. Raises ValidationError."""
        given: dict[str, Any] = {"rbp": {}, "errors": {}}
        for column, value in columns.items():
            if value is None:
                continue
            if column.endswith("_se"):
                given["errors"][column] = value
            elif is_rbp_column(column) or column.startswith("rbp_"):
                given["rbp"][column] = value
            else:
                given[column] = value
        return cls.model_validate(given)

    @field_validator("rbp")
    @classmethod
    def _rises(cls, rbp: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        """Return RBP_k by column if each k is one of 1..|V| and RBP_k does not fall with k."""
        size = info.data.get("vocab_size") or LARGEST_VOCABULARY
        by_k: dict[int, float] = {}
        for name, value in rbp.items():
            k = parse_rbp_name(name)
            if k is None:
                raise fault("k must be a whole number above 0, as in rbp_10", name, column=name)
            if k > size:
                raise fault(f"k must be at most vocab_size = {size:,}", name, column=name)
            by_k[k] = value
        ordered = sorted(by_k)
        for low, high in pairwise(ordered):
            if by_k[high] < by_k[low] - _ROUNDING:
                text = f"RBP_k must not fall with k, but rbp_{low} is {by_k[low]:g}"
                raise fault(text, by_k[high], column=f"rbp_{high}")
        return rbp

    def columns(self) -> dict[str, Any]:
        """Return the row as column -> value again, with every value of its type."""
        flat = {name: getattr(self, name) for name in type(self).model_fields if name not in ("rbp", "errors")}
        return flat | self.rbp | self.errors


RESULTS = tuple(name for name, about in MeasurementRow.model_fields.items() if RESULT in about.metadata)
"""What every run measures beside RBP_k, by the names of its metrics; each is a column of the runs."""


def is_result(metric: str) -> bool:
    """Return whether a metric is a number that others may have computed: CE, RBP_k and the like, or a standard
    error.
    """
    results = (*RESULTS, "num_tokens")
    return is_rbp_column(metric) or metric in results or metric in map(se_name, results)


def _revision(value: object) -> str:
    return "" if value is None or value == "" else _name(value)


class ScoreRow(BaseModel):
    """A model's score in a task: the share of its items that are right."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Name
    task: Name
    score: Share
    revision: Annotated[str, BeforeValidator(_revision)] = ""
    n: Count | None = None

    @classmethod
    def of(cls, **columns: object) -> Self:
        """Check a score; a missing value is None. Raises ValidationError."""
        return cls.model_validate({name: value for name, value in columns.items() if value is not None})


def faults(error: ValidationError) -> Iterator[tuple[str, str]]:
    """Yield column (or key) and sentence of every fault that pydantic found."""
    for detail in error.errors(include_url=False):
        path = [str(part) for part in detail["loc"] if part != "[key]"]
        context = detail.get("ctx", {})
        column = context.get("column") or ".".join(path[1:] if path[:1] in (["rbp"], ["errors"]) else path)
        if detail["type"] == "rule":
            yield column, str(context["said"])
        elif detail["type"] == "missing":
            yield column, "is missing"
        elif detail["type"] == "extra_forbidden":
            yield column, "is unknown"
        elif detail["type"] == "json_invalid":
            yield column, str(detail["msg"])
        else:
            yield column, f"{detail['msg'][:1].lower()}{detail['msg'][1:]}; got {shown(detail['input'])}"
