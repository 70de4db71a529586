"""Measurements of the same tokens, and the choice of documents that the reading page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import Unreadable
from rbptrack.base.errors import unknown_name
from rbptrack.base.formatting import counted
from rbptrack.base.names import natural_key
from rbptrack.measurement.columns import SAME_TOKENS_COLUMNS
from rbptrack.ranks import DocumentCounts, FloatArray, RankTable
from rbptrack.reporting.templates import families_and_datasets
from rbptrack.stats.documents import combined_influences
from rbptrack.stats.laws import laws
from rbptrack.stats.rounding import significant
from rbptrack.stats.sums import neg_log_rbp

SHOWN_K = 10
"""The k of RBP_k on the page."""

MAX_SHARE = 0.12
"""The largest share of the page's tokens that one document gets, if the user names no documents."""

_DOCUMENTS_PER_REASON = 4
_MIN_TOKENS = 30  # in documents with fewer tokens, the difference between models is mostly chance


@dataclass(frozen=True)
class ChosenDocument:
    """A document of the page, and why the page shows it.

    Attributes:
        number: the number of the document in the rank tables.
        reasons: why the page shows the document: `law`, `difference`, `first` or `requested`.
        influence: the amount by which the document raises alpha of RBP_10; NaN if no law can be fitted.
        share: the document's share of the sum of squared influences of all documents; NaN if no law can be fitted.

    """

    number: int
    reasons: tuple[str, ...]
    influence: float = np.nan
    share: float = np.nan


@dataclass(frozen=True)
class TokenSet:
    """The measurements that scored the same tokens.

    Attributes:
        label: the title of the set, such as `nano on pydocs`.
        rows: the rows of `Runs.frame`, ordered by family, size and number of training tokens.
        counts: for each row, the counts by document.

    """

    label: str
    rows: pd.DataFrame
    counts: list[DocumentCounts] = field(default_factory=list)

    @cached_property
    def law_rows(self) -> pd.DataFrame:
        """The rows of the family with the most sizes, one for each size, ascending in S. It may have a single size."""
        rows = self.rows.reset_index(drop=True)
        rows = rows[rows["non_embedding_params"].gt(0).fillna(False)].fillna({"family": ""})
        by_size = rows.drop_duplicates(["family", "non_embedding_params"], keep="last")
        if not len(by_size):
            return by_size
        largest_family = by_size["family"].value_counts().index[0]
        family: pd.DataFrame = by_size[by_size["family"] == largest_family]
        return family

    @property
    def law_family(self) -> str:
        """The name of the family of `law_rows`; empty if no S is known."""
        return str(self.law_rows["family"].iloc[0]) if len(self.law_rows) else ""

    @property
    def compared(self) -> tuple[int, int]:
        """The indices of the smallest and the largest model of `law_rows`, or of the first and the last model."""
        sizes = self.law_rows.index
        return (int(sizes[0]), int(sizes[-1])) if len(sizes) > 1 else (0, len(self.rows) - 1)

    @cached_property
    def influence(self) -> FloatArray | None:
        """The influence of each document on the exponent of -ln RBP_10, (documents,).

        The exponent belongs to the family with the most sizes. The influence is None if no family has two sizes, or if
        RBP_10 of a model is 0 or 1, with or without one of the documents.
        """
        sizes = self.law_rows
        if len(sizes) < 2:
            return None
        s = sizes["non_embedding_params"].to_numpy(np.float64)
        [law] = laws(s, [self.counts[index].select((SHOWN_K,)) for index in sizes.index], neg_log_rbp)
        if law is None or law.documents is None or not np.isfinite(law.documents.u).all():
            return None
        influence = combined_influences(law.documents.u, law.alpha_weights)
        return influence if influence.any() else None

    def choose_document(self, index: int, reasons: Sequence[str]) -> ChosenDocument:
        """Choose a document for the page, by its index in the counts."""
        number = int(self.counts[0].document[index])
        if self.influence is None:
            return ChosenDocument(number, tuple(reasons))
        share = self.influence[index] ** 2 / (self.influence**2).sum()
        return ChosenDocument(number, tuple(reasons), float(self.influence[index]), float(share))


def find_token_sets(runs: Runs, notes: list[str]) -> list[TokenSet]:
    """Group the measurements with ranks by the tokens that they scored. Add a note if measurements have no ranks."""
    frame = runs.frame[~runs.frame["without_ranks"].fillna(False)]
    if len(frame) < len(runs.frame):
        notes.append(f"The page leaves out {counted(len(runs.frame) - len(frame), 'measurement')} without ranks.")
    sets = []
    groups = [rows for _, rows in frame.groupby(list(SAME_TOKENS_COLUMNS), dropna=False, observed=True)]
    for rows in groups:
        ordered = rows.assign(_size=rows["size"].astype(object).fillna("").map(natural_key)).sort_values(
            ["family", "non_embedding_params", "_size", "training_tokens", "name"], na_position="first"
        )
        sets.append(TokenSet(_set_label(rows, groups), ordered.drop(columns="_size")))
    return sets


