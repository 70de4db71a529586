"""Which importer takes a file, where one of them is broken; and what is asked for twice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from rbptrack.analysis.discovery import IMPORTERS, discover
from rbptrack.base.errors import BadInput
from rbptrack.commands import import_
from rbptrack.commands.declaration import with_options
from rbptrack.commands.declared.exchange import EXPORT
from rbptrack.exchange.intake import importer_of

BROKEN = """
from dataclasses import dataclass

from rbptrack.analysis.importing import Importer


@dataclass(kw_only=True)
class Broken(Importer):
    def takes(self, file):
        raise SystemExit(0)

    def read(self, path):
        return iter(())
"""


def test_an_importer_that_fails_to_look_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugins/importers").mkdir(parents=True)
    (tmp_path / "plugins/importers/broken.py").write_text(BROKEN)
    (tmp_path / "t.csv").write_text("model,dataset,ce\na,b,1\n")
    (tmp_path / "t.unknown").write_text("")
    monkeypatch.chdir(tmp_path)
    importers = discover(IMPORTERS)
    assert importer_of(tmp_path / "t.csv", importers).name == "table"
    assert importers.broken == ["the importer broken failed: SystemExit: 0"]
    with pytest.raises(BadInput, match=r"t.unknown: no importer takes it[\s\S]*importer broken failed"):
        importer_of(tmp_path / "t.unknown", discover(IMPORTERS))


def test_two_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="one file or folder at a time"):
        import_.main(["a.csv", "b.csv"])


@dataclass(kw_only=True)
class Clashing:
    name: ClassVar[str] = "clashing"
    out: int = 3


@dataclass(kw_only=True)
class Needing:
    name: ClassVar[str] = "needing"
    team: str


def test_options_of_plugins_are_not_the_commands_own_and_may_be_required() -> None:
    with pytest.raises(BadInput, match="clashing: export has an option out of its own"):
        with_options(EXPORT, Clashing)
    command = with_options(EXPORT, Needing)
    assert command.parsed(["team=ours"]).team == "ours"  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match=r"team=\.\.\. is missing"):
        command.parsed([])
