"""Rows of tables: dataclasses whose annotated fields say what each column means, is called, and how it is written.

An analyzer has a class for each of its tables:

    @dataclass(kw_only=True)
    class LawRow(OfMetric):                       # dataset, family, metric
        alpha: Exponent                           # alpha, alpha_low, alpha_high: an Interval fills three columns
        sizes: Annotated[int, Column("number of sizes m")]
        share: Annotated[float, Column("of the windows", title="share", form=".1%")] = nan

    report.add_rows("laws", rows)                 # tables/laws.csv: the fields in their order
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import pandas as pd

from rbptrack.stats.intervals import Interval

if TYPE_CHECKING:
    from rbptrack.stats.power_law import PowerLawFit


@dataclass(frozen=True)
class Column:
    """What a column of a table holds.

    Attributes:
        meaning: a phrase, shown below the table.
        title: above the column on the page; by default its name in words (`alpha_low` belongs to `alpha` and has none).
        unit: after the title: `nats`.
        form: how a number is written: a format (`.3f`, `.1%`), `short` (15.2k), or by default as its column needs.
        low: of an `Interval`, the meaning of its lower end.
        bare: of an `Interval`, that its ends are the columns `low` and `high`.

    """

    meaning: str
    title: str = ""
    unit: str = ""
    form: str = ""
    low: str = "lower end of its interval"
    bare: bool = False

    @property
    def heading(self) -> str:
        """Title and unit; empty where neither is given."""
        return ", ".join(filter(None, [self.title, self.unit]))


UNKNOWN = Interval(float("nan"))
NonEmbedding = Annotated[float, Column("non-embedding parameters", title="S", form="short")]
K = Annotated[int, Column("of RBP_k")]
P = Annotated[float, Column("two-sided p", title="p", form=".3g")]
Corrected = Annotated[float, Column("p, corrected over all cases of the question (Holm)", "p, corrected", form=".3g")]
Alpha = Annotated[float, Column("exponent of the law in size", title="α", form=".3f")]
Exponent = Annotated[Interval, Column("exponent of the law in size", title="α", form=".3f")]
Low = Annotated[float, Column("lower end of its interval")]
High = Annotated[float, Column("upper end")]
R2 = Annotated[float, Column("R^2 of that law on logarithms", title="R²", form=".3f")]


@dataclass(kw_only=True)
class OfFamily:
    """A row about a family on a dataset: `OfFamily(**family.keys)`."""

    dataset: Annotated[str, Column("the dataset")]
    family: Annotated[str, Column("the family; with what sets this part apart where its runs disagree")]

    def case(self, **more: str) -> dict[str, str]:
        """Return the case of a finding about this row."""
        return {"dataset": self.dataset, "family": self.family, **more}


@dataclass(kw_only=True)
class OfMetric(OfFamily):
    """A row about one metric of a family on a dataset."""

    metric: Annotated[str, Column("CE or RBP_k")]


@dataclass(kw_only=True)
class OfSize(OfFamily):
    """A row about one size of a family on a dataset: `OfSize(**family.size_keys[i])`."""

    size: Annotated[str, Column("the size as published")]
    S: NonEmbedding


def exponent(law: PowerLawFit | None) -> Interval:
    """Return the exponent of a law and its interval; unknown without a law."""
    return law.exponent if law else UNKNOWN


def columns_of(row: type[Any]) -> Mapping[str, Column]:
    """Return the columns of a row's class, in the order of its fields.

    Raises:
        TypeError: a field has no `Column`: a fault of the analyzer.

    """
    columns: dict[str, Column] = {}
    for name, (column, is_interval) in _fields(row).items():  # type: ignore[arg-type]
        columns[name] = column
        if is_interval:
            low, high = _ends(name, column)
            columns |= {low: Column(column.low), high: Column("upper end")}
    return columns


def cells_of(row: Any) -> dict[str, Any]:
    """Return column -> value of one row; a code (an Enum) is written as its value."""
    cells: dict[str, Any] = {}
    for name, (column, is_interval) in _fields(type(row)).items():  # type: ignore[arg-type]
        value = getattr(row, name)
        if is_interval:
            low, high = _ends(name, column)
            cells |= {name: value.value, low: value.low, high: value.high}
        else:
            cells[name] = value.value if isinstance(value, Enum) else value
    return cells


def frame_of(rows: Iterable[Any]) -> tuple[pd.DataFrame, Mapping[str, Column]]:
    """Return rows of one class as a table, and its columns."""
    every = list(rows)
    if not every:
        return pd.DataFrame(), {}
    columns = columns_of(type(every[0]))
    rows = list(map(cells_of, every))
    return pd.DataFrame({name: [row[name] for row in rows] for name in columns}), columns


@cache
def _fields(row: Any) -> Mapping[str, tuple[Column, bool]]:
    """Return each field's `Column`, and whether it is an `Interval`."""
    hints = get_type_hints(row, include_extras=True)
    columns = {}
    for name in (f.name for f in fields(row)):
        column = next(
            (annotation for annotation in getattr(hints[name], "__metadata__", ()) if isinstance(annotation, Column)),
            None,
        )
        if column is None:
            raise TypeError(f"{row.__name__}: no Column says what {name} means")
        columns[name] = column, hints[name].__origin__ is Interval
    return columns


def _ends(name: str, column: Column) -> tuple[str, str]:
    return ("low", "high") if column.bare else (f"{name}_low", f"{name}_high")
