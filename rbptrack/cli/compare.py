"""The command `compare`, which compares two measurements of the same tokens."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

import typer

from rbptrack.base.files import write_whole
from rbptrack.base.formatting import format_number, short_path
from rbptrack.cli.options import ExtraPage, Ks, PaperWidth, Selection, parse_ks, select_all, with_selection
from rbptrack.cli.report import write_figures
from rbptrack.console.output import command_line, print_json, print_text

if TYPE_CHECKING:
    import pandas as pd

    from rbptrack.analysis import Report, Runs
    from rbptrack.reporting import Analysis
    from rbptrack.stats.changes import Changes

_NUM_NAMED = 5  # number of documents that the terminal names
_EXPLAINED_COLUMNS = ("deciding", "moved", "lost", "gained")  # each is explained by a line below the tables


@with_selection(select_all)
def compare(
    selection: Selection,
    a: Annotated[str, typer.Argument(metavar="A", help="a measurement, as `list` names it")],
    b: Annotated[str, typer.Argument(metavar="B", help="another measurement of the same tokens")],
    k: Ks = "1,10,100",
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="exit with 1 if B is worse by more than this (CE in nats, RBP_k as a share) or a file cannot be read, "
            "with 3 if undecided",
        ),
    ] = None,
    out: ExtraPage = None,
    form: Annotated[
        Literal["svg", "png", "pdf", "latex", "json"] | None,
        typer.Option(
            "--format", help="also write the figures, or the tables in LaTeX, into a folder; json prints only JSON"
        ),
    ] = None,
    width: PaperWidth = None,
) -> int:
    """Compare two measurements of the same tokens, token by token."""
    from rbptrack.analysis.pairs import FEW_UNITS
    from rbptrack.reporting import Analysis, comparison_report, print_report, print_unreadable

    ks = parse_ks(k)
    runs = selection.runs()
    first = runs.row(a)
    second = runs.row(b)
    report, changes = comparison_report(runs, first, second, ks)
    summary = f"{second['name']} compared with {first['name']}"
    analysis = Analysis("compare", report, leads=True, summary=summary)
    exit_code, judgement = 0, ""
    if tolerance is not None:
        exit_code, judgement = _judge(changes, tolerance)
    if print_unreadable(runs, [analysis]):  # incomplete results must not pass a gate
        exit_code, judgement = 1, "not judged, because a file cannot be read"
    pair = runs[runs["run_id"].isin([first["run_id"], second["run_id"]])]
    lines_on_pages = []
    if out is not None:
        title = f"{first['name']} and {second['name']}"
        lines_on_pages = _write_pages(pair, analysis, out, title=title, command=command_line())
    if form == "json":
        judged = {"tolerance": tolerance, "judgement": judgement, "exit_code": exit_code}
        print_json(_json_contents(report, first, second) | judged)
        return exit_code
    print_report(analysis)
    print_text("")
    for name in _EXPLAINED_COLUMNS:
        if name in report.results:
            print_text(f"{name}: {report.term(name).meaning}")
    for line in lines_on_pages:
        print_text(line)
    if form:
        write_figures(pair, [analysis], Path("figures"), form, width=width)
    if tolerance is not None:
        print_text(f"with a tolerance of {tolerance:g}: {second['name']} is {judgement}")
        if exit_code == 0 and changes.num_units < FEW_UNITS:
            print_text(_text_on_largest_rises(report))
    return exit_code


def _json_contents(report: Report, first: pd.Series[Any], second: pd.Series[Any]) -> dict[str, Any]:
    """Return what JSON shows of a comparison, without the judgement."""
    return {
        "a": first["name"],
        "b": second["name"],
        "run_ids": [first["run_id"], second["run_id"]],
        "headline": report.headline,
        "results": json.loads(report.results.to_json(orient="records", double_precision=15)),
        "notes": report.notes,
    }


def _judge(changes: Changes, tolerance: float) -> tuple[int, str]:
    """Judge whether B is worse than A by more than the tolerance. Returns the exit code and the judgement in words."""
    from rbptrack.stats.changes import MIN_WITHIN, judge

    exit_code_and_text = {
        "within": (0, "not worse by more than the tolerance"),
        "worse": (1, "worse by more than the tolerance"),
        "rare": (3, f"undecided: it takes at least {MIN_WITHIN} documents or groups to find damage to 3% of them"),
        "undecided": (3, "undecided: the documents do not give enough evidence"),
    }
    return exit_code_and_text[judge(changes.changes, tolerance, changes.num_units)]


def _text_on_largest_rises(report: Report) -> str:
    """Name the documents or groups with the largest rise of CE, in one line."""
    if "worst_documents" not in report.tables:
        return "CE rises in no document"
    largest = report.tables["worst_documents"].head(_NUM_NAMED)
    unit = largest.columns[0]
    texts = []
    for name, rise in zip(largest[unit], largest["rise"], strict=True):
        title = f"{name}" if unit == "group" else f"{unit} {name}"
        texts.append(f"{title} ({format_number(rise, '+.4f')})")
    return f"CE rises most in {', '.join(texts)}, in nats per token"


def _write_pages(pair: Runs, analysis: Analysis, out: Path, *, title: str, command: str) -> list[str]:
    """Write the page of a comparison. If the measurements keep texts, also write a page that shows the texts.

    Returns lines that name the files.
    """
    from rbptrack.reporting import render_with_texts

    reading_file = out.with_name(f"{out.stem}-read.html")
    link = quote(os.fsencode(reading_file.name))  # a file name may hold bytes that are not UTF-8
    page, reading_page, problem = render_with_texts(pair, [analysis], command=command, reading=link, title=title)
    if reading_page:
        write_whole(reading_file, reading_page)
    write_whole(out, page)
    return [problem or f"texts    {short_path(reading_file)}", f"page     {short_path(out)}"]
