"""The core knows none of its plugins: it names none, and gives any name the same page."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rbptrack.analysis.contract import Analyzer
from rbptrack.analysis.discovery import ANALYZERS, KINDS, discover
from rbptrack.config.paths import builtin_folder
from rbptrack.reporting.computing import computed
from rbptrack.reporting.files import read_report, write_report
from rbptrack.reporting.page import Section, render
from tests.conftest import ROOT
from tests.synthetic import family_runs

ORDINARY = {
    "agreement", "authors", "compare", "domains", "draft", "emergence", "gpus", "hub", "learning", "lognormal",
    "reproduction", "scores", "table", "tokens", "training",
}  # fmt: skip
"""Names of plugins that are words of the trade, too: a table, the tokens of a text, a lognormal distribution."""


def names_of_plugins() -> set[str]:
    sources = [source for kind in KINDS for source in discover(kind).sources.values()]
    return {source.name for source in sources if source.is_built_in} - ORDINARY


def words(path: Path) -> Iterator[tuple[int, str]]:
    """Words of a module's names, imports and strings; docstrings are for readers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        texts: list[str] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            texts = re.findall(r"\w+", node.value)
        elif isinstance(node, ast.Name):
            texts = [node.id]
        elif isinstance(node, ast.Attribute):
            texts = [node.attr]
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("rbptrack.stats"):
            texts = (node.module or "").split(".")
        elif isinstance(node, ast.Import):
            texts = [word for alias in node.names for word in alias.name.split(".")]
        for text in texts:
            yield getattr(node, "lineno", 0), text


def test_no_module_of_the_core_names_a_plugin() -> None:
    names = names_of_plugins()
    assert {"power_law", "lack_of_fit", "wandb", "slurm"} <= names
    named = [
        f"{path.relative_to(ROOT)}:{line} {word}"
        for path in sorted((ROOT / "rbptrack").rglob("*.py"))
        for line, word in words(path)
        if word in names
    ]
    assert named == []


@pytest.mark.parametrize(("folder", "limit"), [("rbptrack", 300), ("plugins", 400)])
def test_files_stay_readable(folder: str, limit: int) -> None:
    lines = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert lines
    assert {path: count for path, count in lines.items() if count > limit} == {}


def page_of(analyzer: Analyzer, folder: Path) -> str:
    runs = family_runs(np.geomspace(1e4, 1e7, 5), alpha=0.1, a=3.0)
    write_report(computed(analyzer, runs), folder)
    page = render("t", runs, [Section(analyzer.name, "About it.", "", *read_report(folder))])
    return page.replace(analyzer.name, "NAME").replace(analyzer.name.replace("_", " "), "NAME")


@pytest.mark.parametrize("name", ["power_law", "lack_of_fit"])
def test_a_renamed_plugin_makes_the_same_page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "plugins" / "renamed"
    shutil.copytree(builtin_folder() / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    init = folder / "__init__.py"
    init.write_text(init.read_text().replace(f'= "{name}"', '= "renamed"'))
    monkeypatch.chdir(tmp_path)
    plugins = discover(ANALYZERS)
    lines = [page_of(plugins.select(each)(replicates=50), tmp_path / each).splitlines() for each in (name, "renamed")]  # type: ignore[call-arg]
    assert "lead" in "".join(lines[0]) or name != "power_law"
    made = [[line for line in page if " UTC" not in line] for page in lines]
    assert made[0] == made[1]
