"""What a user sees in MLflow's own UI, in a real browser: `python -m rbptrack ui` on the store of a sweep."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rbptrack.commands.ui import has_display, wait_for_end
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.tracking.store import Store
from rbptrack.tracking.view import OLDEST, by_id, chosen_runs, knows_view, link, search_filter, spread
from tests.conftest import ROOT, Program
from tests.patience import PATIENCE
from tests.server import OTHERS_WARN, free_port
from tests.test_program import Swept, artifact, runs

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
GAPS = """cells => cells.slice(1).map((cell, i) => {
    const text = element => { const range = document.createRange(); range.selectNodeContents(element); return range };
    const before = text(cells[i]);
    before.setEnd(cells[i].firstChild, cells[i].textContent.trimEnd().length);
    return text(cell).getBoundingClientRect().left - before.getBoundingClientRect().right;
})"""
"""Pixels between the texts of neighbouring cells of a row."""


@contextmanager
def serving(folder: Path, *options: str, **environment: str) -> Iterator[str]:
    """The address that `ui` prints; the server and its workers end with Ctrl-C, and with exit code 0."""
    command = [sys.executable, "-u", "-m", "rbptrack", "ui", *options]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, text=True, env=os.environ | OTHERS_WARN | environment
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "starting MLflow ...\n"
            line = process.stdout.readline()
            printed = re.search(r"compare  (http://127\.0\.0\.1:\d+/#/experiments/\d+/runs\S+)", line)
            assert printed, line
            yield printed[1]
        finally:
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(PATIENCE) == 0
            finally:
                process.kill()


@pytest.fixture(scope="module")
def address(swept: Swept) -> Iterator[str]:
    with serving(swept[0], "port=5060") as shown:  # which browsers refuse, as the next
        yield shown


def test_ui_answers_on_loopback_and_prints_a_link(address: str) -> None:
    assert re.match(r"http://127\.0\.0\.1:50(6[2-9]|[7-9]\d)/", address)
    assert "compareRunsMode=CHART" in address
    assert re.search(r"viewStateShareKey=rbptrack-[0-9a-f]{16}", address)
    with urllib.request.urlopen(address.partition("#")[0], timeout=PATIENCE) as page:
        assert b"<title>MLflow" in page.read()


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")
def test_a_user_finds_the_charts_compares_runs_and_opens_artifacts(address: str, swept: Swept, tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install '.[dev]'")
    shots = ROOT / "ci-output" / "ui" if os.environ.get("CI") else tmp_path
    shots.mkdir(parents=True, exist_ok=True)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1600, "height": 2600})
        page.set_default_timeout(300_000)
        try:
            _charts(page, address, shots)
            _compare(page, shots)
            _artifacts(page, address, swept, shots)
            _without_the_view(browser.new_page(), address, shots)
        finally:
            page.screenshot(path=shots / "last.png")
            browser.close()


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")
def test_the_report_is_one_page_until_it_is_opened_and_fits_a_screen_and_paper(swept: Swept) -> None:
    """At most 800 words before anything is opened and 8,000 after; its first table has a row a family and dataset."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install '.[dev]'")
    (first, *_) = sorted(runs(swept[0], "sweep"), key=lambda r: r.info.start_time)
    file = artifact(first, "report.html")
    assert file.stat().st_size < 1.5e6
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(file.as_uri())
        words = page.inner_text("body").split()
        assert "How well 4 nano models rank the next token on pydocs and stdlib" in " ".join(words)
        assert len(words) <= 800
        assert page.locator("table.lead").first.locator("tbody tr").count() == 2
        room = "(one => one.scrollWidth <= one.clientWidth)(document.querySelector('.scroll'))"
        assert page.evaluate(room)
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        assert len(page.inner_text("body").split()) <= 8000
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 688, "height": 1000})  # A4 less its margins, at 96 dots per inch
        assert page.evaluate(room)
        browser.close()


