"""The reading page in Chromium: it answers to slider, pointer, keyboard and search, and fetches nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from rbptrack.reporting import render_reading
from tests.reporting.reading_pages import TEXTS, displayed_texts, random_runs, runs_with_ranks
from tests.system.test_page import browser, new_page, opened

__all__ = ["browser"]
RANKS = {
    "small": [[1, 2, 11, 101, 1001, 5, 1, 50, 1, 10, 100], [3] * 9, [1] * 11, [1] * 10],
    "large": [[1, 1, 3, 200, 1, 2, 4, 500, 1, 1, 90], [1] * 9, [2] * 11, [1] * 10],
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reading") / "read.html"
    path.write_text(render_reading(runs_with_ranks(RANKS))[0], encoding="utf-8")
    return path


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    for page in opened(browser, file):
        show(page, "doc 0")
        yield page


def show(page: Page, document: str) -> None:
    page.locator("#documents tbody tr", has_text=document).first.click()


def classes(page: Page, column: int = 0) -> list[str]:
    """The classes of each span, those of marks left out."""
    names = page.eval_on_selector_all(
        f"#text .part:nth-child({column + 1}) span", "spans => spans.map(span => span.className)"
    )
    return [re.sub(r" ?\b(line|at|kept|hit|now)\b", "", name) for name in names]


def test_each_token_has_the_colour_of_its_rank(page: Page) -> None:
    assert page.locator("#text").inner_text().replace("↵", "").split() == displayed_texts()[0].split()
    assert classes(page) == ["unscored", "k0", "k0", "k1", "k3", "k0", "k1", "k1", "k3", "k0", "k0", "k2"]
    page.locator("#model").focus()
    page.keyboard.press("ArrowLeft")
    assert classes(page) == ["unscored", "k0", "k1", "k2", "k3", "k4", "k1", "k0", "k2", "k0", "k1", "k2"]
    assert "toy-small" in page.locator("#name").inner_text()


def test_what_was_gained_and_lost(page: Page) -> None:
    page.click("button[value=changes]")
    assert classes(page) == ["unscored", "", "gained", "closer", "", "gained", "", "lost", "further", "", "gained", ""]
    assert "3 tokens gained, 1 lost" in page.locator("#answer").inner_text()
    page.locator("#strip [data-model='0']").click()
    assert "smallest" in page.locator("#answer").inner_text()


def test_two_models_side_by_side(page: Page) -> None:
    page.click("button[value=pair]")
    assert [name.replace(" only", "") for name in classes(page, 0)][4:8] == ["k3", "k4", "k1", "k0"]
    assert [name.replace(" only", "") for name in classes(page, 1)][4:8] == ["k3", "k0", "k1", "k1"]
    assert page.locator("#text .only").count() == 4
    assert page.locator("#columns b").all_inner_texts() == ["toy-small (S = 1k)", "toy-large (S = 100k)"]


def test_the_pointer_shows_a_token_and_a_click_keeps_it(page: Page) -> None:
    page.locator("#text [data-i='5']").hover()
    rows = page.locator("#details tbody tr").all_inner_texts()
    assert [row.split()[:2] for row in rows] == [["toy-small", "1,001"], ["toy-large", "1"]]
    assert "One" in rows[0]  # what it ranks first
    page.locator("#text [data-i='5']").click()
    page.locator("#text [data-i='2']").hover()
    assert "1,001" in page.locator("#details").inner_text()
    page.keyboard.press("Escape")
    page.locator("#text [data-i='0']").hover()
    assert "not scored" in page.locator("#details").inner_text()


def test_the_keyboard_moves_from_token_to_token(page: Page) -> None:
    page.locator("#text").focus()
    page.keyboard.press("Home")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    assert page.locator(".at").inner_text().strip() == "of"
    page.keyboard.press("n")
    assert page.locator(".at").get_attribute("data-i") == "4"  # the next rank above 100
    page.keyboard.press("[")
    assert "toy-small" in page.locator("#name").inner_text()


def test_tokens_of_one_character_are_shown_together(page: Page) -> None:
    show(page, "doc 1")
    page.locator("#text span", has_text="😀").click()
    assert page.locator("#details table").count() == 3


def test_text_from_right_to_left(page: Page) -> None:
    show(page, "doc 2")
    first = page.locator("#text [data-i='0']").bounding_box()
    second = page.locator("#text [data-i='1']").bounding_box()
    assert first
    assert second
    assert second["x"] < first["x"]
    page.locator("#text [data-i='1']").click()
    page.locator("#text").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator(".at").get_attribute("data-i") == "2"


def test_texts_are_never_html(page: Page) -> None:
    show(page, "doc 3")
    assert page.locator("#text").inner_text().split() == displayed_texts()[3].split()
    assert page.locator("img").count() == 0


def test_search_goes_through_all_documents(page: Page) -> None:
    page.fill("#search", "o")
    in_first = "".join(TEXTS[0]).lower().count("o")
    assert page.locator("#found").inner_text().startswith(f"1/{in_first} +")
    assert page.locator(".hit.now").count() == 1
    for _ in range(in_first):
        page.locator("#search").press("Enter")
    assert page.locator("#heading").inner_text() != "doc 0"
    assert page.locator(".hit.now").count() == 1
    page.fill("#search", "f pro")
    show(page, "doc 0")
    assert page.locator(".hit").all_inner_texts() == [" of", " prose"]


def test_the_address_holds_what_is_shown(browser: Browser, page: Page, file: Path) -> None:
    page.click("button[value=changes]")
    page.locator("#text [data-i='5']").click()
    address = page.evaluate("location.hash")
    again = new_page(browser)
    again.goto(file.as_uri() + address)
    again.wait_for_selector("body[data-drawn]")
    assert again.locator("#heading").inner_text() == "doc 0"
    assert again.locator("button[value=changes]").get_attribute("aria-checked") == "true"
    assert again.locator(".at").get_attribute("data-i") == "5"
    again.close()


def test_it_works_in_a_frame_without_rights(browser: Browser, file: Path) -> None:
    """As MLflow shows artifacts: a blob: link in a frame that may only run scripts."""
    page = new_page(browser)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.evaluate(
        """text => {
            const frame = document.createElement("iframe");
            frame.setAttribute("sandbox", "allow-scripts");
            Object.assign(frame, { width: 1200, height: 700 });
            frame.src = URL.createObjectURL(new Blob([text], { type: "text/html" }));
            document.body.append(frame);
        }""",
        file.read_text(encoding="utf-8"),
    )
    page.frame_locator("iframe").locator("body[data-drawn]").wait_for()
    page.frame_locator("iframe").locator("#text [data-i='3']").click()
    assert page.frame_locator("iframe").locator(".kept").count() == 1
    page.close()
    assert said == []


@pytest.mark.parametrize("width", [390, 800, 1280])
@pytest.mark.parametrize("mode", ["ranks", "pair"])
def test_nothing_is_wider_than_the_screen(browser: Browser, file: Path, width: int, mode: str) -> None:
    for page in opened(browser, file, viewport={"width": width, "height": 800}):
        page.click(f"button[value={mode}]")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("media", ["screen", "print"])
def test_text_is_legible_on_every_colour(browser: Browser, file: Path, scheme: Any, media: Any) -> None:
    for page in opened(browser, file, color_scheme=scheme):
        page.emulate_media(media=media, color_scheme=scheme)
        colours = page.evaluate(
            """() => ["k0", "k1", "k2", "k3", "k4", "gained", "closer", "further", "lost"].map(name => {
                const made = Object.assign(document.createElement("span"), { className: name });
                document.querySelector(".part").append(made);
                const style = getComputedStyle(made);
                const both = [style.color, style.backgroundColor];
                made.remove();
                return both;
            })"""
        )
        grounds = [luminance(ground) for _, ground in colours[1:5]]
        assert grounds == sorted(grounds, reverse=scheme == "light" or media == "print")  # without colours, too
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for ink, ground in colours:
            behind = paper if ground.endswith(", 0)") else ground
            assert contrast(luminance(ink), luminance(behind)) >= 4.5


def luminance(colour: str) -> float:
    """The relative luminance of a colour (WCAG 2)."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: float, other: float) -> float:
    low, high = sorted((one, other))
    return (high + 0.05) / (low + 0.05)


