"""Tests of the reading page in Chromium: slider, pointer, keyboard, search, address, sizes and colours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from rbptrack.reporting import render_reading
from tests.reporting.reading_pages import TEXTS, displayed_texts, random_runs, runs_with_ranks
from tests.system.test_page import browser, open_in_sandbox, open_page

__all__ = ["browser"]
RANKS = {
    "small": [[1, 2, 11, 101, 1001, 5, 1, 50, 1, 10, 100], [3] * 9, [1] * 11, [1] * 10],
    "large": [[1, 1, 3, 200, 1, 2, 4, 500, 1, 1, 90], [1] * 9, [2] * 11, [1] * 10],
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reading page of two models with the ranks `RANKS`."""
    path = tmp_path_factory.mktemp("reading") / "read.html"
    path.write_text(render_reading(runs_with_ranks(RANKS))[0], encoding="utf-8")
    return path


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    """The page with the first document, `doc 0`."""
    with open_page(browser, file) as page:
        show(page, "doc 0")
        yield page


def show(page: Page, document: str) -> None:
    page.locator("#documents tbody tr", has_text=document).first.click()


def classes(page: Page, column: int = 0) -> list[str]:
    """Return the CSS classes of each token in one column of the text, without marks of matches and selected tokens."""
    names = page.eval_on_selector_all(
        f"#text .part:nth-child({column + 1}) span", "spans => spans.map(span => span.className)"
    )
    return [re.sub(r" ?\b(line|selected|pinned|match|current)\b", "", name) for name in names]


def test_text_of_document_is_shown(page: Page) -> None:
    assert page.locator("#text").inner_text().replace("↵", "").split() == displayed_texts()[0].split()


def test_tokens_have_colour_of_their_rank(page: Page) -> None:
    assert classes(page) == [
        "unscored",
        "class0",
        "class0",
        "class1",
        "class3",
        "class0",
        "class1",
        "class1",
        "class3",
        "class0",
        "class0",
        "class2",
    ]


def test_slider_shows_ranks_of_smaller_model(page: Page) -> None:
    page.locator("#model").focus()
    page.keyboard.press("ArrowLeft")
    assert classes(page) == [
        "unscored",
        "class0",
        "class1",
        "class2",
        "class3",
        "class4",
        "class1",
        "class0",
        "class2",
        "class0",
        "class1",
        "class2",
    ]
    assert "toy-small" in page.locator("#name").inner_text()


def test_mode_changes_shows_gained_and_lost_tokens(page: Page) -> None:
    page.click("button[value=changes]")
    assert classes(page) == ["unscored", "", "gained", "closer", "", "gained", "", "lost", "further", "", "gained", ""]
    assert "3 tokens gained, 1 lost" in page.locator("#answer").inner_text()


def test_mode_changes_of_smallest_model_says_that_there_is_no_smaller_one(page: Page) -> None:
    page.click("button[value=changes]")
    page.locator("#strip [data-model='0']").click()
    assert "no smaller model" in page.locator("#answer").inner_text()


def test_page_opens_at_the_token_with_the_largest_gain(browser: Browser, file: Path) -> None:
    with open_page(browser, file) as page:
        assert page.locator("#heading").inner_text() == "doc 0"
        # The line break rises from rank 1001 to 1, but it is no word.
        assert page.locator("#text .pinned").inner_text().strip() == "third"
        assert "from rank 10 to 1" in page.locator("#reasons").inner_text()


def test_mode_words_colours_all_tokens_of_a_word_alike(page: Page) -> None:
    page.click("button[value=words]")
    names = classes(page)
    assert names[0] == "unscored"
    assert names[3] == names[4]  # " prose" and "." are one word
    assert "nats" in page.locator("#answer").inner_text()
    page.locator("#text span").nth(3).click()
    assert "prose." in page.locator("#details").inner_text()


def test_mode_words_of_a_text_without_blanks_has_no_mean(browser: Browser, tmp_path: Path) -> None:
    """The first token is not scored, so no word is scored completely."""
    file = tmp_path / "read.html"
    runs = runs_with_ranks({"small": [[1, 2]], "large": [[1, 1]]}, [["a", "b", "c"]])
    file.write_text(render_reading(runs)[0], encoding="utf-8")
    with open_page(browser, file, address="#mode=words") as page:
        assert "of no word" in page.locator("#answer").inner_text()


