"""Tests of joining imported scores of tasks to the measurements of the same models."""

from __future__ import annotations

import pandas as pd
import pytest

from plugins.proxies.scores import join_scores, last_checkpoints, unused_scores

CHECKPOINTS = pd.DataFrame(
    [
        ("pythia-70m", None, "abcd1234", "EleutherAI/pythia-70m", 3e11),
        ("pythia-70m@step1000", "step1000", "00ff5678", "EleutherAI/pythia-70m", 2e9),
        ("other-70m@step2000", "step2000", "12340000", "EleutherAI/pythia-70m", 4e9),
        ("nano-6k", None, "sha256:77aa", None, None),
        ("mine-1b@v2", "v2", "sha256:99bb", None, None),
    ],
    columns=["model", "checkpoint", "commit", "repo", "training_tokens"],
)


@pytest.mark.parametrize(
    ("model", "revision", "joined"),
    [
        ("EleutherAI/pythia-70m", "", [0]),
        ("EleutherAI/pythia-70m", "abcd12", [0]),
        ("EleutherAI/pythia-70m", "step1000", [1]),
        ("pythia-70m@step1000", "", [1]),
        ("EleutherAI/pythia-70m", "step2000", [2]),
        ("other-70m", "step2000", [2]),
        ("EleutherAI/pythia-70m", "step9", []),
        ("pythia-160m", "", []),
        ("nano-6k", "77aa", [3]),
        ("nano-6k", "", [3]),
        ("mine-1b@v2", "", [4]),
        ("mine-1b", "", []),  # a score without a revision belongs to the revision main
    ],
)
def test_join_scores_matches_name_revision_and_commit(model: str, revision: str, joined: list[int]) -> None:
    """Joins to rows of `CHECKPOINTS`. Evaluation programs may give a model and a revision, or `model@revision`."""
    score = pd.DataFrame([{"model": model, "revision": revision, "task": "sums", "score": 0.5, "n": 1}])
    assert list(join_scores(CHECKPOINTS, score).index) == joined


def test_last_checkpoints_keeps_checkpoint_with_most_training_tokens() -> None:
    assert last_checkpoints(CHECKPOINTS).index.tolist() == [0, 3, 4]


def test_last_checkpoints_prefers_the_revision_main_to_more_training_tokens() -> None:
    rows = CHECKPOINTS.iloc[:2].assign(training_tokens=[None, 2e9])
    assert last_checkpoints(rows).index.tolist() == [0]


def measurements(*models: tuple[str, str | None]) -> pd.DataFrame:
    """Return measurements of one dataset. models: the name of each model and its repository."""
    rows = pd.DataFrame(models, columns=["model", "repo"])
    return rows.assign(dataset="wiki", checkpoint=None, commit="abcd1234", training_tokens=1e9)


def scores_of(*scores: tuple[str, float]) -> pd.DataFrame:
    """Return scores in one task. scores: the name of each model and its score."""
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
def test_join_scores_accepts_paths_and_hub_ids_of_model(name: str) -> None:
    rows = measurements(("alpha-70m", "acme/alpha-70m"), ("beta-70m", None))
    scores = scores_of((name, 0.5))
    assert join_scores(rows, scores)["model"].tolist() == ["alpha-70m"]
    assert list(unused_scores(rows, scores)) == []


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
def test_join_scores_leaves_out_score_of_another_model_and_names_it(name: str) -> None:
    rows = measurements(("alpha-70m", "acme/alpha-70m"))
    scores = scores_of((name, 0.5))
    assert len(join_scores(rows, scores)) == 0
    (note,) = unused_scores(rows, scores)
    assert name in note


def test_join_scores_leaves_out_measurement_with_two_scores_and_names_both() -> None:
    rows = measurements(("checkpoint-500", None), ("beta-1b", None))
    scores = scores_of(
        ("./a/checkpoint-500", 0.25), ("./b/checkpoint-500", 0.5), ("beta-1b", 0.75), ("x/beta-1b", 0.75)
    )
    assert join_scores(rows, scores)["model"].tolist() == ["beta-1b"]
    (note,) = unused_scores(rows, scores)
    assert "./a/checkpoint-500" in note
    assert "./b/checkpoint-500" in note


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("acme__alpha-70m", "alpha-70m"),
        ("__data__models__alpha-70m", "alpha-70m"),
        ("stabilityai/stablelm-2-1_6b", "stablelm-2-1.6b"),
        ("alpha-70m-8-bit", "alpha-8bit-70m"),
        ("Alpha-8bit-70m", "alpha-8-bit-70m"),
        ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen2.5-Instruct-0.5B"),
    ],
)
def test_join_scores_joins_other_spellings_of_a_name(name: str, measured: str) -> None:
    rows = measurements((measured, None), ("beta-70m", None))
    assert join_scores(rows, scores_of((name, 0.5)))["model"].tolist() == [measured]


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("x-2-7b", [("x-2.7b", None)]),  # version 2 with 7b is not 2.7b
        ("alpha-8-bit", [("alpha-4-bit", None)]),
        ("other__alpha-70m", [("alpha-70m", "acme/alpha-70m")]),
        ("a-1_6b-x", [("a-x-1.6b", None), ("a-1.6b-x", None)]),  # which of the two is unknown
    ],
)
def test_join_scores_joins_no_similar_name(name: str, measured: list[tuple[str, str | None]]) -> None:
    assert len(join_scores(measurements(*measured), scores_of((name, 0.5)))) == 0


def test_join_scores_prefers_the_exact_spelling() -> None:
    rows = measurements(("a-1_6b", None), ("a-1.6b", None))
    assert join_scores(rows, scores_of(("a-1_6b", 0.5)))["model"].tolist() == ["a-1_6b"]
