"""Functions that write the headline of a report from its verdicts and values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

import pandas as pd

from rbptrack.base.formatting import counted, format_number

_WIDE_RATIO = 3.0  # effects differ widely if the largest is more than this many times the smallest


def verdict_clause(
    rows: pd.DataFrame, texts: Mapping[str, str], *, noun: str, none: str, span: str = "", power: bool = False
) -> str:
    """Return a clause that says how often each verdict occurs in the rows of a question; empty if no row was tested.

    Args:
        rows: rows of `Report.frame` for one question about one quantity.
        texts: what the clause says about the rows with each verdict (`above`, `below`, `same`). The key `differs`
            stands for `above` and `below` together.
        noun: a noun for one row, such as `law`. If some rows were not tested, the clause counts `tested laws`.
        none: the clause if no row has one of these verdicts, such as `no difference was found`.
        span: a column, or empty. The clause adds the range of the column's values in the rows with the verdict.
        power: whether the clause `none` names the effect that every test would find in 80% of cases. The effect is left
            out if it differs widely between the rows.

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
        >>> undecided = rows[1:2].assign(detectable=0.062)
        >>> verdict_clause(undecided, {"differs": "RBP_10 bends"}, noun="law", none="no bend was found", power=True)
        'no bend was found (1 undecided; an effect of 0.062 would be found in 80% of cases)'

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
    if not undecided:
        return "; ".join(clauses) or none
    effect = _detectable_effect(tested, span or "an effect") if power and not clauses else ""
    return f"{'; '.join(clauses) or none} ({undecided} undecided{effect})"


def _frequency(count: int, total: int, noun: str) -> str:
    """Return ` in 2 of 3 laws`, ` in both laws`, ` in all 3 laws` or ` in the only law`."""
    if count < total:
        return f" in {count} of {counted(total, noun)}"
    if total == 1:
        return f" in the only {noun}"
    return f" in both {noun}s" if total == 2 else f" in all {counted(total, noun)}"


def _detectable_effect(rows: pd.DataFrame, name: str) -> str:
    """Return a clause with the effect that every test would find in 80% of cases, such as `α of 0.2 would be found`.

    The clause is empty if the effect is unknown or differs widely between the rows.
    """
    effects = rows["detectable"] if "detectable" in rows else pd.Series(dtype=float)
    largest = float(effects.max())
    if not isfinite(largest) or largest > _WIDE_RATIO * effects.min():
        return ""
    return f"; {name} of {format_number(largest, '.2g')} would be found in 80% of cases"


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
