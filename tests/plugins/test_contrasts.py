"""Tests of the analyzer `contrasts`: differences and means of exponents over datasets and families."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from plugins.contrasts import Contrasts
from plugins.contrasts.families import ComparedFamily, better_first
from rbptrack.analysis import Family, Report, Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.analysis.testing import NeedsRanks
from rbptrack.ranks import CE, DocumentCounts, FloatArray, RankTable
from rbptrack.stats import estimate, independent_difference, laws_by_metric, neg_log_rbp, paired_difference
from tests.plugins.reports import result
from tests.rank_tables import power_law_rank_table

SIZES = np.geomspace(1e6, 1e9, 5).round()

Measurements = tuple[list[dict[str, Any]], dict[str, RankTable]]
"""The rows of measurements, and their rank tables by run ID."""


class TestContract(NeedsRanks):
    analyzer = Contrasts()


def measurements(
    family: str = "f", dataset: str = "text", alpha: float = 0.1, seed: int = 0, **columns: object
) -> Measurements:
    """Return the rows of one family on one dataset, and their rank tables by run ID.

    -ln RBP_1 = 3 S^-alpha in five sizes, with a scatter of 1%. `seed` determines the texts.
    """
    rows = []
    tables = {}
    for s in SIZES:
        run_id = f"{family}{dataset}{s:.0f}"
        row = {"run_id": run_id, "family": family, "dataset": dataset, "size": f"{s:.0f}", "model": f"{family}-{s:.0f}"}
        row |= {"non_embedding_params": s, "vocab_size": 512, "num_tokens": 9000, "documents_hash": dataset}
        rows.append(row | columns)
        factor = 3.0 * np.exp(np.random.default_rng(int(s)).normal(0, 0.01))
        tables[run_id] = power_law_rank_table(s, alpha=alpha, factor=factor, tokens=300, seed=seed)
    return rows, tables


def line_of(part: Measurements, k: int = 1, sizes: slice = slice(None)) -> tuple[Any, FloatArray]:
    """Return SciPy's line of ln(-ln RBP_k) on ln S, for results of `measurements`, and its residuals, (sizes,)."""
    rows, tables = part
    ln_s = np.log([row["non_embedding_params"] for row in rows[sizes]])
    ln_y = np.log([-np.log(tables[row["run_id"]].rbp(k)) for row in rows[sizes]])
    line = stats.linregress(ln_s, ln_y)
    return line, ln_y - line.intercept - line.slope * ln_s


def report_of(*parts: Measurements) -> Report:
    """Analyse several results of `measurements` together."""
    all_rows = []
    all_tables: dict[str, RankTable] = {}
    for rows, tables in parts:
        all_rows += rows
        all_tables |= tables
    return Contrasts().analyze(Runs(pd.DataFrame(all_rows), RankTables(all_tables)))


@pytest.fixture(scope="module")
def report_of_three_families() -> Report:
    """The report on three families on the same texts. Two have the exponent 0.1, the third has 0.2."""
    return report_of(measurements("a", alpha=0.1), measurements("b", alpha=0.1), measurements("c", alpha=0.2))


def test_contrasts_finds_difference_of_families_with_different_exponents(report_of_three_families: Report) -> None:
    row = result(report_of_three_families, "families", "rbp_1", family="a", versus="c")
    assert row["verdict"] == "below"
    assert row["families"] == pytest.approx(-0.1, abs=0.03)


def test_contrasts_finds_no_difference_of_families_with_equal_exponents(report_of_three_families: Report) -> None:
    row = result(report_of_three_families, "families", "rbp_1", family="a", versus="b")
    assert row["verdict"] in ("undecided", "same")


def test_contrasts_of_families_pairs_the_influences_of_documents() -> None:
    part_a, part_b = measurements("a"), measurements("b", alpha=0.12)
    row = result(report_of(part_a, part_b), "families", "rbp_1", family="a", versus="b")
    runs = Runs(pd.DataFrame(part_a[0] + part_b[0]), RankTables(part_a[1] | part_b[1]))
    fitted = []
    for rows, _ in (part_a, part_b):
        counts = [runs.document_counts(row["run_id"], [1]) for row in rows]
        fitted.append(laws_by_metric(SIZES, counts)["rbp_1"])
    expected = paired_difference(*(law.alpha for law in fitted))
    assert (row["low"], row["high"]) == pytest.approx(expected.interval())
    independent = independent_difference(*(law.alpha for law in fitted))
    assert expected.half_width() < 0.99 * independent.half_width()


