"""The top of a report in words: the measurements, models, texts, and settings."""

from __future__ import annotations

import json

import pandas as pd

from rbptrack.analysis import Runs
from rbptrack.base.words import counted, listed, short_number
from rbptrack.config.paths import EMBEDDED

_FEW = 4  # names that are listed; more are counted


def title_in_words(runs: Runs) -> str:
    """Return a title such as `How well 7 nano models rank the next token on pydocs and stdlib`."""
    models, families, datasets = (sorted(set(runs.frame[c].dropna())) for c in ("model", "family", "dataset"))
    who = f"{len(models)} {families[0]} models" if len(models) > 1 else models[0]
    if len(families) > 1:
        who = f"{len(models)} models of {len(families)} families"
    where = listed(datasets) if len(datasets) <= _FEW else f"{len(datasets)} datasets"
    verb = "rank" if len(models) > 1 else "ranks"
    return f"How well {who} {verb} the next token on {where}"


def notes_on_embedded(runs: Runs) -> str:
    """Return the notes in the embedded models' files about their families, if those were measured."""
    notes = json.loads((EMBEDDED / "families.json").read_text(encoding="utf-8"))
    pairs = zip(runs.frame["family"], runs.frame["model"], strict=True)
    measured = dict.fromkeys(family for family, model in pairs if str(model).startswith(f"{family}-"))
    return " ".join(notes[family] for family in measured if family in notes)


def measured_in_words(runs: Runs) -> str:
    """Return families and their sizes, datasets and their tokens; then precision and sequences."""
    frame = runs.frame
    return f"{_models(frame)} measured on {_texts(frame)}. {_how(frame)}"


def _models(frame: pd.DataFrame) -> str:
    groups = [
        f"{family} ({counted(rows['model'].nunique(), 'model')}, {_span(rows)})"
        for family, rows in frame.groupby("family", sort=True)
    ]
    if len(groups) > 2 * _FEW:
        return f"{counted(frame['model'].nunique(), 'model')} of {len(groups)} families ({_span(frame)}) were"
    return f"The family {groups[0]} was" if len(groups) == 1 else f"The families {listed(groups)} were"


def _span(frame: pd.DataFrame) -> str:
    s = frame["non_embedding_params"].dropna()
    if not len(s):
        return "S unknown"
    return f"S = {short_number(s.min())}" + (f" to {short_number(s.max())}" if s.max() > s.min() else "")


def _texts(frame: pd.DataFrame) -> str:
    parts = []
    for dataset, rows in frame.groupby("dataset", sort=True):
        tokens = rows["num_tokens"].dropna()
        documents = rows["num_documents"].dropna()
        largest = f"{tokens.max():,}" if len(tokens) else ""  # imports may lack it
        text = f"up to {largest}" if tokens.nunique() > 1 else largest
        documents_said = f" of {counted(int(documents.max()), 'document')}" if len(documents) else ""
        parts.append(f"{dataset} ({text} scored tokens{documents_said})" if text else str(dataset))
    if len(parts) <= _FEW:
        return listed(parts)
    tokens = frame["num_tokens"].dropna()
    at_most = f", up to {short_number(tokens.max())} scored tokens each" if len(tokens) else ""
    return f"{listed(sorted(set(frame['dataset'])))}{at_most}"


def _how(frame: pd.DataFrame) -> str:
    """Return precision, vocabulary and sequences; what differs between measurements is listed."""

    def values(column: str) -> list[str]:
        settings = sorted(set(frame[column].dropna()))
        return [str(value) if isinstance(value, str) else f"{value:,}" for value in settings]

    parts = []
    if precision := values("dtype"):
        parts.append(f"precision {listed(precision)}")
    if vocabularies := values("vocab_size"):
        parts.append(f"|V| = {listed(vocabularies[:_FEW])}")
    if rules := values("sequence"):
        lengths = values("seq_len")
        parts.append(f"sequence rule {listed(rules)}" + (f" at {listed(lengths[:_FEW])} tokens" if lengths else ""))
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
