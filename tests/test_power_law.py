from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rbptrack.plugins.power_law import PowerLaw
from rbptrack.plugins.power_law.findings import AgainstCE, LargestHeldOut
from rbptrack.plugins.power_law.pattern import OneSign

from rbptrack.analysis import Runs
from rbptrack.analysis.findings import Verdict
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.reporting.telling import sentences_of
from tests.synthetic import changed, family_runs, one_law, runs_from, runs_of_tables, together, unreadable

SIZES = np.geomspace(1e4, 1e7, 6)
AGAINST = ("alpha_against_k", "r2_against_k", "ce_against_rbp_1")


def fitted(runs: Runs, **options: object) -> pd.DataFrame:
    return PowerLaw(**options).analyze(runs).tables["fits"].frame.set_index(["family", "dataset", "metric"])  # type: ignore[arg-type]


def test_a_known_law_is_recovered() -> None:
    table = fitted(family_runs(SIZES, alpha=0.1, a=3.0, tokens=2000))
    ce, rbp = table.loc[("toy", "text", "CE")], table.loc[("toy", "text", "RBP_1")]
    assert ce["alpha"] == pytest.approx(0.1, abs=1e-6)
    assert ce["A"] == pytest.approx(6.0, rel=1e-5)
    assert rbp["alpha_low"] < 0.1 < rbp["alpha_high"]
    assert rbp["alpha"] == pytest.approx(0.1, abs=0.01)
    assert rbp["alpha_high"] - rbp["alpha_low"] < 0.03


def test_the_report() -> None:
    runs = together(
        family_runs(SIZES, alpha=0.1, a=3.0),
        family_runs(SIZES[:4] * 2, alpha=0.2, a=9.0, family="other", dataset="code"),
    )
    report = PowerLaw(ks=[1, 10]).analyze(runs)
    assert report.metrics["alpha/other/code/ce"] == pytest.approx(0.2, abs=1e-6)
    assert report.metrics["r2/toy/text/rbp_1"] > 0.95
    assert set(report.drawings) == {"law_in_size", *AGAINST}
    panels = report.drawings["law_in_size"].figure.axes
    titles = ["code: CE, nats per token", "code: −ln RBP$_{1}$", "code: −ln RBP$_{10}$"]
    assert [ax.get_title() for ax in panels[:3]] == titles
    assert len(panels) == 6, "two datasets, three metrics"
    factors = [ax.get_ylim()[1] / ax.get_ylim()[0] for ax in panels]
    assert factors == pytest.approx([factors[0]] * 6), "equal exponents have equal slopes"
    for name in AGAINST:
        assert [ax.get_title() for ax in report.drawings[name].figure.axes] == ["code", "text"]
    assert list(report.tables) == ["laws", "against_ce", "points", "fits", "backtests"]
    assert len(report.tables[report.summary].frame) == 6


def test_both_definitions_of_s_and_the_difference_from_ce() -> None:
    """Where all parameters grow as the square of the others, alpha is half as large by them."""
    runs = family_runs(SIZES, alpha=0.1, a=3.0, tokens=2000)
    runs.frame["total_params"] = (runs.frame["non_embedding_params"] ** 2).astype("Int64")
    report = PowerLaw(ks=[1, 10]).analyze(runs)
    laws, against = (report.tables[name].frame.set_index("metric") for name in ("laws", "against_ce"))
    np.testing.assert_allclose(laws["alpha_other"], laws["alpha"] / 2)
    np.testing.assert_allclose(
        against["difference"], laws["alpha"][["RBP_1", "RBP_10"]] - laws.loc["CE", "alpha"], atol=1e-9
    )
    assert (against["p_corrected"] >= against["p_different"]).all()
    assert (laws["held_out_low"] < laws["held_out"]).all()
    assert (laws["held_out_high"] > laws["held_out"]).all()
    said = sentences_of(report.findings)
    assert any(text.startswith("With S as all parameters, alpha changes by up to 50%") for text in said)
    swapped = PowerLaw(ks=[1], size="total_params").analyze(runs)
    np.testing.assert_allclose(swapped.tables["laws"].frame["alpha_other"], laws["alpha"][["CE", "RBP_1"]])
    runs.frame["total_params"] = None
    said = sentences_of(PowerLaw(ks=[1]).analyze(runs).findings)
    assert "Only one parameter count is known for these models, so alpha is given for that one alone." in said


