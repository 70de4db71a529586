"""Score batches with a model that a vLLM server runs, and choose how many requests are sent at once.

Each sequence is one request. It holds the ids of the tokens, and the answer holds their ranks and log-probabilities.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rbptrack.base.errors import BadInput, MeasurementError, RbptrackError
from rbptrack.config.check import MAX_REQUESTS
from rbptrack.config.schema import EngineConfig, ModelConfig
from rbptrack.engine.batches import Batch
from rbptrack.engine.engine import Engine, EngineFailed
from rbptrack.ranks import FloatArray, IntArray
from rbptrack.scoring import Scores
from rbptrack.sources.server import ServedModel, identify
from rbptrack.sources.server_answers import read_answer
from rbptrack.sources.server_connection import Connection

if TYPE_CHECKING:
    from rbptrack.corpus.sequences import Corpus

_BATCH_TOKENS = 4096  # a batch is handed over when all of its sequences are answered
_FIRST_REQUESTS = 8
_MIN_GAIN = 1.05  # more requests at once are sent as long as this factor more tokens are answered in a second
_MAX_IDENTIFICATIONS = 8  # for one sequence; several servers may share an address
_MAX_BATCHES = 1024  # batches whose answers wait for that of an earlier batch

_Answer = tuple[IntArray, FloatArray]
"""The ranks and log-probabilities of the targets of a sequence, (targets,) each."""


class Served(Engine):
    """Scores batches with a model that a vLLM server runs.

    The scores have the columns `greater` and `logprob`. A server does not return ties, entropies and first choices.

    If a connection was lost, or if an answer comes from a server with another configuration, the server is identified
    again before its answers are used. It must serve the model with the version and precision of before.

    Args:
        model: the options of the model, with the address of the server.
        served: what the server said when the measurement was prepared.
        corpus: the corpus that will be measured, tokenised with the model's tokenizer.
        vocab_size: |V|, from the model's config.
        config: the number of requests at once, the limits of waiting, and the size of batches.

    Raises:
        BadInput: a sequence is longer than the server allows.

    """

    def __init__(
        self, model: ModelConfig, served: ServedModel, corpus: Corpus, vocab_size: int, config: EngineConfig
    ) -> None:
        longest = int(corpus.lengths.max())
        if longest > served.max_length:
            raise BadInput(
                f"a sequence has {longest} tokens, and the server reads at most {served.max_length} and generates one: "
                f"give dataset.seq_len={served.max_length}, or start the server with --max-model-len {longest + 1}"
            )
        self._model = model
        self._served = served
        self._corpus = corpus
        self._vocab_size = vocab_size
        self._config = config
        self._lock = threading.Lock()
        self._losses = -1  # the number of lost connections when the server was last identified
        self._configurations: set[str] = set()  # of the servers that were identified since then

    @property
    def vocab_size(self) -> int:
        """|V|, the number of the model's logits."""
        return self._vocab_size

    @property
    def batch_tokens(self) -> int:
        """The largest number of tokens of a batch, padding included."""
        return self._config.batch_tokens or _BATCH_TOKENS

    @property
    def notes(self) -> Sequence[str]:
        """A note on the precision of the server's logits, unless they are float32."""
        return tuple(filter(None, [self._served.note()]))

    def run(self, batches: Iterable[Batch]) -> Generator[tuple[Batch, Scores]]:
        """Yield each batch with its scores, in order. Raises EngineFailed if a sequence cannot be scored.

        Each request that waits for an answer has a thread. If the caller stops early, nobody waits for the answers to
        come.
        """
        pace = _Pace(self._config.requests)
        to_send: SimpleQueue[_Request | None] = SimpleQueue()
        answered: SimpleQueue[_Request] = SimpleQueue()
        num_threads = 0
        waiting: deque[tuple[Batch, list[_Request]]] = deque()
        num_running = 0
        with Connection(self._model.server, self._config) as connection:
            try:
                for batch in batches:
                    requests = list(_requests(batch))
                    waiting.append((batch, requests))
                    for request in requests:
                        while num_running >= pace.limit or not answered.empty():
                            rank, _ = answered.get().answer.result()
                            num_running -= 1
                            pace.count(len(rank), connection.rejections)
                        num_running += 1
                        if num_running > num_threads:
                            num_threads += 1
                            threading.Thread(
                                target=self._send_all, args=(connection, to_send, answered), daemon=True
                            ).start()
                        to_send.put(request)
                    while waiting and (len(waiting) > _MAX_BATCHES or _succeeded(waiting[0][1])):
                        yield _join(*waiting.popleft())
                while waiting:
                    yield _join(*waiting.popleft())
            except RbptrackError as error:
                while waiting and _succeeded(waiting[0][1]):
                    yield _join(*waiting.popleft())
                raise EngineFailed(str(error)) from error
            finally:
                for _ in range(num_threads):
                    to_send.put(None)

    def _send_all(
        self, connection: Connection, to_send: SimpleQueue[_Request | None], answered: SimpleQueue[_Request]
    ) -> None:
        """Send requests until there is None. Set the answer of each, or the error with which it failed."""
        while (request := to_send.get()) is not None:
            try:
                request.answer.set_result(self._score(connection, request))
            except BaseException as error:  # the caller of `run` gets it
                request.answer.set_exception(error)
            answered.put(request)

    def _score(self, connection: Connection, request: _Request) -> _Answer:
        """Return the ranks and log-probabilities of the targets of a sequence.

        Raises:
            RbptrackError: the server does not answer, refuses the request, has changed, or gives an impossible answer.

        """
        for _ in range(_MAX_IDENTIFICATIONS):
            response = connection.ask(self._served.name, request.ids, deadline=self._config.deadline)
            if self._is_identified(connection, response):
                break
        else:
            raise MeasurementError(
                f"{connection.address} gives another system_fingerprint with each answer, so it is unclear which "
                "server answers. Give the address of one server"
            )
        try:
            rank, logprob = read_answer(response, request.ids, self._vocab_size)
        except BadInput as error:
            document = self._corpus.document_ids[self._corpus.document[request.first_target]]
            raise BadInput(f"{connection.address}, in document {document}: {error}") from error
        return rank[request.states], logprob[request.states]

    def _is_identified(self, connection: Connection, response: Mapping[str, Any]) -> bool:
        """Return whether a response comes from a server that was identified. If it does not, identify the server.

        Raises MeasurementError if the server has another version, precision or model than when the cell was prepared.
        """
        configuration = str(response.get("system_fingerprint") or "")
        with self._lock:
            losses = connection.losses
            if losses == self._losses and configuration in self._configurations:
                return True
            found = identify(connection, self._model, self._vocab_size, deadline=self._config.deadline)
            was, now = (f"{served.engine} with {served.head_dtype} logits" for served in (self._served, found))
            if was != now:
                raise MeasurementError(
                    f"{connection.address} was {was} and is now {now}. What is finished is kept: run the command again "
                    "with a server as before"
                )
            if losses != self._losses:
                self._configurations.clear()
            self._losses = losses
            self._configurations.add(found.configuration)
            return configuration == found.configuration


