"""`export to=wandb`: each measurement as a run of Weights & Biases, with settings, numbers and the curve of RBP_k."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from rbptrack.analysis import BadInput, RankHistogram, RbptrackError, Runs, WithoutRanks
from rbptrack.analysis.exporting import Exporter
from rbptrack.base.words import counted
from rbptrack.ranks import log_grid

_SETTINGS = ("family", "size", "model", "dataset", "revision", "commit", "dtype", "sequence", "seq_len", "context",
             "candidates", "rank", "vocab_size", "non_embedding_params", "total_params", "training_tokens",
             "num_documents", "documents_hash", "software", "fingerprint", "imported")  # fmt: skip
_NEITHER = ("run_id", "sweep", "without_ranks", "groups")


@dataclass(kw_only=True)
class Wandb(Exporter):
    """Each measurement as a run of Weights & Biases; the same one again updates its run.

    Attributes:
        project: wandb's project.
        offline: write files only, and ask no server; `wandb sync` sends them.

    """

    name: ClassVar[str] = "wandb"
    project: str = "rbptrack"
    offline: bool = False

    def export(self, runs: Runs, out: Path) -> str:
        """Write every measurement as a run of the project.

        Raises:
            BadInput: wandb is not installed.
            RbptrackError: wandb refuses, as without a login.

        """
        try:
            import wandb
        except ImportError as error:
            raise BadInput("to=wandb needs wandb: pip install 'rbptrack[wandb]'") from error
        try:
            for row in runs.frame.to_dict("records"):
                cells = {str(column): value for column, value in row.items() if not pd.isna(value)}
                self._write(wandb, runs, cells, out)
        except wandb.errors.Error as error:
            raise RbptrackError(f"wandb: {error}; offline=true needs no server") from error
        where = f"{out / 'wandb'}; `wandb sync` sends them" if self.offline else f"the project {self.project}"
        return f"{counted(len(runs.frame), 'run')} of wandb: {where}"

    def _write(self, wandb: Any, runs: Runs, row: dict[str, Any], out: Path) -> None:
        numbers = {k: float(v) for k, v in row.items() if k not in (*_SETTINGS, *_NEITHER) and not isinstance(v, str)}
        settings = wandb.Settings(  # nothing of the machine, the folder or the terminal
            silent=True, console="off", disable_git=True, disable_code=True, save_code=False, disable_job_creation=True,
            x_disable_meta=True, x_disable_machine_info=True, x_disable_stats=True,
            x_save_requirements=False, host="",
        )  # fmt: skip
        with wandb.init(
            project=self.project,
            id=row["fingerprint"][:32],
            name=f"{row['model']} / {row['dataset']}",
            group=row["dataset"][:128],
            tags=[row["family"][:64]],
            config={k: row[k] for k in _SETTINGS if k in row},
            dir=str(out),
            mode="offline" if self.offline else "online",
            resume=None if self.offline else "allow",
            settings=settings,
        ) as run:
            run.define_metric("k", hidden=True)
            run.define_metric("rbp", step_metric="k")
            try:
                for k, share in _curve(runs.histogram(row["run_id"])):
                    run.log({"k": k, "rbp": share})
            except WithoutRanks:
                pass  # imported: it has single numbers only
            run.summary.update(numbers)


def _curve(histogram: RankHistogram) -> Iterator[tuple[int, float]]:
    """Return RBP_k over a log grid of k up to |V|."""
    grid = log_grid(histogram.vocab_size)
    return zip(grid.tolist(), histogram.rbp_curve(grid).tolist(), strict=True)
