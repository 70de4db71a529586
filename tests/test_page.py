"""The page in Chromium: its figure to choose from, its boxes on screen, phone and paper, and its accessibility."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rbptrack.plugins.power_law import PowerLaw

from rbptrack.base.errors import BadInput
from rbptrack.reporting import pdf
from rbptrack.reporting.files import InlineFigure, read_report, write_report
from rbptrack.reporting.page import Section, render
from rbptrack.reporting.page_figures import MOST_CHARACTERS, within
from rbptrack.reporting.telling import tell
from tests.synthetic import family_runs, together

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
FAMILIES = ("gpt2", "opt", "pythia", "qwen2.5")
DATASETS = ("auslegal", "c4", "hotpotqa", "humaneval", "pile_github", "wiki")
SEEN = "all => all.filter(a => a.getBoundingClientRect().width > 0).map(a => a.getAttribute('aria-label'))"
LEFTS = "all => new Set(all.filter(a => a.clientWidth).map(a => Math.round(a.getBoundingClientRect().left))).size"
UNEVEN = """rows => rows.filter(row => {
  const heights = [...row.cells].map(cell => cell.getBoundingClientRect().height);
  return Math.max(...heights) - Math.min(...heights) > 1;
}).map(row => row.textContent)"""
BROKEN = """cells => cells.filter(cell => [...cell.querySelectorAll('*'), cell].some(inside => [...inside.childNodes]
  .filter(node => node.nodeType === 3).some(node => [...node.textContent.matchAll(/[\\w.−+%]+/g)].some(word => {
    const range = document.createRange();
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1;
  })))).map(cell => cell.textContent)"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of power_law over 24 models on 6 datasets, and its files."""
    sizes = np.geomspace(1e6, 1e10, 6)
    runs = together(
        *(
            family_runs(sizes * (1 + f), alpha=0.1 + f / 50, a=3.0, family=name, dataset=dataset, seed=f, tokens=100)
            for f, name in enumerate(FAMILIES)
            for dataset in DATASETS
        )
    )
    report = PowerLaw(ks=[1, 10, 100], curve_points=1, replicates=20).analyze(runs)
    tell(report)
    place = tmp_path_factory.mktemp("page")
    write_report(report, place)
    section = Section("power_law", "About it.", "k=1", *read_report(place))
    page = render("t", runs, [section], files="{folder}")
    (place / "page.html").write_text(page, encoding="utf-8")
    (place / "plain.html").write_text(render("t", runs, [section], files="{folder}", live=False), encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install '.[dev]'")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


def opened(browser: Any, folder: Path, *, width: int = 1280, **options: Any) -> Any:
    page = browser.new_context(viewport={"width": width, "height": 900}, **options).new_page()
    page.goto((folder / "page.html").as_uri())
    return page


def test_the_figure_shows_what_is_chosen(folder: Path, browser: Any) -> None:
    page = opened(browser, folder)
    panels = page.locator("figure.choice svg.panel")
    assert panels.count() == 3 * 7, "the exponents and six datasets, for three metrics"
    shown = panels.evaluate_all(SEEN)
    assert shown == ["α of RBP_1", *(f"{dataset}: −ln RBP_1" for dataset in DATASETS)]
    page.get_by_label("RBP10").check()
    page.get_by_label("Dataset").select_option("wiki")
    assert panels.evaluate_all(SEEN) == ["α of RBP_10", "wiki: −ln RBP_10"]
    families = page.locator(".controls input[type=checkbox]")
    assert families.count() == len(FAMILIES)
    groups = page.locator("svg.panel[aria-label='wiki: −ln RBP_10'] [data-series=opt]")
    assert groups.first.is_visible()
    page.get_by_label("opt").uncheck()
    assert not groups.first.is_visible()
    page.emulate_media(media="print")
    assert len(panels.evaluate_all(SEEN)) == 21, "paper shows all"
    assert groups.first.is_visible()


def test_titles_keep_their_size_however_wide_their_panels_are(folder: Path, browser: Any) -> None:
    """Formulas, which are set letter by letter, shrink with the other letters of a panel that is drawn larger."""
    titles = "all => all.filter(a => a.clientWidth).map(a => a.querySelector('text:has(tspan)'))"
    titles += ".map(a => a.getBoundingClientRect().height)"
    for width in (390, 710):
        heights = opened(browser, folder, width=width).locator("figure.choice svg.panel").evaluate_all(titles)
        assert len(heights) == 7
        assert max(heights) < 25, "pixels"


def test_a_point_says_its_number_as_the_tables_have_it(folder: Path, browser: Any) -> None:
    page = opened(browser, folder)
    panel = page.locator("svg.panel[aria-label='α of RBP_1']")
    panel.focus()
    page.keyboard.press("ArrowRight")
    (law,) = [
        row
        for row in read_report(folder).report.tables["laws"].frame.itertuples()
        if (row.family, row.dataset, row.metric) == ("gpt2", "auslegal", "RBP_1")
    ]
    said = f"gpt2 on auslegal: α of RBP_1 = {law.alpha:.3f} ({law.alpha_low:.3f} to {law.alpha_high:.3f})"
    assert page.locator(".tip").inner_text() == said
    assert said.rpartition("= ")[2] in page.locator("table.lead").first.inner_text()
    csv = (folder / "tables/laws.csv").read_text(encoding="utf-8")
    assert str(law.alpha) in csv


def test_without_a_script_and_in_a_sandbox_the_page_holds_the_same(folder: Path, browser: Any) -> None:
    plain = opened(browser, folder, java_script_enabled=False)
    assert plain.locator(".controls").count() == 0
    assert len(plain.locator("figure.choice svg.panel").all()) == 21
    assert plain.locator("figure.choice svg.legend").is_visible()
    frame = browser.new_page()
    faults: list[str] = []
    frame.on("pageerror", lambda error: faults.append(str(error)))
    frame.on("console", lambda message: faults.append(message.text))
    frame.goto("about:blank")
    text = (folder / "page.html").read_text(encoding="utf-8")
    frame.evaluate(
        "text => { const one = document.createElement('iframe'); one.sandbox = 'allow-scripts'; one.srcdoc = text; "
        "one.width = 1200; one.height = 900; document.body.append(one); }",
        text,
    )
    inside = frame.frame_locator("iframe")
    inside.get_by_label("RBP10").check()
    inside.locator("svg.panel[aria-label='wiki: −ln RBP_10']").wait_for()
    assert not faults
    script = text.partition("<script>")[2]
    assert not any(word in script for word in ("eval(", "Function(", "fetch(", "localStorage", "import("))
    bare = (folder / "plain.html").read_text(encoding="utf-8")
    assert "<script" not in bare, "analyses' own pages have none"
    assert len(text) - len(bare) < 20_000


@pytest.mark.parametrize(("width", "media"), [(1280, "screen"), (390, "screen"), (688, "print"), (710, "print")])
def test_no_label_breaks_and_each_stands_beside_its_values(folder: Path, browser: Any, width: int, media: str) -> None:
    """On a screen, a phone, A4 and Letter less their margins, at 96 dots per inch."""
    page = opened(browser, folder, width=width)
    page.emulate_media(media=media)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.locator("table.lead td, table.lead th").evaluate_all(BROKEN) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if width != 390:
        assert page.locator("table.lead tbody tr").evaluate_all(UNEVEN) == []
    else:
        assert page.locator("table.lead tbody tr").first.evaluate("row => getComputedStyle(row).display") == "block"
        assert page.locator("figure.choice svg.panel").evaluate_all(LEFTS) == 1, "one panel a row"
    if (width, media) == (1280, "screen"):
        assert page.locator(".headline").evaluate("one => one.getBoundingClientRect().top") < 500


def test_a_table_sorts_by_its_heads(folder: Path, browser: Any) -> None:
    page = opened(browser, folder)
    column = "table => [...table.tBodies[0].rows].map(row => Number(row.cells[3].dataset.v))"
    table = page.locator("table.lead").first
    for order in (1, -1):
        table.locator("th button").nth(3).click()
        values = table.evaluate(column)
        assert values == sorted(values, key=lambda value: order * value)
        assert len(values) == 24


def test_axe_finds_nothing_serious(folder: Path, browser: Any) -> None:
    """axe-core (MPL 2.0) comes with axe-playwright-python (MIT)."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install '.[dev]'")
    for width in (1280, 390):
        for scheme in ("light", "dark"):
            page = opened(browser, folder, width=width, color_scheme=scheme)
            results = axe.Axe().run(page).response["violations"]
            assert [one["id"] for one in results if one["impact"] in ("serious", "critical")] == []


def test_24_models_on_6_datasets_leave_room(folder: Path, browser: Any) -> None:
    """The first page with its tables: 15 sections more have 350 words and 60 kB each of 8,000 and 1.5 MB."""
    page = opened(browser, folder)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert len(page.inner_text("body").split()) < 3_500
    assert (folder / "page.html").stat().st_size < 600_000


def test_a_section_shows_the_figures_it_has_room_for() -> None:
    figures = [(name, InlineFigure(" " * size, "")) for name, size in zip("abc", (MOST_CHARACTERS, 9, 0), strict=True)]
    shown, linked = within(figures)
    assert ([len(one.svg) for one in shown], linked) == ([MOST_CHARACTERS, 0], ["b"])


def test_a_pdf_is_printed_where_chromium_is(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    pdf.print_page(folder / "page.html", tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BadInput, match="needs Chromium"):
        pdf.browser()