def test_contrasts_level_is_the_paired_difference_of_both_models() -> None:
    part_a, part_b = measurements("a"), measurements("b", alpha=0.12)
    report = report_of(part_a, part_b)
    runs = Runs(pd.DataFrame(part_a[0] + part_b[0]), RankTables(part_a[1] | part_b[1]))
    sums = [runs.document_counts(part[0][-1]["run_id"], [1]).sums for part in (part_a, part_b)]
    both = np.stack(sums, axis=1)  # (documents, 2, 3)
    expected = estimate(both, lambda x: neg_log_rbp(x[..., 0, :])[..., 0] - neg_log_rbp(x[..., 1, :])[..., 0])
    row = result(report, "level", "rbp_1", at="1000000000")
    assert row["level"] == pytest.approx(expected.value)
    assert (row["low"], row["high"]) == pytest.approx(expected.interval())
    mean = result(report, "level", "rbp_1", at="mean of 5 sizes")
    levels = report.frame("level")
    assert mean["level"] == pytest.approx(levels[levels["metric"] == "rbp_1"]["level"][:5].mean())
    assert mean["high"] - mean["low"] < row["high"] - row["low"]


def test_contrasts_compares_the_nearest_sizes_of_families_without_common_sizes() -> None:
    rows, tables = measurements("b")
    for row in rows:
        row["non_embedding_params"] *= 10_000
    levels = report_of(measurements("a"), (rows, tables)).frame("level")
    assert set(levels["at"]) == {f"{SIZES[-1]:.0f} − {SIZES[0]:.0f}"}


def test_contrasts_size_ratio_is_the_one_at_which_both_families_are_equal() -> None:
    """RBP_1 of family b at S equals RBP_1 of family a at 2 S."""
    rows, tables = measurements("b")
    for row in rows:
        row["non_embedding_params"] //= 2
    report = report_of(measurements("a"), (rows, tables))
    ratio = result(report, "size_ratio", "rbp_1")
    assert (ratio["family"], ratio["versus"], ratio["verdict"]) == ("b", "a", "below")
    assert ratio["low"] < 0.5 < ratio["high"]
    assert ratio["size_ratio"] == pytest.approx(0.5, rel=0.1)
    assert ratio["S_equal"] == pytest.approx(ratio["size_ratio"] * SIZES[-1])
    assert "a-1000000000" in report.headline


def test_contrasts_compares_families_of_which_only_ce_was_imported() -> None:
    rows = []
    for family, factor in (("a", 30.0), ("b", 27.0)):
        for s in SIZES:
            names = {"run_id": f"{family}{s:.0f}", "family": family, "size": f"{s:.0f}", "model": f"{family}-{s:.0f}"}
            numbers = {"non_embedding_params": s, "vocab_size": 512, "num_tokens": 9000, "ce": factor * s**-0.1}
            rows.append(names | numbers | {"dataset": "text", "documents_hash": "text", "without_ranks": True})
    report = Contrasts().analyze(Runs(pd.DataFrame(rows), RankTables({})))
    ratio = report.frame("size_ratio")
    assert ratio["metric"].tolist() == ["ce"]
    assert ratio["size_ratio"].item() == pytest.approx(0.9**10)
    assert report.headline


def test_contrasts_finds_the_crossing_of_two_families() -> None:
    """-ln RBP_1 is 3 S^-0.1 and 3 * 1e6^0.1 S^-0.2, which are equal at S = 1e6."""
    rows, tables = measurements("b")
    for row in rows:
        s = row["non_embedding_params"]
        tables[row["run_id"]] = power_law_rank_table(s, alpha=0.2, factor=3 * 3e7**0.1, tokens=300)
    found = result(report_of(measurements("a"), (rows, tables)), "crossing", "rbp_1")
    assert found["low"] < 3e7 < found["high"]


def test_contrasts_margin_is_a_share_of_the_second_exponent() -> None:
    """The exponents 0.1 and 0.12 differ by more than a tenth of 0.12."""
    report = report_of(
        measurements(dataset="d0", alpha=0.1),
        measurements(dataset="d1", alpha=0.12, seed=1),
    )
    assert result(report, "datasets", "rbp_1")["verdict"] == "below"


def test_contrasts_averages_exponents_over_families(report_of_three_families: Report) -> None:
    mean = result(report_of_three_families, "mean_over_families", "rbp_1")
    assert mean["number"] == 3
    assert mean["homogeneity"] < 0.05
    assert mean["prediction_low"] < mean["low"]


def test_contrasts_of_one_dataset_compares_no_datasets(report_of_three_families: Report) -> None:
    assert "datasets" not in report_of_three_families.questions


def test_contrasts_does_not_compare_families_on_different_texts() -> None:
    report = report_of(measurements("a"), measurements("b", documents_hash="others"))
    assert "families" not in report.questions


