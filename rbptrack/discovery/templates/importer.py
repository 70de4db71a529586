"""Read .losses files: model, dataset and cross-entropy in nats, separated by spaces. Replace it with your format."""

from collections.abc import Iterator
from pathlib import Path

from rbptrack.analysis import BadInput, Imported, ImportedMeasurement, Importer


class Example(Importer):
    """A .losses file: model, dataset and cross-entropy in nats, separated by spaces."""

    dataset: str = ""
    """name of the dataset, for lines that do not name one"""

    def takes(self, path: Path) -> bool:
        return path.suffix == ".losses"

    def read(self, path: Path) -> Iterator[Imported]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            words = line.split()
            if len(words) not in (2, 3):
                raise BadInput(f"{path}, line {number} must hold model, dataset and cross-entropy; got {line}")
            dataset = words[1] if len(words) == 3 else self.dataset
            columns = {"model": words[0], "dataset": dataset, "ce": words[-1]}
            yield ImportedMeasurement(columns, f"line {number}")
