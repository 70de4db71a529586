from __future__ import annotations

from pathlib import Path

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.reporting.discovery import MOVED, Plugins, discover
from rbptrack.reporting.runner import choose

GOOD = '''
from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar
from rbptrack.analysis import Analyzer, Report, Runs

@dataclass(kw_only=True)
class {cls}(Analyzer):
    """{name}."""
    name: ClassVar[str] = "{name}"
    k: int = 10
    def analyze(self, runs: Runs) -> Report:
        return Report(notes=[str(self.k)])
'''


def plugin(folder: Path, file: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / file).write_text(text)


def test_the_built_in_ones_and_the_working_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path / "plugins", "mine.py", GOOD.format(cls="Mine", name="mine"))
    plugin(tmp_path / "more", "other.py", GOOD.format(cls="Other", name="other"))
    monkeypatch.chdir(tmp_path)
    found = discover([str(tmp_path / "more")])
    assert {"power_law", "mine", "other"} <= set(found.analyzers)
    assert found.broken == []
    assert found.analyzers["mine"](k=3).analyze(None).notes == ["3"]  # type: ignore[arg-type,call-arg]


def test_a_broken_plugin_is_named_and_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path / "plugins", "a_broken.py", "import nowhere_to_be_found\n")
    plugin(tmp_path / "plugins", "b_twice.py", GOOD.format(cls="Mine", name="power_law"))
    plugin(
        tmp_path / "plugins",
        "c_plain.py",
        GOOD.format(cls="Plain", name="plain").replace("@dataclass(kw_only=True)", ""),
    )
    plugin(tmp_path / "plugins", "d_good.py", GOOD.format(cls="Good", name="good"))
    monkeypatch.chdir(tmp_path)
    found = discover()
    assert {"power_law", "good"} <= set(found.analyzers)
    assert "plain" not in found.analyzers
    assert len(found.broken) == 3
    for line, words in zip(found.broken, ("a_broken.py", "b_twice.py", "c_plain.py"), strict=True):
        assert words in line
    assert "No module named 'nowhere_to_be_found'" in found.broken[0]
    assert "exists already" in found.broken[1]
    assert "must be a @dataclass" in found.broken[2]
    with pytest.raises(
        BadInput, match=r"no analyzer matches missing. Options: [\w, ]*good, [\w, ]*power_law[\s\S]*a_broken.py"
    ):
        found.select("missing")


def test_names_of_analyzers_that_others_took_in_are_understood_and_say_where_they_went(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = discover()
    now = Plugins({name: cls for name, cls in found.analyzers.items() if name not in MOVED})
    now.analyzers.setdefault("lack_of_fit", now.analyzers["power_law"])
    for old, homes in MOVED.items():
        assert now.now(old) == list(homes)
        assert f"the analyzer {old} is now part of {' and '.join(homes)}" in capsys.readouterr().out
    assert [type(one).name for one in choose(now, ["contrasts"])] == ["power_law", "compare"]
    assert Plugins({"words": now.analyzers["compare"]}).now("words") == ["words"], "another's of that name is meant"
