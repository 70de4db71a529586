"""Options that several commands share, and the selection of measurements that they make.

This file imports no slow modules, because `--help` and completion load it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import update_wrapper
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.files import describe_kind
from rbptrack.base.names import split_list
from rbptrack.base.secrets import without_password
from rbptrack.cli import completion
from rbptrack.console.output import print_problem

if TYPE_CHECKING:
    from rbptrack.analysis.filters import Filters
    from rbptrack.analysis.runs import Runs
    from rbptrack.tracking import Store

_K_TEXT = re.compile(r"\d{1,10}", re.ASCII)
# Typer's settings for a command that takes words: Hydra's own flags, such as --cfg, are passed on as words.
WORDS = {"ignore_unknown_options": True, "allow_extra_args": True}
NO_VALUES: list[str] = []  # the default of options that hold a list


def parse_ks(text: str | None, *, smallest: int = 1) -> list[int]:
    """Return the k in a text such as `1,10,100`, or an empty list if the option was not given.

    Raises BadInput if the text is empty, or if a k is not a whole number or below `smallest`.
    """
    from rbptrack.base.validation import format_value

    if text is None:
        return []
    elements = split_list(text)
    if not elements or not all(_K_TEXT.fullmatch(element) and int(element) >= smallest for element in elements):
        raise BadInput(f"--k must be whole numbers of at least {smallest}, such as 1,10,100; got {format_value(text)}")
    return [int(element) for element in elements]


def list_option(metavar: str, text: str, complete: Callable[[str], list[str]] | None = None) -> Any:
    """Make an option that may be repeated and may hold a list with commas, such as `--family nano,pythia`."""
    return typer.Option(metavar=metavar, help=text, callback=_split_values, autocompletion=complete)


def _split_values(option: typer.CallbackParam, values: Sequence[str] | None) -> list[str]:
    elements = []
    for value in values or ():
        listed = split_list(value)
        if not listed:  # such as `--family "$FAMILY"` where the variable is not set
            raise BadInput(f"{option.opts[0]} is empty: give a name, or leave the option out")
        elements += listed
    return elements


def _check_page_path(out: Path | None) -> Path | None:
    if out is None:
        return None
    if out.suffix != ".html":
        raise BadInput(f"--out {out}: the name of a page must end in .html")
    if out.is_symlink() or (os.path.lexists(out) and not out.is_file()):
        raise BadInput(f"--out {out} is {describe_kind(out)}, but a page can replace only a file. Give another name")
    if not out.absolute().parent.is_dir():
        raise BadInput(f"--out {out}: the folder {out.absolute().parent} does not exist; create it or choose another")
    return out


def page_option(text: str) -> Any:
    """Make the option --out of a command that writes a page. `text` is its help."""
    return typer.Option("--out", metavar="FILE.html", help=text, callback=_check_page_path)


Words = Annotated[
    list[str],
    typer.Argument(
        metavar="KEY=VALUE ...",
        autocompletion=completion.complete_words,
        help="model=NAMES dataset=NAMES k=1,10,100, or any other key of the configuration; --cfg job prints all keys",
    ),
]
PluginOptions = Annotated[list[str], typer.Argument(metavar="OPTION=VALUE ...", help="options of the plugin")]
PluginsPath = Annotated[list[str], list_option("FOLDER,...", "additional folders of plugins")]
Figures = Annotated[
    Literal["svg", "png", "pdf", "latex"] | None,
    typer.Option("--format", help="also write the figures, or the tables in LaTeX, into a folder"),
]
PaperWidth = Annotated[
    Literal["column", "page"] | None,
    typer.Option(
        "--width", help="width of figures in PDF: a column (3.25 inches) or a page (6.75 inches), in 8 points"
    ),
]
Ks = Annotated[
    str | None, typer.Option("--k", metavar="K,...", help="the k of RBP_k that tables and figures show, such as 10,20")
]
ExtraPage = Annotated[Path | None, page_option("also write a page to this file")]
OpenPage = Annotated[bool, typer.Option("--open", help="show the page in the browser")]
Sweep = Annotated[list[str], list_option("NAME,...", "only measurements that these sweeps made or reused")]
Where = Annotated[
    str,
    typer.Option(metavar="CONDITION", help="condition on columns of `list --format csv`, such as 'ce < 4'"),
]
OutputFormat = Annotated[
    Literal["text", "json"], typer.Option("--format", help="format of what is printed on standard output")
]
TrackingUri = Annotated[
    str,
    typer.Option(
        metavar="URI",
        help="address of the tracking store; default: MLFLOW_TRACKING_URI, or else MLflow's own store in this folder",
    ),
]
Experiment = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="name of the MLflow experiment; default: MLFLOW_EXPERIMENT_NAME, or else rbptrack"
    ),
]


@dataclass
class Selection:
    """The measurements that a command works on.

    Attributes:
        uri: the address of the tracking store; empty means MLFLOW_TRACKING_URI, or else MLflow's own store.
        experiment: the name of the MLflow experiment; empty means MLFLOW_EXPERIMENT_NAME, or else `rbptrack`.
        filters: the filters that measurements must pass; None selects all measurements.

    """

    uri: str
    experiment: str
    filters: Filters | None = None
    _store: Store | None = field(default=None, init=False)

    def open_store(self) -> Store:
        """Return the tracking store. The first call delivers the measurements that wait on this disk for this store."""
        from rbptrack.tracking import Store

        if self._store is None:
            self._store = Store(self.uri, self.experiment)
            _deliver_waiting(self._store)
        return self._store

    def options(self) -> dict[str, str]:
        """Return the options of the command line that make this selection, by name: `{"family": "nano*"}`."""
        values = {"tracking-uri": self.uri, "experiment": self.experiment}
        filters = asdict(self.filters) if self.filters else {}
        for name, value in filters.items():
            values[name] = value if isinstance(value, str) else ",".join(value)
        return {name: without_password(value) for name, value in values.items() if value}

    def runs(self) -> Runs:
        """Return the measurements that pass the filters. Raises BadInput if there are none."""
        store = self.open_store()
        return store.runs(self.filters) if self.filters else store.runs()


def _deliver_waiting(store: Store) -> None:
    """Deliver the measurements that wait on this disk for a store. Print a line about each one that stays."""
    from rbptrack.tracking import Outbox

    outbox = Outbox(store)
    if outbox.waiting_folders():
        try:
            for delivery in outbox.deliver_waiting():
                if delivery.error:
                    print_problem(delivery.line())
        except RbptrackError as error:  # the command may still work
            print_problem(str(error))


def select_all(tracking_uri: TrackingUri = "", experiment: Experiment = "") -> Selection:
    """Select all measurements of a store."""
    return Selection(tracking_uri, experiment)


def select_filtered(
    family: Annotated[
        list[str],
        list_option("NAME,...", "only these families; patterns such as 'nano*', exclusions such as '!pythia'"),
    ] = NO_VALUES,
    size: Annotated[list[str], list_option("SIZE,...", "only these sizes, as published: 70m, 1.4b")] = NO_VALUES,
    model: Annotated[list[str], list_option("NAME,...", "only these models: nano-6k or nano/6k")] = NO_VALUES,
    dataset: Annotated[list[str], list_option("NAME,...", "only measurements of these datasets")] = NO_VALUES,
    sweep: Sweep = NO_VALUES,
    where: Where = "",
    tracking_uri: TrackingUri = "",
    experiment: Experiment = "",
) -> Selection:
    """Select the measurements of a store that pass all filters."""
    from rbptrack.analysis.filters import Filters

    filters = Filters(where, family=family, size=size, model=model, dataset=dataset, sweep=sweep)
    return Selection(tracking_uri, experiment, filters)


def with_selection(select: Callable[..., Selection]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that replaces the parameter `selection` of a command by options of the command line.

    The options are the parameters of `select`, the function that makes the selection.
    """
    selection_parameters = signature(select, eval_str=True).parameters

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        command_parameters = dict(signature(command, eval_str=True).parameters)
        del command_parameters["selection"]

        def run(**values: Any) -> int:
            selection = select(**{name: values.pop(name) for name in selection_parameters})
            return command(selection=selection, **values)

        update_wrapper(run, command)
        run.__annotations__ = {}  # Typer then reads the annotations of the signature
        options = [*command_parameters.values(), *selection_parameters.values()]
        run.__signature__ = Signature(  # type: ignore[attr-defined]
            [option.replace(kind=Parameter.KEYWORD_ONLY) for option in options]
        )
        return run

    return decorate
