"""The command line: Typer declares commands, flags, help and completion; `rbptrack.commands` does the work.

`measure` and `plan` take Hydra's words (key=value), all others flags. Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import update_wrapper
from inspect import Parameter, Signature, signature
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer
from typer.exceptions import TyperException

from rbptrack import __version__
from rbptrack.base.errors import BadInput, RbptrackError, disk_trouble, nearest
from rbptrack.base.process import INTERRUPTED, Stopped, stop_signals_raise
from rbptrack.base.secrets import without_password
from rbptrack.config.paths import home
from rbptrack.config.patterns import split_list
from rbptrack.console.log import logged
from rbptrack.console.output import complain, program

if TYPE_CHECKING:
    from rbptrack.commands.selection import Selection

app = typer.Typer(
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Measure how families of language models rank the right next token, and fit the law that their ranks follow.",
)

TRACEBACK = "--traceback"  # wherever it stands on the command line
_WORDS = {"ignore_unknown_options": True, "allow_extra_args": True}  # Hydra's own flags are words, too


def _complete_words(context: typer.Context, incomplete: str) -> list[str]:
    from rbptrack.commands.completion import words

    return words(context.params.get("words") or [], incomplete)


def _complete_analyzers(incomplete: str) -> list[str]:
    from rbptrack.commands.completion import analyzers

    return analyzers(incomplete)


def _split(values: Sequence[str] | None) -> list[str]:
    """The elements of every value of an option that may be repeated."""
    return [element for value in values or () for element in split_list(value)]


def _several(metavar: str, text: str, complete: Callable[[str], list[str]] | None = None) -> Any:
    """An option that may be repeated and may hold a list: `--family nano,pythia`."""
    return typer.Option(metavar=metavar, help=text, callback=_split, autocompletion=complete)


UNSET: list[str] = []
Words = Annotated[
    list[str],
    typer.Argument(
        metavar="KEY=VALUE ...",
        autocompletion=_complete_words,
        help="model=NAMES dataset=NAMES k=1,10,100 and every other key of a config; --cfg job shows all of them",
    ),
]
Options = Annotated[list[str], typer.Argument(metavar="OPTION=VALUE ...", help="options of the plugin")]
Family = Annotated[
    list[str], _several("NAME,...", "only these families; patterns such as 'nano*', exclusions such as '!nano-2m'")
]
Size = Annotated[list[str], _several("SIZE,...", "only these sizes, as published: 70m, 1.4b")]
Model = Annotated[list[str], _several("NAME,...", "only these models: nano-6k or nano/6k")]
Dataset = Annotated[list[str], _several("NAME,...", "only measurements of these datasets")]
Sweep = Annotated[list[str], _several("NAME,...", "only what these sweeps measured or reused")]
Where = Annotated[
    str,
    typer.Option(metavar="CONDITION", help="condition on columns of `list --format csv`: 'seq_len == 256 and ce < 4'"),
]
Uri = Annotated[
    str,
    typer.Option(metavar="URI", help="the tracking store; else MLFLOW_TRACKING_URI, else MLflow's own in this folder"),
]
Experiment = Annotated[
    str, typer.Option(metavar="NAME", help="MLflow's experiment; else MLFLOW_EXPERIMENT_NAME, else rbptrack")
]
PluginsPath = Annotated[list[str], _several("FOLDER,...", "additional folders of plugins")]
Figures = Annotated[
    Literal["svg", "png", "pdf"] | None, typer.Option("--format", help="also write the figures, into a folder")
]
FigureK = Annotated[
    int,
    typer.Option("--k", min=0, metavar="K", help="k of the figure that has a slider on the page; 0: cross-entropy"),
]
RunName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="name of a measurement as `list` prints it, or the beginning of its run ID"),
]

FILTERS = ("family", "size", "model", "dataset", "sweep", "where")
_SELECTING: dict[str, tuple[Any, Any]] = {  # the type and the default of each option that chooses measurements
    "family": (Family, UNSET),
    "size": (Size, UNSET),
    "model": (Model, UNSET),
    "dataset": (Dataset, UNSET),
    "sweep": (Sweep, UNSET),
    "where": (Where, ""),
    "tracking_uri": (Uri, ""),
    "experiment": (Experiment, ""),
}


def _selects(filters: Sequence[str] = ()) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command the options of a store and of filters. Its parameter `selection` holds what they choose."""

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        hints = get_type_hints(command, localns={"Selection": object}, include_extras=True)
        own = [
            parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
            for name, parameter in signature(command).parameters.items()
            if name != "selection"
        ]
        options = [*filters, "tracking_uri", "experiment"]
        for name in options:
            kind, default = _SELECTING[name]
            own.append(Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default))

        def run(**given: Any) -> int:
            from rbptrack.analysis.runs import Filters
            from rbptrack.commands.selection import Selection

            chosen = {name: given.pop(name) for name in options}
            uri, experiment = chosen.pop("tracking_uri"), chosen.pop("experiment")
            return command(selection=Selection(uri, experiment, Filters(**chosen)), **given)

        update_wrapper(run, command)
        del run.__wrapped__  # type: ignore[attr-defined]  # Typer would read its parameters
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in own}
        run.__signature__ = Signature(own)  # type: ignore[attr-defined]
        return run

    return decorate


