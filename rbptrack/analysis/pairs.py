"""Compare two measurements of the same tokens, for `rbptrack compare A B` and the analyzer `agreement`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rbptrack.analysis.rank_store import Unreadable
from rbptrack.analysis.report import Report, Term, clip_share
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import character_spans, counted, format_number
from rbptrack.measurement.columns import COLUMN_PARTS, DISTINGUISHING_COLUMNS, SAME_TOKENS_COLUMNS
from rbptrack.ranks import HEADLINE_KS
from rbptrack.stats.changes import CE_ROUNDING, RULE_OF_THREE, ChangedToken, Changes, OtherTokens, compare

CHANGES_GLOSSARY: dict[str, str | Term] = {
    "change": Term(
        "the metric in B minus the metric in A over the same tokens; CE in nats, RBP_k as a share; a difference of CE "
        f"of at most {CE_ROUNDING:g} is no difference, because rounding in float32 can make it",
        "B - A",
        "+.4f",
    ),
    "same_top": Term("share of positions at which A and B rank the same token first", "same top token", ".2%"),
    "flips": Term(
        "gained - lost: the change of RBP_1; p by McNemar's test, with documents as clusters",
        "gained - lost",
        "+.2%",
    ),
    "A": Term("the metric in the first measurement", form=".4f"),
    "B": Term("the metric in the second measurement", form=".4f"),
    "pair": "A / B: the first and the second measurement",
    "lost": Term("share of the tokens that A ranks first and B does not", form=".2%"),
    "gained": Term("share of the tokens that B ranks first and A does not", form=".2%"),
    "moved": Term("share of the tokens with different ranks in A and B", form=".2%"),
    "deciding": Term("effective number of documents that decide the difference", form=".0f"),
    "document": "number of the document in the selection",
    "position": "the token's index in its document",
    "token": "the token",
    "rank_A": "the token's rank in A",
    "rank_B": "the token's rank in B",
    "instead": "the token that B ranks first at this position",
    "text": "the scored tokens directly before the token",
    "nats": Term("-ln p of the token in B minus that in A", form="+.2f"),
    "group": "the group of documents, such as a book",
    "tokens": Term("number of scored tokens", form=",.0f"),
    "rise": Term("CE in B minus CE in A, in nats per token of the document or group", form="+.4f"),
}
"""The terms of the questions and columns of `add_changes`, `worst_tokens` and `worst_documents`."""

FEW_UNITS = 200
"""With fewer documents or groups than this, a note says what share of all documents may be damaged unnoticed."""

_IN_MODEL_NAME = ("family", "size", "seed", "checkpoint")  # labels that the name of a model tells


def same_tokens(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield groups of at least two rows of `Runs.frame` whose measurements scored the same tokens."""
    for _, rows in frame.groupby(list(SAME_TOKENS_COLUMNS), dropna=False, observed=True):
        if len(rows) > 1:
            yield rows


def pair_name(first: pd.Series[Any], second: pd.Series[Any]) -> str:
    """Name a pair of measurements by their models and their other differences: `nano-6k@float32 / nano-6k@float16`.

    Differences that the names of the models already tell are left out. Hashes are added only if nothing else differs.

    Args:
        first: the row of `Runs.frame` of the first measurement.
        second: the row of the second measurement.

    """
    differing = []
    for name in DISTINGUISHING_COLUMNS:
        value_a = first[name]
        value_b = second[name]
        if pd.isna(value_a) != pd.isna(value_b) or (pd.notna(value_a) and value_a != value_b):
            differing.append(name)
    has_two_models = first["model"] != second["model"]
    columns = []
    for name in differing:
        if not COLUMN_PARTS[name].is_hash and not (has_two_models and name in _IN_MODEL_NAME):
            columns.append(name)
    if not columns and not has_two_models:
        columns = [name for name in differing if COLUMN_PARTS[name].is_hash]
    return f"{_name_with_facts(first, columns)} / {_name_with_facts(second, columns)}"


def _name_with_facts(row: pd.Series[Any], columns: Sequence[str]) -> str:
    """Return a model's name followed by values of columns: `nano-6k@float16`. Missing values are left out."""
    model = str(row["model"])
    marks = []
    for name in columns:
        value = "" if pd.isna(row[name]) else COLUMN_PARTS[name].format_value(row[name])
        # The name `nano-quant-115k-int8` contains `int8` of the weights `int8 torchao`.
        is_in_name = name == "weights" and value != "" and value.split()[0] in model.split("-")
        if value and not is_in_name:
            marks.append(f"@{value}")
    return f"{model}{''.join(marks)}"


def compare_runs(
    runs: Runs, first: pd.Series[Any], second: pd.Series[Any], *, ks: Sequence[int] = HEADLINE_KS, worst: int = 10
) -> Changes:
    """Compare two measurements of the same tokens, token by token.

    Args:
        runs: the measurements, which contain the two.
        first: the row of `Runs.frame` of the first measurement, which is the baseline.
        second: the row of the second measurement.
        ks: the k of RBP_k.
        worst: the number of tokens to keep in `Changes.worst_tokens`, those with the largest fall in ln p.

    Raises:
        BadInput: the two rows are one measurement, or a k is not a whole number from 1 to |V|.
        OtherTokens: the measurements did not score the same tokens.
        Unreadable: a rank table cannot be read.

    """
    names = f"{first['name']} and {second['name']}"
    if first["run_id"] == second["run_id"]:
        raise BadInput(f"{first['name']} cannot be compared with itself. Name two measurements")
    for column in SAME_TOKENS_COLUMNS:
        value_a = first[column]
        value_b = second[column]
        if pd.notna(value_a) and pd.notna(value_b) and value_a != value_b:
            raise OtherTokens(f"{names} did not score the same tokens ({column}: {value_a} and {value_b})")
    try:
        return compare(runs.rank_pieces(first), runs.rank_pieces(second), ks=ks, groups=runs.groups(first), worst=worst)
    except OtherTokens as error:
        raise OtherTokens(f"{names}: {error}") from error


