"""Format results as tables with intervals, as CSV, Markdown and LaTeX, and as MLflow metrics."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from rbptrack.analysis import Report, Term
from rbptrack.analysis.report import MEAN, key_text
from rbptrack.base import markup
from rbptrack.base.escape import metric_part
from rbptrack.base.formatting import estimate_text, number_text
from rbptrack.ranks.names import CE, parse_rbp_name

_NUMBER = re.compile(r"([+-]?([\d.,]+(e[+-]?\d+)?[kMBT%]?|([\d.]+·)?10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|∞)( (\(.*\)|± [\d.]+))?)?")

KEYS = ["family", "dataset", "metric"]
"""The first key columns of every question. Further ones depend on the question."""


@dataclass(frozen=True)
class ResultsTable:
    """A table of texts with a row for each case and columns for the questions about these cases.

    Attributes:
        report: the report with the results.
        frame: the texts. The names of its columns are titles.
        names: the name of each title's question or column in the report's glossary, by title.

    """

    report: Report
    frame: pd.DataFrame
    names: dict[str, str]

    @property
    def titles(self) -> list[str]:
        """The titles of the columns."""
        return list(map(str, self.frame.columns))

    def without_asides(self) -> ResultsTable:
        """Return the table without the columns that `Term.aside` marks."""
        shown_titles = [title for title in self.titles if not self.report.term(self.names[title]).aside]
        return replace(self, frame=self.frame[shown_titles])

    def without_beside(self) -> ResultsTable:
        """Return the table without the further numbers that `Report.add` received as `beside`."""
        beside = {name for question in self.report.questions for name in self.report.beside_columns(question)}
        shown_titles = [title for title in self.titles if self.names[title] not in beside]
        return replace(self, frame=self.frame[shown_titles])

    def columns_by_importance(self) -> tuple[pd.DataFrame, list[str]]:
        """Drop the asides, and order the columns by importance.

        A narrow terminal shows only the most important columns. The keys are the most important ones. Then come the
        estimates and verdicts. Numbers that a report adds beside its estimates are the least important ones.

        Returns:
            The table without asides, and the titles of its columns, the most important first. Both are empty if the
            table has no estimate.

        """
        table = self.without_asides()
        titles = table.titles
        questions = self.report.questions
        if not any(self.names[title] in questions for title in titles):
            return pd.DataFrame(), []
        if "family" in titles and table.frame["family"].nunique() == 1:
            titles.remove("family")
        case_names = [name for question in questions for name in self.report.case_columns(question)]
        by_importance: list[str] = []
        for names in ([*KEYS, *case_names], [*questions, "verdict"]):
            by_importance += [title for title in titles if self.names[title] in names]
        by_importance += [title for title in titles if title not in by_importance]
        return table.frame[titles], by_importance


def results_tables(report: Report) -> list[ResultsTable]:
    """Format the results of a report as tables of texts.

    Questions with equal key columns share a table, in the order of the glossary. A table begins with the key columns.
    Then each question has its estimate with the interval, the verdict with the adjusted p, and the further numbers
    (`beside`).
    """
    frames_by_table: dict[tuple[bool, tuple[str, ...]], dict[str, pd.DataFrame]] = {}
    order = list(report.glossary)
    for question in sorted(report.questions, key=lambda name: order.index(name) if name in order else len(order)):
        frame = report.frame(question)
        keys = [key for key in KEYS if key != "metric" or (frame["metric"] != "").any()]
        # Means over the rows of another question have a table of their own.
        table = question.startswith(MEAN), (*keys, *report.case_columns(question))
        frames_by_table.setdefault(table, {})[question] = frame
    return [_join_questions(report, frames, keys) for (_, keys), frames in frames_by_table.items()]


def _join_questions(report: Report, frames: dict[str, pd.DataFrame], keys: Sequence[str]) -> ResultsTable:
    """Make one table of the questions with the key columns `keys`. `frames` has the rows of each question."""
    judged = [question for question, frame in frames.items() if frame["p"].notna().any()]
    titles = _titles(report, list(frames))
    key_titles = [report.term(key).title for key in keys]
    names = dict(zip(key_titles, keys, strict=True))
    texts_by_case: dict[tuple[Any, ...], dict[str, str]] = {}  # the texts of a row, by title
    for question, frame in frames.items():
        row_cases = list(zip(*(map(_empty_if_missing, frame[key].tolist()) for key in keys), strict=True))
        for case in row_cases:
            texts_by_case.setdefault(case, dict(zip(key_titles, map(key_text, keys, case), strict=True)))
        for title, name, texts in _columns(report, question, frame, titles[question], several=len(judged) > 1):
            new_texts = list(zip(row_cases, texts, strict=True))
            if names.get(title, name) != name:  # another question's column has this title
                title = f"{title} ({name})"
            elif any(texts_by_case[case].get(title, text) != text for case, text in new_texts):
                title = f"{title} ({titles[question]})"  # another question has other values in a column of this name
            names[title] = name
            for case, text in new_texts:
                texts_by_case[case][title] = text
    rows = [texts_by_case[case] for case in _sort_cases(list(texts_by_case), keys)]
    table = pd.DataFrame(rows, columns=list(names)).fillna("")
    filled = [title for title in table if (table[title] != "").any()]
    return ResultsTable(report, table[filled], names)


def _columns(
    report: Report, question: str, frame: pd.DataFrame, title: str, *, several: bool
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the columns of a question: the title, the name in the glossary, and a text for each row.

    Args:
        report: the report.
        question: the question.
        frame: the rows of the question.
        title: the title of the estimates.
        several: whether several questions of the table have verdicts, so that their titles name the question.

    """
    intervals = zip(frame[question], frame["low"], frame["high"], strict=True)
    yield title, question, [estimate_text(*interval, report.term(question).form) for interval in intervals]
    if frame["p"].notna().any():
        yield f"verdict ({title})" if several else "verdict", "verdict", report.verdict_texts(question)
    for name in report.beside_columns(question):
        term = report.term(name)
        values = frame[name].tolist()
        yield term.title, name, [key_text(name, value) if name == "S" else value_text(value, term) for value in values]


