"""The page in Chromium: it answers to slider, legend, pointer and keyboard, fetches nothing and has no error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.discovery import ANALYZERS, find_plugins
from rbptrack.reporting import analyse, render
from tests.rank_tables import power_law_rank_table

PATIENCE = 300_000.0  # milliseconds after which something hangs
FAMILIES = {"nano": 0.10, "pico": 0.14}
DATASETS = {"code": 1, "wiki": 2}


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two families of four sizes on two datasets."""
    rows, tables = [], {}
    for family, alpha in FAMILIES.items():
        for dataset, seed in DATASETS.items():
            for s in (1e4, 1e5, 1e6, 1e7):
                run_id = f"{len(rows):032x}"
                about = {"run_id": run_id, "family": family, "size": f"{s:g}", "model": f"{family}-{s:g}"}
                numbers = {"non_embedding_params": int(s), "total_params": int(2 * s), "vocab_size": 512}
                rows.append(about | numbers | {"dataset": dataset, "documents_hash": dataset, "num_tokens": 6000})
                tables[run_id] = power_law_rank_table(s, alpha=alpha, seed=seed)
    runs = Runs(pd.DataFrame(rows), RankTables(tables))
    classes = find_plugins(ANALYZERS).load()
    outcomes = analyse(runs, [classes["power_law"](), classes["k_law"]()], processes=1)
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


def new_page(browser: Browser, **how: Any) -> Page:
    page = browser.new_page(**how)
    page.set_default_timeout(PATIENCE)
    return page


@pytest.fixture
def page(browser: Browser, page_file: Path) -> Iterator[Page]:
    yield from opened(browser, page_file)


def opened(browser: Browser, file: Path, *, address: str = "", **how: Any) -> Iterator[Page]:
    """The page, drawn; afterwards nothing may have been fetched, nor anything said in the console."""
    page = new_page(browser, **{"viewport": {"width": 1280, "height": 900}} | how)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url))
    page.goto(file.as_uri() + address)
    page.wait_for_selector("body[data-drawn]")
    yield page
    own = (file.as_uri(), "data:", "blob:")
    fetched_or_said = [text for text in said if not text.startswith(own)]
    page.close()
    assert fetched_or_said == []


def heights_of_laws(page: Page) -> list[str]:
    """The laws' lines as they are drawn."""
    return page.eval_on_selector_all(
        ".first .mark-line path[stroke-width='1.5']", "lines => lines.map(line => line.outerHTML)"
    )


POINTS = ".first .mark-symbol.role-mark path"
IS_FAINT = f"[...document.querySelectorAll('{POINTS}')].some(p => p.getAttribute('opacity') === '0.1') === {{some}}"


def opacities(page: Page) -> set[str]:
    points = page.locator(POINTS)
    return {points.nth(i).get_attribute("opacity") or "1" for i in range(points.count())}


def test_the_slider_moves_the_laws_and_shows_k(page: Page) -> None:
    assert page.locator("#k").inner_text() == "10"
    before = heights_of_laws(page)
    slider = page.locator("#chosen")
    slider.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    k = int(page.locator("#k").inner_text().replace(",", ""))
    assert k > 10
    assert slider.get_attribute("aria-valuetext") == f"k = {k}"
    page.wait_for_function(f"document.querySelector('.first').textContent.includes('−ln RBP_{k}')")
    assert heights_of_laws(page) != before


def test_the_table_follows_the_slider(page: Page) -> None:
    at_10 = page.locator("#laws tbody tr").all_inner_texts()
    page.locator("#chosen").focus()
    page.keyboard.press("Home")
    page.wait_for_function("document.getElementById('at-k').textContent === 'k = 1'")
    at_1 = page.locator("#laws tbody tr").all_inner_texts()
    assert [row.split()[:2] for row in at_1] == [row.split()[:2] for row in at_10]
    assert all(one != other for one, other in zip(at_1, at_10, strict=True))


def test_the_address_holds_what_is_chosen(browser: Browser, page: Page, page_file: Path) -> None:
    page.locator("#chosen").focus()
    page.keyboard.press("Home")
    page.click("#families button[value=nano]")
    page.click("#datasets button[value=wiki]")
    page.wait_for_function("location.hash.includes('wiki')")
    address = page.evaluate("location.hash")
    assert address == "#k=1&family=nano&dataset=wiki"
    assert "--k 1 --family nano --dataset wiki" in page.locator("#paper").inner_text()
    for again in opened(browser, page_file, address=address):
        assert again.locator("#k").inner_text() == "1"
        rows = again.locator("#laws tbody tr:visible").all_inner_texts()
        assert [row.split()[:2] for row in rows] == [["nano", "wiki"]]
    for again in opened(browser, page_file, address="#metric=ce"):
        assert again.locator("#at-k").inner_text() == "cross-entropy"
        assert not again.locator("#k").is_visible()


def test_residuals_are_drawn_for_every_dataset(page: Page) -> None:
    assert page.locator(".first .mark-symbol path[aria-label*='measured / law']").count() == 2 * 2 * 4


def test_the_figure_can_be_saved_as_it_is(page: Page) -> None:
    page.locator("#chosen").focus()
    page.keyboard.press("Home")
    with page.expect_download() as download:
        page.click("#save")
    assert download.value.suggested_filename == "laws-k1.svg"
    assert "−ln RBP_1<" in download.value.path().read_text()


