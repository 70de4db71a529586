"""Reports of analyzers: results in one tidy table, further tables, figures and notes.

A report corrects and decides all tests. Analyzers set no verdicts. It corrects p by Holm over all rows of a question.
The verdict is then `above` or `below` (of the null value, at the corrected level), `same` (the interval lies inside the
margin) or `undecided`. Beside `undecided` stands the smallest effect that the test finds in 80% of cases. A row without
a p has no verdict. A row that fewer than 4 documents decide has an interval and no p; a note names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from math import isfinite, nan
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.base.words import compact, number
from rbptrack.ranks.names import metric_label, parse_rbp_name
from rbptrack.stats.estimate import MIN_DECIDING, Estimate

LEVEL = 0.95
"""Of every interval; tests have the size 1 - LEVEL."""

COLUMNS = ["question", "family", "dataset", "metric", "estimate", "low", "high", "p", "p_holm", "verdict", "detectable"]
"""Of `Report.results`; after them what tells rows apart (`case`) and what stands beside the estimates (`beside`)."""

VERDICTS = ("above", "below", "same", "undecided", "")


@dataclass(frozen=True)
class Term:
    """What a question or a column means.

    Attributes:
        meaning: with its unit, as shown below tables.
        title: of columns and axes; empty: the name itself.
        form: a format specification of its numbers, such as `+.1%`; empty: three significant digits.
        aside: shown in the whole table only, neither on the terminal nor on the first page.

    """

    meaning: str
    title: str = ""
    form: str = ""
    aside: bool = False


MEANINGS: Mapping[str, str | Term] = {
    "question": "what was asked",
    "family": "the family; with what sets this part apart where its runs disagree",
    "dataset": "the dataset",
    "metric": "the quantity, such as ce, cross-entropy in nats, or rbp_10, the share of tokens with rank at most 10",
    "estimate": "the answer",
    "low": "lower end of the 95% interval",
    "high": "upper end of the 95% interval",
    "p": "of the null value, two-sided",
    "p_holm": "p corrected by Holm over all rows of the question",
    "verdict": "above or below the null value at the corrected level; or same, the interval inside the margin",
    "detectable": Term(
        "if undecided: the smallest difference from the null value that would be found in 80% of cases, after Holm",
        title="detectable from",
    ),
    "S": "parameters without embeddings and output head",
    "size": "the size as published",
    "model": "family, size, seed and checkpoint as one word",
    "k": "of RBP_k, the share of tokens with rank at most k",
}
"""Of columns that analyzers share; a report's own glossary comes first."""


Glossary = Mapping[str, str | Term]
"""The meaning of every question and column of a report, by name."""


@dataclass(frozen=True)
class _Answer:
    """A row of results before its verdict, which depends on the other rows of the question."""

    row: dict[str, Any]
    case: list[str]
    beside: list[str]
    has_margin: bool
    p: float = nan
    side: str = ""
    within: bool = False
    estimate: Estimate | None = None
    null: float = nan
    show: Callable[[float], float] | None = None


