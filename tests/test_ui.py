"""What a user sees in MLflow's own UI, in a real browser: `python -m rbptrack ui` on the store of a sweep."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.test_program import Swept, runs

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@pytest.fixture(scope="module")
def address(swept: Swept) -> Iterator[str]:
    """The address that `ui` prints; the server and its workers end with Ctrl-C, and with exit code 0."""
    command = [sys.executable, "-u", "-m", "rbptrack", "ui", "port=5791"]
    with subprocess.Popen(command, cwd=swept[0], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            found = re.search(
                r"compare  (http://127\.0\.0\.1:\d+/#/experiments/\d+/runs\S+)", process.stdout.readline()
            )
            assert found
            yield found[1]
        finally:
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(30) == 0
            finally:
                process.kill()


def test_ui_answers_on_loopback_and_prints_a_link(address: str) -> None:
    assert "compareRunsMode=CHART" in address
    assert re.search(r"viewStateShareKey=[0-9a-f]{64}", address)
    with urllib.request.urlopen(address.partition("#")[0], timeout=10) as page:
        assert b"<title>MLflow" in page.read()


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")
def test_a_user_finds_the_charts_compares_runs_and_opens_artifacts(address: str, swept: Swept, tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install '.[dev]'")
    shots = ROOT / "ci-output" / "ui" if os.environ.get("CI") else tmp_path
    shots.mkdir(parents=True, exist_ok=True)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1600, "height": 2600})
        page.set_default_timeout(60_000)
        try:
            _charts(page, address, shots)
            _compare(page, shots)
            _artifacts(page, address, swept, shots)
            _without_the_view(browser.new_page(), address, shots)
        finally:
            page.screenshot(path=shots / "last.png")
            browser.close()


def _charts(page: Any, address: str, shots: Path) -> None:
    """All eight runs, as eight curves of RBP_k over a log axis, and eight points against model size."""
    page.goto(address)
    card = page.locator('[data-testid="experiment-view-compare-runs-card"]')
    page.get_by_text("Against model size").wait_for()
    page.get_by_text("8 matching runs").wait_for()
    for i, name in enumerate(("rbp_curve", "neg_log_rbp_curve")):
        card.nth(i).locator(".scatterlayer .trace").nth(7).wait_for(state="attached")
        assert card.nth(i).get_by_text(f"({name})").count() == 8
    ticks = {tick.strip() for tick in card.first.locator(".xtick").all_text_contents()}
    assert {"1", "10", "100", "1000"} <= ticks  # decades: a log axis
    for name in ("log10_non_embedding_params vs. ce", "log10_non_embedding_params vs. neg_log_rbp_1"):
        points = card.filter(has_text=name).locator(".scatterlayer .points path")
        points.nth(7).wait_for(state="attached")
        assert points.count() == 8
    page.screenshot(path=shots / "charts.png")
    page.wait_for_function(
        "[...document.images].filter(i => !i.src.startsWith('data:') && i.naturalWidth > 100).length >= 2"
    )
    page.screenshot(path=shots / "images.png")


def _compare(page: Any, shots: Path) -> None:
    for name in ("nano-6k / stdlib", "nano-115k / stdlib"):
        page.get_by_role("row").filter(has_text=name).locator(".ag-selection-checkbox input").check()
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url(re.compile("compare-runs"))
    page.get_by_text("Comparing 2 Runs").first.wait_for()
    page.screenshot(path=shots / "compare.png")


def _artifacts(page: Any, address: str, swept: Swept, shots: Path) -> None:
    """The figure of a run, and the report of the sweep."""
    experiment = address.partition("/runs?")[0]
    measured, sweep = runs(swept[0], "measurement")[0], runs(swept[0], "sweep")[-1]
    page.goto(f"{experiment}/runs/{measured.info.run_id}/artifacts/figures/rank_distribution.png")
    page.wait_for_function("[...document.images].some(i => i.naturalWidth > 300 && i.offsetWidth > 0)")
    page.screenshot(path=shots / "image.png")
    page.goto(f"{experiment}/runs/{sweep.info.run_id}/artifacts/report.html")
    page.frame_locator("iframe").locator("svg").first.wait_for()
    page.screenshot(path=shots / "report.png")
    page.goto(f"{experiment}/runs/{measured.info.run_id}")
    page.get_by_text("scored tokens.").first.wait_for()  # the description
    page.screenshot(path=shots / "run.png")


def _without_the_view(page: Any, address: str, shots: Path) -> None:
    """A MLflow that ignores the view still opens its page with the runs."""
    page.goto(re.sub("&viewStateShareKey=[0-9a-f]+", "", address))
    page.get_by_text("nano-6k / stdlib").first.wait_for(timeout=60_000)
    page.screenshot(path=shots / "without_view.png")
