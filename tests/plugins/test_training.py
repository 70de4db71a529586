"""Tests of the analyzer `training`, which fits laws in model size S and training tokens D to checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from plugins.training import Training, design_condition, fit_law
from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.analysis.testing import AnalyzerContract
from rbptrack.figures.charts import save

STEPS = (64, 128, 256, 512, 1024)


def runs_of_checkpoints(sizes: int = 4, **columns: Any) -> Runs:
    """Return the metrics of five checkpoints of each size of a family, without rank tables.

    CE = 1 + 30 S^-0.35 + 200 D^-0.4, and -ln RBP_1 = 0.1 + 20 S^-0.35 + 100 D^-0.3.

    Args:
        sizes: the number of sizes.
        columns: other columns of `Runs.frame`, or other values of its columns.

    """
    rows = []
    for s in np.geomspace(5e3, 5e5, sizes):
        for step in STEPS:
            d = step * 2048.0
            name = f"toy-{s:.0f}@step{step}"
            row = {"run_id": name, "family": "toy", "size": f"{s:.0f}", "model": name, "dataset": "text"}
            row |= {"revision": f"step{step}", "non_embedding_params": int(s), "training_tokens": d}
            row |= {"ce": 1 + 30 * s**-0.35 + 200 * d**-0.4, "without_ranks": True}
            rows.append(row | {"rbp_1": np.exp(-(0.1 + 20 * s**-0.35 + 100 * d**-0.3))})
    return Runs(pd.DataFrame(rows).assign(**columns), RankTables({}))


def test_training_recovers_law_and_optimum(tmp_path: Path) -> None:
    """The optimum is the exponent in D divided by the sum of both exponents."""
    report = Training(ks=(1,)).analyze(runs_of_checkpoints())
    law = report.tables["law"].set_index("metric")
    assert law.loc["ce", "size_exponent"] == pytest.approx(0.35, rel=0.001)
    assert law.loc["ce", "token_exponent"] == pytest.approx(0.4, rel=0.001)
    assert law.loc["ce", "E"] == pytest.approx(1, rel=0.001)
    assert law.loc["ce", "optimum"] == pytest.approx(0.4 / 0.75, rel=0.001)
    assert law.loc["rbp_1", "optimum"] == pytest.approx(0.3 / 0.65, rel=0.001)
    assert (law["checkpoints"] == 20).all()
    assert "0.53" in report.headline
    assert any("independent points" in note for note in report.notes)
    for name, figure in report.figures.items():
        save(figure, tmp_path / f"{name}.svg")


def test_alpha_at_each_number_of_tokens_is_that_of_its_checkpoints() -> None:
    runs = runs_of_checkpoints()
    alpha = Training(ks=(1,)).analyze(runs).frame("alpha")
    assert sorted(alpha.loc[alpha["metric"] == "ce", "D"]) == [step * 2048.0 for step in STEPS]
    last = runs.frame[runs.frame["training_tokens"] == 1024 * 2048]
    slope = np.polyfit(np.log(last["non_embedding_params"].astype(float)), np.log(last["ce"].astype(float)), 1)[0]
    row = alpha[(alpha["metric"] == "ce") & (alpha["D"] == 1024 * 2048)]
    assert row["alpha"].item() == pytest.approx(-slope, rel=1e-9)


def test_training_does_not_need_names_of_revisions() -> None:
    with_revisions = Training(ks=(1,)).analyze(runs_of_checkpoints(3))
    without_revisions = Training(ks=(1,)).analyze(runs_of_checkpoints(3, revision=None))
    pd.testing.assert_frame_equal(with_revisions.frame("alpha"), without_revisions.frame("alpha"))


def test_training_of_metric_that_a_checkpoint_lacks_has_no_results_but_a_note() -> None:
    report = Training(ks=()).analyze(runs_of_checkpoints(3, ce=[1.0, None, *[2.0] * 13]))
    assert not report.tables
    assert any("No metric" in note for note in report.notes)


def test_fit_law_recovers_exponents_and_floor_from_noisy_points() -> None:
    rng = np.random.default_rng(0)
    s, d = (values.ravel() for values in np.meshgrid(np.geomspace(1e6, 1e9, 5), np.geomspace(1e9, 1e11, 5)))
    y = 1.5 + 400 * s**-0.3 + 2000 * d**-0.35
    law = fit_law(s, d, y * np.exp(rng.normal(0, 0.0005, len(s))))
    assert law is not None
    assert law["optimum"] == pytest.approx(0.35 / 0.65, abs=0.03)
    assert law["size_exponent"] == pytest.approx(0.3, abs=0.03)
    assert law["E"] == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize("size_share", [0.0, 1.0])
def test_fit_law_needs_values_that_fall_with_size_and_tokens(size_share: float) -> None:
    s = np.repeat([1e5, 1e6, 1e7], 4)
    d = np.tile([1e8, 1e9, 1e10, 1e11], 3)
    assert fit_law(s, d, 1 + 30 * (size_share * s**-0.3 + (1 - size_share) * d**-0.3)) is None
    assert fit_law(s, d, np.full(12, 3.0)) is None


def test_fit_law_has_no_negative_floor() -> None:
    s, d = (values.ravel() for values in np.meshgrid(np.geomspace(1e6, 1e9, 5), np.geomspace(1e9, 1e11, 5)))
    y = 400 * s**-0.3 + 2000 * d**-0.35
    law = fit_law(s, d, y * (1 - 0.02 / y))
    assert law is not None
    assert law["E"] == 0


def test_training_has_no_law_but_a_note_if_y_rises_with_tokens() -> None:
    frame = runs_of_checkpoints().frame.drop(columns="name")
    size, tokens = (frame[name].astype(float) for name in ("non_embedding_params", "training_tokens"))
    frame["ce"] = 1 + 30 * size**-0.35 + 0.01 * tokens**0.2
    report = Training(ks=()).analyze(Runs(frame, RankTables({})))
    assert "law" not in report.tables
    assert any("does not fall" in note for note in report.notes)


def test_optimum_has_no_interval() -> None:
    report = Training(ks=(1,)).analyze(runs_of_checkpoints())
    assert report.frame("optimum")[["low", "high"]].isna().all(axis=None)


def test_training_fits_one_law_for_each_kind_of_candidates() -> None:
    frame = runs_of_checkpoints().frame
    of_vocabulary = frame.assign(candidates="vocabulary")
    of_tokenizer = frame.assign(candidates="tokenizer", ce=0.8 * frame["ce"], run_id="other " + frame["run_id"])
    both = pd.concat([of_vocabulary, of_tokenizer], ignore_index=True)
    report = Training(ks=()).analyze(Runs(both.drop(columns="name"), RankTables({})))
    law = report.tables["law"].set_index("family")
    assert set(law.index) == {"toy candidates tokenizer", "toy candidates vocabulary"}
    np.testing.assert_allclose(law["size_exponent"].astype(float), 0.35, rtol=0.01)
    assert set(report.frame("alpha")["family"]) == set(law.index)


def test_training_counts_checkpoint_that_has_two_names_once() -> None:
    """The revision `main` of three sizes is the last step."""
    frame = runs_of_checkpoints().frame.drop(columns="name")
    last = frame[frame["revision"] == "step1024"].head(3)
    main = last.assign(revision="main", run_id="main " + last["run_id"], model=last["model"].str.partition("@")[0])
    report = Training(ks=(1,)).analyze(Runs(pd.concat([frame, main], ignore_index=True), RankTables({})))
    pd.testing.assert_frame_equal(report.results, Training(ks=(1,)).analyze(runs_of_checkpoints()).results)
    assert any("another revision" in note for note in report.notes)


def test_training_of_constant_tokens_per_parameter_has_no_law_and_a_note() -> None:
    frame = runs_of_checkpoints().frame.drop(columns="name")
    frame["training_tokens"] = 20.0 * frame["non_embedding_params"].astype(float) * np.tile([0.95, 1.0, 1.05, 1, 1], 4)
    report = Training().analyze(Runs(frame, RankTables({})))
    assert "law" not in report.tables
    assert any("condition" in note for note in report.notes)


def test_design_condition_of_proportional_sizes_and_tokens_is_infinite() -> None:
    assert design_condition(np.array([1.0, 2.0, 4.0]), np.array([3.0, 6.0, 12.0])) == np.inf


def test_design_condition_of_uncorrelated_sizes_and_tokens_is_ratio_of_their_spreads() -> None:
    s = np.repeat([1e8, 1e9, 1e10], 3)
    d = np.tile([1e9, 1e10, 1e11], 3)
    assert design_condition(s, d) == pytest.approx(1)
    assert design_condition(s**0.1, d) == pytest.approx(10)


def test_headline_of_two_families_is_about_the_first() -> None:
    toy = runs_of_checkpoints(2).frame.drop(columns="name")
    zoo = toy.assign(family="zoo", run_id="zoo " + toy["run_id"], model="zoo " + toy["model"])
    zoo["training_tokens"] = 8.0 * toy["training_tokens"]
    zoo["ce"] = toy["ce"] ** 2
    both = Runs(pd.concat([toy, zoo], ignore_index=True), RankTables({}))
    headline_of_toy = Training(ks=(1,)).analyze(runs_of_checkpoints(2)).headline
    assert "toy on text" in headline_of_toy
    assert Training(ks=(1,)).analyze(both).headline == headline_of_toy


def test_training_of_two_sizes_has_alpha_without_interval_and_no_law() -> None:
    report = Training().analyze(runs_of_checkpoints(2))
    assert "law" not in report.tables
    assert any("10 of 2 sizes at 5 values of D" in note for note in report.notes)
    assert report.frame("alpha")["low"].isna().all()


def test_training_of_one_number_of_tokens_has_no_results_but_notes() -> None:
    report = Training().analyze(runs_of_checkpoints(training_tokens=1e9))
    assert not report.questions
    assert report.notes


class TestContract(AnalyzerContract):
    analyzer = Training(ks=(1,))

    def runs(self, *, documents: int = 30) -> Runs:
        return runs_of_checkpoints(3)
