"""Renders the reading page, one HTML file with texts in which each token is coloured by its rank.

The page loads nothing from the network. Texts may contain harmful HTML. The page therefore holds them as compressed
JSON only, and `reading.js` inserts them as text. A content security policy forbids all other scripts.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import rbptrack
from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import Unreadable
from rbptrack.base.errors import BadInput, RbptrackError, unknown_name
from rbptrack.base.formatting import character_spans, counted, listed
from rbptrack.config.patterns import natural_key
from rbptrack.facts import SAME_TOKENS
from rbptrack.ranks import DocumentCounts, FloatArray, IntArray, RankTable
from rbptrack.reporting.page import compress_text, environment, page_title
from rbptrack.stats.documents import influences, neg_log_rbp

MAX_TOKENS = 20_000
"""The number of tokens that a page shows by default."""

P_STEP = 0.02
"""The page rounds -ln p to multiples of this step, so p has an error of at most 1%."""

_K = 10
_PER_REASON = 4  # documents that the page shows for each reason
_LONGEST = 0.12  # the largest share of the page's tokens that one document gets, if the user names no documents
_MIN_TOKENS = 30  # models differ by chance in documents with fewer tokens


@dataclass(frozen=True)
class Choice:
    """A document of the page, and why it was chosen.

    Attributes:
        number: the number of the document in the rank tables.
        reasons: why the page shows it: `law`, `difference`, `first` or `asked`.
        influence: the amount by which the document raises alpha of RBP_10; NaN if there is no law.
        share: its share of the sum of the squared influences of all documents; NaN if there is no law.

    """

    number: int
    reasons: tuple[str, ...]
    influence: float = np.nan
    share: float = np.nan


@dataclass(frozen=True)
class TokenSet:
    """A group of measurements that scored identical tokens.

    Attributes:
        label: the title of the group, such as `nano on pydocs`.
        rows: rows of `Runs.frame`, ordered by family, size and number of training tokens.
        counts: the sums by document of each row.

    """

    label: str
    rows: pd.DataFrame
    counts: list[DocumentCounts] = field(default_factory=list)

    @cached_property
    def influence(self) -> FloatArray | None:
        """The influence of each document on the exponent of -ln RBP_10, (documents,).

        The exponent is the one of the family with most sizes. The influence is None if no family has two sizes, or if
        RBP_10 is 0 or 1 for one of the models.
        """
        rows = self.rows.reset_index(drop=True)
        rows = rows[rows["non_embedding_params"].gt(0).fillna(False)].fillna({"family": ""})
        by_size = rows.drop_duplicates(["family", "non_embedding_params"], keep="last")
        if not len(by_size):
            return None
        places = by_size.index[by_size["family"] == by_size["family"].value_counts().index[0]]
        if len(places) < 2:
            return None
        x = np.log(by_size.loc[places, "non_embedding_params"].to_numpy(np.float64))
        weights = -(x - x.mean()) / ((x - x.mean()) ** 2).sum()
        u = [influences(self.counts[place].select((_K,)), _ln_neg_log_rbp)[1][:, 0] for place in places]
        with np.errstate(invalid="ignore"):  # an influence is infinite if RBP_10 is 1 without the document
            influence = np.asarray(weights @ np.array(u))
        return influence if np.isfinite(influence).all() and influence.any() else None

    def choice(self, place: int, reasons: Sequence[str]) -> Choice:
        """Return a choice of one document. `place` is its index in the counts."""
        number = int(self.counts[0].document[place])
        if self.influence is None:
            return Choice(number, tuple(reasons))
        share = self.influence[place] ** 2 / (self.influence**2).sum()
        return Choice(number, tuple(reasons), float(self.influence[place]), float(share))


def render_reading(
    runs: Runs, *, documents: Sequence[str] = (), tokens: int = MAX_TOKENS, command: str = ""
) -> tuple[str, list[str]]:
    """Make the reading page of measurements.

    Args:
        runs: the measurements. The page groups measurements that scored the same tokens.
        documents: the ids or the numbers of the documents to show. By default the page shows the documents that decide
            the exponent of RBP_10, the documents in which the largest and the smallest model differ most, and the
            first documents.
        tokens: the maximum number of tokens on the page.
        command: the command line that made the page. The end of the page shows it.

    Returns:
        The HTML, and notes on what the page leaves out.

    Raises:
        BadInput: a document does not exist, or no measurement keeps texts.
        Unreadable: the ranks of all measurements are missing or damaged.

    """
    notes: list[str] = []
    sets = []
    candidates = _token_sets(runs, notes)
    for token_set in candidates:
        try:
            sets.append(_set_data(runs, token_set, documents, max(1, tokens // len(candidates)), notes))
        except RbptrackError as error:
            if len(candidates) == 1:
                raise
            notes.append(f"{token_set.label}: {error}")
    if not sets:
        raise BadInput("; ".join(notes) or "no measurement has ranks")
    data = {"sets": sets, "step": P_STEP, "k": _K}
    templates = environment()
    script = (Path(__file__).parent / "reading.js").read_text(encoding="utf-8")
    page = templates.get_template("reading.html").render(
        title=page_title(runs),
        data=compress_text(json.dumps(data, ensure_ascii=False, separators=(",", ":"))),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        notes=notes,
        made=f"rbptrack {rbptrack.__version__}, {pd.Timestamp.now('UTC'):%Y-%m-%d %H:%M} UTC",
        command=command,
    )
    return page, notes


def _token_sets(runs: Runs, notes: list[str]) -> list[TokenSet]:
    """Group the measurements with ranks by the tokens that they scored."""
    frame = runs.frame[~runs.frame["without_ranks"].fillna(False)]
    if len(frame) < len(runs.frame):
        notes.append(f"The page leaves out {counted(len(runs.frame) - len(frame), 'measurement')} without ranks.")
    sets = []
    groups = [rows for _, rows in frame.groupby(list(SAME_TOKENS), dropna=False, observed=True)]
    for rows in groups:
        ordered = rows.assign(_size=rows["size"].astype("string").fillna("").map(natural_key)).sort_values(
            ["family", "non_embedding_params", "_size", "training_tokens", "name"], na_position="first"
        )
        sets.append(TokenSet(_label(rows, groups), ordered.drop(columns="_size")))
    return sets


def _label(rows: pd.DataFrame, groups: Sequence[pd.DataFrame]) -> str:
    """Name a group, such as `nano on pydocs`. If groups share this name, the label adds the facts in which they differ.

    Args:
        rows: the rows of the group.
        groups: the rows of all groups.

    """
    label = _families_and_dataset(rows)
    alike = [other for other in groups if _families_and_dataset(other) == label]
    if len(alike) > 1:
        for column in SAME_TOKENS:
            values = {str(other[column].iloc[0]) for other in alike}
            if len(values) > 1:
                label += f", {column.replace('_', ' ')} {str(rows[column].iloc[0])[:8]}"
    return label


def _families_and_dataset(rows: pd.DataFrame) -> str:
    families = sorted(rows["family"].dropna().unique())
    names = listed(families) if len(families) <= 3 else f"{len(families)} families"
    return f"{names} on {rows['dataset'].iloc[0]}"


def _truncation(token_set: TokenSet) -> str:
    """Return a note if only the beginning of each document was measured; otherwise an empty text."""
    row = token_set.rows.iloc[0]
    if pd.isna(row["sequence"]) or pd.isna(row["seq_len"]) or row["sequence"] != "truncate":
        return ""
    return (
        f"{token_set.label}: only the first {row['seq_len']:,} tokens of each document were measured "
        "(dataset.sequence=truncate)."
    )


def _set_data(runs: Runs, token_set: TokenSet, asked: Sequence[str], room: int, notes: list[str]) -> dict[str, Any]:
    """Return the page's data of one group of measurements, which has at most `room` tokens."""
    readable = _with_counts(runs, token_set, notes)
    if truncation := _truncation(readable):
        notes.append(truncation)
    texts = _token_texts(runs, readable)
    run_id = str(readable.rows["run_id"].iloc[0])
    listing = runs.store.documents(run_id)
    ids = {int(n): str(id_) for n, id_ in zip(listing["document"], listing["id"], strict=True)}
    lengths = {int(n): int(length) for n, length in zip(listing["document"], listing["tokens"], strict=True)}
    choices = _asked_for(readable, asked, ids) if asked else _chosen(readable, room)
    unscored = _first_that_is_not_empty(runs.store.unscored(run_id) for run_id in readable.rows["run_id"])
    readable, tables = _tables(runs, readable, [choice.number for choice in choices], notes)
    strings = _Strings()
    documents = []
    for choice in choices:
        most = room if asked else max(1, int(room * _LONGEST))
        columns = [_document_rows(table, choice.number) for table in tables]
        place = int(np.searchsorted(readable.counts[0].document, choice.number))
        document = _document_data(columns, unscored, choice, texts, strings, min(room, most))
        room -= document["shown"]
        document |= {
            "id": ids.get(choice.number, str(choice.number)),
            "number": choice.number,
            "tokens": max(lengths.get(choice.number, 0), int(readable.counts[0].tokens[place])),
            "ce": [round(float(c.nats[place] / c.tokens[place]), 4) for c in readable.counts],
            "rbp": [round(float(c.hits[place, 1] / c.tokens[place]), 4) for c in readable.counts],
        }
        documents.append(document)
        if room <= 0:
            break
    if asked and len(documents) < len(choices):
        left_out = counted(len(choices) - len(documents), "document")
        shown = sum(document["shown"] for document in documents)
        notes.append(f"{readable.label}: {left_out} left out after {shown:,} tokens. `--tokens N` shows more.")
    return {
        "label": readable.label,
        "dataset": str(readable.rows["dataset"].iloc[0]),
        "models": _models(readable.rows),
        "of": len(readable.counts[0].document),
        "strings": strings.texts,
        "documents": documents,
    }


