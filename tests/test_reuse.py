"""An analysis that is there already is found again, and never where anything that determines it has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from rbptrack.analysis.discovery import ANALYZERS, discover
from rbptrack.analysis.findings import NothingToSay, Reason, Remark
from rbptrack.analysis.source import SCORES
from rbptrack.base.errors import RbptrackError
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.reporting import reuse
from rbptrack.reporting.runner import analyze
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.store import Store
from rbptrack.tracking.writer import Writer

PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar
from rbptrack.analysis import Analyzer, Report, Runs, Table
from matplotlib.figure import Figure
from rbptrack.analysis import Drawing

@dataclass(kw_only=True)
class Mine(Analyzer):
    "What is there."
    name: ClassVar[str] = "mine"
    k: int = 1

    def analyze(self, runs):
        figure = Figure()
        figure.subplots().plot([1, self.k])
        return Report(tables={"t": Table(runs.frame[["model", "ce"]])}, drawings={"f": Drawing(figure)}, notes=["said"])
"""


class Analysed:
    """A store in the working folder, and what analyses of it say."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.reader = folder, Store(TrackingConfig()).reader
        self.options: dict[str, int] = {}
        self.formats: tuple[str, ...] = ()
        self.chosen = FilterConfig()
        self.scores = pd.DataFrame(columns=list(SCORES))
        self.calls = 0

    def analysis(self, *, again: bool = False) -> tuple[bool, str]:
        """Whether the analysis was there already, and its run."""
        self.calls += 1
        runs = self.reader.runs(self.chosen)
        runs.scores = lambda: self.scores  # type: ignore[method-assign]
        analyzer = discover(ANALYZERS).select("mine")(**self.options)
        place = self.folder / f"analysis-{self.calls}"
        section, run_id, reused = analyze(
            self.reader, runs, analyzer, folder=place, sweep="", formats=self.formats, again=again
        )
        assert section.report.notes == ["said"]
        assert section.figures["f"].svg.startswith("<svg")
        assert (place / "tables/t.csv").exists()
        return reused, run_id

    def artifact(self, name: str, run_id: str = "") -> Path:
        place = Reader(self.reader.connection.analyses()) if run_id else self.reader
        return Path(place.artifact_uri(run_id or self.reader.runs(FilterConfig()).frame["run_id"].iloc[0]), name)


@pytest.fixture
def store(untouched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Analysed:
    shutil.copytree(untouched / "mlruns", tmp_path / "mlruns")
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/mine.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    return Analysed(tmp_path)


def an_option(store: Analysed, run_id: str) -> None:
    store.options = {"k": 2}


def the_formats(store: Analysed, run_id: str) -> None:
    store.formats = ("png",)


def the_measurements(store: Analysed, run_id: str) -> None:
    store.chosen = FilterConfig(size=[str(store.reader.runs(FilterConfig()).frame["size"].iloc[0])])


def a_deleted_measurement(store: Analysed, run_id: str) -> None:
    Writer(store.reader.connection).delete(store.reader.runs(FilterConfig()).frame["run_id"].iloc[0])


def a_rank_file(store: Analysed, run_id: str) -> None:
    path = store.artifact("ranks.parquet")
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def imported_scores(store: Analysed, run_id: str) -> None:
    store.scores = pd.DataFrame([["m", "", "task", 0.5, 10]], columns=list(SCORES))


def the_groups(store: Analysed, run_id: str) -> None:
    """Filled in later."""
    path = store.artifact("documents.parquet")
    pd.read_parquet(path).assign(group="one").to_parquet(path, index=False)


def the_plugin(store: Analysed, run_id: str) -> None:
    path = store.folder / "plugins/mine.py"
    path.write_text(path.read_text() + "# more\n")


def the_analysis_itself(store: Analysed, run_id: str) -> None:
    path = store.artifact("figures/f.svg", run_id)
    path.write_text(path.read_text().replace("</svg>", "<script>alert(1)</script></svg>"))


def a_deleted_analysis(store: Analysed, run_id: str) -> None:
    Writer(store.reader.connection.analyses()).delete(run_id)


CHANGES = (
    an_option, the_formats, a_deleted_measurement, a_rank_file, imported_scores, the_groups,
    the_plugin, the_analysis_itself, a_deleted_analysis, the_measurements,
)  # fmt: skip


def test_a_change_has_the_analysis_computed_again(store: Analysed) -> None:
    """And found again after that, and after everything that was changed before."""
    reused, before = store.analysis()
    assert not reused
    for change in CHANGES:
        assert store.analysis() == (True, before), change.__name__
        change(store, before)
        reused, after = store.analysis()
        assert (reused, after != before) == (False, True), change.__name__
        before = after


def test_other_versions_are_other_analyses(store: Analysed, monkeypatch: pytest.MonkeyPatch) -> None:
    _, first = store.analysis()
    monkeypatch.setattr(reuse, "software", lambda: "numpy 99")
    assert store.analysis()[0] is False
    monkeypatch.undo()
    os.chdir(store.folder)
    assert store.analysis() == (True, first)


def test_again_computes_what_is_there(store: Analysed) -> None:
    _, first = store.analysis()
    assert store.analysis(again=True) != (True, first)


def test_an_analysis_that_failed_is_not_kept(store: Analysed) -> None:
    path = store.folder / "plugins/mine.py"
    path.write_text(PLUGIN.replace("figure = Figure()", "raise ValueError"))
    for _ in range(2):
        with pytest.raises(RbptrackError, match="ValueError"):
            store.analysis()


def test_why_an_analyzer_had_nothing_to_say_is_remembered(
    store: Analysed, program: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    path = store.folder / "plugins/mine.py"
    silent = 'open("calls", "a").write("x"); from rbptrack.analysis import NothingToSay; raise NothingToSay("no cats")'
    path.write_text(PLUGIN.replace("figure = Figure()", silent))
    asked = ("report", "analyzers=mine")
    first, second, third = (program(*asked, *more, cwd=store.folder) for more in ((), (), ("again=yes",)))
    assert first.stdout.count("skipped, no cats: mine") == 1
    assert first.stdout == second.stdout == third.stdout
    assert (store.folder / "calls").read_text() == "xx", "asked once, and again"


def test_that_nothing_could_be_read_is_not_remembered(store: Analysed) -> None:
    analyses, mine = (
        reuse.Analyses(store.reader, store.reader.runs(FilterConfig()), ()),
        discover(ANALYZERS).select("mine")(),
    )
    for reason, remembered in ((Reason.UNREADABLE, ""), (Reason.NO_SIZE, "none")):
        with pytest.raises(NothingToSay), analyses.noting_silence(mine):
            raise NothingToSay("none", [Remark("gone", reason)])
        assert analyses.silence(mine) == remembered


def test_a_report_says_in_a_line_what_was_there_already(
    store: Analysed, program: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    asked = ("report", "analyzers=mine")
    first, second, third = (program(*asked, *more, cwd=store.folder).stdout for more in ((), (), ("again=yes",)))
    line = "the analysis exists already, of the same measurements, options and code; again=yes recomputes"
    assert [line in " ".join(said.split()) for said in (first, second, third)] == [False, True, False]
    assert program(*asked, "figures=svg,pdf", cwd=store.folder).returncode == 0
    assert list(store.folder.glob("mlruns/artifacts/*/*/artifacts/figures/f.pdf"))
