"""What a field of a measurement can be: its part in the document, and the type of its value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import pandas as pd
from pydantic import AfterValidator, Field, StringConstraints

from rbptrack.base.formatting import compact, short_hash
from rbptrack.base.secrets import without_password

MAX_TEXT_LENGTH = 5000
"""The largest number of characters of a text. MLflow cuts params at 6,000 and tags at 8,000 characters."""

_MAX_ROUNDING = 0.02  # nats; log-probabilities of a server may be rounded to bfloat16
_MAX_CE = 100  # nats. A larger CE comes from a log-probability that stands for minus infinity


class Subject(Enum):
    """What a field describes. The value is a heading in the documentation."""

    MODEL = "The model"
    TEXTS = "The texts"
    METHOD = "How it was measured"
    RESULT = "Results"
    RUN = "The run"


class Within(Enum):
    """The runs that must have equal values of a field."""

    NOTHING = ""
    LAW = "law"  # all runs of one law
    POINT = "point"  # all runs of one size in a law; they are summed into one point of the fit


@dataclass(frozen=True)
class Part:
    """What a field of a measurement is. The subclasses say where it belongs.

    Attributes:
        subject: what the field describes.
        meaning: a phrase for the documentation. It names the unit.
        within: the runs that must have equal values.
        same_tokens: whether measurements that scored the same tokens in the same way have equal values.
        importable: whether a table of results may contain the field.
        determined_by: fields that usually cause a difference in this field. If runs differ in one of them too, a
            message about these runs does not name this field.
        prefix: text before the value in the name of a part of a family. The prefix `seq_len ` gives the name
            `pythia seq_len 512`.
        missing: the word for a missing value.
        is_hash: whether the value is a hash. Only its first 8 characters are shown.
        of_model: whether the field describes the model, so that MLflow's LoggedModel has it, too.

    """

    subject: Subject
    meaning: str
    within: Within = Within.NOTHING
    same_tokens: bool = False
    importable: bool = False
    determined_by: tuple[str, ...] = ()
    prefix: str = ""
    missing: str = "unknown"
    is_hash: bool = False
    of_model: bool = False

    def format_value(self, value: Any) -> str:
        """Format a value for names and notes: 8 characters of a hash, `2.1B` for a large float."""
        if pd.isna(value) or value == "":
            return self.missing
        if self.is_hash:
            return short_hash(str(value))
        return compact(value) if isinstance(value, float) else str(value)


class Label(Part):
    """A name that people give. It is not a part of the fingerprint, and `verify` does not compare it."""


class Key(Part):
    """A setting that determines the numbers of a measurement."""


class Fact(Part):
    """A description that follows from the keys, or that says how the measurement was made."""


class Result(Part):
    """A measured number."""


def _check_text(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not contain control characters")
    if without_password(text) != text:
        raise ValueError("must not hold a password or a key")
    return text


Text = Annotated[str, StringConstraints(max_length=MAX_TEXT_LENGTH), AfterValidator(_check_text)]
"""A text of one line. An empty text stands for an unknown value."""

Name = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200), AfterValidator(_check_text)
]
"""A name of a family or dataset."""

Repository = Annotated[str, StringConstraints(pattern=r"^([\w.-]+(/[\w.-]+)?)?$", max_length=200)]
"""The name of a repository on the Hugging Face Hub, or an empty text."""

Count = Annotated[int, Field(ge=1, lt=10**18)]
SmallCount = Annotated[int, Field(ge=1, lt=2**31)]
Share = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
WholeNumber = Annotated[int, Field(ge=0, lt=2**31)]
CrossEntropy = Annotated[float, Field(ge=0, le=_MAX_CE)]
Rest = Annotated[float, Field(ge=-_MAX_ROUNDING)]
