"""The rules for imported numbers: types, ranges, and relations between the columns of a row."""

from __future__ import annotations

from itertools import pairwise
from math import log
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from rbptrack.analysis.input_files import whole_number
from rbptrack.facts import FACTS, Place
from rbptrack.ranks import is_rbp_column, rbp_ks, rbp_name

ROUNDED = 2e-3
"""The largest difference that rounding to three digits may cause, in nats or as a share."""

_AS_ROUNDED = 0.95  # CE may be lower by this factor, for example from log-probabilities in bfloat16
_MAX_K = 2**31 - 1
_MAX_CE = 100  # in nats. A larger CE comes from a log-probability that stands for minus infinity
_RESULTS = ("ce", "ce_rank", "ce_rest", "bits_per_byte", "tie_rate")
_CONDITIONS = [fact.name for fact in FACTS if fact.importable and fact.decides and fact.place is not Place.METRIC]
_AT_MOST = {"non_embedding_params": "total_params", "documents": "num_tokens", "context": "seq_len"}


def _a_number(value: object) -> object:
    """Reject values that pydantic would accept as numbers, such as True and `0_5`."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        raise ValueError("must be a number")
    return value


def _exact(value: object) -> object:
    """Read a whole number such as 50,304. Reject 50k, which may be rounded."""
    return whole_number(value, rounded=False)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not contain control characters")
    return text


_Number = Annotated[float, BeforeValidator(_a_number), Field(allow_inf_nan=False)]
_Positive = Annotated[_Number, Field(ge=0)]
_Share = Annotated[_Number, Field(ge=0, le=1)]
_Count = Annotated[int, BeforeValidator(whole_number), BeforeValidator(_a_number), Field(ge=1, lt=10**18)]
_Small = Annotated[int, BeforeValidator(_exact), BeforeValidator(_a_number), Field(ge=1, lt=2**31)]
_Label = Annotated[str, StringConstraints(strip_whitespace=True, max_length=200), AfterValidator(_printable)]
_Name = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200), AfterValidator(_printable)
]


class ImportedRow(BaseModel):
    """An imported measurement: its model, dataset and settings, and its results in nats and shares.

    A value of None is unknown. Further columns are `rbp_<k>` and standard errors, such as `rbp_10_se`. If two of `ce`,
    `ce_rank` and `ce_rest` are given, the third is computed, because `ce` = `ce_rank` + `ce_rest`.
    """

    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True)
    __pydantic_extra__: dict[str, _Positive]

    model: _Name
    dataset: _Name
    family: _Name
    size: _Label = ""
    non_embedding_params: _Count | None = None
    total_params: _Count | None = None
    training_tokens: Annotated[_Positive, BeforeValidator(whole_number)] | None = None
    revision: _Label | None = None
    weights: _Label | None = None
    vocab_size: _Small | None = None
    seq_len: _Small | None = None
    context: Annotated[int, BeforeValidator(_a_number), Field(ge=0, lt=2**31)] | None = None
    documents: _Small | None = None
    num_tokens: _Count | None = None
    dtype: _Label | None = None
    sequence: _Label | None = None
    candidates: _Label | None = None
    rank: _Label | None = None
    scoring: _Small | None = None
    chat_template: _Label | None = None
    documents_hash: _Label | None = None
    ce: Annotated[_Positive, Field(le=_MAX_CE)] | None = None
    ce_rank: _Positive | None = None
    ce_rest: _Positive | None = None
    bits_per_byte: _Positive | None = None
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
    def _columns_are_known(cls, columns: dict[str, object]) -> dict[str, object]:
        for column in columns:
            number = column.removesuffix("_se")
            if column not in cls.model_fields and number not in _RESULTS and not is_rbp_column(number):
                raise ValueError(f"the column {column[:40]} cannot be imported")
        return columns

    @model_validator(mode="after")
    def _ce_is_its_parts(self) -> Self:
        """Compute the missing one of `ce`, `ce_rank` and `ce_rest`. Raise ValueError if they contradict each other."""
        parts = [part for part in (self.ce_rank, self.ce_rest) if part is not None]
        if self.ce is None and len(parts) == 2:
            self.ce = sum(parts)
        if self.ce is None or not parts:
            return self
        missing = self.ce - sum(parts)
        if missing < -ROUNDED or (len(parts) == 2 and missing > ROUNDED):
            raise ValueError(f"ce must be ce_rank + ce_rest: {self.ce:g} is not {sum(parts):g}")
        if self.ce_rank is None:
            self.ce_rank = max(missing, 0.0)
        if self.ce_rest is None:
            self.ce_rest = max(missing, 0.0)
        return self

    @model_validator(mode="after")
    def _only_slide_has_context(self) -> Self:
        """Remove the context unless the sequence rule is slide. Other rules do not use it."""
        if self.sequence not in (None, "slide"):
            self.context = None
        return self

    @model_validator(mode="after")
    def _rbp_rises(self) -> Self:
        rbp = self.rbp
        most = self.vocab_size or _MAX_K
        for k, share in rbp.items():
            if k > most:
                raise ValueError(f"k must be at most vocab_size = {most:,}: {rbp_name(k)[:40]}")
            if share > 1:
                raise ValueError(f"{rbp_name(k)} must be at most 1: {share:g}")
        for low, high in pairwise(rbp):
            if rbp[high] < rbp[low] - 1e-9:
                raise ValueError(f"RBP_k must not fall with k: rbp_{low} is {rbp[low]:g} and rbp_{high} {rbp[high]:g}")
        for k, share in rbp.items():
            # A target with a rank above k has a probability of at most 1 / (k + 1).
            least = _AS_ROUNDED * (1 - share - ROUNDED) * log(k + 1)
            if self.ce is not None and self.ce < least:
                raise ValueError(f"ce must be at least {least:.3g} nats if {rbp_name(k)} is {share:g}: {self.ce:g}")
        return self

    @model_validator(mode="after")
    def _errors_have_results(self) -> Self:
        results = {name for name in _RESULTS if getattr(self, name) is not None} | {rbp_name(k) for k in self.rbp}
        if self.ce is None and not self.rbp:
            raise ValueError("the row has neither ce nor rbp_<k>")
        for name in self.__pydantic_extra__:
            if name not in results and name.removesuffix("_se") not in results:
                raise ValueError(f"{name[:40]} is a standard error, but the row lacks {name.removesuffix('_se')[:40]}")
        return self

    @model_validator(mode="after")
    def _parts_are_smaller(self) -> Self:
        for smaller, larger in _AT_MOST.items():
            low = getattr(self, smaller)
            high = getattr(self, larger)
            if low is not None and high is not None and low > high:
                raise ValueError(f"{smaller} must be at most {larger}: {low:,} and {high:,}")
        return self


class ScoreRow(BaseModel):
    """A model's score in a task: the share of the task's items that the model solves."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    model: _Name
    revision: _Label = ""
    task: _Name
    score: _Share
    n: _Count | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """The values that identify the score. Two rows with equal keys are the same score."""
        return (self.model, self.revision, self.task)
