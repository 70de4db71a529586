"""`export to=wandb`: each measurement as a run of Weights & Biases, with its settings, numbers and the curve of RBP_k.

An exporter is a file with a function `export`: it gets measurements as analyzers do, and returns in words what it did.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from rbptrack.analysis import BadInput, RankHistogram, RbptrackError, Runs, WithoutRanks
from rbptrack.base.words import counted
from rbptrack.ranks import log_grid

_SETTINGS = ("family", "size", "model", "dataset", "revision", "commit", "dtype", "sequence", "seq_len", "context",
             "candidates", "rank", "vocab_size", "non_embedding_params", "total_params", "training_tokens",
             "num_documents", "documents_hash", "software", "fingerprint", "imported")  # fmt: skip
_NEITHER = ("run_id", "sweep", "without_ranks", "groups")


def export(runs: Runs, *, out: Path, project: str, offline: bool) -> str:
    """Write every measurement as a run of a project; the same one again updates its run.

    Args:
        runs: the measurements.
        out: the folder in which wandb keeps its own, `wandb/`, from which `wandb sync` sends what was written offline.
        project: wandb's project.
        offline: write files only, and ask no server.

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
            _one(wandb, runs, {str(k): v for k, v in row.items() if not pd.isna(v)}, out, project, offline)
    except wandb.errors.Error as error:
        raise RbptrackError(f"wandb: {error}; offline=true needs no server") from error
    where = f"{out / 'wandb'}; `wandb sync` sends them" if offline else f"the project {project}"
    return f"{counted(len(runs.frame), 'run')} of wandb: {where}"


def _one(wandb: Any, runs: Runs, row: dict[str, Any], out: Path, project: str, offline: bool) -> None:
    numbers = {k: float(v) for k, v in row.items() if k not in (*_SETTINGS, *_NEITHER) and not isinstance(v, str)}
    settings = wandb.Settings(  # nothing of the machine, the folder or the terminal
        silent=True, console="off", disable_git=True, disable_code=True, save_code=False, disable_job_creation=True,
        x_disable_meta=True, x_disable_machine_info=True, x_disable_stats=True,
        x_save_requirements=False, host="",
    )  # fmt: skip
    with wandb.init(
        project=project,
        id=row["fingerprint"][:32],
        name=f"{row['model']} / {row['dataset']}",
        group=row["dataset"][:128],
        tags=[row["family"][:64]],
        config={k: row[k] for k in _SETTINGS if k in row},
        dir=str(out),
        mode="offline" if offline else "online",
        resume=None if offline else "allow",
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
    """RBP_k over a log grid of k up to |V|."""
    grid = log_grid(histogram.vocab_size)
    return zip(grid.tolist(), histogram.rbp_curve(grid).tolist(), strict=True)
