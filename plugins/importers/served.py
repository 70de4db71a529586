"""Import log-probabilities of prompts from vLLM, SGLang and servers that echo a prompt.

The file has one JSON response per line, and each response is one document. There are three kinds of responses:

- vLLM returns ranks, ties included. The number of ties is unknown. If you can reach the server, measure with
  `model.server=` instead: rbptrack then tokenizes the texts, and checks what the server serves.
- SGLang does not return ranks.
- A completion with `"echo": true, "logprobs": 1`, as in OpenAI's older interface, does not return ranks either. It also
  has log-probabilities of the text after the prompt, so `usage.prompt_tokens` is needed to find the end of the prompt.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rbptrack.analysis import BadInput, Imported, ImportedMeasurement, Importer, hub_id, listed, parse_json, read_pairs
from rbptrack.ranks import (
    CE,
    NO_ID,
    FloatArray,
    PromptToken,
    RankTable,
    checked_token,
    vllm_tokens,
)

PRECISION_NOTE = (
    "the log-probabilities come from a serving engine. If its logits are bfloat16, they tie at many positions, which "
    "biases RBP_1 and RBP_10; float32 logits are recommended (vLLM: head_dtype=float32; SGLang: --enable-fp32-lm-head)"
)
_LOGPROBS_KEY = re.compile(rb'"(prompt_logprobs|input_token_logprobs|token_logprobs)"')


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
        documents: list[FloatArray] = []  # the scored tokens of each response, (tokens, 4)
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                place = f"{path}, line {number}"
                response = _parse_response(line, place)
                models.add(str(response.get("model") or ""))
                try:
                    engine = _find_engine(response)
                    engines.add(engine)
                    documents.append(self._scored_tokens(response, engine))
                except BadInput as error:
                    raise BadInput(f"{place}: {error}") from error
                except (TypeError, AttributeError, LookupError, ValueError, OverflowError) as error:
                    raise BadInput(f"{place} is not a response of a known server ({error!r})"[:300]) from error
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
            ranks = self._make_rank_table(path, documents)
        else:
            columns[CE] = -math.fsum(logprob) / len(logprob)
        yield ImportedMeasurement(columns, ranks=ranks, repo=hub_id(model), notes=PRECISION_NOTE)

    def _scored_tokens(self, response: Mapping[str, Any], engine: str) -> FloatArray:
        """Return the scored tokens of a response, (tokens, 4), with the fields of `PromptToken`.

        The first token, special tokens and the token after each special token are not scored.
        """
        tokens = _TOKEN_READERS[engine](response)
        if self.special and engine == "echo":
            raise BadInput("special=... cannot be used: an echo does not contain the ids of its tokens")
        if self.special and tokens[0].id == NO_ID:
            raise BadInput("special=... needs the id of the first token: ask with return_token_ids=true")
        scored = []
        previous_id = NO_ID
        for token in tokens:
            if token.logprob is not None and token.id not in self.special and previous_id not in self.special:
                scored.append(token)
            previous_id = token.id
        return np.array(scored, dtype=np.float64).reshape(-1, len(PromptToken._fields))

    def _make_rank_table(self, path: Path, documents: Sequence[FloatArray]) -> RankTable:
        """Make the rank table of all responses, one document each. documents: their scored tokens, (tokens, 4) each."""
        if self.vocab_size < 1:
            raise BadInput(f"{path} has ranks, which need |V|: give vocab_size=N, the number of the model's logits")
        position, token, logprob, rank = np.concatenate(documents).T
        document = np.repeat(np.arange(len(documents)), [len(tokens) for tokens in documents])
        largest = int(max(rank.max(), token.max() + 1))
        if largest > self.vocab_size:
            raise BadInput(f"{path}: its ranks and token ids need a vocab_size of at least {largest:,}")
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


def _sglang_tokens(response: Mapping[str, Any]) -> list[PromptToken]:
    """Return the tokens of a prompt from a response of SGLang."""
    meta_info = response["meta_info"]
    entries = meta_info.get("input_token_logprobs")
    if not entries:
        raise BadInput("input_token_logprobs is missing: ask with return_logprob=true and logprob_start_len=0")
    if len(entries) < meta_info.get("prompt_tokens", 0):
        count = f"{len(entries)} of {meta_info['prompt_tokens']}"
        raise BadInput(f"the response has only {count} tokens: ask with logprob_start_len=0")
    return [checked_token(position, token_id, logprob) for position, (logprob, token_id, *_) in enumerate(entries)]


def _echo_tokens(response: Mapping[str, Any]) -> list[PromptToken]:
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
    return [checked_token(position, None, logprob) for position, logprob in enumerate(logprobs[:length])]


_TOKEN_READERS: Mapping[str, Callable[[Mapping[str, Any]], list[PromptToken]]] = {
    "SGLang": _sglang_tokens,
    "echo": _echo_tokens,
    "vLLM": vllm_tokens,
}
"""The function that reads the tokens of a response, by engine."""
