"""Models in the order of RBP_k, per dataset."""

from dataclasses import dataclass
from typing import ClassVar

from rbptrack.analysis.contract import Analyzer, Report, Runs
from rbptrack.errors import RbptrackError


@dataclass(kw_only=True)
class Ranking(Analyzer):
    """Models in the order of RBP_k, per dataset."""

    name: ClassVar[str] = "ranking"
    columns: ClassVar = {"ranking": {"dataset": "the texts", "place": "1 is best", "model": "", "rbp": "RBP_k"}}
    k: int = 10

    def analyze(self, runs: Runs) -> Report:
        column = f"rbp_{self.k}"
        if column not in runs.frame:
            raise RbptrackError(f"analyzer.k={self.k}: no run has logged RBP_{self.k}")
        table = runs.frame[["dataset", "model", column]].rename(columns={column: "rbp"})
        table = table.sort_values(["dataset", "rbp"], ascending=[True, False]).reset_index(drop=True)
        table.insert(1, "place", table.groupby("dataset").cumcount() + 1)
        first = table[table["place"] == 1]
        notes = [f"{row.model} leads on {row.dataset} with RBP_{self.k} = {row.rbp:.3f}." for row in first.itertuples()]
        return Report(tables={"ranking": table}, notes=notes, summary="ranking")
