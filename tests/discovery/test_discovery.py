"""Tests that plugins are found, and that the errors of a plugin are reported in one line with its name and file."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rbptrack.analysis import BadInput, RbptrackError, Report
from rbptrack.analysis.testing import example_runs
from rbptrack.base.process import Stopped
from rbptrack.discovery import ANALYZERS, IMPORTERS, KINDS, call_plugin, find_plugins, run_analyzer

WritePlugin = Callable[..., Path]

ANALYZER = '''
from dataclasses import dataclass
from rbptrack.analysis import Analyzer, Report, Term

class Mine(Analyzer):
    """Mine."""

    times: int = 1

    def analyze(self, runs):
        {body}
'''
"""The source of an analyzer. `body` is the body of its method `analyze`."""


@pytest.fixture
def write_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WritePlugin:
    """Write a file into plugins/ of the working folder and return its path.

    The file holds `source`, or an analyzer whose method `analyze` has the body `body`.
    """
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "plugins"
    folder.mkdir()

    def write(name: str, body: str = "return Report({}, headline='Good.')", *, source: str = "") -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source or ANALYZER.format(body=body))
        return path

    return write


def report_of(name: str) -> Report:
    """Run the analyzer of this name on example measurements."""
    return run_analyzer(find_plugins(ANALYZERS).load(name)(), example_runs(documents=5))


def test_find_plugins_names_a_plugin_after_its_file(write_plugin: WritePlugin) -> None:
    write_plugin("mine.py")
    plugins = find_plugins(ANALYZERS)
    assert {"mine", "power_law", "k_law"} <= set(plugins.names)
    assert plugins.load("mine").name == "mine"
    assert report_of("mine").headline == "Good."


def test_find_plugins_names_a_plugin_after_its_folder(write_plugin: WritePlugin) -> None:
    write_plugin("yours/__init__.py", source="from .inner import Mine\n")
    write_plugin("yours/inner.py")
    assert "yours" in find_plugins(ANALYZERS).names
    assert report_of("yours").headline == "Good."


def test_find_plugins_ignores_a_file_that_begins_with_an_underscore(write_plugin: WritePlugin) -> None:
    write_plugin("_helper.py")
    assert "_helper" not in find_plugins(ANALYZERS).names


def test_find_plugins_tells_built_in_plugins_from_others(write_plugin: WritePlugin) -> None:
    write_plugin("mine.py")
    plugins = find_plugins(ANALYZERS)
    assert not plugins.entries["mine"].built_in
    assert plugins.entries["power_law"].built_in


def test_find_plugins_searches_further_folders(write_plugin: WritePlugin, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "theirs.py").write_text(ANALYZER.format(body="return Report({})"))
    assert "theirs" in find_plugins(ANALYZERS, ["other"]).names


@pytest.mark.usefixtures("write_plugin")
def test_find_plugins_refuses_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(BadInput, match="nowhere"):
        find_plugins(ANALYZERS, ["other", "nowhere"])


def test_find_plugins_does_not_import_plugins(write_plugin: WritePlugin, tmp_path: Path) -> None:
    write_plugin("writer.py", source="open('imported', 'w')\n")
    assert "writer" in find_plugins(ANALYZERS).names
    assert not (tmp_path / "imported").exists()


@pytest.mark.usefixtures("write_plugin")
def test_find_plugins_searches_importers_in_their_own_folder() -> None:
    assert "importers" not in find_plugins(ANALYZERS).names
    assert "table" in find_plugins(IMPORTERS).names


def test_find_plugins_keeps_the_built_in_plugin_if_a_file_has_its_name(write_plugin: WritePlugin) -> None:
    path = write_plugin("power_law.py")
    plugins = find_plugins(ANALYZERS)
    assert plugins.entries["power_law"].built_in
    assert any(str(path) in str(fault) for fault in plugins.broken)


BROKEN_SOURCES = [
    "raise SystemExit(3)",
    "1 / 0",
    "def broken(:",
    "import no_such_module",
    "x = 1",
    "from rbptrack.analysis import Analyzer\nclass A(Analyzer): ...",
    ANALYZER.format(body="...").replace("times: int", "times: Int"),
    ANALYZER.format(body="...").replace("times: int", "cost: int"),
    ANALYZER.format(body="...").replace("times: int = 1", "times = 1"),
    ANALYZER.format(body="...") + ANALYZER.format(body="...").replace("Mine", "Other"),
]


@pytest.mark.parametrize("source", BROKEN_SOURCES)
def test_load_all_returns_the_other_plugins_and_names_the_file_of_a_broken_one(
    write_plugin: WritePlugin, source: str
) -> None:
    path = write_plugin("broken.py", source=source)
    write_plugin("mine.py")
    plugins = find_plugins(ANALYZERS)
    loaded = plugins.load_all()
    assert "broken" not in loaded
    assert {"mine", "power_law"} <= set(loaded)
    (message,) = [str(fault) for fault in plugins.broken if str(path) in str(fault)]
    assert "\n" not in message


@pytest.mark.parametrize("source", BROKEN_SOURCES)
def test_load_refuses_a_broken_plugin(write_plugin: WritePlugin, source: str) -> None:
    write_plugin("broken.py", source=source)
    plugins = find_plugins(ANALYZERS)
    plugins.load_all()
    with pytest.raises(BadInput):
        plugins.load("broken")


def test_load_names_the_line_of_a_syntax_error(write_plugin: WritePlugin) -> None:
    path = write_plugin("broken.py", source="x = 1\n\ny = x +\n")
    with pytest.raises(BadInput, match="SyntaxError") as caught:
        find_plugins(ANALYZERS).load("broken")
    assert f"{path}, line 3" in str(caught.value)


def test_load_lists_the_analyzers_if_the_name_is_unknown() -> None:
    with pytest.raises(BadInput, match="power_law"):
        find_plugins(ANALYZERS).load("power_lav")


@pytest.mark.parametrize(
    "body",
    [
        "raise SystemExit(3)",
        "raise ValueError('two\\nlines')",
        "return {}",
        "return Report({}, headline=3)",
        "return Report(3)",
        "return Report({}, tables={'t': [1]})",
        "return Report({}, figures={'f': 'svg'})",
        "return Report({}, notes=[None])",
        "return Report({}, headline='\\ud800')",
        "return Report({}, opening=1.5)",
        "return Report({}, leading_columns=None)",
        "return Report({}, notes='a text is no list of texts')",
        "return Report({'q': Term('m', title=b'x')})",
        "r = Report({}); r.add('q', 1.0, family=None, dataset='b'); return r",
        "r = Report({}); r.add('q', 1.0, family='a', dataset=['b']); return r",
        "r = Report({}); r.add('q', 1.0, family='a', dataset='b', metric=True); return r",
        "r = Report({}); r.add('q', 1.0, family='a', dataset='b', k=10**400); return r",
        "r = Report({}); r.add('q', 1.0, family='a', dataset='b', beside={'S': {}}); return r",
        "r = Report({}); r.add('low', 1.0, family='a', dataset='b'); return r",
        "r = Report({}); r.add('q', 1.0, family='a', dataset='b', k=1, beside={'k': 2}); return r",
        "return Report({}, tables={'t': __import__('pandas').DataFrame([[1, 2]], columns=['a', 'a'])})",
        "r = Report({'q': 3}); r.add('q', 1.0, family='a', dataset='b'); return r",
    ],
)
def test_run_analyzer_reports_a_failure_or_a_wrong_report_in_one_line(write_plugin: WritePlugin, body: str) -> None:
    path = write_plugin("mine.py", body)
    with pytest.raises(RbptrackError) as caught:
        report_of("mine")
    message = str(caught.value)
    assert "\n" not in message
    assert "mine" in message
    assert str(Path("plugins") / path.name) in message


def test_run_analyzer_names_the_line_of_an_error_and_keeps_the_traceback(write_plugin: WritePlugin) -> None:
    write_plugin("mine.py", "return self.helper()\n    def helper(self):\n        return [][3]")
    with pytest.raises(RbptrackError, match="IndexError") as caught:
        report_of("mine")
    assert "mine.py, line 13" in str(caught.value)
    assert "in helper" in caught.value.trace


def test_run_analyzer_keeps_the_text_and_type_of_bad_input(write_plugin: WritePlugin) -> None:
    write_plugin("mine.py", "from rbptrack.analysis import BadInput; raise BadInput('ks must be above 0')")
    with pytest.raises(BadInput, match="mine: ks must be above 0"):
        report_of("mine")


def test_run_analyzer_keeps_the_trace_of_bad_input(write_plugin: WritePlugin) -> None:
    write_plugin("mine.py", "from rbptrack.analysis import BadInput; e = BadInput('no'); e.trace = 'line 7'; raise e")
    with pytest.raises(BadInput) as caught:
        report_of("mine")
    assert caught.value.trace == "line 7"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, Stopped])
def test_run_analyzer_lets_interrupts_pass(write_plugin: WritePlugin, stop: type[BaseException]) -> None:
    write_plugin("mine.py", f"from rbptrack.base.process import Stopped; raise {stop.__name__}")
    with pytest.raises(stop):
        report_of("mine")


def test_run_analyzer_gives_each_analyzer_its_own_copy_of_the_frame(write_plugin: WritePlugin) -> None:
    write_plugin("mine.py", "runs.frame['ce'] = 0.0; return Report({})")
    runs = example_runs(documents=5)
    before = runs.frame.copy()
    run_analyzer(find_plugins(ANALYZERS).load("mine")(), runs)
    assert runs.frame.equals(before)


def test_call_plugin_returns_a_result_of_the_expected_type(write_plugin: WritePlugin) -> None:
    write_plugin("mine.py")
    plugin = find_plugins(ANALYZERS).load("mine")()
    assert call_plugin(plugin, lambda: 3, int) == 3


def test_call_plugin_refuses_a_result_of_another_type(write_plugin: WritePlugin) -> None:
    write_plugin("mine.py")
    plugin = find_plugins(ANALYZERS).load("mine")()
    with pytest.raises(RbptrackError, match="str"):
        call_plugin(plugin, lambda: "3", int)


def test_plugin_from_a_file_can_be_pickled_for_another_process(write_plugin: WritePlugin, tmp_path: Path) -> None:
    write_plugin("mine.py", "return Report({}, headline='x' * self.times)")
    analyzer = find_plugins(ANALYZERS).load("mine")
    (tmp_path / "plugin").write_bytes(pickle.dumps(analyzer.model_validate({"times": 4})))
    code = "import pickle; p = pickle.load(open('plugin', 'rb')); print(p.name, p.analyze(None).headline)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert process.stdout.split() == ["mine", "xxxx"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_docstring_of_each_built_in_plugin_begins_with_one_line(kind: Any) -> None:
    """The summary of a plugin is the first line of its docstring. The sentence must not go on in the second line."""
    for name, plugin in find_plugins(kind).load_all().items():
        second_line = inspect.cleandoc(plugin.__doc__).partition("\n")[2].partition("\n")[0]
        assert second_line == "", name
