"""Tests that every analyzer must pass, and example measurements to run them on.

Write this in a test file:

    from rbptrack.analysis.testing import AnalyzerContract
    from my_package import Mine

    class TestMine(AnalyzerContract):
        analyzer = Mine()

pytest then runs the tests of `AnalyzerContract`. They check, for example, that the analyzer explains its questions and
columns, that it imports neither mlflow nor torch, that it does not change its input, and that it has no interval with
fewer than 5 documents. Use `NeedsRanks` in place of `AnalyzerContract` for an analyzer that reads ranks, `NeedsSizes`
for an analyzer of laws in size, or both.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
from math import log
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from rbptrack.analysis.plugin import Analyzer
from rbptrack.analysis.rank_store import RankTables
from rbptrack.analysis.report import COLUMNS, VERDICTS, Report
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import HEADLINE_KS, RankTable, rbp_name, se_name

FORBIDDEN = ("mlflow", "torch", "transformers", "datasets")
PUBLIC = ("rbptrack.analysis", "rbptrack.stats", "rbptrack.figures", "rbptrack.ranks")
"""The modules of rbptrack from which a plugin may import the names in `__all__`."""

MAX_HEADLINE_WORDS = 80
"""The most words of an analyzer's headline."""

_VOCABULARY = 256


def foreign_imports(file: Path) -> list[str]:
    """Return the imports of a file that a plugin must not have.

    These are packages in `FORBIDDEN`, and names of rbptrack that no module in `PUBLIC` lists in `__all__`.
    """
    forbidden_imports = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: dict[str, list[str]] = {}
        if isinstance(node, ast.Import):
            names = {alias.name: [""] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = {node.module: [alias.name for alias in node.names]}
        for module, members in names.items():
            package = module.partition(".")[0]
            public = importlib.import_module(module).__all__ if module in PUBLIC else []
            if package in FORBIDDEN:
                forbidden_imports.append(module)
            elif package == "rbptrack":
                forbidden_imports += [f"{module}.{member}".rstrip(".") for member in members if member not in public]
    return forbidden_imports


def example_runs(
    *,
    families: dict[str, int] | None = None,
    datasets: tuple[str, ...] = ("code", "prose"),
    documents: int = 30,
    tokens: int = 200,
    seed: int = 0,
) -> Runs:
    """Return simulated measurements with a known law, -ln RBP_1 = 6 S^-0.15. They need no model and no store.

    The probability of a rank R above 1 is proportional to 1/R.

    Args:
        families: the number of sizes of each family, by name. The smallest size has 1e5 parameters, and every other
            size four times as many as the size before it. None: `alpha` with 5 sizes and `beta` with 4.
        datasets: the names of the datasets.
        documents: the number of documents in each dataset. All models score the same documents.
        tokens: the number of tokens in each document.
        seed: the random seed of the ranks.

    """
    rng = np.random.default_rng(seed)
    rows = []
    tables: dict[str, RankTable] = {}
    for family, sizes in (families or {"alpha": 5, "beta": 4}).items():
        for dataset in datasets:
            for i in range(sizes):
                row, table = _simulate_run(family, dataset, 10**5 * 4**i, documents, tokens, rng)
                rows.append(row)
                tables[str(row["run_id"])] = table
    return Runs(pd.DataFrame(rows), RankTables(tables))


def _simulate_run(
    family: str, dataset: str, s: int, documents: int, tokens: int, rng: np.random.Generator
) -> tuple[dict[str, Any], RankTable]:
    """Return the row of `Runs.frame` and the rank table of a simulated model of size s on one dataset."""
    p_of_rank_1 = np.exp(-6 * s**-0.15)
    weights_above_1 = 1 / np.arange(2, _VOCABULARY + 1)
    pmf = np.concatenate([[p_of_rank_1], (1 - p_of_rank_1) * weights_above_1 / weights_above_1.sum()])
    count = documents * tokens
    rank = rng.choice(_VOCABULARY, size=count, p=pmf / pmf.sum()) + 1
    logprob = np.log(pmf[rank - 1]) - 0.1
    table = RankTable.from_arrays(
        vocab_size=_VOCABULARY,
        document=np.repeat(np.arange(documents), tokens),
        position=np.tile(np.arange(1, tokens + 1), documents),
        field=np.zeros(count),
        token=rank % 17,
        greater=rank - 1,
        ties=np.zeros(count),
        logprob=logprob,
        entropy=np.full(count, log(_VOCABULARY) / 2),
        top=np.zeros(count),
        top_logprob=np.maximum(logprob, np.log(p_of_rank_1)),
    )
    name = f"{family}-{s}"
    row: dict[str, Any] = {
        "run_id": f"{name}-{dataset}",
        "fingerprint": f"{name}-{dataset}",
        "family": family,
        "size": str(s),
        "model": name,
        "dataset": dataset,
        "sweep": "example",
        "architecture": "gpt_neox",
        "dtype": "float32",
        "sequence": "slide",
        "seq_len": tokens + 1,
        "context": 1,
        "candidates": "vocabulary",
        "rank": "paper",
        "documents_hash": dataset,
        "vocab_size": _VOCABULARY,
        "non_embedding_params": s,
        "total_params": 2 * s,
        "num_tokens": count,
        "documents": documents,
        "ce": table.ce,
        "ce_se": 0.01,
        "tie_rate": 0.0,
        "bits_per_byte": table.ce / log(2) / 4,
    }
    for k in HEADLINE_KS:
        row[rbp_name(k)] = table.rbp(k)
        row[se_name(rbp_name(k))] = 0.01
    return row, table


class AnalyzerContract:
    """pytest tests that every analyzer must pass.

    Write a subclass that sets `analyzer`. Override `runs` if the analyzer needs other measurements than `example_runs`.

    Attributes:
        analyzer: the analyzer, with the options to test.

    """

    analyzer: ClassVar[Analyzer]
    _runs: ClassVar[Runs]
    _frame_and_options: ClassVar[tuple[pd.DataFrame, str]]
    _report: ClassVar[Report]

    def runs(self, *, documents: int = 30) -> Runs:
        """Return measurements that the analyzer can analyse. Every call returns new ones."""
        return example_runs(documents=documents)

    def report(self) -> Report:
        """Return the analyzer's report of `runs`. It is computed once for each class."""
        cls = type(self)
        if "_report" not in vars(cls):  # a parent class may test other options
            cls._runs = self.runs()
            cls._frame_and_options = (cls._runs.frame.copy(deep=True), repr(self.analyzer))
            cls._report = self.analyzer.analyze(cls._runs)
        return cls._report

    def test_analyzer_has_help(self) -> None:
        """Check that the analyzer has a docstring. Users see its first line."""
        assert (type(self.analyzer).__doc__ or "").strip()

    def test_analyzer_imports_only_public_names(self) -> None:
        """Check that the analyzer imports only public names of rbptrack, and no package in `FORBIDDEN`."""
        forbidden_imports = foreign_imports(Path(inspect.getfile(type(self.analyzer))))
        assert not forbidden_imports, (
            f"an analyzer may import names that {', '.join(PUBLIC)} list, but not {', '.join(forbidden_imports)}"
        )

    def test_report_has_content_and_a_short_headline(self) -> None:
        """Check that the report has results, tables or notes, and that its headline is short."""
        report = self.report()
        assert isinstance(report, Report)
        assert len(report.results) or report.tables or report.notes
        assert all(isinstance(table, pd.DataFrame) for table in report.tables.values())
        assert all(hasattr(figure, "to_dict") for figure in report.figures.values())
        assert len(report.headline.split()) <= MAX_HEADLINE_WORDS, report.headline
        assert set(report.results["verdict"]) <= set(VERDICTS)

    def test_glossary_explains_every_question_and_column(self) -> None:
        """Check that every question, and every column of results and tables, has a meaning."""
        report = self.report()
        names = {*report.questions, *report.results.columns}
        for table in report.tables.values():
            names |= set(map(str, table.columns))
        missing = sorted(name for name in names if not report.term(name).meaning)
        assert not missing, f"the glossary lacks {', '.join(missing)}"

    def test_rows_of_a_question_have_different_keys(self) -> None:
        """Check that all rows of a question have different keys. Their MLflow metrics would have equal names."""
        report = self.report()
        for question in report.questions:
            keys = ["family", "dataset", "metric", *report.case_columns(question)]
            assert not report.frame(question).duplicated(keys).any(), question

    def test_equal_runs_have_equal_reports(self) -> None:
        """Check that a second call of `analyze` with equal measurements returns an equal report."""
        first = self.report()
        second = self.analyzer.analyze(self.runs())
        assert first.notes == second.notes
        assert first.headline == second.headline
        pd.testing.assert_frame_equal(first.results, second.results)

    def test_analyzer_changes_neither_runs_nor_options(self) -> None:
        """Check that the analyzer changes neither the table of runs nor its own options."""
        self.report()
        frame, options = self._frame_and_options
        assert self._runs.frame.equals(frame), "the analyzer changed runs.frame: work on a copy"
        assert repr(self.analyzer) == options, "the analyzer changed its options"

    def test_analyzer_and_runs_and_report_can_be_pickled(self) -> None:
        """Check that they can be pickled, because another process may run the analyzer."""
        pickle.loads(pickle.dumps((self.analyzer, self.runs(), self.report())))  # noqa: S301 - made here

    def test_few_documents_have_no_error_over_documents(self) -> None:
        """Check that 4 documents of one model have no intervals, and that a note says what intervals of laws lack."""
        runs = self.runs(documents=4)
        report = self._report_or_error(runs)
        if isinstance(report, Report) and len(report.results) and not runs["without_ranks"].fillna(False).any():
            never_has_intervals = self.report().results["low"].isna().all()  # not even with enough documents
            assert never_has_intervals or report.notes, "4 documents are too few, and no note says so"
        report = self._report_or_error(runs[runs["run_id"] == runs["run_id"].iloc[0]])
        if isinstance(report, Report) and len(report.results):
            assert report.results[["low", "high", "p"]].isna().all(axis=None)
            assert (report.results["verdict"] == "").all()

    def test_single_run_has_a_report_or_an_error_with_a_message(self) -> None:
        """Check that a single run leads to a report, or to an RbptrackError with a message."""
        runs = self.runs()
        self._report_or_error(runs[runs["run_id"] == runs["run_id"].iloc[0]])

    def _report_or_error(self, runs: Runs) -> Report | str:
        """Return the report of some runs, or the message if the analyzer raises RbptrackError."""
        try:
            report = self.analyzer.analyze(runs)
        except RbptrackError as error:
            assert str(error).strip()  # noqa: PT017 - an error is one of two answers
            return str(error)
        assert isinstance(report, Report)
        assert list(report.results.columns[: len(COLUMNS)]) == COLUMNS
        return report


class NeedsRanks(AnalyzerContract):
    """Tests for analyzers that read ranks: `runs.ranks`, `rank_pieces`, `histogram`, `document_counts`."""

    def test_a_run_without_its_ranks_is_left_out_and_named(self) -> None:
        """Check that the analyzer analyses the other runs, and that a note or an error names the run or its model."""
        runs = self.runs()
        run_id, model = runs.frame[["run_id", "model"]].iloc[0]
        tables = {name: runs.ranks(name) for name in runs.frame["run_id"] if name != run_id}
        outcome = self._report_or_error(Runs(runs.frame, RankTables(tables)))
        words = outcome if isinstance(outcome, str) else " ".join(outcome.notes)
        assert run_id in words or model in words, f"{model} was left out without a word"


class NeedsSizes(AnalyzerContract):
    """Tests for analyzers of laws in size."""

    def test_results_of_one_size_have_no_p_values(self) -> None:
        """Check that results of a single size have no p-value and no verdict."""
        runs = self.runs()
        smallest = runs.frame["non_embedding_params"].min()
        outcome = self._report_or_error(runs[runs.frame["non_embedding_params"] == smallest])
        assert isinstance(outcome, str) or outcome.results["p"].isna().all()

    def test_notes_explain_missing_intervals_of_two_sizes(self) -> None:
        """Check that a note says why laws of two sizes have no interval."""
        runs = self.runs()
        smallest = sorted(set(runs.frame["non_embedding_params"]))[:2]
        outcome = self._report_or_error(runs[runs.frame["non_embedding_params"].isin(smallest)])
        if isinstance(outcome, Report) and outcome.results["low"].isna().any():
            assert outcome.notes, "numbers have no interval, and no note says why"
