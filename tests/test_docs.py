"""Tests of the documentation: its links, its commands, its Python code, and the pages that a tool writes."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import pkgutil
import re
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import transformers
import typer

import rbptrack
from rbptrack.analysis.testing import NeedsRanks, example_runs
from rbptrack.base.errors import BadInput
from rbptrack.cli.app import app
from rbptrack.config.compose import compose, read_words
from rbptrack.config.paths import embedded
from rbptrack.discovery import ANALYZERS, IMPORTERS, find_plugins
from studies import validity_page
from tests.conftest import ROOT
from tests.imported_files import read_checked
from tools import reference, tutorials

DOCS = sorted(path for path in (ROOT / "docs").rglob("*.md") if "reference" not in path.parts)
PAGES = [*DOCS, ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "examples").glob("*/README.md"))]
PROGRAM: Any = typer.main.get_command(app)

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_COMMANDS_WITH_OVERRIDES = ("measure", "plan", "demo")


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python(?: [^\n]*)?\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """Return each command line of rbptrack that a page shows, with the name of the page."""
    names_and_lines = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for line in re.findall(r"^(?:\$ |    )(rbptrack .*)$|`(rbptrack [^`]+)`", text, re.MULTILINE):
            words = re.sub(r" +#.*$", "", "".join(line))
            if not re.search(r"\b(?:NAME|WORDS|COMMAND|OUT)\b|\.\.\.", words):
                names_and_lines.append((page_name(page), re.sub(r"\s*[>|].*$", "", words)))
    return sorted(set(names_and_lines))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_of_a_page_lead_to_files_that_exist(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        path = target.partition("#")[0]
        if "://" in target or not path:
            continue
        assert (page.parent / path).resolve().exists(), target


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub and MkDocs make from the headings of a page, and the anchors `<a id=...>`."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors_of_headings = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return anchors_of_headings | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_of_a_page_lead_to_anchors_that_exist(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        linked_page = (page.parent / path).resolve() if path else page
        if anchor and "://" not in target and linked_page.suffix == ".md":
            assert anchor in anchors(linked_page), target


@pytest.mark.parametrize(("page", "line"), commands())
def test_command_of_a_page_has_only_known_words_and_options(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").mkdir()
    mine = tmp_path / "conf/model/mine"
    mine.mkdir(parents=True)
    for size in ("6k", "15k", "38k", "115k"):
        (mine / f"{size}.yaml").write_text(f"family: mine\nsize: {size}\npath: my-model\n")
    notes = tmp_path / "conf/dataset/notes.yaml"
    notes.parent.mkdir()
    notes.write_text("name: notes\nfiles: [notes.jsonl]\nsplit: train\nseq_len: 256\n")
    words = shlex.split(line)[1:]
    if not words or words[0] == "--help":
        return
    if "=" in words[0] or words[0] in _COMMANDS_WITH_OVERRIDES or words[0] == "-m":
        overrides = words[1:] if words[0] in _COMMANDS_WITH_OVERRIDES else words
        if not any(word.startswith(("hydra/", "-")) for word in overrides):
            words_of_first_cell = read_words(["--cfg=job", *overrides]).words_for_hydra()[1:]
            compose([word for word in words_of_first_cell if not word.startswith("hydra.searchpath=")])
        return
    command = PROGRAM.commands[words[0]]
    options = [word for word in words[1:] if word.startswith("--")]
    known_options = {flag for parameter in command.params for flag in parameter.opts} | {"--help"}
    assert {option.partition("=")[0] for option in options} <= known_options
    if words[0] == "analyze" and len(words) > 1 and words[1] in find_plugins(ANALYZERS).names:
        fields = find_plugins(ANALYZERS).load(words[1]).model_fields
        assert {word.partition("=")[0] for word in words[2:] if "=" in word and word[0] != "-"} <= set(fields)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_python_code_of_a_page_parses(page: Path) -> None:
    for block in python_blocks(page):
        ast.parse(block)


def test_first_example_of_the_readme_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, folder in (("AutoModelForCausalLM", "models/6k"), ("AutoTokenizer", "tokenizer")):
        loaded = getattr(transformers, kind).from_pretrained(embedded(folder))
        monkeypatch.setattr(f"transformers.{kind}.from_pretrained", lambda name, loaded=loaded: loaded)
    exec(python_blocks(ROOT / "README.md")[0], {})
    ce, rbp = map(float, capsys.readouterr().out.split())
    assert ce > 0
    assert 0 <= rbp <= 1


def test_analyzer_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = python_blocks(ROOT / "README.md")[1]
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/best.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    best: Any = find_plugins(ANALYZERS).load("best")
    report = best(k=1).analyze(example_runs())
    table = report.frame("rbp")
    assert sorted(table["dataset"]) == ["code", "prose"]
    assert set(table["best"]) == {"alpha-25600000"}


def test_analyzer_of_the_page_on_plugins_passes_the_contract_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = python_blocks(ROOT / "docs/howto/plugins.md")[0]
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/spread.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    spread = find_plugins(ANALYZERS).load("spread")

    class Contract(NeedsRanks):
        analyzer = spread()

    contract = Contract()
    for name in dir(contract):
        if name.startswith("test_"):
            getattr(contract, name)()


def test_importer_of_scores_of_the_page_on_plugins_reads_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source,) = [block for block in python_blocks(ROOT / "docs/howto/plugins.md") if "ImportedScore" in block]
    (tmp_path / "plugins/importers").mkdir(parents=True)
    (tmp_path / "plugins/importers/quiz.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    quiz = find_plugins(IMPORTERS).load("quiz")()
    tasks = {"arc": {"percent": 62.5, "questions": 80}, "boolq": None}
    path = tmp_path / "x.quiz"
    path.write_text(json.dumps({"model": "a/b", "shots": 5, "tasks": tasks}))
    content = read_checked(quiz, path)
    assert content.scores.to_dict("records") == [
        {"model": "a/b", "revision": "", "task": "arc (accuracy, 5-shot)", "score": 0.625, "n": 80}
    ]
    assert len(content.notes) == 1
    path.write_text("{}")
    with pytest.raises(BadInput, match="model"):
        read_checked(quiz, path)


def test_examples_in_docstrings_print_what_they_show() -> None:
    for module in pkgutil.walk_packages(rbptrack.__path__, "rbptrack."):
        if "embedded" in module.name or module.name.endswith("__main__"):
            continue
        source = Path(str(module.module_finder.path)) / f"{module.name.rpartition('.')[2]}.py"  # type: ignore[union-attr]
        if source.is_file() and ">>>" in source.read_text(encoding="utf-8"):
            assert doctest.testmod(importlib.import_module(module.name)).failed == 0, module.name


def test_notebook_holds_the_outputs_of_all_its_cells() -> None:
    notebook = json.loads((ROOT / "examples/notebook.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in cells)
    assert not any(output["output_type"] == "error" for cell in cells for output in cell["outputs"])
    assert len(json.dumps(notebook)) < 300_000


def test_pages_of_the_reference_are_current() -> None:
    """If this test fails, run `python -m tools.reference`.

    The pages are made in a process of their own: if tests have imported a plugin as a module of `plugins`, pydantic
    does not find the help of its options in the module that `find_plugins` makes of the same file.
    """
    code = "import json, sys; from tools import reference; json.dump(reference.pages(), sys.stdout)"
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    pages = json.loads(process.stdout)
    if f"typer=={typer.__version__}\n" not in (ROOT / "constraints.txt").read_text():
        del pages["commands"]  # other versions of typer print other help texts
    stale = [name for name, text in pages.items() if (reference.FOLDER / f"{name}.md").read_text() != text]
    assert stale == []
    assert "|  |" not in pages["plugins"]  # every name has a meaning


def test_page_with_simulated_rates_is_current() -> None:
    """If this test fails, change studies/validity.md.jinja, and run `python -m studies.validity --table`."""
    assert validity_page.PAGE.read_text() == validity_page.page_text()


@pytest.mark.parametrize(
    ("shown", "printed", "agree"),
    [
        ("nano-6k  CE 5.538  1,200 tok/s", "nano-6k   CE 5.539  900 tok/s", True),
        ("CE 5.538", "CE 5.541", False),
        ("14 measured", "13 measured", False),
    ],
)
def test_check_output_lets_speeds_and_last_digits_differ(shown: str, printed: str, agree: bool) -> None:
    with nullcontext() if agree else pytest.raises(tutorials.Different):
        tutorials.check_output(tutorials.Command("x", [shown]), [printed])


def test_check_output_lets_three_dots_stand_for_any_lines_and_refuses_missing_and_additional_lines() -> None:
    command = tutorials.Command("x", ["first", "...", "last"])
    tutorials.check_output(command, ["first", "second", "last"])
    with pytest.raises(tutorials.Different):
        tutorials.check_output(command, ["first", "second"])
    with pytest.raises(tutorials.Different):
        tutorials.check_output(tutorials.Command("x", ["first"]), ["first", "second"])
