"""Measurements by the names that people give them: `nano-6k/stdlib`, a model alone, the beginning of a run's id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from rbptrack.base.errors import BadInput, nearest, shortened


def find(frame: pd.DataFrame, word: str) -> pd.Series:
    """Return the row of the measurement that a word names; see `Runs.__getitem__`."""
    rows = named(frame, word)
    if len(rows) == 1:
        return rows.iloc[0]
    candidates = [
        f"{row['model']}/{row['dataset']} ({', '.join(filter(None, [row.get('swept'), row['run_id'][:8]]))})"
        for row in rows.to_dict("records")
    ]
    if candidates:
        raise BadInput(f"'{word}' is ambiguous: {shortened(candidates)}. Pick one, or pass a run ID")
    names = [f"{model}/{dataset}" for model, dataset in zip(frame["model"], frame["dataset"], strict=True)]
    near = nearest(_normal(word), names)
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    raise BadInput(f"no measurement is called {word}.{meant} Available: {shortened(list(dict.fromkeys(names)))}")


def named(frame: pd.DataFrame, word: str) -> pd.DataFrame:
    """Return the rows of all measurements that a word may mean."""
    wanted = _normal(word)
    rows = frame[frame["run_id"].str.startswith(wanted)]
    return rows if len(rows) else frame[[wanted in _names(row) for row in frame.to_dict("records")]]


def _normal(word: str) -> str:
    return "/".join(part.strip() for part in word.split("/")).lower()


def _names(row: Mapping[Any, Any]) -> set[str]:
    """Return every name of a measurement: `nano-6k/stdlib`, `nano/6k/stdlib`, and its model alone."""
    model = str(row["model"])
    slashed = f"{row['family']}/{row['size']}"
    dataset = str(row["dataset"])
    return {name.lower() for name in (f"{model}/{dataset}", f"{slashed}/{dataset}", model, slashed)}


def without_checkpoint(model: str) -> str:
    """Return `pythia-70m` of `pythia-70m@step1000`."""
    return model.partition("@")[0]


def repository(commit: str) -> str:
    """Return the name of a repository in `org/name@commit`; empty for a local folder's hash."""
    return commit.partition("@")[0].rpartition("/")[2] if "@" in commit else ""


def unmatched(models: Iterable[str], frame: pd.DataFrame) -> list[str]:
    """Return the names, as scores give models, that are of no measurement."""
    names = set[str]()
    for model, commit in zip(frame["model"].astype(str), frame["commit"].fillna("").astype(str), strict=True):
        names |= {model.lower(), without_checkpoint(model).lower(), repository(commit).lower()}
    return sorted({model for model in models if model.rpartition("/")[2].lower() not in names})
