"""The contract of analyzers: a table of runs in; tables, figures, metrics and sentences out.

An analyzer is a dataclass whose fields are its options:

    @dataclass(kw_only=True)
    class Best(Analyzer):
        \"\"\"The best model per dataset.\"\"\"

        name: ClassVar[str] = "best"
        k: int = 10

        def analyze(self, runs: Runs) -> Report:
            best = runs.frame.sort_values(f"rbp_{self.k}").groupby("dataset").tail(1)
            return Report(tables={"best": best[["dataset", "model", f"rbp_{self.k}"]]})

Put it in a file under `plugins/` of the folder you work in, and `python -m rbptrack analyze analyzer=best` runs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import pandas as pd

from rbptrack.errors import RbptrackError
from rbptrack.ranktable import RankHistogram, RankTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS: Mapping[str, str] = {
    "run_id": "string",
    "family": "string",
    "size": "string",
    "model": "string",
    "dataset": "string",
    "fingerprint": "string",
    "sweep": "string",
    "dtype": "string",
    "sequence": "string",
    "seq_len": "Int64",
    "documents_hash": "string",
    "vocab_size": "Int64",
    "non_embedding_params": "Int64",
    "num_tokens": "Int64",
    "num_documents": "Int64",
    "ce": "Float64",
    "ce_se": "Float64",
    "bits_per_byte": "Float64",
    "tie_rate": "Float64",
}
"""The columns of `Runs.frame` and their types; after them one Float64 pair rbp_<k>, rbp_<k>_se per logged k."""


class Runs:
    """Finished measurements: a table with one row each, and their ranks on demand.

    Args:
        frame: one row per measurement with the columns of `COLUMNS` and rbp_<k>.
        histogram: loads the rank histogram of a run id.
        ranks: loads the rank table of a run id.

    """

    def __init__(
        self,
        frame: pd.DataFrame,
        *,
        histogram: Callable[[str], RankHistogram],
        ranks: Callable[[str], RankTable],
    ) -> None:
        missing = [c for c in COLUMNS if c not in frame.columns]
        if missing:
            raise RbptrackError(f"a table of runs lacks the columns {', '.join(missing)}")
        rbp = [c for c in frame.columns if c.startswith("rbp_")]
        self.frame = frame.astype({**COLUMNS, **dict.fromkeys(rbp, "Float64")}).reset_index(drop=True)
        self._histogram = lru_cache(maxsize=None)(histogram)
        self._ranks = ranks  # not cached: a table is megabytes, and analyzers reduce it at once

    def histogram(self, run_id: str) -> RankHistogram:
        """Exact counts by rank of one run; loaded on demand and kept."""
        return self._histogram(run_id)

    def ranks(self, run_id: str) -> RankTable:
        """The rank table of one run; loaded at each call."""
        return self._ranks(run_id)

    def __len__(self) -> int:
        return len(self.frame)


@dataclass(kw_only=True)
class Report:
    """What an analyzer found.

    Attributes:
        tables: by name; each becomes tables/<name>.csv.
        figures: by name; each becomes figures/<name>.png and .svg.
        metrics: quantity/family/dataset/metric -> number, for the MLflow UI.
        notes: sentences for people: what was found and how sure it is.
        summary: the name of the table that the terminal shows, if any.

    """

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    summary: str = ""


@dataclass(kw_only=True)
class Analyzer(ABC):
    """Base of analyzers: the subclass is a dataclass, its fields are its Hydra options, `name` its group option."""

    name: ClassVar[str]

    @abstractmethod
    def analyze(self, runs: Runs) -> Report:
        """Read runs, return a report. Touches neither the store nor any global state."""
