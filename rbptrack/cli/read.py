"""The command `read`, which writes a page with each token coloured by its rank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rbptrack.base.errors import BadInput
from rbptrack.base.files import write_whole
from rbptrack.base.formatting import compact_bytes, counted, short_path
from rbptrack.base.names import split_list
from rbptrack.cli.options import (
    NO_VALUES,
    Experiment,
    OpenPage,
    Selection,
    Sweep,
    TrackingUri,
    Where,
    list_option,
    page_option,
)
from rbptrack.console.output import command_line, open_in_browser, print_text

if TYPE_CHECKING:
    from rbptrack.analysis import Runs
    from rbptrack.analysis.filters import Filters
    from rbptrack.tracking import Store


def read(
    models: Annotated[str, typer.Argument(metavar="MODELS", help="names or patterns: 'nano/*', gpt2-124m,gpt2-355m")],
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET", help="names or patterns of datasets; or give two measurements, as for compare"
        ),
    ],
    document: Annotated[
        list[str],
        list_option(
            "ID,...",
            "show these documents; default: those with most influence, and those in which models differ",
        ),
    ] = NO_VALUES,
    tokens: Annotated[int, typer.Option(min=1, metavar="N", help="show at most this many tokens")] = 20_000,
    out: Annotated[Path, page_option("write the page to this file")] = Path("read.html"),
    open_: OpenPage = False,
    sweep: Sweep = NO_VALUES,
    where: Where = "",
    tracking_uri: TrackingUri = "",
    experiment: Experiment = "",
) -> int:
    """Write a page that shows the text as the models see it: each token coloured by its rank.

    Examples: rbptrack read 'nano/*' pydocs, rbptrack read nano-6k/pydocs nano-115k/pydocs
    """
    from rbptrack.analysis.filters import Filters
    from rbptrack.console.progress import spinner
    from rbptrack.reporting import render_reading

    for name, text in (("MODELS", models), ("DATASET", dataset)):
        if not split_list(text):  # such as "$MODELS" where the variable is not set
            raise BadInput(f"{name} is empty: give a name, or '*' for all")
    filters = Filters(where, model=split_list(models), dataset=split_list(dataset), sweep=sweep)
    selection = Selection(tracking_uri, experiment, filters)
    try:
        runs = selection.runs()
    except BadInput as error:
        runs = _two_measurements(selection.open_store(), Filters(where, sweep=sweep), models, dataset, error)
    with spinner(f"reading the ranks of {counted(len(runs), 'measurement')}"):
        page, notes = render_reading(runs, documents=document, tokens=tokens, command=command_line())
    write_whole(out, page)
    for note in notes:
        print_text(note)
    print_text(f"page     {short_path(out)} ({compact_bytes(out.stat().st_size)})")
    if open_:
        open_in_browser(out.absolute().as_uri())
    return 1 if runs.unreadable else 0


def _two_measurements(store: Store, filters: Filters, a: str, b: str, error: BadInput) -> Runs:
    """Return two measurements that are named as in `compare`. Raises `error` if one of them does not exist."""
    try:
        runs = store.runs(filters)
        run_ids = [runs.row(name)["run_id"] for name in (a, b)]
    except BadInput:
        raise error from None
    pair: Runs = runs[runs["run_id"].isin(run_ids)]
    return pair