def _charts(page: Any, address: str, shots: Path) -> None:
    """All eight runs, as eight curves of RBP_k over a log axis, and a straight line of four points for each dataset."""
    page.goto(address)
    page.get_by_text("matching runs").wait_for()
    page.get_by_role("row").filter(has_text="sweep 2").first.wait_for()  # the sweep's own run, with the report
    for dataset in ("pydocs", "stdlib"):
        page.get_by_text(f"{dataset}: law in size").wait_for()
        for what in ("CE", "-ln RBP_1", "-ln RBP_100", "bits per byte"):
            points = _card(page, f"log10 S vs. log10 {what} on {dataset}").locator(".scatterlayer .points path")
            points.nth(3).wait_for(state="attached")
            assert points.count() == 4
    page.screenshot(path=shots / "charts.png")
    for name in ("rbp_curve", "neg_log_rbp_curve"):
        chart = _card(page, re.compile(f"^{name}"))
        chart.locator(".scatterlayer .trace").nth(7).wait_for(state="attached")
        legend = chart.get_by_text(re.compile(rf"nano-.*\({name}\)"))
        legend.nth(7).wait_for(state="attached")
        assert legend.count() == 8
    for decade in ("1", "10", "100", "1000"):  # a log axis
        ticks = _card(page, re.compile("^rbp_curve")).locator(".xtick")
        ticks.filter(has_text=re.compile(rf"^\s*{decade}\s*$")).first.wait_for(state="attached")
    _card(page, "rank_distribution")
    page.wait_for_function(
        "[...document.images].filter(i => !i.src.startsWith('data:') && i.naturalWidth > 100).length >= 2"
    )
    page.get_by_text("Add chart").nth(3).wait_for(state="attached")
    assert page.get_by_text("Add chart").count() == 4, "two datasets, ranks, all runs, and no section of MLflow's"
    page.screenshot(path=shots / "images.png")


def _card(page: Any, title: str | re.Pattern[str]) -> Any:
    """Return the chart of a title, scrolled to: MLflow has only the charts near those in view on its page."""
    cards = page.locator('[data-testid="experiment-view-compare-runs-card"]')
    cards.first.wait_for()
    chart = cards.filter(has_text=title)
    cards.first.hover()
    for step in range(200):
        if chart.count():
            break
        page.mouse.wheel(0, 300 if step % 40 < 20 else -300)
        page.wait_for_timeout(300)
    chart.first.scroll_into_view_if_needed()
    return chart.first


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
    page.frame_locator("iframe").locator("svg.panel:not(.off)").first.wait_for()
    page.screenshot(path=shots / "report.png")
    page.goto(f"{experiment}/runs/{measured.info.run_id}")
    page.get_by_text("scored tokens.").first.wait_for()  # the description
    gaps = page.locator("td:has-text('±')").evaluate_all(GAPS)
    assert gaps
    assert min(gaps) > 5, "texts of neighbouring cells run together"
    page.screenshot(path=shots / "run.png")


def _without_the_view(page: Any, address: str, shots: Path) -> None:
    """A version that is not known to open the view gets an address that opens the plain page on the runs."""
    experiment = re.search(r"experiments/(\d+)", address)
    assert experiment
    page.goto(address.partition("#")[0] + link(experiment[1], "", search_filter(FilterConfig())))
    page.get_by_text("nano-6k / stdlib").first.wait_for(timeout=300_000)
    page.screenshot(path=shots / "without_view.png")


def test_filters_choose_what_the_page_shows(swept: Swept) -> None:
    chosen = search_filter(FilterConfig(family=["nano*"], dataset=["stdlib"]))
    assert chosen.endswith("tags.`rbptrack.family` LIKE 'nano%' and tags.`rbptrack.dataset` = 'stdlib'")
    connection = Store(TrackingConfig(uri=f"sqlite:///{swept[0]}/mlruns/mlflow.db"))
    client = connection.open()
    shown = {run.info.run_id for run in client.search_runs([connection.experiment_id], chosen)}
    assert len(shown) == 4
    filters = FilterConfig(family=["nano*"], dataset=["stdlib"])
    assert {run.run_id for run in chosen_runs(connection.reader.search(), filters)} == shown
    for beyond_mlflow in (
        FilterConfig(family=["a", "b"]),
        FilterConfig(size=["!6k"]),
        FilterConfig(family=["it's"]),
        FilterConfig(model=["nano/6k"]),
    ):
        assert search_filter(beyond_mlflow) == ""
    filters = FilterConfig(model=["nano/*", "!nano-6k"], dataset=["!pydocs"])
    rest = chosen_runs(connection.reader.search(), filters)
    assert {run.tags["rbptrack.model"] for run in rest} == {"nano-15k", "nano-38k", "nano-115k"}
    assert {run.tags["rbptrack.dataset"] for run in rest} == {"stdlib"}


