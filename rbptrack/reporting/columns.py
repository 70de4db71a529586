"""The columns of tables as people read them: titles with units, and how each number is written.

Machine names stay in the CSV files. The column itself says what the page shows for them: by the `Column` of a
row's field, or by `Table.titles` and `Table.forms`; else by its name and its numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analysis.contract import Table
from rbptrack.analysis.display import title
from rbptrack.base.words import number, short_number

SIZES = {"S", "non_embedding_params", "total_params"}
"""Columns of large numbers that are written short where no form says how: 15.2k."""

HASHES = {"fingerprint", "documents_hash", "run_id", "commit"}
"""Columns whose first letters are enough."""

_OPTIONAL_ENDS = ("_low", "_high", "_se")
INTERVAL = "interval"
ERROR = "± se"
JOINED = (INTERVAL, ERROR)
"""Titles of the columns that belong to the one before them."""


@dataclass(frozen=True)
class Shown:
    """A column as it is shown.

    Attributes:
        name: the machine's.
        title: the reader's.
        number: whether it holds numbers, which stand right.
        cells: its texts.

    """

    name: str
    title: str
    number: bool
    cells: list[str] = field(default_factory=list)


def readable(table: Table) -> list[Shown]:
    """Return the columns as people read them; an interval's two ends, and a standard error, are joined to one column
    each.
    """
    frame = table.frame
    own = table.titles
    forms = table.forms
    shown: list[Shown] = []
    names = [str(name) for name in frame.columns]
    for name in names:
        base = next((name.removesuffix(end) for end in _OPTIONAL_ENDS if name.endswith(end)), "")
        if base in names:
            continue
        if name == "high" and "low" in names:
            continue
        if name == "low" and "high" in names:
            shown.append(_interval(frame, "low", "high", forms.get("low", "")))
            continue
        shown.append(
            Shown(name, own.get(name) or title(name).replace("_", " "), *_cells(frame[name], name, forms.get(name, "")))
        )
        if f"{name}_se" in names:
            errors = [f"± {text}" if text else "" for text in _cells(frame[f"{name}_se"], name, forms.get(name, ""))[1]]
            shown.append(Shown(f"{name}_se", ERROR, True, errors))
        if f"{name}_low" in names and f"{name}_high" in names:
            shown.append(_interval(frame, f"{name}_low", f"{name}_high", forms.get(name, "")))
    return shown


def _interval(frame: pd.DataFrame, low: str, high: str, form: str) -> Shown:
    both = pd.concat([frame[low], frame[high]])
    base = low.removesuffix("_low")
    write = _writer(both, base, form)
    cells = [
        f"{write(a) or '?'} to {write(b) or '?'}" if write(a) or write(b) else ""
        for a, b in zip(frame[low], frame[high], strict=True)
    ]
    return Shown(low, INTERVAL, True, cells)


def _cells(values: pd.Series, name: str, form: str) -> tuple[bool, list[str]]:
    """Return whether they are numbers, and their texts."""
    if values.dtype == bool or str(values.dtype) == "boolean":
        return False, [{True: "yes", False: "no"}.get(v, "") for v in values]
    if pd.api.types.is_numeric_dtype(values):
        write = _writer(values, name, form)
        return True, [write(v) for v in values]
    texts = ["" if pd.isna(v) else str(v) for v in values]
    if name in HASHES:
        return False, [text[:12] for text in texts]
    return all(not t or _looks_like_a_number(t) for t in texts), texts


def _looks_like_a_number(text: str) -> bool:
    return text[0] in "+-−.0123456789"


def _writer(values: pd.Series, name: str, form: str) -> Callable[[Any], str]:
    """Return the format of a column's numbers: its own, or the same number of decimals for all."""
    if form == "short" or (not form and name in SIZES):
        return lambda v: _or_empty(v, short_number)
    if form == ".3g":
        return lambda v: _or_empty(v, _three_digits)
    if form:
        return lambda v: _or_empty(v, lambda x: _minus(number(x, form)))
    numbers = pd.to_numeric(values, errors="coerce").astype(np.float64)
    size = numbers.abs()[np.isfinite(numbers) & (numbers != 0)].to_numpy()
    if pd.api.types.is_integer_dtype(values) or bool(len(numbers.dropna()) and (numbers.dropna() % 1 == 0).all()):
        return lambda v: _or_empty(v, lambda x: _minus(f"{x:,.0f}"))
    if name.startswith("p_") or name == "p" or not len(size) or size.max() / np.quantile(size, 0.05) > 1e4:
        return lambda v: _or_empty(v, _three_digits)
    decimals = int(np.clip(2 - np.floor(np.log10(np.median(size))), 0, 6))
    return lambda v: _or_empty(v, lambda x: _minus(f"{x:,.{decimals}f}"))


def _three_digits(value: float) -> str:
    text = f"{value:.3g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        text = f"{mantissa}e{int(exponent)}"
    return _minus(text)


def _or_empty(value: Any, write: Callable[[float], str]) -> str:
    if pd.isna(value):
        return ""
    if np.isfinite(float(value)):
        return write(float(value))
    return "∞" if value > 0 else "−∞"


def _minus(text: str) -> str:
    return text.replace("-", "−")
