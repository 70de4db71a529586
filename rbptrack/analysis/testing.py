"""For authors of analyzers: the contract as tests, and measurements to run them on.

In a test file of yours:

    from rbptrack.analysis.testing import AnalyzerContract
    from my_package import Mine

    class TestMine(AnalyzerContract):
        analyzer = Mine()

pytest then checks that the analyzer declares its tables' columns, imports neither mlflow nor torch, gives the same
report for the same runs, leaves its input as it was, and says in words what it cannot work with. What an analyzer needs
has promises of its own: `NeedsRanks`, `NeedsSizes` and `NeedsFamilies` in place of `AnalyzerContract`, or several.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from rbptrack.analysis.contract import Analyzer, Report
from rbptrack.analysis.findings import Finding
from rbptrack.analysis.runs import COLUMNS, Runs
from rbptrack.analysis.source import Source, Tables
from rbptrack.base.errors import MissingArtifact, RbptrackError
from rbptrack.ranks import HEADLINE_KS, RankTable, rbp_name, se_name

FORBIDDEN = ("mlflow", "torch", "transformers", "datasets")
PUBLIC = ("rbptrack.analysis", "rbptrack.stats", "rbptrack.ranks", "rbptrack.base.words")
VOCABULARY = 256


def example_runs(
    *,
    families: dict[str, int] | None = None,
    datasets: tuple[str, ...] = ("code", "prose"),
    documents: int = 30,
    tokens: int = 200,
    seed: int = 0,
) -> Runs:
    """Return measurements with a known law, without a model or a store: -ln RBP_1 = 6 S^-0.15, ranks below falling as
    1/R.

    Args:
        families: how many sizes each has, from 1e5 parameters upwards, each four times the last.
        datasets: their names.
        documents: per dataset, the same ones for every model.
        tokens: per document.
        seed: of the drawn ranks.

    """
    rng = np.random.default_rng(seed)
    rows = []
    tables = dict[str, RankTable]()
    for family, sizes in (families or {"alpha": 5, "beta": 4}).items():
        for dataset in datasets:
            for i in range(sizes):
                row, table = _example(family, dataset, 10**5 * 4**i, documents, tokens, rng)
                rows.append(row)
                tables[str(row["run_id"])] = table
    return Runs(pd.DataFrame(rows), Tables(tables))


def _example(
    family: str, dataset: str, s: int, documents: int, tokens: int, rng: np.random.Generator
) -> tuple[dict[str, object], RankTable]:
    first = np.exp(-6 * s**-0.15)
    rest = 1 / np.arange(2, VOCABULARY + 1)
    pmf = np.concatenate([[first], (1 - first) * rest / rest.sum()])
    rank = rng.choice(VOCABULARY, size=documents * tokens, p=pmf) + 1
    table = RankTable.from_arrays(
        vocab_size=VOCABULARY,
        document=np.repeat(np.arange(documents), tokens),
        position=np.tile(np.arange(1, tokens + 1), documents),
        field=np.zeros(len(rank)),
        token=np.zeros(len(rank)),
        greater=rank - 1,
        ties=np.zeros(len(rank)),
        logprob=np.log(pmf[rank - 1]) - 0.1,
    )
    name = f"{family}-{s}"
    row: dict[str, object] = dict.fromkeys(COLUMNS)
    row |= {"run_id": f"{name}-{dataset}", "family": family, "size": str(s), "model": name, "dataset": dataset}
    row |= {"fingerprint": f"{name}-{dataset}", "sweep": "example", "revision": "main", "dtype": "float32"}
    row |= {"sequence": "slide", "seq_len": tokens + 1, "context": 1, "documents_hash": dataset}
    row |= {"vocab_size": VOCABULARY, "non_embedding_params": s, "total_params": 2 * s}
    row |= {"num_tokens": len(table), "num_documents": documents, "ce": table.ce, "ce_se": 0.01, "tie_rate": 0.0}
    row |= {"bits_per_byte": table.ce / np.log(2) / 4}
    row |= {rbp_name(k): table.rbp(k) for k in HEADLINE_KS} | {se_name(rbp_name(k)): 0.01 for k in HEADLINE_KS}
    return row, table


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == "rbptrack"


LONGEST_HEADLINE = 60
"""Words of an analyzer's headline, for any number of families."""


