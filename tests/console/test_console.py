"""What the terminal shows: no control characters, no cut numbers, columns that make room."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rbptrack.console.log import logged
from rbptrack.console.output import complain, program, say
from rbptrack.console.progress import bar, spinner
from rbptrack.console.tables import print_table

FRAME = pd.DataFrame(
    {
        "model": ["pythia-70m", "nano-[bold]6k"],
        "dataset": ["wiki\nand more", None],
        "tokens": [1_200_000, 3],
        "ce": [3.123456, np.nan],
        "ok": [True, False],
    }
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown_in(columns: int, monkeypatch: pytest.MonkeyPatch, **options: object) -> list[str]:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    print_table(FRAME, **options)  # type: ignore[arg-type]
    return re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()).splitlines()


def test_print_table_without_a_terminal_prints_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(FRAME, formats={"ce": ".3f"}, title="of today")
    title, header, first, second = capsys.readouterr().out.splitlines()
    assert title == "of today"
    assert header.split() == ["model", "dataset", "tokens", "ce", "ok"]
    assert first.split() == ["pythia-70m", "wiki", "and", "more", "1,200,000", "3.123", "yes"]
    assert second.split() == ["nano-[bold]6k", "3", "no"]
    assert first.index("1,200,000") + len("1,200,000") == second.index(" 3 ") + 2, "numbers end in one place"


def test_print_table_in_a_narrow_terminal_names_the_columns_it_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown_in(30, monkeypatch)
    assert lines[0].split() == ["model", "dataset"]
    assert max(map(len, lines[:3])) <= 30
    assert all(name in lines[-1] for name in ("tokens", "ce", "ok"))
    lines = shown_in(30, monkeypatch, last_to_go=["ce"])
    assert lines[0].split() == ["model", "ce", "ok"]
    assert len(shown_in(200, monkeypatch)) == 3


def test_console_replaces_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1b[2Jb\u202ec")
    complain("no\x07")
    print_table(pd.DataFrame({"a": ["x\x1by"]}))
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0] == "a?[2Jb?c"
    assert captured.err == "rbptrack: no?\n"
    assert "\x1b" not in captured.out


def test_bar_and_spinner_are_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with bar(10, "cell") as progress, spinner("loading"):
        progress.update(10)
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_say_prints_a_whole_line_while_a_bar_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    with bar(10, "cell") as progress:
        progress.update(5)
        say("a line")
    assert "a line\n" in terminal.getvalue()
    assert "cell" in terminal.getvalue()


@pytest.mark.parametrize("place", ["folder/under/a/file.log", "file/file.log", "/dev/full"])
def test_an_error_is_shown_though_the_log_cannot_be_written(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with logged(tmp_path / place):
        complain("the first error", "the trace")
        complain("the second error", "the trace")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in lines] == ["the first error", "the second error"]


def test_an_error_names_the_log_that_holds_its_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with logged(tmp_path / "home/file.log"):
        complain("the error", "the trace")
    assert "file.log" in capsys.readouterr().err
    assert "the trace" in (tmp_path / "home/file.log").read_text()


def test_program_is_the_command_that_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/rbptrack", "list"])
    assert program() == "rbptrack"
    monkeypatch.setattr(sys, "argv", ["/x/__main__.py", "list"])
    assert program() == "python -m rbptrack"


def test_a_wrapped_table_keeps_all_columns_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    purpose = "says what a plugin does in a sentence of many words"
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    print_table(
        pd.DataFrame({"name": ["law", "best"], "from": ["built-in"] * 2, "does": [purpose, "short"]}), wrap=True
    )
    lines = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()).splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[0].split() == ["name", "from", "does"]
    assert lines[-1].split() == ["best", "built-in", "short"]
    assert " ".join(line[lines[0].index("does") :] for line in lines[1:-1]) == purpose
