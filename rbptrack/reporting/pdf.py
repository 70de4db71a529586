"""A page as PDF, printed by the Chromium that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from rbptrack.base.errors import BadInput, RbptrackError

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_SECONDS = 300


def browser() -> str:
    """Return the path of Chromium; raises BadInput where it is not installed."""
    for name in _BROWSERS:
        if path := shutil.which(name):
            return path
    raise BadInput("a PDF needs Chromium, which is not installed; write out=FILE.html and print it from a browser")


def print_page(page: Path, pdf: Path) -> None:
    """Print an HTML file.

    Args:
        page: the file.
        pdf: where the PDF goes.

    Raises:
        RbptrackError: the browser wrote none.

    """
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-pdf-header-footer"]
        flags += ["--no-sandbox"] * (os.geteuid() == 0)  # which root cannot use
        target = [f"--user-data-dir={profile}", f"--print-to-pdf={pdf}", page.absolute().as_uri()]
        try:
            subprocess.run([browser(), *flags, *target], capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603
        except subprocess.TimeoutExpired:
            raise RbptrackError(f"Chromium printed no page within {_SECONDS} s; try out=FILE.html") from None
    if not pdf.is_file():
        raise RbptrackError("Chromium printed no page; write out=FILE.html and print it from a browser")
