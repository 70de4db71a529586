"""Make the pictures of README and docs from a store of the demo; needs Chromium.

python -m tools.pictures FOLDER        # where `rbptrack demo` has run
python -m tools.pictures               # runs it first, in a temporary folder

docs/explorer.png is the top of the report's page, docs/mlflow.png MLflow's page with the view that `rbptrack ui` opens.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent.parent / "docs"
PROGRAM = (sys.executable, "-u", "-m", "rbptrack")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
PATIENCE = 300_000  # milliseconds that a page is given
WIDTH = 1200  # pixels of the report
CHARTS = (1400, 1000)  # of MLflow's page


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise SystemExit("error: Chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=path, args=[*FLAGS])


def picture_report(chromium: Any, folder: Path) -> None:
    """The page's first screen: the sentence, the explorer and the table of exponents."""
    report = folder / "report.html"
    subprocess.run([*PROGRAM, "report", "--analyzers", "power_law", "--out", str(report)], cwd=folder, check=True)
    page = chromium.new_page(viewport={"width": WIDTH, "height": 800})
    page.goto(report.as_uri())
    page.locator("#explorer .first :is(svg, canvas)").first.wait_for()
    page.wait_for_timeout(2000)  # fonts, and the last of the layout
    end = page.locator("main > details").first.bounding_box()["y"]  # the first folded analysis
    page.screenshot(
        path=DOCS / "explorer.png", clip={"x": 0, "y": 0, "width": WIDTH, "height": end - 8}, full_page=True
    )


def picture_charts(chromium: Any, folder: Path) -> None:
    """MLflow's charts of the measurements."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*PROGRAM, "ui", "--port", str(port)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            lines = server.stdout or iter(())
            address = next(found[0] for line in lines if (found := re.search(r"http://\S+/#\S+", line)))
            next(line for line in lines if "startup complete" in line)
            page = chromium.new_page(viewport=dict(zip(("width", "height"), CHARTS, strict=True)))
            page.set_default_timeout(PATIENCE)
            page.goto(address)
            points = page.locator('[data-testid="experiment-view-compare-runs-card"] .scatterlayer .points path')
            points.nth(20).wait_for(state="attached")
            for name in ("Close", "Hide banner"):  # MLflow's assistant, and its notice about shared views
                for button in page.get_by_role("button", name=name, exact=True).all():
                    button.click()
            page.wait_for_timeout(3000)  # the other charts of the screen
            page.screenshot(path=DOCS / "mlflow.png")
        finally:
            server.send_signal(signal.SIGINT)


def main() -> None:
    """Make both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where the demo has run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pictures-") as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        if options.folder is None:
            subprocess.run([*PROGRAM, "demo"], cwd=folder, check=True)
        with browser() as chromium:
            picture_report(chromium, folder)
            picture_charts(chromium, folder)


if __name__ == "__main__":
    main()
