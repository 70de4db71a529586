from __future__ import annotations

from pathlib import Path

import pytest

from rbptrack.analysis.testing import example_runs
from rbptrack.base.errors import BadInput
from rbptrack.reporting.discovery import MOVED, Plugins, discover
from rbptrack.reporting.runner import choose
from tests.synthetic import plugin


def test_the_built_in_ones_and_the_working_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path)
    plugin(tmp_path / "more", "other")
    monkeypatch.chdir(tmp_path)
    plugins = discover([str(tmp_path / "more/plugins")])
    assert {"power_law", "mine", "other"} <= set(plugins.analyzers)
    assert plugins.broken == []
    assert plugins.analyzers["mine"](k=3).analyze(example_runs()).notes == ["3"]  # type: ignore[call-arg]


def test_a_broken_plugin_is_named_and_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path, "broken", file="a_broken").write_text("import nowhere_to_be_found\n")
    plugin(tmp_path, "power_law", file="b_twice")
    plain = plugin(tmp_path, "plain", file="c_plain")
    plain.write_text(plain.read_text().replace("@dataclass(kw_only=True)", ""))
    plugin(tmp_path, "good")
    monkeypatch.chdir(tmp_path)
    plugins = discover()
    assert {"power_law", "good"} <= set(plugins.analyzers)
    assert "plain" not in plugins.analyzers
    faults = {
        "a_broken.py": "No module named 'nowhere_to_be_found'",
        "b_twice.py": "exists already",
        "c_plain.py": "must be a @dataclass",
    }
    for line, (file, fault) in zip(plugins.broken, faults.items(), strict=True):
        assert file in line
        assert fault in line
    with pytest.raises(
        BadInput, match=r"no analyzer matches missing. Options: [\w, ]*good, [\w, ]*power_law[\s\S]*a_broken.py"
    ):
        plugins.select("missing")


def test_names_of_analyzers_that_others_took_in_are_understood_and_say_where_they_went(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = Plugins({name: cls for name, cls in discover().analyzers.items() if name not in MOVED})
    now.analyzers.setdefault("lack_of_fit", now.analyzers["power_law"])
    for old, homes in MOVED.items():
        assert now.now(old) == list(homes)
        assert f"the analyzer {old} is now part of {' and '.join(homes)}" in capsys.readouterr().out
    assert [type(one).name for one in choose(now, ["contrasts"])] == ["power_law", "compare"]
    assert Plugins({"words": now.analyzers["compare"]}).now("words") == ["words"], "another's of that name is meant"
