"""Join the tokens of documents to words, and compute the surprisal of each word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import character_spans
from rbptrack.ranks.names import IntArray
from rbptrack.ranks.table import RankTable

GAP = -1
"""The token ID that stands for tokens that a measurement did not keep."""

UNKNOWN_TEXT = "\ufffd"
"""The text of a token whose text is unknown."""

_Word = tuple[int, str, float, float, int]  # a row of the result of `word_surprisal`


def word_surprisal(ranks: RankTable, unscored: pd.DataFrame, texts: Mapping[int, str]) -> pd.DataFrame:
    """Return the words of all documents with their surprisal. A word is a text between blanks.

    The surprisal of a word is the sum of -ln p over its tokens, in nats. By the chain rule, this is -ln of the
    probability that the model continues the text with these tokens. Tokens that share a character belong to one word.

    Args:
        ranks: the rank table.
        unscored: the tokens without a rank, with the columns document, position and token.
        texts: the texts of tokens, by token ID.

    Returns:
        One row for each word, in the order of the text: `document` (number of the document), `word`, `surprisal` (nats;
        NaN if a token of the word has no rank or no log-probability), `worst_rank` (the largest rank of its tokens;
        missing if a token has no rank) and `tokens` (their number).

    Raises:
        BadInput: the rows of the rank table are not sorted by document.

    """
    document = ranks.column("document")
    if (document[1:] < document[:-1]).any():
        raise BadInput("the rows of a rank table must be sorted by document: sort its rows")
    numbers, starts = np.unique(document, return_index=True)
    unscored_by_document = dict(tuple(unscored.groupby("document")))
    rows: list[_Word] = []
    for number, start, stop in zip(numbers, starts, [*starts[1:], len(document)], strict=True):
        part = RankTable(ranks.table.slice(start, stop - start), ranks.vocab_size, ranks.strict)
        rows += _words_of_document(part, int(number), unscored_by_document.get(number, unscored[:0]), texts)
    frame = pd.DataFrame(rows, columns=["document", "word", "surprisal", "worst_rank", "tokens"])
    return frame.astype({"document": "int64", "surprisal": "float64", "worst_rank": "Int64", "tokens": "int64"})


def _words_of_document(
    table: RankTable, number: int, unscored: pd.DataFrame, texts: Mapping[int, str]
) -> Iterator[_Word]:
    ids, scored = join_unscored_tokens(table, unscored, number)
    surprisal = np.full(len(ids), np.nan)
    rank = np.full(len(ids), np.nan)
    rank[scored] = table.rank
    surprisal[scored] = -table.column_or("logprob", np.nan)
    span_texts, sizes = character_spans([texts.get(int(token), UNKNOWN_TEXT) for token in ids])
    first_tokens = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    for begin, end in pairwise([*word_starts(span_texts), len(span_texts)]):
        tokens = slice(first_tokens[begin], first_tokens[end])
        word = "".join(span_texts[begin:end]).strip()
        if word:
            yield number, word, surprisal[tokens].sum(), rank[tokens].max(), first_tokens[end] - tokens.start


def word_starts(texts: Sequence[str]) -> list[int]:
    r"""Return the indices of the texts at which a word begins.

    A word begins at a text that begins with a blank, and after a text that ends with a blank.

    Examples:
        >>> word_starts(["The", " ca", "t", " sat", ".\n", "Then"])
        [0, 1, 3, 5]

    """
    return [i for i, text in enumerate(texts) if i == 0 or text[:1].isspace() or texts[i - 1][-1:].isspace()]


def join_unscored_tokens(table: RankTable, unscored: pd.DataFrame, number: int) -> tuple[IntArray, IntArray]:
    """Join the tokens of a document that have a rank with those that have none, in the order of the text.

    Args:
        table: the rank table of the document.
        unscored: the tokens without a rank, of this and other documents.
        number: the number of the document.

    Returns:
        The IDs of the tokens, and the indices of the tokens with a rank. The ID `GAP` stands for one or several tokens
        in a row that the measurement did not keep.

    """
    token = table.column_or("token", GAP).astype(np.int64)
    position = table.column_or("position", np.nan)
    if np.isnan(position).any():
        return token, np.arange(len(token))
    ids = np.full(int(position[-1]) + 1, GAP)
    if len(unscored):
        unscored_rows = unscored[(unscored["document"] == number) & (unscored["position"] < len(ids))]
        ids[unscored_rows["position"].to_numpy(np.int64)] = unscored_rows["token"].to_numpy(np.int64)
    ids[position] = token
    is_kept = (ids != GAP) | (np.append(0, ids[:-1]) != GAP)  # of several gaps in a row, only the first is kept
    is_kept[position] = True
    return ids[is_kept], np.searchsorted(np.flatnonzero(is_kept), position)
