"""Files as importers read them, checked as `import` does."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from rbptrack.plugins.importers.scores import Scores
from rbptrack.plugins.importers.table import Table

from rbptrack.exchange.imported import AnyImportedRow, KnownModels
from rbptrack.exchange.intake import take_in
from rbptrack.tracking.record import Record


def rows_of(path: Path) -> list[Record]:
    """The measurements of a table."""
    with tempfile.TemporaryDirectory() as folder:
        intake = take_in(Table(), path, models=KnownModels({}), rules=AnyImportedRow, folder=Path(folder))
    return [record for record, _ in intake.measurements]


def scores_in(path: Path, names: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The scores of a file or folder; a map of names is written as the file that people write."""
    with tempfile.TemporaryDirectory() as folder:
        lines = ["name,model", *(f"{name},{model}" for name, model in (names or {}).items())]
        (Path(folder) / "names.csv").write_text("\n".join(lines))
        importer = Scores(names=str(Path(folder) / "names.csv"))
        return take_in(importer, path, models=KnownModels({}), rules=AnyImportedRow, folder=Path(folder)).scores
