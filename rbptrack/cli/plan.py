"""The command `plan`, which estimates the time, memory and downloads of a sweep."""

from __future__ import annotations

from collections.abc import Callable

from rbptrack.base.formatting import compact, compact_bytes, counted, duration
from rbptrack.cli.options import UNSET, Words
from rbptrack.console.output import say


def plan(words: Words = UNSET) -> int:
    """Estimate the time of a sweep, the size of its weights, and its downloads, without running it."""
    import pandas as pd

    from rbptrack.config.compose import compose
    from rbptrack.console.tables import print_table

    configs = compose(words)
    from rbptrack import sweep  # torch and MLflow: wrong words are refused before

    table = sweep.plan(configs)
    failed = table["error"].notna()
    to_measure = table[table["status"] == "to measure"]
    shown = table.drop(columns="error")
    forms: dict[str, Callable[[float], str]] = dict.fromkeys(("S", "parameters", "tokens"), compact)
    forms |= {"FLOPs": "{:.1e}".format}
    forms |= {"weights": compact_bytes, "download": compact_bytes, "seconds": duration}
    for column, form in forms.items():
        shown[column] = [form(value) if pd.notna(value) else "" for value in table[column]]
    by_importance = ["dataset", "status", "S", "tokens", "time", "weights", "download"]
    print_table(shown.rename(columns={"seconds": "time"}), by_importance=by_importance)
    if not failed.all():
        seconds, flops = (to_measure[column].sum(skipna=False) for column in ("seconds", "FLOPs"))
        download = to_measure.drop_duplicates("model")["download"].sum(skipna=False)
        say(
            f"{counted(len(to_measure), 'cell')} to measure: "
            f"{duration(seconds) if pd.notna(seconds) else 'an unknown time'} on this device, "
            f"{f'{flops:.1e}' if pd.notna(flops) else 'unknown'} FLOPs, "
            f"{compact_bytes(download) if pd.notna(download) else 'unknown bytes'} to download"
        )
    if not failed.any():
        return 0
    titles = table["model"] + " / " + table["dataset"]
    for line in sweep.failure_lines(list(zip(titles[failed], table["error"][failed], strict=True))):
        say(line)
    return 2 if failed.all() else 1
