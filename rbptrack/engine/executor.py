"""Runs batches through a model: how many threads, how large, and what happens when memory runs out.

On a CPU several threads each take whole batches: threads that share every small operation wait for each other after
each one. On a GPU one thread launches, and nothing here waits for the device.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from rbptrack.base.errors import BadInput, MeasurementError
from rbptrack.config.schema import EngineConfig, Kernel
from rbptrack.engine.batches import Batch
from rbptrack.models.causal import CausalModel, Reference
from rbptrack.models.device import free_memory, out_of_memory
from rbptrack.scoring import kernels
from rbptrack.scoring.comparison import PairScorer
from rbptrack.scoring.proof import proved
from rbptrack.scoring.scorer import Scorer
from rbptrack.scoring.scores import Scores

log = logging.getLogger(__name__)

_MIN_CHUNK = 16  # rows of logits: fewer make the product slow and save little
_MAX_CHUNK = 512
_MAX_CHUNK_CUDA = 4096
_LOGITS_BYTES = 80_000_000  # of all threads together, on a CPU
_CPU_BATCH = 2048  # tokens: activations of larger ones leave the caches
_CUDA_BATCH = 32_768
_MAX_WORKERS = 4
_MANY_ENTRIES = 7e8  # tokens * |V|: one pass over logits saves 1.4 ns an entry, loading numba costs 0.7 s
_LARGE_MODEL = 10**9  # parameters above which one batch's operations keep every core busy by themselves


class Engine:
    """A model, its scorers and the threads that use them; a context manager.

    Args:
        model: on its device.
        config: sizes that are 0 are chosen from the device and its free memory.
        longest: tokens of the longest sequence to come.
        targets: scored tokens to come, in all processes: for few of them numba is not loaded.

    Attributes:
        batch_tokens: tokens per batch.
        chunk_tokens: rows of logits at a time, per worker.
        workers: batches under way at a time.
        notes: changes on the way: because memory ran out, or because a kernel did not prove itself.
        path: what scores, in words; empty before the first batch.

    Raises:
        BadInput: a kernel is asked for where none can run.

    """

    def __init__(self, model: CausalModel, config: EngineConfig, *, longest: int, targets: int = 0) -> None:
        self._model = model
        self._cuda = model.device.type == "cuda"
        self._brief = not config.columns
        self._kernel = config.kernel
        self.path = ""
        if config.kernel in (Kernel.reduce, Kernel.fused) and not kernels.available(model.device):
            raise BadInput(f"engine.kernel={config.kernel.value} needs a CUDA device and Triton; auto does without")
        self._one_pass = config.kernel is Kernel.auto and targets * model.vocab_size >= _MANY_ENTRIES
        self._threads = torch.get_num_threads()
        threads = config.threads or self._threads
        alone = self._cuda or model.spread or model.largest_params > _LARGE_MODEL
        self.workers = 1 if alone else min(threads, _MAX_WORKERS)
        self._inner = max(1, threads // self.workers)
        self.batch_tokens = config.batch_tokens or self._fitting_batch(longest)
        self.chunk_tokens = self._fitting_chunk(config.chunk_tokens)
        self.notes: list[str] = []
        self._shrunk = 0  # how often memory ran out
        self._proven = False  # whether kernels were tried
        self._plain = config.kernel is Kernel.none  # or plain torch stands in for them, because they failed
        self._limit = 2**62  # tokens of a forward pass; falls when memory runs out
        self._padding = torch.zeros(2, device=model.device)
        self._lock = threading.Lock()
        self._local = threading.local()

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(
            self.workers, "rbptrack", initializer=torch.set_num_threads, initargs=(self._inner,)
        )
        self._running: set[int] = set()  # threads that are at work on a batch
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=error is None, cancel_futures=True)
        if error is not None:
            # A batch of a large model takes minutes: end its thread at the next operation, not at its end.
            for ident in list(self._running):
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(SystemExit))
            self._pool.shutdown(wait=True)
        torch.set_num_threads(self._threads)

    def run(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Scores]]:
        """Yield each batch with its scores, in order, on the model's device; the next ones are prepared meanwhile."""
        waiting: deque[Future[tuple[Batch, Scores]]] = deque()
        for batch in batches:
            waiting.append(self._pool.submit(self._job, batch))
            if len(waiting) > 2 * self.workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    @torch.inference_mode()
    def _job(self, batch: Batch) -> tuple[Batch, Scores]:
        ident = threading.get_ident()
        self._running.add(ident)
        try:
            batch = (batch.pinned() if self._cuda else batch).to(self._model.device)
            scores = self._scores(batch)
            return batch, scores.brief() if self._brief else scores
        finally:
            self._running.discard(ident)

    def _scores(self, batch: Batch) -> Scores:
        todo = [batch]
        done = list[Scores]()
        while todo:
            piece = todo.pop(0)
            if piece.size > self._limit and piece.num_sequences > 1:
                todo[:0] = piece.halves()
                continue
            before = (self.chunk_tokens, self._limit)
            try:
                done.append(self._forward(piece))
                continue
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
            # Here, and not in the except block: the traceback there would keep the failed tensors alive.
            self._shrink(piece, before)
            todo.insert(0, piece)
        return Scores.concatenate(done)

    def _forward(self, batch: Batch) -> Scores:
        hidden = self._model.backbone(batch.token_ids)  # (sequences, length, width)
        # A model spread over several devices returns its hidden states on the last of them.
        states = hidden.flatten(0, 1)[batch.state_index.to(hidden.device)]  # (targets, width)
        states = states.to(batch.target_ids.device)
        scores = None if self._proven else self._prove(self._scorer(), states, batch.target_ids)
        if self._model.reference is not None:
            return self._compared(self._model.reference, batch, states)
        return self._scorer()(states, batch.target_ids) if scores is None else scores

    def _compared(self, reference: Reference, batch: Batch, states: Tensor) -> Scores:
        """Return the scores of hidden states (targets, width), with how the reference's distributions differ from
        theirs.
        """
        others = reference.model.backbone(batch.token_ids).flatten(0, 1)[batch.state_index]
        pair = PairScorer(self._scorer(), self._local.reference, entries=reference.entries)
        scores = pair(states, others, batch.target_ids)
        with self._lock:
            self._padding = torch.maximum(self._padding, pair.padding)
        return scores

    @property
    def padding_mass(self) -> float:
        """With a reference, the largest probability of rows that the tokenizer cannot name, in either model."""
        return float(self._padding.max())

    def _scorer(self) -> Scorer:
        """Return the calling thread's own, made again when the chunk or the way of scoring has changed."""
        wanted = self.chunk_tokens, self._plain
        if getattr(self._local, "wanted", None) != wanted:
            self._local.scorer = self._local.reference = None
            options: dict[str, Any] = {"chunk_tokens": self.chunk_tokens, "kernel": False if self._plain else None}
            one_pass = self._one_pass and not self._plain
            fused = None if self._kernel is Kernel.auto else self._kernel is Kernel.fused
            if (reference := self._model.reference) is not None:
                fused = False  # the comparison looks at logits
                self._local.reference = Scorer(reference.model.head, fused=fused, **options)
            self._local.scorer = Scorer(self._model.head, fused=fused, brief=self._brief, one_pass=one_pass, **options)
            self.path = self._local.scorer.path
            self._local.wanted = wanted
        scorer: Scorer = self._local.scorer
        return scorer

    def _prove(self, scorer: Scorer, states: Tensor, target_ids: Tensor) -> Scores | None:
        """Return the first batch's scores by a kernel that ranks some of its tokens as plain torch does; else distrust
        it.
        """
        with self._lock:
            if self._proven or not (scorer.kernel or scorer.once):
                self._proven = True
                return None
            scores, why = proved(scorer, states, target_ids)
            self._proven = True
            self._plain = self._plain or bool(why)
            if why:
                self.notes.append(f"plain torch scored instead of the {scorer.kind}: {why}")
                log.warning("the %s is not used: %s", scorer.kind, why)
            return scores

    def _shrink(self, piece: Batch, before: tuple[int, int]) -> None:
        """Halve the head's chunk or, every other time, the batch; MeasurementError where neither can be."""
        self._local.wanted = self._local.scorer = self._local.reference = None
        if self._cuda:
            torch.cuda.empty_cache()
        with self._lock:
            if before != (self.chunk_tokens, self._limit):
                return  # another thread did it meanwhile
            chunk = self.chunk_tokens // 2
            divisible = piece.num_sequences > 1
            if chunk >= _MIN_CHUNK and (self._shrunk % 2 == 0 or not divisible):
                self.chunk_tokens = chunk
                what = f"the head's chunk is now {chunk} tokens"
            elif divisible:
                self._limit = piece.size // 2
                what = f"batches are now of {self._limit} tokens"
            else:
                raise MeasurementError(
                    f"out of memory with one sequence of {piece.size} tokens at a time; "
                    "give a smaller dataset.seq_len, model.dtype=bfloat16 or model.device_map=auto"
                )
            self._shrunk += 1
            self.notes.append(f"out of memory: {what}")
            log.warning("out of memory: %s", what)

    def _fitting_batch(self, longest: int) -> int:
        """Return tokens whose activations take at most half of the free memory, a power of two; at least one
        sequence.
        """
        most = _CUDA_BATCH if self._cuda else _CPU_BATCH
        fitting = free_memory(self._model.device) // (2 * self.workers * self._model.activation_bytes(longest))
        while most > max(fitting, longest):
            most //= 2
        return max(most, longest)

    def _fitting_chunk(self, wanted: int) -> int:
        """Return rows of logits per worker that stay within a fixed budget on a CPU, an eighth of free memory on a
        GPU.
        """
        budget = free_memory(self._model.device) // 8 if self._cuda else _LOGITS_BYTES // self.workers
        most = min(
            wanted or (_MAX_CHUNK_CUDA if self._cuda else _MAX_CHUNK), budget // (4 * self._model.logits_per_token)
        )
        return max(1 if 0 < wanted < _MIN_CHUNK else _MIN_CHUNK, most)
