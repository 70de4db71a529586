"""Import log-probabilities of prompts from vLLM, SGLang and servers that echo a prompt.

The file has one JSON response per line, and each response is one document. There are three kinds of responses:

- vLLM returns ranks. Its `rank` is the number of entries that are at least as likely as the token
  (`(x >= values).sum()` in vllm/v1/sample/ops), so it is the paper's rank. The number of ties is unknown.
- SGLang does not return ranks.
- A completion with `"echo": true, "logprobs": 1`, as in OpenAI's older interface, does not return ranks either. It also
  has log-probabilities of the text after the prompt, so `usage.prompt_tokens` is needed to find the end of the prompt.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rbptrack.analysis import BadInput, Imported, ImportedMeasurement, Importer, hub_id, listed, parse_json, read_pairs
from rbptrack.ranks import CE, FloatArray, RankTable

PRECISION_NOTE = (
    "the log-probabilities come from a serving engine. If its logits are bfloat16, they tie at many positions, which "
    "biases RBP_1 and RBP_10; float32 logits are recommended (vLLM: head_dtype=float32; SGLang: --enable-fp32-lm-head)"
)
_TOKEN_ID = re.compile(r"0|[1-9]\d{0,9}", re.ASCII)
_ROUNDING_OF_P = 1.3e-2  # rank times p can exceed 1 by up to this if log-probabilities were rounded to bfloat16
_MAX_LOGPROB = 1e-4  # nats; rounding can make a log-probability larger than 0 by up to this
_MIN_LOGPROB = -1000.0  # nats; smaller values mean minus infinity, such as -9999.0 from vLLM and OpenAI
_LOGPROBS_KEY = re.compile(rb'"(prompt_logprobs|input_token_logprobs|token_logprobs)"')
_NO_ID = -1  # the id of a token whose id is unknown


class Token(NamedTuple):
    """A token of a prompt.

    Attributes:
        position: its index in the prompt.
        id: its id, or `_NO_ID` if it is unknown.
        logprob: ln p, nats. None for the first token, which is not predicted.
        rank: its rank, or 0 if it is unknown.

    """

    position: int
    id: int
    logprob: float | None
    rank: int


class Served(Importer):
    """Log-probabilities of prompts, one response per line: vLLM (with ranks), SGLang, and echoes as in OpenAI's API."""

    model: str = ""
    """the model's name, or its ID on the Hub; empty: the name in the responses"""

    dataset: str = ""
    """name of the texts that were sent"""

    vocab_size: int = 0
    """|V|, the number of the model's logits; required for ranks"""

    sizes: str = ""
    """a CSV with the columns model and non_embedding_params, or the authors' param_count.json"""

    special: tuple[int, ...] = ()
    """ids of the special tokens, such as 1,2. The import then leaves out these tokens and the token after each, as
    rbptrack's own measurements do. If this option is empty, the token after `<s>` is scored
    """

    def takes(self, path: Path) -> bool:
        if path.suffix.lower() != ".jsonl" or not path.is_file():
            return False
        with path.open("rb") as file:
            first = next((line for line in file if line.strip()), b"")
        return _LOGPROBS_KEY.search(first) is not None

    def read(self, path: Path) -> Iterator[Imported]:
        if not self.dataset:
            raise BadInput(f"{path}: name the texts that were sent: dataset=NAME")
        models: set[str] = set()
        engines: set[str] = set()
        places: list[str] = []  # the place of each response in the file
        documents: list[FloatArray] = []  # the scored tokens of each response, (tokens, 4)
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                places.append(f"{path}, line {number}")
                response = _parse_response(line, places[-1])
                models.add(str(response.get("model") or ""))
                try:
                    engine = _find_engine(response)
                    engines.add(engine)
                    documents.append(self._scored_tokens(response, engine))
                except BadInput as error:
                    raise BadInput(f"{places[-1]}: {error}") from error
                except (TypeError, AttributeError, LookupError, ValueError, OverflowError) as error:
                    raise BadInput(f"{places[-1]} is not a response of a known server ({error!r})"[:300]) from error
        if not any(map(len, documents)):
            raise BadInput(f"{path} holds no scored token, so there is nothing to import")
        if len(engines) > 1:
            raise BadInput(f"{path} mixes responses of {listed(sorted(engines))}: import them from separate files")
        model = self.model or "".join(models)
        if not self.model and (len(models) > 1 or not model):
            named_models = ", ".join(sorted(filter(None, models))) or "none"
            raise BadInput(f"{path}: name the model that answered: model=NAME (the responses name {named_models})")
        logprob = np.concatenate(documents)[:, 2]
        columns: dict[str, object] = {
            "dataset": self.dataset,
            "model": model,
            "vocab_size": self.vocab_size or None,
            "non_embedding_params": read_pairs(self.sizes, "model", "non_embedding_params", option="sizes").get(model),
            "num_tokens": len(logprob),
            "documents": sum(len(tokens) > 0 for tokens in documents),
        }
        ranks = None
        if engines == {"vLLM"}:
            ranks = self._make_rank_table(path, places, documents)
        else:
            columns[CE] = -math.fsum(logprob) / len(logprob)
        yield ImportedMeasurement(columns, ranks=ranks, repo=hub_id(model), notes=PRECISION_NOTE)

    def _scored_tokens(self, response: Mapping[str, Any], engine: str) -> FloatArray:
        """Return the scored tokens of a response, (tokens, 4), with the fields of `Token`.

        The first token, special tokens and the token after each special token are not scored.
        """
        tokens = _TOKEN_READERS[engine](response)
        if self.special and engine == "echo":
            raise BadInput("special=... cannot be used: an echo does not contain the ids of its tokens")
        if self.special and tokens[0].id == _NO_ID:
            raise BadInput("special=... needs the id of the first token: ask with return_token_ids=true")
        scored = []
        previous_id = _NO_ID
        for token in tokens:
            if token.logprob is not None and token.id not in self.special and previous_id not in self.special:
                scored.append(token)
            previous_id = token.id
        return np.array(scored, dtype=np.float64).reshape(-1, len(Token._fields))

    def _make_rank_table(self, path: Path, places: Sequence[str], documents: Sequence[FloatArray]) -> RankTable:
        """Make the rank table of all responses, one document each. documents: their scored tokens, (tokens, 4) each."""
        if self.vocab_size < 1:
            raise BadInput(f"{path} has ranks, which need |V|: give vocab_size=N, the number of the model's logits")
        position, token, logprob, rank = np.concatenate(documents).T
        document = np.repeat(np.arange(len(documents)), [len(tokens) for tokens in documents])
        largest = int(max(rank.max(), token.max() + 1))
        if largest > self.vocab_size:
            raise BadInput(f"{path}: its ranks and token ids need a vocab_size of at least {largest:,}")
        p = np.exp(logprob)
        impossible = rank * p > 1 + _ROUNDING_OF_P
        if impossible.any():
            i = int(np.argmax(impossible))
            raise BadInput(
                f"{places[document[i]]}, token {position[i]:.0f} has rank {rank[i]:,.0f} and a probability of "
                f"{p[i]:.4g}: the probabilities of the tokens up to this rank would add up to more than 1"
            )
        return RankTable.from_arrays(
            vocab_size=self.vocab_size,
            document=document,
            position=position,
            field=np.zeros(len(rank)),
            token=token,
            greater=rank - 1,  # there is no column `ties`, because the number of ties is unknown
            logprob=logprob,
        )


