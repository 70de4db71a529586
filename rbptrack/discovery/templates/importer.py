"""Reads .losses files: model, dataset and cross-entropy in nats, separated by spaces. Replace it with your format."""

from collections.abc import Iterator
from pathlib import Path

from rbptrack.analysis import BadInput, Imported, ImportedMeasurement, Importer


class Example(Importer):
    """A .losses file: model, dataset and cross-entropy in nats, separated by spaces."""

    dataset: str = ""
    """name of the texts, if the lines do not name them"""

    def takes(self, path: Path) -> bool:
        return path.suffix == ".losses"

    def read(self, path: Path) -> Iterator[Imported]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            model, *dataset, loss = line.split() or ["", ""]
            if len(dataset) > 1:
                raise BadInput(f"{path}, line {number} must be model, dataset and cross-entropy; got {line}")
            columns = {"model": model, "dataset": "".join(dataset) or self.dataset, "ce": loss}
            yield ImportedMeasurement(columns, f"line {number}")
