from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from plugins.training import Training, design_condition, fit_law
from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import Tables
from rbptrack.analysis.testing import AnalyzerContract
from rbptrack.figures.charts import save

STEPS = (64, 128, 256, 512, 1024)


def checkpoints(sizes: int = 4, **columns: Any) -> Runs:
    """y = 1 + 30 S^-0.35 + 200 D^-0.4 for CE, and another optimum for RBP_1; logged numbers only."""
    rows = []
    for s in np.geomspace(5e3, 5e5, sizes):
        for step in STEPS:
            d = step * 2048.0
            name = f"toy-{s:.0f}@step{step}"
            row = {"run_id": name, "family": "toy", "size": f"{s:.0f}", "model": name, "dataset": "text"}
            row |= {"revision": f"step{step}", "non_embedding_params": int(s), "training_tokens": d}
            row |= {"ce": 1 + 30 * s**-0.35 + 200 * d**-0.4, "without_ranks": True}
            rows.append(row | {"rbp_1": np.exp(-(0.1 + 20 * s**-0.35 + 100 * d**-0.3))})
    return Runs(pd.DataFrame(rows).assign(**columns), Tables({}))


def test_the_law_and_the_optimum_are_found(tmp_path: Path) -> None:
    report = Training(ks=(1,)).analyze(checkpoints())
    law = report.tables["law"].set_index("metric")
    assert law.loc["ce", "size_exponent"] == pytest.approx(0.35, rel=0.001)
    assert law.loc["ce", "token_exponent"] == pytest.approx(0.4, rel=0.001)
    assert law.loc["ce", "E"] == pytest.approx(1, rel=0.001)
    assert law.loc["ce", "optimum"] == pytest.approx(0.4 / 0.75, rel=0.001)
    assert law.loc["rbp_1", "optimum"] == pytest.approx(0.3 / 0.65, rel=0.001)
    assert law["starts_agree"].all()
    assert (law["checkpoints"] == 20).all()
    assert "0.53" in report.headline
    assert any("independent points" in note for note in report.notes)
    for name, figure in report.figures.items():
        save(figure, tmp_path / f"{name}.svg")


def test_the_exponent_at_each_number_of_tokens_is_that_of_its_checkpoints() -> None:
    runs = checkpoints()
    alpha = Training(ks=(1,)).analyze(runs).frame("alpha")
    assert sorted(alpha.loc[alpha["metric"] == "ce", "D"]) == [step * 2048.0 for step in STEPS]
    last = runs.frame[runs.frame["training_tokens"] == 1024 * 2048]
    slope = np.polyfit(np.log(last["non_embedding_params"].astype(float)), np.log(last["ce"].astype(float)), 1)[0]
    row = alpha[(alpha["metric"] == "ce") & (alpha["D"] == 1024 * 2048)]
    assert row["alpha"].item() == pytest.approx(-slope, rel=1e-9)


def test_imports_that_name_no_revision_have_the_same_answers() -> None:
    named = Training(ks=(1,)).analyze(checkpoints(3))
    plain = Training(ks=(1,)).analyze(checkpoints(3, revision=None))
    pd.testing.assert_frame_equal(named.frame("alpha"), plain.frame("alpha"))


def test_checkpoints_without_numbers_in_common_are_said() -> None:
    report = Training(ks=()).analyze(checkpoints(3, ce=[1.0, None, *[2.0] * 13]))
    assert not report.tables
    assert any("No metric" in note for note in report.notes)


def test_the_law_is_found_and_has_no_interval() -> None:
    rng = np.random.default_rng(0)
    s, d = (values.ravel() for values in np.meshgrid(np.geomspace(1e6, 1e9, 5), np.geomspace(1e9, 1e11, 5)))
    truth = 1.5 + 400 * s**-0.3 + 2000 * d**-0.35
    law = fit_law(s, d, truth * np.exp(rng.normal(0, 0.0005, len(s))))
    assert law["optimum"] == pytest.approx(0.35 / 0.65, abs=0.03)
    assert law["size_exponent"] == pytest.approx(0.3, abs=0.03)
    assert law["E"] == pytest.approx(1.5, abs=0.1)
    report = Training(ks=(1,)).analyze(checkpoints())
    assert report.frame("optimum")[["low", "high"]].isna().all(axis=None)


