"""Tests of the whole command line: help, wrong words, exit codes and completion."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from rbptrack.base.errors import MeasurementError, StoreAway
from rbptrack.base.process import Stopped
from rbptrack.cli.app import app, main
from tests.conftest import RunCommand

COMMANDS = [name for name, command in typer.main.get_group(app).commands.items() if not command.hidden]


def test_rbptrack_without_words_prints_help_with_all_commands(run_command: RunCommand) -> None:
    code, out, err = run_command("")
    assert (code, err) == (0, "")
    assert all(command in out for command in COMMANDS)


def test_version_begins_with_the_name_of_the_program(run_command: RunCommand) -> None:
    assert run_command("--version")[1].startswith("rbptrack ")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_shows_its_usage(command: str, run_command: RunCommand) -> None:
    code, out, err = run_command(f"{command} --help")
    assert (code, err) == (0, "")
    assert "Usage" in out


@pytest.mark.parametrize(
    ("words", "same"), [("help", "--help"), ("help list", "list --help"), ("version", "--version")]
)
def test_help_and_version_are_commands_too(words: str, same: str, run_command: RunCommand) -> None:
    assert run_command(words) == run_command(same)


def test_models_lists_the_matching_models_with_their_repositories(run_command: RunCommand) -> None:
    code, out, _ = run_command("models pythia/1b opt/*")
    assert code == 0
    lines = out.splitlines()[1:]
    assert lines[0].split()[:3] == ["pythia/1b", "1b", "EleutherAI/pythia-1b"]
    assert all("OPT licence" in line for line in lines[1:])


def test_models_shows_s_after_the_parameters_were_counted(run_command: RunCommand) -> None:
    assert run_command("plan model=nano/6k dataset=pydocs")[0] == 0
    assert "5.68k" in run_command("models nano/6k")[1]


def test_datasets_lists_all_datasets_that_need_no_further_option(run_command: RunCommand) -> None:
    code, out, _ = run_command("datasets")
    assert code == 0
    assert {"wiki", "pydocs", "humaneval"} <= {line.split()[0] for line in out.splitlines()}


def test_experiment_that_only_an_id_names_is_refused(run_command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "1")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    assert run_command("list")[0] == 2
    assert "MLFLOW_EXPERIMENT_NAME" in run_command("model=nano/6k")[2]
    for words in ("list --help", "list -h", "help list", "version", ""):
        assert run_command(words)[0] == 0


SLOW_IMPORTS = ("torch", "mlflow", "transformers", "pandas", "hydra", "altair")


def test_help_does_not_import_slow_libraries() -> None:
    code = (
        "import sys; sys.argv = ['rbptrack', 'list', '--help']; from rbptrack.cli.app import main; main();"
        f"print([name for name in {SLOW_IMPORTS} if name in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.endswith("[]\n")


TYPOS = {
    # commands
    "measur": "Did you mean 'measure'",
    "exprot out.zip": "Did you mean 'export'",
    "eval model=nano/6k": "rbptrack measure model=",
    "model nano/6k dataset pydocs": "rbptrack model=MODEL dataset=DATASET",
    "runs": "rbptrack list?",
    "fit": "rbptrack analyze power_law?",
    "config": "rbptrack --cfg job?",
    "list --models": "rbptrack models?",
    "plugins list": "rbptrack plugins?",
    "models --family nano": "rbptrack models 'FAMILY/*'",
    "export --format csv": "rbptrack list --format csv?",
    "report html": "rbptrack report --out",
    "report nano": "--family",
    "model=nano/6k --plot": "report",
    "model=nano/6k output=ranks.csv": "list --format csv",
    "list models": "rbptrack models?",
    "list -f csv": "--format",
    "model=nano/6k --dry-run": "plan",
    "delete": "MLflow",
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
    "--device cpu model=nano/6k": "model.device=",
    "--limit 10 model=nano/6k": "dataset.documents=",
    "batch_size=8": "engine.batch_tokens=",
    "models=nano/*": "Did you mean model=?",
    "--multirn model=nano/6k": "Did you mean --multirun?",
    "tracking.uri=http://me:hunter2@host:1": "password",
    "tracking.uri=http;//me:hunter2@host": "***@host",
    # flags
    "list --srt ce": "--sort",
    "list nano": "--family",
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
    "analyze power_law --out page.html": "report --analyzers",
    "status": "list?",
    "analyze powerlaw": "Did you mean power_law?",
    "analyze power_law margn=0.1": "Did you mean margin?",
    "analyze power_law k=0": "k=0",
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
"""The part of the message that says what is wrong or what to write, by wrong command line."""


@pytest.mark.parametrize("line", TYPOS)
def test_wrong_command_line_is_explained_in_two_lines_and_writes_nothing(
    line: str, run_command: RunCommand, tmp_path: Path
) -> None:
    code, out, err = run_command(line)
    assert code == 2
    assert TYPOS[line] in err
    assert len(err.splitlines()) <= 2
    assert "hunter2" not in err
    assert out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("line", ["report --out page.html", "compare a b --out page.html"])
def test_report_and_compare_do_not_write_a_page_through_a_link(
    line: str, run_command: RunCommand, tmp_path: Path
) -> None:
    (tmp_path / "page.html").symlink_to(tmp_path / "secret")
    code, _, err = run_command(line)
    assert code == 2
    assert "link" in err


@pytest.mark.parametrize(
    ("error", "expected_code", "part_of_message"),
    [
        (StoreAway("the store http://ann:hunter2@host is away"), 1, "//***@host"),
        (MeasurementError("a NaN"), 1, "a NaN"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (Stopped(143), 143, "interrupted"),
        (RecursionError(), 2, "nested"),
        (OSError(28, "No space left on device", "/data/x"), 1, "No space left on device"),
    ],
)
def test_error_of_a_command_sets_the_exit_code_and_hides_passwords(
    error: BaseException,
    expected_code: int,
    part_of_message: str,
    run_command: RunCommand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(words: object) -> None:
        raise error

    monkeypatch.setattr("rbptrack.config.compose.compose_cells", fail)
    code, _, err = run_command("model=nano/6k")
    assert code == expected_code
    assert part_of_message in err
    assert "hunter2" not in err


@pytest.mark.parametrize(
    ("words", "index", "completion"),
    [
        ("rbptrack ", 1, "measure"),
        ("rbptrack ", 1, "list"),
        ("rbptrack measure model=nano/", 2, "model=nano/6k"),
        ("rbptrack\nmeasure\nmodel\n=\nnano/", 4, "nano/6k"),  # bash splits words at =
        ("rbptrack\nmodel\n=\nnano/", 3, "nano/6k"),
        ("rbptrack plan dataset=stdlib,py", 2, "dataset=stdlib,pydocs"),
        ("rbptrack list --da", 2, "--dataset"),
        ("rbptrack analyze power", 2, "power_law"),
    ],
)
def test_completion_for_bash_offers_commands_options_and_configs(
    words: str, index: int, completion: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """bash passes the words, and the index of the word to complete, in environment variables."""
    monkeypatch.setattr(sys, "argv", ["rbptrack"])
    monkeypatch.setenv("_RBPTRACK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(index))
    with pytest.raises(SystemExit):
        main()
    assert completion in capsys.readouterr().out.split()
