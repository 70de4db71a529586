"""Reports: tables with a meaning for every column, and errors that say why nothing was found."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Report, Runs, interval_cells, k_ranges, law_cells, shared_columns, some_of, tallied
from rbptrack.stats import fit_power_law
from tests.synthetic import family_runs

COLUMNS = {"b": "the second letter", "a": "the first"}


def test_a_table_has_the_order_of_its_columns() -> None:
    report = Report()
    report.add_table("rows", [{"a": 1, "b": 2}, {"a": 3}], COLUMNS, caption="Two letters.")
    report.add_table("frame", pd.DataFrame({"a": [1]}), COLUMNS)
    table = report.tables["rows"]
    assert table.frame.to_csv(index=False) == "b,a\n2.0,1\n,3\n"
    assert (table.columns, table.caption) == (COLUMNS, "Two letters.")
    assert report.tables["frame"].frame.to_csv(index=False) == "b,a\n,1\n"


def test_without_rows_there_is_no_table() -> None:
    report = Report()
    report.add_table("none", iter(()), COLUMNS)
    report.add_table("empty", pd.DataFrame(columns=["a"]), COLUMNS)
    assert report.tables == {}


def test_a_column_without_a_meaning_is_a_fault_of_the_analyzer() -> None:
    with pytest.raises(ValueError, match="table t: no meaning is given for c"):
        Report().add_table("t", [{"a": 1, "c": 2}], COLUMNS)


def test_nothing_found_says_why() -> None:
    assert (
        str(Report(notes=["One is broken.", "Two is small."]).nothing_found("none")) == "One is broken. Two is small."
    )
    assert str(Report().nothing_found("no measurement to fit")) == "no measurement to fit"


def test_nothing_found_gives_each_reason_once() -> None:
    notes = [f"model {i} on text is left out: no ranks." for i in range(14)] + ["Too few sizes."]
    said = str(Report(notes=notes).nothing_found(""))
    assert said == "model 0 on text is left out: no ranks (13 more likewise). Too few sizes."


def test_counts_in_words() -> None:
    assert [some_of(n, 3, "case") for n in (0, 2, 3)] == ["none of 3 cases", "2 of 3 cases", "all 3 cases"]
    assert [some_of(n, 1, "case") for n in (0, 1)] == ["none of 1 case", "the one case"]
    assert tallied({"larger": 2, "smaller": 0, "undecided": 1200}) == "larger in 2 and undecided in 1,200"


def test_ranges_of_k_join_neighbours_on_the_grid() -> None:
    grid = [1, 10, 100, 1000, 10000]
    assert k_ranges([10, 100, 10000], grid) == "k = 10 to 100, 10,000"
    assert k_ranges([1], grid) == "k = 1"


def test_cells_of_a_law() -> None:
    law = fit_power_law([1e3, 1e4, 1e5], [0.5, 0.4, 0.3])
    assert law_cells(law) == interval_cells(law) | {"r2": law.r2}
    assert set(law_cells(None)) == set(law_cells(law)) <= set(shared_columns(*law_cells(law)))
    assert all(value != value for value in law_cells(None).values())


def test_tokens_are_shown_as_text_where_it_is_known() -> None:
    runs = family_runs([1e4], alpha=0.1, a=3.0)
    assert runs.token_texts("any", [7]) == ["id 7"]
    named = Runs(runs.frame, histogram=runs.histogram, ranks=runs.ranks, token_texts=lambda _: {7: ' th"e\n'})
    assert named.token_texts("any", np.array([7, 8])) == ['" th\\"e\\n"', "id 8"]