def test_another_metric(page: Page) -> None:
    page.select_option("#metric", "ce")
    page.wait_for_function("document.querySelector('.first').textContent.includes('cross-entropy, nats')")
    assert page.locator("#chosen").is_disabled()


def test_the_legend_chooses_families_in_figure_and_table(page: Page) -> None:
    assert opacities(page) == {"1"}
    page.click("#families button[value=nano]")
    page.wait_for_function(IS_FAINT.format(some="true"))
    assert opacities(page) == {"1", "0.1"}
    families = page.eval_on_selector_all(
        "#laws tr[data-family]:not([hidden])", "rows => rows.map(r => r.dataset.family)"
    )
    assert set(families) == {"nano"}
    page.click("#families button[value=pico]")
    page.wait_for_function(IS_FAINT.format(some="false"))
    assert opacities(page) == {"1"}


def test_one_dataset_alone_is_larger(page: Page) -> None:
    panels, width = ".first [class*=_cell] > g > path.background", "all => all.map(p => p.getBBox().width)"
    widths = page.eval_on_selector_all(panels, width)
    page.click("#datasets button[value=wiki]")
    page.wait_for_function(f"document.querySelectorAll('{panels}').length === {len(widths) // 2}")
    alone = page.eval_on_selector_all(panels, width)
    assert alone[0] > 1.5 * widths[0]


def test_the_pointer_shows_model_value_and_interval(page: Page) -> None:
    page.locator(".first [aria-label*='model: nano-10000'][aria-label*='dataset: wiki']").first.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    text = tooltip.inner_text()
    assert "nano-10000" in text
    assert "wiki" in text
    assert re.search(r"−ln RBP_10 = [\d.]+\s+95% interval\s+[\d.]+ to [\d.]+", text)


def test_a_click_on_an_exponent_chooses_its_k(page: Page) -> None:
    page.locator(".first [aria-label*='family: pico'][aria-label*='k: 1;']").last.click(force=True)
    page.wait_for_function("document.getElementById('k').textContent === '1'")


def test_other_figures_are_drawn_when_they_are_opened(page: Page) -> None:
    details = page.locator("details.analyzer", has_text="k law")
    assert details.locator("svg").count() == 0
    details.locator("summary").first.click()
    details.locator("svg.marks").first.wait_for()
    link = details.locator("a[download='k_law.csv']")
    assert (link.get_attribute("href") or "").startswith("data:text/csv")


def test_figures_are_drawn_in_a_frame_without_rights(browser: Browser, page_file: Path) -> None:
    """As MLflow shows artifacts: a blob: link in a frame that may only run scripts."""
    page = new_page(browser, viewport={"width": 1280, "height": 900})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.evaluate(
        """text => {
            const frame = document.createElement("iframe");
            frame.setAttribute("sandbox", "allow-scripts");
            Object.assign(frame, { width: 1200, height: 800 });
            frame.src = URL.createObjectURL(new Blob([text], { type: "text/html" }));
            document.body.append(frame);
        }""",
        page_file.read_text(encoding="utf-8"),
    )
    inside = page.frame_locator("iframe")
    inside.locator(".first svg.marks").wait_for()
    assert inside.locator("#reading a[href]").count() == 0  # such a link is blocked there
    assert "Open read.html" in inside.locator("#reading").inner_text()
    details = inside.locator("details.analyzer", has_text="k law")
    details.locator("summary").first.click()
    details.locator("svg.marks").first.wait_for()
    page.close()
    assert said == []


@pytest.mark.parametrize("width", [390, 650, 1280])
def test_nothing_is_wider_than_the_screen(browser: Browser, page_file: Path, width: int) -> None:
    for page in opened(browser, page_file, viewport={"width": width, "height": 800}):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        drawn = page.locator(".first svg.marks").bounding_box()
        assert drawn
        assert drawn["width"] <= width
        if width == 390:  # panels below each other
            assert drawn["height"] > 2 * drawn["width"]


def test_dark_and_print(browser: Browser, page_file: Path) -> None:
    for page in opened(browser, page_file, color_scheme="dark"):
        ink = page.eval_on_selector(".first svg text", "text => getComputedStyle(text).fill")
        assert min(map(int, re.findall(r"\d+", ink)[:3])) > 150
        page.emulate_media(media="print", color_scheme="dark")
        ink = page.eval_on_selector(".first svg text", "text => getComputedStyle(text).fill")
        assert max(map(int, re.findall(r"\d+", ink)[:3])) < 100


def test_the_page_links_to_the_reading_page(page: Page) -> None:
    assert page.locator("#reading a").get_attribute("href") == "read.html"
    assert page.locator("#reading span").is_hidden()


def test_the_answer_is_there_before_any_script_runs(browser: Browser, page_file: Path) -> None:
    page = new_page(browser, java_script_enabled=False)
    page.goto(page_file.as_uri())
    assert page.locator("h1").is_visible()
    rows = page.locator("#laws tbody tr").all_inner_texts()
    assert [row.split()[:2] for row in rows] == [[family, dataset] for family in FAMILIES for dataset in DATASETS]
    page.close()
