"""Check the rows of imported scores."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rbptrack.analysis.importing import ImportedScore
from rbptrack.analysis.model_names import plain_name
from rbptrack.exchange.values import drop_missing, to_number
from rbptrack.measurement.parts import Count, Name, Text

_PERCENT = ("percent", "%")
_SHARE = ("", "share")


class ScoreRow(BaseModel):
    """A model's score in a task, and the number of items n.

    Without a unit, the score is the share of the task's items that the model solves. A score in percent is converted to
    a share. Any other unit becomes a part of the task's name.
    """

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True, allow_inf_nan=False)

    model: Name
    revision: Text = ""
    unit: Annotated[Text, AfterValidator(str.lower)] = Field("", exclude=True)
    task: Name
    score: Annotated[float, BeforeValidator(lambda value: to_number("score", value))]
    n: Annotated[Count | None, BeforeValidator(lambda value: to_number("n", value))] = None

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
    def key(self) -> tuple[str, ...]:
        """The values that identify the score. Two rows with equal keys are the same score."""
        return (self.model, self.revision, self.task)

    @property
    def name(self) -> str:
        """The key as one text."""
        return " ".join(filter(None, self.key))


def check_score(item: ImportedScore) -> ScoreRow:
    """Check the columns of a score. Raises ValidationError if a column breaks a rule."""
    columns = drop_missing(item.columns)
    if isinstance(model := columns.get("model"), str):
        columns["model"], commit = plain_name(model)
        if commit:
            columns.setdefault("revision", commit)
    if columns.get("revision") == "main":
        del columns["revision"]
    return ScoreRow.model_validate(columns)
