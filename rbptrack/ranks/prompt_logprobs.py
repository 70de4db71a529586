"""Read the ranks and log-probabilities of the tokens of a prompt from a response of vLLM.

vLLM's `rank` is the number of entries that are at least as likely as the token (`(x >= values).sum()` in
vllm/v1/sample/ops), so it is the paper's rank. The number of ties is unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rbptrack.base.errors import BadInput

NO_ID = -1
"""The id of a token whose id is unknown."""

TOKEN_ID = re.compile(r"0|[1-9]\d{0,9}", re.ASCII)
"""The id of a token as text, such as a key of a JSON object."""

BFLOAT16_ROUNDING = 1.3e-2
"""Nats. ln(rank p) can exceed 0 by up to this if log-probabilities were rounded to bfloat16."""

_MAX_LOGPROB = 1e-4  # nats; rounding can make a log-probability larger than 0 by up to this
_MIN_LOGPROB = -1000.0  # nats; smaller values mean minus infinity, such as -9999.0 from vLLM and OpenAI


class PromptToken(NamedTuple):
    """A token of a prompt.

    Attributes:
        position: its index in the prompt.
        id: its id, or `NO_ID` if it is unknown.
        logprob: ln p, nats. None for the first token, which is not predicted.
        rank: its rank, or 0 if it is unknown.

    """

    position: int
    id: int
    logprob: float | None
    rank: int


def vllm_tokens(response: Mapping[str, Any]) -> list[PromptToken]:
    """Return the tokens of a prompt from vLLM's response to a completion, chat or generate request.

    The tokens up to a rank R are at least as likely as the token with this rank, so R p is at most 1.

    Raises:
        BadInput: the log-probability or rank of a token is missing or impossible, or R p is above 1.

    """
    source = vllm_prompt(response)
    entries = source["prompt_logprobs"]
    ids = source.get("prompt_token_ids") or response.get("prompt_token_ids")
    if ids is not None and len(ids) != len(entries):
        raise BadInput(f"there are {len(entries)} prompt_logprobs, but {len(ids)} prompt_token_ids")
    tokens = []
    for position, entry in enumerate(entries):
        if entry is None and not position:
            tokens.append(checked_token(0, ids[0] if ids else None, None))
            continue
        if ids is None and len(entry) != 1:
            raise BadInput(
                f"token {position} has {len(entry)} entries, and the one of the prompt's own token is unknown: "
                "ask with prompt_logprobs=0 or return_token_ids=true"
            )
        text = next(iter(entry)) if ids is None else str(ids[position])
        if text not in entry:
            raise BadInput(f"token {position}: prompt_logprobs has no entry for the token's id {text}")
        rank = entry[text].get("rank")
        if type(rank) is not int or rank < 1:
            raise BadInput(f"token {position} has the rank {rank!r}; a whole number from 1 is needed")
        token_id = int(text) if TOKEN_ID.fullmatch(text) else text
        token = checked_token(position, token_id, entry[text]["logprob"], rank)
        if token.logprob is not None and math.log(rank) + token.logprob > BFLOAT16_ROUNDING:
            raise BadInput(
                f"token {position} has rank {rank:,} and a probability of {math.exp(token.logprob):.4g}: the "
                "probabilities up to this rank would add up to more than 1"
            )
        tokens.append(token)
    return tokens


def vllm_prompt(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a response of vLLM that has `prompt_logprobs`: the response itself, or its only choice."""
    choices = response.get("choices") or [{}]
    if len(choices) > 1:
        raise BadInput(f"there are {len(choices)} choices: send one prompt per request, with n=1")
    source: Mapping[str, Any] = response if response.get("prompt_logprobs") else choices[0]
    if not source.get("prompt_logprobs"):
        raise BadInput(
            "there are no log-probabilities of a prompt: prompt_logprobs (vLLM), meta_info.input_token_logprobs "
            "(SGLang) or logprobs of an echo"
        )
    return source


def checked_token(position: int, token_id: object, logprob: object, rank: int = 0) -> PromptToken:
    """Check the id and the log-probability of a token, and return the token.

    Args:
        position: the index of the token in the prompt.
        token_id: the id, or None if it is unknown.
        logprob: ln p, in nats. It may be None for the first token.
        rank: the rank, or 0 if it is unknown.

    Raises:
        BadInput: ln p is above 0 or means minus infinity, or the id is not a whole number from 0.

    """
    if token_id is None:
        token_id = NO_ID
    elif not isinstance(token_id, int) or isinstance(token_id, bool) or not 0 <= token_id < 2**31:
        raise BadInput(f"token {position} has the id {token_id!r}; a whole number from 0 is needed")
    if logprob is None and position == 0:
        return PromptToken(0, token_id, None, rank)
    if isinstance(logprob, bool) or not isinstance(logprob, (int, float)) or not logprob <= _MAX_LOGPROB:
        raise BadInput(f"token {position} has the log-probability {logprob!r}; a number of at most 0 is needed")
    if logprob < _MIN_LOGPROB:
        raise BadInput(
            f"token {position} has the log-probability {logprob!r}, which means minus infinity: CE cannot be computed"
        )
    return PromptToken(position, token_id, min(float(logprob), 0.0), rank)
