"""Tests of the analyzer `proxies`, which compares scores in tasks with statistics of ranks of the right answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from plugins.proxies import PROXIES, Proxies, largest_by_chance, leave_families_out, proxies_of_answers
from rbptrack.analysis import Report, Runs
from rbptrack.analysis.testing import AnalyzerContract
from rbptrack.figures.charts import save
from rbptrack.ranks import RankTable
from tests.rank_tables import MemoryRankStore, rank_table

V = 200
DOCUMENTS = 20
QUESTION = 5
ANSWER = 25


class StoreWithScores(MemoryRankStore):
    """Rank tables by run ID and a table of scores, both in memory."""

    def __init__(self, tables: dict[str, RankTable], scores: pd.DataFrame) -> None:
        super().__init__(tables)
        self.table_of_scores = scores

    def scores(self) -> pd.DataFrame:
        return self.table_of_scores


def questions_and_answers(skill: float, confidence: float, rng: np.random.Generator) -> RankTable:
    """Return random ranks of 20 documents: a question of 5 tokens (field 0) and an answer of 25 (field 1).

    Args:
        skill: a model with higher skill has lower ranks.
        confidence: a model with higher confidence has a higher largest probability and a lower entropy.
        rng: the source of random numbers.

    """
    n = DOCUMENTS * (QUESTION + ANSWER)
    rank = 1 + np.minimum(np.floor(rng.exponential(1 / skill, n)), V - 1)
    top = -rng.exponential(1 / confidence, n)
    return rank_table(
        rank,
        documents=DOCUMENTS,
        vocab_size=V,
        field=np.tile(np.arange(QUESTION + ANSWER) >= QUESTION, DOCUMENTS),
        logprob=np.minimum(top, -np.log(rank) * confidence),
        entropy=rng.exponential(1 / confidence, n),
        top=np.zeros(n),
        top_logprob=top,
    )


@pytest.fixture(scope="module")
def population() -> Runs:
    """Five families of four models. Scores depend on ranks alone. CE also depends on the confidence of the family."""
    rng = np.random.default_rng(0)
    rows = []
    scores = []
    tables = {}
    for family, confidence in zip("abcde", (0.4, 0.8, 1.6, 3.2, 6.4), strict=True):
        for i, skill in enumerate(np.linspace(0.2, 1.4, 4) * rng.uniform(0.9, 1.1, 4)):
            name = f"{family}-{i}m"
            tables[name] = questions_and_answers(skill, confidence, rng)
            row = {"run_id": name, "family": family, "size": f"{i}m", "model": name, "dataset": "maths"}
            rows.append(row | {"vocab_size": V, "non_embedding_params": 10**6 * 4**i})
            scores.append({"model": f"org/{name}", "revision": "", "task": "sums", "score": 1 - np.exp(-skill), "n": 9})
    return Runs(pd.DataFrame(rows), StoreWithScores(tables, pd.DataFrame(scores)))


def tables_of(population: Runs) -> dict[str, RankTable]:
    """Return the rank tables of the population by run ID."""
    assert isinstance(population.store, StoreWithScores)
    return population.store.tables


def with_scores(population: Runs, scores: pd.DataFrame) -> Runs:
    """Return the same runs with other scores."""
    return Runs(population.frame.drop(columns="name"), StoreWithScores(tables_of(population), scores))


@pytest.fixture(scope="module")
def report_of_population(population: Runs) -> Report:
    return Proxies().analyze(population)


def test_tau_is_highest_for_proxy_that_determines_the_score(report_of_population: Report) -> None:
    tau = report_of_population.frame("tau").set_index("metric")["tau"]
    assert len(tau) == len(PROXIES)
    assert tau["log_rank"] > 0.85 > tau["ce"]
    assert abs(tau["entropy"]) < 0.4


def test_left_out_families_are_ordered_better_by_best_proxy_than_by_ce(report_of_population: Report) -> None:
    row = report_of_population.frame("left_out").iloc[0]
    assert row["models"] == 20
    assert row["families"] == 5
    assert row["left_out"] > 0.9 > row["by_ce"]
    assert row["by_ce"] == report_of_population.frame("tau").set_index("metric").loc["ce", "fixed"]


def test_table_of_models_has_mean_of_best_proxy_over_answers(population: Runs, report_of_population: Report) -> None:
    models = report_of_population.tables["models"]
    assert set(models["metric"]) == {"log_rank by position"}
    expected = []
    for table in tables_of(population).values():
        answers = proxies_of_answers(table, 1, k=10)[:, PROXIES.index(("log_rank", "position"))]
        expected.append(answers.mean())
    assert models["proxy"].tolist() == pytest.approx(expected)


def test_best_tau_exceeds_percentile_of_chance(report_of_population: Report) -> None:
    row = report_of_population.frame("best_tau").iloc[0]
    assert row["best_tau"] > row["by_chance"] > 0.3


def test_proxies_has_no_intervals_and_no_p(report_of_population: Report) -> None:
    assert report_of_population.results[["low", "high", "p"]].isna().all(axis=None)


def test_report_of_proxies_has_headline_models_and_figure(report_of_population: Report, tmp_path: Path) -> None:
    assert "sums by answers of maths" in report_of_population.headline
    assert len(report_of_population.tables["models"]) == 20
    save(report_of_population.figures["best_proxy"], tmp_path / "best_proxy.svg")


@pytest.mark.parametrize(
    ("column", "values", "names"),
    [
        ("candidates", ("vocabulary", "tokenizer"), {"maths candidates vocabulary", "maths candidates tokenizer"}),
        ("seq_len", (64, 512), {"maths seq_len 64", "maths seq_len 512"}),
    ],
)
def test_proxies_separates_models_measured_under_different_conditions(
    population: Runs, column: str, values: tuple[object, object], names: set[str]
) -> None:
    """In a common ranking, a proxy could order models by the condition, such as `candidates`, and not by skill."""
    frame = population.frame.drop(columns="name").assign(**{column: [values[i % 2] for i in range(20)]})
    tau = Proxies().analyze(Runs(frame, population.store)).frame("tau")
    assert set(tau["dataset"]) == names
    assert set(tau["models"]) == {10}
    assert not tau.duplicated(["dataset", "task", "metric"]).any()


@pytest.fixture(scope="module")
def report_of_imports(population: Runs) -> Report:
    """The report on imported ranks without entropy, largest probability and token IDs. One table also has no fields."""
    tables = {}
    for run_id, table in tables_of(population).items():
        columns = table.table.drop_columns(["entropy", "top", "top_logprob", "ties", "token"])
        tables[run_id] = RankTable(columns, V)
    tables["a-0m"] = RankTable(tables["a-0m"].table.drop_columns(["field"]), V)
    store = StoreWithScores(tables, population.scores())
    return Proxies().analyze(Runs(population.frame.drop(columns="name"), store))


def test_proxies_of_imports_without_entropy_has_other_proxies_and_a_note(report_of_imports: Report) -> None:
    tau = report_of_imports.frame("tau").set_index("metric")["tau"]
    assert tau["log_rank"] > 0.85
    assert tau[["entropy", "margin", "ce by entropy"]].isna().all()
    assert report_of_imports.frame("left_out")["left_out"].item() > 0.9
    assert any("entropy" in note for note in report_of_imports.notes)


def test_proxies_leaves_out_ranks_without_fields_and_names_them(report_of_imports: Report) -> None:
    assert "a-0m on maths" in report_of_imports.notes[-1]


def test_proxies_of_equal_scores_has_no_results_but_a_note(population: Runs) -> None:
    report = Proxies().analyze(with_scores(population, population.scores().assign(score=0.5)))
    assert not report.questions
    assert any("sums" in note for note in report.notes)


def test_proxies_of_four_models_has_a_note(population: Runs) -> None:
    report = Proxies().analyze(with_scores(population, population.scores().head(4)))
    assert not report.questions
    assert any("sums" in note and "5" in note for note in report.notes)


def test_proxies_of_equal_ranks_has_no_results_but_a_note(population: Runs) -> None:
    table = questions_and_answers(1, 1, np.random.default_rng(0))
    store = StoreWithScores(dict.fromkeys(tables_of(population), table), population.scores())
    report = Proxies().analyze(Runs(population.frame.drop(columns="name"), store))
    assert not report.questions
    (note,) = report.notes
    assert "sums" in note
    assert "maths" in note


def test_proxies_of_two_families_does_not_leave_families_out(population: Runs) -> None:
    report = Proxies().analyze(with_scores(population, population.scores().head(8)))
    assert report.questions == ["best_tau", "tau"]
    assert len(report.notes) == 1
    assert "these same models" in report.headline


def test_largest_by_chance_is_exceeded_by_noise_in_about_5_percent_of_samples() -> None:
    """Each sample has 24 proxies of 12 models, all of them noise."""
    rng = np.random.default_rng(0)
    exceeds = 0
    for _ in range(100):
        noise = rng.standard_normal((12, 24))
        scores = rng.standard_normal(12)
        best = max(stats.kendalltau(proxy, scores).statistic for proxy in noise.T)
        exceeds += best > largest_by_chance(noise, scores)
    assert exceeds <= 12  # the expected 5 plus three standard errors


def test_largest_by_chance_of_one_proxy_is_95th_percentile_of_kendalls_tau() -> None:
    """Six models have 720 orders. tau exceeds 0.6 in 2.8% of the orders, and is at least 0.6 in 6.8%."""
    by_chance = largest_by_chance(np.arange(6.0)[:, None], np.arange(6.0))
    assert by_chance == pytest.approx(0.6, abs=0.01)


def test_largest_by_chance_of_tied_scores_is_kendalls_tau_b() -> None:
    """Two of five models have the lower score. One of the ten assignments orders all of them rightly."""
    scores = np.array([0.0, 0, 1, 1, 1])
    expected = stats.kendalltau(np.arange(5), scores).statistic
    assert largest_by_chance(np.arange(5.0)[:, None], scores) == pytest.approx(expected)


def test_proxies_of_two_equal_answers_are_equal() -> None:
    columns = {"field": [0, 1, 1] * 2, "entropy": [1, 2, 3] * 2, "logprob": [-1, -2, -4] * 2, "top_logprob": [-1] * 6}
    values = proxies_of_answers(rank_table([1, 2, 9] * 2, documents=2, **columns), 1, k=2)
    np.testing.assert_allclose(values[1], values[0])


def test_proxies_of_one_answer_worked_out_by_hand() -> None:
    """The question has one token. The answer has three, of ranks 1, 2, 4 and with p = 1/2, 1/4, 1/8."""
    columns: dict[str, Any] = {"entropy": [9.0, 1.0, 2.0, 5.0], "top_logprob": -np.log([2, 2, 2, 4])}
    columns |= {"field": [0, 1, 1, 1], "logprob": -np.log([8, 2, 4, 8])}
    values = proxies_of_answers(rank_table([8, 1, 2, 4], vocab_size=8, **columns), 1, k=2)
    proxies = dict(zip(PROXIES, values[0], strict=True))  # by statistic and weight of tokens
    ln2 = np.log(2)
    assert proxies["p", ""] == pytest.approx((1 / 2 + 1 / 4 + 1 / 8) / 3)
    assert proxies["ce", ""] == pytest.approx(2 * ln2)
    assert proxies["entropy", ""] == pytest.approx(8 / 3)
    assert proxies["rbp", ""] == pytest.approx(2 / 3)
    assert proxies["log_rank", ""] == pytest.approx(ln2)
    assert proxies["inverse_rank", ""] == pytest.approx((1 + 1 / 2 + 1 / 4) / 3)
    assert proxies["margin", ""] == pytest.approx(2 * ln2 / 3)
    assert proxies["first", ""] == pytest.approx(1 / 3)
    assert proxies["ce", "position"] == pytest.approx((1 + 2 * 2 + 3 * 3) * ln2 / 6)
    assert proxies["ce", "entropy"] == pytest.approx((1 + 2 * 2 + 3 * 5) * ln2 / 8)


def test_proxies_of_texts_without_answers_has_a_note(population: Runs) -> None:
    frame = population.frame.head(1).drop(columns="name")
    tables = {frame["run_id"].iat[0]: rank_table([1, 2, 3])}
    report = Proxies().analyze(Runs(frame, StoreWithScores(tables, population.scores())))
    assert any("answers" in note for note in report.notes)


def test_proxies_without_scores_notes_the_command_that_imports_them(population: Runs) -> None:
    no_scores = pd.DataFrame(columns=["model", "revision", "task", "score", "n"])
    report = Proxies().analyze(with_scores(population, no_scores))
    assert any("import FILE" in note for note in report.notes)


def test_leave_families_out_orders_half_of_pairs_rightly_if_proxies_are_noise() -> None:
    """The largest tau of 24 proxies on all models does not show this: it is above 0.3 on average."""
    rng = np.random.default_rng(3)
    families = np.array(list("aaaabbbbccccdddd"))
    largest_taus = []
    shares_of_right_pairs = []
    for _ in range(60):
        noise = rng.normal(size=(16, 24))
        scores = rng.normal(size=16)
        largest_taus.append(max(stats.kendalltau(proxy, scores).statistic for proxy in noise.T))
        left_out = leave_families_out(noise, scores, families)
        assert left_out
        shares_of_right_pairs.append(left_out.right_share)
    assert np.mean(largest_taus) > 0.3
    assert np.mean(shares_of_right_pairs) == pytest.approx(0.5, abs=0.03)


def test_leave_families_out_judges_pairs_of_two_families_and_counts_ties_as_half() -> None:
    """All pairs of models of two families are ordered rightly, except two ties between the families b and c."""
    proxy = np.array([2.0, 1, 3, 3, 3, 5])[:, None]
    left_out = leave_families_out(proxy, np.arange(6.0), np.array(list("aabbcc")))
    assert left_out is not None
    assert left_out.right_share == pytest.approx(11 / 12)
    assert left_out.right_shares.tolist() == pytest.approx([11 / 12])


def test_leave_families_out_of_two_families_is_none() -> None:
    rng = np.random.default_rng(3)
    assert leave_families_out(rng.normal(size=(8, 24)), rng.normal(size=8), np.array(list("aaaabbbb"))) is None


def test_leave_families_out_of_three_families_is_none_if_no_third_family_has_different_scores() -> None:
    proxy = np.arange(6.0)[:, None]
    families = np.array(list("aabbcc"))
    assert leave_families_out(proxy, np.array([1.0, 1, 2, 2, 3, 3]), families) is None


class TestContract(AnalyzerContract):
    analyzer = Proxies(min_models=3)

    def runs(self, *, documents: int = 30) -> Runs:
        rng = np.random.default_rng(1)
        names = ["a-1m", "b-1m", "c-1m", "d-1m"]
        rows = []
        scores = []
        for i, name in enumerate(names):
            row = {"run_id": name, "family": name[0], "size": "1m", "model": name, "dataset": "maths"}
            rows.append(row | {"vocab_size": V, "non_embedding_params": 10**6})
            scores.append({"model": name, "revision": "", "task": "sums", "score": 0.2 * i, "n": 9})
        tables = {name: questions_and_answers(0.3 * (i + 1), 1, rng) for i, name in enumerate(names)}
        return Runs(pd.DataFrame(rows), StoreWithScores(tables, pd.DataFrame(scores)))
