"""Scores of tasks: read from where people keep them, and forecast from known answers."""

from __future__ import annotations

import json
import zipfile
from copy import copy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rbptrack.plugins.proxies import Proxies
from rbptrack.plugins.proxies.matching import last_checkpoints, matched
from rbptrack.plugins.proxies.ordering import Arrangement, associated, leave_families_out
from rbptrack.plugins.proxies.solutions import PROXIES, Solutions, label, rarity
from scipy import stats

from rbptrack.analysis import Runs
from rbptrack.analysis.findings import NothingToSay
from rbptrack.base.errors import BadInput
from rbptrack.ranks import RankTable
from rbptrack.reporting.telling import sentences_of
from tests.conftest import Program
from tests.imported import scores_in
from tests.synthetic import changed, ranked, runs_of_tables, together, with_columns

V, DOCUMENTS, QUESTION, ANSWER = 200, 30, 5, 25


def answers(skill: float, confidence: float, rng: np.random.Generator) -> RankTable:
    """A model whose ranks in answers follow its skill, and whose probabilities follow how sure it is of itself."""
    n = DOCUMENTS * (QUESTION + ANSWER)
    rank = 1 + np.minimum(np.floor(rng.exponential(1 / skill, n)), V - 1)
    top = -rng.exponential(1 / confidence, n)
    return ranked(
        rank,
        documents=DOCUMENTS,
        vocab_size=V,
        field=np.tile(np.arange(QUESTION + ANSWER) >= QUESTION, DOCUMENTS),
        token=rng.integers(V, size=n),
        logprob=np.minimum(top, -np.log(rank) * confidence),
        entropy=rng.exponential(1 / confidence, n),
        top=np.zeros(n),
        top_logprob=top,
    )


@pytest.fixture(scope="module")
def population() -> Runs:
    """Five families of four models: the score follows the ranks; how sure of itself a family is hides it from CE."""
    rng = np.random.default_rng(0)
    runs, rows = [], []
    for family, confidence in zip("abcde", (0.4, 0.8, 1.6, 3.2, 6.4), strict=True):
        skills = np.linspace(0.2, 1.4, 4) * rng.uniform(0.9, 1.1, 4)
        mine = {f"{family}{i}": answers(skill, confidence, rng) for i, skill in enumerate(skills)}
        runs.append(runs_of_tables([1e6 * 4**i for i in range(4)], mine, family=family, dataset="maths"))
        names = runs[-1].frame.set_index("run_id")["model"]
        for run_id, skill in zip(mine, skills, strict=True):
            score = 1 - np.exp(-skill)
            rows.append({"model": f"org/{names[run_id]}", "revision": "", "task": "sums", "score": score, "n": 100})
    return changed(together(*runs), scores=lambda: pd.DataFrame(rows))


def test_the_known_best_proxy_is_found_also_by_families_left_out(population: Runs) -> None:
    report = Proxies().analyze(population)
    proxies = report.tables["proxies"].frame.set_index("proxy")
    assert len(proxies) == 32
    assert proxies.loc["log_rank", "spearman"] > 0.95
    assert proxies.loc["ce", "spearman"] < 0.8
    assert proxies.loc[["log_rank", "entropy"], "verdict"].tolist() == ["yes", "undecided"]
    assert proxies.loc["ce", "verdict"] == "yes", "within a family, CE follows the ranks"
    row = report.tables["summary"].frame.iloc[0]
    assert row[["models", "families"]].tolist() == [20, 5]
    assert row["left_out"] > 0.9 > row["left_out_ce"]
    assert 0.5 < row["left_out_low"] < row["left_out"] <= row["left_out_high"] <= 1
    said = sentences_of(report.findings)
    assert said[0].startswith("sums by answers of maths: the proxy that the other families choose (")
    assert "cross-entropy" in said[0]


def test_models_ranked_among_other_candidates_have_proxies_of_their_own(population: Runs) -> None:
    """Over the tokenizer's candidates p is normalised anew: a proxy would order models by it."""
    whole = Proxies().analyze(population)
    runs = copy(population)
    runs.frame = population.frame.assign(candidates="vocabulary")
    runs.frame.loc[runs.frame.index[::2], "candidates"] = "tokenizer"
    apart = Proxies().analyze(runs)
    (dataset,) = set(whole.tables["models"].frame["dataset"])
    assert set(apart.tables["models"].frame["dataset"]) == {dataset, f"{dataset} (candidates=tokenizer)"}