class AnalyzerContract:
    """What every analyzer promises, as pytest tests; subclass it with `analyzer` set, and `runs` where yours differ.

    Attributes:
        analyzer: with the options to test.

    """

    analyzer: ClassVar[Analyzer]
    _kept: ClassVar[tuple[Report, bool, bool] | None] = None

    def runs(self) -> Runs:
        """Return measurements that the analyzer can work with; made anew at each call."""
        return example_runs()

    def report(self) -> Report:
        """Run the analyzer on `runs`, once per class."""
        return self._once()[0]

    def _once(self) -> tuple[Report, bool, bool]:
        """Return the report, and whether the runs and the options were left as they were."""
        kept = vars(type(self)).get("_kept")
        if kept is None:
            runs = self.runs()
            options = self._options()
            before = runs.frame.copy(deep=True)
            report = self.analyzer.analyze(runs)
            kept = type(self)._kept = (report, runs.frame.equals(before), self._options() == options)
        return kept

    def _options(self) -> dict[str, object]:
        return {f.name: deepcopy(getattr(self.analyzer, f.name)) for f in fields(self.analyzer)}

    def test_it_is_an_option_of_hydra(self) -> None:
        """Check that it has a name and a docstring, and that its fields make a structured config."""
        cls = type(self.analyzer)
        assert cls.name.isidentifier()
        assert (cls.__doc__ or "").strip(), f"{cls.__name__} needs a docstring: its first line is what users see"
        assert set(OmegaConf.structured(cls)) == {f.name for f in fields(cls)}

    def test_it_knows_neither_store_nor_models(self) -> None:
        """Check that its module imports nothing of FORBIDDEN, and from rbptrack only PUBLIC modules."""
        source = Path(inspect.getfile(type(self.analyzer))).read_text(encoding="utf-8")
        names = set()
        for node in ast.walk(ast.parse(source)):
            names |= {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            names |= {node.module} if isinstance(node, ast.ImportFrom) and node.module else set()
        bad = sorted(n for n in names if n.split(".")[0] in FORBIDDEN or (_is_ours(n) and not n.startswith(PUBLIC)))
        assert not bad, f"an analyzer imports {' and '.join(PUBLIC)} of rbptrack; this one imports {', '.join(bad)}"

    def test_it_finds_something(self) -> None:
        """Check that its report has tables, figures and metrics of the right types, and a finding or a note."""
        report = self.report()
        assert isinstance(report, Report)
        assert report.findings or report.notes or report.tables
        assert all(isinstance(finding, Finding) for finding in report.findings)
        assert all(isinstance(note, str) and note for note in report.notes)
        assert all(isinstance(table.frame, pd.DataFrame) for table in report.tables.values())
        assert all(isinstance(drawing.figure, Figure) for drawing in report.drawings.values())
        assert all(isinstance(value, float | int) for value in report.metrics.values())
        assert not report.summary or report.summary in report.tables
        assert set(report.overview) <= {*report.tables, *report.drawings}
        assert len(report.headline.split()) <= LONGEST_HEADLINE, f"a headline is one sentence: {report.headline}"
        assert not report.headline.endswith("."), "the page and the terminal end it"

    def test_its_columns_are_declared(self) -> None:
        """Check that every table says what each of its columns means."""
        for name, table in self.report().tables.items():
            missing = sorted(set(map(str, table.frame.columns)) - set(table.columns))
            assert not missing, f"the columns of table {name} lack {', '.join(missing)}"

    def test_its_metrics_fit_mlflow(self) -> None:
        """Check that MLflow accepts its metrics' names: at most 250 characters, letters, digits and ` _-./:`."""
        for name in self.report().metrics:
            assert len(name) <= 250, name
            assert all(c.isalnum() or c in " _-./:" for c in name), name

    def test_same_input_same_output(self) -> None:
        """Check that a second call on the same measurements finds the same."""
        first = self.report()
        second = self.analyzer.analyze(self.runs())
        assert first.notes == second.notes
        assert repr(first.findings) == repr(second.findings)  # NaN is not itself
        assert sorted(first.drawings) == sorted(second.drawings)
        assert list(first.tables) == list(second.tables)
        for name, table in first.tables.items():
            pd.testing.assert_frame_equal(table.frame, second.tables[name].frame)
        assert list(first.metrics) == list(second.metrics)
        np.testing.assert_array_equal(list(first.metrics.values()), list(second.metrics.values()))

    def test_it_leaves_its_input_alone(self) -> None:
        """Check that it changes neither the table of runs nor its own options."""
        _, same_runs, same_options = self._once()
        assert same_runs, "it changed runs.frame: work on a copy"
        assert same_options, "it changed its own options"

    def test_it_says_what_it_cannot_work_with(self) -> None:
        """Check that a single run gives a report or a RbptrackError in words, never another error."""
        self._said_of(self.runs().frame.head(1))

    def _said_of(self, frame: pd.DataFrame, unreadable: str = "") -> Report | str:
        """Return the report of some of the runs, one of them perhaps without its ranks; or the words of the error."""
        runs = Runs(frame, _Lacking(self.runs().source, unreadable))
        try:
            report = self.analyzer.analyze(runs)
        except RbptrackError as error:
            assert str(error).strip()
            return str(error)
        assert isinstance(report, Report)
        return report


class _Lacking(Source):
    """Another source, in which the files of one run are missing."""

    def __init__(self, whole: Source, lacking: str) -> None:
        self._whole = whole
        self._lacking = lacking

    def ranks(self, run_id: str) -> RankTable:
        if run_id == self._lacking:
            raise MissingArtifact(f"run {run_id} lacks its ranks")
        return self._whole.ranks(run_id)

    def token_texts(self, run_id: str) -> Mapping[int, str]:
        return self._whole.token_texts(run_id)


class NeedsRanks(AnalyzerContract):
    """For analyzers that read ranks (`runs.ranks`, `rank_pieces`, `histogram`, `document_counts`)."""

    def test_a_run_without_its_ranks_is_left_out_and_named(self) -> None:
        """Check that it analyses the other runs, and that a note or the error names the run or its model."""
        frame = self.runs().frame
        run_id, model = frame[["run_id", "model"]].iloc[0]
        message = self._said_of(frame, unreadable=run_id)
        words = message if isinstance(message, str) else " ".join(message.notes)
        assert run_id in words or model in words, f"{model} was left out without a word"


class NeedsSizes(AnalyzerContract):
    """For analyzers of laws in size."""

    def test_one_size_is_too_few(self) -> None:
        """Check that it raises a RbptrackError: `raise report.nothing_found(...)` after `read_families(...,
        least=3)`.
        """
        frame = self.runs().frame
        message = self._said_of(frame[frame["non_embedding_params"] == frame["non_embedding_params"].min()])
        assert isinstance(message, str), "a law was reported of one size"


class NeedsFamilies(AnalyzerContract):
    """For analyzers that compare families."""

    def test_one_family_is_too_few(self) -> None:
        """Check that it raises a RbptrackError."""
        frame = self.runs().frame
        family_rows = frame[
            (frame["family"] == frame["family"].iloc[0]) & (frame["dataset"] == frame["dataset"].iloc[0])
        ]
        assert isinstance(self._said_of(family_rows), str), "one family was compared"
