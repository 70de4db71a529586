"""Results of trials as JSON lines: appended as they come, so that a campaign that was stopped continues."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent


def record(results: Path, fault: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Append one trial with its date and the commit that was tried; returns the line."""
    line = {"fault": fault, **found, "date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit()}
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return line


def note(fault: str, **found: Any) -> None:
    """Record what a test has tried, where the variable RBPTRACK_RESULTS names a file (`make test-long` sets it)."""
    if path := os.environ.get("RBPTRACK_RESULTS"):
        record(Path(path), fault, found)


def recorded(results: Path) -> list[dict[str, Any]]:
    """Every trial so far; a last line that was cut off is left out."""
    lines = results.read_text(encoding="utf-8").splitlines(keepends=True) if results.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def commit() -> str:
    """The commit of the working tree, with a `+` where files have changed since."""
    said = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True)
    return said.stdout.strip() or "unknown"
