"""Write one CSV per dataset. Replace it with your own format."""

from pathlib import Path

from rbptrack.analysis import Exporter, Runs, counted, file_part


class Example(Exporter):
    """One CSV per dataset, with a row for each measurement."""

    separator: str = ","
    """text between the values of a row"""

    def export(self, runs: Runs, out: Path) -> str:
        tables = runs.frame.groupby("dataset")
        for dataset, rows in tables:
            rows.to_csv(out / f"{file_part(str(dataset))}.csv", index=False, sep=self.separator)
        return f"{counted(len(runs), 'measurement')} in {counted(len(tables), 'file')}"
