"""The commands `list` and `show`, which print measurements as tables."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Literal

import typer

from rbptrack.base import markup
from rbptrack.base.formatting import counted
from rbptrack.cli.options import Selection, select_all, select_filtered, with_selection
from rbptrack.console.output import print_text


@with_selection(select_filtered)
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
    import pandas as pd

    from rbptrack.cli.readable import main_columns, sort_measurements
    from rbptrack.console.tables import print_table

    frame = sort_measurements(selection.runs().frame, sort)
    if form == "csv":
        sys.stdout.write(markup.csv_text(frame))
    elif form == "json":
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        json.dump(rows, sys.stdout, indent=2, ensure_ascii=False, allow_nan=False, default=pd.Timestamp.isoformat)
        sys.stdout.write("\n")
    elif form == "table":
        print_table(main_columns(frame), by_importance=["dataset", "CE", "RBP_10"])
        print_text(counted(len(frame), "measurement"))
    elif form == "latex":
        from rbptrack.reporting import describe_measured, latex_table

        caption = (
            "S: parameters without embeddings and output head; CE: cross-entropy, nats per token; RBP_k: share of "
        )
        caption += "tokens with rank at most k; ±: standard error over documents. "
        sys.stdout.write(latex_table(main_columns(frame), caption + describe_measured(frame)))
    else:
        from rbptrack.reporting import table_text  # imports Altair, which doubles the running time

        sys.stdout.write(table_text(main_columns(frame), form))
    return 0


@with_selection(select_all)
def show(
    selection: Selection,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="name of a measurement as `list` prints it, or the beginning of its run ID"
        ),
    ],
) -> int:
    """Show the details of one measurement."""
    import pandas as pd

    from rbptrack.cli.readable import format_details
    from rbptrack.console.tables import print_table

    row = selection.runs().row(name)
    details = format_details(row)
    page = selection.open_store().measurements.run_address(str(row["run_id"]))
    if page:
        details["page"] = page
    print_table(pd.DataFrame({"": details.keys(), str(row["name"]): details.values()}), wrap=True)
    return 0