def test_the_same_size_twice_is_said() -> None:
    runs = together(family_runs(SIZES, alpha=0.1, a=3.0), family_runs(SIZES[:1], alpha=0.1, a=3.0, family="x", seed=5))
    runs.frame["family"] = "toy"
    report = PowerLaw().analyze(runs)
    assert any("2 runs of 10000; their scatter is fitted" in note for note in report.notes)
    assert report.tables["fits"].frame["sizes"].eq(6).all()


def test_rbp_of_one_is_left_out_and_said() -> None:
    report = PowerLaw(ks=[1, 64]).analyze(family_runs(SIZES, alpha=0.1, a=3.0))
    assert 64 not in set(report.tables["fits"].frame["k"])
    assert any("RBP_64 is 0 or 1" in note for note in report.notes)


def test_no_law_is_claimed_where_there_is_none() -> None:
    rng = np.random.default_rng(3)
    scatter = dict(zip(SIZES, rng.normal(0, 0.1, len(SIZES)), strict=True))
    runs = runs_from(SIZES, lambda s: one_law(0.0, float(np.exp(scatter[s])))(s))
    assert "no law is claimed" in " ".join(sentences_of(PowerLaw(ks=[1]).analyze(runs).findings))


def test_forecasts_pooling_and_equal_tokens_on_request() -> None:
    families = [family_runs(SIZES, alpha=0.1 + i / 50, a=3.0, family=f"f{i}", seed=i) for i in range(3)]
    report = PowerLaw(
        ks=[1], forecast=[1e8], pool=True, training_tokens={"f0-*": 1e9, "f1-10000": 1e9, "f1-*": 2e9}
    ).analyze(together(*families))
    forecast = report.tables["forecasts"].frame.set_index(["family", "metric"]).loc[("f0", "CE")]
    assert forecast["predicted"] == pytest.approx(6 * 1e8**-0.1, rel=1e-4)
    assert forecast["beyond"] == pytest.approx(10)
    pooled = report.tables["pooled"].frame.query("metric == 'CE'")
    assert pooled["mean"].iloc[0] == pytest.approx(0.12, abs=1e-6)
    assert pooled["between"].iloc[0] == pytest.approx(0.02, rel=1e-3)
    equal = report.tables["equal_tokens"].frame.query("metric == 'CE'").set_index("family")
    assert equal["sizes"].to_dict() == {"f0": 6, "f1": 5}
    assert equal["alpha"].to_dict() == pytest.approx({"f0": 0.1, "f1": 0.12}, abs=1e-6)
    assert any("f2 on text: no 3 models are known to be trained on equally many" in note for note in report.notes)


def test_families_of_other_candidates_are_not_pooled_with_these() -> None:
    families = [family_runs(SIZES, alpha=0.1 + i / 50, a=3.0, family=f"f{i}", seed=i) for i in range(4)]
    families[3].frame["candidates"] = "tokenizer"
    report = PowerLaw(ks=[1], pool=True).analyze(together(*families))
    assert set(report.tables["pooled"].frame["family"]) == {"f0", "f1", "f2"}
    assert "CE on text (candidates=tokenizer): pooling needs 3 families; found 1." in report.notes


def test_measurements_without_ranks_are_fitted_from_logged_metrics() -> None:
    whole = family_runs(SIZES, alpha=0.1, a=3.0)
    report = PowerLaw(ks=[1, 5, 10]).analyze(changed(whole, ranks=unreadable))
    table = report.tables["fits"].frame.set_index("metric")
    assert set(table.index) == {"CE", "RBP_1", "RBP_10"}, "RBP_5 was not logged"
    expected = fitted(whole).loc[("toy", "text", "RBP_10"), "alpha"]
    assert table.loc["RBP_10", "alpha"] == pytest.approx(expected)
    assert any("or none can be read; the logged metrics are fitted" in note for note in report.notes)


def test_imports_are_fitted_at_the_k_that_were_logged_with_their_standard_errors() -> None:
    whole = family_runs(SIZES, alpha=0.1, a=3.0)
    frame = whole.frame.assign(vocab_size=None, imported="table: t.csv", rbp_10000=np.exp(-0.1 * SIZES**-0.2))
    frame = frame.assign(rbp_10000_se=frame["rbp_10000"] * 1e-3, ce_se=0.5)
    report = PowerLaw().analyze(changed(whole, frame))
    table = report.tables["fits"].frame.set_index("metric")
    assert "RBP_10000" in set(report.tables["laws"].frame["metric"])
    assert table.loc["RBP_10000", "alpha"] == pytest.approx(0.2, abs=1e-6)
    points = report.tables["points"].frame.query("metric == 'CE'")
    np.testing.assert_allclose(points["se_ln_y"], 0.5 / points["y"])
    assert any("imported without ranks" in note for note in report.notes)