def _find_engine(response: Mapping[str, Any]) -> str:
    """Return the engine of a response: `SGLang`, `vLLM`, or `echo` for a server that repeats the prompt."""
    if "meta_info" in response:
        return "SGLang"
    choices = response.get("choices") or [{}]
    echoed = (choices[0].get("logprobs") or {}).get("token_logprobs")
    if echoed and not response.get("prompt_logprobs") and not choices[0].get("prompt_logprobs"):
        return "echo"
    return "vLLM"


def _parse_response(line: bytes, place: str) -> dict[str, Any]:
    """Parse the response in a line. In the output of a batch, it is the body of another object."""
    content = parse_json(line, place, finite=False)  # numbers that are not imported may be NaN
    if isinstance(content, dict) and "response" in content and "custom_id" in content:
        if content.get("error"):
            raise BadInput(f"{place}: the request failed: {content['error']}"[:300])
        envelope = content["response"]
        content = envelope.get("body") if isinstance(envelope, dict) else None
    if not isinstance(content, dict):
        raise BadInput(f"{place}: this is not a JSON object")
    return content


def _sglang_tokens(response: Mapping[str, Any]) -> list[Token]:
    """Return the tokens of a prompt from a response of SGLang."""
    meta_info = response["meta_info"]
    entries = meta_info.get("input_token_logprobs")
    if not entries:
        raise BadInput("input_token_logprobs is missing: ask with return_logprob=true and logprob_start_len=0")
    if len(entries) < meta_info.get("prompt_tokens", 0):
        count = f"{len(entries)} of {meta_info['prompt_tokens']}"
        raise BadInput(f"the response has only {count} tokens: ask with logprob_start_len=0")
    return [_checked_token(position, token_id, logprob) for position, (logprob, token_id, *_) in enumerate(entries)]


