"""Functions that write the headline of a report from its verdicts and values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from rbptrack.base.formatting import counted, format_number


def verdict_clause(rows: pd.DataFrame, texts: Mapping[str, str], *, noun: str, none: str, span: str = "") -> str:
    """Return a clause that says how often each verdict occurs in the rows of a question; empty if no row was tested.

    Args:
        rows: rows of `Report.frame` for one question about one quantity.
        texts: what the clause says about the rows with each verdict (`above`, `below`, `same`). The key `differs`
            stands for `above` and `below` together.
        noun: a noun for one row, such as `law`. If some rows were not tested, the clause counts `tested laws`.
        none: the clause if no row has one of these verdicts, such as `no difference was found`.
        span: a column, or empty. The clause adds the range of the column's values in the rows with the verdict.

    Examples:
        >>> rows = pd.DataFrame({"verdict": ["above", "undecided", "above"], "α": [0.2, 0.1, 0.3]})
        >>> verdict_clause(rows, {"above": "RBP_10 improves with size"}, noun="law", none="no law was found", span="α")
        'RBP_10 improves with size in 2 of 3 laws, α = 0.20 to 0.30 (1 undecided)'
        >>> verdict_clause(rows[::2], {"above": "RBP_10 improves with size"}, noun="law", none="no law was found")
        'RBP_10 improves with size in both laws'
        >>> partly_tested = pd.DataFrame({"verdict": ["above", ""]})
        >>> verdict_clause(partly_tested, {"above": "RBP_10 improves with size"}, noun="law", none="no law was found")
        'RBP_10 improves with size in the only tested law'
        >>> verdict_clause(rows[1:2], {"above": "RBP_10 improves with size"}, noun="law", none="no law was found")
        'no law was found (1 undecided)'

    """
    tested = rows[rows["verdict"] != ""]
    if tested.empty:
        return ""
    if len(tested) < len(rows):
        noun = f"tested {noun}"
    clauses = []
    for verdict, text in texts.items():
        verdicts = ("above", "below") if verdict == "differs" else (verdict,)
        decided = tested[tested["verdict"].isin(verdicts)]
        if decided.empty:
            continue
        values = f", {span} = {range_text(decided[span])}" if span else ""
        frequency = "" if len(rows) == 1 else _frequency(len(decided), len(tested), noun)
        clauses.append(f"{text}{frequency}{values}")
    undecided = int((tested["verdict"] == "undecided").sum())
    clause = "; ".join(clauses) or none
    return f"{clause} ({undecided} undecided)" if undecided else clause


def _frequency(count: int, total: int, noun: str) -> str:
    """Return ` in 2 of 3 laws`, ` in both laws`, ` in all 3 laws` or ` in the only law`."""
    if count < total:
        return f" in {count} of {counted(total, noun)}"
    if total == 1:
        return f" in the only {noun}"
    return f" in both {noun}s" if total == 2 else f" in all {counted(total, noun)}"


def range_text(values: Iterable[float], form: str = ".2f") -> str:
    """Format the range of some values. If the smallest and the largest value are printed alike, return one number.

    Args:
        values: the values. NaN are ignored, and at least one value must not be NaN.
        form: the format specification of the numbers.

    Examples:
        >>> range_text([0.3, 0.2]), range_text([0.301, 0.299])
        ('0.20 to 0.30', '0.30')

    """
    numbers = [value for value in values if value == value]
    low, high = format_number(min(numbers), form), format_number(max(numbers), form)
    return low if low == high else f"{low} to {high}"


def join_clauses(*clauses: str) -> str:
    """Join clauses with semicolons to one sentence. Empty clauses are left out. If all are empty, so is the sentence.

    Examples:
        >>> join_clauses("no law was found", "", "CE differs")
        'No law was found; CE differs.'

    """
    text = "; ".join(clause for clause in clauses if clause)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
