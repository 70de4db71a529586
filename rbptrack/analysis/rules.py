"""The rules for imported numbers: types, ranges, and relations between the columns of a row."""

from __future__ import annotations

from itertools import pairwise
from math import log
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rbptrack.analysis.input_files import whole_number
from rbptrack.facts import FACTS, Place
from rbptrack.ranks import is_rbp_column, rbp_ks, rbp_name

ROUNDING = 2e-3
"""The largest difference that rounding to three digits may cause, in nats or as a share."""

_CE_FACTOR = 0.95  # CE may be lower by this factor, for example because log-probabilities were rounded to bfloat16
_PERCENT = ("percent", "%")
_SHARE = ("", "share")
_MAX_K = 2**31 - 1
_MAX_CE = 100  # nats. A larger CE comes from a log-probability that stands for minus infinity
RESULTS = ("ce", "ce_rank", "ce_rest", "bits_per_byte", "tie_rate")
_CONDITIONS = [fact.name for fact in FACTS if fact.importable and fact.distinguishes and fact.place is not Place.METRIC]
_UPPER_BOUNDS = {"non_embedding_params": "total_params", "documents": "num_tokens", "context": "seq_len"}


def _refuse_bool_and_underscore(value: object) -> object:
    """Raise ValueError for True, False and texts such as `0_5`, which pydantic would accept as numbers."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        raise ValueError("must be a number")
    return value


def _read_exact_number(value: object) -> object:
    """Convert a text such as `50,304` to a whole number. `50k` stays a text, because it may be a rounded number."""
    return whole_number(value, rounded=False)


def _refuse_control_characters(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not contain control characters")
    return text


_Number = Annotated[float, BeforeValidator(_refuse_bool_and_underscore), Field(allow_inf_nan=False)]
_NonNegative = Annotated[_Number, Field(ge=0)]
_Share = Annotated[_Number, Field(ge=0, le=1)]
_Count = Annotated[
    int, BeforeValidator(whole_number), BeforeValidator(_refuse_bool_and_underscore), Field(ge=1, lt=10**18)
]
_ExactCount = Annotated[
    int, BeforeValidator(_read_exact_number), BeforeValidator(_refuse_bool_and_underscore), Field(ge=1, lt=2**31)
]
_Label = Annotated[
    str, StringConstraints(strip_whitespace=True, max_length=200), AfterValidator(_refuse_control_characters)
]
_Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
    AfterValidator(_refuse_control_characters),
]


class ImportedRow(BaseModel):
    """An imported measurement: its model, dataset and settings, and its results in nats and shares.

    None stands for an unknown value. Further columns are `rbp_<k>` and standard errors, such as `rbp_10_se`. If two of
    `ce`, `ce_rank` and `ce_rest` are known, the third is computed, because `ce` = `ce_rank` + `ce_rest`.
    """

    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True)
    __pydantic_extra__: dict[str, _NonNegative]

    model: _Name
    dataset: _Name
    family: _Name
    size: _Label = ""
    seed: Annotated[int, BeforeValidator(_refuse_bool_and_underscore), Field(ge=0, lt=2**31)] | None = None
    non_embedding_params: _Count | None = None
    total_params: _Count | None = None
    training_tokens: Annotated[_NonNegative, BeforeValidator(whole_number)] | None = None
    revision: _Label | None = None
    weights: _Label | None = None
    vocab_size: _ExactCount | None = None
    seq_len: _ExactCount | None = None
    context: Annotated[int, BeforeValidator(_refuse_bool_and_underscore), Field(ge=0, lt=2**31)] | None = None
    documents: _ExactCount | None = None
    num_tokens: _Count | None = None
    dtype: _Label | None = None
    sequence: _Label | None = None
    candidates: _Label | None = None
    rank: _Label | None = None
    scoring: _ExactCount | None = None
    chat_template: _Label | None = None
    documents_hash: _Label | None = None
    ce: Annotated[_NonNegative, Field(le=_MAX_CE)] | None = None
    ce_rank: _NonNegative | None = None
    ce_rest: _NonNegative | None = None
    bits_per_byte: _NonNegative | None = None
    tie_rate: _Share | None = None

    @property
    def rbp(self) -> dict[int, float]:
        """RBP_k by k, ascending."""
        return {k: self.__pydantic_extra__[rbp_name(k)] for k in rbp_ks(self.__pydantic_extra__)}

    @property
    def conditions(self) -> dict[str, object]:
        """The known facts that distinguish this measurement from others, by name."""
        return {name: getattr(self, name) for name in _CONDITIONS if getattr(self, name) not in (None, "")}

    @property
    def key(self) -> tuple[object, ...]:
        """The values that identify the measurement. Two rows with equal keys are the same measurement."""
        return tuple(getattr(self, name) for name in _CONDITIONS)

    @model_validator(mode="before")
    @classmethod
    def _check_columns(cls, columns: dict[str, object]) -> dict[str, object]:
        for column in columns:
            result = column.removesuffix("_se")
            if column not in cls.model_fields and result not in RESULTS and not is_rbp_column(result):
                raise ValueError(f"the column {column[:40]} cannot be imported")
        return columns

    @model_validator(mode="after")
    def _complete_ce(self) -> Self:
        """Compute a missing `ce`, `ce_rank` or `ce_rest`. Raise ValueError if the three contradict each other."""
        parts = [part for part in (self.ce_rank, self.ce_rest) if part is not None]
        if self.ce is None and len(parts) == 2:
            self.ce = sum(parts)
        if self.ce is None or not parts:
            return self
        remainder = self.ce - sum(parts)
        if remainder < -ROUNDING or (len(parts) == 2 and remainder > ROUNDING):
            raise ValueError(f"ce must be ce_rank + ce_rest: {self.ce:g} is not {sum(parts):g}")
        if self.ce_rank is None:
            self.ce_rank = max(remainder, 0.0)
        if self.ce_rest is None:
            self.ce_rest = max(remainder, 0.0)
        return self

    @model_validator(mode="after")
    def _remove_seed_zero(self) -> Self:
        """Remove the seed 0, because a model without a seed in its name has this seed."""
        self.seed = self.seed or None
        return self

    @model_validator(mode="after")
    def _remove_unused_context(self) -> Self:
        """Remove the context if the sequence rule is not `slide`. Other rules have no context."""
        if self.sequence not in (None, "slide"):
            self.context = None
        return self

    @model_validator(mode="after")
    def _check_rbp(self) -> Self:
        """Raise ValueError if an RBP_k contradicts |V|, another RBP_k or CE."""
        rbp = self.rbp
        largest_k = self.vocab_size or _MAX_K
        bound = f"vocab_size = {largest_k:,}" if self.vocab_size else f"{largest_k:,}"
        for k, share in rbp.items():
            if k > largest_k:
                raise ValueError(f"k must be at most {bound}: {rbp_name(k)[:40]}")
            if share > 1:
                raise ValueError(f"{rbp_name(k)} must be at most 1: {share:g}")
        for low, high in pairwise(rbp):
            if rbp[high] < rbp[low] - 1e-9:
                raise ValueError(f"RBP_k must not fall with k: rbp_{low} is {rbp[low]:g} and rbp_{high} {rbp[high]:g}")
        for k, share in rbp.items():
            # A target with a rank above k has a probability of at most 1 / (k + 1).
            min_ce = _CE_FACTOR * (1 - share - ROUNDING) * log(k + 1)
            if self.ce is not None and self.ce < min_ce:
                raise ValueError(f"ce must be at least {min_ce:.3g} nats if {rbp_name(k)} is {share:g}: {self.ce:g}")
        return self

    @model_validator(mode="after")
    def _check_results(self) -> Self:
        """Raise ValueError if the row has no result, or a standard error without its result."""
        results = {name for name in RESULTS if getattr(self, name) is not None} | {rbp_name(k) for k in self.rbp}
        if self.ce is None and not self.rbp:
            raise ValueError("the row has neither ce nor rbp_<k>")
        for name in self.__pydantic_extra__:
            if name not in results and name.removesuffix("_se") not in results:
                raise ValueError(f"{name[:40]} is a standard error, but the row lacks {name.removesuffix('_se')[:40]}")
        return self

    @model_validator(mode="after")
    def _check_upper_bounds(self) -> Self:
        for name, bound_name in _UPPER_BOUNDS.items():
            value = getattr(self, name)
            bound = getattr(self, bound_name)
            if value is not None and bound is not None and value > bound:
                raise ValueError(f"{name} must be at most {bound_name}: {value:,} and {bound:,}")
        return self


class ScoreRow(BaseModel):
    """A model's score in a task, and the number of items n.

    Without a unit, the score is the share of the task's items that the model solves. A score in percent is converted to
    a share. Any other unit becomes a part of the task's name.
    """

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    model: _Name
    revision: _Label = ""
    unit: Annotated[_Label, AfterValidator(str.lower)] = Field("", exclude=True)
    task: _Name
    score: _Number
    n: _Count | None = None

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
    def key(self) -> tuple[object, ...]:
        """The values that identify the score. Two rows with equal keys are the same score."""
        return (self.model, self.revision, self.task)