@dataclass(frozen=True)
class _Request:
    """The request for the scores of one sequence.

    Attributes:
        ids: the token ids of the sequence up to its last target, (tokens,).
        states: for each target, the index in the sequence of the token before it, (targets,).
        first_target: the index of the first target in the corpus.
        answer: the scores, when they have come.

    """

    ids: list[int]
    states: IntArray
    first_target: int
    answer: Future[_Answer] = field(default_factory=Future)


def _requests(batch: Batch) -> Iterator[_Request]:
    """Yield a request for each sequence of a batch that has targets."""
    width = batch.token_ids.shape[1]
    state_index = batch.state_index.numpy()
    begin = 0
    for row, count in enumerate(batch.target_counts):
        if count:
            states = state_index[begin : begin + count] - row * width
            ids = batch.token_ids[row, : int(states[-1]) + 2].tolist()
            yield _Request(ids, states, int(batch.target_index[begin]))
        begin += count


def _succeeded(requests: Sequence[_Request]) -> bool:
    """Return whether all requests have an answer."""
    return all(request.answer.done() and request.answer.exception() is None for request in requests)


def _join(batch: Batch, requests: Sequence[_Request]) -> tuple[Batch, Scores]:
    """Wait for all answers to the requests of a batch. Return the batch with its scores."""
    ranks, logprobs = zip(*(request.answer.result() for request in requests), strict=True)
    scores = {
        "greater": torch.from_numpy(np.concatenate(ranks).astype(np.int32) - 1),
        "logprob": torch.from_numpy(np.concatenate(logprobs).astype(np.float32)),
    }
    return batch, Scores(scores)


class _Pace:
    """Chooses how many requests are sent at once.

    The number is doubled as long as this increases the number of tokens that are answered in a second. It is halved
    when the server asks to try again later.

    Args:
        requests: the number of requests at once; 0 to choose it.

    Attributes:
        limit: the number of requests at once.

    """

    def __init__(self, requests: int) -> None:
        self.limit = requests or _FIRST_REQUESTS
        self._is_fixed = requests > 0
        self._best_speed = 0.0  # tokens per second
        self._rejections = 0
        self._sent_before = 0  # answers to come of the requests that were sent before the number was halved
        self._begin_round()

    def count(self, tokens: int, rejections: int) -> None:
        """Count an answer with some tokens. `rejections` is how often the server has asked to try again later."""
        if self._sent_before:
            self._sent_before -= 1
        elif rejections > self._rejections:
            self._is_fixed = True
            self._sent_before = self.limit - 1
            self.limit = max(1, self.limit // 2)
        self._rejections = rejections
        if self._is_fixed:
            return
        self._answers += 1
        if self._answers == self.limit:  # the time of the first answers is that of a smaller limit
            self._began = time.monotonic()
            self._tokens = 0
        self._tokens += tokens
        if self._answers < 3 * self.limit:
            return
        speed = self._tokens / max(time.monotonic() - self._began, 1e-9)
        if speed < _MIN_GAIN * self._best_speed:
            self._is_fixed = True
            self.limit //= 2
        elif self.limit == MAX_REQUESTS:
            self._is_fixed = True
        else:
            self._best_speed = speed
            self.limit *= 2
            self._begin_round()

    def _begin_round(self) -> None:
        self._answers = 0
        self._tokens = 0
        self._began = time.monotonic()
