"""The contract of analyzers: a table of runs in; tables, figures, metrics and sentences out.

An analyzer is a dataclass whose fields are its options:

    @dataclass(kw_only=True)
    class Best(Analyzer):
        \"\"\"The best model per dataset.\"\"\"

        name: ClassVar[str] = "best"
        k: int = 10

        def analyze(self, runs: Runs) -> Report:
            best = runs.frame.sort_values(rbp_name(self.k)).groupby("dataset").tail(1)
            return Report(tables={"best": Table(best[["dataset", "model", rbp_name(self.k)]])})

Put it in a file under `plugins/` of the folder you work in, and `python -m rbptrack analyze analyzer=best` runs it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from rbptrack.analysis.findings import Finding, NothingToSay, Remark
from rbptrack.analysis.lead import Lead
from rbptrack.analysis.plugin import Plugin
from rbptrack.analysis.rows import Column, cells_of, frame_of
from rbptrack.analysis.runs import Runs
from rbptrack.base.names import metric_part

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Table:
    """A table of a report.

    Attributes:
        frame: the rows; written as tables/<name>.csv under these column names.
        columns: column -> its meaning and unit; shown below the table.
        caption: a sentence shown above the table.
        titles: column -> its title on the page, where that is more than its name with spaces.
        forms: column -> how its numbers are written, as `Column.form` has it; by default as they need.

    """

    frame: pd.DataFrame
    columns: Mapping[str, str] = field(default_factory=dict)
    caption: str = ""
    titles: Mapping[str, str] = field(default_factory=dict)
    forms: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawing:
    """A figure of a report.

    Attributes:
        figure: written as figures/<name>.svg; on request as .png, and panel by panel as .pdf.
        caption: a sentence shown below the figure.

    """

    figure: Figure
    caption: str = ""


@dataclass(kw_only=True)
class Report:
    """What an analyzer found.

    Attributes:
        tables: by name, in the order of the page.
        drawings: by name, in the order of the page.
        metrics: quantity/family/dataset/metric -> number, for the MLflow UI.
        findings: the results and how sure they are, as data: their sentences come before the notes.
        notes: sentences for people, shown as they are.
        summary: the name of the table that the terminal shows, if any; on the page it stands open, the others folded.
        headline: one sentence without a full stop: the result and how sure it is, in at most some 40 words however
            many families it covers. It is what the page shows of an analyzer before its section is opened, and what
            the terminal shows after a sweep; where it is empty, the first sentence of the findings or notes is.
        overview: names of tables and drawings that stand at the top of the page, above every section.
        leads: parts of the first page; those of the findings are added.

    """

    tables: dict[str, Table] = field(default_factory=dict)
    drawings: dict[str, Drawing] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    summary: str = ""
    headline: str = ""
    overview: list[str] = field(default_factory=list)
    leads: list[Lead] = field(default_factory=list)

    def add_rows(self, name: str, rows: Iterable[Any], *, caption: str = "") -> None:
        """Add a table of rows, which are dataclasses of one class (`rbptrack.analysis.rows`); none without rows.

        Raises:
            TypeError: a field has no `Column`: a fault of the analyzer.

        """
        frame, columns = frame_of(rows)
        self.add_table(name, frame, columns, caption=caption)

    def add_table(
        self,
        name: str,
        rows: pd.DataFrame | Iterable[Mapping[str, object]],
        columns: Mapping[str, str | Column],
        *,
        caption: str = "",
        titles: Mapping[str, str] | None = None,
    ) -> None:
        """Add a table with its columns in the order of `columns`; without rows no table is added.

        For tables whose columns depend on options; others are better made of rows (`add_rows`).

        Args:
            name: of the table.
            rows: a table, or column -> value of each row; a column that a row lacks is empty there.
            columns: column -> its meaning and unit, or a `Column`.
            caption: a sentence shown above the table.
            titles: column -> its title on the page, where no `Column` says it.

        Raises:
            ValueError: a column has no meaning: a fault of the analyzer.

        """
        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
        unknown = [str(column) for column in frame.columns if column not in columns]
        if unknown:
            raise ValueError(f"table {name}: no meaning is given for {', '.join(unknown)}")
        if not len(frame):
            return
        described = {
            column: column_or_meaning if isinstance(column_or_meaning, Column) else Column(column_or_meaning)
            for column, column_or_meaning in columns.items()
        }
        self.tables[name] = Table(
            frame.reindex(columns=list(columns)),
            {column: described_column.meaning for column, described_column in described.items()},
            caption,
            {
                column: described_column.heading
                for column, described_column in described.items()
                if described_column.heading
            }
            | dict(titles or {}),
            {column: described_column.form for column, described_column in described.items() if described_column.form},
        )

    def add_metrics(self, name: str, rows: Iterable[Any], column: str) -> None:
        """Add one metric per row that has a finite number there.

        Args:
            name: of the metrics, with columns in braces: `beta/{family}/{dataset}/{size}`. Characters that MLflow does
                not take in a metric's name are written as `metric_part` does: `C++` is `C:2b:2b`.
            rows: of `add_rows`, or column -> value of each.
            column: what the metric's value is.

        """
        for row in rows:
            cells = row if isinstance(row, Mapping) else cells_of(row)
            if np.isfinite(cells.get(column, np.nan)):
                parts = {key: metric_part(value) if isinstance(value, str) else value for key, value in cells.items()}
                self.metrics[name.format_map(parts)] = float(cells[column])

    def nothing_found(self, otherwise: str) -> NothingToSay:
        """Return the error to raise where nothing could be analysed: the notes say why; `otherwise` says it without
        notes.

        Of remarks with one reason, the first is kept and the others are counted.
        """
        same: dict[object, list[str]] = {}
        for note in dict.fromkeys(self.notes):
            key = (note.reason, *note.values.items()) if isinstance(note, Remark) and note.reason else note
            same.setdefault(key, []).append(note)
        reasons = [
            f"{alike[0].rstrip('.')}{f' ({len(alike) - 1} more like this)' * (len(alike) > 1)}"
            for alike in same.values()
        ]
        remarks = [note for note in self.notes if isinstance(note, Remark)]
        return NothingToSay(f"{'. '.join(reasons)}." if reasons else otherwise, remarks)


@dataclass(kw_only=True)
class Analyzer(Plugin):
    """Base of analyzers: the subclass is a dataclass, its fields are its options.

    Attributes:
        k_option: the option that takes the k of the command line, such as `ks`; empty where it has k of its own.

    """

    k_option: ClassVar[str] = ""

    @abstractmethod
    def analyze(self, runs: Runs) -> Report:
        """Read runs, return a report. Touches neither the store nor any global state."""
