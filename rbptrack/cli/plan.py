"""The command `plan`, which estimates the time, memory and downloads of a sweep."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from rbptrack.base.formatting import compact, compact_bytes, counted, duration
from rbptrack.cli.options import NO_VALUES, Words
from rbptrack.console.output import print_text

if TYPE_CHECKING:
    import pandas as pd


def plan(words: Words = NO_VALUES) -> int:
    """Estimate the time of a sweep, the size of its weights, and its downloads, without running it.

    Example: rbptrack plan 'model=pythia/*' dataset=wiki
    """
    import pandas as pd

    from rbptrack.config.compose import compose
    from rbptrack.console.tables import print_table

    configs = compose(words)
    from rbptrack import sweep  # imports torch and MLflow, so wrong words are refused first

    costs = sweep.plan(configs)
    table = costs.drop(columns="error")
    formats: dict[str, Callable[[float], str]] = dict.fromkeys(("S", "parameters", "tokens"), compact)
    formats |= {"FLOPs": _format_flops, "weights": compact_bytes, "download": compact_bytes, "seconds": duration}
    for column, format_number in formats.items():
        table[column] = [format_number(value) if pd.notna(value) else "" for value in costs[column]]
    by_importance = ["dataset", "status", "S", "tokens", "time", "weights", "download"]
    print_table(table.rename(columns={"seconds": "time"}), by_importance=by_importance)
    is_impossible = costs["error"].notna()
    if not is_impossible.all():
        print_text(_text_on_totals(costs[costs["status"] == "to measure"]))
    if not is_impossible.any():
        return 0
    titles = costs["model"] + " / " + costs["dataset"]
    failures = list(zip(titles[is_impossible], costs["error"][is_impossible], strict=True))
    for line in sweep.failure_lines(failures, verb="cannot be measured"):
        print_text(line)
    return 2 if is_impossible.all() else 1


def _text_on_totals(costs: pd.DataFrame) -> str:
    """Return a line with the number of cells to measure and the sums of their costs.

    The weights of a model are downloaded once for all of its cells.
    """
    seconds = costs["seconds"].sum(skipna=False)
    flops = costs["FLOPs"].sum(skipna=False)
    download = costs.drop_duplicates("model")["download"].sum(skipna=False)
    return (
        f"{counted(len(costs), 'cell')} to measure: "
        f"{duration(seconds) if not math.isnan(seconds) else 'an unknown time'} on this device, "
        f"{_format_flops(flops) if not math.isnan(flops) else 'unknown'} FLOPs, "
        f"{compact_bytes(download) if not math.isnan(download) else 'unknown bytes'} to download"
    )


def _format_flops(number: float) -> str:
    return f"{number:.1e}" if number else "0"