def test_an_inverse_law_is_called_one() -> None:
    said = sentences_of(PowerLaw(ks=[1]).analyze(family_runs(SIZES, alpha=-0.1, a=0.3)).findings)
    assert said[0].endswith("none of 2 laws; in 2 they are worse (an inverse law).")
    assert said[2] == "toy on text: the law of CE and RBP_1 is inverse: larger models are worse."
    assert "no law is claimed" not in " ".join(said)


def test_size_may_be_total_parameters_or_training_compute() -> None:
    runs = family_runs(SIZES, alpha=0.1, a=3.0)
    total = fitted(runs, size="total_params").loc[("toy", "text", "CE")]
    flops = fitted(runs, size="training_flops", training_tokens={"*": 1e9}).loc[("toy", "text", "CE")]
    assert total["alpha"] != pytest.approx(0.1, abs=1e-5)
    assert flops["alpha"] == pytest.approx(0.1, abs=1e-6)
    assert flops["A"] == pytest.approx(6 * 6e9**0.1, rel=1e-4)
    with pytest.raises(BadInput, match="expected one of non_embedding_params, total_params, training_flops"):
        fitted(runs, size="width")
    with pytest.raises(BadInput, match="training_flops needs tokens"):
        fitted(runs, size="training_flops")
    with pytest.raises(RbptrackError, match="training_flops is unknown for some models"):
        fitted(runs, size="training_flops", training_tokens={"other*": 1e9})


def test_seeds_are_fitted_not_averaged() -> None:
    rng, runs, law = np.random.default_rng(0), [], one_law(0.2, 20.0)
    for seed in range(3):
        ahead = dict(zip(SIZES, np.exp(0.03 * rng.standard_normal(len(SIZES))), strict=True))
        of_seed = {"family": f"seed{seed}", "seed": seed, "tokens": 2000}
        runs.append(runs_from(SIZES, lambda s, ahead=ahead: law(s * ahead[s] ** -5), **of_seed))
    whole = together(*runs)
    whole.frame["family"] = "toy"
    report = PowerLaw(ks=[1], curve_points=1).analyze(whole)
    row = report.tables["seeds"].frame.set_index("metric").loc["CE"]
    assert (row["sizes"], row["runs"]) == (len(SIZES), 3 * len(SIZES))
    assert 0.01 < row["seed"] < 0.06
    assert row["p"] > 0.01
    fit = report.tables["fits"].frame.set_index("metric").loc["CE"]
    assert fit["alpha_low"] < 0.2 < fit["alpha_high"]
    assert any("their scatter is fitted" in note for note in report.notes)
    assert any(f"{3 * len(SIZES)} runs of {len(SIZES)} sizes" in text for text in sentences_of(report.findings))


def test_imports_of_cross_entropy_alone_have_a_law() -> None:
    whole = family_runs(SIZES, alpha=0.1, a=3.0)
    rbp = [name for name in whole.frame.columns if name.startswith("rbp_")]
    frame = whole.frame.drop(columns=rbp).assign(vocab_size=None, imported="table: t.csv")
    report = PowerLaw().analyze(changed(whole, frame))
    assert report.metrics["alpha/toy/text/ce"] == pytest.approx(0.1, abs=1e-6)
    assert "law_in_size" in report.drawings


def test_published_exponents_are_drawn_in_the_colour_of_their_family() -> None:
    runs = family_runs(SIZES, alpha=0.1, a=3.0, family="pythia", dataset="wiki")
    axes = PowerLaw(ks=[1], replicates=20).analyze(runs).drawings["law_in_size"].figure.axes[0]
    mine, theirs = (line.get_color() for line in axes.lines if len(line.get_xdata()) == 2)
    assert mine == theirs


def test_sizes_that_all_have_the_same_ranks_are_a_flat_law() -> None:
    """As of imported shares of few digits: no line of CE against -ln RBP_k is defined."""
    one = family_runs(SIZES[:1], alpha=0.1, a=3.0).ranks("toy-text-0")
    report = PowerLaw().analyze(runs_of_tables(SIZES, {f"toy-text-{i}": one for i in range(len(SIZES))}))
    assert report.tables["fits"].frame["alpha"].abs().max() < 1e-9
    assert "ce_against_rbp_1" in report.drawings


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.4])
def test_every_panel_of_the_law_has_labels_that_are_short(alpha: float) -> None:
    """Steep laws and flat ones; matplotlib's own choice over less than a decade was 2.25, 2.5, 2.75 or one label."""
    report = PowerLaw(ks=[1], curve_points=1, replicates=20).analyze(family_runs(SIZES, alpha=alpha, a=3.0))
    for ax in report.drawings["law_in_size"].figure.axes:
        low, high = ax.get_ylim()
        shown = [at for at in ax.get_yticks() if low <= at <= high]
        assert 2 <= len(shown) <= 8
        assert all(len(ax.yaxis.get_major_formatter()(at)) <= 6 for at in shown)


