"""What the terminal shows: short numbers, and names that look like markup."""

from __future__ import annotations

import io
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from rbptrack.__main__ import main
from rbptrack.analysis.families import read_families
from rbptrack.base.words import compact, compact_bytes
from rbptrack.commands.usage import entries
from rbptrack.console.output import complain, complain_alike, drawn, hush, say, say_wrapped
from rbptrack.console.progress import AnalyzerProgress, CellProgress
from rbptrack.console.tables import table
from tests.synthetic import family_runs


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1k"), (38_176, "38.2k"), (341_000, "341k"), (999_999, "1M"), (1.4e9, "1.4B")],
)
def test_compact(number: float, text: str) -> None:
    assert compact(number) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (512, "512 Bytes"), (54_800, "54.8 kB"), (999_999, "1 MB"), (1.234e12, "1.23 TB")]
)
def test_compact_bytes(number: float, text: str) -> None:
    assert compact_bytes(number) == text


NAME = "a[b] [/red] {x} :ok:"  # brackets, braces and colons mean something to rich; in a name they mean themselves


def test_names_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    table(["model", "CE"], [[NAME, "1.0"]])
    assert NAME in capsys.readouterr().out


def test_names_beside_a_progress_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    with CellProgress(NAME, total=10, progress_label="[1/2]") as progress:
        progress(10)
    shown = capsys.readouterr().err
    assert NAME in shown
    assert "[1/2]" in shown


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Names come from others' bundles and stores."""
    table(["model"], [["a\x1b[2Jb"]], title="t\x1b[2Jt", text_columns=1)
    entries("Files", {"f\x1b[2J": "m\x1b[2J"})
    complain("run \x1b[2Jx\u202ey [bold]z[/bold]")
    shown, complaint = capsys.readouterr()
    assert "\x1b" not in shown
    assert shown.count("?[2J") == 4
    assert complaint == "error: run ?[2Jx?y [bold]z[/bold]\n"


HEADERS = ["model", "dataset", "S", "tokens", "CE", "± se", "RBP_1", "RBP_10", "RBP_100"]
ROWS = [
    ["nano-115k", "pydocs", "115k", "169,993", "4.8712", "0.0234", "0.2012", "0.4512", "0.7212"],
    ["a-family-with-a-long-name-1.4b", "wiki", "1.4B", "1,234,567", "2.1234", "0.0012", "0.5012", "0.7512", "0.9212"],
]


def printed(width: int | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.delenv("COLUMNS", raising=False)
    if width:
        monkeypatch.setenv("COLUMNS", str(width))
    table(HEADERS, ROWS, first_out=["tokens", "± se", "S"])
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("width", "gone"), [(60, 5), (80, 2), (100, 0), (120, 0)])
def test_columns_make_room_and_no_number_is_cut(
    width: int, gone: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(width, capsys, monkeypatch)
    assert all(len(line) <= width for line in lines)
    out = ["tokens", "± se", "S", "RBP_100", "RBP_10"][:gone]
    kept = [i for i, name in enumerate(HEADERS) if name not in out]
    for row, line in zip(ROWS, lines[1:], strict=False):
        assert line.split() == [row[i] for i in kept]
    assert lines[len(ROWS) + 1 :] == (
        [f"not shown in {width} columns: {', '.join(sorted(out, key=HEADERS.index))}"] if gone else []
    )


def test_a_file_gets_every_column(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    header, *rows = printed(None, capsys, monkeypatch)
    assert header.split() == " ".join(HEADERS).split()
    assert [row.split() for row in rows] == ROWS


def test_names_that_are_too_wide_alone_wrap_and_numbers_do_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(30, capsys, monkeypatch)
    assert all(len(line) <= 30 for line in lines)
    assert all(row[4] in "".join(lines) for row in ROWS)  # CE, the last number that stays


def test_sentences_wrap_between_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/a/path/that/is/longer/than/the/terminal/is/wide/and/stays/whole.html"
    monkeypatch.setenv("COLUMNS", "40")
    say(f"The report of this sweep is in the file {path}")
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["The report of this sweep is in the file", f"  {path}"]
    say("a command that is to be copied in one piece, however long", whole=True)
    assert len(capsys.readouterr().out.splitlines()) == 1
    say_wrapped("word " * 40, lines=2)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].endswith("...")
    complain("word " * 12)
    assert all(len(line) <= 40 for line in capsys.readouterr().err.splitlines())


def test_quiet_leaves_errors(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RBPTRACK_QUIET", "")  # so that it is as it was, afterwards
    hush()
    say("nothing")
    table(["model"], [["nothing"]])
    complain("something")
    assert capsys.readouterr() == ("", "error: something\n")


def test_sentences_appear_above_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both streams are the terminal; one that is a file gets its lines as always."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen, terminal, file = Terminal(), Terminal(), io.StringIO()
    monkeypatch.setattr("sys.stdout", terminal)
    with drawn(Console(file=screen, width=80)):
        say("a cell has ended")
        monkeypatch.setattr("sys.stdout", file)
        say("for the file")
    monkeypatch.setattr("sys.stdout", terminal)
    say("afterwards")
    assert screen.getvalue() == "a cell has ended\n"
    assert file.getvalue() == "for the file\n"
    assert "afterwards" in terminal.getvalue()
    assert "ended" not in terminal.getvalue()


def test_an_analyzer_says_now_and_then_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = family_runs(np.geomspace(1e4, 1e7, 4), alpha=0.1, a=3.0)
    monkeypatch.setattr("rbptrack.console.progress._ANALYZER_SECONDS", -1)
    with AnalyzerProgress("k_law", 3) as told:
        runs.watch(told)
        list(read_families(runs, lambda _, run_id: runs.histogram(run_id), []))
        runs.watch(None)
        list(read_families(runs, lambda _, run_id: runs.histogram(run_id), []))
    assert capsys.readouterr().err.splitlines() == [f"k_law: {i} of 3 measurements" for i in (1, 2, 3, 3)]


def test_where_the_reader_has_gone_the_command_goes_on_and_ends_with_141(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `rbptrack ... | head` leaves it, with more lines than a pipe's buffer holds."""
    reading, writing = os.pipe()
    os.close(reading)
    finished = []

    def prints_much(arguments: list[str]) -> int:
        for number in range(20_000):
            say(f"line {number}")
        finished.append(arguments)
        return 0

    monkeypatch.setattr(sys, "argv", ["rbptrack", "list"])
    monkeypatch.setattr("rbptrack.__main__.module_of", lambda command: SimpleNamespace(main=prints_much))
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main() == 141
    assert finished == [[]]


def test_errors_that_differ_by_a_name_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    failed = [(f"nano-{size} / wiki", f"model nano-{size} (/m/nano-{size}) does not fit") for size in range(24)]
    complain_alike([*failed, ("nano-1 / c4", "c4 is gated")])
    lines = " ".join(capsys.readouterr().err.split()).split("error: ")[1:]
    assert len(lines) == 2
    assert lines[0].startswith(
        "nano-0 / wiki: model nano-0 (/m/nano-0) does not fit (23 more like this: nano-1 / wiki, "
    )
