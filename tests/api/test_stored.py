"""Tests of `runs`, `report` and `laws`, which read a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import rbptrack
from rbptrack.base.errors import BadInput
from tests.api.conftest import TEXTS, Nano


@pytest.mark.usefixtures("empty_folder")
def test_runs_returns_the_facts_and_ranks_of_a_logged_measurement(nano: Nano) -> None:
    measurement = rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two")
    run_id = measurement.log(sweep="notebook")
    runs = rbptrack.runs(dataset="two")
    row = runs["mine-5.68k/two"]
    assert row["run_id"] == run_id
    assert row["ce"] == measurement.ce
    assert row["sweep"] == "notebook"
    assert pd.isna(row.get("ce_se"))
    assert np.array_equal(runs.ranks("mine-5.68k/two").rank, measurement.ranks.rank)


@pytest.mark.usefixtures("empty_folder")
def test_runs_that_select_nothing_name_the_datasets_of_the_store(nano: Nano) -> None:
    rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two").log()
    with pytest.raises(BadInput, match="two"):
        rbptrack.runs(dataset="wiki")


@pytest.mark.usefixtures("empty_folder")
def test_analyze_runs_an_analyzer_by_its_name_and_checks_its_options(nano: Nano) -> None:
    rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two").log()
    runs = rbptrack.runs(dataset="two")
    assert runs.analyze("power_law", k=[1, 10]).notes
    assert runs[runs["ce"] > 0].analyze("power_law").notes
    with pytest.raises(BadInput, match="power_laws"):
        runs.analyze("power_laws")
    with pytest.raises(BadInput, match="nonsense"):
        runs.analyze("power_law", nonsense=3)


@pytest.mark.usefixtures("empty_folder")
def test_report_returns_the_reports_of_analyzers_and_writes_the_page(nano: Nano, tmp_path: Path) -> None:
    rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two").log()
    runs = rbptrack.runs(dataset="two")
    reports = rbptrack.report(runs, tmp_path / "page.html", analyzers="k_law")
    assert list(reports) == ["k_law"]
    assert len(reports["k_law"].results)
    assert "mine on two" in (tmp_path / "page.html").read_text()
    with pytest.raises(BadInput):
        rbptrack.report(runs, "page.txt")


@pytest.mark.usefixtures("empty_folder")
def test_words_of_a_logged_measurement_are_those_of_the_measurement(nano: Nano) -> None:
    measured = rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two")
    measured.log()
    pd.testing.assert_frame_equal(rbptrack.runs().words("mine-5.68k/two"), measured.words())


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize(
    "arguments", [{"family": 3}, {"size": [3]}, {"model": None}, {"experiment": 3}, {"tracking_uri": 3}]
)
def test_runs_refuses_a_filter_of_another_type(arguments: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        rbptrack.runs(**arguments)


@pytest.mark.usefixtures("empty_folder")
def test_report_refuses_a_dictionary_in_place_of_runs() -> None:
    with pytest.raises(BadInput):
        rbptrack.report({"family": 3})  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        rbptrack.laws({"family": 3})  # type: ignore[arg-type]


def test_runs_refuses_a_list_as_a_condition() -> None:
    with pytest.raises(BadInput, match="where"):
        rbptrack.runs(where=["ce > 3"])