def _set_label(rows: pd.DataFrame, groups: Sequence[pd.DataFrame]) -> str:
    """Return the title of a set, such as `nano on pydocs`. If groups of runs share it, add the facts that differ."""
    label = families_and_datasets(rows)
    groups_with_label = [group for group in groups if families_and_datasets(group) == label]
    for column in SAME_TOKENS_COLUMNS:
        values = {str(group[column].iloc[0]) for group in groups_with_label}
        if len(values) > 1:
            label += f", {column.replace('_', ' ')} {str(rows[column].iloc[0])[:8]}"
    return label


def read_counts(runs: Runs, token_set: TokenSet, notes: list[str]) -> TokenSet:
    """Return the measurements of a set that can be read, with their counts by document. Notes name the others.

    Raises Unreadable if no measurement can be read.
    """
    counts: list[DocumentCounts] = []
    readable: list[int] = []
    for i, (run_id, name) in enumerate(token_set.rows[["run_id", "name"]].itertuples(index=False)):
        try:
            run_counts = runs.counts_by_document(run_id, (1, SHOWN_K))
        except Unreadable as error:
            if len(token_set.rows) == 1:
                raise
            notes.append(f"{name} is left out: {error}.")
            continue
        if counts and not np.array_equal(run_counts.document, counts[0].document):
            first = token_set.rows["name"].iloc[readable[0]]
            notes.append(f"{name} is left out: it did not score the same documents as {first}.")
            continue
        counts.append(run_counts)
        readable.append(i)
    if not readable:
        raise Unreadable(f"{token_set.label}: the ranks of no measurement can be read")
    return TokenSet(token_set.label, token_set.rows.iloc[readable], counts)


def find_documents(token_set: TokenSet, requested: Sequence[str], ids: Mapping[int, str]) -> list[ChosenDocument]:
    """Return the documents that the user named by ID or number. Raises BadInput if a document does not exist.

    `ids` has the ID of each document, by number.
    """
    number_by_id = {id_: number for number, id_ in ids.items()}
    numbers = set(token_set.counts[0].document.tolist())
    chosen = {}
    for word in requested:
        number = number_by_id.get(word, int(word) if word.isdecimal() and len(word) < 10 else -1)
        if number not in numbers:
            names = [ids.get(number, str(number)) for number in sorted(numbers)]
            raise unknown_name("document", word, names)
        index = int(np.searchsorted(token_set.counts[0].document, number))
        chosen[number] = token_set.choose_document(index, ["requested"])
    return list(chosen.values())


def choose_documents(token_set: TokenSet, max_tokens: int) -> list[ChosenDocument]:
    """Choose the documents that decide the law, those in which models differ most, and the first documents.

    The three rankings take turns until each has chosen `_DOCUMENTS_PER_REASON` documents, or until the documents have
    `max_tokens` tokens.
    """
    tokens = token_set.counts[0].tokens
    rankings: dict[str, list[int]] = {}
    if token_set.influence is not None:
        rankings["law"] = np.argsort(-significant(np.abs(token_set.influence)), kind="stable").tolist()
    if len(token_set.counts) > 1:
        rankings["difference"] = np.argsort(-_ce_differences(token_set), kind="stable").tolist()
    rankings["first"] = list(range(len(tokens)))
    reasons: dict[int, list[str]] = {}
    shown_tokens = 0
    longest = max(1, int(max_tokens * MAX_SHARE))
    for turn in range(_DOCUMENTS_PER_REASON):
        for reason, ranking in rankings.items():
            if turn >= len(ranking):
                continue
            index = ranking[turn]
            if index not in reasons:
                if shown_tokens >= max_tokens:
                    continue
                shown_tokens += min(longest, int(tokens[index]))
            reasons.setdefault(index, []).append(reason)
    return [token_set.choose_document(index, document_reasons) for index, document_reasons in reasons.items()]


def _ce_differences(token_set: TokenSet) -> FloatArray:
    """Return by how much CE of the two models of `TokenSet.compared` differs in each document, (documents,), in nats.

    In documents with fewer than `_MIN_TOKENS` tokens, models differ by chance. Their differences are divided by a
    million, so that they come last.
    """
    smallest, largest = token_set.compared
    tokens = token_set.counts[smallest].tokens
    differences = np.abs(token_set.counts[largest].nats - token_set.counts[smallest].nats) / tokens
    return np.asarray(np.where(tokens >= _MIN_TOKENS, differences, differences / 1e6))


def read_ranks(
    runs: Runs, token_set: TokenSet, numbers: Sequence[int], notes: list[str]
) -> tuple[TokenSet, list[RankTable]]:
    """Read the ranks of some documents in each measurement.

    A measurement whose tokens differ from those of the first is left out, and a note says so.

    Returns:
        The remaining measurements, and the rank table of each.

    """
    tables: list[RankTable] = []
    remaining: list[int] = []
    names = token_set.rows["name"].tolist()
    for i, run_id in enumerate(token_set.rows["run_id"]):
        table = runs.ranks_of_documents(run_id, numbers)
        if tables and not _have_equal_tokens(tables[0], table):
            notes.append(f"{names[i]} is left out: it did not score the same tokens as {names[remaining[0]]}.")
            continue
        tables.append(table)
        remaining.append(i)
    counts = [token_set.counts[i] for i in remaining]
    return TokenSet(token_set.label, token_set.rows.iloc[remaining], counts), tables


def _have_equal_tokens(first: RankTable, second: RankTable) -> bool:
    for name in ("document", "position", "token"):
        if not np.array_equal(first.column_or(name, -1), second.column_or(name, -1)):
            return False
    return True
