import numpy as np
import pytest

from plugins.contrasts import Contrasts
from rbptrack.analysis import BadInput
from tests.synthetic import family_runs, together

SIZES = np.geomspace(1e4, 1e7, 7)


def test_metrics_with_one_exponent_are_equivalent() -> None:
    """CE is exactly twice -ln RBP_1 up to sampling noise."""
    report = Contrasts(ks=[1]).analyze(family_runs(SIZES, alpha=0.1, a=3.0, tokens=5000))
    row = report.tables["contrasts"].frame.iloc[0]
    assert (row["a"], row["b"]) == ("RBP_1", "CE")
    assert row["verdict"] == "equivalent"
    assert row["low"] <= 0 <= row["high"]
    assert row["high"] - row["low"] < 0.01
    assert report.headline.startswith("RBP_1 against CE: the one pair of exponents is equivalent")


def test_other_exponents_are_different() -> None:
    one = family_runs(SIZES, alpha=0.1, a=3.0, family="one", tokens=2000)
    two = family_runs(SIZES, alpha=0.15, a=3.0, family="two", tokens=2000, seed=1)
    report = Contrasts(ks=[1]).analyze(together(one, two))
    row = report.tables["contrasts"].frame.query("kind == 'families'").iloc[0]
    assert row["difference"] == pytest.approx(-0.05, abs=0.01)
    assert row["verdict"] == "different"
    assert row["p_corrected"] >= row["p_different"]


def test_datasets_of_the_same_models_are_compared() -> None:
    code = family_runs(SIZES, alpha=0.1, a=3.0, dataset="code", tokens=2000)
    prose = family_runs(SIZES, alpha=0.1, a=2.0, dataset="prose", tokens=2000, seed=1)
    table = Contrasts(ks=[1]).analyze(together(code, prose)).tables["contrasts"].frame
    row = table.query("kind == 'datasets'").iloc[0]
    assert row["low"] <= 0 <= row["high"]


def test_bad_options_are_said() -> None:
    with pytest.raises(BadInput, match="margin must be above 0"):
        Contrasts(margin=0).analyze(family_runs(SIZES, alpha=0.1, a=3.0))
