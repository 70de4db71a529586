"""The commands `report` and `analyze`, which run analyzers on the measurements of a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.files import describe_kind, write_whole
from rbptrack.base.formatting import counted, short_path
from rbptrack.cli import completion
from rbptrack.cli.options import (
    NO_VALUES,
    ExtraPage,
    Figures,
    Ks,
    OpenPage,
    PaperWidth,
    PluginOptions,
    PluginsPath,
    Selection,
    list_option,
    parse_ks,
    select_filtered,
    with_selection,
)
from rbptrack.console.output import command_line, open_in_browser, print_problem, print_text, program_name

if TYPE_CHECKING:
    from rbptrack.analysis import Analyzer, Runs
    from rbptrack.reporting import Analysis


@with_selection(select_filtered)
def report(
    selection: Selection,
    out: ExtraPage = None,
    open_: OpenPage = False,
    figures: Figures = None,
    k: Ks = None,
    width: PaperWidth = None,
    methods: Annotated[
        bool, typer.Option("--methods", help="only print a paragraph about the methods, for a paper")
    ] = False,
    analyzers: Annotated[
        list[str], list_option("NAME,...", "only these analyzers; patterns are allowed", completion.complete_analyzers)
    ] = NO_VALUES,
    plugins_path: PluginsPath = NO_VALUES,
) -> int:
    """Analyse existing measurements and write one page with the results."""
    from rbptrack.analysis.plugin import make_plugin_with_ks
    from rbptrack.console.progress import spinner
    from rbptrack.discovery import ANALYZERS, find_plugins
    from rbptrack.reporting import (
        describe_methods,
        print_summary,
        print_unreadable,
        render,
        render_with_texts,
        run_analyzers,
    )

    plugins = find_plugins(ANALYZERS, plugins_path)
    ks = parse_ks(k, smallest=0)
    chosen = [make_plugin_with_ks(analyzer_class, ks) for analyzer_class in plugins.load_matching(analyzers)]
    for error in plugins.broken:
        print_problem(str(error), error.trace)
    runs = selection.runs()
    if methods:
        print_text(describe_methods(runs))
        return 0
    with spinner(f"analysing {len(runs)} measurements"):
        analyses = run_analyzers(runs, chosen)
    print_summary(analyses)
    filters = selection.options()
    page, reading_page, _ = render_with_texts(runs, analyses, command=command_line(), filters=filters)
    address = _save_report(selection, runs, analyses, page, reading_page)
    if out is not None:
        if reading_page:  # users send this file to others, so it has no link to the page with the texts
            page = render(runs, analyses, command=command_line(), filters=filters)
        write_whole(out, page)
        address = str(out.absolute())
    if address:
        print_text(f"report   {short_path(address)}")
    if figures:
        folder = out.with_name(f"{out.stem}-figures") if out else Path("figures")
        write_figures(runs, analyses, folder, figures, ks, width)
    if open_ and address:
        open_in_browser(address if "://" in address else Path(address).absolute().as_uri())
    num_unreadable = print_unreadable(runs, analyses)
    return 1 if num_unreadable or any(analysis.problem for analysis in analyses) else 0


@with_selection(select_filtered)
def analyze(
    ctx: typer.Context,
    selection: Selection,
    analyzer: Annotated[
        str,
        typer.Argument(
            metavar="ANALYZER",
            help="name of an analyzer; `rbptrack plugins` lists them",
            autocompletion=completion.complete_analyzers,
        ),
    ] = "",
    options: PluginOptions = NO_VALUES,
    figures: Figures = None,
    k: Ks = None,
    width: PaperWidth = None,
    plugins_path: PluginsPath = NO_VALUES,
    help_: Annotated[bool, typer.Option("--help", "-h", help="show this help, or the options of ANALYZER")] = False,
) -> int:
    """Run one analyzer on the measurements, such as analyze power_law --k 10,20 --dataset wiki."""
    if not analyzer:
        print(ctx.get_help())
        return 0 if help_ else 2
    from rbptrack.analysis.plugin import make_plugin_from_words
    from rbptrack.console.progress import spinner
    from rbptrack.discovery import ANALYZERS, find_plugins
    from rbptrack.reporting import print_report, print_unreadable, render, run_analyzers

    analyzer_class = find_plugins(ANALYZERS, plugins_path).load(analyzer)
    if help_:
        _print_help_of_analyzer(analyzer, analyzer_class)
        return 0
    ks = parse_ks(k, smallest=0)
    shown_ks = ",".join(str(shown) for shown in ks if shown)
    plugin = make_plugin_from_words(analyzer_class, [*options, f"k={shown_ks}"] if shown_ks else options)
    runs = selection.runs()
    with spinner(f"{analyzer}: {len(runs)} measurements"):
        analyses = run_analyzers(runs, [plugin], processes=1)
    if analyses[0].problem:
        print_problem(analyses[0].problem, analyses[0].trace)
        return 1
    print_report(analyses[0])
    page = render(runs, analyses, command=command_line(), filters=selection.options())
    address = _save_report(selection, runs, analyses, page)
    if address:
        print_text(f"report   {short_path(address)}")
    if figures:
        write_figures(runs, analyses, Path("figures"), figures, ks, width)
    return 1 if print_unreadable(runs, analyses) else 0


def _print_help_of_analyzer(name: str, analyzer: type[Analyzer]) -> None:
    import pandas as pd

    from rbptrack.analysis.plugin import plugin_options, plugin_summary
    from rbptrack.console.tables import print_table

    print_text(f"Usage: {program_name()} analyze {name} [OPTION=VALUE ...] [FILTERS]\n\n{plugin_summary(analyzer)}")
    options = plugin_options(analyzer)
    if options:
        print_text("")
        rows = [{"option": f"{option.name}=", "default": option.default, "meaning": option.help} for option in options]
        print_table(pd.DataFrame(rows), wrap=True)


def _save_report(selection: Selection, runs: Runs, analyses: Sequence[Analysis], page: str, reading: str = "") -> str:
    """Save analyses and their page in the store. Returns the address of the page.

    If the store cannot save them, print a warning and return an empty text.
    """
    from rbptrack.reporting import save_report

    try:
        return save_report(selection.open_store(), runs, analyses, page, command=command_line(), reading=reading)
    except RbptrackError as error:
        print_problem(f"the report is not logged: {error}")
        return ""


def write_figures(
    runs: Runs, analyses: Sequence[Analysis], folder: Path, form: str, ks: Sequence[int] = (), width: str | None = None
) -> None:
    """Write the figures of analyses, or their tables in LaTeX, into a folder.

    If `ks` begins with 0, a figure with a slider for k shows cross-entropy.
    """
    if folder.exists() and not folder.is_dir():
        raise BadInput(
            f"{folder} is {describe_kind(folder)}, but figures are written into a folder of this name. Rename it, or "
            "remove it"
        )
    from rbptrack.reporting import save_figures, save_latex

    if form == "latex":
        written, notes = save_latex(runs, analyses, folder)
    else:
        written, notes = save_figures(analyses, folder, form, ks[0] if ks else None, width)
    for note in notes:
        print_problem(note)
    print_text(
        f"{'tables ' if form == 'latex' else 'figures'}  {counted(len(written), 'file')} in {short_path(folder)}"
    )
