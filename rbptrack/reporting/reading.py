"""The reading page: texts with each token coloured by its rank, in one HTML file that needs no network.

Texts come from strangers. They are in the page as compressed JSON only, and `reading.js` sets them as text, never as
HTML. A content security policy lets no script run but that one.
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
from rbptrack.base.errors import BadInput, RbptrackError, unknown
from rbptrack.base.words import counted, listed, spans
from rbptrack.config.patterns import natural_key
from rbptrack.facts import SAME_TOKENS
from rbptrack.ranks import DocumentCounts, FloatArray, IntArray, RankTable
from rbptrack.reporting.page import environment, packed, page_title
from rbptrack.stats.documents import influences, missed

MAX_TOKENS = 20_000
"""Tokens that a page shows if nobody asks for more."""

P_STEP = 0.02
"""The step of -ln p in the page: p is within 1%."""

_K = 10
_PER_REASON = 4  # documents
_LONGEST = 0.12  # of all tokens: the most that one document gets, if none is named
_MIN_TOKENS = 30  # of a document that is chosen because models differ in it; shorter ones differ by chance


@dataclass(frozen=True)
class Choice:
    """A document of the page and why it was chosen.

    Attributes:
        number: in the rank tables.
        reasons: `law`, `difference`, `first` or `asked`.
        influence: what it adds to alpha of RBP_10; NaN if there is no law.
        share: of the squared influences of all documents.

    """

    number: int
    reasons: tuple[str, ...]
    influence: float = np.nan
    share: float = np.nan


@dataclass(frozen=True)
class TokenSet:
    """A group of measurements that scored identical tokens.

    Attributes:
        label: `nano on pydocs`.
        rows: of `Runs.frame`, ordered by family, size and training.
        counts: by document, of each row.

    """

    label: str
    rows: pd.DataFrame
    counts: list[DocumentCounts] = field(default_factory=list)

    @cached_property
    def influence(self) -> FloatArray | None:
        """What each document adds to the exponent of -ln RBP_10 over the sizes of the largest family, (documents,).

        None with fewer than two sizes, or if RBP_10 is 0 or 1 at one of them.
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
        u = [influences(self.counts[place].select((_K,)), _ln_missed)[1][:, 0] for place in places]
        with np.errstate(invalid="ignore"):  # without some document RBP_10 may be 1, and its influence infinite
            influence = np.asarray(weights @ np.array(u))
        return influence if np.isfinite(influence).all() and influence.any() else None

    def choice(self, place: int, reasons: Sequence[str]) -> Choice:
        """The document at a place of the counts, chosen for some reasons."""
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
        runs: the measurements. Those of the same tokens stand together.
        documents: ids, or numbers, of the documents to show. By default the page shows those that decide the exponent
            of RBP_10, those in which the largest and the smallest model differ most, and the first ones.
        tokens: the most tokens to show.
        command: the command line that made the page, for its end.

    Returns:
        The page, and notes on what it leaves out.

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
        data=packed(json.dumps(data, ensure_ascii=False, separators=(",", ":"))),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        notes=notes,
        made=f"rbptrack {rbptrack.__version__}, {pd.Timestamp.now('UTC'):%Y-%m-%d %H:%M} UTC",
        command=command,
    )
    return page, notes


def _token_sets(runs: Runs, notes: list[str]) -> list[TokenSet]:
    """The measurements with ranks, by the tokens that they scored."""
    frame = runs.frame[~runs.frame["without_ranks"].fillna(False)]
    if len(frame) < len(runs.frame):
        notes.append(f"{counted(len(runs.frame) - len(frame), 'measurement')} without ranks left out.")
    sets = []
    groups = [rows for _, rows in frame.groupby(list(SAME_TOKENS), dropna=False, observed=True)]
    for rows in groups:
        ordered = rows.assign(_size=rows["size"].astype("string").fillna("").map(natural_key)).sort_values(
            ["family", "non_embedding_params", "_size", "training_tokens", "name"], na_position="first"
        )
        sets.append(TokenSet(_label(rows, groups), ordered.drop(columns="_size")))
    return sets


def _label(rows: pd.DataFrame, groups: Sequence[pd.DataFrame]) -> str:
    """`nano on pydocs`, and what sets the tokens apart if others have that label, too."""
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
    """A note if texts were measured in part; else an empty text."""
    row = token_set.rows.iloc[0]
    if pd.isna(row["sequence"]) or pd.isna(row["seq_len"]) or row["sequence"] != "truncate":
        return ""
    return (
        f"{token_set.label}: only the first {row['seq_len']:,} tokens of each document were measured "
        "(dataset.sequence=truncate)."
    )


def _set_data(runs: Runs, token_set: TokenSet, asked: Sequence[str], room: int, notes: list[str]) -> dict[str, Any]:
    """Everything that the page holds of one set."""
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
        notes.append(f"{readable.label}: {left_out} left out after {shown:,} tokens. --tokens N shows more.")
    return {
        "label": readable.label,
        "dataset": str(readable.rows["dataset"].iloc[0]),
        "models": _models(readable.rows),
        "of": len(readable.counts[0].document),
        "strings": strings.texts,
        "documents": documents,
    }


