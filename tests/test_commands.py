"""Every command is run in the same way: its help, its options, and what it says of a wrong one."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from rbptrack.__main__ import main
from rbptrack.base.errors import BadInput
from rbptrack.commands import analyze
from rbptrack.commands.catalogue import COMMANDS, module_of
from tests.conftest import Program

WITH_OPTIONS = ("ui", "sync", "rm", "verify", "export", "import", "plugins", "bench", "cache", "list", "show")


def run(command: str, *arguments: str) -> int:
    return int(module_of(command).main(list(arguments)))


@pytest.mark.parametrize(("command", "flag"), [*zip(COMMANDS, itertools.cycle(["-h", "--help"]), strict=False)])
def test_help(command: str, flag: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also beside other words, and without doing anything; sentences as wide as the terminal."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.argv", ["rbptrack", command, "nonsense=1", flag])
    assert main() == 0
    shown = capsys.readouterr().out
    assert f"python -m rbptrack {command}" in shown or "python -m rbptrack [measure]" in shown
    to_copy = "python -m rbptrack"
    assert all(len(line) <= 60 or to_copy in line for line in shown.splitlines() if not line.startswith("  qwen2.5"))


def test_the_overview_has_every_command_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("help") == 0
    lines = capsys.readouterr().out.splitlines()
    places = {name: next(i for i, line in enumerate(lines) if line.startswith(f"  {name} ")) for name in COMMANDS}
    assert sorted(places, key=places.__getitem__)[:4] == ["demo", "measure", "report", "ui"]
    assert all(len(line) <= 80 for line in lines[: max(places.values()) + 1])
    assert run("help", "export") == 0
    assert "export out=bundle.zip" in capsys.readouterr().out


def test_the_report_is_explained_by_its_filters_and_lists_no_models(capsys: pytest.CaptureFixture[str]) -> None:
    run("help", "report")
    shown = capsys.readouterr().out
    assert "family=NAME" in shown
    assert "pythia/" not in shown


def test_sizes_are_listed_in_the_order_of_size(capsys: pytest.CaptureFixture[str]) -> None:
    run("help", "measure")
    assert "14m 31m 70m 160m 410m 1b 1.4b 2.8b 6.9b 12b" in capsys.readouterr().out


def test_an_analyzers_list_needs_no_brackets() -> None:
    assert analyze._read(["power_law", "analyzer.ks=1,10"]).overrides == ["analyzer=power_law", "analyzer.ks=[1,10]"]


@pytest.mark.parametrize("command", WITH_OPTIONS)
def test_a_wrong_option_shows_the_right_ones(command: str) -> None:
    with pytest.raises(BadInput) as refused:
        run(command, "nonsense=1")
    reason, options = str(refused.value).splitlines()
    assert reason.startswith("no option nonsense.")
    assert options.startswith("Options: ")
    assert options.endswith(f"python -m rbptrack help {command}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sync", "moved=perhaps"), "Value 'perhaps'"),
        (("plan", "format=pdf"), "invalid format 'pdf'. Options: table, csv, json"),
        (("cache", "empty"), "cache empty: expected nothing, or clear"),
        (("export",), "out=... is missing"),
        (("import",), "what to import"),
        (("show",), "which measurement"),
        (("list", "k=0"), "k must be 1 or more; got 0"),
        (("list", "limit=-1"), "limit must be 0"),
        (("rm",), "which measurements"),
        (("list", "--limt=3"), "unknown option '--limt=3'. Did you mean limit=3"),
        (("list", "--limit", "3"), "unknown option '--limit'. Write limit=3"),
    ],
    ids=" ".join,
)
def test_a_wrong_value(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        run(*arguments)


def test_measure_is_a_command_like_the_others(program: Program, tmp_path: Path) -> None:
    arguments = ("model=nano/6k", "--cfg", "job")
    named, plain = program("measure", *arguments, cwd=tmp_path), program(*arguments, cwd=tmp_path)
    assert named.returncode == 0, named.stderr
    assert named.stdout == plain.stdout
    assert "size: 6k" in named.stdout
    shown = program("measure", "-h", cwd=tmp_path).stdout
    assert "python -m rbptrack 'model=nano/*'" in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["page.docx", "page", "page.html.gz", "page.png"])
def test_a_report_with_another_ending_is_refused_before_the_store_is_read(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rbptrack.commands.report.Store", lambda _: pytest.fail("the store is opened"))
    monkeypatch.setattr("sys.argv", ["rbptrack", "report", f"out={name}"])
    assert main() == 2
    error = capsys.readouterr().err
    assert error == f"error: out={name}: a report is written as .html or .pdf\n"
    assert not list(tmp_path.iterdir())