def test_of_more_runs_than_mlflow_shows_every_size_is_seen(swept: Swept) -> None:
    connection = Store(TrackingConfig(uri=f"sqlite:///{swept[0]}/mlruns/mlflow.db"))
    runs = chosen_runs(connection.reader.search(), FilterConfig(family=["nano"]))
    assert len(runs) == 8
    four = spread(runs[:5] + runs, 8)
    assert {run.tags["rbptrack.size"] for run in four} == {"6k", "15k", "38k", "115k"}
    client = connection.open()
    shown = client.search_runs([connection.experiment_id], by_id(runs[:3]))
    assert {run.info.run_id for run in shown} == {run.run_id for run in runs[:3]}


@pytest.mark.parametrize(
    ("environment", "seen"),
    [
        ({"DISPLAY": ":0"}, True),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "a"}, False),
        ({"DISPLAY": ":0", "CI": "1"}, False),
    ],
)
def test_a_browser_is_opened_where_it_is_seen(
    environment: dict[str, str], seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CI", "SSH_CONNECTION", "SSH_TTY", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert has_display() is seen


@pytest.mark.parametrize(
    ("version", "known"),
    [("3.10.0", False), ("3.14.2", False), ("3.15.0", True), ("3.17.2", True), ("3.18.0", False), ("", False)],
)
def test_the_key_is_for_versions_that_open_it(version: str, known: bool) -> None:
    assert knows_view(version) is known


def test_ui_makes_no_experiment(swept: Swept, program: Program) -> None:
    done = program("ui", "tracking.experiment=nope", cwd=swept[0])
    assert done.returncode == 2
    assert "has no experiment 'nope'. Experiments: rbptrack" in done.stderr
    connection = Store(TrackingConfig(uri=f"sqlite:///{swept[0]}/mlruns/mlflow.db"))
    assert connection.open().get_experiment_by_name("nope") is None
    done = program("ui", "dataset=stdlb", cwd=swept[0])
    assert done.returncode == 2
    assert "no measurement has dataset=stdlb. Did you mean stdlib?" in done.stderr


def test_a_signal_that_does_not_wake_the_wait_is_seen_all_the_same() -> None:
    """As one that comes just before the main thread sleeps: Python knows of it, and the thread sleeps on."""
    lingering = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    blocked = threading.Event()

    def send() -> None:
        blocked.wait()
        time.sleep(0.3)  # the wait has begun
        os.kill(os.getpid(), signal.SIGUSR1)

    def wait() -> None:
        blocked.set()
        wait_for_end(lingering)

    other = threading.Thread(target=send)
    other.start()  # before the main thread blocks the signal, so that this thread takes it
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        with pytest.raises(KeyboardInterrupt):
            wait()
        assert lingering.poll() is None
    finally:
        lingering.kill()
        lingering.wait()
        other.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")
@pytest.mark.long  # installs it, and starts it twice
def test_the_oldest_mlflow_opens_the_view(tmp_path: Path, program: Program) -> None:
    """The oldest version that pyproject.toml allows measures, serves and shows the charts."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install '.[dev]'")
    oldest = "{}.{}.0".format(*OLDEST)
    assert f'"mlflow>={OLDEST[0]}.{OLDEST[1]},' in (ROOT / "pyproject.toml").read_text()
    packages = [f"{name}=={oldest}" for name in ("mlflow", "mlflow-skinny", "mlflow-tracing")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", tmp_path / "old", *packages], check=True, timeout=PATIENCE)
    path = os.pathsep.join([str(tmp_path / "old"), str(ROOT)])
    folder = tmp_path / "work"
    folder.mkdir()
    arguments = ("model=nano/6k,nano/15k", "dataset=pydocs", "dataset.documents=5", "analyzers=[]")
    done = program(*arguments, cwd=folder, fresh=True, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    with serving(folder, f"port={free_port()}", PYTHONPATH=path) as address, sync_api.sync_playwright() as playwright:
        assert "viewStateShareKey" in address
        page = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS).new_page()
        page.set_default_timeout(300_000)
        page.goto(address)
        page.get_by_text("3 matching runs").wait_for()  # two models and the sweep
        page.get_by_text("pydocs: law in size").wait_for()