def _titles(report: Report, questions: Sequence[str]) -> dict[str, str]:
    """Return a title for each question of a table. If questions share a title, their names are added to it."""
    titles = {question: report.term(question).title for question in questions}
    counts = Counter(titles.values())
    return {name: f"{title} ({name})" if counts[title] > 1 else title for name, title in titles.items()}


def _sort_cases(cases: Sequence[tuple[Any, ...]], keys: Sequence[str]) -> list[tuple[Any, ...]]:
    """Sort the cases of a table by their keys.

    Numbers ascend. CE comes before RBP_k, which ascends in k. Other values stay in the order in which they first occur.
    """
    first_indices = [{value: i for i, value in enumerate(dict.fromkeys(values))} for values in zip(*cases, strict=True)]

    def sort_key(case: tuple[Any, ...]) -> list[tuple[int, float]]:
        parts = []
        for key, value, index_of_value in zip(keys, case, first_indices, strict=True):
            part = (1, float(index_of_value[value]))
            if isinstance(value, int | float):
                part = (0, float(value))
            elif key == "metric" and value == CE:
                part = (0, 0.0)
            elif key == "metric" and (k := parse_rbp_name(value)) is not None:
                part = (0, float(k))
            parts.append(part)
        return parts

    return sorted(cases, key=sort_key)


def value_text(value: Any, term: Term) -> str:
    """Write a value of a column. If the term has no format, numbers have three significant digits."""
    if _is_missing(value):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and not term.form:
        return f"{value:,}"
    if isinstance(value, int | float):
        return number_text(value, term.form)
    return str(value)


def table_text(frame: pd.DataFrame, style: Literal["csv", "markdown"]) -> str:
    """Write a whole table as CSV or Markdown."""
    if style == "csv":
        return markup.csv_text(frame, "%.6g")
    head = list(map(str, frame.columns))
    body = [list(map(cell_text, row)) for row in frame.itertuples(index=False)]
    rows = ["| " + " | ".join(map(markup.markdown_text, cells)) + " |" for cells in (head, *body)]
    return "\n".join([rows[0], "|" + " --- |" * len(head), *rows[1:]]) + "\n"


def cell_text(value: Any) -> str:
    """Write a value of any table: nothing if it is missing, and floats with four significant digits."""
    if _is_missing(value):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def is_column_of_numbers(texts: pd.Series[Any]) -> bool:
    """Return whether all texts of a column are numbers, with or without an interval, or empty."""
    return all(_NUMBER.fullmatch(str(text)) for text in texts)


def report_metrics(report: Report, max_number: int = 40) -> dict[str, float]:
    """Return the first results of a report as MLflow metrics, such as `alpha/pythia/wiki/rbp_10`.

    The ends of an interval have names that end in `/low` and `/high`, the adjusted p of the verdict in `/p`. Numbers
    that are not finite are left out. The results are taken in the order of the report, as long as all numbers of a
    result fit: thousands of names would make a table of runs unreadable.

    Args:
        report: the report.
        max_number: the largest number of metrics.

    """
    values: dict[str, float] = {}
    for question in report.questions:
        keys = [*KEYS, *report.case_columns(question)]
        for row in report.frame(question).to_dict("records"):
            parts = [question]
            for key in keys:
                value = row[key]
                if not _is_missing(value) and value != "":
                    parts.append(f"{value:.6g}" if isinstance(value, float) else str(value))
            name = "/".join(map(metric_part, parts))
            numbers = {name: row[question], f"{name}/low": row["low"], f"{name}/high": row["high"]}
            numbers[f"{name}/p"] = row["p_adjusted"]
            finite = {key: float(value) for key, value in numbers.items() if math.isfinite(value)}
            if len(values) + len(finite) > max_number:
                return values
            values |= finite
    return values


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def _empty_if_missing(value: Any) -> Any:
    return "" if _is_missing(value) else value
