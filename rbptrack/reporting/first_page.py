"""The first page, put together from the leads of all analyses: a table of cells, sentences, and what terms mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan

from rbptrack.analysis.lead import Cell, Lead
from rbptrack.analysis.phrases import upper_first
from rbptrack.ranks import metric_label

_MOST = 6  # sentences


@dataclass(frozen=True)
class Row:
    """One family on one dataset.

    Attributes:
        family: its name.
        dataset: its name.
        cells: by line and metric; under the metric "", the cells of all metrics together.

    """

    family: str
    dataset: str
    cells: Mapping[tuple[str, str], Cell]

    def text(self, line: str, metric: str = "") -> str:
        """Return the text of a line for a metric; empty if it has none."""
        cell = self.cells.get((line, metric))
        return cell.text if cell else ""

    def value(self, line: str, metric: str = "") -> float:
        """Return the number behind it; NaN without one."""
        cell = self.cells.get((line, metric))
        return cell.value if cell else nan


@dataclass(frozen=True)
class FirstPage:
    """What the leads of all analyses come to.

    Attributes:
        rows: a family on a dataset each, in the order of first appearance.
        metrics: the columns.
        lines: those of each metric; first the one that opens rows.
        remarks: lines of all metrics together: columns of their own.
        sentences: by the order of the leads.
        facts: terms of the lines and remarks, and what they mean.

    """

    rows: Sequence[Row] = ()
    metrics: Sequence[str] = ()
    lines: Sequence[str] = ()
    remarks: Sequence[str] = ()
    sentences: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        """The metrics for people."""
        return [metric_label(metric) for metric in self.metrics]


def in_order(leads: Iterable[Lead]) -> list[Lead]:
    """Return leads by their order; those of equal order stay as they come."""
    return sorted(leads, key=lambda lead: lead.order)


def first_page(leads: Iterable[Lead]) -> FirstPage | None:
    """Put the first page together; None where no cell opens a row."""
    ordered = in_order(leads)
    cells = [cell for lead in ordered for cell in lead.cells]
    opening = [cell for cell in cells if cell.opens]
    if not opening:
        return None
    places = dict.fromkeys((cell.family, cell.dataset) for cell in opening)
    metrics = list(dict.fromkeys(cell.metric for cell in opening))
    shown = [c for c in cells if (c.family, c.dataset) in places and c.metric in ("", *metrics) and c.text]
    rows = [
        Row(family, dataset, {(c.line, c.metric): c for c in shown if (c.family, c.dataset) == (family, dataset)})
        for family, dataset in places
    ]
    lines = list(dict.fromkeys(cell.line for cell in [*opening, *shown] if cell.metric))
    remarks = list(dict.fromkeys(cell.line for cell in shown if not cell.metric))
    facts = {term: meaning for lead in ordered for term, meaning in lead.facts.items() if term in (*lines, *remarks)}
    sentences = [upper_first(lead.sentence) for lead in ordered if lead.sentence][:_MOST]
    return FirstPage(rows, metrics, lines, remarks, sentences, facts)
