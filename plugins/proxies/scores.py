"""Find the measurement that each imported score of a task belongs to."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analysis import canonical_name, hub_id, listed, plain_name

_VARIANT = re.compile(r"\+[A-Za-z_]\w*=.*", re.DOTALL)  # the part of a name with arguments that change the weights


def join_scores(rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements whose models have a score, once for each task, with the new columns `task` and `score`.

    A measurement has three names: its model's name (`pythia-70m@step1000`), this name without the checkpoint, and the
    name of its repository (`pythia-70m` for EleutherAI/pythia-70m). A score belongs to a measurement if the part of the
    score's model after the last slash is one of these names. In addition:

    - `org__name` is read as `org/name`. Names that differ only in spelling are equal: `1_6b` and `1.6b`, `8-bit` and
      `8bit`, and a size at another place, such as `Qwen2.5-0.5B-Instruct` and `Qwen2.5-Instruct-0.5B`.
    - If the score and the measurement name organisations on the Hugging Face Hub, these must be equal.
    - A score with a revision belongs to the measurement with this revision, or with a commit that begins with the
      revision.
    - A score without a revision belongs to the only measurement whose model has exactly this name. If no measurement or
      several have it, the score belongs to the measurement with the revision `main`.

    If a measurement has different scores in a task, it is left out of this task, and `unused_scores` names it.

    Args:
        rows: measurements of one dataset, with the columns of `Runs.frame`.
        scores: the scores, with the columns of `Runs.scores()`.

    """
    pairs = _match_scores(rows, scores)
    pairs = pairs[~_have_other_scores(pairs)].drop_duplicates(["row", "task"])
    return rows.iloc[pairs["row"].astype(int)].assign(task=pairs["task"].to_numpy(), score=pairs["score"].to_numpy())


def unused_scores(rows: pd.DataFrame, scores: pd.DataFrame) -> Iterator[str]:
    """Yield sentences about scores that belong to no measurement, and about scores that contradict each other.

    Args:
        rows: measurements of any datasets, with the columns of `Runs.frame`.
        scores: the scores, with the columns of `Runs.scores()`.

    """
    parts = [_match_scores(part, scores) for _, part in rows.groupby("dataset", sort=True)]
    pairs = pd.concat(parts, ignore_index=True) if parts else _match_scores(rows, scores)
    unused = scores[~scores.index.isin(pairs["index"])]
    names = dict.fromkeys(_model_and_revision(score) for score in unused.to_dict("records"))
    if names:
        yield (
            f"No measurement belongs to the scores of {listed(list(names))}. Measure the model, or map its name with "
            "`rbptrack import FILE names=FILE`."
        )
    for part in parts:
        for (_, task), group in part[_have_other_scores(part)].groupby(["row", "task"], sort=True):
            different = [f"{_model_and_revision(score)} {score['score']:.4g}" for score in group.to_dict("records")]
            yield f"{task}: one measurement has different scores, {listed(different)}. None of them is used."


