"""`report` and `analyze`: analyzers over the measurements of a store; no model, no torch."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from rbptrack.analysis import Runs
from rbptrack.analysis.plugin import options_of, summary_of, with_options
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.files import kind_of, write_whole
from rbptrack.base.words import counted, short_path
from rbptrack.commands.selection import Selection
from rbptrack.console.output import command_line, complain, program, say
from rbptrack.console.progress import spinner
from rbptrack.console.tables import print_table
from rbptrack.discovery import ANALYZERS, find
from rbptrack.reporting import Outcome, analyse, keep, render, save_figures, show, show_summary


def report(
    selection: Selection,
    *,
    patterns: Sequence[str] = (),
    plugins_path: Sequence[str] = (),
    out: Path | None = None,
    figures: str = "",
    k: int,
    open_page: bool = False,
) -> int:
    """Run the analyzers that the patterns choose, by default all. Returns 1 if an analyzer failed."""
    if out is not None:
        check_page(out)
    plugins = find(ANALYZERS, plugins_path)
    analyzers = [analyzer() for analyzer in plugins.chosen(patterns)]
    for line in plugins.broken:
        complain(str(line), line.trace)
    runs = selection.runs()
    with spinner(f"analysing {len(runs)} measurements"):
        outcomes = analyse(runs, analyzers)
    show_summary(outcomes)
    html = render(runs, outcomes, command=command_line())
    page = _keep_reports(selection, runs, outcomes, html)
    if out is not None:
        write_whole(out, html)
        page = str(out.absolute())
    if page:
        say(f"report   {short_path(page)}")
    if figures:
        _write_figures(outcomes, out.with_name(f"{out.stem}-figures") if out else Path("figures"), figures, k)
    if open_page and page:
        webbrowser.open(page if "://" in page else Path(page).absolute().as_uri())
    return 1 if any(outcome.problem for outcome in outcomes) else 0


def analyze(
    selection: Selection,
    name: str,
    options: Sequence[str],
    *,
    plugins_path: Sequence[str] = (),
    figures: str = "",
    k: int,
) -> int:
    """Run one analyzer with its options."""
    analyzer = with_options(find(ANALYZERS, plugins_path).select(name), options)
    runs = selection.runs()
    with spinner(f"{name}: {len(runs)} measurements"):
        outcomes = analyse(runs, [analyzer], processes=1)
    if outcomes[0].problem:
        complain(outcomes[0].problem, outcomes[0].trace)
        return 1
    show(outcomes[0])
    page = _keep_reports(selection, runs, outcomes, render(runs, outcomes, command=command_line()))
    if page:
        say(f"report   {short_path(page)}")
    if figures:
        _write_figures(outcomes, Path("figures"), figures, k)
    return 0


def describe(name: str, plugins_path: Sequence[str]) -> int:
    """Print what an analyzer answers, and its options."""
    analyzer = find(ANALYZERS, plugins_path).select(name)
    say(f"Usage: {program()} analyze {name} [OPTION=VALUE ...] [FILTERS]\n\n{summary_of(analyzer)}")
    options = options_of(analyzer)
    if options:
        say("")
        rows = [{"option": f"{option.name}=", "default": option.default, "meaning": option.help} for option in options]
        print_table(pd.DataFrame(rows), last_to_go=["option", "meaning"])
    return 0


def check_page(out: Path) -> None:
    """Check that a page can be written to a path.

    Raises:
        BadInput: the path does not end in .html, is a link or a folder, or lies in a folder that does not exist.

    """
    if out.suffix != ".html":
        raise BadInput(f"--out {out}: a page's name ends in .html")
    if out.is_symlink() or (os.path.lexists(out) and not out.is_file()):
        raise BadInput(f"--out {out} is {kind_of(out)}, which is not written through: give another name")
    if not out.absolute().parent.is_dir():
        raise BadInput(f"--out {out}: the folder {out.absolute().parent} does not exist; create it or choose another")


def _keep_reports(selection: Selection, runs: Runs, outcomes: Sequence[Outcome], page: str) -> str:
    """Save analyses and their page in the store, and return the address of the page.

    If the store cannot save them, print a warning and return an empty text.
    """
    try:
        return keep(selection.store, runs, outcomes, page, command=command_line())
    except RbptrackError as error:
        complain(f"not logged: {error}")
        return ""


def _write_figures(outcomes: Sequence[Outcome], folder: Path, form: str, k: int) -> None:
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is {kind_of(folder)}: figures need a folder of this name. Rename or remove it")
    written, notes = save_figures(outcomes, folder, form, k)
    for note in notes:
        complain(note)
    say(f"figures  {counted(len(written), 'file')} in {short_path(folder)}")
