"""Render the reading page, an HTML file with texts in which each token is coloured by its rank.

The page loads nothing from the network. Texts may contain harmful HTML. The page therefore holds them as compressed
JSON, and `reading.js` inserts them as text. A content security policy forbids all other scripts.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rbptrack.analysis import Runs
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.formatting import character_spans, compact, counted
from rbptrack.ranks import DocumentCounts, RankTable
from rbptrack.ranks.words import UNKNOWN_TEXT, join_unscored_tokens
from rbptrack.reporting.templates import compress_text, families_and_datasets, load_template
from rbptrack.reporting.token_sets import (
    MAX_SHARE,
    ChosenDocument,
    TokenSet,
    choose_documents,
    find_documents,
    find_token_sets,
    read_counts,
    read_ranks,
)

MAX_TOKENS = 20_000
"""The number of tokens that a page shows by default."""

P_STEP = 0.02
"""The page rounds -ln p to multiples of this step, so p has an error of at most 1%."""

_RECIPE = ("dtype", "weights", "checkpoint", "training_tokens", "seed")
_EQUAL_SIZES = 1.25  # two models have equal sizes if S differs by at most this factor
_PROSE = (0.75, 0.5)  # the smallest shares of letters among the signs of a readable text and of other texts


def render_reading(
    runs: Runs, *, documents: Sequence[str] = (), tokens: int = MAX_TOKENS, command: str = ""
) -> tuple[str, list[str]]:
    """Render the reading page of measurements.

    Args:
        runs: the measurements. Those that scored the same tokens share a view of the page.
        documents: the IDs or the numbers of the documents to show. By default, the page shows the documents that decide
            the exponent of RBP_10, the documents in which the largest and the smallest model differ most, and the first
            documents.
        tokens: the largest number of tokens on the page.
        command: the command line that made the page. It is shown at the end of the page.

    Returns:
        The HTML, and notes on what the page leaves out.

    Raises:
        BadInput: a document does not exist, or no measurement has ranks and texts of tokens.
        Unreadable: the ranks of no measurement can be read.

    """
    notes: list[str] = []
    sets = []
    candidates = find_token_sets(runs, notes)
    for token_set in candidates:
        try:
            sets.append(_set_data(runs, token_set, documents, max(1, tokens // len(candidates)), notes))
        except RbptrackError as error:
            if len(candidates) == 1:
                raise
            notes.append(f"{token_set.label}: {error}")
    if not sets:
        raise BadInput("; ".join(notes) or "no measurement has ranks")
    data = {"sets": sets, "step": P_STEP}
    folder = Path(__file__).parent
    script = "".join((folder / name).read_text(encoding="utf-8") for name in ("shared.js", "reading.js"))
    page = load_template("reading.html").render(
        other_models=_describe_other_models([token_set["models"] for token_set in sets]),
        title=families_and_datasets(runs.frame),
        data=compress_text(json.dumps(data, ensure_ascii=False, separators=(",", ":"))),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        notes=notes,
        command=command,
    )
    return page, notes


def _describe_ranks(token_set: TokenSet) -> Iterator[str]:
    """Yield notes on how the measurements of a set were made, if they have strict ranks or truncated documents."""
    row = token_set.rows.iloc[0]
    if (token_set.rows["rank"] == "strict").any():
        yield f"{token_set.label}: a strict rank is 1 plus the number of tokens that are more likely (rank=strict)."
    if pd.notna(row["sequence"]) and pd.notna(row["seq_len"]) and row["sequence"] == "truncate":
        yield (
            f"{token_set.label}: only the first {row['seq_len']:,} tokens of each document were measured "
            "(dataset.sequence=truncate)."
        )


def _set_data(
    runs: Runs, token_set: TokenSet, requested: Sequence[str], max_tokens: int, notes: list[str]
) -> dict[str, Any]:
    """Return the page's data of one set: its models and its documents.

    Args:
        runs: the measurements of the page.
        token_set: the measurements of the set.
        requested: the IDs or numbers of the documents that the user named. If empty, the documents are chosen.
        max_tokens: the largest number of tokens to show.
        notes: the notes of the page. Notes on what is left out are added.

    """
    readable = read_counts(runs, token_set, notes)
    notes += _describe_ranks(readable)
    texts = _token_texts(runs, readable)
    run_id = str(readable.rows["run_id"].iloc[0])
    listing = runs.documents(run_id)
    ids = {int(number): str(id_) for number, id_ in zip(listing["document"], listing["id"], strict=True)}
    lengths = {int(number): int(length) for number, length in zip(listing["document"], listing["tokens"], strict=True)}
    chosen = find_documents(readable, requested, ids) if requested else choose_documents(readable, max_tokens)
    unscored = _first_with_rows(runs.unscored(run_id) for run_id in readable.rows["run_id"])
    readable, tables = read_ranks(runs, readable, [document.number for document in chosen], notes)
    strings = _Strings()
    documents: list[dict[str, Any]] = []
    remaining = max_tokens
    for document in chosen:
        if remaining <= 0:
            break
        limit = remaining if requested else max(1, int(remaining * MAX_SHARE))
        slices = [_slice_document(table, document.number) for table in tables]
        data = _document_data(slices, unscored, document, texts, strings, limit)
        remaining -= data["shown"]
        data |= {"id": ids.get(document.number, str(document.number)), "number": document.number}
        data |= _document_metrics(readable.counts, document.number, lengths.get(document.number, 0))
        documents.append(data)
    small, large = readable.compared
    for data in documents:
        data["gain"] = _largest_gain(data, small, large)
    if not requested:  # the page opens at the first document
        documents.sort(key=_order_of_interest)
    if requested and len(documents) < len(chosen):
        left_out = counted(len(chosen) - len(documents), "document")
        shown_tokens = sum(data["shown"] for data in documents)
        notes.append(f"{readable.label}: {left_out} left out after {shown_tokens:,} tokens. `--tokens N` shows more.")
    return {
        "label": readable.label,
        "dataset": str(readable.rows["dataset"].iloc[0]),
        "models": _models_data(readable.rows),
        "law_family": readable.law_family,
        "compared": [small, large],
        "num_documents": len(readable.counts[0].document),
        "strings": strings.texts,
        "documents": documents,
    }


def _order_of_interest(data: Mapping[str, Any]) -> tuple[int, float]:
    """Return a key that sorts documents: the most readable ones first, and of these the one with the largest gain.

    Prose comes before code and other texts with many signs, and these before diagrams and tables of numbers.
    """
    signs = [sign for sign in "".join(data["texts"]) if not sign.isspace()]
    letters = sum(sign.isalpha() for sign in signs) / max(1, len(signs))
    gain = data["gain"]
    return sum(letters < share for share in _PROSE), -gain["before"] / gain["after"] if gain else 0.0


def _largest_gain(data: Mapping[str, Any], small: int, large: int) -> dict[str, Any] | None:
    """Return the token of a document at which a larger model gains most in rank, by the ratio of the two ranks.

    Tokens without a letter or a digit are left out. The result is None if the model gains at no token.

    Args:
        data: the page's data of the document.
        small: the index of the smaller model.
        large: the index of the larger model.

    """
    span_of_token = np.repeat(np.arange(len(data["sizes"])), data["sizes"])
    best: dict[str, Any] | None = None
    largest_ratio = 1.0
    ranks = zip(data["scored"], data["models"][small]["rank"], data["models"][large]["rank"], strict=True)
    for token, before, after in ranks:
        text = data["texts"][span_of_token[token]]
        if any(sign.isalnum() for sign in text) and before / after > largest_ratio:
            largest_ratio = before / after
            best = {"token": token, "text": text.strip(), "before": before, "after": after}
    return best


def _document_metrics(counts: Sequence[DocumentCounts], number: int, length: int) -> dict[str, Any]:
    """Return the number of tokens of a document, and its CE and RBP_10 in each model, from counts at k = 1 and k = 10.

    `length` is the number of its tokens with and without a rank, and 0 if it is unknown.
    """
    index = int(np.searchsorted(counts[0].document, number))
    return {
        "tokens": max(length, int(counts[0].tokens[index])),
        "ce": [round(float(model_counts.nats[index] / model_counts.tokens[index]), 4) for model_counts in counts],
        "rbp": [round(float(model_counts.hits[index, 1] / model_counts.tokens[index]), 4) for model_counts in counts],
    }


def _models_data(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the page's data of each model: its name, its title with S, its family, and models to compare it with.

    `smaller` is the index of the next smaller model of its family, or None. If models of the family differ in more than
    the size, a model with the same precision, quantisation and checkpoint is preferred. `earlier` is the index of the
    previous checkpoint. `equal` is the index of a model with an equal S of another family or another precision.
    """
    families = rows["family"].fillna("").tolist()
    recipes = rows[list(_RECIPE)].astype("string").fillna("").agg("|".join, axis=1).tolist()
    s = rows["non_embedding_params"].where(rows["non_embedding_params"] > 0).to_numpy(np.float64, na_value=np.nan)
    tokens = rows["training_tokens"].to_numpy(np.float64, na_value=np.nan)
    models: list[dict[str, Any]] = []
    for i, name in enumerate(_short_names(rows)):
        family = [j for j in range(len(s)) if families[j] == families[i]]
        smaller = [j for j in family if s[j] < s[i]]
        same_recipe = [j for j in smaller if recipes[j] == recipes[i]]
        earlier = [j for j in family if s[j] == s[i] and tokens[j] < tokens[i]]
        differences = np.abs(np.log(s / s[i]))
        is_near = differences <= math.log(_EQUAL_SIZES)
        is_near[[i, *same_recipe, *earlier]] = False
        model = {"name": name, "title": f"{name} (S = {compact(s[i])})" if s[i] > 0 else name, "family": families[i]}
        model["smaller"] = max(same_recipe or smaller, default=None)
        model["earlier"] = max(earlier, default=None)
        model["equal"] = min(np.flatnonzero(is_near).tolist(), key=lambda j: (differences[j], j), default=None)
        models.append(model)
    return models