def test_tables_of_version_1_have_the_rest(population: Runs) -> None:
    """Without entropy and top_logprob, what needs them is empty, and the command that adds them is named."""
    old = changed(population, ranks=lambda r: population.ranks(r).of_version(1))
    report = Proxies().analyze(old)
    proxies = report.tables["proxies"].frame.set_index("proxy")["spearman"]
    assert proxies["log_rank"] > 0.95
    assert proxies[["entropy", "margin", "ce by entropy"]].isna().all()
    assert any("no column entropy" in note and "again=columns" in note for note in report.notes)


def test_models_with_one_score_are_not_ordered(population: Runs) -> None:
    same = population.scores().assign(score=0.5)
    runs = changed(population, scores=lambda: same)
    with pytest.raises(NothingToSay, match="all models on maths have the same score"):
        Proxies().analyze(runs)


def test_statistics_of_a_solution_by_hand() -> None:
    """A question of one token and a solution of three: ranks 1, 2, 4 with p of 1/2, 1/4 and 1/8."""
    columns = {"entropy": [9.0, 1.0, 2.0, 5.0], "top": np.zeros(4), "top_logprob": -np.log([2, 2, 2, 4])}
    columns |= {"field": [0, 1, 1, 1], "token": [0, 1, 1, 2], "logprob": -np.log([8, 2, 4, 8])}
    table = ranked([8, 1, 2, 4], vocab_size=8, **columns)
    rare = rarity(np.array([1, 2, 1, 0, 0, 0, 0, 0]))
    one = Solutions.of(table, 1, rare, k=2)
    by = {label(proxy, 2): value for proxy, value in zip(PROXIES, one.means, strict=True)}
    ln2 = np.log(2)
    assert by["p"] == pytest.approx((1 / 2 + 1 / 4 + 1 / 8) / 3)
    assert by["ce"] == pytest.approx(2 * ln2)
    assert by["entropy"] == pytest.approx(8 / 3)
    assert by["rbp_2"] == pytest.approx(2 / 3)
    assert by["log_rank"] == pytest.approx(ln2)
    assert by["inverse_rank"] == pytest.approx((1 + 1 / 2 + 1 / 4) / 3)
    assert by["margin"] == pytest.approx(2 * ln2 / 3)
    assert by["share_first"] == pytest.approx(1 / 3)
    assert by["ce by position"] == pytest.approx((1 + 2 * 2 + 3 * 3) * ln2 / 6)
    assert by["ce by entropy"] == pytest.approx((1 + 2 * 2 + 3 * 5) * ln2 / 8)
    weight = rare[[1, 1, 2]]
    assert by["ce by rarity"] == pytest.approx(float(weight @ [1, 2, 3]) * ln2 / weight.sum())
    assert not one.first[0]


def test_answers_that_were_likely_trained_on_are_flagged(population: Runs) -> None:
    """One model ranks 2 of 30 whole solutions of 25 tokens first throughout: above 5%."""

    def ranks(run_id: str) -> RankTable:
        table = population.ranks(run_id)
        seen = (table.column("document") < 2) & (run_id == "a0")
        return with_columns(table, greater=np.where(seen, 0, table.column("greater")))

    runs = changed(population, ranks=ranks)
    notes = [note for note in Proxies(seen=["maths"]).analyze(runs).notes if note.startswith("maths: ")]
    name = population.frame.set_index("run_id").loc["a0", "model"]
    assert notes[0].startswith("maths: the models may have been trained on it (analyzer.seen)")
    assert notes[1].startswith(f"maths: {name} rank every token of 7% of the solutions of 20 tokens or more first")
    assert len(notes) == 2


