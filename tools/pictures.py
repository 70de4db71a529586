"""Make the pictures of README and docs from the measurements of the demo. The tool needs Chromium.

python -m tools.pictures FOLDER        # FOLDER is a folder in which `rbptrack demo` has run
python -m tools.pictures               # runs the demo first, in a temporary folder

docs/explorer.png shows the top of the report's page, and docs/reading.png that of the reading page. docs/mlflow.png
shows the page of MLflow that `rbptrack ui` opens.
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
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent.parent / "docs"
PROGRAM = (sys.executable, "-u", "-m", "rbptrack")
CHROMIUM_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
PAGE_TIMEOUT = 300_000  # milliseconds that a page may take
REPORT_WIDTH = 1200  # width of the report in pixels
READING_SIZE = (1280, 760)  # width and height of the reading page in pixels
READING_CHOICE = "#document=topic:assert&model=nano-311k&token=16"  # what the picture of the reading page shows
MLFLOW_SIZE = (1400, 1000)  # width and height of MLflow's page in pixels


@contextmanager
def start_browser() -> Iterator[Any]:
    """Start Chromium without a window, and close it at the end of the block."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise SystemExit("error: Chromium is not installed. Install it, for example by `apt-get install chromium`.")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=path, args=[*CHROMIUM_FLAGS])


def write_report_picture(chromium: Any, folder: Path) -> None:
    """Take a picture of the top of a report's page: the headline, the explorer and the table of exponents."""
    report = folder / "report.html"
    subprocess.run([*PROGRAM, "report", "--analyzers", "power_law", "--out", str(report)], cwd=folder, check=True)
    page = chromium.new_page(viewport={"width": REPORT_WIDTH, "height": 800})
    page.goto(report.as_uri())
    page.locator("#explorer .first :is(svg, canvas)").first.wait_for()
    page.wait_for_timeout(2000)  # until fonts are loaded and the layout stands still
    end = page.locator("main > details").first.bounding_box()["y"]  # the first folded analysis
    page.screenshot(
        path=DOCS / "explorer.png", clip={"x": 0, "y": 0, "width": REPORT_WIDTH, "height": end - 8}, full_page=True
    )


def write_reading_picture(chromium: Any, folder: Path) -> None:
    """Take a picture of the top of the reading page: a text, the slider through the sizes, the details of a token."""
    reading = folder / "read.html"
    subprocess.run([*PROGRAM, "read", "nano/*", "pydocs", "--out", str(reading)], cwd=folder, check=True)
    page = chromium.new_page(viewport=dict(zip(("width", "height"), READING_SIZE, strict=True)))
    page.goto(reading.as_uri() + READING_CHOICE)
    page.locator("body[data-drawn]").wait_for()
    page.screenshot(path=DOCS / "reading.png")


def wait_for_server(port: int) -> None:
    """Wait until a server on this machine listens at a port."""
    for _ in range(PAGE_TIMEOUT // 1000):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(1)
    raise SystemExit(f"error: no server listens at port {port}")


def write_mlflow_picture(chromium: Any, folder: Path) -> None:
    """Take a picture of MLflow's charts of the measurements."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    command = [*PROGRAM, "ui", "--port", str(port)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            lines = server.stdout or iter(())
            address = next(match[0] for line in lines if (match := re.search(r"http://\S+/#\S+", line)))
            wait_for_server(port)
            page = chromium.new_page(viewport=dict(zip(("width", "height"), MLFLOW_SIZE, strict=True)))
            page.set_default_timeout(PAGE_TIMEOUT)
            page.goto(address)
            points = page.locator('[data-testid="experiment-view-compare-runs-card"] .scatterlayer .points path')
            points.nth(20).wait_for(state="attached")
            for name in ("Close", "Hide banner"):  # MLflow's assistant, and its notice about shared views
                for button in page.get_by_role("button", name=name, exact=True).all():
                    button.click()
            page.wait_for_timeout(3000)  # until the other charts are drawn
            page.screenshot(path=DOCS / "mlflow.png")
        finally:
            server.send_signal(signal.SIGINT)


def main() -> None:
    """Make the three pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder in which the demo has run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pictures-") as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        if options.folder is None:
            subprocess.run([*PROGRAM, "demo"], cwd=folder, check=True)
        with start_browser() as chromium:
            write_report_picture(chromium, folder)
            write_reading_picture(chromium, folder)
            write_mlflow_picture(chromium, folder)


if __name__ == "__main__":
    main()
