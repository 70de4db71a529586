"""The report of an analyzer: results in one tidy table, further tables, figures and notes.

Analyzers add estimates, and the report tests them. The p of rows that are tested together are adjusted
(`stats.together.adjust`). The verdict of a row is then one of these:

- `same`: the whole interval lies within the margin around the null value. A row has this verdict even if its estimate
  differs significantly from the null value.
- `above` or `below`: the estimate differs from the null value at the corrected level.
- `undecided`: neither.

A row without an interval has no p and no verdict. If fewer than 4 documents decide an estimate
(`Estimate.deciding_documents`), a note names the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from math import floor, isfinite, isnan, nan
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.base.formatting import compact, estimate_text, format_number, p_text
from rbptrack.ranks.names import metric_label, parse_rbp_name
from rbptrack.stats.estimate import LEVEL, Estimate
from rbptrack.stats.rounding import ROUNDING, TIED
from rbptrack.stats.together import Row, adjust, combination, correlations, homogeneity

COLUMNS = ["question", "family", "dataset", "metric", "estimate", "low", "high"]
COLUMNS += ["p", "p_adjusted", "tests", "margin", "verdict"]
"""The first columns of `Report.results`. Columns for the arguments `case` and `beside` of `Report.add` follow."""

VERDICTS = ("above", "below", "same", "undecided", "")
"""The verdicts. A row without a p has the empty verdict."""

MEAN = "mean_"
"""The begin of the name of a question about means over the rows of another question."""

FEW_DECIDING = 4
"""If fewer documents than this decide a number, a note says how many."""


@dataclass(frozen=True)
class Term:
    """The meaning of a question or a column, and how it is shown.

    Attributes:
        meaning: the meaning with its unit. It is shown below tables.
        title: the title of the column or axis. If empty, the name is the title.
        form: the format specification of the numbers, such as `+.1%`. If empty, they have three significant digits.
        aside: whether the column is left out on the terminal and at the beginning of the page. Full tables show it.

    """

    meaning: str
    title: str = ""
    form: str = ""
    aside: bool = False


MEANINGS: Mapping[str, str | Term] = {
    "question": "the question",
    "family": "the family; if its runs differ in more than size, also how they differ, such as bfloat16",
    "dataset": "the dataset",
    "metric": "the quantity, such as ce (cross-entropy in nats) or rbp_10 (the share of tokens with rank at most 10)",
    "estimate": "the estimate that answers the question",
    "low": "lower end of the 95% interval",
    "high": "upper end of the 95% interval",
    "p": "two-sided p-value of the null value",
    "p_adjusted": "p adjusted for all rows of the question that are tested together, whose number is tests",
    "tests": "the number of rows that are tested together; rows of the metric that the headline names are one group",
    "margin": "the verdict is same if the whole interval is within this distance of the null value",
    "verdict": (
        "same: the interval is within the margin; above or below: the estimate differs from the null value, and the "
        "adjusted p is below 0.05; undecided: neither; no interval: not tested, and the notes say why"
    ),
    "homogeneity": Term(
        "p of the hypothesis that all laws of the mean have the same value; not adjusted", "p (all equal)", ".2g"
    ),
    "number": "the number of laws in the mean",
    "R2": Term("share of the variance of ln y that the law explains; near 1 whatever the form", "R²", ".4f"),
    "S": "parameters without embeddings and output head",
    "size": "the size as published",
    "model": "the name of the model: family, size, seed and checkpoint",
    "k": "the k of RBP_k, the share of tokens with rank at most k",
}
"""The meanings of columns that several analyzers use. The glossary of a report takes precedence over these meanings."""

Glossary = Mapping[str, str | Term]
"""The meaning of every question and column of a report, by name."""


_MAX_ROWS_IN_NOTE = 6


@dataclass(frozen=True)
class _Answer:
    """A row of results without its verdict, which depends on the other rows of the question.

    Attributes:
        row: the keys and the numbers of the row.
        case: the names of the keys that are specific to the question.
        beside: the names of the further numbers.
        joint: the estimate with the names of its documents and models.
        primary: whether the row is tested with other primary rows only.
        p: the p-value before it is adjusted; NaN if the row is not tested.
        side: `above` or `below`, the side of the null value on which the estimate lies; empty without a null value.
        is_within_margin: whether the whole interval lies within the margin.

    """

    row: dict[str, Any]
    case: list[str]
    beside: list[str]
    joint: Row
    primary: bool
    p: float = nan
    side: str = ""
    is_within_margin: bool = False


@dataclass
class Report:
    """The results of an analyzer, with tables, figures and notes.

    Attributes:
        glossary: the meaning of every question and column. A `Term` also has a title and a format of numbers.
        tables: further tables by name, such as values on a grid of k. They are not tested.
        figures: Altair charts by name. The page begins with the first figure of the leading analyzer.
        opening: a sentence with which the page begins, before the headline of the leading analyzer; usually empty.
        leading_columns: the columns of the table `laws` that the page shows below the explorer, for the k that the
            reader chooses. The table has a row for each family, dataset, metric (`ce` or `rbp`) and k (0 for CE). A
            column `x` has an interval if the table also has the columns `x_low` and `x_high`. A column whose `Term` is
            an aside has no interval, and is left out on paper.
        headline: one plain sentence of at most 80 words; empty if there is nothing to say.
        notes: sentences that say what was left out and why.
        unreadable: the reason why a file of a run could not be read, by run ID. The core sets it.

    """

    glossary: Glossary = field(repr=False)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False)
    figures: dict[str, Any] = field(default_factory=dict, repr=False)
    opening: str = ""
    leading_columns: Sequence[str] = ()
    headline: str = ""
    notes: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    _answers: list[_Answer] = field(default_factory=list, repr=False)
    _rows: dict[str, list[int]] = field(default_factory=dict, repr=False)  # the indices of answers, by question
    _rows_of_few_documents: dict[tuple[str, str, str], list[str]] = field(default_factory=dict, repr=False)
    _results: pd.DataFrame | None = field(default=None, repr=False)
    _frames: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False)  # of questions, since the last `add`

    def add(
        self,
        question: str,
        estimate: Estimate | float,
        *,
        family: str,
        dataset: str,
        metric: str = "",
        null: float | None = None,
        margin: float = nan,
        ends: tuple[float, float] | None = None,
        beside: Mapping[str, Any] | None = None,
        show: Callable[[float], float] = float,
        primary: bool = False,
        documents: str = "",
        models: str = "",
        own: Estimate | None = None,
        **case: Any,
    ) -> None:
        """Add the answer to a question in one case.

        Args:
            question: the name of the question, a key of the glossary. It becomes part of the name of an MLflow metric.
            estimate: the number with its error. A plain number has no error.
            family: the family. `**family.keys` passes the family and the dataset.
            dataset: the dataset.
            metric: the quantity, such as `rbp_10`.
            null: the null value, on the estimate's scale. The report tests whether the estimate is above or below the
                null value.
            margin: the report also tests whether the whole interval lies within this distance of the null value.
            ends: the ends of an interval of another kind, such as a profile interval, on the scale that is shown. The
                report shows these ends. The verdict still uses the interval of the estimate.
            beside: further numbers of the row, such as R2.
            show: a monotonic function from the estimate's scale to the scale that is shown, such as `numpy.expm1` or
                `clip_share`.
            primary: whether the row is about the metric that the headline names. Primary rows of a question are tested
                together, and so are its other rows.
            documents: the name of the documents that the estimate was computed from; the dataset by default. Tests of
                rows that share documents or models are correlated, so their p are raised less.
            models: the name of the models that the estimate was computed from; the family by default.
            own: the estimate with an error from its own data, if the error of `estimate` also uses that of other rows.
                Means over rows use it.
            **case: further keys of the row, such as S or N. They become part of the name of the MLflow metric.

        Raises TypeError if a name is not a text, if two columns would have one name, or if a value of `case` or
        `beside` is not a text, a number or a missing value.

        """
        texts = {"question": question, "family": family, "dataset": dataset, "metric": metric}
        for name, text in (texts | {"documents": documents, "models": models}).items():
            check_text(name, text)
        beside = dict(beside or {})
        columns = [*COLUMNS, question, *case, *beside]
        if repeated := sorted({name for name in columns if columns.count(name) > 1}):
            raise TypeError(f"{question}: a table of results would have two columns {repeated[0]}. Rename one of them")
        for name, value in (case | beside).items():
            _check_cell(name, value)
        if not isinstance(estimate, Estimate):
            estimate = Estimate(float(estimate), df=nan)
        low, high = estimate.interval()
        if ends is None:
            ends = float(show(low)), float(show(high))
        if ends[0] > ends[1]:  # `show` is a decreasing function
            ends = ends[::-1]
        numbers = {"estimate": float(show(estimate.value)), "low": ends[0], "high": ends[1]}
        if estimate.has_interval and estimate.deciding_documents < FEW_DECIDING * (1 - TIED):
            self._note_few_documents(question, family, dataset, _row_name(metric, case, estimate.deciding_documents))
        row = texts | numbers | {"margin": nan} | case | beside
        joint = Row(own or estimate, documents or dataset, models or family)
        answer = _Answer(row, list(case), list(beside), joint, primary)
        if null is not None:
            if isfinite(margin):
                row["margin"] = max(abs(float(show(null + side)) - float(show(null))) for side in (-margin, margin))
            answer = replace(
                answer,
                p=estimate.p(null),
                side="above" if estimate.value > null else "below",
                is_within_margin=low >= null - margin and high <= null + margin,
            )
        self._rows.setdefault(question, []).append(len(self._answers))
        self._answers.append(answer)
        self._results = None
        self._frames.clear()

    def _note_few_documents(self, question: str, family: str, dataset: str, row_name: str) -> None:
        begin = f"{family} on {dataset}: few documents decide {self.term(question).title}:"
        row_names = self._rows_of_few_documents.setdefault((question, family, dataset), [])
        former_note = f"{begin} {_shortened_rows(row_names)}."
        self.notes = [note for note in self.notes if note != former_note]
        row_names.append(row_name)
        self.notes.append(f"{begin} {_shortened_rows(row_names)}.")

    @property
    def results(self) -> pd.DataFrame:
        """The results of all questions in one tidy table. Its first columns are `COLUMNS`."""
        return self._current_results().copy()

    def _current_results(self) -> pd.DataFrame:
        """Return the results. They are computed once after the last `add`."""
        if self._results is None:
            self._results = self._compute_results() if self._answers else pd.DataFrame(columns=COLUMNS)
        return self._results

    def _compute_results(self) -> pd.DataFrame:
        frame = pd.DataFrame([answer.row for answer in self._answers])
        frame["p"] = [answer.p for answer in self._answers]
        frame["p_adjusted"], frame["tests"] = nan, 0
        tested_together: dict[tuple[str, bool], list[int]] = {}
        for i, answer in enumerate(self._answers):
            if isfinite(answer.p):
                tested_together.setdefault((answer.row["question"], answer.primary), []).append(i)
        for tested in tested_together.values():
            correlation = correlations([self._answers[i].joint for i in tested])
            frame.loc[tested, "p_adjusted"] = adjust(frame["p"].to_numpy()[tested], correlation)
            frame.loc[tested, "tests"] = len(tested)
        is_within_margin = [answer.is_within_margin for answer in self._answers]
        sides = [answer.side for answer in self._answers]
        verdicts = np.select([is_within_margin, frame["p_adjusted"] < 1 - LEVEL], ["same", sides], "undecided")
        frame["verdict"] = np.where(frame["p"].notna(), verdicts, "")
        return frame[[*COLUMNS, *frame.columns.difference(COLUMNS, sort=False)]]

    @property
    def questions(self) -> list[str]:
        """The questions that have results, in the order in which they were added."""
        return list(self._rows)

    def frame(self, question: str) -> pd.DataFrame:
        """Return the results of one question, without the columns of other questions.

        The column of estimates has the question's name.
        """
        if question not in self._frames:
            self._frames[question] = self._compute_frame(question)
        return self._frames[question].copy()

    def _compute_frame(self, question: str) -> pd.DataFrame:
        tested = self._current_results().iloc[self._rows.get(question, [])].reset_index(drop=True)
        # `results` holds whole numbers as float if other questions lack the column. Here they stay whole numbers.
        rows = pd.DataFrame([answer.row for answer in self._answers_to(question)])
        names = [*COLUMNS[1:], *self.case_columns(question), *self.beside_columns(question)]
        tests = {name: tested[name] for name in ("p", "p_adjusted", "tests", "verdict")}
        return rows.reindex(columns=names).assign(**tests).rename(columns={"estimate": question})

    def case_columns(self, question: str) -> list[str]:
        """Return the names of a question's keys beyond family, dataset and metric (`case` of `Report.add`)."""
        return list(dict.fromkeys(name for answer in self._answers_to(question) for name in answer.case))

    def beside_columns(self, question: str) -> list[str]:
        """Return the names of a question's further numbers (`beside` of `Report.add`)."""
        return list(dict.fromkeys(name for answer in self._answers_to(question) for name in answer.beside))

    def add_means(self, question: str) -> None:
        """Add the means over the rows of a question, one for each metric, as rows of the question `mean_<question>`.

        A mean needs at least two rows with an interval. Rows of the question have the null value 0 and differ only in
        family and dataset. The glossary must explain `mean_<question>`, `homogeneity` and `number`.
        """
        by_metric: dict[str, list[_Answer]] = {}
        for answer in self._answers_to(question):
            if answer.joint.estimate.has_interval:
                by_metric.setdefault(answer.row["metric"], []).append(answer)
        for metric, answers in by_metric.items():
            if len(answers) < 2:
                continue
            rows = [answer.joint for answer in answers]
            self.add(
                f"{MEAN}{question}",
                combination(rows, np.full(len(rows), 1 / len(rows))),
                family="all",
                dataset="all",
                metric=metric,
                null=0.0,
                margin=float(np.mean([answer.row["margin"] for answer in answers])),
                beside={"homogeneity": homogeneity(rows), "number": len(rows)},
                primary=answers[0].primary,
            )

    def verdict_texts(self, question: str) -> list[str]:
        """Return what was decided in each row of a question, such as `above, p = 0.009` or `same within 0.01, p = 0.3`.

        p is the adjusted p. A row without an interval has the text `no interval`.
        """
        texts = []
        for row in self.frame(question).to_dict("records"):
            verdict = str(row["verdict"])
            if verdict == "same":
                verdict = f"same within {estimate_text(row['margin'], form=self.term(question).form.lstrip('+'))}"
            if verdict:
                texts.append(f"{verdict}, {p_text(row['p_adjusted'])}")
            else:
                texts.append("no interval" if isnan(row["low"]) else "")
        return texts

    def _answers_to(self, question: str) -> list[_Answer]:
        return [self._answers[row] for row in self._rows.get(question, [])]

    def _repr_html_(self) -> str:
        """Return the headline, a table for each question, and the notes as HTML for notebooks."""
        parts = [f"<p><b>{escape(self.headline)}</b></p>"] if self.headline else []
        for question in self.questions:
            parts.append(f"<p>{escape(self.term(question).meaning)}</p>{self._html_table(question)}")
        if self.notes:
            parts.append(f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in self.notes)}</ul>")
        figures = [f"report.figures[{name!r}]" for name in self.figures]
        tables = [f"report.tables[{name!r}]" for name in self.tables]
        if figures or tables:
            parts.append(f"<p>More: <code>{'</code>, <code>'.join(map(escape, figures + tables))}</code></p>")
        return "".join(parts)

    def _html_table(self, question: str) -> str:
        frame = self.frame(question)
        filled = [name for name in map(str, frame) if frame[name].notna().any() and (frame[name] != "").any()]
        forms = {name: self.term(name).form or ".3g" for name in filled if frame[name].dtype.kind == "f"}
        forms |= dict.fromkeys(("low", "high", "margin"), self.term(question).form or ".3g")
        formatters = {self.term(name).title: partial(format_number, form=form) for name, form in forms.items()}
        titled = frame[filled].rename(columns=lambda name: self.term(str(name)).title)
        return str(titled.to_html(index=False, border=0, na_rep="", formatters=formatters))

    def term(self, name: str) -> Term:
        """Return the meaning, title and format of a question or column. An unknown name is its own title."""
        entry = self.glossary.get(name, MEANINGS.get(name, ""))
        term = entry if isinstance(entry, Term) else Term(entry)
        return term if term.title else replace(term, title=name.replace("_", " "))


