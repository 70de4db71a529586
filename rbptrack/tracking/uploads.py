"""Logs a record's files as artifacts of its run: by a link where the store is local, else by MLflow."""

from __future__ import annotations

from pathlib import Path

from mlflow import MlflowClient
from PIL import Image

from rbptrack.tracking.record import FIGURE, artifacts


def log_artifacts(client: MlflowClient, run_id: str, folder: Path, place: Path) -> None:
    """Log a record's artifacts, and its figure once more, as the UI's image grid takes it."""
    figure = folder / FIGURE
    if figure.exists() and "mlflow.loggedImages" not in client.get_run(run_id).data.tags:
        with Image.open(figure) as image:
            client.log_image(run_id, image, key="rank_distribution", step=0)
    for path in artifacts(folder):
        if not _linked(path, place / path.relative_to(folder)):
            parent = path.relative_to(folder).parent.as_posix()
            client.log_artifact(run_id, str(path), None if parent == "." else parent)


def _linked(path: Path, artifact: Path) -> bool:
    """Give a file, which is on the disk, a second name as a local store's artifact; False where it must be copied."""
    if not artifact.is_absolute():
        return False
    try:
        artifact.parent.mkdir(parents=True, exist_ok=True)
        artifact.unlink(missing_ok=True)
        artifact.hardlink_to(path)
    except OSError:  # another file system, or one without links; what else is wrong, MLflow's copying says
        return False
    return True
