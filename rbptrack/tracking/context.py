"""The user, the program and its commit, in the tags that MLflow's UI shows."""

from __future__ import annotations

import getpass
import subprocess
from functools import lru_cache
from pathlib import Path

from rbptrack.config.paths import PACKAGE
from rbptrack.tracking.schema import Tag


@lru_cache(maxsize=1)
def source_tags() -> dict[str, str]:
    """Return tags that MLflow's UI shows as user and source; the commit is rbptrack's own where it runs from a
    checkout.

    A commit whose files were changed since is marked in `rbptrack.changed`.
    """
    tags = {"mlflow.user": _user(), "mlflow.source.name": "python -m rbptrack", "mlflow.source.type": "LOCAL"}
    checkout = PACKAGE.parent
    commit = _git(checkout, "rev-parse", "HEAD") if (checkout / "pyproject.toml").exists() else ""
    if commit:
        tags["mlflow.source.git.commit"] = commit
        changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
        tags[Tag.CHANGED] = "yes" if changed else "no"
    return tags


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
