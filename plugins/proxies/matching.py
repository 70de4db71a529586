"""Which measurement a score is of: by the model's name and its checkpoint."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from rbptrack.analysis.run_names import repository, without_checkpoint


def matched(rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Place (in rows), task and score of each model that has one.

    A measurement goes by its name (`pythia-70m@step1000`), by its name without the checkpoint, and by its repository's
    (`pythia-70m` of EleutherAI/pythia-70m, whatever the config is called). A score's model is one of these, or has one
    after a slash. Its revision is the measurement's, or the beginning of its commit; without one it is `main`, or the
    only measurement of that very name.

    Args:
        rows: of `Runs.frame`.
        scores: with the columns of `rbptrack.analysis.runs.SCORES`.

    """
    whole = dict[str, list[int]]()
    bare = dict[str, list[int]]()
    for place, (model, commit) in enumerate(zip(rows["model"], rows["commit"].fillna(""), strict=True)):
        whole.setdefault(str(model).lower(), []).append(place)
        for name in {without_checkpoint(str(model)), repository(str(commit)) or str(model)}:
            bare.setdefault(name.lower(), []).append(place)
    revisions = rows["revision"].fillna("").tolist()
    commits = [str(commit).removeprefix("sha256:").rpartition("@")[2] for commit in rows["commit"].fillna("")]
    pairs = []
    for score in scores.to_dict("records"):
        name = str(score["model"]).rpartition("/")[2].lower()
        wanted = str(score["revision"] or "")
        places = whole.get(name, [])
        if wanted or len(places) != 1:
            places = [
                i
                for i in dict.fromkeys([*places, *bare.get(name, [])])
                if revisions[i] == (wanted or "main") or (wanted and commits[i].startswith(wanted))
            ]
        pairs += [{"place": place, "task": score["task"], "score": score["score"]} for place in places[:1]]
    return pd.DataFrame(pairs, columns=["place", "task", "score"]).drop_duplicates(["place", "task"])


def last_checkpoints(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return whether each row is its model's last checkpoint: the main revision, or that of most training tokens,
    (rows,).
    """
    named = zip(rows["model"].astype(str), rows["commit"].fillna("").astype(str), strict=True)
    models = [repository(commit) or without_checkpoint(model) for model, commit in named]
    order = pd.DataFrame({
        "model": models, "main": rows["revision"].eq("main").fillna(False).to_numpy(),
        "tokens": rows["training_tokens"].astype("float64").fillna(-1.0).to_numpy(), "place": range(len(rows)),
    }).sort_values(["main", "tokens"])  # fmt: skip
    return np.isin(np.arange(len(rows)), order.groupby("model")["place"].last())
