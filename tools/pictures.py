"""Make the pictures of README and docs from the demo's store.

python -m tools.pictures FOLDER        # FOLDER: where `rbptrack demo` has run
python -m tools.pictures               # runs it first, in a temporary folder

docs/demo.png is the top of the report's first page, docs/ui.png MLflow's charts (both need Chromium and Playwright);
the others are figures of the report as it made them.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent.parent / "docs"
FIGURES = (
    "power_law/figures/alpha_against_k.svg",
    "rank_and_ce/figures/spectrum.svg",
    "rank_and_ce/figures/equal_loss.svg",
)
PROGRAM = (sys.executable, "-u", "-m", "rbptrack")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
PATIENCE = 300_000  # milliseconds that a page is given
REPORT = (1060, 1095)  # pixels
CHARTS = (1400, 1100)


@contextmanager
def browser() -> Iterator[Any]:
    """Start Chromium without a window."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise SystemExit("error: Chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=path, args=[*FLAGS])


def report_of(folder: Path) -> Path:
    """Find the newest whole report of a sweep in the folder's store: the demo's."""
    reports = folder.glob("mlruns/artifacts/rbptrack/*/artifacts/report.html")
    whole = [path for path in reports if all((path.parent / figure).exists() for figure in FIGURES)]
    if not whole:
        raise SystemExit(f"error: no whole report of a sweep in {folder}: run `rbptrack demo` there")
    return max(whole, key=lambda path: path.stat().st_mtime)


def picture_report(chromium: Any, report: Path) -> None:
    """Picture the top of the page, as its reader first sees it."""
    page = chromium.new_page(viewport=dict(zip(("width", "height"), REPORT, strict=True)))
    page.goto(report.as_uri())
    page.screenshot(path=DOCS / "demo.png")


def picture_charts(chromium: Any, folder: Path) -> None:
    """Picture MLflow on the view that `rbptrack ui` opens."""
    with subprocess.Popen([*PROGRAM, "ui", "browser=no"], cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            lines = iter(server.stdout or ())
            address = next(match[0] for match in (re.search(r"http://\S+/runs\S+", line) for line in lines) if match)
            page = chromium.new_page(viewport=dict(zip(("width", "height"), CHARTS, strict=True)))
            page.set_default_timeout(PATIENCE)
            page.goto(address)
            points = page.locator('[data-testid="experiment-view-compare-runs-card"] .scatterlayer .points path')
            points.nth(20).wait_for(state="attached")
            for name in ("Close", "Hide banner"):  # MLflow's assistant, and its notice about shared views
                for button in page.get_by_role("button", name=name, exact=True).all():
                    button.click()
            page.wait_for_timeout(3000)  # the other charts of the screen
            page.screenshot(path=DOCS / "ui.png")
        finally:
            server.send_signal(signal.SIGINT)


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where the demo has run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pictures-") as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        if options.folder is None:
            subprocess.run([*PROGRAM, "demo"], cwd=folder, check=True)
        report = report_of(folder)
        for figure in FIGURES:
            shutil.copyfile(report.parent / figure, DOCS / Path(figure).name)
        with browser() as chromium:
            picture_report(chromium, report)
            picture_charts(chromium, folder)


if __name__ == "__main__":
    main()
