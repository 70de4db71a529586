"""Compare two measurements of the same tokens, for `rbptrack compare A B` and the analyzer agreement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analysis.report import Report, Term
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.words import spans
from rbptrack.facts import BY_NAME, SAME_TOKENS, TELL_APART
from rbptrack.ranks import HEADLINE_KS
from rbptrack.stats.changes import ChangedToken, Changes, OtherTokens, compare

CHANGES_GLOSSARY: dict[str, str | Term] = {
    "change": Term(
        "the metric in B minus that in A over the same tokens; CE in nats, RBP_k as a share", "B - A", "+.4f"
    ),
    "same_top": Term("share of the tokens at which both rank the same token first", "same top token", ".2%"),
    "flips": Term(
        "tokens that B ranks first and A does not, less those lost, as a share; p by McNemar's test over documents",
        "gained - lost",
        "+.2%",
    ),
    "A": Term("of the first measurement", form=".4f"),
    "B": Term("of the second", form=".4f"),
    "pair": "the first measurement and the second",
    "lost": Term("share of the tokens that A ranks first and B does not", form=".2%"),
    "gained": Term("share of the tokens that B ranks first and A does not", form=".2%"),
    "moved": Term("share of the tokens whose ranks differ", form=".2%"),
    "deciding": Term("how many documents decide the difference; below 4 it is not tested", form=".0f"),
    "document": "number of the token's document in the selection",
    "position": "the token's index in its document",
    "token": "the token",
    "rank_A": "the token's rank in A",
    "rank_B": "the token's rank in B",
    "instead": "what B ranks first there",
    "text": "the scored tokens before it",
    "nats": Term("-ln p in B less that in A", form="+.2f"),
    "group": "the documents of one group, such as a book",
    "tokens": Term("scored tokens", form=",.0f"),
    "rise": Term("CE in B minus that in A, nats per token of the document or group", form="+.4f"),
}
"""Of the questions and columns that `add_changes` adds, and of `worst_tokens` and `worst_documents`."""


def same_tokens(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the rows of `Runs.frame` of every set of tokens that several measurements scored."""
    for _, rows in frame.groupby(list(SAME_TOKENS), dropna=False, observed=True):
        if len(rows) > 1:
            yield rows


_OF_MODEL = ("family", "size", "model", "repo", "seed", "revision")


def pair_name(first: pd.Series[Any], second: pd.Series[Any]) -> str:
    """Name two measurements by their models and by what else differs between them: `nano-6k@float32 / nano-6k@float16`.

    Hashes stand in the name only if nothing else differs.
    """
    differing = []
    for name in TELL_APART:
        one = first[name]
        other = second[name]
        if pd.isna(one) != pd.isna(other) or (pd.notna(one) and one != other):
            differing.append(BY_NAME[name])
    of_models = first["model"] != second["model"]
    told = [fact for fact in differing if not fact.is_hash and not (of_models and fact.name in _OF_MODEL)]
    if not told and not of_models:
        told = [fact for fact in differing if fact.is_hash]
    names = []
    for row in (first, second):
        marks = ["" if pd.isna(row[fact.name]) else f"@{fact.text(row[fact.name])}" for fact in told]
        names.append(f"{row['model']}{''.join(marks)}")
    return " / ".join(names)


def compare_runs(
    runs: Runs, first: pd.Series[Any], second: pd.Series[Any], *, ks: Sequence[int] = HEADLINE_KS, worst: int = 10
) -> Changes:
    """Compare two measurements of the same tokens, token by token.

    Args:
        runs: holds both.
        first: the row of the baseline.
        second: the row of the other.
        ks: the k of RBP_k.
        worst: how many of the tokens whose probability fell most are kept.

    Raises:
        BadInput: both rows are one measurement, or the measurements did not score the same tokens.
        Unreadable: a rank table is missing or damaged.

    """
    names = f"{first['name']} and {second['name']}"
    if first["run_id"] == second["run_id"]:
        raise BadInput(f"{first['name']} is one measurement: name two")
    for column in SAME_TOKENS:
        one = first[column]
        other = second[column]
        if pd.notna(one) and pd.notna(other) and one != other:
            raise OtherTokens(f"{names} did not score the same tokens ({column}: {one} and {other})")
    try:
        return compare(runs.rank_pieces(first), runs.rank_pieces(second), ks=ks, groups=runs.groups(first), worst=worst)
    except OtherTokens as error:
        raise OtherTokens(f"{names}: {error}") from error


def add_changes(report: Report, changes: Changes, *, family: str, dataset: str, **case: Any) -> None:
    """Add the questions `change` (of each metric), `same_top` and `flips` of a pair to a report.

    Args:
        report: its glossary holds `CHANGES_GLOSSARY`.
        changes: of the pair.
        family: of the pair.
        dataset: the texts.
        **case: what tells the pair from others, such as `pair`.

    """
    keys: dict[str, Any] = {"family": family, "dataset": dataset, **case}
    for change in changes.changes:
        beside = {"A": change.a, "B": change.b, "deciding": change.difference.deciding}
        report.add("change", change.difference, **keys, metric=change.metric, null=0.0, beside=beside)
    if isfinite(changes.same_top.value):  # not where a table lacks what models ranked first
        report.add("same_top", changes.same_top, **keys, show=end_of_share, beside={"moved": changes.moved})
    beside = {"lost": changes.lost, "gained": changes.gained}
    report.add("flips", changes.flips, **keys, null=0.0, beside=beside)


def worst_tokens(runs: Runs, second: pd.Series[Any], worst: Sequence[ChangedToken]) -> pd.DataFrame:
    """A table of the tokens whose probability fell most, with their texts as far as the second run keeps them.

    A token that is the end of a character is shown as the whole character, with the tokens before it.
    """
    texts: Mapping[int, str] = {}
    with suppress(RbptrackError):
        texts = runs.store.token_texts(str(second["run_id"]))

    def text_of(number: int) -> str:
        return "" if number == -1 else texts.get(number, f"<id {number}>")

    rows = []
    for token in worst:
        before = [text_of(number) for number in token.before]
        rows.append(
            {
                "document": token.document,
                "position": token.position,
                "text": "".join(spans(before)[0]),
                "token": _after(before, text_of(token.token)),
                "rank_A": token.rank_a,
                "rank_B": token.rank_b,
                "instead": _after(before, text_of(token.instead)),
                "nats": token.nats,
            }
        )
    return pd.DataFrame(rows)


def _after(before: Sequence[str], text: str) -> str:
    """The text of a token; of a part of a character the whole character, as far as the texts before it have it."""
    return spans([*before, text])[0][-1]


def worst_documents(runs: Runs, first: pd.Series[Any], changes: Changes, most: int) -> pd.DataFrame:
    """A table of the documents whose CE rises most, or of the groups if they are the unit; empty if none rises."""
    rises = changes.rises
    worst = [i for i in np.argsort(-rises, kind="stable")[:most] if rises[i] > 0]
    name = "document"
    units = changes.a.document
    if changes.a.grouped:
        name = "group"
        units = np.unique(np.asarray(runs.groups(first)))
    tokens = changes.a.tokens
    columns = {name: units[worst], "tokens": tokens[worst], "A": changes.a.nats[worst] / tokens[worst]}
    return pd.DataFrame(columns | {"B": changes.b.nats[worst] / tokens[worst], "rise": rises[worst]})


def end_of_share(value: float) -> float:
    """An end of an interval of a share, which lies between 0 and 1."""
    return min(max(value, 0.0), 1.0)