def test_many_models_and_tokens_answer_at_once(browser: Browser, tmp_path: Path) -> None:
    sizes = {str(i): 1000 * 2**i for i in range(24)}
    words = [[f" w{word}" for word in range(2_000)] for _ in range(10)]
    file = tmp_path / "large.html"
    file.write_text(render_reading(random_runs(words, sizes))[0], encoding="utf-8")
    for page in opened(browser, file):
        page.locator("#model").focus()
        for _ in range(5):
            page.keyboard.press("ArrowLeft")
        assert "toy-18" in page.locator("#name").inner_text()


def test_shares_of_ranks_add_up_and_agree_with_the_sentence(page: Page) -> None:
    key = page.locator("#key small").all_inner_texts()
    shares = [float(text.removesuffix("%")) for text in key if text]
    assert sum(shares) == pytest.approx(100)
    told = [float(text) for text in re.findall(r"([\d.]+)%", page.locator("#answer").inner_text())]
    assert told == pytest.approx([shares[0], shares[0] + shares[1]])


@pytest.mark.parametrize("mode", ["ranks", "pair"])
def test_long_blanks_stay_in_their_column(browser: Browser, tmp_path: Path, mode: str) -> None:
    texts = [["a", " " * 300, "b", "\n", "| word", " " * 90, "|"]]
    file = tmp_path / "blanks.html"
    ranks = {size: [[1] * (len(texts[0]) - 1)] for size in ("small", "large")}
    file.write_text(render_reading(runs_with_ranks(ranks, texts))[0], encoding="utf-8")
    for page in opened(browser, file):
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            page.click(f"button[value={mode}]")
            outside = page.eval_on_selector_all(
                "#text .part span",
                """spans => spans.flatMap(span => [...span.getClientRects()].map(
                    box => box.right - span.parentElement.getBoundingClientRect().right)).filter(past => past > 1)""",
            )
            assert outside == []
