"""Scores of tasks joined to the measurements of the models that have them."""

from __future__ import annotations

import pandas as pd

from rbptrack.analysis.scores import join_scores, last_checkpoints


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
