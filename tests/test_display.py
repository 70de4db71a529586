"""Measurements as people read them: text and HTML of `Runs`, and what a cell looks like."""

from __future__ import annotations

import pandas as pd
import pytest

from rbptrack.analysis.display import cell, default_columns, presented, title
from rbptrack.analysis.testing import example_runs
from tests.synthetic import changed


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("ce", 3.14159, "3.1416"),
        ("rbp_10", 0.5, "0.5000"),
        ("rbp_10_se", 0.00123, "0.0012"),
        ("non_embedding_params", 38_176, "38.2k"),
        ("num_tokens", 161_000, "161,000"),
        ("seq_len", 2048, "2048"),
        ("run_id", "0123456789abcdef", "01234567"),
        ("tie_rate", 0.000012345, "1.234e-05"),
        ("imported", pd.NA, ""),
        ("ce", float("nan"), ""),
        ("model", "nano-6k", "nano-6k"),
    ],
)
def test_cells(column: str, value: object, text: str) -> None:
    assert cell(column, value) == text


def test_titles() -> None:
    names = ["model", "ce", "rbp_10", "rbp_10_se", "non_embedding_params", "run_id"]
    assert [title(name) for name in names] == ["model", "CE", "RBP_10", "± se of RBP_10", "S", "run"]


def test_a_summary_shows_the_k_that_were_logged() -> None:
    ks = [name for name in default_columns(["rbp_1", "rbp_5", "rbp_50", "rbp_1_se"]) if name.startswith("rbp")]
    assert ks == ["rbp_1", "rbp_5", "rbp_50"]
    ks = [name for name in default_columns([f"rbp_{k}" for k in (1, 3, 10, 30, 100)]) if name.startswith("rbp")]
    assert ks == ["rbp_1", "rbp_10", "rbp_100"]


def test_runs_display_as_tables() -> None:
    runs = example_runs()
    frame = runs.frame.copy()
    frame.loc[0, "model"] = "<b>&nbsp;"
    shown = changed(runs, frame)
    text = repr(shown)
    assert text.startswith(f"{len(runs)} measurements\n")
    assert len(text.splitlines()) == len(runs) + 2
    assert presented(frame)["CE"][0] in text
    html = shown._repr_html_()
    assert html.count("<tr") == len(runs) + 1
    assert "<b>" not in html
    assert "&lt;b&gt;&amp;nbsp;" in html
