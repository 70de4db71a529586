"""Tests of the analyzer `forms`: floors, bends and user-defined forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from plugins.forms import Forms
from rbptrack.analysis import BadInput, Report, Runs
from rbptrack.analysis.plugin import make_plugin_from_words
from rbptrack.analysis.rank_store import RankTables
from rbptrack.analysis.testing import NeedsRanks, NeedsSizes, example_runs
from rbptrack.ranks import FloatArray
from tests.plugins.reports import result


class TestContract(NeedsRanks, NeedsSizes):
    analyzer = Forms(k=(1,), form="B*S**-b")

    def test_forms_of_three_sizes_has_a_note_and_no_results(self) -> None:
        report = Forms().analyze(example_runs(families={"alpha": 3}))
        assert report.notes
        assert not report.questions


def report_of(
    law: Callable[[FloatArray], FloatArray],
    sizes: int = 8,
    noise: float = 1e-3,
    analyzer: Forms | None = None,
    **columns: object,
) -> Report:
    """Analyse the metrics of a family without ranks.

    -ln RBP_1 is law(S), and normal noise with the standard deviation `noise` is added to its logarithm.
    """
    rng = np.random.default_rng(0)
    rows = []
    for s in np.geomspace(1e6, 1e10, sizes).round():
        row = {"run_id": f"{s:.0f}", "family": "f", "size": f"{s:.0f}", "model": f"f-{s:.0f}", "dataset": "wiki"}
        row |= {"without_ranks": True, "non_embedding_params": s, "training_tokens": 20 * s, "ce": 9 * s**-0.1}
        rows.append(row | {"rbp_1": math.exp(-law(s) * math.exp(rng.normal(0, noise)))} | columns)
    return (analyzer or Forms(k=(1,))).analyze(Runs(pd.DataFrame(rows), RankTables({})))


def power_law(s: FloatArray) -> FloatArray:
    return 5 * s**-0.2


def law_with_floor(s: FloatArray) -> FloatArray:
    return 0.3 + 100 * s**-0.35


def test_forms_of_law_with_floor_finds_floor_and_bend() -> None:
    report = report_of(law_with_floor)
    floor = result(report, "floor", "rbp_1")
    assert 0 < floor["low"] < 0.3 < floor["high"]
    bend = result(report, "bend", "rbp_1")
    assert bend["p_of_bend"] < 0.05
    assert bend["low"] > 0
    assert bend["fit"].startswith("bends upward")
    assert "1 of 2 laws bends upward" in report.headline


def test_forms_of_power_law_has_floor_interval_from_0_and_largest_floor() -> None:
    floor = result(report_of(power_law, noise=0.01), "floor", "rbp_1")
    assert floor["low"] == 0
    assert floor["largest_floor"] == pytest.approx(floor["high"] / (5 * 1e10**-0.2), rel=0.1)
    report = report_of(power_law, noise=0.01)
    assert result(report, "bend", "rbp_1")["fit"] == ""
    assert "no bend" in report.headline.lower()
    assert "%" in report.headline


def test_forms_of_four_sizes_answers_all_questions() -> None:
    assert set(report_of(power_law, 4).questions) == {"bend", "floor"}


def test_user_defined_form_has_its_parameters() -> None:
    report = report_of(power_law, analyzer=Forms(k=(1,), form="B*S**-b"))
    assert set(report.frame("parameter")["name"]) == {"B", "b"}
    assert result(report, "parameter", "rbp_1", name="b")["parameter"] == pytest.approx(0.2, abs=1e-3)


def test_user_defined_form_needs_two_more_sizes_than_parameters() -> None:
    with pytest.raises(BadInput, match=r"5 parameters .*7 sizes"):
        report_of(power_law, 5, analyzer=Forms(form="A*S**-a+B*S**-b+C"))


def test_user_defined_form_in_training_tokens_needs_their_numbers() -> None:
    with pytest.raises(BadInput, match="training tokens"):
        report_of(power_law, analyzer=Forms(form="A*S**-a+B*D**-b"), training_tokens=None)


@pytest.mark.parametrize(("option", "value"), [("ks", "0"), ("form", "os.x"), ("form", "A*B")])
def test_forms_refuses_wrong_option(option: str, value: str) -> None:
    with pytest.raises(BadInput, match=option):
        make_plugin_from_words(Forms, [f"{option}={value}"])


def test_forms_of_rising_values_has_no_floor() -> None:
    report = report_of(lambda s: 0.1 * s**0.05)
    assert "rbp_1" not in set(report.frame("floor")["metric"])