def add_changes(report: Report, changes: Changes, *, family: str, dataset: str, **case: Any) -> None:
    """Add the results of a comparison to a report: `change` of each metric, `same_top` and `flips`.

    `same_top` is left out if a rank table lacks the tokens that its model ranks first.

    Args:
        report: a report with the terms of `CHANGES_GLOSSARY` in its glossary.
        changes: the comparison.
        family: the family of the results.
        dataset: the dataset of the results.
        **case: further keys of the results, such as `pair`.

    """
    keys: dict[str, Any] = {"family": family, "dataset": dataset, **case}
    for change in changes.changes:
        beside = {"A": change.a, "B": change.b, "deciding": change.difference.deciding_documents}
        null, margin = change.test
        report.add("change", change.difference, **keys, metric=change.metric, null=null, margin=margin, beside=beside)
    if isfinite(changes.same_top.value):  # NaN if a rank table lacks the top tokens
        report.add("same_top", changes.same_top, **keys, show=clip_share, beside={"moved": changes.share("moved")})
    beside = {name: changes.share(name) for name in ("lost", "gained")}
    report.add("flips", changes.mcnemar, **keys, null=0.0, ends=changes.flips.interval(), beside=beside)
    note = f"{dataset}: {_text_on_missed_damage(changes)}."
    if changes.num_units < FEW_UNITS and note not in report.notes:  # several pairs may share documents
        report.notes.append(note)


def _text_on_missed_damage(changes: Changes) -> str:
    """Say what share of all documents may be damaged although this sample shows no damage."""
    units = counted(changes.num_units, "group" if changes.a.grouped else "document")
    share = format_number(RULE_OF_THREE / changes.num_units, ".1%")
    return f"damage to less than {share} of all documents may have been missed, because there are only {units}"


def worst_tokens(runs: Runs, second: pd.Series[Any], worst: Sequence[ChangedToken]) -> pd.DataFrame:
    """Return a table of the tokens with the largest fall in ln p.

    The columns are document, position, text, token, rank_A, rank_B, instead and nats. `CHANGES_GLOSSARY` explains them.

    Args:
        runs: the measurements, which contain the second one.
        second: the row of the second measurement, which keeps the texts of the tokens. A token without a known text is
            shown by its ID, such as `<id 262>`. If a token holds only the last bytes of a character, the whole
            character is shown.
        worst: the tokens, such as `Changes.worst_tokens`.

    """
    texts: Mapping[int, str] = {}
    with suppress(Unreadable):
        texts = runs.saved_token_texts(second)

    def token_text(token_id: int) -> str:
        # A rank table holds -1 for a token with an unknown ID.
        return "" if token_id == -1 else texts.get(token_id, f"<id {token_id}>")

    rows = []
    for token in worst:
        before = [token_text(token_id) for token_id in token.before]
        rows.append(
            {
                "document": token.document,
                "position": token.position,
                "text": "".join(character_spans(before)[0]),
                "token": _text_after(before, token_text(token.token)),
                "rank_A": token.rank_a,
                "rank_B": token.rank_b,
                "instead": _text_after(before, token_text(token.instead)),
                "nats": token.nats,
            }
        )
    return pd.DataFrame(rows)


def _text_after(before: Sequence[str], text: str) -> str:
    """Return the text of a token. If it completes a character that the tokens `before` begin, return the character."""
    return character_spans([*before, text])[0][-1]


def worst_documents(runs: Runs, first: pd.Series[Any], changes: Changes, most: int) -> pd.DataFrame:
    """Return a table of the documents with the largest rise of CE, or of the groups if groups are known.

    The columns are document or group, tokens, A, B and rise. `CHANGES_GLOSSARY` explains them. The table has no rows if
    CE rises in no document.

    Args:
        runs: the measurements, which contain the first one.
        first: the row of the first measurement, which names the groups.
        changes: the comparison.
        most: the largest number of rows.

    """
    rises = changes.ce_rises
    worst = [i for i in np.argsort(-rises, kind="stable")[:most] if rises[i] > 0]
    unit, names = named_units(runs, first, changes)
    tokens = changes.a.tokens[worst]
    return pd.DataFrame(
        {
            unit: names[worst],
            "tokens": tokens,
            "A": changes.a.nats[worst] / tokens,
            "B": changes.b.nats[worst] / tokens,
            "rise": rises[worst],
        }
    )


def named_units(runs: Runs, first: pd.Series[Any], changes: Changes) -> tuple[str, NDArray[Any]]:
    """Return what a row of the counts is, `document` or `group`, and the document or group of each row, (rows,).

    Args:
        runs: the measurements, which contain the first one.
        first: the row of the first measurement, which names the groups.
        changes: the comparison.

    """
    if not changes.a.grouped:
        return "document", changes.a.document
    in_order_of_counts = dict.fromkeys(runs.groups(first))  # counts of groups are sorted by their first documents
    return "group", np.array(list(in_order_of_counts))
