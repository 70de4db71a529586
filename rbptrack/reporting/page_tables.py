"""Tables as HTML: numbers stand right, titles say what columns mean, long ones are cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from markupsafe import Markup

from rbptrack.analysis.contract import Table
from rbptrack.reporting.columns import JOINED, Shown, readable
from rbptrack.reporting.typeset import typeset

_MOST_ROWS = 5  # of a table on the page; all of them are in its CSV file


@dataclass(frozen=True)
class ShownTable:
    """A table as the page shows it; `more` says how many rows it does not, `csv` where all of them are."""

    title: str
    html: Markup
    caption: str = ""
    more: str = ""
    csv: str = ""


def shown_table(
    name: str, table: Table, *, most: int = _MOST_ROWS, links: Sequence[str] = (), csv: str = ""
) -> ShownTable:
    """Show the first rows of a table.

    Args:
        name: of the table.
        table: all of it.
        most: rows.
        links: addresses of the rows' runs.
        csv: address of its file.

    """
    columns = readable(replace(table, frame=table.frame.head(most)))
    rows = len(table.frame)
    meanings = {column: table.columns[column] for column in map(str, table.frame.columns) if column in table.columns}
    more = f"{most} of {rows:,} rows." if rows > most else ""
    return ShownTable(spaced(name), _html(columns, meanings, links), table.caption, more, csv)


def _html(columns: Sequence[Shown], meanings: Mapping[str, str], links: Sequence[str]) -> Markup:
    """Return the table; numbers stand right, and cells of `model` become links."""
    numbers = [" class=n" if column.number else "" for column in columns]
    kinds = [" class='n i'" if c.title in JOINED else kind for c, kind in zip(columns, numbers, strict=True)]
    heads = [
        f"<th{kind}{_tip(meanings.get(column.name, ''))}>{typeset(column.title)}</th>"
        for kind, column in zip(kinds, columns, strict=True)
    ]
    cells = [[_cell(text, column) for text in column.cells] for column in columns]
    for column, texts in zip(columns, cells, strict=True):
        if column.name == "model" and links:
            texts[:] = [f'<a href="{escape(to)}">{text}</a>' for to, text in zip(links, texts, strict=True)]
    rows = [
        "<tr>" + "".join(f"<td{kind}>{text}</td>" for kind, text in zip(kinds, row, strict=True)) + "</tr>"
        for row in zip(*cells, strict=True)
    ]
    body = "\n".join(rows)
    return Markup(  # noqa: S704 - every text is escaped above
        f"<div class=scroll tabindex=0><table>\n<thead><tr>{''.join(heads)}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _cell(text: str, column: Shown) -> str:
    return escape(text) if column.number or column.title != "metric" else str(typeset(text))


def _tip(meaning: str) -> str:
    return f' title="{escape(meaning)}"' if meaning else ""


def spaced(name: str) -> str:
    """Return a machine's name in words."""
    return name.replace("_", " ")
