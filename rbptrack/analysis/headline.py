"""Write headlines of reports: clauses that count verdicts, ranges of values, and sentences of clauses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

import pandas as pd

from rbptrack.base.formatting import counted, format_number

_WIDELY = 3.0  # effects differ widely if the largest is more than this many times the smallest


def verdict_clause(
    rows: pd.DataFrame, words: Mapping[str, str], *, noun: str, none: str, span: str = "", power: bool = False
) -> str:
    """Return a clause that says how often each verdict occurs in rows of a question; empty if no row was tested.

    Args:
        rows: rows of `Report.frame` for one question about one quantity.
        words: the text for each verdict (`above`, `below`, `same`). `differs` counts `above` and `below` together.
        noun: a noun for a row, such as `law`.
        none: the text if no row has one of these verdicts, such as `no difference was found`.
        span: a column. The clause gives the range of its values in the rows with the verdict.
        power: whether to add the effect that every test would find in 80% of cases, if no row has one of the verdicts.
            It is left out if the effect differs widely between the rows.

    Examples:
        >>> rows = pd.DataFrame({"verdict": ["above", "undecided", "above"], "α": [0.2, 0.1, 0.3]})
        >>> verdict_clause(rows, {"above": "RBP_10 improves with size"}, noun="law", none="no law was found", span="α")
        'RBP_10 improves with size in 2 of 3 laws, α = 0.20 to 0.30 (1 undecided)'
        >>> verdict_clause(rows[::2], {"above": "RBP_10 improves with size"}, noun="law", none="no law was found")
        'RBP_10 improves with size in both laws'
        >>> verdict_clause(rows[1:2], {"above": "RBP_10 improves with size"}, noun="law", none="no law was found")
        'no law was found (1 undecided)'
        >>> undecided = rows[1:2].assign(detectable=0.062)
        >>> verdict_clause(undecided, {"differs": "RBP_10 bends"}, noun="law", none="no bend was found", power=True)
        'no bend was found (1 undecided; an effect of 0.062 would be found in 80% of cases)'

    """
    tested = rows[rows["verdict"] != ""]
    if tested.empty:
        return ""
    clauses = []
    for verdict, text in words.items():
        decided = tested[tested["verdict"].isin(("above", "below") if verdict == "differs" else (verdict,))]
        if decided.empty:
            continue
        often = f" in {len(decided)} of {counted(len(tested), noun)}"
        if len(decided) == len(tested):  # a single row is not counted
            often = {1: "", 2: f" in both {noun}s"}.get(len(tested), f" in all {counted(len(tested), noun)}")
        values = f", {span} = {range_text(decided[span])}" if span else ""
        clauses.append(f"{text}{often}{values}")
    undecided = int((tested["verdict"] == "undecided").sum())
    left = f" ({undecided} undecided)" if undecided else ""
    if power and undecided and not clauses:
        left = f" ({undecided} undecided{_power(tested)})"
    return f"{'; '.join(clauses) or none}{left}"


def _power(rows: pd.DataFrame) -> str:
    """Return a clause with the effect that every test would find in 80% of cases.

    It is empty if the effect is unknown or differs widely between the rows.
    """
    effects = rows["detectable"] if "detectable" in rows else pd.Series(dtype=float)
    largest = float(effects.max())
    if not isfinite(largest) or largest > _WIDELY * effects.min():
        return ""
    return f"; an effect of {format_number(largest, '.2g')} would be found in 80% of cases"


def range_text(values: Iterable[float], form: str = ".2f") -> str:
    """Format the range of some values, or one number if the smallest and the largest value are printed alike.

    Args:
        values: the values, at least one that is not NaN. NaN are ignored.
        form: the format specification of the numbers.

    Examples:
        >>> range_text([0.3, 0.2]), range_text([0.301, 0.299])
        ('0.20 to 0.30', '0.30')

    """
    known = [value for value in values if value == value]
    low, high = format_number(min(known), form), format_number(max(known), form)
    return low if low == high else f"{low} to {high}"


def join_clauses(*clauses: str) -> str:
    """Join clauses with semicolons to one sentence. Empty clauses are left out. Without clauses the result is empty.

    Examples:
        >>> join_clauses("no law was found", "", "CE differs")
        'No law was found; CE differs.'

    """
    text = "; ".join(clause for clause in clauses if clause)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
