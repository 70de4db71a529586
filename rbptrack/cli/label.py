"""The command `label`, which changes the names of measurements."""

from __future__ import annotations

from typing import Annotated

import typer

from rbptrack.base.errors import BadInput
from rbptrack.cli.options import Selection, select_filtered, with_selection
from rbptrack.console.output import print_text


@with_selection(select_filtered)
def label(
    selection: Selection,
    labels: Annotated[
        list[str],
        typer.Argument(
            metavar="LABEL=VALUE ...",
            help="new labels: family, size, seed, checkpoint, training_tokens, dataset; an empty value removes a label",
        ),
    ],
) -> int:
    """Change the labels of measurements. Their numbers stay, and nothing is measured again.

    Example: rbptrack label --model 'a-l*' family=mine size=7m
    """
    if not any(vars(selection.filters).values()):
        raise BadInput("name the measurements to label, for example with --model NAME. rbptrack list prints them")
    values = {}
    for word in labels:
        name, equals, value = word.partition("=")
        if not equals:
            raise BadInput(f"{word}: a label has the form LABEL=VALUE, such as family=mine")
        values[name] = value
    lines = selection.open_store().relabel(selection.runs(), values)
    for line in lines or ["the measurements have these labels already"]:
        print_text(line)
    return 0
