"""Plugins: where they are found, and how their faults are told."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from rbptrack.analysis import BadInput, RbptrackError
from rbptrack.analysis.testing import example_runs
from rbptrack.base.process import Stopped
from rbptrack.discovery import ANALYZERS, IMPORTERS, KINDS, find_plugins, guarded, run_analyzer

GOOD = '''
from dataclasses import dataclass
from rbptrack.analysis import Analyzer, Report

class Mine(Analyzer):
    """Mine."""

    times: int = 1

    def analyze(self, runs):
        {body}
'''


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """A folder to work in, with plugins/; returns a function that writes a plugin there."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "plugins"
    folder.mkdir()

    def write(name: str, body: str = "return Report({}, headline='Good.')", text: str = GOOD) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(body=body) if text is GOOD else text)
        return path

    return write


def run(name: str):
    return run_analyzer(find_plugins(ANALYZERS).select(name)(), example_runs(documents=5))


def test_a_file_and_a_folder_are_plugins_named_after_it(plugins):
    plugins("mine.py")
    plugins("yours/__init__.py", text="from .inner import Mine\n")
    plugins("yours/inner.py")
    plugins("_helper.py")
    found = find_plugins(ANALYZERS)
    assert {"mine", "yours", "power_law", "k_law"} <= set(found.names)
    assert "_helper" not in found.names
    assert not found.entries["mine"].built_in
    assert found.entries["power_law"].built_in
    assert run("mine").headline == run("yours").headline == "Good."
    assert found.select("mine").name == "mine"


def test_further_folders_are_searched_and_a_wrong_one_is_named(plugins, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "theirs.py").write_text(GOOD.format(body="return Report({})"))
    assert "theirs" in find_plugins(ANALYZERS, ["other"]).names
    with pytest.raises(BadInput, match="nowhere"):
        find_plugins(ANALYZERS, ["other", "nowhere"])


def test_listing_imports_nothing(plugins, tmp_path):
    plugins("loud.py", text="open('imported', 'w')\n")
    assert "loud" in find_plugins(ANALYZERS).names
    assert not (tmp_path / "imported").exists()


def test_kinds_have_folders_of_their_own(plugins):
    assert "importers" not in find_plugins(ANALYZERS).names
    assert "table" in find_plugins(IMPORTERS).names


def test_the_name_of_a_built_in_plugin_is_taken(plugins):
    path = plugins("power_law.py")
    found = find_plugins(ANALYZERS)
    assert found.entries["power_law"].built_in
    assert any(str(path) in str(fault) for fault in found.broken)


@pytest.mark.parametrize(
    "text",
    [
        "raise SystemExit(3)",
        "1 / 0",
        "def broken(:",
        "import no_such_module",
        "x = 1",
        "from rbptrack.analysis import Analyzer\nclass A(Analyzer): ...",
        GOOD.format(body="...").replace("times: int", "times: Int"),
        GOOD.format(body="...").replace("times: int", "cost: int"),
        GOOD.format(body="...").replace("times: int = 1", "times = 1"),
        GOOD.format(body="...") + GOOD.format(body="...").replace("Mine", "Other"),
    ],
)
def test_a_broken_plugin_is_named_with_its_file_and_hides_no_other(plugins, text):
    path = plugins("broken.py", text=text)
    plugins("mine.py")
    found = find_plugins(ANALYZERS)
    loaded = found.load()
    assert "broken" not in loaded
    assert {"mine", "power_law"} <= set(loaded)
    [line] = [str(fault) for fault in found.broken if str(path) in str(fault)]
    assert "\n" not in line
    with pytest.raises(BadInput):
        found.select("broken")


def test_a_name_that_does_not_exist_lists_those_that_do() -> None:
    with pytest.raises(BadInput, match="power_law"):
        find_plugins(ANALYZERS).select("power_lav")


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
        "r = Report({'q': 3}); r.add('q', 1.0, family='a', dataset='b'); return r",
    ],
)
def test_whatever_an_analyzer_does_is_one_line_with_plugin_and_file(plugins, body):
    path = plugins("mine.py", body)
    with pytest.raises(RbptrackError) as raised:
        run("mine")
    text = str(raised.value)
    assert "\n" not in text
    assert "mine" in text
    assert str(Path("plugins") / path.name) in text


def test_an_error_names_the_line_of_the_plugin_and_keeps_the_traceback(plugins):
    plugins("mine.py", "return self.helper()\n    def helper(self):\n        return [][3]")
    with pytest.raises(RbptrackError, match="IndexError") as raised:
        run("mine")
    assert "mine.py, line 13" in str(raised.value)
    assert "in helper" in raised.value.trace
    broken = plugins("broken.py", text="x = 1\n\ny = x +\n")
    with pytest.raises(BadInput, match="SyntaxError") as refused:
        find_plugins(ANALYZERS).select("broken")
    assert f"{broken}, line 3" in str(refused.value)


def test_an_error_for_people_keeps_its_text_and_type(plugins):
    plugins("mine.py", "from rbptrack.analysis import BadInput; raise BadInput('ks must be above 0')")
    with pytest.raises(BadInput, match="mine: ks must be above 0"):
        run("mine")
    plugins("own.py", "from rbptrack.analysis import BadInput; e = BadInput('no'); e.trace = 'line 7'; raise e")
    with pytest.raises(BadInput) as raised:
        run("own")
    assert raised.value.trace == "line 7"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, Stopped])
def test_an_interrupt_is_not_held_up(plugins, stop):
    plugins("mine.py", f"from rbptrack.base.process import Stopped; raise {stop.__name__}")
    with pytest.raises(stop):
        run("mine")


def test_what_an_analyzer_changes_no_other_sees(plugins):
    plugins("mine.py", "runs.frame['ce'] = 0.0; return Report({})")
    runs = example_runs(documents=5)
    before = runs.frame.copy()
    run_analyzer(find_plugins(ANALYZERS).select("mine")(), runs)
    assert runs.frame.equals(before)


def test_results_of_a_call_are_checked(plugins):
    plugins("mine.py")
    plugin = find_plugins(ANALYZERS).select("mine")()
    assert guarded(plugin, lambda: 3, int) == 3
    with pytest.raises(RbptrackError, match="str"):
        guarded(plugin, lambda: "3", int)


def test_a_plugin_of_a_folder_goes_to_another_process(plugins, tmp_path):
    plugins("mine.py", "return Report({}, headline='x' * self.times)")
    plugin = find_plugins(ANALYZERS).select("mine")(times=4)
    (tmp_path / "plugin").write_bytes(pickle.dumps(plugin))
    code = "import pickle; p = pickle.load(open('plugin', 'rb')); print(p.name, p.analyze(None).headline)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert told.stdout.split() == ["mine", "xxxx"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
def test_the_summary_of_each_built_in_plugin_is_whole(kind):
    """The summary is the first line of the docstring, so the sentence must not go on in the second line."""
    for name, plugin in find_plugins(kind).load().items():
        assert inspect.cleandoc(plugin.__doc__).partition("\n")[2][:1] in ("", "\n"), name
