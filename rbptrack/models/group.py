"""A model that is larger than one device: processes under torchrun, each with its share of the weights.

The measuring process keeps the corpus, the store and the files; it holds no weights. It sends each batch to every
process and takes the scores from the first. torchrun watches the processes: where one is lost, the others end within
seconds, and the measurement with them.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import suppress
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path

import torch
from torch import Tensor

from rbptrack.base.errors import BadInput, MeasurementError
from rbptrack.config.schema import ModelConfig
from rbptrack.models.group_messages import ADDRESS, KEY, Done, Load, Loaded, Trouble, Work
from rbptrack.scoring.scorer import Head
from rbptrack.scoring.scores import Scores
from rbptrack.sources.pin import Source

SOCKET = "socket"
_LONGEST_ADDRESS = 100  # bytes; Linux takes 107, macOS 103
_START_SECONDS = 300.0  # until every process has imported torch and said so, on a machine under load too
_WORDS_SECONDS = 60.0  # until torchrun has said which process was lost
_END_SECONDS = 20.0
_POLL_SECONDS = 0.5


class ModelProcesses:
    """The processes of one model; they start with the first call and end with `close`, or with this object.

    Args:
        config: which model, and how.
        source: its pinned weights.
        processes: how many.
        candidates: rank targets among the first so many rows of the head; None: all.

    Attributes:
        loaded: what the first process loaded; `free_bytes` is the least of all.
        peak_bytes: the most memory that a process has used.

    """

    def __init__(self, config: ModelConfig, source: Source, processes: int, *, candidates: int | None) -> None:
        self._load, self._processes, self._name = Load(config, source, candidates), processes, config.name
        self._links: list[Connection] = []
        self._close: weakref.finalize[..., ModelProcesses] | None = None
        self._over: Exception | None = None  # why there are no processes any more, and none are started again
        self.peak_bytes = 0
        self.loaded = self._start()

    def __str__(self) -> str:
        """`4 processes on cuda`, for people."""
        return f"{self._processes} processes on {self.loaded.device}"

    @property
    def over(self) -> bool:
        """Whether a process was lost: this group scores nothing more, and another one can be loaded."""
        return self._over is not None

    def scores(self, token_ids: Tensor, state_index: Tensor, target_ids: Tensor, *, chunk_tokens: int) -> Scores:
        """Score a batch; see `Batch` for the tensors' meaning.

        Raises:
            torch.OutOfMemoryError: a process had too little memory; a smaller batch may be tried.
            MeasurementError: a process was lost.

        """
        if self._over is not None:
            raise self._over
        if not self._links:  # ended by a lack of memory
            self._start()
        work = Work(token_ids.numpy(), state_index.numpy(), target_ids.numpy(), chunk_tokens)
        answers = self._ask(work)
        self.peak_bytes = max(self.peak_bytes, *(a.peak_bytes for a in answers if isinstance(a, Done)))
        first = answers[0]
        assert isinstance(first, Done)  # noqa: S101  _ask raises for anything else
        assert first.scores is not None  # noqa: S101
        return Scores(**{name: torch.from_numpy(column) for name, column in first.scores.items()})

    def close(self) -> None:
        """End the processes."""
        self._links = []
        if self._close is not None:
            self._close()

    def _start(self) -> Loaded:
        folder = _private_folder()
        key = secrets.token_hex(16)
        threads = max(1, torch.get_num_threads() // self._processes)
        here = {"CUDA_VISIBLE_DEVICES": ""} if self._load.config.device == "cpu" else {}
        environment = os.environ | here | {ADDRESS: str(folder / SOCKET), KEY: key, "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        command += [str(self._processes), "-m", "rbptrack.models.group_process"]
        with Listener(environment[ADDRESS], backlog=self._processes, authkey=key.encode()) as listener:
            with (folder / "log").open("w") as log:
                agent = subprocess.Popen(  # noqa: S603
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            self._agent, self._folder = agent, folder
            links: list[Connection] = []
            self._close = weakref.finalize(self, _end, agent, links, folder)
            self._links = links
            self._accept(listener, links)
        answers = self._ask(self._load)
        loaded = [a for a in answers if isinstance(a, Loaded)]
        first = loaded[0]
        return Loaded(**{**first.__dict__, "free_bytes": min(a.free_bytes for a in loaded)})

    def _accept(self, listener: Listener, links: list[Connection]) -> None:
        """Wait for every process, and put their connections in order."""
        accepting = listener._listener._socket  # type: ignore[attr-defined]
        accepting.settimeout(_POLL_SECONDS)
        connections: dict[int, Connection] = {}
        deadline = time.monotonic() + _START_SECONDS
        while len(connections) < self._processes:
            if self._agent.poll() is not None or time.monotonic() > deadline:
                raise self._lost("did not start")
            with suppress(TimeoutError, EOFError, ConnectionError):  # of one that ends as it comes, torchrun tells
                link = listener.accept()
                connections[link.recv()] = link
        links += [connections[i] for i in range(self._processes)]

    def _ask(self, message: object) -> list[object]:
        """Send a message to every process and return the answers, in order."""
        answers: dict[int, object] = {}
        place = {id(link): i for i, link in enumerate(self._links)}
        waiting = list(self._links)
        try:
            for link in self._links:
                link.send(message)
            while waiting:
                for ready in wait(waiting, timeout=_POLL_SECONDS):
                    assert isinstance(ready, Connection)  # noqa: S101
                    answer = ready.recv()
                    if isinstance(answer, Trouble):
                        raise self._trouble(place[id(ready)], answer)
                    answers[place[id(ready)]] = answer
                    waiting.remove(ready)
                if self._agent.poll() is not None and waiting:
                    raise self._lost("were lost")
        except (EOFError, OSError) as error:
            raise self._lost("were lost") from error
        return [answers[i] for i in range(self._processes)]

    def _trouble(self, process: int, said: Trouble) -> Exception:
        self.close()
        if said.kind == "input":
            return BadInput(said.message)
        if said.kind == "memory":
            return torch.OutOfMemoryError(said.message)
        return MeasurementError(
            f"model {self._name}: process {process + 1} of {self._processes} failed: {said.message}"
        )

    def _lost(self, what: str) -> Exception:
        """The words for a process that ended without a word."""
        deadline = time.monotonic() + _WORDS_SECONDS  # torchrun ends the others first, and says which one it was
        while self._agent.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        said = (self._folder / "log").read_text(encoding="utf-8", errors="replace")
        self.close()
        exit_code = re.search(r"exitcode:\s*(-?\d+).*?local_rank:\s*(\d+)", said)
        code, process = (int(exit_code[1]), int(exit_code[2])) if exit_code else (0, 0)
        how = f"ended with exit code {code}" if exit_code else what
        if code < 0:
            how = f"was killed by signal {-code}"
        which = f"process {process + 1} of {self._processes}" if exit_code else f"its {self._processes} processes"
        self._over = MeasurementError(
            f"model {self._name}: {which} {how}; what was measured is kept, and the same command continues there"
        )
        return self._over


def _private_folder() -> Path:
    """A temporary folder in which a socket can be made, whose path the system keeps short."""
    folder = Path(tempfile.mkdtemp(prefix="rbptrack-group-"))
    if len(os.fsencode(folder / SOCKET)) <= _LONGEST_ADDRESS:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="rbptrack-group-", dir="/tmp"))


def _end(agent: subprocess.Popen[bytes], links: list[Connection], folder: Path) -> None:
    """Close the connections, at which the processes end by themselves; kill what does not."""
    for link in links:
        with suppress(OSError):
            link.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            agent.wait(timeout=_END_SECONDS / 4)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(agent.pid, number)
        else:
            break
    agent.wait()
    shutil.rmtree(folder, ignore_errors=True)


def stand_in(loaded: Loaded) -> Head:
    """A head of the model's shape and type that takes no memory: the weights are elsewhere."""
    return Head(torch.zeros(1, 1, dtype=loaded.dtype).expand(loaded.vocab_size, loaded.width))
