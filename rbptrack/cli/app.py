"""The command line: registers the commands, and turns their errors into messages and exit codes.

`measure`, `plan` and `demo` take Hydra's overrides, such as `model=pythia/70m`. The other commands take flags. This
file imports no slow modules, because `--help` and completion load it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from io import TextIOWrapper
from pathlib import Path
from traceback import format_exception
from typing import Annotated

import typer
from typer.exceptions import TyperException

from rbptrack import __version__
from rbptrack.base.errors import BadInput, RbptrackError, file_access_error, first_line
from rbptrack.base.process import INTERRUPT_EXIT_CODE, Stopped, search_garbage_rarely, stop_signals_raise
from rbptrack.cli import plugins
from rbptrack.cli.catalogue import datasets, models
from rbptrack.cli.compare import compare
from rbptrack.cli.completion import insert_measure
from rbptrack.cli.export import export
from rbptrack.cli.hints import unknown_command_error, usage_error_text
from rbptrack.cli.importing import import_
from rbptrack.cli.label import label
from rbptrack.cli.listing import list_, show
from rbptrack.cli.measure import demo, job, measure
from rbptrack.cli.options import WORDS
from rbptrack.cli.plan import plan
from rbptrack.cli.read import read
from rbptrack.cli.report import analyze, report
from rbptrack.cli.sync import sync
from rbptrack.cli.ui import ui
from rbptrack.cli.verify import verify
from rbptrack.config.paths import mlruns_folder
from rbptrack.console.log import log_to_file
from rbptrack.console.output import print_problem, program_name

TRACEBACK = "--traceback"  # accepted at any place on the command line

_MAX_QUOTED = 300  # largest number of characters of an unexpected error that are printed
_NEED_NO_STORE = ("--help", "-h", "--version", "plugins", "models", "datasets", "job")

app = typer.Typer(
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Measure how families of language models rank the right next token, and fit the law that their ranks follow.

    Example: rbptrack 'model=pythia/*' dataset=wiki

    To try rbptrack without a download: rbptrack demo
    """,
)
app.command(context_settings=WORDS)(measure)
app.command(hidden=True)(job)
app.command(context_settings=WORDS)(plan)
app.command(context_settings=WORDS)(demo)
app.command()(models)
app.command()(datasets)
app.command("list")(list_)
app.command()(show)
app.command()(label)
app.command()(compare)
app.command()(read)
app.command()(report)
app.command(add_help_option=False)(analyze)
app.command()(export)
app.command("import")(import_)
app.command()(verify)
app.command()(sync)
app.command()(ui)
app.add_typer(plugins.app, name="plugins")


def _print_version(requested: bool) -> None:
    if requested:
        print(f"rbptrack {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option(
            TRACEBACK, help="print the whole traceback of an unexpected error; allowed anywhere on the command line"
        ),
    ] = False,
) -> None:
    pass


def main() -> int:
    """Run the command in `sys.argv`. Returns the exit code.

    It is 0 for success, 1 for a failure, 2 for bad input, and 3 if `compare` cannot decide. A signal has its own code.
    """
    search_garbage_rarely()
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # If other programs use the cores, OpenMP's spinning threads slow a small model 25-fold.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        Path.home()
    except RuntimeError:  # the user has no HOME and no entry in /etc/passwd, but MLflow and caches need a home
        os.environ["HOME"] = tempfile.gettempdir()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the terminal's encoding may have no ± or α
    words = [word for word in sys.argv[1:] if word != TRACEBACK]
    with log_to_file(mlruns_folder() / "rbptrack.log", on_terminal=TRACEBACK in sys.argv):
        return _run_with_messages(words)


def _run_command(words: list[str]) -> int:
    if "_RBPTRACK_COMPLETE" in os.environ:
        insert_measure(os.environ)
    words = _add_default_command(words)
    _check_experiment_id(words)
    with stop_signals_raise():
        return app(words, prog_name=program_name(), standalone_mode=False) or 0


def _check_experiment_id(words: list[str]) -> None:
    """Raise BadInput if only the variable MLFLOW_EXPERIMENT_ID names an experiment, which rbptrack does not read."""
    if not os.environ.get("MLFLOW_EXPERIMENT_ID") or os.environ.get("MLFLOW_EXPERIMENT_NAME"):
        return
    asks_for_help = not {"--help", "-h"}.isdisjoint(words)
    if words[0] in _NEED_NO_STORE or asks_for_help or any("experiment" in word for word in words):
        return
    raise BadInput(
        "MLFLOW_EXPERIMENT_ID is set, but rbptrack needs the name of an experiment: set MLFLOW_EXPERIMENT_NAME, or "
        "unset MLFLOW_EXPERIMENT_ID"
    )


def _add_default_command(words: list[str]) -> list[str]:
    """Add the command `measure` if the first word is key=value or a flag. Without words, return `--help`.

    Raises BadInput if the command is unknown.
    """
    if not words:
        return ["--help"]
    if words[0] in ("help", "version"):
        words = [*words[1:2], "--help"] if words[0] == "help" else ["--version"]
    first = words[0]
    if first in ("-h", "--help", "--version") or first.endswith("-completion"):
        return words
    if "=" in first or first.startswith("-"):
        return ["measure", *words]
    names = [command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands]
    names += [str(group.name) for group in app.registered_groups]
    if first not in names:
        raise unknown_command_error(first, names)
    return words


def _run_with_messages(words: list[str]) -> int:
    """Run the command of a command line and return its exit code. Expected errors are printed in one or two lines.

    The exit code of an error is 2 for bad input and 1 otherwise. The traceback of an unexpected error is logged.
    """
    try:
        code = _run_command(words)
        if code == INTERRUPT_EXIT_CODE:  # Typer turns a KeyboardInterrupt into this exit code
            raise KeyboardInterrupt
        return code
    except (KeyboardInterrupt, Stopped) as error:
        print_problem("interrupted; finished measurements are saved")
        return error.code if isinstance(error, Stopped) else INTERRUPT_EXIT_CODE
    except TyperException as error:
        print_problem(usage_error_text(error))
        return error.exit_code
    except RbptrackError as error:
        print_problem(str(error), error.trace)
        return 2 if isinstance(error, BadInput) else 1
    except RecursionError:
        print_problem("a value on the command line or in a file is nested too deeply: use fewer levels")
        return 2
    except BrokenPipeError:  # the reader of our output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        try:
            folder = Path.cwd()
        except OSError:
            print_problem("the working folder does not exist any more: change to another folder")
            return 1
        if known_error := file_access_error(error, folder):
            print_problem(str(known_error))
        else:
            print_problem(f"unexpected error: {first_line(error)[:_MAX_QUOTED]}", "".join(format_exception(error)))
        return 1
