"""Prompt log-probabilities of vLLM and SGLang, as JSON lines: one response a document, as their servers gave it.

vLLM's `rank` is the number of entries at least as likely as the token (`(x >= values).sum()`, vllm/v1/sample/ops), so
ties count: the paper's rank is known, and how many of it are ties is not. SGLang gives no ranks.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rbptrack.analysis import BadInput
from rbptrack.analysis.importing import (
    Fault,
    Imported,
    ImportedMeasurement,
    Importer,
    Peek,
    first_line,
    limits,
    user_path,
)
from rbptrack.ranks import ABOVE_ZERO, CE, RankTable

from .authors import check_vocab_size, read_sizes

NOTE = (
    "a serving engine's log-probabilities: where its logits are bfloat16 they tie at many positions, which biases "
    "RBP_1 and RBP_10; float32 logits are recommended (vLLM: head_dtype=float32; SGLang: --enable-fp32-lm-head)"
)
_VLLM = "vllm"
_SGLANG = "sglang"
_ID = re.compile(r"0|[1-9]\d{0,9}", re.ASCII)
_ROUNDED = 1e-3  # of rank times p: log-probabilities in float32, printed with few digits
_ROUNDED_TO_BFLOAT16 = 1.3e-2


class _Wrong(ValueError):
    """A faulty line."""


@dataclass
class _Scored:
    """The scored tokens of all documents; ranks of vLLM only.

    Attributes:
        special: ids that are not scored, nor is the token after one of them, as in rbptrack's own measurements.
        line: where each document stands in the file, from 1.

    """

    special: frozenset[int] = frozenset()
    line: list[int] = field(default_factory=list)
    document: array[int] = field(default_factory=lambda: array("i"))
    position: array[int] = field(default_factory=lambda: array("i"))
    token: array[int] = field(default_factory=lambda: array("i"))
    logprob: array[float] = field(default_factory=lambda: array("d"))
    rank: array[int] = field(default_factory=lambda: array("i"))


@dataclass(kw_only=True)
class Served(Importer):
    """Prompt log-probabilities of vLLM and SGLang, as JSON lines: one response a document, as their servers gave it.

    Of vLLM ranks are imported, of SGLang, which gives none, CE alone. Lines of an OpenAI batch's output are taken, too.

    Attributes:
        model: its name or hub id; empty: the one that every response names.
        dataset: the name of the texts that were sent.
        vocab_size: |V|, the number of logits that the model gives; needed with ranks.
        sizes: a CSV with the columns model and non_embedding_params.
        special: the tokenizer's special ids, such as 1,2. They are not scored, and neither is a token that follows one,
            as in rbptrack's own measurements; without them the token after `<s>` is scored.

    """

    name: ClassVar[str] = "served"
    model: str = ""
    dataset: str = ""
    vocab_size: int = 0
    sizes: str = ""
    special: list[int] = field(default_factory=list)

    def takes(self, file: Peek) -> bool:
        """Return a .jsonl file."""
        return file.suffix == ".jsonl"

    def read(self, path: Path) -> Iterator[Imported]:
        """Yield the one measurement of the file."""
        check_vocab_size(self.vocab_size)
        if not self.dataset:
            raise BadInput(f"{path}: say which texts were sent: dataset=NAME")
        problems = list[Fault]()
        scored = _Scored(special=frozenset(self.special))
        models = set[str]()
        engines = set[str]()
        for number, line in _lines(path):
            document = len(scored.line)
            scored.line.append(number)
            try:
                answer = _answer(line)
                models.add(str(answer.get("model") or ""))
                engines.add(_read(answer, document, scored))
            except (_Wrong, KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
                other = f"is no response of vLLM or SGLang ({error!r})"
                text = first_line(error) if isinstance(error, _Wrong) else other
                problems.append(Fault(f"line {number}", text[:200]))
        if problems:
            yield from problems
            return
        if not scored.logprob:
            raise BadInput(f"{path} holds no scored token: nothing to import")
        if len(engines) > 1:
            raise BadInput(f"{path} mixes responses of vLLM and SGLang: import them from two files")
        if self.vocab_size and engines == {_VLLM}:
            problems += _impossible(scored, self.vocab_size)
        if problems:
            yield from problems
            return
        yield self._measurement(path, scored, engines.pop(), self._model(path, models))

    def _model(self, path: Path, models: set[str]) -> str:
        """Return the model that answered."""
        if not self.model and (len(models) != 1 or "" in models):
            listed = ", ".join(sorted(filter(None, models))) or "none"
            raise BadInput(f"{path}: say which model answered: model=NAME (the responses name {listed})")
        return self.model or models.pop()

    def _measurement(self, path: Path, scored: _Scored, engine: str, model: str) -> ImportedMeasurement:
        sizes = read_sizes(user_path(self.sizes)) if self.sizes else {}
        ranks = _ranks(path, scored, self.vocab_size) if engine == _VLLM else None
        columns: dict[str, object] = {
            "dataset": self.dataset,
            "model": model,
            "vocab_size": self.vocab_size or None,
            "num_tokens": len(scored.logprob),
            "num_documents": len(scored.line),
            "non_embedding_params": sizes.get(model),
        }
        if ranks is None:
            columns[CE] = -math.fsum(scored.logprob) / len(scored.logprob)
        return ImportedMeasurement(columns=columns, ranks=ranks, repo=model, format=engine, notes=NOTE)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield every line that holds something, with its number from 1; none longer than memory takes."""
    number = 0
    with path.open("rb") as file:
        while line := file.readline(limits.BYTES_OF_ANSWER + 1):
            if len(line) > limits.BYTES_OF_ANSWER:
                raise BadInput(f"{path} has a line of more than {limits.BYTES_OF_ANSWER:,} bytes: a line is a document")
            number += 1
            if line.strip():
                yield number, line


