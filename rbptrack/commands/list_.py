"""`python -m rbptrack list`: measurements as a table; no model, no torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pandas as pd

from rbptrack.analysis.display import TITLES, as_csv, cell, default_columns, presented, title
from rbptrack.analysis.parts_of_ce import parts_of_ce
from rbptrack.analysis.runs import Runs, Unreadable
from rbptrack.base.errors import BadInput, unknown
from rbptrack.base.words import counted, for_markdown
from rbptrack.commands.declared.closer import LIST, ListConfig, ListFormat
from rbptrack.commands.usage import entries
from rbptrack.config.patterns import size_key
from rbptrack.console.output import on_a_line, quiet, say
from rbptrack.console.tables import print_json, table
from rbptrack.ranks import parse_rbp_name, rbp_ks, rbp_name
from rbptrack.tracking.store import Store


def _list(config: ListConfig) -> int:
    if any(k < 1 for k in config.k):
        raise BadInput(f"k must be 1 or more; got {', '.join(map(str, config.k))}")
    if config.limit < 0:
        raise BadInput(f"limit must be 0 (all) or more; got {config.limit}")
    runs = Store(config.tracking).reader.runs(config.filter)
    columns = _columns(runs, config)
    order = [(name.lstrip("-"), name.startswith("-")) for name in config.sort]
    sorting = [(_column(runs, name), falling) for name, falling in order]
    frame = _with_rbp(runs, [*columns, *(name for name, _ in sorting)])
    for name, falling in reversed(sorting):
        frame = frame.sort_values(name, key=_by_size, ascending=not falling, kind="stable")
    total = len(frame)
    frame = frame.head(config.limit) if config.limit else frame
    if quiet():
        sys.stdout.writelines(f"{run_id}\n" for run_id in frame["run_id"])
    else:
        _write(frame, columns, config, total)
    return 0


def _columns(runs: Runs, config: ListConfig) -> list[str]:
    if config.columns == ["all"]:
        return list(runs.frame.columns)
    if config.columns:
        return [_column(runs, name) for name in config.columns]
    if config.format in (ListFormat.csv, ListFormat.json) and not config.k:
        return list(runs.frame.columns)
    chosen = default_columns(runs.frame.columns)
    if runs.frame["swept"].any():
        chosen.insert(chosen.index("dataset") + 1, "swept")
    if runs.frame["damaged"].any():
        chosen.append("damaged")
    if config.k:
        place = next((i for i, name in enumerate(chosen) if parse_rbp_name(name)), len(chosen) - 1)
        kept = [name for name in chosen if parse_rbp_name(name) is None]
        chosen = [*kept[:place], *map(rbp_name, config.k), *kept[place:]]
    return chosen


def _column(runs: Runs, name: str) -> str:
    """Return the frame's name of a column that is called so, or titled so, whatever its case."""
    columns_by_name = {name.lower(): name for name in runs.frame.columns}
    columns_by_name |= {shown.lower(): column for column, shown in TITLES.items() if column in runs.frame.columns}
    columns_by_name |= {"± se": "ce_se", "se": "ce_se"}
    if name.lower() in columns_by_name:
        return columns_by_name[name.lower()]
    if parse_rbp_name(name.lower()):
        return name.lower()
    raise unknown("column", name, [*dict.fromkeys(columns_by_name.values())], label="Columns")


def _with_rbp(runs: Runs, columns: Sequence[str]) -> pd.DataFrame:
    """Return the frame, with RBP_k and the parts of CE from the stored ranks where they were not logged."""
    frame = runs.frame.copy()
    for k in rbp_ks(columns):
        name = rbp_name(k)
        if name not in frame.columns:
            frame[name] = np.nan
        for i in frame.index[frame[name].isna()]:
            try:
                histogram = runs.histogram(str(frame.loc[i, "run_id"]))
            except Unreadable:  # imported without ranks, or damaged: the cell stays empty
                continue
            frame.loc[i, name] = histogram.rbp(k) if k <= histogram.vocab_size else np.nan
    parts = [name for name in ("ce_rank", "ce_rest") if name in columns]
    for i in frame.index[frame[parts].isna().any(axis=1)]:
        with suppress(Unreadable):
            frame.loc[i, ["ce_rank", "ce_rest"]] = parts_of_ce(runs, frame.loc[i])
    return frame


def _by_size(values: pd.Series) -> pd.Series:
    """Return keys to sort by: sizes by their value, numbers as they are, missing values last."""
    if not pd.api.types.is_string_dtype(values):
        return values
    places = sorted(set(values.dropna()), key=lambda name: [size_key(part) for part in str(name).split("-")])
    return values.map({name: i for i, name in enumerate(places)})


def _write(frame: pd.DataFrame, columns: Sequence[str], config: ListConfig, total: int) -> None:
    errors = not config.columns  # who names columns has those
    if config.format is ListFormat.csv:
        sys.stdout.write(as_csv(frame[list(columns)]))
    elif config.format is ListFormat.json:
        print_json(frame[list(columns)].to_dict("records"))
    elif config.format is ListFormat.markdown:
        aligned = ["left" if _words(frame, column) else "right" for column in columns]
        shown = presented(frame, columns, errors=errors).map(for_markdown).rename(columns=for_markdown)
        sys.stdout.write(shown.to_markdown(index=False, colalign=aligned, disable_numparse=True))
        sys.stdout.write("\n")
    elif config.format is ListFormat.latex:
        aligned = ["l" if _words(frame, column) else "r" for column in columns]
        shown = presented(frame, columns, errors=errors).map(on_a_line)
        sys.stdout.write(shown.to_latex(index=False, escape=True, column_format="".join(aligned)))
    elif config.columns == ["all"]:
        for row in frame.to_dict("records"):
            values = {title(column): cell(column, row[column]) for column in columns}
            entries(f"{row['model']} / {row['dataset']}", {name: text for name, text in values.items() if text})
    else:
        _show(frame, columns, total, errors=errors)


def _show(frame: pd.DataFrame, columns: Sequence[str], total: int, *, errors: bool) -> None:
    """Print the list on the terminal, text columns first, so that the numbers form one block."""
    ordered = sorted(columns, key=lambda column: not _words(frame, column) or column == "run_id")
    shown = presented(frame, ordered, errors=errors)
    texts = sum(_words(frame, column) and column != "run_id" for column in ordered)
    last_metrics = [name for name in reversed(shown.columns) if name.endswith("± se")][:-2]
    first_out = [title("num_tokens"), *last_metrics, title("non_embedding_params"), title("run_id")]
    table(list(shown.columns), shown.to_numpy().tolist(), text_columns=texts, first_out=first_out)
    shown_part = f"{len(frame):,} of " if len(frame) < total else ""
    say(shown_part + counted(total, "measurement"))


def _words(frame: pd.DataFrame, column: str) -> bool:
    return bool(pd.api.types.is_string_dtype(frame[column]))


main = LIST.running(_list)
