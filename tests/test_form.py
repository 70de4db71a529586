from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lmfit.models import ExpressionModel
from rbptrack.plugins.lack_of_fit.law_forms import fit_forms
from rbptrack.plugins.power_law import PowerLaw
from rbptrack.plugins.power_law.form import Form, fit_form

from rbptrack.base import process
from rbptrack.base.errors import BadInput
from rbptrack.reporting.telling import sentences_of
from rbptrack.stats.power_law import fit_power_law
from tests.synthetic import family_runs

SIZES = np.geomspace(1e5, 1e9, 8)
FLOOR = "E + A*S**-alpha"


def scattered(sd: float = 0.005, seed: int = 1) -> np.ndarray:
    return (0.5 + 30 * SIZES**-0.2) * np.exp(np.random.default_rng(seed).normal(0, sd, len(SIZES)))


def test_lmfit_agrees_with_the_vectorised_solvers() -> None:
    """The line, and the form with a floor where scatter is independent and alike at all sizes."""
    y = scattered()
    law = fit_power_law(SIZES, y)
    line = fit_form(Form("A*S**-alpha"), {"S": SIZES}, y)
    assert line.result.params["alpha"].value == pytest.approx(law.alpha, abs=1e-6)
    assert np.log(line.result.params["A"].value) == pytest.approx(law.log_a, abs=1e-6)
    plain, floor = fit_forms([(SIZES, y, np.zeros((8, 8)))])[0].fits
    own = fit_form(Form(FLOOR, {"E": {"min": 0}}), {"S": SIZES}, y)
    assert own.result.params["alpha"].value == pytest.approx(floor.alpha, abs=1e-6)
    assert own.result.params["E"].value == pytest.approx(floor.e.value, abs=1e-6)
    assert own.aicc - line.aicc == pytest.approx(floor.aicc - plain.aicc, abs=1e-6)


def test_profile_intervals_hold_the_truth_and_are_those_of_t_for_a_line() -> None:
    y = scattered()
    own, why = fit_form(Form(FLOOR), {"S": SIZES}, y).intervals(0.95)
    assert not why
    for name, truth in (("E", 0.5), ("A", 30), ("alpha", 0.2)):
        assert own[name].low < truth < own[name].high
    law = fit_power_law(SIZES[:3], y[:3])
    line, _ = fit_form(Form("A*S**-alpha"), {"S": SIZES[:3]}, y[:3]).intervals(0.95)
    assert (line["alpha"].low, line["alpha"].high) == pytest.approx((law.low, law.high), rel=1e-3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("E + (", "not an expression"),
        ("1 * S", "no free parameter"),
        ("A", "neither S"),
        ("E + A*S^-alpha", r"write \*\*"),
        ("step*S", "lmfit's own"),
        ("A*S" * 200, "characters"),
        ("open('secret').read() + A*S", "are read"),
        ("A*S.__class__", "are read"),
        ("A*S + [x for x in (1,)]", "are read"),
        ("A*S + __builtins__", "are read"),
    ],
)
def test_what_is_no_form_gets_one_line(text: str, why: str) -> None:
    with pytest.raises(BadInput, match=why) as refused:
        Form(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"B": 1}, "not in the form"),
        ({"A": {"expr": "1"}}, "takes numbers"),
        ({"A": "one"}, "takes numbers"),
        ({"A": {"min": 2, "max": 1}}, "min < max"),
        ({"A": {"vary": False}}, "needs a value"),
    ],
)
def test_options_of_parameters_are_checked(parameters: dict[str, object], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        Form("A*S**-alpha", parameters)


def test_the_interpreter_reaches_no_file(tmp_path: Path) -> None:
    """Lmfit's own would: its interpreter opens files."""
    (tmp_path / "secret").write_text("12")
    assert "open" in ExpressionModel("A*x").asteval.symtable
    own = Form("A*S").model().asteval
    assert own(f"open({str(tmp_path / 'secret')!r})", show_errors=False) is None
    assert set(own.symtable) - {"print"} <= {"pi", *(name for name in dir(np) if callable(getattr(np, name)))}


def test_what_cannot_be_fitted_is_said() -> None:
    with pytest.raises(BadInput, match="8 free parameters need more than 8 sizes"):
        fit_form(Form(" + ".join(f"{name}*S**-{name}{name}" for name in "abcd")), {"S": SIZES}, scattered())
    with pytest.raises(BadInput, match="no start converges"):
        fit_form(Form("-A*S**2 - 1", {"A": {"min": 0}}), {"S": SIZES}, scattered())
    huge = fit_form(Form("A*S**-alpha + 0*b"), {"S": SIZES}, scattered())
    assert huge.intervals(0.95) == ({}, "the points do not tell the parameters apart, or one is at its bound")


def test_the_report() -> None:
    runs = family_runs(SIZES, alpha=0.1, a=3.0, tokens=2000)
    options = {"alpha": {"value": 0.1, "vary": False}, "E": {"min": -1, "max": 1}}
    report = PowerLaw(ks=[1], form=FLOOR, parameters=options).analyze(runs)
    rows = report.tables["form"].frame.set_index("metric")
    assert rows["free"].eq(2).all()
    assert rows.loc["CE", "held_out_error"] == pytest.approx(0, abs=1e-4)
    parameters = report.tables["form_parameters"].frame.set_index(["metric", "parameter"])
    assert parameters.loc[("CE", "A"), "value"] == pytest.approx(6.0, rel=1e-3)
    assert parameters.loc[("CE", "alpha"), "reason"] == "fixed"
    assert parameters.loc[("RBP_1", "E"), "value_low"] < parameters.loc[("RBP_1", "E"), "value_high"]
    panel = report.drawings["law_in_size"].figure.axes[0]
    assert any(line.get_linestyle() == "--" and line.get_color() == "black" for line in panel.lines)
    assert any(text.startswith(f"Of 2 laws, {FLOOR}") for text in sentences_of(report.findings))
    with pytest.raises(BadInput, match=r"fitted to CE and RBP_1: D is unknown for some models"):
        PowerLaw(ks=[1], form="A*D**-b").analyze(runs)
    with pytest.raises(BadInput, match=r"give analyzer\.form"):
        PowerLaw(parameters=options).analyze(runs)
    known = {f"*-{size:.0f}": 20.0 * size**0.9 for size in SIZES}
    own = PowerLaw(ks=[1], form="A*D**-b", training_tokens=known).analyze(runs).tables["form_parameters"].frame
    assert own.query("metric == 'CE' and parameter == 'b'")["value"].iloc[0] == pytest.approx(0.1 / 0.9, rel=1e-3)


def test_cores_are_bounded_by_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_CGROUPS", tmp_path)
    monkeypatch.setattr(process.os, "sched_getaffinity", lambda _: range(8), raising=False)
    assert process.cores() == 8
    for text, cores in (("max 100000", 8), ("150000 100000", 2), ("-1 100000", 8), ("broken", 8)):
        (tmp_path / "cpu.max").write_text(text)
        assert process.cores() == cores
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("50000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert process.cores() == 1
