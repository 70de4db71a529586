"""Read and check the ranks and log-probabilities in a vLLM server's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rbptrack.base.errors import BadInput
from rbptrack.ranks import FloatArray, IntArray, vllm_tokens
from rbptrack.ranks.prompt_logprobs import vllm_prompt
from rbptrack.sources.server_connection import shown

MALFORMED = (TypeError, AttributeError, LookupError, ValueError, OverflowError)  # from reading another JSON object
PROBE_ENTRIES = 20  # the largest number of entries of a token that vLLM returns by default
# Logits with 8 significant bits (above .25 in magnitude) or 11 (above 1) are multiples of 2^-10, and tie often.
_GRID = 2.0**-10
_GRID_TOLERANCE = 5e-5  # nats; float32 rounds ln p by less
_MANY_ON_GRID = 0.8  # by chance, a tenth of all differences are this close to the grid
_MANY_TIES = 0.08  # shares of entries that equal another entry: about .2 in bfloat16, .03 in float16, 1e-4 in float32
_FEW_TIES = 0.01


def read_answer(response: Mapping[str, Any], ids: Sequence[int], vocab_size: int) -> tuple[IntArray, FloatArray]:
    """Return the ranks and log-probabilities of the tokens that a prompt predicts: all but its first.

    Args:
        response: the response of vLLM to the prompt.
        ids: the token ids of the prompt, (tokens,).
        vocab_size: |V|.

    Returns:
        The ranks, int64 (tokens - 1,), and ln p in nats, float64 (tokens - 1,).

    Raises:
        BadInput: the response has other tokens, a rank above |V|, or a rank that contradicts its probability.

    """
    try:
        tokens = vllm_tokens(response)
    except BadInput as error:
        raise BadInput(shown(error)) from error
    except MALFORMED as error:
        raise BadInput("the answer does not list prompt_logprobs as vLLM does") from error
    if [token.id for token in tokens] != list(ids):
        raise BadInput("the answer has other token ids than the request")
    largest = max(token.rank for token in tokens)
    if largest > vocab_size:
        raise BadInput(f"a token has rank {largest:,}, but the model has only {vocab_size:,} entries")
    rank = np.array([token.rank for token in tokens[1:]], dtype=np.int64)
    logprob = np.array([token.logprob for token in tokens[1:]], dtype=np.float64)
    return rank, logprob


def find_head_dtype(response: Mapping[str, Any]) -> str:
    """Find the precision of logits from the most likely entries of each token of a prompt.

    Logits with few significant bits often equal each other, and their differences are multiples of a power of two.

    Returns:
        `bfloat16`, `float16`, `float32` or `unknown`.

    """
    ties = 0
    on_grid = 0
    count = 0
    for entry in vllm_prompt(response)["prompt_logprobs"][1:]:
        logprobs = sorted((item["logprob"] for item in entry.values()), reverse=True)[:PROBE_ENTRIES]
        for above, below in pairwise(logprobs):
            difference = above - below
            count += 1
            ties += difference == 0
            on_grid += abs(difference / _GRID - round(difference / _GRID)) * _GRID < _GRID_TOLERANCE
    if not count:
        return "unknown"
    if on_grid / count > _MANY_ON_GRID:
        return "bfloat16" if ties / count > _MANY_TIES else "float16"
    return "float32" if ties / count < _FEW_TIES else "unknown"
