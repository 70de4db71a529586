"""The command `compare`, which compares two measurements of the same tokens."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.files import write_whole
from rbptrack.base.formatting import counted, format_number, short_path
from rbptrack.cli.options import ExtraPage, Selection, whole_store, with_selection
from rbptrack.config.patterns import split_list
from rbptrack.console.output import command_line, say

if TYPE_CHECKING:
    import pandas as pd

    from rbptrack.analysis import Report, Runs
    from rbptrack.reporting import Analysis
    from rbptrack.stats.changes import Changes

_K = re.compile(r"[1-9]\d{0,9}", re.ASCII)
_FEW = 200  # below this number of documents, the answer says how rare a damage may have been missed

_WORST = 10  # number of tokens and of documents in the report's tables
_NAMED = 5  # number of documents that the terminal names
_EXPLAINED = ("deciding", "moved", "lost", "gained")  # columns that a line below the tables explains


@with_selection(whole_store)
def compare(
    selection: Selection,
    a: Annotated[str, typer.Argument(metavar="A", help="a measurement, as `list` names it")],
    b: Annotated[str, typer.Argument(metavar="B", help="another measurement of the same tokens")],
    ks: Annotated[str, typer.Option("--k", metavar="K,...", help="k of RBP_k")] = "1,10,100",
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="exit with 1 if B is worse by more than this (nats of CE, or share of RBP_k), with 3 if undecided",
        ),
    ] = None,
    out: ExtraPage = None,
) -> int:
    """Compare two measurements of the same tokens, token by token."""
    from rbptrack.analysis.family import BY_DOCUMENT
    from rbptrack.analysis.pairs import CHANGES_GLOSSARY, add_changes, compare_runs, worst_documents, worst_tokens
    from rbptrack.analysis.report import Report
    from rbptrack.base.validation import format_value
    from rbptrack.reporting import Analysis, print_report

    texts = split_list(ks)
    if not texts or not all(map(_K.fullmatch, texts)):
        raise BadInput(f"--k must be whole numbers of at least 1, such as 1,10,100; got {format_value(ks)}")
    numbers = [int(text) for text in texts]
    runs = selection.runs()
    first = runs.row(a)
    second = runs.row(b)
    changes = compare_runs(runs, first, second, ks=numbers, worst=_WORST)
    pair = f"{first['name']} and {second['name']}"
    report = Report(CHANGES_GLOSSARY)
    add_changes(report, changes, family=str(second["family"]), dataset=str(second["dataset"]))
    unread = runs.unread_groups.get(str(first["run_id"]))
    if unread:
        report.notes.append(f"{unread}, {BY_DOCUMENT}.")
    if changes.worst_tokens:
        report.tables["worst"] = worst_tokens(runs, second, changes.worst_tokens)
    rises = worst_documents(runs, first, changes, _WORST)
    if len(rises):
        report.tables["worst_documents"] = rises
    report.headline = _headline(report, first["name"], second["name"])
    analysis = Analysis(
        "compare", report, leads=True, summary=f"what {second['name']} changes, against {first['name']}"
    )
    print_report(analysis)
    say("")
    for name in _EXPLAINED:
        if name in report.results:
            say(f"{name}: {report.term(name).meaning}")
    if out is not None:
        both = runs[runs["run_id"].isin([first["run_id"], second["run_id"]])]
        _write_pages(both, analysis, out, title=pair, command=command_line())
    if tolerance is None:
        return 0
    code, answer = _answer(changes, tolerance)
    say(f"with a tolerance of {tolerance:g}: {second['name']} is {answer}")
    if code == 0 and changes.num_units < _FEW:
        say(_not_ruled_out(changes))
        say(_largest_rises(rises))
    return code


def _answer(changes: Changes, tolerance: float) -> tuple[int, str]:
    """Judge whether B is worse than A by more than the tolerance. Returns the exit code and the answer in words."""
    from rbptrack.stats.changes import MIN_WITHIN, judge

    answers = {
        "within": (0, "not worse by more than the tolerance"),
        "worse": (1, "worse by more than the tolerance"),
        "rare": (3, f"undecided: it takes at least {MIN_WITHIN} documents or groups to find damage to 3% of them"),
        "undecided": (3, "undecided: the documents do not give enough evidence"),
    }
    return answers[judge(changes.changes, tolerance, changes.num_units)]


def _not_ruled_out(changes: Changes) -> str:
    """Say how large a share of all documents may be damaged although these documents show no damage."""
    from rbptrack.stats.changes import RULE_OF_THREE

    units = counted(changes.num_units, "group" if changes.a.grouped else "document")
    share = format_number(RULE_OF_THREE / changes.num_units, ".1%")
    return f"{units} cannot rule out damage to less than {share} of all documents"


def _largest_rises(rises: pd.DataFrame) -> str:
    """Name the documents or groups with the largest rise of CE, in one line."""
    if rises.empty:
        return "CE rises in no document"
    unit = rises.columns[0]
    named = zip(rises[unit].tolist()[:_NAMED], rises["rise"].tolist()[:_NAMED], strict=True)
    worst = [f"{name} ({format_number(rise, '+.4f')})" for name, rise in named]
    return f"CE rises most in {unit} {', '.join(worst)}, in nats a token"


def _write_pages(both: Runs, analysis: Analysis, out: Path, *, title: str, command: str) -> None:
    """Write the page of a comparison. If the measurements keep texts, also write the reading page beside it."""
    from rbptrack.reporting import render, render_reading

    reading = out.with_name(f"{out.stem}-read.html")
    try:
        page, _ = render_reading(both, command=command)
        write_whole(reading, page)
    except RbptrackError as error:
        say(f"no reading page: {error}")
        write_whole(out, render(both, [analysis], title=title, command=command))
    else:
        link = quote(os.fsencode(reading.name))  # a file name may hold bytes that are not UTF-8
        write_whole(out, render(both, [analysis], title=title, command=command, reading=link))
        say(f"texts    {short_path(reading)}")
    say(f"page     {short_path(out)}")


def _headline(report: Report, a: str, b: str) -> str:
    """Say how much more or less cross-entropy B has than A, and whether the difference may be chance."""
    from rbptrack.ranks import CE

    changes = report.frame("change")
    [(ce, verdict)] = changes.loc[changes["metric"] == CE, ["change", "verdict"]].to_numpy().tolist()
    size = format_number(abs(ce), ".4f")
    if float(size) == 0:  # the printed digits show no difference
        return f"{b} has the same cross-entropy as {a} to four decimals."
    doubt = {"undecided": "; the difference may be chance", "": "; there are too few documents to test it"}
    return f"{b} has {size} nats {'more' if ce > 0 else 'less'} cross-entropy than {a}{doubt.get(verdict, '')}."
