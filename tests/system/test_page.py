"""Tests of the report's page in Chromium: slider, legend, pointer, keyboard, address, sizes and colours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import Browser, FrameLocator, Page, sync_playwright

from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.discovery import ANALYZERS, find_plugins
from rbptrack.reporting import render, run_analyzers
from tests.rank_tables import power_law_rank_table

PATIENCE = 300_000.0  # milliseconds after which an event of the page counts as missing
FAMILIES = {"nano": 0.10, "pico": 0.14}
DATASETS = {"code": 1, "wiki": 2}


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a report on two families of four sizes on two datasets."""
    rows: list[dict[str, object]] = []
    tables = {}
    for family, alpha in FAMILIES.items():
        for dataset, seed in DATASETS.items():
            for s in (1e4, 1e5, 1e6, 1e7):
                run_id = f"{len(rows):032x}"
                names = {"run_id": run_id, "family": family, "size": f"{s:g}", "model": f"{family}-{s:g}"}
                numbers = {"non_embedding_params": int(s), "total_params": int(2 * s), "vocab_size": 512}
                rows.append(names | numbers | {"dataset": dataset, "documents_hash": dataset, "num_tokens": 6000})
                tables[run_id] = power_law_rank_table(s, alpha=alpha, seed=seed)
    runs = Runs(pd.DataFrame(rows), RankTables(tables))
    classes = find_plugins(ANALYZERS).load_all()
    outcomes = run_analyzers(runs, [classes["power_law"](), classes["k_law"]()], processes=1)
    assert not [outcome.problem for outcome in outcomes if outcome.problem]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(runs, outcomes, reading="read.html"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        yield browser
        browser.close()


def new_page(browser: Browser, **options: Any) -> Page:
    """Open an empty page that waits patiently. options: arguments of `Browser.new_page`."""
    page = browser.new_page(**options)
    page.set_default_timeout(PATIENCE)
    return page


@pytest.fixture
def page(browser: Browser, page_file: Path) -> Iterator[Page]:
    with open_page(browser, page_file) as page:
        yield page


@contextmanager
def open_page(browser: Browser, file: Path, *, address: str = "", **options: Any) -> Iterator[Page]:
    """Open a file and wait until it is drawn. At the end, assert that it fetched and logged nothing.

    Args:
        browser: the browser.
        file: the HTML file.
        address: the end of the address, which begins with #.
        options: arguments of `Browser.new_page`.

    """
    page = new_page(browser, **{"viewport": {"width": 1280, "height": 900}} | options)
    events: list[str] = []
    page.on("console", lambda message: events.append(message.text))
    page.on("pageerror", lambda error: events.append(str(error)))
    page.on("request", lambda request: events.append(request.url))
    page.goto(file.as_uri() + address)
    page.wait_for_selector("body[data-drawn]")
    yield page
    own_addresses = (file.as_uri(), "data:", "blob:")
    fetched_or_logged = [text for text in events if not text.startswith(own_addresses)]
    page.close()
    assert fetched_or_logged == []


OPEN_IN_SANDBOX = """text => {
    const frame = document.createElement("iframe");
    frame.setAttribute("sandbox", "allow-scripts");
    Object.assign(frame, { width: 1200, height: 800 });
    frame.src = URL.createObjectURL(new Blob([text], { type: "text/html" }));
    document.body.append(frame);
}"""


@contextmanager
def open_in_sandbox(browser: Browser, file: Path) -> Iterator[FrameLocator]:
    """Show a file as MLflow shows artifacts: a blob: link in a frame that may only run scripts.

    At the end, assert that nothing was logged.
    """
    page = new_page(browser, viewport={"width": 1280, "height": 900})
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.evaluate(OPEN_IN_SANDBOX, file.read_text(encoding="utf-8"))
    yield page.frame_locator("iframe")
    page.close()
    assert messages == []


def lines_of_laws(page: Page) -> list[str]:
    """Return the SVG of the lines of the laws in the first figure."""
    return page.eval_on_selector_all(
        ".first .mark-line path[stroke-width='1.5']", "lines => lines.map(line => line.outerHTML)"
    )


POINTS = ".first .mark-symbol.role-mark path"
SOME_POINTS_ARE_FAINT = f"[...document.querySelectorAll('{POINTS}')].some(p => p.getAttribute('opacity') === '0.1')"


def opacities(page: Page) -> set[str]:
    """Return the different opacities of the points of the first figure."""
    points = page.locator(POINTS)
    return {points.nth(i).get_attribute("opacity") or "1" for i in range(points.count())}


def test_slider_changes_k_and_lines_of_laws(page: Page) -> None:
    assert page.locator("#k").inner_text() == "10"
    before = lines_of_laws(page)
    slider = page.locator("#chosen")
    slider.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    k = int(page.locator("#k").inner_text().replace(",", ""))
    assert k > 10
    assert slider.get_attribute("aria-valuetext") == f"k = {k}"
    page.wait_for_function(f"document.querySelector('.first').textContent.includes('−ln RBP_{k}')")
    assert lines_of_laws(page) != before


def test_slider_changes_numbers_of_table(page: Page) -> None:
    at_10 = page.locator("#laws tbody tr").all_inner_texts()
    page.locator("#chosen").focus()
    page.keyboard.press("Home")
    page.wait_for_function("document.getElementById('laws-k').textContent === 'k = 1'")
    at_1 = page.locator("#laws tbody tr").all_inner_texts()
    assert [row.split()[:2] for row in at_1] == [row.split()[:2] for row in at_10]
    assert all(row != row_at_10 for row, row_at_10 in zip(at_1, at_10, strict=True))


def test_choice_of_k_family_and_dataset_is_in_address_and_command(page: Page) -> None:
    page.locator("#chosen").focus()
    page.keyboard.press("Home")
    page.click("#families button[value=nano]")
    page.click("#datasets button[value=wiki]")
    page.wait_for_function("location.hash.includes('wiki')")
    assert page.evaluate("location.hash") == "#k=1&family=nano&dataset=wiki"
    assert "--k 1" in page.locator("#pdf").inner_text()


def test_address_with_k_family_and_dataset_opens_page_with_this_choice(browser: Browser, page_file: Path) -> None:
    with open_page(browser, page_file, address="#k=1&family=nano&dataset=wiki") as page:
        assert page.locator("#k").inner_text() == "1"
        rows = page.locator("#laws tbody tr:visible").all_inner_texts()
        assert [row.split()[:2] for row in rows] == [["nano", "wiki"]]


def test_address_with_metric_opens_page_with_this_metric(browser: Browser, page_file: Path) -> None:
    with open_page(browser, page_file, address="#metric=ce") as page:
        assert page.locator("#laws-k").inner_text() == "cross-entropy"
        assert not page.locator("#k").is_visible()


def test_first_figure_has_residuals_of_every_model_and_dataset(page: Page) -> None:
    assert page.locator(".first .mark-symbol path[aria-label*='measured / law']").count() == 2 * 2 * 4


def test_button_save_downloads_figure_at_chosen_k(page: Page) -> None:
    page.locator("#chosen").focus()
    page.keyboard.press("Home")
    with page.expect_download() as download:
        page.click("#save")
    assert download.value.suggested_filename == "laws-k1.svg"
    assert "−ln RBP_1<" in download.value.path().read_text()


def test_choice_of_ce_changes_figure_and_disables_slider(page: Page) -> None:
    page.select_option("#metric", "ce")
    page.wait_for_function("document.querySelector('.first').textContent.includes('cross-entropy, nats')")
    assert page.locator("#chosen").is_disabled()


def test_legend_fades_other_families_in_figure_and_hides_them_in_table(page: Page) -> None:
    assert opacities(page) == {"1"}
    page.click("#families button[value=nano]")
    page.wait_for_function(SOME_POINTS_ARE_FAINT)
    assert opacities(page) == {"1", "0.1"}
    families = page.eval_on_selector_all(
        "#laws tr[data-family]:not([hidden])", "rows => rows.map(r => r.dataset.family)"
    )
    assert set(families) == {"nano"}
    page.click("#families button[value=pico]")
    page.wait_for_function(f"!{SOME_POINTS_ARE_FAINT}")
    assert opacities(page) == {"1"}


PANELS = ".first [class*=_cell] > g > path.background"


def widths_of_panels(page: Page) -> list[float]:
    """Return the widths of the panels of the first figure in pixels."""
    widths: list[float] = page.eval_on_selector_all(PANELS, "panels => panels.map(panel => panel.getBBox().width)")
    return widths


def test_panels_of_one_chosen_dataset_are_wider(page: Page) -> None:
    of_both_datasets = widths_of_panels(page)
    page.click("#datasets button[value=wiki]")
    page.wait_for_function(f"document.querySelectorAll('{PANELS}').length === {len(of_both_datasets) // 2}")
    of_one_dataset = widths_of_panels(page)
    assert of_one_dataset[0] > 1.5 * of_both_datasets[0]


def test_tooltip_of_point_has_model_dataset_value_and_interval(page: Page) -> None:
    page.locator(".first [aria-label*='model: nano-10000'][aria-label*='dataset: wiki']").first.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    text = tooltip.inner_text()
    assert "nano-10000" in text
    assert "wiki" in text
    assert re.search(r"−ln RBP_10 = [\d.]+\s+95% interval\s+[\d.]+ to [\d.]+", text)


def test_click_on_exponent_chooses_its_k(page: Page) -> None:
    page.locator(".first [aria-label*='family: pico'][aria-label*='k: 1;']").last.click(force=True)
    page.wait_for_function("document.getElementById('k').textContent === '1'")


def test_figure_of_another_analyzer_is_drawn_when_it_is_opened(page: Page) -> None:
    details = page.locator("details.analyzer", has_text="k law")
    assert details.locator("svg").count() == 0
    details.locator("summary").first.click()
    details.locator("svg.marks").first.wait_for()
    link = details.locator("a[download='k_law.csv']")
    assert (link.get_attribute("href") or "").startswith("data:text/csv")


def test_figures_are_drawn_in_sandboxed_frame(browser: Browser, page_file: Path) -> None:
    with open_in_sandbox(browser, page_file) as frame:
        frame.locator(".first svg.marks").wait_for()
        details = frame.locator("details.analyzer", has_text="k law")
        details.locator("summary").first.click()
        details.locator("svg.marks").first.wait_for()


def test_reading_page_is_named_but_not_linked_in_sandboxed_frame(browser: Browser, page_file: Path) -> None:
    """The browser blocks links to files in such a frame."""
    with open_in_sandbox(browser, page_file) as frame:
        frame.locator(".first svg.marks").wait_for()
        assert frame.locator("#reading a[href]").count() == 0
        assert "Open read.html" in frame.locator("#reading").inner_text()


@pytest.mark.parametrize("width", [390, 650, 1280])
def test_page_is_not_wider_than_screen(browser: Browser, page_file: Path, width: int) -> None:
    with open_page(browser, page_file, viewport={"width": width, "height": 800}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        figure = page.locator(".first svg.marks").bounding_box()
        assert figure
        assert figure["width"] <= width
        if width == 390:  # the panels are below each other
            assert figure["height"] > 2 * figure["width"]


def brightness_of_text(page: Page) -> list[int]:
    """Return the red, green and blue of the text in the first figure, from 0 to 255."""
    colour = page.eval_on_selector(".first svg text", "text => getComputedStyle(text).fill")
    return [int(part) for part in re.findall(r"\d+", colour)[:3]]


def test_text_of_figures_is_light_on_dark_screen_and_dark_in_print(browser: Browser, page_file: Path) -> None:
    with open_page(browser, page_file, color_scheme="dark") as page:
        assert min(brightness_of_text(page)) > 150
        page.emulate_media(media="print", color_scheme="dark")
        assert max(brightness_of_text(page)) < 100


def test_page_links_to_reading_page(page: Page) -> None:
    assert page.locator("#reading a").get_attribute("href") == "read.html"
    assert page.locator("#reading span").is_hidden()


def test_title_and_table_of_laws_are_visible_without_scripts(browser: Browser, page_file: Path) -> None:
    page = new_page(browser, java_script_enabled=False)
    page.goto(page_file.as_uri())
    assert page.locator("h1").is_visible()
    rows = page.locator("#laws tbody tr").all_inner_texts()
    assert [row.split()[:2] for row in rows] == [[family, dataset] for family in FAMILIES for dataset in DATASETS]
    page.close()