@app.command(context_settings=_WORDS)
def measure(words: Words = UNSET) -> int:
    """Measure models on datasets, then analyse them.

    Example: rbptrack measure model=pythia/* dataset=wiki,humaneval. Cells that were measured before are skipped. Quote
    patterns in zsh, and in every shell if they contain !: 'model=pythia/*,!pythia/12b'.
    """
    from rbptrack.commands.measure import measure

    return measure(words)


@app.command(hidden=True)
def job(file: Annotated[Path, typer.Argument(metavar="FILE")]) -> int:
    """Measure the cells of a job file, which `launch=gpus` and `launch=slurm` write, and leave the results on disk."""
    from rbptrack.sweep import run_job

    return run_job(file)


@app.command(context_settings=_WORDS)
def plan(words: Words = UNSET) -> int:
    """Estimate time, memory and downloads of a sweep without running it."""
    from rbptrack.commands.measure import plan

    return plan(words)


@app.command(context_settings=_WORDS)
def demo(words: Words = UNSET) -> int:
    """Measure seven built-in models on two built-in datasets and fit their laws. Needs no network."""
    from rbptrack.commands.measure import demo

    return demo(words)


@app.command("list")
@_selects(FILTERS)
def list_(
    selection: Selection,
    sort: Annotated[
        str, typer.Option(metavar="COLUMN,...", help="sort by these columns; -COLUMN sorts from large to small")
    ] = "",
    form: Annotated[
        Literal["table", "csv", "json", "markdown", "latex"],
        typer.Option("--format", help="format of the table; csv and json have all columns"),
    ] = "table",
) -> int:
    """List measurements as a table."""
    from rbptrack.commands.listing import list_measurements

    return list_measurements(selection, sort=sort, form=form)


@app.command()
@_selects()
def show(selection: Selection, name: RunName) -> int:
    """Show the details of one measurement."""
    from rbptrack.commands.listing import show_measurement

    return show_measurement(selection, name)


@app.command()
@_selects()
def compare(
    selection: Selection,
    a: Annotated[str, typer.Argument(metavar="A", help="a measurement, as `list` names it")],
    b: Annotated[str, typer.Argument(metavar="B", help="another measurement of the same tokens")],
    k: Annotated[str, typer.Option(metavar="K,...", help="k of RBP_k")] = "1,10,100",
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="exit with 1 if B is worse by more than this (nats of CE, or share of RBP_k), with 3 if undecided",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.html", help="also write a page to this file")] = None,
) -> int:
    """Compare two measurements of the same tokens, token by token."""
    from rbptrack.commands.compare import compare

    return compare(selection, a, b, ks=k, tolerance=tolerance, out=out)


@app.command()
def read(
    models: Annotated[str, typer.Argument(metavar="MODELS", help="names or patterns: 'nano/*', gpt2-124m,gpt2-355m")],
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="a name, or patterns")],
    document: Annotated[
        list[str], _several("ID,...", "show these documents; by default those that say most about the models")
    ] = UNSET,
    tokens: Annotated[int, typer.Option(min=1, metavar="N", help="show at most this many tokens")] = 20_000,
    out: Annotated[Path, typer.Option(metavar="FILE.html", help="write the page to this file")] = Path("read.html"),
    open_: Annotated[bool, typer.Option("--open", help="show the page in the browser")] = False,
    sweep: Sweep = UNSET,
    where: Where = "",
    tracking_uri: Uri = "",
    experiment: Experiment = "",
) -> int:
    """Write a page that shows the text as the models see it: each token coloured by its rank."""
    from rbptrack.analysis.runs import Filters
    from rbptrack.commands.read import read
    from rbptrack.commands.selection import Selection

    filters = Filters(where, model=split_list(models), dataset=split_list(dataset), sweep=sweep)
    selection = Selection(tracking_uri, experiment, filters)
    return read(selection, documents=document, tokens=tokens, out=out, open_page=open_)