def test_probabilities_among_other_candidates_have_laws_of_their_own() -> None:
    runs = checkpoints()
    other = runs.frame.assign(candidates="tokenizer", ce=0.8 * runs.frame["ce"], run_id="other " + runs.frame["run_id"])
    both = pd.concat([runs.frame.assign(candidates="vocabulary"), other], ignore_index=True)
    report = Training(ks=()).analyze(Runs(both.drop(columns="name"), Tables({})))
    law = report.tables["law"].set_index("family")
    assert set(law.index) == {"toy candidates tokenizer", "toy candidates vocabulary"}
    np.testing.assert_allclose(law["size_exponent"].astype(float), 0.35, rtol=0.01)
    assert set(report.frame("alpha")["family"]) == set(law.index)


def test_a_checkpoint_under_two_names_counts_once() -> None:
    """`main` is the last step."""
    frame = checkpoints().frame.drop(columns="name")
    last = frame[frame["revision"] == "step1024"].head(3)
    twins = last.assign(revision="main", run_id="main " + last["run_id"], model=last["model"].str.partition("@")[0])
    report = Training(ks=(1,)).analyze(Runs(pd.concat([frame, twins], ignore_index=True), Tables({})))
    pd.testing.assert_frame_equal(report.results, Training(ks=(1,)).analyze(checkpoints()).results)
    assert any("another name" in note for note in report.notes)


def test_checkpoints_on_a_ray_are_refused() -> None:
    """As many tokens per parameter in every model: size and tokens cannot be told apart."""
    frame = checkpoints().frame.drop(columns="name")
    frame["training_tokens"] = 20.0 * frame["non_embedding_params"].astype(float) * np.tile([0.95, 1.0, 1.05, 1, 1], 4)
    report = Training().analyze(Runs(frame, Tables({})))
    assert "law" not in report.tables
    assert any("condition" in note for note in report.notes)
    assert design_condition(np.array([1.0, 2.0, 4.0]), np.array([3.0, 6.0, 12.0])) == np.inf


def test_the_condition_is_the_ratio_of_spreads_if_sizes_and_tokens_are_uncorrelated() -> None:
    s = np.repeat([1e8, 1e9, 1e10], 3)
    d = np.tile([1e9, 1e10, 1e11], 3)
    assert design_condition(s, d) == pytest.approx(1)
    assert design_condition(s**0.1, d) == pytest.approx(10)


def test_the_headline_is_about_one_family_on_one_dataset() -> None:
    first = checkpoints(2).frame.drop(columns="name")
    other = first.assign(family="zoo", run_id="zoo " + first["run_id"], model="zoo " + first["model"])
    other["training_tokens"] = 8.0 * first["training_tokens"]
    other["ce"] = first["ce"] ** 2
    both = Runs(pd.concat([first, other], ignore_index=True), Tables({}))
    alone = Training(ks=(1,)).analyze(checkpoints(2)).headline
    assert "toy on text" in alone
    assert Training(ks=(1,)).analyze(both).headline == alone


def test_two_sizes_are_too_few_for_a_law_and_have_alpha_without_an_interval() -> None:
    report = Training().analyze(checkpoints(2))
    assert "law" not in report.tables
    assert any("found 10 of 2 sizes at 5" in note for note in report.notes)
    assert report.frame("alpha")["low"].isna().all()


def test_one_number_of_tokens_is_no_training() -> None:
    report = Training().analyze(checkpoints(training_tokens=1e9))
    assert not report.questions
    assert report.notes


class TestContract(AnalyzerContract):
    analyzer = Training(ks=(1,))

    def runs(self, *, documents: int = 30) -> Runs:
        return checkpoints(3)