def test_contrasts_compares_datasets_of_one_family() -> None:
    report = report_of(
        measurements(dataset="d0", alpha=0.1, seed=0),
        measurements(dataset="d1", alpha=0.1, seed=1),
        measurements(dataset="d2", alpha=0.2, seed=2),
    )
    assert result(report, "datasets", "rbp_1", dataset="d0", versus="d2")["verdict"] == "below"
    assert result(report, "datasets", "rbp_1", dataset="d0", versus="d1")["verdict"] in ("undecided", "same")
    assert result(report, "mean_over_datasets", "rbp_1", family="f")["homogeneity"] < 0.05


def test_contrasts_compares_datasets_over_models_that_both_have() -> None:
    rows, tables = measurements(dataset="d1", alpha=0.2, seed=1)
    first = measurements(dataset="d0")
    row = result(report_of(first, (rows[1:], tables)), "datasets", "rbp_1")
    assert row["sizes"] == 4
    expected = line_of((rows, tables), sizes=slice(1, None))[0].slope - line_of(first, sizes=slice(1, None))[0].slope
    assert row["datasets"] == pytest.approx(expected)


def test_contrasts_compares_rbp_10_and_rbp_100_with_rbp_1() -> None:
    part = measurements()
    rows = report_of(part).frame("against_rbp_1").set_index("metric")
    assert set(rows.index) == {"rbp_10", "rbp_100"}
    for k in (10, 100):
        expected = line_of(part)[0].slope - line_of(part, k)[0].slope
        assert rows.loc[f"rbp_{k}", "against_rbp_1"] == pytest.approx(expected)


def test_contrasts_does_not_change_if_each_model_has_second_seed_with_same_ranks() -> None:
    rows, tables = measurements("a")
    rows_with_seeds = list(rows)
    tables_with_seeds = dict(tables)
    for row in rows:
        seed = row | {"run_id": row["run_id"] + "x", "model": row["model"] + "-seed1"}
        rows_with_seeds.append(seed)
        tables_with_seeds[seed["run_id"]] = tables[row["run_id"]]
    family_b = measurements("b", alpha=0.12)
    without_seeds = report_of((rows, tables), family_b).results
    with_seeds = report_of((rows_with_seeds, tables_with_seeds), family_b).results
    columns = ["p_adjusted", "largest"]
    pd.testing.assert_frame_equal(without_seeds.drop(columns=columns), with_seeds.drop(columns=columns), rtol=1e-6)


def test_contrasts_compares_datasets_over_sizes_with_same_seeds() -> None:
    rows, tables = measurements(dataset="d1", seed=1)
    rows[0]["model"] += "-seed1"
    report = report_of(measurements(dataset="d0"), (rows, tables))
    assert result(report, "datasets", "rbp_1")["sizes"] == 4


def family_of_ce(name: str, sizes: list[float], *, factor: float = 3.0, first_document: int = 0) -> ComparedFamily:
    """Return a family in which CE of document i is factor * S^-0.1 * (1 + 0.2 * z_i)."""
    rows = pd.DataFrame({"family": name, "dataset": "text", "size": [f"{s:g}" for s in sizes], "model": name})
    rows = rows.assign(non_embedding_params=sizes, run_id=[f"{name}{s:g}" for s in sizes], vocab_size=100)
    hardness = 1 + 0.2 * np.random.default_rng(0).standard_normal(50)
    counts = []
    for s in sizes:
        nats = 100 * factor * s**-0.1 * hardness
        document = np.arange(first_document, first_document + 50)
        tokens = np.full(50, 100)
        counts.append(DocumentCounts((), document, tokens, nats, np.zeros((50, 0), np.int64)))
    return ComparedFamily(Family(name, "text", rows), counts)


def test_levels_over_other_documents_are_independent_even_if_their_number_is_equal() -> None:
    first, second = family_of_ce("a", [1e6]), family_of_ce("b", [1e6], factor=2.7, first_document=1)
    difference = first.minus(second)(first.levels[0][CE], second.levels[0][CE])
    expected = np.hypot(first.levels[0][CE].half_width(), second.levels[0][CE].half_width())
    assert difference.half_width() == pytest.approx(expected, rel=0.02)  # the degrees of freedom differ


@pytest.mark.parametrize("factor", [3.0, 3.0 * (1 + 1e-13), 3.0 * (1 - 1e-13)])
def test_better_first_does_not_depend_on_the_last_bits(factor: float) -> None:
    first, second = family_of_ce("a", [1e6, 1e7, 1e8]), family_of_ce("b", [1e6, 1e7, 1e8], factor=factor)
    assert better_first(first, second, CE) == (first, second)


def test_the_family_that_reaches_the_other_with_fewer_parameters_comes_first() -> None:
    """Family b at S has the CE of family a at 2 S."""
    first = family_of_ce("a", [1e6, 1e7, 1e8])
    second = family_of_ce("b", [5e5, 5e6, 5e7], factor=3 * 2**-0.1)
    assert better_first(first, second, CE) == (second, first)
