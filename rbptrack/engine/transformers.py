"""Run batches through a model of transformers, in one or several threads.

Several threads run a small model on a CPU, each with its own batch. If all threads shared the operations of one batch,
they would wait for each other after every small operation. A large model on a CPU, and a model on a GPU, run one batch
at a time in the calling thread. If memory runs out, the sizes are halved.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rbptrack.base.errors import MeasurementError
from rbptrack.config.schema import EngineConfig
from rbptrack.engine.batches import Batch
from rbptrack.engine.engine import Engine
from rbptrack.engine.memory import (
    MIN_CHUNK,
    fitting_batch_tokens,
    fitting_chunk_tokens,
    peak_memory,
    reset_peak_memory,
)
from rbptrack.models.device import is_out_of_memory
from rbptrack.scoring import PairScorer, Scorer, Scores
from rbptrack.scoring.cpu_reduction import compiled_cpu_reduction
from rbptrack.scoring.reduction import Reduction
from rbptrack.sources import cache

if TYPE_CHECKING:
    from rbptrack.corpus.sequences import Corpus
    from rbptrack.models.causal import CausalModel

log = logging.getLogger(__name__)

_MAX_WORKERS = 4
# From this number of logits, a CPU reduces them by C code, which saves .5 s and more. The cells of the demo have fewer:
# their numbers do not depend on whether the machine has a compiler.
_C_LOGITS = 18 * 10**7
_LARGE_MODEL = 2 * 10**8  # with more parameters, one batch keeps all cores busy


class Transformers(Engine):
    """Runs batches through a model of transformers in this process, in one or several threads.

    Args:
        model: the model, on its device.
        corpus: the corpus that will be measured, tokenised with the model's tokenizer.
        config: sizes of batches and chunks. They change the numbers by float32 rounding only. A size of 0 is chosen for
            the device and its free memory.

    Attributes:
        workers: the number of batches that are computed at once.
        chunk_tokens: the number of tokens whose logits each worker has in memory at once. It falls if memory runs out.

    Raises:
        BadInput: a sequence is longer than the model's limit, or the head has no row for a target.

    """

    def __init__(self, model: CausalModel, corpus: Corpus, config: EngineConfig) -> None:
        self._model = model
        longest = int(corpus.lengths.max())
        model.check_corpus(longest=longest, largest_target=int(corpus.token.max(initial=0, where=corpus.scorable)))
        reset_peak_memory(model.device)
        self._on_cuda = model.device.type == "cuda"
        threads = config.threads or torch.get_num_threads()
        runs_one_batch = self._on_cuda or model.is_spread or model.largest_params > _LARGE_MODEL
        self.workers = 1 if runs_one_batch else min(threads, _MAX_WORKERS)
        self._threads_per_worker = max(1, threads // self.workers)
        self._batch_tokens = config.batch_tokens or fitting_batch_tokens(model, longest, self.workers)
        self.chunk_tokens = fitting_chunk_tokens(model, config.chunk_tokens, self.workers)
        self._notes: list[str] = []
        self._max_pass_tokens = 2**62  # largest number of tokens of a forward pass; it falls if memory runs out
        self._halvings = 0  # how often a size was halved because memory ran out
        self._padding_mass = torch.zeros((), device=model.device)
        self._lock = threading.Lock()
        self._thread_scorers = threading.local()  # each thread has its own scorers
        logits = corpus.num_targets * model.head.vocab_size
        self._uses_c = not self._on_cuda and logits >= _C_LOGITS

    @property
    def vocab_size(self) -> int:
        """|V|, the number of rows of the head."""
        return self._model.vocab_size

    @property
    def batch_tokens(self) -> int:
        """The largest number of tokens of a batch, padding included. It falls if memory runs out."""
        return self._batch_tokens

    @property
    def notes(self) -> Sequence[str]:
        """Notes on the model, on memory that ran out, and on a reduction that could not be compiled."""
        return (*self._model.notes, *self._notes)

    def results(self) -> dict[str, float]:
        """Return the memory and the sizes that were used; with a reference, also the padding rows' largest probability.

        The memory is the largest in use since this engine was made; on CUDA, that of torch's allocator.
        """
        results: dict[str, float] = {
            "peak_memory_bytes": peak_memory(self._model.device),
            "batch_tokens": self.batch_tokens,
            "chunk_tokens": self.chunk_tokens,
        }
        if self._model.reference is not None:
            results["padding_mass"] = float(self._padding_mass)
        return results

    def run(self, batches: Iterable[Batch]) -> Generator[tuple[Batch, Scores], None, None]:
        """Yield each batch with its scores, in order. The scores are on the model's device.

        With several workers, the next batches are computed while the caller uses the scores.
        """
        previous_threads = torch.get_num_threads()
        torch.set_num_threads(self._threads_per_worker)
        self._cpu_reduction()  # built once, before several threads need it
        try:
            if self.workers == 1:
                for batch in batches:
                    yield batch, self.score(batch)
            else:
                yield from self._run_in_threads(batches)
        finally:
            torch.set_num_threads(previous_threads)

    def _run_in_threads(self, batches: Iterable[Batch]) -> Generator[tuple[Batch, Scores], None, None]:
        submitted: deque[tuple[Batch, Future[Scores]]] = deque()
        threads = (self._threads_per_worker,)
        pool = ThreadPoolExecutor(self.workers, "rbptrack", initializer=torch.set_num_threads, initargs=threads)
        try:
            for batch in batches:
                submitted.append((batch, pool.submit(self.score, batch)))
                if len(submitted) > 2 * self.workers:
                    oldest, future = submitted.popleft()
                    yield oldest, future.result()
            while submitted:
                oldest, future = submitted.popleft()
                yield oldest, future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    @torch.inference_mode()
    def score(self, batch: Batch) -> Scores:
        """Score a batch. If memory runs out, halve the chunk or the batch and try again.

        Raises MeasurementError if one sequence alone needs more memory than there is.
        """
        remaining = [batch.to(self._model.device)]
        scores: list[Scores] = []
        while remaining:
            part = remaining.pop(0)
            if part.size > self._max_pass_tokens and part.num_sequences > 1:
                remaining[:0] = part.halves()
                continue
            tried_sizes = (self.chunk_tokens, self._max_pass_tokens)
            try:
                scores.append(self._score_at_once(part))
                continue
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            # This is outside the except block, in which the traceback would keep the failed tensors alive.
            self._halve_chunk_or_batch(part, tried_sizes)
            remaining.insert(0, part)
        return Scores.concatenate(scores)

    def _score_at_once(self, batch: Batch) -> Scores:
        """Score a batch in one forward pass of the model and, if there is one, of the reference."""
        states = self._hidden_states(self._model, batch)
        reference = self._model.reference
        scorer = self._prepare_scorers()
        if reference is None:
            scores = scorer(states, batch.target_ids)
        else:
            pair = PairScorer(scorer, self._thread_scorers.reference, entries=reference.entries)
            scores = pair(states, self._hidden_states(reference.model, batch), batch.target_ids)
            with self._lock:
                self._padding_mass = torch.maximum(self._padding_mass, pair.padding_mass)
        with self._lock:
            if scorer.note and scorer.note not in self._notes:
                self._notes.append(scorer.note)
        return scores

    def _hidden_states(self, model: CausalModel, batch: Batch) -> Tensor:
        """Return the hidden states (targets, width) that predict a batch's targets."""
        hidden = model.backbone(batch.token_ids)  # (sequences, length, width)
        # A model that is spread over several devices returns hidden states on the last device.
        states = hidden.flatten(0, 1)[batch.state_index.to(hidden.device)]
        return states.to(batch.target_ids.device)

    def _prepare_scorers(self) -> Scorer:
        """Make the calling thread's scorers, unless it has scorers of this chunk size. Return the model's scorer."""
        if getattr(self._thread_scorers, "chunk_tokens", None) != self.chunk_tokens:
            chunk_tokens = self.chunk_tokens
            reference = self._model.reference
            self._release_scorers()
            if reference is not None:
                self._thread_scorers.reference = Scorer(reference.model.head, chunk_tokens=chunk_tokens)
            self._thread_scorers.scorer = Scorer(
                self._model.head, chunk_tokens=chunk_tokens, cpu_reduction=self._cpu_reduction()
            )
            self._thread_scorers.chunk_tokens = chunk_tokens
        scorer: Scorer = self._thread_scorers.scorer
        return scorer

    def _cpu_reduction(self) -> Reduction | None:
        """Return the reduction in C, or None if this measurement uses another one."""
        if not self._uses_c:
            return None
        return compiled_cpu_reduction(self._model.head.vocab_size, cache.writable_folder(cache.root()))

    def _release_scorers(self) -> None:
        self._thread_scorers.chunk_tokens = None
        self._thread_scorers.scorer = None
        self._thread_scorers.reference = None

    def _halve_chunk_or_batch(self, batch: Batch, tried_sizes: tuple[int, int]) -> None:
        """Halve the chunk and the batch in turn. Raises MeasurementError if neither can be halved.

        `tried_sizes` are `chunk_tokens` and `_max_pass_tokens` when the batch began, for which memory ran out.
        """
        self._release_scorers()
        if self._on_cuda:
            torch.cuda.empty_cache()
        with self._lock:
            if tried_sizes != (self.chunk_tokens, self._max_pass_tokens):
                return  # another thread has halved a size in the meantime
            half_chunk = self.chunk_tokens // 2
            is_divisible = batch.num_sequences > 1
            if half_chunk >= MIN_CHUNK and (self._halvings % 2 == 0 or not is_divisible):
                self.chunk_tokens = half_chunk
                note = f"out of memory: the head's chunk is now {half_chunk} tokens"
            elif is_divisible:
                self._max_pass_tokens = batch.size // 2
                self._batch_tokens = min(self._batch_tokens, self._max_pass_tokens)
                note = f"out of memory: batches now have at most {self._max_pass_tokens} tokens"
            else:
                raise MeasurementError(
                    f"out of memory with one sequence of {batch.size} tokens at a time; "
                    "give a smaller dataset.seq_len, model.dtype=bfloat16 or model.device_map=auto"
                )
            self._halvings += 1
            self._notes.append(note)
            log.warning("%s", note)
