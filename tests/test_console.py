"""What the terminal shows: short numbers, and names that look like markup."""

from __future__ import annotations

import pytest

from rbptrack.console import CellProgress, compact, compact_bytes, table


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
