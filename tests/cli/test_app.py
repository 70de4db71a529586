"""The command line as it is typed: help, flags, and one line for what is wrong; never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rbptrack.base.errors import MeasurementError, StoreAway
from rbptrack.base.process import Stopped
from tests.conftest import Typed

COMMANDS = ["measure", "plan", "demo", "list", "show", "compare", "report", "analyze"]
COMMANDS += ["export", "import", "verify", "sync", "plugins", "ui"]


def test_bare_it_prints_help(typed: Typed) -> None:
    code, out, err = typed("")
    assert (code, err) == (0, "")
    assert all(command in out for command in COMMANDS)
    assert typed("--version")[1].startswith("rbptrack ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, typed: Typed) -> None:
    code, out, err = typed(f"{command} --help")
    assert (code, err) == (0, "")
    assert "Usage" in out


HEAVY = ("torch", "mlflow", "transformers", "pandas", "hydra", "altair")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['rbptrack', 'list', '--help']; from rbptrack.cli.app import main; main();"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


TYPOS = {
    # commands
    "measur": "Did you mean 'measure'",
    "exprot out.zip": "Did you mean 'export'",
    "nano/6k": "Did you mean model=nano/6k?",
    "wikki": "Did you mean dataset=wiki?",
    "qqqqqq": "no command qqqqqq",
    # words
    "modle=nano/6k": "Did you mean model=?",
    "plan modle=nano/*": "Did you mean model=?",
    "measure nano/6k": "Did you mean model=nano/6k?",
    "demo datset=stdlib": "Did you mean dataset=",
    "model=pythia": "'model=pythia/*' for all its sizes",
    "--model=nano/6k": "Write model=nano/6k",
    "--multirn model=nano/6k": "Did you mean --multirun?",
    "tracking.uri=http://me:hunter2@host:1": "password",
    "tracking.uri=http;//me:hunter2@host": "***@host",
    # flags
    "list --srt ce": "--sort",
    "list nano": "unexpected extra argument",
    "list --format cvs": "csv",
    "list --where": "requires an argument",
    "show": "Missing argument",
    "compare a": "Missing argument",
    "compare a b c": "unexpected extra argument",
    "compare a b --k 1,x": "--k",
    "compare a b --tolerance=-1": "tolerance",
    "compare a b --out missing/x.html": "missing",
    "compare a b --out page.txt": ".html",
    "report --out page.pdf": ".html",
    "report --analyzers powerlaw": "power_law",
    "report --opne": "--open",
    "analyze powerlaw": "Did you mean power_law?",
    "analyze power_law kss=1": "Did you mean ks?",
    "analyze power_law ks=0": "ks",
    "analyze power_law nano": "key=value",
    "analyze powerlaw --help": "Did you mean power_law?",
    "export": "Missing argument",
    "export runs.tar": ".zip",
    "export missing/runs.zip": "missing",
    "export x --to hubb": "hub",
    "import nothing.zip": "nothing.zip",
    "ui --port many": "port",
    "ui --port 0": "port",
    "list --tracking-uri me:hunter2@host": "***@host",
    "list --tracking-uri postgresql://ann:hunter2@db/x": "password",
    "list": "no ",
    "show nano-6k": "no ",
}


@pytest.mark.parametrize("line", TYPOS)
def test_what_is_wrong_gets_a_line(line: str, typed: Typed, tmp_path: Path) -> None:
    code, out, err = typed(line)
    assert code == 2
    assert TYPOS[line] in err
    assert len(err.splitlines()) <= 2
    assert "hunter2" not in err
    assert out == ""
    assert not list(tmp_path.iterdir())


def test_a_page_is_not_written_through_a_link(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "page.html").symlink_to(tmp_path / "secret")
    for line in ("report --out page.html", "compare a b --out page.html"):
        code, _, err = typed(line)
        assert code == 2
        assert "link" in err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (StoreAway("the store http://ann:hunter2@host is away"), 1, "//***@host"),
        (MeasurementError("a NaN"), 1, "a NaN"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (Stopped(143), 143, "interrupted"),
        (RecursionError(), 2, "nested"),
        (OSError(28, "No space left on device", "/data/x"), 1, "disk is full"),
    ],
)
def test_errors_are_a_line_and_an_exit_code(
    error: BaseException, code: int, said: str, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(words: object) -> None:
        raise error

    monkeypatch.setattr("rbptrack.config.compose.compose", fail)
    found, _, err = typed("model=nano/6k")
    assert found == code
    assert said in err
    assert "hunter2" not in err


def test_words_are_completed(tmp_path: Path) -> None:
    def completed(words: str, last: str) -> list[str]:
        environment = {**os.environ, "_RBPTRACK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": last}
        code = "import sys; sys.argv[0] = 'rbptrack'; from rbptrack.cli.app import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return done.stdout.split()

    assert {"measure", "list"} <= set(completed("rbptrack ", "1"))
    assert "model=nano/6k" in completed("rbptrack measure model=nano/", "2")
    assert "nano/6k" in completed("rbptrack\nmeasure\nmodel\n=\nnano/", "4")  # as bash splits it
    assert "nano/6k" in completed("rbptrack\nmodel\n=\nnano/", "3")
    assert "dataset=stdlib,pydocs" in completed("rbptrack plan dataset=stdlib,py", "2")
    assert "--dataset" in completed("rbptrack list --da", "2")
    assert "power_law" in completed("rbptrack analyze power", "2")


def test_a_stop_signal_ends_it_with_its_code(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rbptrack", "model=nano/*", "dataset=pydocs"], cwd=tmp_path, stderr=subprocess.PIPE
    )
    while not list(tmp_path.glob("mlruns/cells/*/blocks")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 143
    assert b"Traceback" not in err
