"""Scores of tasks beside statistics of known answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from plugins.proxies import PROXIES, Proxies, largest_by_chance, leave_families_out, proxies_of_answers
from rbptrack.analysis import Runs
from rbptrack.analysis.testing import AnalyzerContract
from rbptrack.figures.charts import save
from rbptrack.ranks import RankTable
from tests.rank_tables import MemoryRankStore, rank_table

V = 200
DOCUMENTS = 20
QUESTION = 5
ANSWER = 25


class Scored(MemoryRankStore):
    """Rank tables and scores in memory."""

    def __init__(self, tables: dict[str, RankTable], scores: pd.DataFrame) -> None:
        super().__init__(tables)
        self.table = scores

    def scores(self) -> pd.DataFrame:
        return self.table


def model(skill: float, confidence: float, rng: np.random.Generator) -> RankTable:
    """A model whose ranks in answers follow its skill, and whose probabilities follow how sure it is of itself."""
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
    """Five families of four models: the score follows the ranks; how sure of itself a family is hides it from CE."""
    rng = np.random.default_rng(0)
    rows = []
    scores = []
    tables = {}
    for family, confidence in zip("abcde", (0.4, 0.8, 1.6, 3.2, 6.4), strict=True):
        for i, skill in enumerate(np.linspace(0.2, 1.4, 4) * rng.uniform(0.9, 1.1, 4)):
            name = f"{family}-{i}m"
            tables[name] = model(skill, confidence, rng)
            row = {"run_id": name, "family": family, "size": f"{i}m", "model": name, "dataset": "maths"}
            rows.append(row | {"revision": "main", "vocab_size": V, "non_embedding_params": 10**6 * 4**i})
            scores.append({"model": f"org/{name}", "revision": "", "task": "sums", "score": 1 - np.exp(-skill), "n": 9})
    return Runs(pd.DataFrame(rows), Scored(tables, pd.DataFrame(scores)))


def changed(population: Runs, scores: pd.DataFrame | None = None, **columns: Any) -> Runs:
    source = population.store
    assert isinstance(source, Scored)
    return Runs(
        population.frame.drop(columns="name").assign(**columns),
        Scored(source.tables, source.table if scores is None else scores),
    )


def test_the_known_best_proxy_is_found_also_by_families_left_out(population: Runs, tmp_path: Path) -> None:
    report = Proxies().analyze(population)
    tau = report.frame("tau").set_index("metric")
    assert len(tau) == len(PROXIES)
    assert tau.loc["log_rank", "tau"] > 0.85 > tau.loc["ce", "tau"]
    assert abs(tau.loc["entropy", "tau"]) < 0.4
    row = report.frame("left_out").iloc[0]
    assert row[["models", "families"]].tolist() == [20, 5]
    assert row["left_out"] > 0.9 > row["by_ce"]
    assert report.results[["low", "high", "p"]].isna().all(axis=None)
    assert "sums by answers of maths" in report.headline
    assert len(report.tables["models"]) == 20
    save(report.figures["best_proxy"], tmp_path / "a.svg")


@pytest.mark.parametrize(
    ("column", "values", "names"),
    [
        ("candidates", ("vocabulary", "tokenizer"), {"maths candidates vocabulary", "maths candidates tokenizer"}),
        ("seq_len", (64, 512), {"maths seq_len 64", "maths seq_len 512"}),
    ],
)
def test_what_is_not_comparable_has_proxies_of_its_own(
    population: Runs, column: str, values: tuple[object, object], names: set[str]
) -> None:
    """Over the tokenizer's candidates p is normalised anew, for example: a proxy would order models by it."""
    tau = Proxies().analyze(changed(population, **{column: [values[i % 2] for i in range(20)]})).frame("tau")
    assert set(tau["dataset"]) == names
    assert set(tau["models"]) == {10}
    assert not tau.duplicated(["dataset", "task", "metric"]).any()


def test_imports_without_entropy_and_token_ids_have_the_rest(population: Runs) -> None:
    source = population.store
    assert isinstance(source, Scored)
    tables = {}
    for name, table in source.tables.items():
        lacking = table.table.drop_columns(["entropy", "top", "top_logprob", "ties", "token"])
        tables[name] = RankTable(lacking, V)
    tables["a-0m"] = RankTable(tables["a-0m"].table.drop_columns(["field"]), V)
    report = Proxies().analyze(Runs(population.frame.drop(columns="name"), Scored(tables, source.table)))
    assert report.notes[-1] == "Left out, because they have no field of answers: a-0m on maths."
    tau = report.frame("tau").set_index("metric")["tau"]
    assert tau["log_rank"] > 0.85
    assert tau[["entropy", "margin", "ce by entropy"]].isna().all()
    assert report.frame("left_out")["left_out"].item() > 0.9
    assert any("entropy" in note for note in report.notes)


def test_few_models_one_score_and_few_families_are_said(population: Runs) -> None:
    scores = population.scores()
    same = Proxies().analyze(changed(population, scores.assign(score=0.5)))
    assert not same.questions
    assert any("one and the same score" in note for note in same.notes)
    few = Proxies().analyze(changed(population, scores.head(4)))
    assert any("5 are needed" in note for note in few.notes)
    assert isinstance(population.store, Scored)
    one = Scored(dict.fromkeys(population.store.tables, model(1, 1, np.random.default_rng(0))), scores)
    alike = Proxies().analyze(Runs(population.frame.drop(columns="name"), one))
    assert alike.notes == ["sums: no proxy is known for all models on maths and distinguishes them."]
    two = Proxies().analyze(changed(population, scores.head(8)))
    assert two.questions == ["best_tau", "tau"]
    assert any("fewer than 3 families" in note for note in two.notes)
    assert "these same models" in two.headline