@dataclass
class Report:
    """Results as rows, and what is shown beside them.

    Attributes:
        glossary: the meaning of every question and column; a `Term` also has a title and a format of its numbers.
        tables: further tables, such as grids of k, without p.
        figures: Altair charts, by name; of the analyzer that leads, the first opens the page.
        headline: one plain sentence, at most 30 words; empty where there is nothing to say.
        notes: what was left out and why, a sentence each.

    """

    glossary: Glossary
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    headline: str = ""
    notes: list[str] = field(default_factory=list)
    _answers: list[_Answer] = field(default_factory=list, repr=False)
    _few: dict[tuple[str, str, str], list[str]] = field(default_factory=dict, repr=False)
    _judged: pd.DataFrame | None = field(default=None, repr=False)

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
        **case: Any,
    ) -> None:
        """Add the answer to a question in one case.

        Args:
            question: its name, in the glossary; part of its MLflow metric's name.
            estimate: the number with its error; a plain number has none.
            family: the family, `**family.keys` gives both.
            dataset: the dataset.
            metric: the quantity, such as `rbp_10`.
            null: asks whether the number lies above or below it, on the estimate's scale.
            margin: asks whether it is the same, too: whether its interval lies within this distance of the null value.
            ends: of an interval of another kind, such as a profile's, on the reader's scale.
            beside: further numbers of the row, such as R2.
            show: from the estimate's scale to the reader's, such as `numpy.expm1`; rising or falling throughout.
            **case: what else tells the row apart, such as S or N; part of its MLflow metric's name.

        """
        number = estimate if isinstance(estimate, Estimate) else Estimate(float(estimate), df=nan)
        low, high = number.interval(LEVEL)
        if ends is None:
            ends = float(show(low)), float(show(high))
        keys = {"question": question, "family": family, "dataset": dataset, "metric": metric}
        if ends[0] > ends[1]:  # `show` falls
            ends = ends[::-1]
        numbers = {"estimate": float(show(number.value)), "low": ends[0], "high": ends[1]}
        if null is not None and number.known and not number.testable:
            self._note_few(question, family, dataset, _few_row(metric, case, number.deciding))
        beside = dict(beside or {})
        answer = _Answer(keys | numbers | case | beside, list(case), list(beside), isfinite(margin))
        if null is not None:
            side = "above" if number.value > null else "below"
            within = low >= null - margin and high <= null + margin
            answer = replace(answer, p=number.p(null), side=side, within=within, estimate=number, null=null, show=show)
        self._answers.append(answer)
        self._judged = None

    def _note_few(self, question: str, family: str, dataset: str, row: str) -> None:
        """Say in one note for each question, family and dataset which rows have no test, and how many documents decide
        each.
        """
        rows = self._few.setdefault((question, family, dataset), [])
        where = f"{family} on {dataset}: too few documents decide {self.term(question).title}"
        before = _few_decide(where, rows)
        rows.append(row)
        self.notes = [note for note in self.notes if note != before]
        self.notes.append(_few_decide(where, rows))

    @property
    def results(self) -> pd.DataFrame:
        """One tidy table of all answers, with the columns of `COLUMNS` first."""
        if self._judged is None:
            self._judged = self._with_verdicts()
        return self._judged.copy()

    def _with_verdicts(self) -> pd.DataFrame:
        if not self._answers:
            return pd.DataFrame(columns=COLUMNS)
        frame = pd.DataFrame([answer.row for answer in self._answers])
        frame["p"] = [answer.p for answer in self._answers]
        frame["p_holm"] = frame.groupby("question")["p"].transform(holm)
        within = [answer.within for answer in self._answers]
        sides = [answer.side for answer in self._answers]
        decided = np.select([within, frame["p_holm"] < 1 - LEVEL], ["same", sides], "undecided")
        frame["verdict"] = np.where(frame["p"].notna(), decided, "")
        # Holm compares each p that is left with 5% over the number of those that are left.
        left = (frame["p_holm"] >= 1 - LEVEL).groupby(frame["question"]).transform("sum").tolist()
        answers = zip(self._answers, frame["verdict"].tolist(), left, strict=True)
        frame["detectable"] = [
            _detectable(answer, tests) if verdict == "undecided" else nan for answer, verdict, tests in answers
        ]
        return frame[[*COLUMNS, *frame.columns.difference(COLUMNS, sort=False)]]

    @property
    def questions(self) -> list[str]:
        """The questions that were asked, in their order."""
        return list(dict.fromkeys(answer.row["question"] for answer in self._answers))

    def frame(self, question: str) -> pd.DataFrame:
        """The results of one question, without the columns of others; the estimates' column has the question's name."""
        results = self.results
        tested = results[results["question"] == question].reset_index(drop=True)
        rows = pd.DataFrame([answer.row for answer in self._to(question)])  # whole numbers stay whole
        names = [*COLUMNS[1:], *self.case_columns(question), *self.beside_columns(question)]
        judged = {name: tested[name] for name in ("p", "p_holm", "verdict", "detectable")}
        frame = rows.reindex(columns=names).assign(**judged)
        return frame.rename(columns={"estimate": question})

    def case_columns(self, question: str) -> list[str]:
        """The columns that tell rows of a question apart, after family, dataset and metric."""
        return list(dict.fromkeys(name for answer in self._to(question) for name in answer.case))

    def beside_columns(self, question: str) -> list[str]:
        """The columns of a question that stand beside its estimates."""
        return list(dict.fromkeys(name for answer in self._to(question) for name in answer.beside))

    def has_margin(self, question: str) -> bool:
        """Whether a question asks, too, if numbers are the same within a margin."""
        return any(answer.has_margin for answer in self._to(question))

    def _to(self, question: str) -> list[_Answer]:
        return [answer for answer in self._answers if answer.row["question"] == question]

    def __getstate__(self) -> dict[str, Any]:
        """All but the functions `show`, which may be lambdas. The verdicts are set before, and need them no more."""
        judged = self.results
        answers = [replace(answer, show=None) for answer in self._answers]
        return self.__dict__ | {"_answers": answers, "_judged": judged}

    def _repr_html_(self) -> str:
        """The headline, a table for each question, and the notes, as a notebook shows them."""
        parts = [f"<p><b>{escape(self.headline)}</b></p>"] if self.headline else []
        for question in self.questions:
            parts.append(f"<p>{escape(self.term(question).meaning)}</p>{self._html_table(question)}")
        if self.notes:
            parts.append(f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in self.notes)}</ul>")
        more = [f"report.figures[{name!r}]" for name in self.figures] + [
            f"report.tables[{name!r}]" for name in self.tables
        ]
        if more:
            parts.append(f"<p>More: <code>{'</code>, <code>'.join(map(escape, more))}</code></p>")
        return "".join(parts)

    def _html_table(self, question: str) -> str:
        frame = self.frame(question)
        filled = [name for name in map(str, frame) if frame[name].notna().any() and (frame[name] != "").any()]
        forms = {name: self.term(name).form or ".3g" for name in filled if frame[name].dtype.kind == "f"}
        forms |= dict.fromkeys(("low", "high", "detectable"), self.term(question).form or ".3g")
        formatters = {self.term(name).title: partial(number, form=form) for name, form in forms.items()}
        titled = frame[filled].rename(columns=lambda name: self.term(str(name)).title)
        return str(titled.to_html(index=False, border=0, na_rep="", formatters=formatters))

    def term(self, name: str) -> Term:
        """What a question or column means, with its title."""
        entry = self.glossary.get(name, MEANINGS.get(name, ""))
        term = entry if isinstance(entry, Term) else Term(entry)
        return term if term.title else replace(term, title=name.replace("_", " "))