def test_mode_pair_shows_two_models_side_by_side(page: Page) -> None:
    page.click("button[value=pair]")
    assert [name.replace(" first-only", "") for name in classes(page, 0)][4:8] == [
        "class3",
        "class4",
        "class1",
        "class0",
    ]
    assert [name.replace(" first-only", "") for name in classes(page, 1)][4:8] == [
        "class3",
        "class0",
        "class1",
        "class1",
    ]
    assert page.locator("#text .first-only").count() == 4
    assert page.locator("#columns b").all_inner_texts() == ["toy-small (S = 1k)", "toy-large (S = 100k)"]


def test_pointer_shows_ranks_of_token_by_all_models(page: Page) -> None:
    page.locator("#text [data-i='5']").hover()
    rows = page.locator("#details tbody tr").all_inner_texts()
    assert [row.split()[:2] for row in rows] == [["toy-small", "1,001"], ["toy-large", "1"]]
    assert "One" in rows[0], "the token of rank 1"


def test_click_keeps_details_of_token_until_escape(page: Page) -> None:
    page.locator("#text [data-i='5']").click()
    page.locator("#text [data-i='2']").hover()
    assert "1,001" in page.locator("#details").inner_text()
    page.keyboard.press("Escape")
    page.locator("#text [data-i='0']").hover()
    assert "not scored" in page.locator("#details").inner_text()


def test_arrow_keys_move_from_token_to_token(page: Page) -> None:
    page.locator("#text").focus()
    page.keyboard.press("Home")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    assert page.locator(".selected").inner_text().strip() == "of"


def test_key_n_moves_to_next_rank_above_100(page: Page) -> None:
    page.locator("#text").focus()
    page.keyboard.press("Home")
    page.keyboard.press("n")
    assert page.locator(".selected").get_attribute("data-i") == "4"


def test_key_bracket_shows_smaller_model(page: Page) -> None:
    page.locator("#text").focus()
    page.keyboard.press("[")
    assert "toy-small" in page.locator("#name").inner_text()


def test_click_on_character_of_several_tokens_shows_details_of_each_token(page: Page) -> None:
    show(page, "doc 1")
    page.locator("#text span", has_text="😀").click()
    assert page.locator("#details table").count() == 3


def test_right_to_left_text_is_shown_and_read_from_the_right(page: Page) -> None:
    show(page, "doc 2")
    first = page.locator("#text [data-i='0']").bounding_box()
    second = page.locator("#text [data-i='1']").bounding_box()
    assert first
    assert second
    assert second["x"] < first["x"]
    page.locator("#text [data-i='1']").click()
    page.locator("#text").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator(".selected").get_attribute("data-i") == "2"


def test_html_in_text_is_shown_as_text(page: Page) -> None:
    show(page, "doc 3")
    assert page.locator("#text").inner_text().split() == displayed_texts()[3].split()
    assert page.locator("img").count() == 0


def test_search_counts_hits_and_continues_in_other_documents(page: Page) -> None:
    page.fill("#search", "o")
    hits_in_first_document = "".join(TEXTS[0]).lower().count("o")
    assert page.locator("#found").inner_text().startswith(f"1/{hits_in_first_document} +")
    assert page.locator(".match.current").count() == 1
    for _ in range(hits_in_first_document):
        page.locator("#search").press("Enter")
    assert page.locator("#heading").inner_text() != "doc 0"
    assert page.locator(".match.current").count() == 1


def test_search_marks_all_tokens_of_hit(page: Page) -> None:
    page.fill("#search", "f pro")
    show(page, "doc 0")
    assert page.locator(".match").all_inner_texts() == [" of", " prose"]


def test_address_reopens_page_with_document_mode_and_token(browser: Browser, page: Page, file: Path) -> None:
    page.click("button[value=changes]")
    page.locator("#text [data-i='5']").click()
    with open_page(browser, file, address=page.evaluate("location.hash")) as reopened:
        assert reopened.locator("#heading").inner_text() == "doc 0"
        assert reopened.locator("button[value=changes]").get_attribute("aria-checked") == "true"
        assert reopened.locator(".selected").get_attribute("data-i") == "5"


def test_click_keeps_token_in_sandboxed_frame(browser: Browser, file: Path) -> None:
    with open_in_sandbox(browser, file) as frame:
        frame.locator("body[data-drawn]").wait_for()
        frame.locator("#text [data-i='3']").click()
        assert frame.locator(".pinned").count() == 1