@app.command()
@_selects(FILTERS)
def report(
    selection: Selection,
    out: Annotated[Path | None, typer.Option(metavar="FILE.html", help="also write the page to this file")] = None,
    open_: Annotated[bool, typer.Option("--open", help="show the page in the browser")] = False,
    figures: Figures = None,
    k: FigureK = 10,
    analyzers: Annotated[
        list[str], _several("NAME,...", "only these analyzers; patterns are allowed", _complete_analyzers)
    ] = UNSET,
    plugins_path: PluginsPath = UNSET,
) -> int:
    """Analyse existing measurements and write one page with the results."""
    from rbptrack.commands.report import report

    return report(
        selection,
        patterns=analyzers,
        plugins_path=plugins_path,
        out=out,
        figures=figures or "",
        k=k,
        open_page=open_,
    )


@app.command(add_help_option=False)
@_selects(FILTERS)
def analyze(
    ctx: typer.Context,
    selection: Selection,
    analyzer: Annotated[str, typer.Argument(metavar="ANALYZER", autocompletion=_complete_analyzers)] = "",
    options: Options = UNSET,
    figures: Figures = None,
    k: FigureK = 10,
    plugins_path: PluginsPath = UNSET,
    help_: Annotated[bool, typer.Option("--help", "-h", help="show this help, or the options of ANALYZER")] = False,
) -> int:
    """Run one analyzer on the measurements, such as analyze power_law ks=1,10 --dataset wiki."""
    if not analyzer:
        print(ctx.get_help())
        return 0 if help_ else 2
    from rbptrack.commands.report import analyze, describe

    if help_:
        return describe(analyzer, plugins_path)
    return analyze(selection, analyzer, options, plugins_path=plugins_path, figures=figures or "", k=k)


@app.command()
@_selects(FILTERS)
def export(
    selection: Selection,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="the new bundle, NAME.zip; with --to, the new folder")],
    options: Options = UNSET,
    to: Annotated[str, typer.Option(metavar="EXPORTER", help="hand the measurements to this exporter")] = "",
    texts: Annotated[
        bool, typer.Option("--texts", help="add read.html, a page that shows the texts, to the bundle")
    ] = False,
    plugins_path: PluginsPath = UNSET,
) -> int:
    """Write measurements into a bundle that others can import, or hand them to an exporter."""
    from rbptrack.commands.transfer import export

    return export(selection, out, to=to, options=options, plugins_path=plugins_path, texts=texts)


@app.command("import")
@_selects()
def import_(
    selection: Selection,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="a bundle, or a file that an importer can read")],
    options: Options = UNSET,
    importer: Annotated[
        str, typer.Option(metavar="NAME", help="use this importer; needed if several importers can read the file")
    ] = "",
    plugins_path: PluginsPath = UNSET,
) -> int:
    """Import measurements from a bundle, from tables of metrics or ranks, or from scores of tasks."""
    from rbptrack.commands.transfer import import_path

    return import_path(selection, path, options, importer=importer, plugins_path=plugins_path)


@app.command()
@_selects()
def verify(
    selection: Selection,
    repair: Annotated[
        bool, typer.Option("--repair", help="mark damaged measurements; the next sweep measures them again")
    ] = False,
) -> int:
    """Check that no measurement was altered and that metrics agree with ranks."""
    from rbptrack.commands.store import verify

    return verify(selection, repair=repair)


@app.command()
@_selects()
def sync(selection: Selection) -> int:
    """Deliver measurements that wait on this disk to the tracking store."""
    from rbptrack.commands.store import sync

    return sync(selection)


plugins_app = typer.Typer()
app.add_typer(plugins_app, name="plugins")


