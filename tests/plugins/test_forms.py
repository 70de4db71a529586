from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import BadInput, Runs
from rbptrack.analysis.plugin import import_file, with_options
from rbptrack.analysis.rank_store import Tables
from rbptrack.analysis.testing import NeedsRanks, NeedsSizes, example_runs

Forms = import_file(Path(__file__).parents[2] / "plugins" / "forms.py").Forms


class TestContract(NeedsRanks, NeedsSizes):
    analyzer = Forms(form="B*S**-b")

    def test_few_sizes_are_noted(self):
        report = Forms().analyze(example_runs(families={"alpha": 3}))
        assert report.notes
        assert not report.questions


def report_of(curve, sizes=8, noise=1e-3, analyzer=None, seed=0, **columns):
    """Analyse a family of logged metrics without ranks, in which -ln RBP_1 is curve(S) times lognormal noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for s in np.geomspace(1e6, 1e10, sizes).round():
        row = {"run_id": f"{s:.0f}", "family": "f", "size": f"{s:.0f}", "model": f"f-{s:.0f}", "dataset": "wiki"}
        row |= {"without_ranks": True, "non_embedding_params": s, "training_tokens": 20 * s, "ce": 9 * s**-0.1}
        rows.append(row | {"rbp_1": math.exp(-curve(s) * math.exp(rng.normal(0, noise)))} | columns)
    return (analyzer or Forms(ks=(1,))).analyze(Runs(pd.DataFrame(rows), Tables({})))


def of_rbp_1(report, question, **case):
    rows = report.frame(question)
    rows = rows[rows["metric"] == "rbp_1"]
    for name, value in case.items():
        rows = rows[rows[name] == value]
    assert len(rows) == 1
    return rows.iloc[0]


def power_law(s):
    return 5 * s**-0.2


def law_with_floor(s):
    return 0.3 + 100 * s**-0.35


def test_a_true_floor_is_found_and_predicts_better() -> None:
    report = report_of(law_with_floor)
    floor = of_rbp_1(report, "floor")
    assert floor["low"] < 0.3 < floor["high"]
    assert floor["aicc"] < 0
    assert of_rbp_1(report, "bend")["verdict"] == "above"
    for left_out in (1, 2, 3):
        row = of_rbp_1(report, "prediction", left_out=left_out)
        assert row["with_floor"] < 0.5 * row["prediction"]


def test_a_true_power_law_has_no_floor_and_says_how_large_one_could_be() -> None:
    report = report_of(power_law, noise=0.01)
    floor = of_rbp_1(report, "floor")
    assert floor["low"] == 0
    assert floor["largest_floor"] == pytest.approx(floor["high"] / (5 * 1e10**-0.2), rel=0.1)
    bend = of_rbp_1(report, "bend")
    assert bend["verdict"] == "undecided"
    assert bend["detectable"] > bend["high"] - bend["bend"]
    assert of_rbp_1(report, "alpha")["huber"] == pytest.approx(0.2, abs=0.01)


def test_the_error_at_the_largest_size_is_the_held_out_error() -> None:
    report = report_of(law_with_floor, noise=0.0)
    s = np.geomspace(1e6, 1e10, 8).round()
    slope, intercept = np.polyfit(np.log(s[:-1]), np.log(law_with_floor(s[:-1])), 1)
    expected = law_with_floor(s[-1]) / np.exp(intercept + slope * np.log(s[-1])) - 1
    assert of_rbp_1(report, "prediction", left_out=1)["prediction"] == pytest.approx(expected, rel=1e-6)


def test_one_model_far_from_the_law_moves_alpha_more_than_hubers() -> None:
    def outlier(s):
        return power_law(s) * (1.5 if s == 1e10 else 1.0)

    row = of_rbp_1(report_of(outlier, noise=0.002), "alpha")
    assert abs(row["huber"] - 0.2) < 0.3 * abs(row["alpha"] - 0.2)


@pytest.mark.parametrize(
    ("sizes", "asked"),
    [(4, {"alpha", "prediction"}), (5, {"alpha", "bend", "prediction"}), (6, {"alpha", "bend", "floor", "prediction"})],
)
def test_each_question_is_answered_if_the_sizes_are_enough_for_it(sizes, asked) -> None:
    assert set(report_of(power_law, sizes).questions) == asked


def test_a_form_of_ones_own_has_its_parameters_and_its_errors() -> None:
    report = report_of(power_law, analyzer=Forms(ks=(1,), form="B*S**-b"))
    assert set(report.frame("parameter")["name"]) == {"B", "b"}
    row = of_rbp_1(report, "prediction", left_out=2)
    assert row["of_form"] == pytest.approx(row["prediction"], rel=1e-3)


def test_a_form_with_too_few_sizes_or_no_training_tokens_is_refused() -> None:
    with pytest.raises(BadInput, match="sizes"):
        report_of(power_law, 5, analyzer=Forms(form="A*S**-a+B*S**-b+C"))
    with pytest.raises(BadInput, match="D"):
        report_of(power_law, analyzer=Forms(form="A*S**-a+B*D**-b"), training_tokens=None)


@pytest.mark.parametrize("word", ["ks=0", "form=os.x", "form=A*B"])
def test_wrong_options_are_refused_when_they_are_set(word) -> None:
    with pytest.raises(BadInput):
        with_options(Forms, [word])


def test_values_that_rise_have_no_floor() -> None:
    report = report_of(lambda s: 0.1 * s**0.05)
    assert "rbp_1" not in set(report.frame("floor")["metric"])