@pytest.mark.parametrize("width", [390, 800, 1280])
@pytest.mark.parametrize("mode", ["ranks", "pair"])
def test_reading_page_is_not_wider_than_screen(browser: Browser, file: Path, width: int, mode: str) -> None:
    with open_page(browser, file, viewport={"width": width, "height": 800}) as page:
        page.click(f"button[value={mode}]")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


COLOURS_OF_CLASSES = """names => names.map(name => {
    const span = Object.assign(document.createElement("span"), { className: name });
    document.querySelector(".part").append(span);
    const style = getComputedStyle(span);
    const colours = [style.color, style.backgroundColor];
    span.remove();
    return colours;
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("media", ["screen", "print"])
def test_backgrounds_of_higher_ranks_have_more_contrast_to_paper(
    browser: Browser, file: Path, scheme: Any, media: Any
) -> None:
    """The order of ranks can be seen without colours, from the luminance of the backgrounds alone."""
    with open_page(browser, file, color_scheme=scheme) as page:
        page.emulate_media(media=media, color_scheme=scheme)
        colours = page.evaluate(COLOURS_OF_CLASSES, ["class1", "class2", "class3", "class4"])
        luminances = [luminance(background) for _, background in colours]
        assert luminances == sorted(luminances, reverse=scheme == "light" or media == "print")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("media", ["screen", "print"])
def test_text_has_contrast_of_4_5_to_every_background(browser: Browser, file: Path, scheme: Any, media: Any) -> None:
    names = ["class0", "class1", "class2", "class3", "class4", "gained", "closer", "further", "lost"]
    with open_page(browser, file, color_scheme=scheme) as page:
        page.emulate_media(media=media, color_scheme=scheme)
        colours = page.evaluate(COLOURS_OF_CLASSES, names)
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for text, background in colours:
            is_transparent = background.endswith(", 0)")
            assert contrast(luminance(text), luminance(paper if is_transparent else background)) >= 4.5


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour in CSS, such as `rgb(0, 10, 20)`. Source: WCAG 2."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(luminance_a: float, luminance_b: float) -> float:
    """Return the contrast ratio of two relative luminances. Source: WCAG 2."""
    low, high = sorted((luminance_a, luminance_b))
    return (high + 0.05) / (low + 0.05)


def test_slider_works_with_24_models_and_20000_tokens(browser: Browser, tmp_path: Path) -> None:
    sizes = {str(i): 1000 * 2**i for i in range(24)}
    words = [[f" w{word}" for word in range(2_000)] for _ in range(10)]
    file = tmp_path / "large.html"
    file.write_text(render_reading(random_runs(words, sizes))[0], encoding="utf-8")
    with open_page(browser, file) as page:
        page.locator("#model").focus()
        for _ in range(5):
            page.keyboard.press("ArrowLeft")
        assert "toy-18" in page.locator("#name").inner_text()


def test_shares_in_legend_add_up_to_100_percent_and_agree_with_shares_in_answer(page: Page) -> None:
    texts = page.locator("#key small").all_inner_texts()
    shares = [float(text.removesuffix("%")) for text in texts if text]
    assert sum(shares) == pytest.approx(100)
    shares_in_sentence = [float(text) for text in re.findall(r"([\d.]+)%", page.locator("#answer").inner_text())]
    assert shares_in_sentence == pytest.approx([shares[0], shares[0] + shares[1]])


@pytest.mark.parametrize("mode", ["ranks", "pair"])
def test_tokens_of_many_blanks_stay_in_their_column(browser: Browser, tmp_path: Path, mode: str) -> None:
    texts = [["a", " " * 300, "b", "\n", "| word", " " * 90, "|"]]
    file = tmp_path / "blanks.html"
    ranks = {size: [[1] * (len(texts[0]) - 1)] for size in ("small", "large")}
    file.write_text(render_reading(runs_with_ranks(ranks, texts))[0], encoding="utf-8")
    with open_page(browser, file) as page:
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            page.click(f"button[value={mode}]")
            outside = page.eval_on_selector_all(
                "#text .part span",
                """spans => spans.flatMap(span => [...span.getClientRects()].map(
                    box => box.right - span.parentElement.getBoundingClientRect().right)).filter(past => past > 1)""",
            )
            assert outside == []
