"""Counts of windows and of whole answers by document, and the statistics of these counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from rbptrack.ranks import DocumentSums, FloatArray, RankTable

# The columns of counts of windows.
WINDOWS = 0  # windows
SUCCEEDED = 1  # windows in which all tokens are hits
TOKENS = 2  # tokens of the stretches of at least N tokens
HITS = 3  # hits in these stretches
RUNS = 4  # runs of at least N hits
MIXTURE = 5  # expected number of windows that succeed if the hits of the document were in random order

# The columns of counts of whole answers.
ANSWER_TOKENS = 0  # tokens of whole answers
ANSWER_SUCCEEDED = 1  # whole answers in which all tokens are hits
ANSWER_HITS = 2  # hits among the tokens
BY_LENGTH = slice(3, None)  # whole answers of each length


@dataclass(frozen=True)
class Successes(DocumentSums):
    """Counts of windows and of whole answers, by document.

    Attributes:
        windows: the counts of windows at each k and N, (documents, ks, lengths, 6). The columns are `WINDOWS` to
            `MIXTURE`.
        answers: the counts of whole answers at each k, (documents, ks, 3 + answer_lengths). The columns are
            `ANSWER_TOKENS` to `BY_LENGTH`.
        answer_lengths: the numbers of tokens that answers have, ascending.

    """

    SUMMED = ("windows", "answers")

    windows: FloatArray
    answers: FloatArray
    answer_lengths: FloatArray


def count_windows(piece: RankTable, ks: Sequence[int], lengths: Sequence[int]) -> FloatArray:
    """Count windows, hits and runs of hits by document, (documents, ks, lengths, 6).

    Source: arXiv 2510.20387, eqs. 6 to 8.

    Args:
        piece: a rank table of whole documents, with rows in the order of the text.
        ks: the k. A hit is a token with R <= k.
        lengths: the numbers N of tokens of a window.

    """
    present, document = piece.documents
    counts = np.zeros((len(present), len(ks), len(lengths), 6))
    begins_stretch = _begins_stretch(piece)
    stretches = np.flatnonzero(begins_stretch)  # the indices of their first tokens
    stretch_length = np.diff(stretches, append=len(piece))
    for i, k in enumerate(ks):
        hit = piece.rank <= k
        stretch_hits = np.add.reduceat(hit, stretches, dtype=np.int64)
        begins_series = begins_stretch.copy()  # whether a token begins a series of hits or of misses
        begins_series[1:] |= hit[1:] != hit[:-1]
        series = np.flatnonzero(begins_series)
        is_run = hit[series]
        runs = series[is_run]
        run_length = np.diff(series, append=len(piece))[is_run]
        for j, n in enumerate(lengths):
            has_window = stretch_length >= n
            sum_stretches = partial(np.bincount, document[stretches[has_window]], minlength=len(present))
            counts[:, i, j, WINDOWS] = sum_stretches(weights=stretch_length[has_window] - n + 1)
            counts[:, i, j, TOKENS] = sum_stretches(weights=stretch_length[has_window])
            counts[:, i, j, HITS] = sum_stretches(weights=stretch_hits[has_window])
            has_success = run_length >= n
            sum_runs = partial(np.bincount, document[runs[has_success]], minlength=len(present))
            counts[:, i, j, SUCCEEDED] = sum_runs(weights=run_length[has_success] - n + 1)
            counts[:, i, j, RUNS] = sum_runs()
            probability = probability_of_hits(counts[:, i, j, HITS], counts[:, i, j, TOKENS], n)
            counts[:, i, j, MIXTURE] = counts[:, i, j, WINDOWS] * probability
    return counts


def probability_of_hits(hits: FloatArray, tokens: FloatArray, n: int) -> FloatArray:
    """Return the probability that n random tokens of a document are all hits, C(hits, n) / C(tokens, n), (documents,).

    It is an unbiased estimate of RBP_k^n of the document. The n-th power of a measured share would be biased.
    """
    probability = np.zeros(len(hits))
    possible = hits >= n
    i = np.arange(n)[:, None]
    probability[possible] = ((hits[possible] - i) / (tokens[possible] - i)).prod(axis=0)
    return probability


def _begins_stretch(piece: RankTable) -> npt.NDArray[np.bool_]:
    """Return whether each token begins a stretch of consecutive scored tokens of one document, (tokens,)."""
    document = piece.column("document")
    position = piece.column("position")
    begins = np.ones(len(piece), dtype=np.bool_)
    begins[1:] = (document[1:] != document[:-1]) | (position[1:] != position[:-1] + 1)
    return begins


def count_whole_answers(piece: RankTable, ks: Sequence[int], last_field: int, cut_at: float) -> FloatArray:
    """Count the tokens and the hits at each k of each document's answer, (documents, 1 + ks).

    An answer is the last of at least two fields. It is whole if the token before it and all of its tokens were
    scored, and the document was not cut inside it. A document without a whole answer has zeros.

    Args:
        piece: a rank table of whole documents.
        ks: the k. A hit is a token with R <= k.
        last_field: the number of the last field.
        cut_at: the number of tokens that documents were truncated to; infinite if they were not truncated.

    """
    present, document = piece.documents
    field = piece.column("field")
    in_answer = field == last_field
    gaps = piece.sum_by_document(in_answer & _begins_stretch(piece))
    last_position = np.zeros(len(present))
    np.maximum.at(last_position, document[in_answer], piece.column("position")[in_answer])
    is_whole = (gaps == 0) & (last_position < cut_at - 1)
    counts = [piece.sum_by_document(in_answer)]
    for k in ks:
        counts.append(piece.sum_by_document(in_answer & (piece.rank <= k)))
    return np.where(is_whole[:, None], np.column_stack(counts), 0.0)


def neg_log_p(totals: FloatArray) -> FloatArray:
    """Return -ln p_N from counts of windows, (..., 6) -> (...)."""
    return np.asarray(-np.log(totals[..., SUCCEEDED] / totals[..., WINDOWS]))


def n_eff(totals: FloatArray) -> FloatArray:
    """Return N_eff = ln p_N / ln RBP_k from counts of windows, (..., 6) -> (...)."""
    return np.asarray(-neg_log_p(totals) / np.log(totals[..., HITS] / totals[..., TOKENS]))


def ln_n_eff(totals: FloatArray) -> FloatArray:
    """Return ln N_eff from counts of windows, (..., 6) -> (...)."""
    return np.asarray(np.log(n_eff(totals)))


def ln_against_mixture(totals: FloatArray) -> FloatArray:
    """Return ln of p_N over the mixture over documents, from counts of windows, (..., 6) -> (...)."""
    return np.asarray(np.log(totals[..., SUCCEEDED] / totals[..., MIXTURE]))


def expected_successes(lengths: FloatArray, totals: FloatArray) -> FloatArray:
    """Return how many whole answers would succeed if tokens were independent: the sum of RBP_k^length, (...).

    Source: arXiv 2510.20387, eq. 6, with a whole answer as the window.

    Args:
        lengths: the lengths of answers in tokens, (lengths,).
        totals: counts of whole answers, (..., 3 + lengths).

    """
    rbp = totals[..., ANSWER_HITS] / totals[..., ANSWER_TOKENS]
    return np.asarray((totals[..., BY_LENGTH] * rbp[..., None] ** lengths).sum(axis=-1))


def ln_against_expected(lengths: FloatArray, totals: FloatArray) -> FloatArray:
    """Return ln of the number of whole answers that succeed over `expected_successes`, from the same counts, (...)."""
    return np.asarray(np.log(totals[..., ANSWER_SUCCEEDED] / expected_successes(lengths, totals)))
