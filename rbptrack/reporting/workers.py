"""Other processes that compute whole analyzers while this one computes others."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe, get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from rbptrack.analysis.contract import Analyzer
from rbptrack.analysis.findings import NothingToSay
from rbptrack.analysis.plugin_code import BUILT_IN, import_path, path_of
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import RbptrackError
from rbptrack.base.process import cores, leave_out_what_is_loaded
from rbptrack.base.secrets import guard
from rbptrack.reporting.computing import AnalyzerFault, computed
from rbptrack.reporting.files import write_report

_FEW = 2  # analyzers for which starting a process would take longer than computing them
_MANY_RUNS, _MANY_TOKENS = 20, 10_000_000  # from which on they are worth a process that makes its imports anew
_MEMORY = 2 << 30  # bytes that a process may need
_MOST = 9  # processes: the longest analyzer takes a tenth of the time of all, and more would wait for it
_UNSENDABLE = (pickle.PicklingError, AttributeError, TypeError, RuntimeError, OSError)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt in glibc's malloc.h
_KEPT = 128 << 20  # bytes of freed memory that stay with the process
_MAPPED = 32 << 20  # bytes above which an array gets pages of its own, handed back when it is freed

Outcome = RbptrackError | bool
"""What came of an analyzer elsewhere: whether its report is there, or what it raised."""


@contextmanager
def shared(
    analyzers: Sequence[Analyzer], runs: Runs, folder: Path, formats: Sequence[str]
) -> Iterator[Iterator[tuple[Analyzer, Outcome]]]:
    """Yield each analyzer in its turn: with False for this process to make, else when another has written
    folder/<name>.

    As many processes as other cores and memory allow, and none for little work. They take analyzers from the
    end of the list, and this one from its beginning: neighbours read the same sums. They end with the block, and with
    this process however that one ends.
    """
    ends = list[Connection]()
    processes = list[BaseProcess]()
    try:
        if (context := _context(runs)) and len(analyzers) > _FEW and (sent := _sent(runs, *analyzers)):
            paths = [] if isinstance(context, ForkContext) else list(filter(None, map(path_of, analyzers)))
            room = max(1, psutil.virtual_memory().available // _MEMORY)
            for _ in range(min(cores() - 1, len(analyzers) - 1, room, _MOST)):
                end, theirs = Pipe(duplex=False)
                process = context.Process(target=_help, args=(theirs, paths, sent, folder, formats))
                process.start()
                theirs.close()
                ends.append(end)
                processes.append(process)
        yield _turns(analyzers, folder, ends)
    finally:
        for helper in processes:  # of an error or an interrupt, in the middle of what they do
            helper.kill()
            helper.join()
        for analyzer in analyzers:
            with suppress(OSError):
                (folder / analyzer.name).rmdir()  # of one that had nothing to say


def computed_apart(analyzer: Analyzer, runs: Runs, folder: Path, formats: Sequence[str]) -> bool:
    """Compute the analyzer of others in a process of its own, and write its report; return False if none could start.

    There it may end its process (`os._exit`), fork, close or replace stdout: the report goes on without it.

    Raises:
        AnalyzerFault: it ended its process, or has another fault.
        RbptrackError: what it says of its input.

    """
    if type(analyzer).__module__.startswith(f"{BUILT_IN}.") or len(sent := _sent(runs, analyzer)) < 2:
        return False
    forks = sys.platform == "linux" and threading.active_count() == 1 and "torch" not in sys.modules
    context: ForkContext | SpawnContext = get_context("fork") if forks else get_context("spawn")
    paths = [] if forks else list(filter(None, [path_of(analyzer)]))
    end, theirs = Pipe(duplex=False)
    process = context.Process(target=_help_with_one, args=(theirs, paths, sent, folder, formats))
    try:
        process.start()
        theirs.close()
        outcome: Outcome = end.recv()
    except EOFError as error:
        process.join()
        raise AnalyzerFault(
            f"{type(analyzer).__name__} ended its process ({_ending(process.exitcode)}) before it returned a report\n"
            "return Report(...), or raise an error; os._exit loses its results"
        ) from error
    finally:
        end.close()
        if process.is_alive():  # it has answered, or an error or interrupt came
            process.kill()
        process.join()
    if isinstance(outcome, RbptrackError):
        raise outcome
    return True


def _ending(code: int | None) -> str:
    """Return how a process ended: its exit code, or the signal that killed it."""
    return f"signal {-code}" if code and code < 0 else f"exit code {code}"


def _context(runs: Runs) -> ForkContext | SpawnContext | None:
    """Return the way to start processes; None if they are not worth their start.

    A fork has every import made, but also the locks of other threads: those of torch and of reports to a store
    might be held for ever. Those of BLAS and Arrow take care of forks.
    """
    if sys.platform == "linux" and threading.active_count() == 1 and "torch" not in sys.modules:
        return get_context("fork")
    tokens = float(runs.frame["num_tokens"].fillna(0).sum())
    return get_context("spawn") if len(runs) >= _MANY_RUNS or tokens >= _MANY_TOKENS else None


def _sent(runs: Runs, *analyzers: Analyzer) -> list[bytes]:
    """Pickle the measurements for another process; return empty bytes if that fails."""
    sent = list[bytes]()
    with suppress(*_UNSENDABLE):
        sent = [pickle.dumps(runs)]
        for analyzer in analyzers:
            with suppress(*_UNSENDABLE):
                sent.append(pickle.dumps(analyzer))
    return sent


def _turns(analyzers: Sequence[Analyzer], folder: Path, ends: list[Connection]) -> Iterator[tuple[Analyzer, Outcome]]:
    left = {analyzer.name: analyzer for analyzer in analyzers}

    def told(seconds: float | None) -> Iterator[tuple[Analyzer, Outcome]]:
        ready = wait(ends, seconds)
        for end in [end for end in ends if end in ready]:
            try:
                name, outcome = end.recv()
            except (EOFError, OSError):  # killed for want of memory, say, or nothing is left for it
                ends.remove(end)
            else:
                yield left.pop(name), outcome

    for analyzer in analyzers:
        yield from told(0)
        if _takes(folder / analyzer.name):
            yield left.pop(analyzer.name), False
    while left and ends:
        yield from told(None)
    yield from ((analyzer, False) for analyzer in left.values())  # whose process was lost


def _takes(place: Path) -> bool:
    """Return whether an analyzer is this process's to make: which one makes its folder."""
    try:
        place.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _help(
    answers: Connection, paths: Sequence[Path], sent: Sequence[bytes], folder: Path, formats: Sequence[str]
) -> None:
    """Take analyzers from the last one on, as long as the process lives that this one works for."""
    _begin_helping(paths)
    runs, *analyzers = (pickle.loads(pickled) for pickled in sent)  # noqa: S301 - made by this program a moment ago
    for analyzer in reversed(analyzers):
        if _takes(folder / analyzer.name):
            answers.send((analyzer.name, _made(analyzer, runs, folder / analyzer.name, formats)))


