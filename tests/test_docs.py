"""README, docs and changelog: short, without a broken link, and made from the code where they say so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools import reference, tutorials

WRITTEN = sorted((ROOT / "docs").glob("*.md"))
LINKED = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def words(*pages: Path) -> int:
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def test_readers_have_little_to_read() -> None:
    """Count all but the generated reference, which is looked up and not read."""
    assert words(ROOT / "README.md") <= 800
    assert words(ROOT / "CHANGELOG.md") <= 300
    assert words(*WRITTEN) <= 14_000


def slug(heading: str) -> str:
    """Return the anchor that Markdown's toc gives a heading."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), f"{page.name}: {target}"


def test_every_page_is_in_the_site() -> None:
    """But for the analyzers' own, which the list of analyzers names."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[2]
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    named = set(re.findall(r"[\w/-]+\.md", nav))
    assert named <= pages
    assert {page for page in pages - named if not page.startswith("reference/analyzers/")} == set()


def test_the_reference_is_that_of_the_code() -> None:
    """`make docs` writes it anew."""
    written = {
        str(page.relative_to(reference.FOLDER)): page.read_text(encoding="utf-8")
        for page in reference.FOLDER.rglob("*.md")
    }
    assert written == reference.pages()


def test_the_reference_names_every_option_and_analyzer() -> None:
    pages = reference.pages()
    assert "`model.dtype`" in pages["options.md"]
    assert "`launch.partition`" in pages["options.md"]
    assert "`analyzer.forecast`" in pages["analyzers/power_law.md"]
    assert "## When it declines" in pages["analyzers/draft.md"]
    for name in (path.name for path in (ROOT / "plugins").iterdir() if (path / "rows.py").exists()):
        assert f"(analyzers/{name}.md)" in pages["analyzers.md"]


def session(text: str) -> tutorials.Command:
    (command,) = tutorials.Block("", text).commands()
    return command


def test_what_a_page_shows_is_compared_with_what_came() -> None:
    shown = session("$ rbptrack list\nmodel  CE\n...\nnano-2m  2.2917  a2ba4736\n")
    tutorials.check(shown, ["model  CE", "nano-6k  5.5383  5fb54cfc", "nano-2m  2.2918  55833115"])
    for wrong in (
        ["model  CE", "nano-2m  2.2817  a2ba4736"],  # another number
        ["model  CE"],  # a line that did not come
        ["model  CE", "nano-2m  2.2917  a2ba4736", "1 measurement"],  # a line that the page lacks
        ["warning: slow", "model  CE", "nano-2m  2.2917  a2ba4736"],
    ):
        with pytest.raises(tutorials.Different):
            tutorials.check(shown, wrong)


def test_a_page_that_says_what_does_not_happen_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('```text title="a/b.txt"\nx\n```\n\n```console\n$ cat a/b.txt\nx\n$ ls -A "$HOME"\n```\n')
    tutorials.run(page, tmp_path)
    page.write_text("```console\n$ echo two\none\n```\n")
    with pytest.raises(tutorials.Different, match="does not print\none"):
        tutorials.run(page, tmp_path)
    page.write_text("```console\n$ false\n```\n")
    with pytest.raises(tutorials.Different, match="ended with 1"):
        tutorials.run(page, tmp_path)


def test_the_readme_shows_what_the_first_tutorial_shows() -> None:
    """Whose commands CI runs."""
    shown = {
        command.words: command.lines for block in tutorials.blocks(tutorials.PAGES[0]) for command in block.commands()
    }
    sessions = [command for block in tutorials.blocks(ROOT / "README.md") for command in block.commands()]
    assert sessions
    for command in sessions:
        assert set(command.lines) - {tutorials.LEFT_OUT} <= set(shown[command.words])
