"""Every command once as users start it: a new process that makes its own imports and takes itself apart at its end.

The other tests start programs as forks (tests/prepared.py), which end without that; what an extension module, a
destructor or a thread complains of at the end is seen here alone.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rbptrack.commands.catalogue import COMMANDS
from tests.conftest import Program

CALLS = {
    "analyze": ("analyze", "k_law", "dataset=pydocs"),
    "bench": ("bench", "--help"),  # its measurements take minutes: tests/test_bench.py
    "cache": ("cache",),
    "compare": ("compare", "nano-6k/pydocs", "nano-115k/pydocs"),
    "completion": ("completion", "bash"),
    "demo": ("demo", "model=nano/6k", "dataset=pydocs", "dataset.documents=25", "analyzers=[]"),  # measured already
    "export": ("export", "size=6k", "out=part.zip"),
    "help": ("help",),
    "import": ("import", "scores.csv"),
    "list": ("list",),
    "measure": ("measure", "model=nano/15k", "dataset=pydocs", "dataset.documents=3", "analyzers=[]"),
    "plan": ("plan", "model=nano/15k", "dataset=pydocs", "dataset.documents=3"),
    "plugins": ("plugins",),
    "report": ("report", "dataset=pydocs", "analyzers=k_law", "out=report.html"),
    "rm": ("rm", "nosuch", "yes=true"),
    "show": ("show", "nano-6k/pydocs"),
    "sync": ("sync",),
    "ui": ("ui", "family=nosuch"),
    "verify": ("verify",),
}
FAILS = {"rm": 2, "ui": 2}  # nothing is deleted, and no server stays


@pytest.fixture(scope="module")
def folder(untouched: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the shared sweep's folder."""
    place = tmp_path_factory.mktemp("fresh") / "store"
    shutil.copytree(untouched, place)
    (place / "scores.csv").write_text("model,task,score,n\nnano-6k,sums,0.5,10\n")
    return place


def test_none_is_missing() -> None:
    assert set(CALLS) == set(COMMANDS)


@pytest.mark.parametrize("command", CALLS)
def test_a_command_ends_quietly(command: str, folder: Path, program: Program) -> None:
    done = program(*CALLS[command], cwd=folder, fresh=True)
    assert done.returncode == FAILS.get(command, 0), done.stdout + done.stderr
    for complaint in ("leaked", "Exception ignored", "Traceback", "Warning"):
        assert complaint not in done.stderr, done.stderr
