"""Scores of tasks joined to the measurements of the models that have them."""

from __future__ import annotations

import pandas as pd
import pytest

from rbptrack.analysis.scores import join_scores, last_checkpoints, plain_name, unused_scores


def test_scores_are_joined_by_name_checkpoint_and_commit() -> None:
    """lm-evaluation-harness says EleutherAI/pythia-70m and step1000; the store says pythia-70m@step1000."""
    rows = pd.DataFrame(
        [
            ("pythia-70m", "main", "abcd1234", "EleutherAI/pythia-70m", 3e11),
            ("pythia-70m@step1000", "step1000", "00ff5678", "EleutherAI/pythia-70m", 2e9),
            ("other-70m@step2000", "step2000", "12340000", "EleutherAI/pythia-70m", 4e9),
            ("nano-6k", "main", "sha256:77aa", None, None),
            ("mine-1b@v2", "v2", "sha256:99bb", None, None),
        ],
        columns=["model", "revision", "commit", "repo", "training_tokens"],
    )

    def rows_of(model: str, revision: str = "") -> list[int]:
        one = pd.DataFrame([{"model": model, "revision": revision, "task": "sums", "score": 0.5, "n": 1}])
        return list(join_scores(rows, one).index)

    assert rows_of("EleutherAI/pythia-70m") == rows_of("EleutherAI/pythia-70m", "abcd12") == [0]
    assert rows_of("EleutherAI/pythia-70m", "step1000") == rows_of("pythia-70m@step1000") == [1]
    assert rows_of("EleutherAI/pythia-70m", "step2000") == rows_of("other-70m", "step2000") == [2]
    assert rows_of("EleutherAI/pythia-70m", "step9") == rows_of("pythia-160m") == []
    assert rows_of("nano-6k", "77aa") == rows_of("nano-6k") == [3]
    assert rows_of("mine-1b@v2") == [4]
    assert rows_of("mine-1b") == [], "a score without a revision is of main"
    assert last_checkpoints(rows).index.tolist() == [0, 3, 4]


def measured(*models: tuple[str, str | None]) -> pd.DataFrame:
    """Measurements of one dataset: a model's name and its repository."""
    rows = pd.DataFrame(models, columns=["model", "repo"])
    return rows.assign(dataset="wiki", revision="main", commit="abcd1234", training_tokens=1e9)


def scored(*scores: tuple[str, float]) -> pd.DataFrame:
    table = pd.DataFrame(scores, columns=["model", "score"])
    return table.assign(revision="", task="sums", n=1)


@pytest.mark.parametrize(
    "name",
    [
        "acme/alpha-70m/",
        "alpha-70m",
        "./ckpt/alpha-70m",
        "./ckpt/alpha-70m/",
        "/data/models/alpha-70m//",
        "/root/.cache/huggingface/hub/models--acme--alpha-70m",
        "/root/.cache/huggingface/hub/models--acme--alpha-70m/snapshots/abcd1234/",
    ],
)
def test_names_that_mean_the_same_join(name: str) -> None:
    rows = measured(("alpha-70m", "acme/alpha-70m"), ("beta-70m", None))
    assert join_scores(rows, scored((name, 0.5)))["model"].tolist() == ["alpha-70m"]
    assert list(unused_scores(rows, scored((name, 0.5)))) == []


@pytest.mark.parametrize(
    "name",
    [
        "other/alpha-70m",
        "acme/alpha-70m+peft=acme/alpha-70m-lora",
        "x+peft=acme/alpha-70m",
        "/hub/models--acme--alpha-70m/snapshots/99990000",
        "gamma",
    ],
)
def test_a_score_of_another_model_joins_none_and_is_named(name: str) -> None:
    rows = measured(("alpha-70m", "acme/alpha-70m"))
    assert len(join_scores(rows, scored((name, 0.5)))) == 0
    (note,) = unused_scores(rows, scored((name, 0.5)))
    assert name in note


def test_two_scores_of_one_measurement_are_both_left_out_and_named() -> None:
    """Two runs call their folder checkpoint-500: whose is the score?"""
    rows = measured(("checkpoint-500", None), ("beta-1b", None))
    scores = scored(("./a/checkpoint-500", 0.25), ("./b/checkpoint-500", 0.5), ("beta-1b", 0.75), ("x/beta-1b", 0.75))
    assert join_scores(rows, scores)["model"].tolist() == ["beta-1b"]
    (note,) = unused_scores(rows, scores)
    assert "./a/checkpoint-500" in note
    assert "./b/checkpoint-500" in note


def test_a_path_of_the_hubs_cache_is_the_model_and_its_commit() -> None:
    assert plain_name("/x/models--acme--alpha-70m/snapshots/abcdef12/") == ("acme/alpha-70m", "abcdef12")
    assert plain_name("models--gpt2") == ("gpt2", "")
    assert plain_name("/") == ("/", "")