def _help_with_one(
    answers: Connection, paths: Sequence[Path], sent: Sequence[bytes], folder: Path, formats: Sequence[str]
) -> None:
    """Compute one analyzer into a folder, and send what came of it."""
    _begin_helping(paths)
    runs, analyzer = (pickle.loads(pickled) for pickled in sent)  # noqa: S301 - made by this program a moment ago
    answers.send(_made(analyzer, runs, folder, formats))


def _begin_helping(paths: Sequence[Path]) -> None:
    """Prepare a process that works for the first one, and ends with it."""
    guard()
    spare_memory_work()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process, which then ends this one
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    threading.Thread(target=_end_with_the_first, name="rbptrack-first-process", daemon=True).start()
    for path in paths:
        import_path(path)


def _end_with_the_first() -> None:
    """End with the first process: if it was killed, this one would work for nobody."""
    if first := parent_process():
        wait([first.sentinel])
    os._exit(1)


def _made(analyzer: Analyzer, runs: Runs, folder: Path, formats: Sequence[str]) -> Outcome:
    """Compute an analyzer and write its report; returns what `computed` raised."""
    this_process = os.getpid()
    try:
        write_report(computed(analyzer, runs), folder, formats)
    except NothingToSay as error:
        return error
    except RbptrackError as error:
        kind = AnalyzerFault if isinstance(error, AnalyzerFault) else RbptrackError
        return kind(str(error))  # without its cause, which may not be sendable
    finally:
        if os.getpid() != this_process:  # a process that the analyzer forked and that came back from it
            os._exit(1)
    return True


def spare_memory_work() -> None:
    """Keep freed memory for the next array, and leave imported modules out of garbage collection.

    Counting half a million tokens makes and frees some ten arrays of 4 MB. By default glibc hands such memory back each
    time, and the system fills its pages with zeros anew: 40% of the time of counting. Collections look at every
    object in memory; the modules' own, hundreds of thousands, are never garbage.
    """
    leave_out_what_is_loaded(every=10_000)  # rows live until the end
    with suppress(OSError, AttributeError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _MAPPED)
