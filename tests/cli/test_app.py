"""The command line as it is typed: help, flags, and one line for what is wrong; never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rbptrack.base.errors import MeasurementError, StoreAway
from rbptrack.base.process import Stopped
from rbptrack.cli.app import main
from tests.conftest import RunCommand

COMMANDS = ["measure", "plan", "demo", "list", "show", "compare", "report", "analyze"]
COMMANDS += ["export", "import", "verify", "sync", "plugins", "ui"]


def test_bare_it_prints_help(run_command: RunCommand) -> None:
    code, out, err = run_command("")
    assert (code, err) == (0, "")
    assert all(command in out for command in COMMANDS)
    assert run_command("--version")[1].startswith("rbptrack ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, run_command: RunCommand) -> None:
    code, out, err = run_command(f"{command} --help")
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
def test_what_is_wrong_gets_a_line(line: str, run_command: RunCommand, tmp_path: Path) -> None:
    code, out, err = run_command(line)
    assert code == 2
    assert TYPOS[line] in err
    assert len(err.splitlines()) <= 2
    assert "hunter2" not in err
    assert out == ""
    assert not list(tmp_path.iterdir())


def test_a_page_is_not_written_through_a_link(run_command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "page.html").symlink_to(tmp_path / "secret")
    for line in ("report --out page.html", "compare a b --out page.html"):
        code, _, err = run_command(line)
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
    error: BaseException, code: int, said: str, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(words: object) -> None:
        raise error

    monkeypatch.setattr("rbptrack.config.compose.compose", fail)
    found, _, err = run_command("model=nano/6k")
    assert found == code
    assert said in err
    assert "hunter2" not in err


@pytest.mark.parametrize(
    ("words", "last", "completed"),
    [
        ("rbptrack ", 1, "measure"),
        ("rbptrack ", 1, "list"),
        ("rbptrack measure model=nano/", 2, "model=nano/6k"),
        ("rbptrack\nmeasure\nmodel\n=\nnano/", 4, "nano/6k"),  # as bash splits it
        ("rbptrack\nmodel\n=\nnano/", 3, "nano/6k"),
        ("rbptrack plan dataset=stdlib,py", 2, "dataset=stdlib,pydocs"),
        ("rbptrack list --da", 2, "--dataset"),
        ("rbptrack analyze power", 2, "power_law"),
    ],
)
def test_words_are_completed(
    words: str, last: int, completed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["rbptrack"])
    for name, value in {"_RBPTRACK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(last)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main()
    assert completed in capsys.readouterr().out.split()
