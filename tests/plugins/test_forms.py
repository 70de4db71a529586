"""Tests of the analyzer `forms`: floors, bends, user-defined forms and their errors of prediction."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import optimize

from plugins.forms import Forms, prediction_errors
from rbptrack.analysis import BadInput, Runs
from rbptrack.analysis.plugin import make_plugin_from_words
from rbptrack.analysis.rank_store import RankTables
from rbptrack.analysis.testing import NeedsRanks, NeedsSizes, example_runs
from rbptrack.stats import fit
from tests.plugins.reports import result


class TestContract(NeedsRanks, NeedsSizes):
    analyzer = Forms(ks=(1,), form="B*S**-b")

    def test_forms_of_three_sizes_has_a_note_and_no_results(self):
        report = Forms().analyze(example_runs(families={"alpha": 3}))
        assert report.notes
        assert not report.questions


def report_of(law, sizes=8, noise=1e-3, analyzer=None, **columns):
    """Analyse the metrics of a family without ranks.

    -ln RBP_1 is law(S), and normal noise with the standard deviation `noise` is added to its logarithm.
    """
    rng = np.random.default_rng(0)
    rows = []
    for s in np.geomspace(1e6, 1e10, sizes).round():
        row = {"run_id": f"{s:.0f}", "family": "f", "size": f"{s:.0f}", "model": f"f-{s:.0f}", "dataset": "wiki"}
        row |= {"without_ranks": True, "non_embedding_params": s, "training_tokens": 20 * s, "ce": 9 * s**-0.1}
        rows.append(row | {"rbp_1": math.exp(-law(s) * math.exp(rng.normal(0, noise)))} | columns)
    return (analyzer or Forms(ks=(1,))).analyze(Runs(pd.DataFrame(rows), RankTables({})))


def power_law(s):
    return 5 * s**-0.2


def law_with_floor(s):
    return 0.3 + 100 * s**-0.35


def test_forms_of_law_with_floor_finds_floor_and_bend() -> None:
    report = report_of(law_with_floor)
    floor = result(report, "floor", "rbp_1")
    assert floor["low"] < 0.3 < floor["high"]
    assert floor["aicc"] < 0
    assert result(report, "bend", "rbp_1")["verdict"] == "above"


@pytest.mark.parametrize("left_out", [1, 2, 3])
def test_forms_of_law_with_floor_predicts_better_with_floor(left_out: int) -> None:
    row = result(report_of(law_with_floor), "prediction", "rbp_1", left_out=left_out)
    assert row["with_floor"] < 0.5 * row["prediction"]


@pytest.mark.parametrize("left_out", [1, 2, 3])
def test_prediction_with_floor_is_that_of_the_least_squares_fit_at_the_best_floor(left_out: int) -> None:
    """Compute the prediction by another way: SciPy fits A and alpha at fixed floors, and searches the best floor.

    lmfit stops if a step changes the sum of squares by less than 1.5e-8 of its value. It is then within about 1e-4
    standard errors of the minimum. With a noise of 1%, the standard error of a prediction is below 10%, so the
    predictions agree within 1e-5.
    """
    s = np.geomspace(1e6, 1e10, 8).round()
    y = law_with_floor(s) * np.exp(np.random.default_rng(0).normal(0, 0.01, 8))
    x = np.log(s / s[0])
    fitted_sizes = slice(None, -left_out)

    def fit_with_floor(e):
        def residuals(line):
            return np.log((e + np.exp(line[0] - line[1] * x[fitted_sizes])) / y[fitted_sizes])

        return optimize.least_squares(residuals, (0.0, 0.2), xtol=1e-14, ftol=1e-14, gtol=1e-14)

    floors = np.linspace(0, 0.99, 100) * y[fitted_sizes].min()
    nearest = floors[np.argmin([fit_with_floor(e).cost for e in floors])]
    bounds = (max(nearest - floors[1], 0), nearest + floors[1])
    e = optimize.minimize_scalar(lambda e: fit_with_floor(e).cost, bounds=bounds, options={"xatol": 1e-9}).x
    ln_a, alpha = fit_with_floor(e).x
    errors = y[-left_out:] / (e + np.exp(ln_a - alpha * x[-left_out:])) - 1
    row = result(report_of(law_with_floor, noise=0.01), "prediction", "rbp_1", left_out=left_out)
    assert row["with_floor"] == pytest.approx(np.sqrt(np.mean(errors**2)), abs=1e-5)


def test_forms_of_power_law_has_floor_interval_from_0_and_largest_floor() -> None:
    floor = result(report_of(power_law, noise=0.01), "floor", "rbp_1")
    assert floor["low"] == 0
    assert floor["largest_floor"] == pytest.approx(floor["high"] / (5 * 1e10**-0.2), rel=0.1)


def test_forms_of_power_law_has_undecided_bend() -> None:
    bend = result(report_of(power_law, noise=0.01), "bend", "rbp_1")
    assert bend["verdict"] == "undecided"


def test_forms_of_power_law_has_true_exponent_with_hubers_loss() -> None:
    assert result(report_of(power_law, noise=0.01), "alpha", "rbp_1")["huber"] == pytest.approx(0.2, abs=0.01)


def test_headline_counts_laws_that_a_floor_predicts_better() -> None:
    assert "in 1 of 2 laws" in report_of(law_with_floor, noise=0.0).headline.partition(";")[0]


def test_prediction_by_a_form_in_training_tokens_uses_those_of_each_size() -> None:
    """D is 20 S at all sizes but the last, which has 5 times as many tokens."""
    s = np.geomspace(1e6, 1e10, 8)
    d = 20 * s * np.where(s < 9e9, 1, 5)
    law = fit(s, 50 * d**-0.3)
    errors = prediction_errors(law, 1, "A*D**-b", d)
    assert errors["your_form"] == pytest.approx(0, abs=1e-6)
    assert errors["prediction"] > 0.1


def test_forms_of_exact_power_law_does_not_count_rounding_errors_as_better_predictions() -> None:
    assert "in 0 of 2 laws" in report_of(power_law, noise=0.0).headline


def test_prediction_without_largest_size_has_its_held_out_error() -> None:
    report = report_of(law_with_floor, noise=0.0)
    s = np.geomspace(1e6, 1e10, 8).round()
    slope, intercept = np.polyfit(np.log(s[:-1]), np.log(law_with_floor(s[:-1])), 1)
    expected = law_with_floor(s[-1]) / np.exp(intercept + slope * np.log(s[-1])) - 1
    assert result(report, "prediction", "rbp_1", left_out=1)["prediction"] == pytest.approx(expected, rel=1e-6)


def test_outlier_moves_exponent_of_least_squares_more_than_that_of_hubers_loss() -> None:
    def law_with_outlier(s):
        return power_law(s) * (1.5 if s == 1e10 else 1.0)

    row = result(report_of(law_with_outlier, noise=0.002), "alpha", "rbp_1")
    assert abs(row["huber"] - 0.2) < 0.3 * abs(row["alpha"] - 0.2)


@pytest.mark.parametrize(
    ("sizes", "questions"),
    [(4, {"alpha", "prediction"}), (5, {"alpha", "bend", "prediction"}), (6, {"alpha", "bend", "floor", "prediction"})],
)
def test_forms_answers_questions_for_which_there_are_enough_sizes(sizes, questions) -> None:
    assert set(report_of(power_law, sizes).questions) == questions


def test_user_defined_form_has_its_parameters_and_errors_of_prediction() -> None:
    report = report_of(power_law, analyzer=Forms(ks=(1,), form="B*S**-b"))
    assert set(report.frame("parameter")["name"]) == {"B", "b"}
    row = result(report, "prediction", "rbp_1", left_out=2)
    assert row["your_form"] == pytest.approx(row["prediction"], rel=1e-3)


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