def _models(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the name, family and S of each model, and the index of the next smaller model of its family."""
    models: list[dict[str, Any]] = []
    families = rows["family"].fillna("").tolist()
    names = _short_names(rows)
    for place, (name, row) in enumerate(zip(names, rows.to_dict("records"), strict=True)):
        s = None if pd.isna(row["non_embedding_params"]) else int(row["non_embedding_params"])
        smaller = place - 1 if place and families[place - 1] == families[place] else None
        models.append({"name": name, "family": families[place], "s": s, "smaller": smaller})
    return models


def _short_names(rows: pd.DataFrame) -> list[str]:
    """Return the names of measurements without the dataset, and without the tags after an @ that all of them have."""
    names = [str(row["name"]).replace(f"/{row['dataset']}", "", 1).split("@") for row in rows.to_dict("records")]
    shared = set.intersection(*(set(tags) for _, *tags in names)) if len(names) > 1 else set()
    return ["@".join([name, *(tag for tag in tags if tag not in shared)]) for name, *tags in names]


def _with_counts(runs: Runs, token_set: TokenSet, notes: list[str]) -> TokenSet:
    """Return the measurements of a group that can be read, with their sums by document."""
    counts: list[DocumentCounts] = []
    kept: list[int] = []
    for place, (run_id, name) in enumerate(token_set.rows[["run_id", "name"]].itertuples(index=False)):
        try:
            run_counts = runs.counts_by_document(run_id, (1, _K))
        except Unreadable as error:
            if len(token_set.rows) == 1:
                raise
            notes.append(f"{name} is left out: {error}.")
            continue
        if counts and not np.array_equal(run_counts.document, counts[0].document):
            first = token_set.rows["name"].iloc[kept[0]]
            notes.append(f"{name} is left out: it did not score the same documents as {first}.")
            continue
        counts.append(run_counts)
        kept.append(place)
    if not kept:
        raise Unreadable(f"{token_set.label}: no ranks can be read")
    return TokenSet(token_set.label, token_set.rows.iloc[kept], counts)


def _token_texts(runs: Runs, token_set: TokenSet) -> dict[int, str]:
    """Return the texts of tokens by id, from all measurements. Raises BadInput if no measurement keeps texts."""
    texts: dict[int, str] = {}
    for run_id in token_set.rows["run_id"]:
        texts = {**runs.store.token_texts(run_id), **texts}
    if not texts:
        raise BadInput(f"{token_set.label}: its measurements keep no texts of tokens, so there is nothing to read")
    return texts


def _first_that_is_not_empty(frames: Iterator[pd.DataFrame]) -> pd.DataFrame:
    frame = pd.DataFrame()
    for frame in frames:
        if len(frame):
            return frame
    return frame


def _asked_for(token_set: TokenSet, asked: Sequence[str], ids: Mapping[int, str]) -> list[Choice]:
    """Return the documents with these ids or numbers. Raises BadInput if one does not exist."""
    number_by_id = {id_: number for number, id_ in ids.items()}
    numbers = set(token_set.counts[0].document.tolist())
    choices = {}
    for word in asked:
        number = number_by_id.get(word, int(word) if word.isdecimal() and len(word) < 10 else -1)
        if number not in numbers:
            names = [ids.get(number, str(number)) for number in sorted(numbers)]
            raise unknown_name("document", word, names)
        place = int(np.searchsorted(token_set.counts[0].document, number))
        choices[number] = token_set.choice(place, ["asked"])
    return list(choices.values())


def _chosen(token_set: TokenSet, room: int) -> list[Choice]:
    """Choose the documents that decide the law, those in which models differ most, and the first documents.

    The three rankings take turns until each has had `_PER_REASON` turns, or until the documents fill `room` tokens.
    """
    tokens = token_set.counts[0].tokens
    rankings: dict[str, list[int]] = {}
    if token_set.influence is not None:
        rankings["law"] = np.argsort(-np.abs(token_set.influence), kind="stable").tolist()
    if len(token_set.counts) > 1:
        rankings["difference"] = np.argsort(-_difference(token_set), kind="stable").tolist()
    rankings["first"] = list(range(len(tokens)))
    reasons: dict[int, list[str]] = {}
    shown = 0
    longest = max(1, int(room * _LONGEST))
    for turn in range(_PER_REASON):
        for reason, ranking in rankings.items():
            if turn >= len(ranking):
                continue
            place = ranking[turn]
            if place not in reasons:
                if shown >= room:
                    continue
                shown += min(longest, int(tokens[place]))
            reasons.setdefault(place, []).append(reason)
    return [token_set.choice(place, why) for place, why in reasons.items()]


def _difference(token_set: TokenSet) -> FloatArray:
    """Return the difference in CE between the largest and the smallest model in each document, (documents,), in nats.

    Documents with fewer than `_MIN_TOKENS` tokens get tiny values, because models differ in them by chance.
    """
    s = token_set.rows["non_embedding_params"].to_numpy(np.float64, na_value=np.nan)
    small, large = (0, len(s) - 1) if np.isnan(s).any() else (int(s.argmin()), len(s) - 1 - int(s[::-1].argmax()))
    if small == large:
        small, large = 0, len(s) - 1
    smallest, largest = token_set.counts[small], token_set.counts[large]
    difference = np.abs(largest.nats - smallest.nats) / smallest.tokens
    return np.asarray(np.where(smallest.tokens >= _MIN_TOKENS, difference, difference / 1e6))


def _ln_neg_log_rbp(sums: FloatArray) -> FloatArray:
    return np.asarray(np.log(neg_log_rbp(sums)))


def _tables(
    runs: Runs, token_set: TokenSet, numbers: Sequence[int], notes: list[str]
) -> tuple[TokenSet, list[RankTable]]:
    """Read the ranks of some documents. Measurements whose tokens differ from those of the first are left out."""
    tables: list[RankTable] = []
    kept: list[int] = []
    for place, run_id in enumerate(token_set.rows["run_id"]):
        table = runs.ranks_of_documents(run_id, numbers)
        if tables and not _same_tokens(tables[0], table):
            names = token_set.rows["name"]
            notes.append(f"{names.iloc[place]} is left out: it did not score the same tokens as {names.iloc[kept[0]]}.")
            continue
        tables.append(table)
        kept.append(place)
    counts = [token_set.counts[place] for place in kept]
    return TokenSet(token_set.label, token_set.rows.iloc[kept], counts), tables


def _same_tokens(one: RankTable, other: RankTable) -> bool:
    return all(
        np.array_equal(one.column_or(name, -1), other.column_or(name, -1)) for name in ("document", "position", "token")
    )


def _document_rows(table: RankTable, number: int) -> RankTable:
    document = table.column("document")
    first, last = np.searchsorted(document, [number, number + 1])
    return RankTable(table.table.slice(first, last - first), table.vocab_size, table.strict)


class _Strings:
    """A list of the texts on the page, in which each text occurs once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = len(self.texts)
            self.texts.append(text)
        return self._places[text]


def _document_data(
    tables: Sequence[RankTable],
    unscored: pd.DataFrame,
    choice: Choice,
    texts: Mapping[int, str],
    strings: _Strings,
    most: int,
) -> dict[str, Any]:
    """Return the page's data of one document: its spans of text, and what each model says about each scored token.

    A span is one token, or several tokens that share a character. `scored` has the indices of the tokens with a rank.

    Args:
        tables: the rank table of the document for each model.
        unscored: the document's and other documents' tokens without a rank.
        choice: the document.
        texts: the texts of tokens by id.
        strings: the texts on the page. Texts of first choices are added to it.
        most: the maximum number of tokens to show.

    """
    ids, scored = _sequence(tables[0], unscored, choice.number)
    ids = ids[:most]
    scored = scored[scored < len(ids)]
    data: dict[str, Any] = {"why": list(choice.reasons), "shown": len(ids)}
    if np.isfinite(choice.influence):
        data |= {"influence": float(f"{choice.influence:.3g}"), "share": round(choice.share, 4)}
    data["texts"], data["sizes"] = character_spans([texts.get(int(token), _UNKNOWN) for token in ids])
    data["scored"] = scored.tolist()
    data["models"] = [_ranks(table, len(scored), texts, strings) for table in tables]
    return data


_UNKNOWN = "\ufffd"
_GAP = -1  # the id that stands for tokens that the measurement did not keep


def _sequence(table: RankTable, unscored: pd.DataFrame, number: int) -> tuple[IntArray, IntArray]:
    """Return the ids of a document's tokens in order, and the indices of the tokens with a rank.

    The id `_GAP` stands for one token, or several in a row, that the measurement did not keep.
    """
    token = table.column_or("token", _GAP).astype(np.int64)
    position = table.column_or("position", np.nan)
    if np.isnan(position).any():
        return token, np.arange(len(token))
    ids = np.full(int(position[-1]) + 1, _GAP)
    known = unscored[(unscored["document"] == number) & (unscored["position"] < len(ids))] if len(unscored) else None
    if known is not None:
        ids[known["position"].to_numpy(np.int64)] = known["token"].to_numpy(np.int64)
    ids[position] = token
    shown = (ids != _GAP) | (np.append(0, ids[:-1]) != _GAP)
    shown[position] = True
    return ids[shown], np.searchsorted(np.flatnonzero(shown), position)


def _ranks(table: RankTable, count: int, texts: Mapping[int, str], strings: _Strings) -> dict[str, Any]:
    """Return the page's data of one model on the first `count` scored tokens of a document.

    `rank` has the ranks. `p` has -ln p as multiples of `P_STEP`. `top` has the model's first choice at each token with
    a rank above 1, as an index in `strings`.
    """
    rank = table.rank[:count]
    data: dict[str, Any] = {"rank": rank.tolist()}
    if "logprob" in table.table.column_names:
        steps = np.rint(np.clip(-table.column("logprob")[:count], 0, 1000) / P_STEP)
        data["p"] = steps.astype(np.int64).tolist()
    if "top" in table.table.column_names:
        data["top"] = _places(table.column("top")[:count][rank > 1], texts, strings)
    if table.has_reference:
        data["reference_top"] = _places(table.column("reference_top")[:count], texts, strings)
        data["reference_rank"] = table.column("reference_rank")[:count].tolist()
    return data


def _places(ids: npt.NDArray[Any], texts: Mapping[int, str], strings: _Strings) -> list[int]:
    places = []
    for token in ids.tolist():
        text = texts.get(token)
        places.append(strings.place(f"id {token}" if text is None else character_spans([text])[0][0]))
    return places
