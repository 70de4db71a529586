"""Tests of what the terminal shows: tables, lines, errors and progress bars, without control characters."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rbptrack.console.log import log_to_file
from rbptrack.console.output import print_problem, print_text, program_name
from rbptrack.console.progress import spinner, token_bar
from rbptrack.console.tables import print_table, table_lines

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
    """A text file that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def lines_in_terminal(frame: pd.DataFrame, columns: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[str]:
    """Print a table in a terminal that is `columns` characters wide. Returns its lines without colors.

    `options` are arguments of `print_table`.
    """
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    print_table(frame, **options)
    return re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()).splitlines()


def test_print_table_without_a_terminal_prints_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(FRAME)
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["model", "dataset", "tokens", "ce", "ok"]
    assert first.split() == ["pythia-70m", "wiki", "and", "more", "1,200,000", "3.123", "yes"]
    assert second.split() == ["nano-[bold]6k", "3", "no"]


def test_print_table_aligns_numbers_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(FRAME)
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.index("1,200,000") + len("1,200,000") == second.index(" 3 ") + 2


def test_print_table_in_a_narrow_terminal_names_the_columns_it_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = lines_in_terminal(FRAME, 30, monkeypatch)
    assert lines[0].split() == ["model", "dataset"]
    assert max(map(len, lines[:3])) <= 30
    assert all(name in lines[-1] for name in ("tokens", "ce", "ok"))


def test_print_table_in_a_narrow_terminal_keeps_the_most_important_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = lines_in_terminal(FRAME, 30, monkeypatch, by_importance=["ce"])
    assert lines[0].split() == ["model", "ce", "ok"]


def test_print_table_shows_no_column_that_is_less_important_than_a_dropped_one(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = lines_in_terminal(FRAME, 30, monkeypatch, by_importance=["ce", "dataset", "ok"])
    assert lines[0].split() == ["model", "ce"]


def test_print_table_in_a_wide_terminal_drops_no_column(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(lines_in_terminal(FRAME, 200, monkeypatch)) == 3


def test_print_table_with_wrap_keeps_all_columns_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    purpose = "says what a plugin does in a sentence of many words"
    frame = pd.DataFrame({"name": ["law", "best"], "from": ["built-in"] * 2, "does": [purpose, "short"]})
    lines = lines_in_terminal(frame, 40, monkeypatch, wrap=True)
    assert max(map(len, lines)) <= 40
    assert lines[0].split() == ["name", "from", "does"]
    assert lines[-1].split() == ["best", "built-in", "short"]
    start = lines[0].index("does")
    assert " ".join(line[start:] for line in lines[1:-1]) == purpose


def test_print_text_replaces_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_text("a\x1b[2Jb\u202ec")
    assert capsys.readouterr().out == "a?[2Jb?c\n"


def test_print_problem_replaces_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_problem("no\x07")
    assert capsys.readouterr().err == "rbptrack: no?\n"


def test_print_table_replaces_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(pd.DataFrame({"a": ["x\x1by"]}))
    assert "\x1b" not in capsys.readouterr().out


def test_token_bar_and_spinner_are_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with token_bar(10, "cell") as progress, spinner("loading"):
        progress.update(10)
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_print_text_prints_a_whole_line_while_a_bar_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    with token_bar(10, "cell") as progress:
        progress.update(5)
        print_text("a line")
    assert "a line\n" in terminal.getvalue()
    assert "cell" in terminal.getvalue()


@pytest.mark.parametrize("place", ["folder/under/a/file.log", "file/file.log", "/dev/full"])
def test_print_problem_prints_the_error_if_the_log_cannot_be_written(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with log_to_file(tmp_path / place):
        print_problem("the first error", "the trace")
        print_problem("the second error", "the trace")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in lines] == ["the first error", "the second error"]


def test_print_problem_names_the_log_and_writes_the_traceback_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with log_to_file(tmp_path / "home/file.log"):
        print_problem("the error", "the trace")
    assert "file.log" in capsys.readouterr().err
    assert "the trace" in (tmp_path / "home/file.log").read_text()


@pytest.mark.parametrize(
    ("script", "command"), [("/usr/bin/rbptrack", "rbptrack"), ("/x/__main__.py", "python -m rbptrack")]
)
def test_program_name_is_the_command_that_the_user_called(
    script: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [script, "list"])
    assert program_name() == command


def test_table_lines_of_nullable_columns_leave_missing_values_empty_and_write_truth_as_words() -> None:
    frame = pd.DataFrame({"n": pd.array([1000, None], "Int64"), "x": [0.5, np.nan], "ok": [True, False]})
    lines, _ = table_lines(frame, 80)
    assert [line.split() for line in lines] == [["n", "x", "ok"], ["1,000", "0.5", "yes"], ["no"]]
