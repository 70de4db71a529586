"""Imported scores of tasks, and the measurements of the models that have them."""

from __future__ import annotations

import numpy as np
import pandas as pd


def join_scores(rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """The rows whose models have a score, once for each task, with the columns `task` and `score`.

    Args:
        rows: measurements of one dataset, as in `Runs.frame`. Each goes by its model's name (`pythia-70m@step1000`), by
            that name without the checkpoint, and by its repository's name (`pythia-70m` of EleutherAI/pythia-70m).
        scores: as of `Runs.scores()`. The part of a score's model after its last slash is looked up among these names.
            A score with a revision belongs to the row with this revision, or whose commit begins with it. A score
            without one belongs to the only row of its full name, or else to the row with the revision `main`.

    """
    rows_by_full_name: dict[str, list[int]] = {}
    rows_by_short_name: dict[str, list[int]] = {}
    for i, (model, repo) in enumerate(zip(rows["model"].astype(str), rows["repo"].fillna(""), strict=True)):
        rows_by_full_name.setdefault(model.lower(), []).append(i)
        for name in {model.partition("@")[0], repo.rpartition("/")[2]} - {""}:
            rows_by_short_name.setdefault(name.lower(), []).append(i)
    revisions = rows["revision"].fillna("main").tolist()
    commits = rows["commit"].fillna("").str.removeprefix("sha256:").str.rpartition("@")[2].tolist()

    chosen = []
    for score in scores.to_dict("records"):
        name = str(score["model"]).rpartition("/")[2].lower()
        revision = str(score["revision"] or "")
        candidates = rows_by_full_name.get(name, [])
        if revision or len(candidates) != 1:
            named_alike = [*candidates, *rows_by_short_name.get(name, [])]
            if revision:
                candidates = [i for i in named_alike if revisions[i] == revision or commits[i].startswith(revision)]
            else:
                candidates = [i for i in named_alike if revisions[i] == "main"]
        if candidates:
            chosen.append((candidates[0], score["task"], score["score"]))
    pairs = pd.DataFrame(chosen, columns=["row", "task", "score"]).drop_duplicates(["row", "task"])
    return rows.iloc[pairs["row"].astype(int)].assign(task=pairs["task"].to_numpy(), score=pairs["score"].to_numpy())


def last_checkpoints(rows: pd.DataFrame) -> pd.DataFrame:
    """One row for each model: that of the main revision, or else of the most training tokens."""
    models = []
    for model, repo in zip(rows["model"].astype(str), rows["repo"].fillna(""), strict=True):
        models.append(repo or model.partition("@")[0])
    checkpoints = pd.DataFrame(
        {
            "model": models,
            "is_main": rows["revision"].fillna("main").eq("main").to_numpy(),
            "tokens": rows["training_tokens"].astype("float64").fillna(-1.0).to_numpy(),
        }
    )
    last = checkpoints.sort_values(["is_main", "tokens"]).drop_duplicates("model", keep="last")
    return rows.iloc[np.sort(last.index)]