@plugins_app.callback(invoke_without_command=True)
def plugins(ctx: typer.Context, plugins_path: PluginsPath = UNSET) -> int:
    """List analyzers, importers and exporters with their purpose and their origin."""
    if ctx.invoked_subcommand:
        return 0
    from rbptrack.commands.plugins import list_plugins

    return list_plugins(plugins_path)


@plugins_app.command("new")
def new_plugin(
    name: Annotated[str, typer.Argument(metavar="NAME", help="the name of the plugin and of its file")],
    kind: Annotated[Literal["analyzer", "importer", "exporter"], typer.Option(help="kind of plugin")] = "analyzer",
) -> int:
    """Create a working plugin in plugins/ of this folder, as a file to start from."""
    from rbptrack.commands.plugins import new_plugin

    return new_plugin(name, kind)


@app.command()
@_selects()
def ui(
    selection: Selection,
    host: Annotated[str, typer.Option(help="address at which the server listens")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 5000,
    open_: Annotated[bool, typer.Option("--open", help="open the page in the browser when the server answers")] = False,
) -> int:
    """Start MLflow's web page for this tracking store."""
    from rbptrack.commands.store import ui

    return ui(selection, host=host, port=port, open_page=open_)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"rbptrack {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
    traceback: Annotated[
        bool, typer.Option(TRACEBACK, help="print the whole traceback of an unexpected error, after any command")
    ] = False,
) -> None:
    pass


def main() -> int:
    """Run the command of `sys.argv`; returns the exit code: 0, 1 for a failure, 2 for bad input."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # threads that spin beside other work slow a small model 25-fold
    try:
        Path.home()
    except RuntimeError:  # a user without an entry in /etc/passwd, and no HOME: MLflow and caches ask for one
        os.environ["HOME"] = tempfile.gettempdir()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an encoding without ± or α
    words = [word for word in sys.argv[1:] if word != TRACEBACK]
    with logged(home() / "rbptrack.log", on_terminal=TRACEBACK in sys.argv):
        return _guarded(lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    if "_RBPTRACK_COMPLETE" in os.environ:
        from rbptrack.commands.completion import insert_measure

        insert_measure(os.environ)
    with stop_signals_raise():
        return app(_with_command(words), prog_name=program(), standalone_mode=False) or 0


def _with_command(words: Sequence[str]) -> list[str]:
    """Add the command `measure` before a first word that is key=value or a flag. Without words, return --help.

    Raises:
        BadInput: the command is unknown.

    """
    if not words:
        return ["--help"]
    first = words[0]
    if first in ("-h", "--help", "--version") or first.endswith("-completion"):
        return list(words)
    if "=" in first or first.startswith("-"):
        return ["measure", *words]
    _check_command(first)
    return list(words)


def _check_command(word: str) -> None:
    """Raise BadInput if a word is not a command. The message suggests a similar command, model or dataset."""
    commands = [command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands]
    commands += [str(group.name) for group in app.registered_groups]
    if word in commands:
        return
    if near := nearest(word, commands):
        raise BadInput(f"no command {word}. Did you mean '{near[0]}'?")
    from rbptrack.config.words import config_names

    for key in ("model", "dataset"):
        if near := nearest(word, config_names(key)):
            raise BadInput(f"no command {word}. Did you mean {key}={near[0]}?")
    raise BadInput(f"no command {word}; {program()} --help lists them")


def _guarded(command: Callable[[], int]) -> int:
    """Run a command and return its exit code. Known errors are printed in one or two lines.

    The exit code is 2 for bad input and 1 for other errors.
    """
    try:
        code = command()
        if code == INTERRUPTED:  # what Typer makes of a KeyboardInterrupt
            raise KeyboardInterrupt
        return code
    except (KeyboardInterrupt, Stopped) as error:
        complain("interrupted; finished measurements are saved")
        return error.code if isinstance(error, Stopped) else INTERRUPTED
    except TyperException as error:
        complain(" ".join(error.format_message().split()))
        return error.exit_code
    except RbptrackError as error:
        complain(without_password(str(error)), without_password(error.trace))
        return 2 if isinstance(error, BadInput) else 1
    except RecursionError:
        complain("a value on the command line or in a file is nested too deeply")
        return 2
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        try:
            folder = Path.cwd()
        except OSError:
            complain("the working folder does not exist any more: change to another folder")
            return 1
        trouble = disk_trouble(error, Path(error.filename or folder))
        if trouble is None:
            raise
        complain(str(trouble))
        return 1
