"""Functions that write the headline of a report from its verdicts and values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import log
from typing import Any

import pandas as pd

from rbptrack.analysis.report import MEAN, Report
from rbptrack.base.formatting import counted, estimate_text, format_number, p_text
from rbptrack.ranks.names import CE, parse_rbp_name
from rbptrack.stats.estimate import LEVEL
from rbptrack.stats.rounding import first_smallest

HEADLINE_K = 10
"""The k of the metric that headlines name. If it was not measured, the nearest k takes its place."""


def headline_metric(metrics: Iterable[str]) -> str:
    """Return the metric that headlines are about: RBP_10, or the RBP_k whose k is nearest to 10 on a logarithmic axis.

    Its tests are adjusted for the number of laws, and not for the other k. Returns CE if no metric is an RBP_k.
    """
    ks = {name: k for name in metrics if (k := parse_rbp_name(name)) is not None}
    if not ks:
        return CE
    return list(ks)[first_smallest([abs(log(k / HEADLINE_K)) for k in ks.values()])]


def deciding_row(report: Report, question: str, metric: str) -> dict[Any, Any]:
    """Return the row that decides what a headline says about one metric of a question whose rows are laws.

    It is the mean of the laws (`Report.add_means`) if there is one, or else the first row with an interval. The value
    is in the column `estimate`, and the name of the row's question in `question`. The row is empty if no law has an
    interval.
    """
    rows = report.results
    rows = rows[(rows["metric"] == metric) & rows["low"].notna()]
    for name in (f"{MEAN}{question}", question):
        of_question = rows[rows["question"] == name]
        if len(of_question):
            return of_question.iloc[0].to_dict()
    return {}


def decision_clause(report: Report, question: str, metric: str, texts: Mapping[str, str]) -> str:
    """Return a clause that says what was found about one metric, with the numbers that decide it.

    A clause about a mean of several laws also says whether they differ. If some laws are above and others below the
    null value, the clause counts them instead. It is empty if no law has an interval.

    Args:
        report: the report, with all its results.
        question: a question whose rows are laws.
        metric: the metric.
        texts: what the clause says for each verdict. `differs` stands for `above` and `below` together.

    """
    row = deciding_row(report, question, metric)
    if not row:
        return ""
    laws = report.frame(question)
    laws = laws[(laws["metric"] == metric) & laws["low"].notna()]
    verdicts = Counter(laws["verdict"])
    term = report.term(row["question"])
    if verdicts["above"] and verdicts["below"]:
        decided = {name: texts[name] for name in ("above", "below") if name in texts}
        title = report.term(question).title
        return verdict_clause(laws.rename(columns={question: title}), decided or texts, noun="law", none="", span=title)
    verdict = row["verdict"]
    text = texts.get(verdict) or texts.get("differs" if verdict in ("above", "below") else "undecided", verdict)
    value = estimate_text(row["estimate"], row["low"], row["high"], term.form)
    clause = f"{text}, {term.title} = {value}, {p_text(row['p_adjusted'])}"
    if row["question"] == question:
        return clause
    p = row["homogeneity"]
    differ = "they differ" if p < 1 - LEVEL else "no difference between them was found"
    counts = ""
    if set(verdicts) != {verdict}:
        counts = f"; alone: {', '.join(f'{count} {name}' for name, count in verdicts.most_common())}"
    return f"{clause}, on average over {row['number']:.0f} laws ({differ}, {p_text(p)}{counts})"


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
