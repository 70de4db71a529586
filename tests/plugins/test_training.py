"""Tests of the analyzer `training`, which fits laws in model size S and training tokens D to checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from plugins.training import Training
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
            row |= {"checkpoint": f"step{step}", "non_embedding_params": int(s), "training_tokens": d}
            row |= {"ce": 1 + 30 * s**-0.35 + 200 * d**-0.4, "without_ranks": True}
            rows.append(row | {"rbp_1": np.exp(-(0.1 + 20 * s**-0.35 + 100 * d**-0.3))})
    return Runs(pd.DataFrame(rows).assign(**columns), RankTables({}))


def test_law_of_additive_checkpoints_describes_them_exactly_and_has_no_exponents() -> None:
    law = Training(k=(1,)).analyze(runs_of_checkpoints()).tables["law"].set_index("metric")
    np.testing.assert_allclose(law["R2"].astype(float), 1.0, atol=1e-6)
    np.testing.assert_allclose(law["largest_deviation"].astype(float), 0.0, atol=1e-4)
    assert (law["checkpoints"] == 20).all()
    assert set(law.columns) == {"family", "dataset", "R2", "largest_deviation", "checkpoints", "sizes"}


def test_training_draws_every_checkpoint_and_every_exponent(tmp_path: Path) -> None:
    report = Training(k=(1,)).analyze(runs_of_checkpoints())
    assert len(report.tables["points"]) == 2 * 20
    assert len(report.frame("alpha")) == 2 * len(STEPS)
    for name, figure in report.figures.items():
        save(figure, tmp_path / f"{name}.svg")


def test_change_is_exponent_at_the_largest_minus_that_at_the_smallest_number_of_tokens() -> None:
    report = Training(k=(1,)).analyze(runs_of_checkpoints())
    alphas = report.frame("alpha").set_index(["metric", "D"])["alpha"]
    for row in report.frame("change").to_dict("records"):
        first, last = alphas[row["metric"], 64 * 2048.0], alphas[row["metric"], 1024 * 2048.0]
        assert row["change"] == pytest.approx(last - first, rel=1e-9)
        assert row["low"] < row["change"] < row["high"]


def test_a_size_that_is_trained_longer_than_the_others_does_not_end_the_test_of_the_change() -> None:
    frame = runs_of_checkpoints().frame.drop(columns="name")
    longer = frame.iloc[[-1]].assign(run_id="longer", model="toy@step9999", checkpoint="step9999", training_tokens=9e9)
    report = Training(k=(1,)).analyze(Runs(pd.concat([frame, longer], ignore_index=True), RankTables({})))
    change = report.frame("change")
    assert set(change["first_D"]) == {64 * 2048.0}
    assert set(change["last_D"]) == {1024 * 2048.0}


def test_change_of_multiplicative_checkpoints_is_not_found() -> None:
    frame = runs_of_checkpoints().frame.drop(columns="name")
    size, tokens = (frame[name].astype(float) for name in ("non_embedding_params", "training_tokens"))
    noise = np.exp(np.random.default_rng(0).normal(0, 0.003, len(frame)))
    frame["ce"] = 30 * size**-0.1 * tokens**-0.1 * noise
    report = Training(k=()).analyze(Runs(frame, RankTables({})))
    assert report.frame("change")["verdict"].tolist() == ["undecided"]
    assert "undecided" in report.headline


def test_alpha_at_each_number_of_tokens_is_that_of_its_checkpoints() -> None:
    runs = runs_of_checkpoints()
    alpha = Training(k=(1,)).analyze(runs).frame("alpha")
    assert sorted(alpha.loc[alpha["metric"] == "ce", "D"]) == [step * 2048.0 for step in STEPS]
    last = runs.frame[runs.frame["training_tokens"] == 1024 * 2048]
    slope = np.polyfit(np.log(last["non_embedding_params"].astype(float)), np.log(last["ce"].astype(float)), 1)[0]
    row = alpha[(alpha["metric"] == "ce") & (alpha["D"] == 1024 * 2048)]
    assert row["alpha"].item() == pytest.approx(-slope, rel=1e-9)


def test_training_does_not_need_names_of_checkpoints() -> None:
    with_names = Training(k=(1,)).analyze(runs_of_checkpoints(3))
    without_names = Training(k=(1,)).analyze(runs_of_checkpoints(3, checkpoint=None))
    pd.testing.assert_frame_equal(with_names.frame("alpha"), without_names.frame("alpha"))


def test_training_compares_the_metrics_that_both_checkpoints_have() -> None:
    frame = runs_of_checkpoints().frame.drop(columns="name")
    frame.loc[frame["checkpoint"] == "step1024", "rbp_1"] = None
    report = Training(k=(1,)).analyze(Runs(frame, RankTables({})))
    assert report.frame("change")["metric"].tolist() == ["ce"]
    assert report.frame("change")["last_D"].item() == 1024 * 2048.0
    assert len(report.tables["points"]) == 2 * 20 - 4


def test_training_draws_no_point_if_rbp_is_0() -> None:
    frame = runs_of_checkpoints().frame.drop(columns="name")
    frame.loc[frame["checkpoint"] == "step64", "rbp_1"] = 0.0
    report = Training(k=(1,)).analyze(Runs(frame, RankTables({})))
    assert len(report.tables["points"]) == 2 * 20 - 4


def test_training_leaves_out_checkpoint_without_cross_entropy() -> None:
    report = Training(k=()).analyze(runs_of_checkpoints(3, ce=[1.0, None, *[2.0] * 13]))
    assert len(report.tables["points"]) == 14
    assert any("imported without ranks" in note for note in report.notes)


def test_training_fits_one_law_for_each_kind_of_candidates() -> None:
    frame = runs_of_checkpoints().frame
    of_vocabulary = frame.assign(candidates="vocabulary")
    of_tokenizer = frame.assign(candidates="tokenizer", ce=0.8 * frame["ce"], run_id="other " + frame["run_id"])
    both = pd.concat([of_vocabulary, of_tokenizer], ignore_index=True)
    report = Training(k=()).analyze(Runs(both.drop(columns="name"), RankTables({})))
    kinds = {"toy candidates tokenizer", "toy candidates vocabulary"}
    assert set(report.frame("alpha")["family"]) == set(report.frame("change")["family"]) == kinds


def test_training_counts_checkpoint_that_has_two_names_once() -> None:
    """The final weights of three sizes are the last step."""
    frame = runs_of_checkpoints().frame.drop(columns="name")
    last = frame[frame["checkpoint"] == "step1024"].head(3)
    main = last.assign(checkpoint=None, run_id="main " + last["run_id"], model=last["model"].str.partition("@")[0])
    report = Training(k=(1,)).analyze(Runs(pd.concat([frame, main], ignore_index=True), RankTables({})))
    pd.testing.assert_frame_equal(report.results, Training(k=(1,)).analyze(runs_of_checkpoints()).results)
    assert any("the same checkpoint" in note for note in report.notes)


def test_training_tests_the_metric_of_the_headline_alone() -> None:
    report = Training(k=(1, 2)).analyze(runs_of_checkpoints(rbp_2=0.5))
    assert report.headline.startswith("Whether RBP_2's")
    assert report.frame("change").set_index("metric").loc["rbp_2", "tests"] == 1


def test_headline_counts_the_families_whose_exponent_grows() -> None:
    """CE of zoo falls as S^-0.1 at the first checkpoints, and as S^-0.2 at the last ones, with a scatter of 0.1%."""
    toy = runs_of_checkpoints(4).frame.drop(columns="name")
    size, tokens = (toy[name].astype(float) for name in ("non_embedding_params", "training_tokens"))
    noise = np.exp(np.random.default_rng(0).normal(0, 0.001, len(toy)))
    toy["ce"] = 30 * size**-0.1 * noise
    zoo = toy.assign(family="zoo", run_id="zoo " + toy["run_id"], model="zoo " + toy["model"])
    zoo["ce"] = 30 * size ** -(0.1 + 0.1 * np.log(tokens / tokens.min()) / np.log(16)) * noise
    report = Training(k=()).analyze(Runs(pd.concat([toy, zoo], ignore_index=True), RankTables({})))
    assert report.frame("change").set_index("family").loc["zoo", "change"] == pytest.approx(0.1, abs=0.002)
    assert "in 1 of 2" in report.headline


def test_training_of_two_sizes_has_alpha_without_interval_and_no_law() -> None:
    report = Training().analyze(runs_of_checkpoints(2))
    assert "law" not in report.tables
    assert report.frame("alpha")["low"].isna().all()


def test_training_of_one_number_of_tokens_has_no_results_but_notes() -> None:
    report = Training().analyze(runs_of_checkpoints(training_tokens=1e9))
    assert not report.questions
    assert report.notes


class TestContract(AnalyzerContract):
    analyzer = Training(k=(1,))

    def runs(self, *, documents: int = 30) -> Runs:
        return runs_of_checkpoints(3)