def _describe_other_models(models_by_set: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Say what the slider chooses; empty if every set has one model.

    Args:
        models_by_set: the models of each set, as `_models_data` returns them.

    """
    if all(len(models) == 1 for models in models_by_set):
        return ""
    for models in models_by_set:
        if len({model["family"] for model in models}) > 1 or any(model["equal"] is not None for model in models):
            return "another model"
    return "a smaller or larger model"


def _short_names(rows: pd.DataFrame) -> list[str]:
    """Return the names of measurements without the dataset, and without the words after an @ that all names have."""
    names = [str(row["name"]).replace(f"/{row['dataset']}", "", 1).split("@") for row in rows.to_dict("records")]
    shared = set.intersection(*(set(marks) for _, *marks in names)) if len(names) > 1 else set()
    return ["@".join([name, *(mark for mark in marks if mark not in shared)]) for name, *marks in names]


def _token_texts(runs: Runs, token_set: TokenSet) -> dict[int, str]:
    """Return the texts of tokens from all measurements, by token ID. Raises BadInput if no measurement has texts."""
    texts: dict[int, str] = {}
    for run_id in token_set.rows["run_id"]:
        texts = {**runs.saved_token_texts(run_id), **texts}
    if not texts:
        raise BadInput(f"{token_set.label}: the texts of tokens were not saved, so the page would show no text")
    return texts


def _first_with_rows(frames: Iterator[pd.DataFrame]) -> pd.DataFrame:
    """Return the first table that has rows, or else the last table."""
    frame = pd.DataFrame()
    for frame in frames:
        if len(frame):
            return frame
    return frame


def _slice_document(table: RankTable, number: int) -> RankTable:
    document = table.column("document")
    start, stop = np.searchsorted(document, [number, number + 1])
    return RankTable(table.table.slice(start, stop - start), table.vocab_size, table.strict)


class _Strings:
    """The distinct texts of first choices, to which the page's data refers by index."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._index_of_text: dict[str, int] = {}

    def add(self, text: str) -> int:
        """Add a text if it is new, and return its index."""
        if text not in self._index_of_text:
            self._index_of_text[text] = len(self.texts)
            self.texts.append(text)
        return self._index_of_text[text]


def _document_data(
    tables: Sequence[RankTable],
    unscored: pd.DataFrame,
    document: ChosenDocument,
    texts: Mapping[int, str],
    strings: _Strings,
    max_tokens: int,
) -> dict[str, Any]:
    """Return the page's data of one document: its spans of text, and the ranks of its tokens in each model.

    A span is one token, or several tokens that share a character. `scored` has the indices of the tokens with a rank.

    Args:
        tables: the rank table of the document for each model.
        unscored: the tokens without a rank, of this and other documents.
        document: the document.
        texts: the texts of tokens, by token ID.
        strings: the texts of first choices. New ones are added.
        max_tokens: the largest number of tokens to show.

    """
    ids, scored = join_unscored_tokens(tables[0], unscored, document.number)
    ids = ids[:max_tokens]
    scored = scored[scored < len(ids)]
    data: dict[str, Any] = {"reasons": list(document.reasons), "shown": len(ids)}
    if np.isfinite(document.influence):
        data |= {"influence": float(f"{document.influence:.3g}"), "share": round(document.share, 4)}
    data["texts"], data["sizes"] = character_spans([texts.get(int(token), UNKNOWN_TEXT) for token in ids])
    data["scored"] = scored.tolist()
    data["models"] = [_ranks_data(table, len(scored), texts, strings) for table in tables]
    return data


def _ranks_data(table: RankTable, count: int, texts: Mapping[int, str], strings: _Strings) -> dict[str, Any]:
    """Return the page's data of one model on the first `count` scored tokens of a document.

    `rank` has the ranks. `nll_steps` has -ln p as multiples of `P_STEP`. `top` has the model's first choice at each
    token with a rank above 1, as an index in `strings`. With a reference model, `reference_top` and `reference_rank`
    have the reference's first choice at each token and the model's rank of it.
    """
    rank = table.rank[:count]
    steps = np.rint(np.clip(-table.column("logprob")[:count], 0, 1000) / P_STEP)
    data: dict[str, Any] = {"rank": rank.tolist(), "nll_steps": steps.astype(np.int64).tolist()}
    if "top" in table.table.column_names:
        data["top"] = _text_indices(table.column("top")[:count][rank > 1], texts, strings)
    if table.has_reference:
        data["reference_top"] = _text_indices(table.column("reference_top")[:count], texts, strings)
        data["reference_rank"] = table.column("reference_rank")[:count].tolist()
    return data


def _text_indices(ids: npt.NDArray[Any], texts: Mapping[int, str], strings: _Strings) -> list[int]:
    """Return the index in `strings` of each token's text. New texts are added. A token without a text is `id N`."""
    indices = []
    for token in ids.tolist():
        text = texts.get(token)
        indices.append(strings.add(f"id {token}" if text is None else character_spans([text])[0][0]))
    return indices