def _few_row(metric: str, case: Mapping[str, Any], deciding: float) -> str:
    """What a note says of a row that few documents decide: `RBP_1, N = 4, 3.6 documents`."""
    parts = [key_text("metric", metric)]
    for name, value in case.items():
        text = key_text(name, value)
        parts.append(f"{name} = {text}" if isinstance(value, int | float) else text)
    return ", ".join([*filter(None, parts), f"{deciding:.1f} documents"])


def _few_decide(where: str, rows: list[str]) -> str:
    return f"{where} for a test (at least {MIN_DECIDING} are needed): {'; '.join(rows)}."


def key_text(name: str, value: Any) -> str:
    """What tells a row apart, as people write it: `CE`, `RBP_10`, `18.9M`."""
    if value is None or pd.isna(value) or value == "":
        return ""
    if name == "S":
        return compact(float(value))
    if isinstance(value, float):
        return f"{value:g}"
    if name != "metric":
        return str(value)
    if value == "ce" or parse_rbp_name(value) is not None:
        return metric_label(value)
    return str(value).replace("_", " ")


def _detectable(answer: _Answer, tests: int) -> float:
    """The smallest distance from the null value that one of `tests` tests finds in 80% of cases, as readers see it."""
    if answer.estimate is None or answer.show is None:
        return nan
    distance = answer.estimate.detectable(tests)
    ends = [answer.show(answer.null + distance), answer.show(answer.null - distance)]
    return max(abs(float(end) - float(answer.show(answer.null))) for end in ends)


def holm(p: pd.Series[float]) -> pd.Series[float]:
    """P corrected by Holm's method (Scandinavian Journal of Statistics 6, 1979); NaN stay out."""
    asked = p.dropna().sort_values(kind="stable")
    steps = np.arange(len(asked), 0, -1)
    return (asked * steps).cummax().clip(upper=1.0).reindex(p.index)