def check_text(name: str, text: object) -> None:
    """Raise TypeError or UnicodeEncodeError if a value is not a text that can be written as UTF-8."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a text; got {text!r:.60}")
    text.encode()


def _check_cell(name: str, value: object) -> None:
    """Raise an exception if a value is not a text, a finite number in the range of a float, or a missing value."""
    if isinstance(value, str):
        check_text(name, value)
    elif isinstance(value, int | float | np.number | np.bool_):
        float(value)  # raises OverflowError or, for a complex number, TypeError
    elif value is not None and value is not pd.NA:
        raise TypeError(f"{name} must be a text or a number; got {value!r:.60}")


def _shortened_rows(row_names: Sequence[str]) -> str:
    """Join the names of rows by semicolons. Of many rows, give the first names and the number of the others."""
    if len(row_names) <= _MAX_ROWS_IN_NOTE:
        return "; ".join(row_names)
    return f"{'; '.join(row_names[:_MAX_ROWS_IN_NOTE])}; and {len(row_names) - _MAX_ROWS_IN_NOTE} more"


def _row_name(metric: str, case: Mapping[str, Any], deciding: float) -> str:
    """Return the name of a row that few documents decide: `RBP_1, N = 4, 3.6 documents`.

    The number of deciding documents is rounded down, so it stays below `FEW_DECIDING`.
    """
    parts = [key_text("metric", metric)]
    for name, value in case.items():
        text = key_text(name, value)
        parts.append(f"{name} = {text}" if isinstance(value, int | float) else text)
    return ", ".join([*filter(None, parts), f"{floor(10 * deciding * (1 + ROUNDING)) / 10:.1f} documents"])


def key_text(name: str, value: Any) -> str:
    """Return the value of a key, such as `metric` or `S`, as it is shown, such as `RBP_10` or `18.9M`.

    The text is empty if the value is missing.
    """
    if value is None or pd.isna(value) or value == "":
        return ""
    if name in ("S", "D"):
        return compact(float(value))
    if isinstance(value, float):
        return f"{value:g}"
    if name != "metric":
        return str(value)
    if value == "ce" or parse_rbp_name(value) is not None:
        return metric_label(value)
    return str(value).replace("_", " ")


def clip_share(value: float) -> float:
    """Clip a number, such as the end of an interval of a share, to the range 0 to 1."""
    return min(max(value, 0.0), 1.0)
