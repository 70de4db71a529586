"""Prompt log-probabilities of vLLM and SGLang, as JSON lines: one response a document, as their servers gave it.

vLLM's `rank` is the number of entries at least as likely as the token (`(x >= values).sum()`, vllm/v1/sample/ops), so
ties count: the paper's rank is known, and how many of it are ties is not. SGLang gives no ranks.
"""

from __future__ import annotations

import json
import math
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
_VLLM, _SGLANG = "vllm", "sglang"


class _Wrong(ValueError):
    """What is wrong with a line."""


@dataclass
class _Scored:
    """The scored tokens of all documents; ranks of vLLM only."""

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

    """

    name: ClassVar[str] = "served"
    model: str = ""
    dataset: str = ""
    vocab_size: int = 0
    sizes: str = ""

    def takes(self, file: Peek) -> bool:
        """A .jsonl file."""
        return file.suffix == ".jsonl"

    def read(self, path: Path) -> Iterator[Imported]:
        """Yield the one measurement of the file."""
        check_vocab_size(self.vocab_size)
        if not self.dataset:
            raise BadInput(f"{path}: say which texts were sent: dataset=NAME")
        problems = list[Fault]()
        scored = _Scored()
        models = set[str]()
        engines = set[str]()
        documents = 0
        for number, line in enumerate(_lines(path)):
            documents = number + 1
            try:
                answer = _answer(line)
                models.add(str(answer.get("model") or ""))
                engines.add(_read(answer, number, scored))
            except (_Wrong, KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
                text = f"is no response of vLLM or SGLang ({error!r})"
                problems.append(
                    Fault(f"line {documents}", (first_line(error) if isinstance(error, _Wrong) else text)[:200])
                )
        if problems:
            yield from problems
            return
        if not scored.logprob:
            raise BadInput(f"{path} holds no scored token: nothing to import")
        if len(engines) > 1:
            raise BadInput(f"{path} mixes responses of vLLM and SGLang: import them from two files")
        yield self._measurement(path, scored, engines.pop(), documents, self._model(path, models))

    def _model(self, path: Path, models: set[str]) -> str:
        """The model that answered."""
        if not self.model and (len(models) != 1 or "" in models):
            listed = ", ".join(sorted(filter(None, models))) or "none"
            raise BadInput(f"{path}: say which model answered: model=NAME (the responses name {listed})")
        return self.model or models.pop()

    def _measurement(self, path: Path, scored: _Scored, engine: str, documents: int, model: str) -> ImportedMeasurement:
        sizes = read_sizes(user_path(self.sizes)) if self.sizes else {}
        ranks = _ranks(path, scored, self.vocab_size) if engine == _VLLM else None
        columns: dict[str, object] = {
            "dataset": self.dataset,
            "model": model,
            "vocab_size": self.vocab_size or None,
            "num_tokens": len(scored.logprob),
            "num_documents": documents,
            "non_embedding_params": sizes.get(model),
        }
        if ranks is None:
            columns[CE] = -math.fsum(scored.logprob) / len(scored.logprob)
        return ImportedMeasurement(columns=columns, ranks=ranks, repo=model, format=engine, notes=NOTE)


def _lines(path: Path) -> Iterator[bytes]:
    """Every line, none longer than memory takes."""
    with path.open("rb") as file:
        while line := file.readline(limits.BYTES_OF_ANSWER + 1):
            if len(line) > limits.BYTES_OF_ANSWER:
                raise BadInput(f"{path} has a line of more than {limits.BYTES_OF_ANSWER:,} bytes: a line is a document")
            if line.strip():
                yield line


def _answer(line: bytes) -> dict[str, Any]:
    """The response in a line, taken out of a batch's output where it is one."""
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
    """The list of vLLM and the ids of the prompt, where they are: of a completion, or of a chat or generate request."""
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
        for position, (logprob, token, *_) in enumerate(entries):
            if logprob is not None:
                _take(scored, document, position, token, logprob)
            elif position:
                raise _Wrong(f"token {position} has no log-probability")
        return _SGLANG
    entries, ids = _prompt_logprobs(answer)
    if ids is not None and len(ids) != len(entries):
        raise _Wrong(f"has {len(entries)} prompt_logprobs and {len(ids)} prompt_token_ids")
    for position, entry in enumerate(entries):
        if entry is None and not position:
            continue
        if ids is None and len(entry) != 1:
            raise _Wrong(
                f"token {position} has {len(entry)} entries, and which is the text's is not said: "
                "ask with prompt_logprobs=0, or return_token_ids=true"
            )
        token = str(ids[position]) if ids is not None else next(iter(entry))
        if token not in entry:
            raise _Wrong(f"token {position}: prompt_logprobs has no entry of prompt_token_ids' {token}")
        _take(scored, document, position, int(token), entry[token]["logprob"])
        rank = entry[token].get("rank")
        if type(rank) is not int or rank < 1:
            raise _Wrong(f"token {position} has the rank {rank!r}; a whole number from 1 is needed")
        scored.rank.append(rank)
    return _VLLM


def _take(scored: _Scored, document: int, position: int, token: int, logprob: float) -> None:
    if not isinstance(logprob, (int, float)) or not math.isfinite(logprob) or logprob > ABOVE_ZERO:
        raise _Wrong(f"token {position} has the log-probability {logprob!r}; a number of at most 0 is needed")
    if type(token) is not int or not 0 <= token < limits.IDS:
        raise _Wrong(f"token {position} has the id {token!r}; a whole number from 0 is needed")
    scored.document.append(document)
    scored.position.append(position)
    scored.token.append(token)
    scored.logprob.append(min(float(logprob), 0.0))


def _ranks(path: Path, scored: _Scored, vocab_size: int) -> RankTable:
    if not vocab_size:
        raise BadInput(f"{path} has ranks, which need |V|: vocab_size=N, the number of logits that the model gives")
    largest = max(max(scored.rank), 1 + max(scored.token))
    if largest > vocab_size:
        raise BadInput(f"{path}: vocab_size={vocab_size:,}, but a rank or token id is {largest:,}")
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