def last_checkpoints(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row of `Runs.frame` for each model.

    It is the row of the main revision. If that is missing, it is the row with the most training tokens.
    """
    models = []
    for model, repo in zip(rows["model"].astype(str), rows["repo"].fillna(""), strict=True):
        models.append(repo or model.partition("@")[0])
    checkpoints = pd.DataFrame(
        {
            "model": models,
            "is_main": rows["checkpoint"].isna().to_numpy(),
            "tokens": rows["training_tokens"].astype("float64").fillna(-1.0).to_numpy(),
        }
    )
    last = checkpoints.sort_values(["is_main", "tokens"]).drop_duplicates("model", keep="last")
    return rows.iloc[np.sort(last.index)]


def _match_scores(rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Find the measurement that each score belongs to.

    Returns:
        One row for each score that belongs to a measurement: the columns of the score, its `index` in `scores`, and
        `row`, the number of its measurement in `rows`.

    """
    names = _MeasurementNames(rows)
    matched = []
    for score in scores.reset_index().to_dict("records"):
        row = names.find(str(score["model"]), str(score["revision"] or ""))
        if row is not None:
            matched.append(score | {"row": row})
    return pd.DataFrame(matched, columns=["row", "index", *scores.columns])


class _MeasurementNames:
    """The names, organisations, revisions and commits of measurements.

    Args:
        rows: the measurements, with the columns of `Runs.frame`.

    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self._rows_by_full_name: dict[str, list[int]] = {}
        self._rows_by_short_name: dict[str, list[int]] = {}
        self._spellings: dict[str, set[str]] = {}  # the names of measurements, by their canonical name
        self._organisations: list[str] = []
        for i, (model, stored_repo) in enumerate(zip(rows["model"].astype(str), rows["repo"].fillna(""), strict=True)):
            repo = plain_name(stored_repo)[0]
            self._organisations.append(_organisation(repo))
            self._rows_by_full_name.setdefault(model.lower(), []).append(i)
            for name in {model.partition("@")[0], repo.rpartition("/")[2]} - {""}:
                self._rows_by_short_name.setdefault(name.lower(), []).append(i)
        for name in self._rows_by_full_name | self._rows_by_short_name:
            self._spellings.setdefault(canonical_name(name), set()).add(name)
        self._revisions = rows["checkpoint"].fillna("main").tolist()
        self._commits = rows["commit"].fillna("").str.removeprefix("sha256:").str.rpartition("@")[2].tolist()

    def find(self, model: str, revision: str) -> int | None:
        """Return the number of the row that a score belongs to, by the rules of `join_scores`; None if no row matches.

        Args:
            model: the model of the score.
            revision: the revision of the score, or empty.

        """
        plain, commit = plain_name(_VARIANT.sub("", model))
        variant = _VARIANT.search(model)
        suffix = variant[0] if variant else ""
        name = plain.rpartition("/")[2]
        readings = [(_organisation(plain), name)]
        if "__" in name:  # lm-evaluation-harness writes org__name for org/name
            *folders, last = name.split("__")
            readings.append((folders[0].lower() if len(folders) == 1 else "", last))
        for organisation, reading in readings:
            exact = (reading + suffix).lower()
            spellings = self._spellings.get(canonical_name(exact), set()) - {exact}
            for spelling in [exact, *(spellings if len(spellings) == 1 else ())]:
                row = self._find_name(organisation, spelling, revision or commit)
                if row is not None:
                    return row
        return None

    def _find_name(self, organisation: str, name: str, revision: str) -> int | None:
        """Return the number of the row with this name, organisation and revision; None if no row matches."""
        full_matches = self._select_organisation(organisation, self._rows_by_full_name.get(name, []))
        if not revision and len(full_matches) == 1:
            return full_matches[0]
        short_matches = self._select_organisation(organisation, self._rows_by_short_name.get(name, []))
        for row in [*full_matches, *short_matches]:
            if self._revisions[row] == (revision or "main"):
                return row
            if revision and self._commits[row].startswith(revision):
                return row
        return None

    def _select_organisation(self, organisation: str, rows: Sequence[int]) -> list[int]:
        """Return the rows whose organisation is the given one or unknown. An empty organisation keeps all rows."""
        return [i for i in rows if not organisation or self._organisations[i] in ("", organisation)]


def _organisation(name: str) -> str:
    """Return the organisation in a model's ID on the Hugging Face Hub, in lower case; empty for any other name."""
    return hub_id(name).rpartition("/")[0].lower()


def _have_other_scores(pairs: pd.DataFrame) -> pd.Series:
    """Return whether the measurement of each pair also has another score in the pair's task, (pairs,)."""
    return pairs.groupby(["row", "task"])["score"].transform("nunique").gt(1)


def _model_and_revision(score: Mapping[Hashable, Any]) -> str:
    return f"{score['model']}@{score['revision']}" if score["revision"] else str(score["model"])
