"""What a finding's class puts on the first page of a report: cells of its table, a sentence, a drawing, definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan

LAST = 100  # place of what asks for none


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of the first page: text to show, numbers to sort and to draw.

    Attributes:
        line: what it says of a family on a dataset, such as its exponent; cells of one line stand in one row.
        text: as people read it.
        family: its row; with a dataset.
        dataset: its row.
        metric: its column, such as `rbp_10`; empty for all metrics together.
        value: the number behind the text.
        low: lower end of its interval.
        high: upper end.
        verdict: of the finding.
        opens: whether it makes a row and a column; other cells are shown only in those that are there.

    """

    line: str
    text: str
    family: str = ""
    dataset: str = ""
    metric: str = ""
    value: float = nan
    low: float = nan
    high: float = nan
    verdict: str = ""
    opens: bool = False


@dataclass(frozen=True, kw_only=True)
class Lead:
    """The part that the findings of one question have in the first page.

    Attributes:
        cells: of its table.
        sentence: the result in one sentence.
        order: place of the sentence, and of the analyzer's section; the smallest first.
        drawing: the name of a drawing of the report that belongs on the first page.
        facts: terms of the cells, and what they mean.

    """

    cells: Sequence[Cell] = ()
    sentence: str = ""
    order: int = LAST
    drawing: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
