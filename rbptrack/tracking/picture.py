"""Draw the rank distribution of a measurement as a picture for MLflow."""

from __future__ import annotations

import functools
from pathlib import Path

from rbptrack.base.errors import MissingArtifact, RbptrackError, first_line
from rbptrack.base.files import write_whole
from rbptrack.console.output import print_problem
from rbptrack.measurement.files import HISTOGRAM_FILE
from rbptrack.measurement.record import read_measurement
from rbptrack.ranks import RankHistogram
from rbptrack.tracking.names import PICTURE_FILE


def draw_picture(folder: Path) -> list[Path]:
    """Draw the rank distribution of the finished measurement in a folder.

    The picture is not part of the record. If it cannot be drawn, a warning is printed, and the measurement is delivered
    without it.

    Returns:
        A list with the file of the picture. The list is empty if there is no picture.

    """
    if not (folder / HISTOGRAM_FILE).is_file():
        return []
    try:
        name = read_measurement(folder).title
    except (MissingArtifact, OSError):
        return []  # `Outbox.deliver` will refuse the folder
    from rbptrack.figures import charts  # imports Altair, which readers of a store do not need

    path = folder / "pictures" / PICTURE_FILE
    try:
        chart = charts.rank_distribution(RankHistogram.read(folder / HISTOGRAM_FILE), name)
        content = charts.draw_png(chart)
        path.parent.mkdir(exist_ok=True)
        write_whole(path, content)
    except (RbptrackError, OSError, ValueError, TypeError, KeyError) as error:
        _complain_once(f"MLflow gets no picture of the ranks ({first_line(error)})")
        return []
    return [path]


@functools.cache
def _complain_once(line: str) -> None:
    print_problem(line)
