"""The picture of a measurement's ranks: drawn by the process that delivers the measurement, after it is sealed."""

from __future__ import annotations

import functools
from pathlib import Path

from rbptrack.base.errors import RbptrackError
from rbptrack.base.files import write_whole
from rbptrack.console.output import complain
from rbptrack.ranks import RankHistogram
from rbptrack.tracking.names import HISTOGRAM_FILE, PICTURE_FILE
from rbptrack.tracking.record import Record


def draw_picture(folder: Path) -> list[Path]:
    """Draw the ranks of a finished folder, and return the file: none if it holds no ranks, or cannot be drawn.

    The picture is not part of the record. A measurement is complete without it.
    """
    if not (folder / HISTOGRAM_FILE).is_file():
        return []
    from rbptrack.figures import charts  # imports Altair, which readers of a store do not need

    path = folder / "pictures" / PICTURE_FILE
    try:
        chart = charts.rank_distribution(RankHistogram.read(folder / HISTOGRAM_FILE), Record.read(folder).name)
        content = charts.picture(chart)
        path.parent.mkdir(exist_ok=True)
        write_whole(path, content)
    except (RbptrackError, OSError, ValueError, TypeError, KeyError) as error:
        _say_once(f"no picture of the ranks in MLflow: {error}")
        return []
    return [path]


@functools.cache
def _say_once(line: str) -> None:
    complain(line)
