"""Measurements and reports with what a notebook wants of them: figures, comparisons, parts by name, HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Self

from rbptrack.analysis.comparison import Comparison, compare
from rbptrack.analysis.contract import Report
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import unknown
from rbptrack.ranks import HEADLINE_KS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class ShownRuns(Runs):
    """Measurements that draw and compare themselves."""

    @classmethod
    def of(cls, runs: Runs) -> Self:
        """Return the same measurements, with the methods of this class."""
        shown = cls.__new__(cls)
        vars(shown).update(vars(runs))
        return shown

    def compare(self, a: str, b: str, *, k: int | Sequence[int] = HEADLINE_KS, level: float = 0.95) -> Comparison:
        """Compare two measurements of the same tokens, as `python -m rbptrack compare A B` does.

        Args:
            a: the first, by name or run ID: the baseline.
            b: the second.
            k: of RBP_k, one or several.
            level: nominal coverage of the intervals.

        Raises:
            BadInput: a name is unknown, or the two did not score the same tokens.

        """
        return compare(self, a, b, ks=several(k), level=level)

    def plot(self, k: int | Sequence[int] = 10) -> Figure:
        """Return a matplotlib figure of -ln RBP_k against size, with a law per family: a panel per dataset, a row per
        k.

        Raises:
            BadInput: a k is below 1 or above |V|, or no measurement has a size S.

        """
        from rbptrack.analysis.run_figures import draw_against_size

        return draw_against_size(self, several(k))


def several(k: int | Sequence[int]) -> list[int]:
    """Return the k as a list, one or several as they were given."""
    return [k] if isinstance(k, int) else list(k)


class ShownReport(Report):
    """A report that a notebook displays: its sentences, figures and tables."""

    title: str = ""

    def __getitem__(self, name: str) -> pd.DataFrame | Figure:
        """Return a table as a DataFrame, or a drawing as a matplotlib figure, by its name; BadInput for another."""
        if name in self.tables:
            return self.tables[name].frame
        if name in self.drawings:
            return self.drawings[name].figure
        raise unknown("table or drawing", name, [*self.tables, *self.drawings])

    def __repr__(self) -> str:
        """Show the question, the sentences, and the names of the contents."""
        held = (f"{what}: {', '.join(names)}" for what, names in (("tables", self.tables), ("drawings", self.drawings)))
        return "\n".join([self.title, *self.notes, *held])

    def _repr_html_(self) -> str:
        from rbptrack.analysis.figures import svg_for_cell

        parts = [f"<h3>{escape(self.title)}</h3>", *(f"<p>{escape(note)}</p>" for note in self.notes)]
        for name, drawing in self.drawings.items():
            caption = escape(drawing.caption or name)
            parts.append(f"<figure>{svg_for_cell(drawing.figure)}<figcaption>{caption}</figcaption></figure>")
        for name, table in self.tables.items():
            html = table.frame.to_html(index=False, border=0, na_rep="", float_format=lambda v: f"{v:.4g}")
            parts.append(f"<details><summary>{escape(name)} ({len(table.frame)} rows)</summary>{html}</details>")
        return "\n".join(parts)