def _echo_tokens(response: Mapping[str, Any]) -> list[Token]:
    """Return the tokens of a prompt that a completion repeats, without the tokens that the model wrote after it."""
    if len(response["choices"]) > 1:
        raise BadInput(f"there are {len(response['choices'])} choices: send one prompt per request, with n=1")
    logprobs = response["choices"][0]["logprobs"]["token_logprobs"]
    if logprobs[0] is not None:
        raise BadInput("the prompt is not repeated: ask with echo=true and logprobs=1")
    length = (response.get("usage") or {}).get("prompt_tokens")
    if type(length) is not int or not 0 < length <= len(logprobs):
        raise BadInput(
            f"usage.prompt_tokens is {length!r}, with log-probabilities of {len(logprobs)} tokens: the length of the "
            "prompt must be known"
        )
    return [_checked_token(position, None, logprob) for position, logprob in enumerate(logprobs[:length])]


def _vllm_tokens(response: Mapping[str, Any]) -> list[Token]:
    """Return the tokens of a prompt from vLLM's response to a completion, chat or generate request."""
    choices = response.get("choices") or [{}]
    if len(choices) > 1:
        raise BadInput(f"there are {len(choices)} choices: send one prompt per request, with n=1")
    source = response if response.get("prompt_logprobs") else choices[0]
    entries = source.get("prompt_logprobs")
    if not entries:
        raise BadInput(
            "there are no log-probabilities of a prompt: prompt_logprobs (vLLM), meta_info.input_token_logprobs "
            "(SGLang) or logprobs of an echo"
        )
    ids = source.get("prompt_token_ids") or response.get("prompt_token_ids")
    if ids is not None and len(ids) != len(entries):
        raise BadInput(f"there are {len(entries)} prompt_logprobs, but {len(ids)} prompt_token_ids")
    tokens = []
    for position, entry in enumerate(entries):
        if entry is None and not position:
            tokens.append(_checked_token(0, ids[0] if ids else None, None))
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
        token_id = int(text) if _TOKEN_ID.fullmatch(text) else text
        tokens.append(_checked_token(position, token_id, entry[text]["logprob"], rank))
    return tokens


_TOKEN_READERS: Mapping[str, Callable[[Mapping[str, Any]], list[Token]]] = {
    "SGLang": _sglang_tokens,
    "echo": _echo_tokens,
    "vLLM": _vllm_tokens,
}
"""The function that reads the tokens of a response, by engine."""


def _checked_token(position: int, token_id: object, logprob: object, rank: int = 0) -> Token:
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
        token_id = _NO_ID
    elif not isinstance(token_id, int) or isinstance(token_id, bool) or not 0 <= token_id < 2**31:
        raise BadInput(f"token {position} has the id {token_id!r}; a whole number from 0 is needed")
    if logprob is None and position == 0:
        return Token(0, token_id, None, rank)
    if isinstance(logprob, bool) or not isinstance(logprob, (int, float)) or not logprob <= _MAX_LOGPROB:
        raise BadInput(f"token {position} has the log-probability {logprob!r}; a number of at most 0 is needed")
    if logprob < _MIN_LOGPROB:
        raise BadInput(
            f"token {position} has the log-probability {logprob!r}, which means minus infinity: CE cannot be computed"
        )
    return Token(position, token_id, min(float(logprob), 0.0), rank)
