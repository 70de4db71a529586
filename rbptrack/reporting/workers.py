"""Other processes that compute whole analyzers while this one computes others."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import lru_cache
from multiprocessing import Pipe, get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path

import psutil

from rbptrack.analysis.contract import Analyzer
from rbptrack.analysis.findings import NothingToSay
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import RbptrackError
from rbptrack.base.process import cores, leave_out_what_is_loaded
from rbptrack.base.secrets import guard
from rbptrack.reporting.broken import AnalyzerFault, computed
from rbptrack.reporting.discovery import load_file, plugin_file
from rbptrack.reporting.files import write_report

_FEW = 2  # analyzers for which starting a process would take longer than computing them
_MANY_RUNS, _MANY_TOKENS = 20, 10_000_000  # from which on whole analyzers are worth another process's start
_MEMORY = 2 << 30  # bytes that a process may need
_MOST = 9  # processes: the longest analyzer takes a tenth of the time of all, and more would wait for it
_UNSENDABLE = (pickle.PicklingError, AttributeError, TypeError, RuntimeError, OSError)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt in glibc's malloc.h
_KEPT = 128 << 20  # bytes of freed memory that stay with the process
_MAPPED = 32 << 20  # bytes above which an array gets pages of its own, handed back when it is freed


@contextmanager
def begun_elsewhere(
    analyzers: Sequence[Analyzer], runs: Runs, folder: Path, formats: Sequence[str]
) -> Iterator[Mapping[str, Future[RbptrackError | None]]]:
    """Analyzers whose reports other processes write into folder/<name>, by name, the last of them first.

    As many processes as there are other cores and memory for, and none for little work. They end with the block, or
    with this process however that one ends: at once where that is by an error.
    """
    tokens = float(runs.frame["num_tokens"].fillna(0).sum())
    many = len(analyzers) > _FEW and (len(runs) >= _MANY_RUNS or tokens >= _MANY_TOKENS)
    room = max(1, psutil.virtual_memory().available // _MEMORY)
    processes = min(cores() - 1, len(analyzers) - 1, room, _MOST) if many else 0
    if not processes:
        yield {}
        return
    alive, end = Pipe(duplex=False)
    # spawn: a fork would inherit the threads' locks of BLAS, torch and the tracking client
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (alive,))
    begun = {}
    try:
        with suppress(*_UNSENDABLE):
            sent = pickle.dumps(runs)
            for one in reversed(analyzers):
                place = str(folder / one.name)
                begun[one.name] = pool.submit(_there, plugin_file(one), pickle.dumps(one), sent, place, formats)
        yield begun
    except BaseException:
        end.close()  # they end at once, in the middle of what they do
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        end.close()


def is_made(begun: Future[RbptrackError | None] | None) -> bool:
    """Wait for a report that another process has begun; False where none has, or it was lost.

    Raises:
        RbptrackError: what the analyzer raised there.

    """
    if begun is None or begun.cancel():
        return False
    try:
        error = begun.result()
    except (BrokenProcessPool, *_UNSENDABLE):  # killed for want of memory, say
        return False
    if error is not None:
        raise error
    return True


def _there(
    file: Path | None, analyzer: bytes, runs: bytes, folder: str, formats: Sequence[str]
) -> RbptrackError | None:
    """Compute and write an analyzer that came from the first process; returns what `computed` raised."""
    _import(file)
    try:
        report = computed(pickle.loads(analyzer), _runs(runs))  # noqa: S301 - made by this program a moment ago
        write_report(report, Path(folder), formats)
    except NothingToSay as error:
        return error
    except RbptrackError as error:
        kind = AnalyzerFault if isinstance(error, AnalyzerFault) else RbptrackError
        return kind(str(error))  # without its cause, which may not be sendable
    return None


@lru_cache
def _import(file: Path | None) -> None:
    """Import the plugin's file that an analyzer comes from, if it is none of an installed package."""
    if file:
        load_file(file)


@lru_cache(maxsize=1)
def _runs(pickled: bytes) -> Runs:
    """The measurements; what was read of them is kept for the next analyzer."""
    runs: Runs = pickle.loads(pickled)  # noqa: S301 - made by this program a moment ago
    return runs


def _begin(alive: Connection) -> None:
    """Set the process up, and let it live no longer than the process that it works for, however that one ends."""
    guard()
    spare_memory_work()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process, which then ends this one
    threading.Thread(target=_end_with_the_first, args=(alive,), name="rbptrack-first-process", daemon=True).start()


def _end_with_the_first(alive: Connection) -> None:
    """A pool's worker waits for work for ever, also when nobody is left (SIGKILL) who could send any."""
    first = parent_process()
    if first is not None:
        wait([first.sentinel, alive])
    os._exit(1)


def spare_memory_work() -> None:
    """Keep freed memory for the next array, and leave what was imported out of garbage collection.

    Counting half a million tokens makes and frees some ten arrays of 4 MB. By default glibc hands such memory back each
    time, and the system fills its pages with zeros anew: 40% of the time of counting. Collections look at every
    object that there is; the modules' own, hundreds of thousands, are never garbage.
    """
    leave_out_what_is_loaded()
    with suppress(OSError, AttributeError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _MAPPED)
