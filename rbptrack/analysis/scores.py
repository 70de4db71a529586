"""Matches imported scores of tasks with the measurements of the same models."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.base.formatting import listed

_CACHED = re.compile(r"models--(?P<repo>[^/]+)(?:/snapshots/(?P<commit>[0-9a-f]{7,64}))?(?:/|$)")
_VARIANT = re.compile(r"\+[A-Za-z_]\w*=.*", re.DOTALL)  # the part of a name with arguments that change the weights
_ON_DISK = ("/", "./", "../", "~")


def plain_name(model: str) -> tuple[str, str]:
    """Return a model's name in its usual form, and the commit if the name holds one (otherwise an empty text).

    Slashes at the end are removed. A path in the cache of the Hugging Face Hub
    (`.../models--EleutherAI--pythia-70m/snapshots/abc1234`) becomes the model's id and its commit.
    """
    name = re.sub(r"/{2,}", "/", model.strip())
    if cached := _CACHED.search(name):
        return cached["repo"].replace("--", "/", 1), cached["commit"] or ""
    return name.rstrip("/") or name, ""


def hub_id(name: str) -> str:
    """Return a model's name if it can be an id on the Hugging Face Hub (`org/name`). Otherwise return an empty text."""
    name = plain_name(name)[0]
    return "" if name.startswith(_ON_DISK) or name.count("/") != 1 else name


def join_scores(rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements whose models have a score, once per task, with the new columns `task` and `score`.

    A measurement has three names: its model's name (`pythia-70m@step1000`), this name without the checkpoint, and the
    name of its repository (`pythia-70m` for EleutherAI/pythia-70m). A score belongs to a measurement if the part of the
    score's model after the last slash is one of these names. In addition:

    - If both name an organisation on the Hugging Face Hub, it must be the same.
    - A score with a revision belongs to the measurement with this revision, or with a commit that begins with it.
    - A score without a revision belongs to the only measurement of this full name. If there is none or there are
      several, it belongs to the one with the revision `main`.

    If a measurement has two different scores in a task, it is left out of this task, and `unused_scores` names it.

    Args:
        rows: measurements of one dataset, with the columns of `Runs.frame`.
        scores: the scores, with the columns of `Runs.scores()`.

    """
    pairs = _pairs(rows, scores)
    pairs = pairs[~_disagree(pairs)].drop_duplicates(["row", "task"])
    return rows.iloc[pairs["row"].astype(int)].assign(task=pairs["task"].to_numpy(), score=pairs["score"].to_numpy())


def unused_scores(rows: pd.DataFrame, scores: pd.DataFrame) -> Iterator[str]:
    """Yield sentences about scores that belong to no measurement, and about scores that contradict each other.

    Args:
        rows: measurements of any datasets, with the columns of `Runs.frame`.
        scores: the scores, with the columns of `Runs.scores()`.

    """
    parts = [_pairs(part, scores) for _, part in rows.groupby("dataset", sort=True)]
    pairs = pd.concat(parts, ignore_index=True) if parts else _pairs(rows, scores)
    unused = scores[~scores.index.isin(pairs["index"])]
    names = dict.fromkeys(_shown(score) for score in unused.to_dict("records"))
    if names:
        yield (
            f"No measurement belongs to the scores of {listed(list(names))}: measure the model, or map its name with "
            "`rbptrack import FILE names=FILE`."
        )
    for part in parts:
        for (_, task), group in part[_disagree(part)].groupby(["row", "task"], sort=True):
            different = [f"{_shown(score)} {score['score']:.4g}" for score in group.to_dict("records")]
            yield f"{task}: one measurement has different scores, {listed(different)}. None of them is used."


def last_checkpoints(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per model: the main revision or, if it is missing, the row with the most training tokens."""
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


def _pairs(rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Match scores with measurements.

    Returns:
        A row per matched score: the columns of the score, its `index` in `scores`, and `row`, the number of its
        measurement in `rows`.

    """
    rows_by_full_name: dict[str, list[int]] = {}
    rows_by_short_name: dict[str, list[int]] = {}
    organisations = []
    for i, (model, stored) in enumerate(zip(rows["model"].astype(str), rows["repo"].fillna(""), strict=True)):
        repo = plain_name(stored)[0]
        organisations.append(_organisation(repo))
        rows_by_full_name.setdefault(model.lower(), []).append(i)
        for name in {model.partition("@")[0], repo.rpartition("/")[2]} - {""}:
            rows_by_short_name.setdefault(name.lower(), []).append(i)
    revisions = rows["revision"].fillna("main").tolist()
    commits = rows["commit"].fillna("").str.removeprefix("sha256:").str.rpartition("@")[2].tolist()

    chosen = []
    for score in scores.reset_index().to_dict("records"):
        plain, commit = plain_name(_VARIANT.sub("", str(score["model"])))
        variant = _VARIANT.search(str(score["model"]))
        name = (plain.rpartition("/")[2] + (variant[0] if variant else "")).lower()
        organisation = _organisation(plain)
        revision = str(score["revision"] or "") or commit

        candidates = _with_organisation(organisation, rows_by_full_name.get(name, []), organisations)
        if revision or len(candidates) != 1:
            named_alike = [
                *candidates,
                *_with_organisation(organisation, rows_by_short_name.get(name, []), organisations),
            ]
            if revision:
                candidates = [i for i in named_alike if revisions[i] == revision or commits[i].startswith(revision)]
            else:
                candidates = [i for i in named_alike if revisions[i] == "main"]
        if candidates:
            chosen.append(score | {"row": candidates[0]})
    return pd.DataFrame(chosen, columns=["row", "index", *scores.columns])


def _organisation(name: str) -> str:
    """Return the organisation in a model's id on the Hugging Face Hub, in lower case. Empty for any other name."""
    return hub_id(name).rpartition("/")[0].lower()


def _with_organisation(organisation: str, candidates: list[int], organisations: list[str]) -> list[int]:
    """Return the candidates whose organisation is the given one or unknown."""
    return [i for i in candidates if not organisation or organisations[i] in ("", organisation)]


def _disagree(pairs: pd.DataFrame) -> pd.Series:
    """Whether the measurement of each pair has different scores in the pair's task, (pairs,)."""
    return pairs.groupby(["row", "task"])["score"].transform("nunique").gt(1)


def _shown(score: Mapping[Hashable, Any]) -> str:
    return f"{score['model']}@{score['revision']}" if score["revision"] else str(score["model"])
