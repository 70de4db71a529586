"""Figures as a page shows them: panel by panel, one figure of all that say a metric, the others as links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rbptrack.reporting.files import InlineFigure
from rbptrack.reporting.svg import Piece, Pieces

_MOST_IN_A_ROW = 4  # panels
MOST_CHARACTERS = 50_000  # of a section's figures; those beyond are links to files


@dataclass(frozen=True)
class ShownFigure:
    """A figure on the page.

    Attributes:
        html: its SVGs.
        caption: below it.
        live: whether metrics and datasets can be chosen.

    """

    html: Markup
    caption: str
    live: bool = False


def show(figure: InlineFigure, shared: Pieces) -> ShownFigure:
    """Show a figure panel by panel; as it is where its parts have no names."""
    pieces = shared.take(figure.svg)
    html = _joined(pieces) if pieces else figure.svg
    return ShownFigure(Markup(html), figure.caption)  # noqa: S704 - escaped


def show_together(figures: Sequence[InlineFigure], shared: Pieces) -> list[ShownFigure]:
    """Show those whose panels name a metric as one figure to choose from, and the others after it."""
    taken = [(figure, shared.take(figure.svg)) for figure in figures]
    named = [(figure, pieces) for figure, pieces in taken if any("metric" in piece.names for piece in pieces)]
    others = [show(figure, shared) for figure, pieces in taken if all("metric" not in piece.names for piece in pieces)]
    if not named:
        return others
    captions = " ".join(dict.fromkeys(figure.caption for figure, _ in named))
    metrics = {piece.names["metric"] for _, pieces in named for piece in pieces if "metric" in piece.names}
    html = _joined(piece for piece in named[-1][1] if piece.names["part"] == "legend")  # it stands for all
    for _, pieces in named:
        panels = _joined(piece for piece in pieces if piece.names["part"] != "legend")
        html += f'<div class="row" style="--n:{min(_MOST_IN_A_ROW, len(metrics))}">{panels}</div>'
    return [ShownFigure(Markup(html), captions, live=len(named) > 1), *others]  # noqa: S704 - escaped


def within(figures: Iterable[tuple[str, InlineFigure]]) -> tuple[list[InlineFigure], list[str]]:
    """Choose the first figures that a section has room for, one at least; and the names of the others."""
    shown: list[InlineFigure] = []
    names: list[str] = []
    room = MOST_CHARACTERS
    for name, figure in figures:
        if shown and len(figure.svg) > room:
            names.append(name)
            continue
        shown.append(figure)
        room -= len(figure.svg)
    return shown, names


def _joined(pieces: Iterable[Piece]) -> str:
    return "".join(piece.html for piece in pieces)
