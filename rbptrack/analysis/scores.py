"""Imported scores of tasks, and the measurements of the models that have them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.base.words import listed

_CACHED = re.compile(r"models--(?P<repo>[^/]+)(?:/snapshots/(?P<commit>[0-9a-f]{7,64}))?(?:/|$)")
_VARIANT = re.compile(r"\+[A-Za-z_]\w*=.*", re.DOTALL)  # what a name adds if arguments change the weights: +peft=...
_ON_DISK = ("/", "./", "../", "~")


def plain_name(model: str) -> tuple[str, str]:
    """Return a model's name as its author would write it, and the commit if the name holds one.

    A trailing slash is dropped. A path in the cache of the Hugging Face Hub
    (`.../models--EleutherAI--pythia-70m/snapshots/abc1234`) becomes the model's id and its commit.
    """
    name = re.sub(r"/{2,}", "/", model.strip())
    if cached := _CACHED.search(name):
        return cached["repo"].replace("--", "/", 1), cached["commit"] or ""
    return name.rstrip("/") or name, ""


def hub_id(name: str) -> str:
    """Return a model's name if it may be an id on the Hugging Face Hub (`org/name`); empty for paths and bare names."""
    name = plain_name(name)[0]
    return "" if name.startswith(_ON_DISK) or name.count("/") != 1 else name


def join_scores(rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose models have a score, once for each task, with the columns `task` and `score`.

    A row whose model has two different scores in one task is left out of that task. `unused_scores` names it.

    Args:
        rows: measurements of one dataset, as in `Runs.frame`. Each goes by its model's name (`pythia-70m@step1000`), by
            that name without the checkpoint, and by its repository's name (`pythia-70m` of EleutherAI/pythia-70m).
        scores: as of `Runs.scores()`. The part of a score's model after its last slash is looked up among these names.
            If both name an organisation on the Hugging Face Hub, it must be the same. A score with a revision belongs
            to the row with this revision, or whose commit begins with it. A score without one belongs to the only row
            of its full name, or else to the row with the revision `main`.

    """
    pairs = _pairs(rows, scores)
    pairs = pairs[~_disagree(pairs)].drop_duplicates(["row", "task"])
    return rows.iloc[pairs["row"].astype(int)].assign(task=pairs["task"].to_numpy(), score=pairs["score"].to_numpy())


def unused_scores(rows: pd.DataFrame, scores: pd.DataFrame) -> Iterator[str]:
    """Yield sentences about scores that no measurement gets, or that contradict each other.

    Args:
        rows: measurements of any datasets, as in `Runs.frame`.
        scores: as of `Runs.scores()`.

    """
    parts = [_pairs(part, scores) for _, part in rows.groupby("dataset", sort=True)]
    pairs = pd.concat(parts, ignore_index=True) if parts else _pairs(rows, scores)
    unused = scores[~scores.index.isin(pairs["index"])]
    names = dict.fromkeys(_shown(score) for score in unused.to_dict("records"))
    if names:
        verb = "joins" if len(names) == 1 else "join"
        yield (
            f"Scores of {listed(list(names))} {verb} no measurement: measure the model, or map its name with "
            "`rbptrack import FILE names=FILE`."
        )
    for part in parts:
        for (_, task), group in part[_disagree(part)].groupby(["row", "task"], sort=True):
            given = [f"{_shown(score)} {score['score']:.4g}" for score in group.to_dict("records")]
            yield f"{task}: {listed(given)} are of one measurement. Neither is used."


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


def _pairs(rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each score that a row gets: the row's number, and the score with its `index` in the table."""
    rows_by_full_name: dict[str, list[int]] = {}
    rows_by_short_name: dict[str, list[int]] = {}
    organisations = []
    for i, (model, given) in enumerate(zip(rows["model"].astype(str), rows["repo"].fillna(""), strict=True)):
        repo = plain_name(given)[0]
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

        candidates = _of(organisation, rows_by_full_name.get(name, []), organisations)
        if revision or len(candidates) != 1:
            named_alike = [*candidates, *_of(organisation, rows_by_short_name.get(name, []), organisations)]
            if revision:
                candidates = [i for i in named_alike if revisions[i] == revision or commits[i].startswith(revision)]
            else:
                candidates = [i for i in named_alike if revisions[i] == "main"]
        if candidates:
            chosen.append(score | {"row": candidates[0]})
    return pd.DataFrame(chosen, columns=["row", "index", *scores.columns])


def _organisation(name: str) -> str:
    """The organisation of a model's id on the Hugging Face Hub, in lower case; empty for a path or a bare name."""
    return hub_id(name).rpartition("/")[0].lower()


def _of(organisation: str, candidates: list[int], organisations: list[str]) -> list[int]:
    """The candidates that are not known to be of another organisation."""
    return [i for i in candidates if not organisation or organisations[i] in ("", organisation)]


def _disagree(pairs: pd.DataFrame) -> pd.Series:
    """Whether the row of a pair has another score in the same task."""
    return pairs.groupby(["row", "task"])["score"].transform("nunique").gt(1)


def _shown(score: Mapping[Hashable, Any]) -> str:
    return f"{score['model']}@{score['revision']}" if score["revision"] else str(score["model"])
