from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rbptrack.analysis.contract import Analyzer
from rbptrack.analysis.discovery import ANALYZERS, Plugins, discover
from rbptrack.analysis.plugin_code import code_of
from rbptrack.analysis.testing import example_runs
from rbptrack.base.errors import BadInput
from rbptrack.config.paths import builtin_folder
from rbptrack.reporting.runner import choose
from tests.synthetic import plugin

FOLDER = {
    "__init__.py": "from .subject import Mine\n",
    "rows.py": """import json
from pathlib import Path

DATA = json.loads(Path(__file__).with_name("data.json").read_text())
""",
    "data.json": "[1, 2]",
}


def in_a_folder(place: Path) -> Path:
    """The analyzer `mine` as a folder of several files and data, its class in a submodule."""
    file = plugin(place)
    folder = file.with_suffix("")
    folder.mkdir()
    text = file.read_text().replace("return Report(notes=[str(self.k)])", "return Report(notes=[str(DATA)])")
    first, _, rest = text.partition("from rbptrack")
    (folder / "subject.py").write_text(f"{first}from .rows import DATA\nfrom rbptrack{rest}")
    for name, content in FOLDER.items():
        (folder / name).write_text(content)
    file.unlink()
    return folder


def loaded(*folders: Path) -> Plugins[Analyzer]:
    plugins = discover(ANALYZERS, list(map(str, folders)))
    plugins.load()
    return plugins


def test_the_built_in_ones_and_the_working_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path)
    plugin(tmp_path / "more", "other")
    monkeypatch.chdir(tmp_path)
    plugins = discover(ANALYZERS, [str(tmp_path / "more/plugins")])
    assert {"power_law", "mine", "other"} <= set(plugins.names)
    assert plugins.select("mine")(k=3).analyze(example_runs()).notes == ["3"]  # type: ignore[call-arg]
    assert plugins.broken == []
    assert plugins.select("power_law").__module__ == "rbptrack.plugins.power_law", "one name wherever it lies"


def test_a_folder_is_a_plugin_with_submodules_and_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = in_a_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    cls = discover(ANALYZERS).select("mine")
    assert cls().analyze(example_runs()).notes == ["[1, 2]"]
    assert discover(ANALYZERS).select("mine") is cls, "imported anew it would be another class"
    before = code_of(cls)
    (folder / "data.json").write_text("[3]")
    again = discover(ANALYZERS).select("mine")
    assert again().analyze(example_runs()).notes == ["[3]"], "an edit is seen, in a notebook too"
    assert code_of(again) != before, "data files are part of a plugin's code"
    (folder / "rows.py").write_text("DATA = nowhere")
    with pytest.raises(BadInput, match=r"the analyzer mine cannot be used\n.*NameError"):
        discover(ANALYZERS).select("mine")
    (folder / "rows.py").write_text("DATA = 4")
    assert discover(ANALYZERS).select("mine")().analyze(example_runs()).notes == ["4"], "nothing half-imported is left"


def test_listing_names_imports_no_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path).write_text("raise SystemExit(0)")
    monkeypatch.chdir(tmp_path)
    plugins = discover(ANALYZERS)
    assert "mine" in plugins.names
    assert plugins.broken == []
    assert "mine" not in plugins.load()
    assert "mine.py: SystemExit: 0" in plugins.broken[0]


def test_a_broken_plugin_is_named_and_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path, "broken", file="a_broken").write_text("import nowhere_to_be_found\n")
    plugin(tmp_path, "power_law")
    plugin(tmp_path, "b_other", file="b_named")
    plain = plugin(tmp_path, "c_plain")
    plain.write_text(plain.read_text().replace("@dataclass(kw_only=True)", ""))
    plugin(tmp_path, "d_empty").write_text("")
    plugin(tmp_path, "not a word")
    plugin(tmp_path, "good")
    monkeypatch.chdir(tmp_path)
    plugins = loaded()
    assert {"power_law", "good"} <= set(plugins.names)
    assert plugins.select("power_law").__module__ == "rbptrack.plugins.power_law"
    assert "c_plain" not in plugins.names
    faults = {
        "not a word.py": "must be a word",
        "power_law.py": "exists already",
        "a_broken.py": "No module named 'nowhere_to_be_found'",
        "b_named.py": "name is 'b_other', but its file or folder is called 'b_named'",
        "c_plain.py": "must be a @dataclass",
        "d_empty.py": "one Analyzer; it has none",
    }
    for line, (file, fault) in zip(plugins.broken, faults.items(), strict=True):
        assert file in line
        assert fault in line
    with pytest.raises(
        BadInput, match=r"no analyzer matches missing. Options: [\w, ]*good, [\w, ]*power_law[\s\S]*a_broken.py"
    ):
        plugins.select("missing")


def test_an_edit_to_one_built_in_leaves_the_others_analyses_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their hashes differ, and hold what lies in their own folders only."""
    plugins = discover(ANALYZERS)
    hashes = [code_of(plugins.select(name)).split() for name in ("power_law", "lack_of_fit")]
    assert len(set(hashes[0]) & set(hashes[1])) == 1, "rbptrack's own code, without plugins"
    shutil.copytree(builtin_folder() / "power_law", tmp_path / "plugins/copied")
    init = tmp_path / "plugins/copied/__init__.py"
    init.write_text(init.read_text().replace('= "power_law"', '= "copied"'))
    monkeypatch.chdir(tmp_path)
    copied = discover(ANALYZERS).select("copied")
    before = code_of(copied)
    findings = tmp_path / "plugins/copied/findings.py"
    findings.write_text(f"{findings.read_text()}\n# edited\n")
    assert code_of(discover(ANALYZERS).select("copied")) != before


def test_the_k_asked_for_go_to_analyzers_that_take_them() -> None:
    first, second = choose(discover(ANALYZERS), ["power_law", "lognormal"], ks=[1, 5])
    assert (first.name, second.name) == ("lognormal", "power_law")
    assert second.ks == [1, 5]  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match=r"no analyzer matches pover_law\. Did you mean power_law"):
        choose(discover(ANALYZERS), ["pover_law"])


def test_analyzers_can_be_left_out() -> None:
    plugins = discover(ANALYZERS)
    every = {analyzer.name for analyzer in choose(plugins, ["*"])}
    assert {analyzer.name for analyzer in choose(plugins, ["!power_law", "!k_*"])} == every - {"power_law", "k_law"}
    assert [analyzer.name for analyzer in choose(plugins, ["l*", "!learning"])] == ["lack_of_fit", "lognormal"]
    assert choose(plugins, []) == []
    with pytest.raises(BadInput, match=r"no analyzer matches pover_law\. Did you mean power_law"):
        choose(plugins, ["!pover_law"])
