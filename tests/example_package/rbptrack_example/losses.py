"""Results as lines of text: model, dataset and CE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rbptrack.analysis.importing import Fault, Imported, ImportedMeasurement, Importer, Peek


@dataclass(kw_only=True)
class Losses(Importer):
    """A .losses file: model, dataset and CE in nats, separated by spaces."""

    unit: str = "nats"

    def takes(self, file: Peek) -> bool:
        return file.suffix == ".losses"

    def read(self, path: Path) -> Iterator[Imported]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            match line.split():
                case [model, dataset, loss]:
                    yield ImportedMeasurement(
                        columns={"model": model, "dataset": dataset, "ce": loss}, place=f"line {number}"
                    )
                case _:
                    yield Fault(f"line {number}", f"expected model, dataset and CE in {self.unit}")