def test_the_best_proxy_of_pure_noise_seldom_exceeds_chance() -> None:
    """24 proxies of noise, 12 models: the largest tau exceeds the printed percentile in 5% of draws."""
    rng = np.random.default_rng(0)
    exceeds = 0
    for _ in range(100):
        noise = rng.standard_normal((12, 24))
        scores = rng.standard_normal(12)
        best = max(stats.kendalltau(proxy, scores).statistic for proxy in noise.T)
        exceeds += best > largest_by_chance(noise, scores)
    assert exceeds <= 12  # 5, and three standard errors


def test_one_proxy_has_kendalls_own_percentile() -> None:
    """Of 6 models without ties 720 orders are possible; tau is above 0.6 in 2.8% of them, at least 0.6 in 6.8%."""
    by_chance = largest_by_chance(np.arange(6.0)[:, None], np.arange(6.0))
    assert by_chance == pytest.approx(0.6, abs=0.01)


def test_the_true_proxy_exceeds_chance(population: Runs) -> None:
    row = Proxies().analyze(population).frame("best_tau").iloc[0]
    assert row["best_tau"] > row["by_chance"] > 0.3


def test_statistics_of_an_answer_by_hand() -> None:
    """A question of one token and an answer of three: ranks 1, 2, 4 with p of 1/2, 1/4 and 1/8."""
    columns: dict[str, Any] = {"entropy": [9.0, 1.0, 2.0, 5.0], "top_logprob": -np.log([2, 2, 2, 4])}
    columns |= {"field": [0, 1, 1, 1], "logprob": -np.log([8, 2, 4, 8])}
    values = proxies_of_answers(rank_table([8, 1, 2, 4], vocab_size=8, **columns), 1, k=2)
    by = dict(zip(PROXIES, values[0], strict=True))
    ln2 = np.log(2)
    assert by["p", ""] == pytest.approx((1 / 2 + 1 / 4 + 1 / 8) / 3)
    assert by["ce", ""] == pytest.approx(2 * ln2)
    assert by["entropy", ""] == pytest.approx(8 / 3)
    assert by["rbp", ""] == pytest.approx(2 / 3)
    assert by["log_rank", ""] == pytest.approx(ln2)
    assert by["inverse_rank", ""] == pytest.approx((1 + 1 / 2 + 1 / 4) / 3)
    assert by["margin", ""] == pytest.approx(2 * ln2 / 3)
    assert by["first", ""] == pytest.approx(1 / 3)
    assert by["ce", "position"] == pytest.approx((1 + 2 * 2 + 3 * 3) * ln2 / 6)
    assert by["ce", "entropy"] == pytest.approx((1 + 2 * 2 + 3 * 5) * ln2 / 8)


def test_texts_without_answers_and_stores_without_scores_are_said(population: Runs) -> None:
    table = rank_table([1, 2, 3])
    frame = population.frame.head(1).drop(columns="name")
    report = Proxies().analyze(Runs(frame, Scored({frame["run_id"].iat[0]: table}, population.scores())))
    assert any("answers" in note for note in report.notes)
    report = Proxies().analyze(changed(population, pd.DataFrame(columns=["model", "revision", "task", "score", "n"])))
    assert any("import FILE" in note for note in report.notes)


def test_the_best_of_many_is_not_judged_by_the_models_that_chose_it() -> None:
    """Proxies of pure noise: the best on all models looks good, left out families show that none is."""
    rng = np.random.default_rng(3)
    families = np.array(list("aaaabbbbccccdddd"))
    flattered = []
    honest = []
    for _ in range(60):
        noise = rng.normal(size=(16, 24))
        truth = rng.normal(size=16)
        flattered.append(max(stats.kendalltau(proxy, truth).statistic for proxy in noise.T))
        left = leave_families_out(noise, truth, families)
        assert left
        honest.append(left.right)
    assert np.mean(flattered) > 0.3
    assert np.mean(honest) == pytest.approx(0.5, abs=0.03)
    assert leave_families_out(noise[:8], truth[:8], families[:8]) is None


class TestContract(AnalyzerContract):
    analyzer = Proxies(min_models=3)

    def runs(self, *, documents: int = 30) -> Runs:
        rng = np.random.default_rng(1)
        names = ["a-1m", "b-1m", "c-1m", "d-1m"]
        rows = []
        scores = []
        for i, name in enumerate(names):
            row = {"run_id": name, "family": name[0], "size": "1m", "model": name, "dataset": "maths"}
            rows.append(row | {"revision": "main", "vocab_size": V, "non_embedding_params": 10**6})
            scores.append({"model": name, "revision": "", "task": "sums", "score": 0.2 * i, "n": 9})
        tables = {name: model(0.3 * (i + 1), 1, rng) for i, name in enumerate(names)}
        return Runs(pd.DataFrame(rows), Scored(tables, pd.DataFrame(scores)))
