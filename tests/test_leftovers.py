"""A run of the tests that is stopped leaves nothing behind; one that leaves something fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.leftovers import MARK
from tests.patience import lives, until, until_they_end

TESTS = """
import subprocess, sys, time
from pathlib import Path
from tests import leftovers

leftovers.GRACE = 0

def test_server():
    server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1800)"], start_new_session=True)
    unfinished = Path(__file__).with_name("unfinished")
    unfinished.write_text(str(server.pid))
    unfinished.rename(unfinished.with_name("pid"))
    time.sleep(SECONDS)
    server.returncode = 0
"""


def started(folder: Path, workers: int, seconds: int) -> tuple[subprocess.Popen[str], int]:
    """A run of tests, and the number of the process that they have started."""
    (folder / "test_server.py").write_text(TESTS.replace("SECONDS", str(seconds)))
    command = [sys.executable, "-m", "pytest", "-p", "tests.leftovers", "-p", "no:cacheprovider", "-c", os.devnull]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", MARK))}
    tests = subprocess.Popen(
        [*command, "-n", str(workers), folder / "test_server.py"],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    until(lambda: (folder / "pid").exists() or tests.poll() is not None, "server")
    return tests, int((folder / "pid").read_text())


@pytest.mark.parametrize(("workers", "number"), [(0, signal.SIGTERM), (1, signal.SIGKILL)])
def test_a_run_that_is_stopped_ends_what_it_has_started(workers: int, number: int, tmp_path: Path) -> None:
    tests, server = started(tmp_path, workers, seconds=1800)
    with tests:
        assert lives(server)
        tests.send_signal(number)
    assert tests.returncode == -number
    until_they_end([server])


def test_what_is_left_behind_fails_the_run(tmp_path: Path) -> None:
    tests, server = started(tmp_path, workers=0, seconds=0)
    said = tests.communicate()[0]
    assert "1 passed" in said
    assert f"left behind by the tests: {sys.executable} -c import time" in said
    assert tests.returncode == 1
    until_they_end([server])