def test_scores_are_joined_by_name_checkpoint_and_commit() -> None:
    """lm-evaluation-harness says EleutherAI/pythia-70m and step1000; the store says pythia-70m@step1000 (issue 21)."""
    rows = pd.DataFrame(
        [
            ("pythia-70m", "main", "EleutherAI/pythia-70m@abcd1234", 3e11),
            ("pythia-70m@step1000", "step1000", "EleutherAI/pythia-70m@00ff5678", 2e9),
            ("pythia-checkpoints-70m@step2000", "step2000", "EleutherAI/pythia-70m@12340000", 4e9),
            ("nano-6k", "main", "sha256:77aa", None),
            ("mine-1b@v2", "v2", "sha256:99bb", None),
        ],
        columns=["model", "revision", "commit", "training_tokens"],
    )

    def place(model: str, revision: str = "") -> list[int]:
        one = pd.DataFrame([{"model": model, "revision": revision, "task": "sums", "score": 0.5, "n": 1}])
        return list(matched(rows, one)["place"])

    assert place("EleutherAI/pythia-70m") == place("EleutherAI/pythia-70m", "abcd12") == [0]
    assert place("EleutherAI/pythia-70m", "step1000") == place("pythia-70m@step1000") == [1]
    assert place("EleutherAI/pythia-70m", "step2000") == place("pythia-checkpoints-70m", "step2000") == [2]
    assert place("EleutherAI/pythia-70m", "step9") == place("pythia-160m") == []
    assert place("nano-6k", "77aa") == place("nano-6k") == [3]
    assert place("mine-1b@v2") == [4]
    assert place("mine-1b") == [], "a score without a revision is of main"
    assert last_checkpoints(rows).tolist() == [True, False, False, True, True]


def test_the_best_of_many_is_not_judged_by_the_models_that_chose_it() -> None:
    """Thirty-two proxies of pure noise: the best on all models looks good, left out families show that none is."""
    rng = np.random.default_rng(3)
    flattered = []
    honest = []
    inside = 0
    for _ in range(60):
        noise = rng.normal(size=(16, 32))
        truth = rng.normal(size=16)
        flattered.append(max(stats.kendalltau(proxy, truth).statistic for proxy in noise.T))
        left = leave_families_out(noise, truth, list("aaaabbbbccccdddd"))
        assert left
        honest.append(left.right.value)
        interval = left.right.interval(0.95)
        inside += interval.low <= 0.5 <= interval.high
    assert np.mean(flattered) > 0.3
    assert np.mean(honest) == pytest.approx(0.5, abs=0.03)
    assert inside >= 54
    few = leave_families_out(noise[:12], truth[:12], list("aaaabbbbcccc"))
    assert few
    assert few.right.spread is None, "no interval below four families"


def test_families_that_differ_are_not_taken_for_models_that_do() -> None:
    """Families whose scores and proxies lie 2 standard deviations apart: Kendall's p of all models fails in 20%."""
    rng = np.random.default_rng(4)
    families = np.repeat(np.arange(5), 4)
    arrangement = Arrangement.of([str(family) for family in families])
    rejected = {"all models": 0, "within": 0}
    for _ in range(400):
        proxy, scores = rng.normal(size=(2, 20)) + 2 * rng.normal(size=(2, 5))[:, families]
        rejected["all models"] += stats.kendalltau(proxy, scores).pvalue < 0.05
        rejected["within"] += associated(proxy, scores, arrangement).p < 0.05
    assert rejected["all models"] / 400 > 0.15
    assert rejected["within"] / 400 < 0.07