def _models(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Name, family and S of each model, and the place of the next smaller one of its family."""
    models: list[dict[str, Any]] = []
    families = rows["family"].fillna("").tolist()
    names = _short_names(rows)
    for place, (name, row) in enumerate(zip(names, rows.to_dict("records"), strict=True)):
        s = None if pd.isna(row["non_embedding_params"]) else int(row["non_embedding_params"])
        smaller = place - 1 if place and families[place - 1] == families[place] else None
        models.append({"name": name, "family": families[place], "s": s, "smaller": smaller})
    return models


def _short_names(rows: pd.DataFrame) -> list[str]:
    """The measurements' names without the dataset and without what all of them share after an @."""
    names = [str(row["name"]).replace(f"/{row['dataset']}", "", 1).split("@") for row in rows.to_dict("records")]
    shared = set.intersection(*(set(tags) for _, *tags in names)) if len(names) > 1 else set()
    return ["@".join([name, *(tag for tag in tags if tag not in shared)]) for name, *tags in names]


def _with_counts(runs: Runs, token_set: TokenSet, notes: list[str]) -> TokenSet:
    """The measurements of a set that can be read, with their sums by document."""
    counts: list[DocumentCounts] = []
    kept = []
    for place, (run_id, name) in enumerate(token_set.rows[["run_id", "name"]].itertuples(index=False)):
        try:
            of_run = runs.counts_by_document(run_id, (1, _K))
        except Unreadable as error:
            if len(token_set.rows) == 1:
                raise
            notes.append(f"{name} is left out: {error}.")
            continue
        if counts and not np.array_equal(of_run.document, counts[0].document):
            notes.append(f"{name} is left out: it scored other documents than the others.")
            continue
        counts.append(of_run)
        kept.append(place)
    if not kept:
        raise Unreadable(f"{token_set.label}: no ranks can be read")
    return TokenSet(token_set.label, token_set.rows.iloc[kept], counts)


def _token_texts(runs: Runs, token_set: TokenSet) -> dict[int, str]:
    """The texts of tokens that any of the measurements keeps; BadInput if none does."""
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
            raise unknown("document", word, names)
        place = int(np.searchsorted(token_set.counts[0].document, number))
        choices[number] = token_set.choice(place, ["asked"])
    return list(choices.values())


def _chosen(token_set: TokenSet, room: int) -> list[Choice]:
    """The documents that decide the law, those in which models differ most, and the first ones, in turn."""
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
    """How far the largest and the smallest model are apart in each document: nats of CE, (documents,).

    Documents with few tokens, in which models differ by chance, come last.
    """
    s = token_set.rows["non_embedding_params"].to_numpy(np.float64, na_value=np.nan)
    small, large = (0, len(s) - 1) if np.isnan(s).any() else (int(s.argmin()), len(s) - 1 - int(s[::-1].argmax()))
    if small == large:
        small, large = 0, len(s) - 1
    of = token_set.counts
    apart = np.abs(of[large].nats - of[small].nats) / of[small].tokens
    return np.asarray(np.where(of[small].tokens >= _MIN_TOKENS, apart, apart / 1e6))


def _ln_missed(sums: FloatArray) -> FloatArray:
    return np.asarray(np.log(missed(sums)))


def _tables(
    runs: Runs, token_set: TokenSet, numbers: Sequence[int], notes: list[str]
) -> tuple[TokenSet, list[RankTable]]:
    """The ranks of some documents, of each measurement that scored the same tokens as the first."""
    tables: list[RankTable] = []
    kept = []
    for place, run_id in enumerate(token_set.rows["run_id"]):
        table = runs.ranks_of(run_id, numbers)
        if tables and not _same_tokens(tables[0], table):
            notes.append(f"{token_set.rows['name'].iloc[place]} is left out: it scored other tokens than the others.")
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
    """Texts of the page, each once."""

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
    """Spans of text, and rank, probability and first choice of every model at each scored token.

    A span is a token, or several tokens that share a character. `scored` has the places of the tokens with a rank.
    """
    ids, scored = _sequence(tables[0], unscored, choice.number)
    ids = ids[:most]
    scored = scored[scored < len(ids)]
    data: dict[str, Any] = {"why": list(choice.reasons), "shown": len(ids)}
    if np.isfinite(choice.influence):
        data |= {"influence": float(f"{choice.influence:.3g}"), "share": round(choice.share, 4)}
    data["texts"], data["sizes"] = spans([texts.get(int(token), _UNKNOWN) for token in ids])
    data["scored"] = scored.tolist()
    data["models"] = [_ranks(table, len(scored), texts, strings) for table in tables]
    return data


_UNKNOWN = "\ufffd"
_GAP = -1  # the id of a token that was not kept


def _sequence(table: RankTable, unscored: pd.DataFrame, number: int) -> tuple[IntArray, IntArray]:
    """The ids of a document's tokens in order, and the places of those with a rank among them.

    A token that was not kept is a gap; of several in a row one stands.
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
    """What one model says of a document's first tokens.

    `top` has the first choice at each token whose rank is not 1. `p` is -ln p in steps of `P_STEP`.
    """
    rank = table.rank[:count]
    data: dict[str, Any] = {"rank": rank.tolist()}
    if "logprob" in table.table.column_names:
        steps = np.rint(np.clip(-table.column("logprob")[:count], 0, 1000) / P_STEP)
        data["p"] = steps.astype(np.int64).tolist()
    if "top" in table.table.column_names:
        data["top"] = _places(table.column("top")[:count][rank > 1], texts, strings)
    if table.compared:
        data["reference_top"] = _places(table.column("reference_top")[:count], texts, strings)
        data["reference_rank"] = table.column("reference_rank")[:count].tolist()
    return data


def _places(ids: npt.NDArray[Any], texts: Mapping[int, str], strings: _Strings) -> list[int]:
    places = []
    for token in ids.tolist():
        text = texts.get(token)
        places.append(strings.place(f"id {token}" if text is None else spans([text])[0][0]))
    return places