def _answer(line: bytes) -> dict[str, Any]:
    """Return the response in a line, taken out of a batch's output where it is one."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"is not JSON: {first_line(error)}") from error
    if not isinstance(answer, dict):
        raise _Wrong("is no JSON object")
    if "response" in answer and "custom_id" in answer:
        if answer.get("error"):
            raise _Wrong(f"is a request that failed: {answer['error']}")
        answer = answer["response"]["body"]
    if "meta_info" not in answer and not _prompt_logprobs(answer):
        raise _Wrong("holds neither prompt_logprobs (vLLM) nor meta_info.input_token_logprobs (SGLang)")
    return dict(answer)


def _prompt_logprobs(answer: Mapping[str, Any]) -> Any:
    """Return the list of vLLM and the ids of the prompt, where they are: of a completion, or of a chat or generate
    request.
    """
    choices = answer.get("choices") or [{}]
    if len(choices) > 1:
        raise _Wrong(f"holds {len(choices)} choices: one prompt a request, n=1")
    holder = answer if answer.get("prompt_logprobs") else choices[0]
    entries = holder.get("prompt_logprobs")
    return entries and (entries, holder.get("prompt_token_ids") or answer.get("prompt_token_ids"))


def _read(answer: Mapping[str, Any], document: int, scored: _Scored) -> str:
    """Take a response's tokens; returns the engine's name."""
    if "meta_info" in answer:
        about = answer["meta_info"]
        entries = about.get("input_token_logprobs")
        if not entries:
            raise _Wrong("has no input_token_logprobs: ask with return_logprob=true and logprob_start_len=0")
        if len(entries) < about.get("prompt_tokens", 0):
            raise _Wrong(f"has {len(entries)} of {about['prompt_tokens']} tokens: ask with logprob_start_len=0")
        before: object = None
        for position, (logprob, token, *_) in enumerate(entries):
            if logprob is None and position:
                raise _Wrong(f"token {position} has no log-probability")
            if logprob is not None:
                _take(scored, document, position, token, logprob, before=before)
            before = token
        return _SGLANG
    entries, ids = _prompt_logprobs(answer)
    if ids is not None and len(ids) != len(entries):
        raise _Wrong(f"has {len(entries)} prompt_logprobs and {len(ids)} prompt_token_ids")
    if ids is None and scored.special:
        raise _Wrong("does not say its first token's id, which special=... needs: ask with return_token_ids=true")
    before = None if ids is None else ids[0]
    for position, entry in enumerate(entries):
        if entry is None and not position:
            continue
        if ids is None and len(entry) != 1:
            raise _Wrong(
                f"token {position} has {len(entry)} entries, and which is the text's is not said: "
                "ask with prompt_logprobs=0, or return_token_ids=true"
            )
        text = str(ids[position]) if ids is not None else next(iter(entry))
        if text not in entry:
            raise _Wrong(f"token {position}: prompt_logprobs has no entry of prompt_token_ids' {text}")
        target = int(text) if _ID.fullmatch(text) else text
        rank = entry[text].get("rank")
        if type(rank) is not int or rank < 1:
            raise _Wrong(f"token {position} has the rank {rank!r}; a whole number from 1 is needed")
        if _take(scored, document, position, target, entry[text]["logprob"], before=before):
            scored.rank.append(rank)
        before = target
    return _VLLM


def _take(scored: _Scored, document: int, position: int, token: object, logprob: Any, *, before: object) -> bool:
    """Check a token and take it; False for one that is not scored: it is special, or follows such a one."""
    is_number = isinstance(logprob, (int, float)) and not isinstance(logprob, bool)
    if not is_number or not math.isfinite(logprob) or logprob > ABOVE_ZERO:
        raise _Wrong(f"token {position} has the log-probability {logprob!r}; a number of at most 0 is needed")
    if type(token) is not int or not 0 <= token < limits.IDS:
        raise _Wrong(f"token {position} has the id {token!r}; a whole number from 0 is needed")
    if token in scored.special or before in scored.special:
        return False
    scored.document.append(document)
    scored.position.append(position)
    scored.token.append(token)
    scored.logprob.append(min(float(logprob), 0.0))
    return True


def _impossible(scored: _Scored, vocab_size: int) -> Iterator[Fault]:
    """Yield ranks that their probabilities rule out: R tokens at least as likely as p need R p <= 1, and a first |V| p
    >= 1.

    Log-probabilities that are all bfloat16 numbers were rounded to them, and get the room of that rounding.
    """
    logprob = np.array(scored.logprob)
    rank = np.array(scored.rank)
    p = np.exp(logprob)
    in_bfloat16 = not (logprob.astype(np.float32).view(np.uint32) & 0xFFFF).any()
    room = _ROUNDED_TO_BFLOAT16 if in_bfloat16 else _ROUNDED
    above = rank * p > 1 + room
    below = (rank == 1) & (vocab_size * p < 1 - room)
    for i in np.flatnonzero(above | below):
        place = f"line {scored.line[scored.document[i]]}"
        what = f"token {scored.position[i]} has rank {rank[i]:,} at a probability of {p[i]:.4g}"
        rule = (
            f"{rank[i]:,} tokens as likely exceed 1" if above[i] else f"the first of {vocab_size:,} has 1/|V| or more"
        )
        yield Fault(place, f"{what}, which cannot be: {rule}")


def _ranks(path: Path, scored: _Scored, vocab_size: int) -> RankTable:
    if not vocab_size:
        raise BadInput(f"{path} has ranks, which need |V|: vocab_size=N, the number of logits that the model gives")
    if (rank := max(scored.rank)) > vocab_size:
        raise BadInput(f"{path}: vocab_size={vocab_size:,}, but a rank is {rank:,}")
    if (token := max(scored.token)) >= vocab_size:
        raise BadInput(f"{path}: vocab_size={vocab_size:,}, but a token's id is {token:,}; ids are below vocab_size")
    whole = RankTable.from_arrays(
        vocab_size=vocab_size,
        document=scored.document,
        position=scored.position,
        field=np.zeros(len(scored.rank)),
        token=scored.token,
        greater=np.array(scored.rank) - 1,
        ties=np.zeros(len(scored.rank)),
        logprob=scored.logprob,
    )
    return replace(whole, ties_known=False)