def test_an_arrangement_of_one_family_is_kendalls_exact_test() -> None:
    rng = np.random.default_rng(5)
    proxy, scores = rng.normal(size=(2, 9))
    expected = stats.kendalltau(proxy, scores, method="exact")
    found = associated(proxy, scores, Arrangement.of(["a"] * 9))
    assert (found.kendall, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    singles = associated(proxy, scores, Arrangement.of(list("abcdefghi")))
    assert singles.p == pytest.approx(expected.pvalue)


def test_what_would_have_been_seen_counts_the_tests() -> None:
    """Five models of one family: no order of 32 proxies. Ten of each of two: a tau found in 80%, corrected."""
    assert np.isnan(Arrangement.of(["a"] * 5).detectable(1 - 0.05 / 32))
    families = ["a"] * 10 + ["b"] * 10
    arrangement = Arrangement.of(families)
    level = 1 - 0.05 / 32
    rho = np.sin(np.pi / 2 * arrangement.detectable(level))
    rng = np.random.default_rng(6)
    scores = rng.normal(size=(500, 20))
    proxies = rho * scores + np.sqrt(1 - rho**2) * rng.normal(size=(500, 20))
    seen = np.mean(
        [arrangement.p(arrangement.in_order(*pair)) < 1 - level for pair in zip(proxies, scores, strict=True)]
    )
    assert 0.72 <= seen <= 0.88


def harness(model: str, accuracy: float) -> str:
    """What lm-evaluation-harness writes."""
    return json.dumps(
        {
            "results": {"arc_easy": {"alias": "arc_easy", "acc,none": accuracy, "acc_stderr,none": 0.01}},
            "n-samples": {"arc_easy": {"original": 2376, "effective": 100}},
            "config": {"model": "hf", "model_args": f"pretrained={model},revision=step1000,dtype=float32"},
            "model_name": model,
        }
    )


def inspect_log(value: float) -> str:
    """The header of a log of inspect_ai."""
    scored = {"name": "match", "metrics": {"accuracy": {"value": value}, "stderr": {"value": 0.1}}}
    return json.dumps(
        {"status": "success", "eval": {"task": "org/gsm8k", "model": "hf/org/nano-6k"},
         "results": {"total_samples": 50, "completed_samples": 49, "scores": [scored]}}
    )  # fmt: skip


def test_scores_are_read_from_where_people_keep_them(tmp_path: Path) -> None:
    (tmp_path / "results_1.json").write_text(harness("EleutherAI/pythia-70m", 0.4))
    (tmp_path / "log.json").write_text(inspect_log(0.25))
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("header.json", inspect_log(0.25))
    hub = tmp_path / "my-model" / ".eval_results"
    hub.mkdir(parents=True)
    (hub / "hle.yaml").write_text("- dataset:\n    id: cais/hle\n    task_id: default\n  value: 20.9\n")
    (tmp_path / "table.csv").write_text("model,task,score,n\nold name,arc_easy,0.5,10\n")
    table = scores_in(tmp_path, {"old name": "nano-15k"}).set_index(["model", "task"])
    assert table.loc[("EleutherAI/pythia-70m", "arc_easy"), ["revision", "score", "n"]].tolist() == [
        "step1000",
        0.4,
        100,
    ]
    assert table.loc[("org/nano-6k", "gsm8k"), ["score", "n"]].tolist() == [0.25, 49]
    assert table.loc[("my-model", "hle"), "score"] == pytest.approx(0.209)
    assert table.loc[("nano-15k", "arc_easy"), "score"] == 0.5
    assert len(table) == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("model,task\na,b\n", "lacks the column score"),
        ("model,task,score\na,b,71.5\n", "line 2, column score: must be between 0 and 1; got '71.5'"),
        ("model,task,score\na,b,many\n", "line 2, column score: expected a number; got 'many'"),
        ("model,task,score\na,b,0.5\na,b,0.6\n", "a has two scores of b: 0.5 in .* and 0.6 in"),
        ("", "is empty"),
    ],
)
def test_bad_scores_are_refused_by_name(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(content)
    with pytest.raises(BadInput, match=message):
        scores_in(path)


def test_scores_are_imported_once_and_joined(program: Program, with_store: Path) -> None:
    path = with_store / "scores.csv"
    path.write_text(
        "model,task,score\n" + "".join(f"org/nano-{size},sums,0.{i}\n" for i, size in enumerate(("6k", "15k"), 1))
    )
    done = program("import", str(path), cwd=with_store)
    assert "2 scores of 2 models in 1 task imported" in done.stdout, done.stderr
    assert "no measurement here is of org/nano-15k, org/nano-6k; names=FILE.csv" in done.stderr
    assert "skipped, in the store already" in program("import", str(path), cwd=with_store).stdout
    done = program("import", "nothing.csv", cwd=with_store)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "nothing.csv: no such file or folder" in done.stderr
