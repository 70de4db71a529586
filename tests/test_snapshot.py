"""tools/snapshot.py: a number that moved is shown, whatever the order of the rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import snapshot

ROWS = [{"family": "nano", "alpha": 0.25, "p": None}, {"family": "gpt2", "alpha": 0.125, "p": 0.5}]


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A snapshot of one table."""
    snapshot.write(tmp_path / "before/demo/power_law/laws.csv", ROWS)
    return tmp_path / "before"


def lines(before: Path, rows: list[snapshot.Row], *, tolerance: float = 1e-9, ignored: list[str] | None = None) -> str:
    """Return the differences from the same table with these rows."""
    after = before.with_name("after")
    snapshot.write(after / "demo/power_law/laws.csv", rows)
    return "\n".join(snapshot.differences(before, after, tolerance=tolerance, ignored=ignored or []))


def test_the_order_of_rows_does_not_matter(before: Path) -> None:
    assert lines(before, ROWS[::-1]) == ""


def test_a_number_that_moved_is_shown(before: Path) -> None:
    moved = [ROWS[0] | {"alpha": 0.2500001}, ROWS[1]]
    shown = "demo/power_law/laws: row 3, alpha: 0.25 before, 0.2500001 after"
    assert lines(before, moved) == shown
    assert lines(before, moved, tolerance=1e-5) == ""
    assert lines(before, moved, ignored=["*/power_law/*/alpha"]) == ""


def test_what_comes_and_goes_is_shown(before: Path) -> None:
    assert "2 rows before, 1 after" in lines(before, ROWS[:1])
    assert "p: empty before, 0.5 after" in lines(before, [ROWS[0] | {"p": 0.5}, ROWS[1]])
    renamed = [{"family": row["family"], "exponent": row["alpha"], "p": row["p"]} for row in ROWS]
    assert "column alpha is only in the old one" in lines(before, renamed)
    snapshot.write(before / "demo/k_law/slopes.csv", ROWS)
    assert f"demo/k_law/slopes: missing in {before.with_name('after')}" in lines(before, ROWS)
