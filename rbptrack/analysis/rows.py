"""Rows of tables: dataclasses whose annotated fields say what each column means, is called, and how it is written.

@dataclass(kw_only=True)
class LawRow(OfMetric):                       # dataset, family, metric
alpha: Alpha                              # a column that means the same in every table
alpha_low: Low
alpha_high: High
sizes: Annotated[int, Column("number of sizes m")]
share: Annotated[float, Column("of the windows", title="share", form=".1%")] = nan

report.add_rows("laws", rows)                 # tables/laws.csv: the fields in their order
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Annotated, Any, get_type_hints

import pandas as pd


@dataclass(frozen=True)
class Column:
    """What a column of a table holds.

    Attributes:
        meaning: a phrase, shown below the table.
        title: above the column on the page; by default its name in words (`alpha_low` belongs to `alpha` and has none).
        unit: after the title: `nats`.
        form: how a number is written: a format (`.3f`, `.1%`), `short` (15.2k), or by default as its column needs.

    """

    meaning: str
    title: str = ""
    unit: str = ""
    form: str = ""

    @property
    def heading(self) -> str:
        """Title and unit; empty where neither is given."""
        return ", ".join(filter(None, [self.title, self.unit]))


NonEmbedding = Annotated[float, Column("non-embedding parameters", title="S", form="short")]
K = Annotated[int, Column("of RBP_k")]
P = Annotated[float, Column("two-sided p", title="p", form=".3g")]
Corrected = Annotated[float, Column("p, corrected over all cases of the question (Holm)", "p, corrected", form=".3g")]
Alpha = Annotated[float, Column("exponent of the law in size", title="α", form=".3f")]
Low = Annotated[float, Column("lower end of its interval")]
High = Annotated[float, Column("upper end")]
R2 = Annotated[float, Column("R^2 of that law on logarithms", title="R²", form=".3f")]


@dataclass(kw_only=True)
class OfFamily:
    """A row about a family on a dataset: `OfFamily(**family.keys)`."""

    dataset: Annotated[str, Column("the dataset")]
    family: Annotated[str, Column("the family; with what sets this part apart where its runs disagree")]


@dataclass(kw_only=True)
class OfMetric(OfFamily):
    """A row about one metric of a family on a dataset."""

    metric: Annotated[str, Column("CE or RBP_k")]


@dataclass(kw_only=True)
class OfSize(OfFamily):
    """A row about one size of a family on a dataset: `OfSize(**family.size_keys[i])`."""

    size: Annotated[str, Column("the size as published")]
    S: NonEmbedding


def columns_of(row: type) -> dict[str, Column]:
    """The columns of a row's class, in the order of its fields.

    Raises:
        TypeError: a field has no `Column`: a fault of the analyzer.

    """
    hints = get_type_hints(row, include_extras=True)
    found = {f.name: next(filter(_is_column, getattr(hints[f.name], "__metadata__", ())), None) for f in fields(row)}
    without = [name for name, column in found.items() if column is None]
    if without:
        raise TypeError(f"{row.__name__}: no Column says what {', '.join(without)} means")
    return {name: column for name, column in found.items() if column is not None}


def frame_of(rows: Iterable[Any]) -> tuple[pd.DataFrame, Mapping[str, Column]]:
    """Rows of one class as a table, and its columns; a code (an Enum) is written as its value."""
    every = list(rows)
    if not every:
        return pd.DataFrame(), {}
    columns = columns_of(type(every[0]))
    cells = {name: [_cell(getattr(row, name)) for row in every] for name in columns}
    return pd.DataFrame(cells), columns


def _is_column(one: object) -> bool:
    return isinstance(one, Column)


def _cell(value: object) -> object:
    return value.value if isinstance(value, Enum) else value
