"""Models in the order of RBP_k, per dataset."""

from dataclasses import dataclass
from typing import ClassVar

from rbptrack.analysis import Analyzer, RbptrackError, Report, Runs, Table, rbp_name
from rbptrack.ranks import metric_label

COLUMNS = {"dataset": "the texts", "place": "1 is best", "model": "its name", "rbp": "RBP_k of the option k"}


@dataclass(kw_only=True)
class Ranking(Analyzer):
    """Models in the order of RBP_k, per dataset."""

    name: ClassVar[str] = "ranking"
    k: int = 10

    def analyze(self, runs: Runs) -> Report:
        column = rbp_name(self.k)
        if column not in runs.frame:
            raise RbptrackError(f"analyzer.k={self.k}: no run has logged {metric_label(column)}")
        table = runs.frame[["dataset", "model", column]].rename(columns={column: "rbp"})
        table = table.sort_values(["dataset", "rbp"], ascending=[True, False]).reset_index(drop=True)
        table.insert(1, "place", table.groupby("dataset").cumcount() + 1)
        first = table[table["place"] == 1]
        notes = [
            f"{row.model} leads on {row.dataset} with {metric_label(column)} = {row.rbp:.3f}."
            for row in first.itertuples()
        ]
        return Report(tables={"ranking": Table(table, COLUMNS)}, notes=notes, summary="ranking")