def signs_of(share: float, *, scatter: float = 0.0, seed: int = 0) -> OneSign:
    """The test of 12 sizes of a law with a floor of `share` at the largest."""
    sizes = np.geomspace(1e4, 1e8, 12)
    ahead = dict(zip(sizes, np.exp(scatter * np.random.default_rng(seed).standard_normal(12)), strict=True))
    floor = share * sizes[-1] ** -0.1 / (1 - share)
    runs = runs_from(sizes, lambda s: one_law(0.0, 3 * (s**-0.1 + floor) * ahead[s])(s), tokens=2000)
    report = PowerLaw(ks=[1]).analyze(runs)
    return next(finding for finding in report.findings if isinstance(finding, OneSign))


def test_errors_of_one_sign_are_a_finding() -> None:
    curved = signs_of(0.5)
    assert curved.errors == 20
    assert curved.above >= 18
    assert curved.reachable <= curved.p < 0.01
    assert curved.verdict == Verdict.DIFFERENT
    assert (
        f"lie above the smaller ones' law in {curved.above} of 20 cases: larger models are worse than the law predicts"
        in next(iter(OneSign.say([curved])))
    ), "a floor keeps losses up"
    few = replace(curved, verdict=Verdict.UNTOLD, reachable=0.06)
    undecided = next(iter(OneSign.say([few])))
    assert undecided.startswith("Undecided in 1 case")
    assert "in 1 of them no pattern of signs could be significant" in undecided


@pytest.mark.parametrize(("factor", "sentence"), [(1.3, "above"), (1 / 1.3, "below")])
def test_a_largest_model_off_the_law_is_said_to_be_worse_or_better(factor: float, sentence: str) -> None:
    runs = runs_from(SIZES, lambda s: one_law(0.0, 3 * s**-0.1 * (factor if s == SIZES[-1] else 1))(s), tokens=2000)
    report = PowerLaw(ks=[1]).analyze(runs)
    errors = [finding for finding in report.findings if isinstance(finding, LargestHeldOut)]
    assert {finding.verdict for finding in errors} == {Verdict.DIFFERENT}
    assert {finding.estimate > 0 for finding in errors} == {factor > 1}
    word = "worse" if factor > 1 else "better"
    (text,) = LargestHeldOut.say(errors)
    assert f"the largest model is {word} than the smaller models' law predicts" in text
    assert f"{sentence} the prediction" in text
    (text,) = LargestHeldOut.say(errors[:1])
    assert f"larger models are {word} than the law predicts" in text
    (text,) = LargestHeldOut.say([replace(error, verdict=Verdict.UNTOLD) for error in errors])
    assert text.startswith("Undecided in all ")
    assert "with 80% power, the smallest error that could be detected is " in text


def test_signs_of_scatter_are_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 5% of power laws; here of 40, so that more than 6 come in less than 1 of 100. Their figures take longest."""
    monkeypatch.setattr(PowerLaw, "_drawings", lambda *_: None)
    assert sum(signs_of(0.0, scatter=0.03, seed=seed).p < 0.05 for seed in range(40)) <= 6


def test_an_undecided_comparison_with_ce_says_from_how_many_sizes_and_what_could_have_been_seen() -> None:
    """The smallest detectable difference is wider than half an interval, and falls with the number of sizes."""
    seen = []
    for sizes in (4, 8):
        runs = family_runs(np.geomspace(1e4, 1e7, sizes), alpha=0.1, a=3.0, tokens=400)
        report = PowerLaw(ks=[1, 10], replicates=50).analyze(runs)
        compared = [finding for finding in report.findings if isinstance(finding, AgainstCE)]
        undecided = [replace(finding, verdict=Verdict.UNTOLD) for finding in compared]
        (sentence,) = AgainstCE.say(undecided)
        assert f"{len(compared)} undecided: from {sizes} sizes, only differences of alpha above" in sentence
        seen.append(max(finding.detectable for finding in compared))
        assert all(finding.detectable > (finding.high - finding.low) / 2 for finding in compared)
    assert seen[1] < seen[0]
