"""RBP_k of every measurement as a text file each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rbptrack.analysis import Runs, WithoutRanks
from rbptrack.analysis.exporting import Exporter


@dataclass(kw_only=True)
class Curves(Exporter):
    """RBP_k of every measurement as a text file each."""

    ks: list[int] = field(default_factory=lambda: [1, 10, 100])

    def export(self, runs: Runs, out: Path) -> str:
        written = 0
        for row in runs.frame.to_dict("records"):
            try:
                histogram = runs.histogram(row["run_id"])
            except WithoutRanks:
                continue
            lines = [f"{k} {histogram.rbp(k):.6f}" for k in self.ks]
            (out / f"{row['model']}-{row['dataset']}.txt").write_text("\n".join(lines) + "\n")
            written += 1
        return f"{written} curves in {out}"
