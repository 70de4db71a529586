"""What tests start ends with them: servers, browsers, databases and sweeps, however the run of the tests ends.

All of it has a mark in its environment. At the end of a run what still lives is named, and fails it; where the run is
stopped, be it by SIGKILL, a process that outlives it for that purpose ends everything.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

MARK = "TESTS_RUN"  # a variable: names the run of the tests that a process belongs to
GRACE = 60  # seconds in which what has been told to end does so, on a busy machine


def marked(name: str) -> list[psutil.Process]:
    """The processes of a run that live, without this one, its helpers, which end with it, and its parents."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [process for process in psutil.process_iter() if process.pid not in own and _belongs(process, name)]


def _belongs(process: psutil.Process, name: str) -> bool:
    with suppress(psutil.Error):
        helper = process.ppid() == os.getpid() and "from multiprocessing." in " ".join(process.cmdline())
        return not helper and process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == name
    return False


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Mark this process and those to come, and start what outlives it; a worker is marked by who started it."""
    if MARK not in os.environ:
        os.environ[MARK] = uuid.uuid4().hex
        command = [sys.executable, "-m", "tests.leftovers", os.environ[MARK]]
        unmarked = {name: value for name, value in os.environ.items() if name != MARK}
        config.stash[_WATCH] = subprocess.Popen(
            command, stdin=subprocess.PIPE, env=unmarked, start_new_session=True, cwd=Path(__file__).parent.parent
        )


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Name what the tests left behind, and end it."""
    yield
    if watch := session.config.stash.get(_WATCH, None):
        name, deadline = os.environ.pop(MARK), time.monotonic() + GRACE
        while (left := marked(name)) and time.monotonic() < deadline:
            time.sleep(0.1)
        if left:
            for process in left:
                session.config.get_terminal_writer().line(f"left behind by the tests: {' '.join(process.cmdline())}")
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        watch.communicate()


_WATCH = pytest.StashKey[subprocess.Popen[bytes]]()


def _watch(name: str) -> None:
    """Wait until the run of the tests has ended, or was, and kill what is left of it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    while left := marked(name):
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(0.1)


if __name__ == "__main__":
    _watch(sys.argv[1])
