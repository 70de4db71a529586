"""Analyzers as packages: installed with pip, found by entry point, held to the contract."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import NothingToSay, RankTable, Report, Runs, Table
from rbptrack.analysis.discovery import ANALYZERS, discover
from rbptrack.analysis.testing import (
    LONGEST_HEADLINE,
    AnalyzerContract,
    NeedsFamilies,
    NeedsRanks,
    NeedsSizes,
    example_runs,
)
from rbptrack.reporting.computing import computed
from tests.conftest import Program
from tests.example_package.rbptrack_example.ranking import Ranking
from tests.patience import PATIENCE
from tests.synthetic import changed, in_pieces, with_columns, with_reference
from tests.test_training import checkpoints

PACKAGE = Path(__file__).parent / "example_package"
PLUGINS = discover(ANALYZERS)
BUILT_IN = {name: PLUGINS.select(name) for name in PLUGINS.names if PLUGINS.sources[name].is_built_in}


class TestExample(AnalyzerContract):
    analyzer = Ranking()


class Ours(AnalyzerContract):
    """What the analyzers that ship with rbptrack promise besides."""

    def runs(self) -> Runs:
        return RUNS.get(self.analyzer.name, example_runs)()

    def test_rank_tables_in_pieces_give_the_same_report(self) -> None:
        """And a whole table is never in memory."""
        report, again = self.report(), computed(self.analyzer, in_pieces(self.runs()))
        for name, table in report.tables.items():
            assert list(table.frame.columns) == list(table.columns), name
            pd.testing.assert_frame_equal(table.frame, again.tables[name].frame, rtol=1e-9, atol=1e-12)
        assert again.metrics == pytest.approx(report.metrics, rel=1e-9)
        assert 5 <= len(again.headline.split()) <= LONGEST_HEADLINE, again.headline

    @pytest.mark.parametrize("sizes", [1, 2])
    def test_too_few_sizes_for_a_law_are_no_error(self, sizes: int) -> None:
        """It reports what needs no law, or has nothing to say: an error of the fit would silence everything."""
        runs = self.runs()
        smallest = runs.frame.groupby(["family", "dataset"])["non_embedding_params"].rank(method="dense") <= sizes
        with suppress(NothingToSay):
            assert self.analyzer.analyze(changed(runs, runs.frame[smallest])).tables

    def test_figures_have_captions_and_labelled_axes(self) -> None:
        assert self.report().drawings
        for drawing in self.report().drawings.values():
            assert drawing.caption.endswith("."), "captions are sentences"
            axes = drawing.figure.axes
            assert any(ax.get_xlabel() for ax in axes) or drawing.figure.get_supxlabel()
            titled = all(": " in ax.get_title() for ax in axes)  # "dataset: quantity", where each panel has its own
            assert any(ax.get_ylabel() for ax in axes) or drawing.figure.get_supylabel() or titled
            assert b"rbptrack_plugin" not in pickle.dumps(drawing.figure), "another process draws it"


class OfLaws(NeedsRanks, NeedsSizes):  # not collected: its name does not begin with Test
    """For analyzers of laws in size."""


def answers() -> Runs:
    """Answers, which are the last 20 tokens of each document, and the models' scores in a task."""
    whole = example_runs()

    def ranks(run_id: str) -> RankTable:
        table = whole.ranks(run_id)
        return with_columns(table, field=table.column("position") > 180)

    models = whole.frame[["model", "non_embedding_params"]].drop_duplicates()
    score = 1 - models["non_embedding_params"].astype(float) ** -0.1
    scores = pd.DataFrame({"model": models["model"], "revision": "", "task": "sums", "score": score, "n": 100})
    return changed(whole, ranks=ranks, scores=lambda: scores)


def by_source() -> Runs:
    """Documents of three sources, ten of each."""
    whole = example_runs()
    frame = whole.frame.assign(groups="3 by site abc")
    return changed(whole, frame, groups=lambda _: [f"s{i % 3}" for i in range(30)])


def beside_a_reference() -> Runs:
    """Measurements with a reference that always ranks the right token first."""
    whole = example_runs()

    def ranks(run_id: str) -> RankTable:
        table = whole.ranks(run_id)
        accept = np.clip(1.2 - np.log10(table.rank) / 2, 0, 1)
        return with_reference(table, accept=accept, reference_rank=table.rank)

    frame = whole.frame.assign(reference="large", reference_commit="c", reference_params=10**9)
    return changed(whole, frame, ranks=ranks)


def two_precisions() -> Runs:
    """Pairs of measurements: the sizes of one family in two precisions."""
    whole = example_runs(families={"alpha": 4, "beta": 4})
    other = whole.frame["family"] == "beta"
    model = whole.frame["model"].str.replace("beta", "alpha")
    dtype = whole.frame["dtype"].mask(other, "bfloat16")
    return changed(whole, whole.frame.assign(family="alpha", model=model, dtype=dtype))


def five_checkpoints() -> Runs:
    """The sizes of a family as checkpoints of one model."""
    whole = example_runs(families={"alpha": 5})
    place = whole.frame["size"].rank(method="dense")
    return changed(whole, whole.frame.assign(size="1m", model="alpha-1m", training_tokens=1e6 * 2**place))


RUNS = {
    "reproduction": lambda: example_runs(families={"pythia": 4}, datasets=("wiki",)),
    "training": checkpoints,
    "proxies": answers,
    "domains": by_source,
    "draft": beside_a_reference,
    "agreement": two_precisions,
    "learning": five_checkpoints,
}
NEEDS = {
    **dict.fromkeys(["power_law", "lack_of_fit"], OfLaws),
    **dict.fromkeys(["k_law", "emergence", "lognormal", "error_entropy", "tokens"], NeedsRanks),
    "compare": NeedsFamilies,
}

for _name, _class in BUILT_IN.items():  # every analyzer that ships with rbptrack
    _bases = (Ours, NEEDS.get(_name, AnalyzerContract))
    globals()[f"Test_{_name}"] = type(f"Test_{_name}", _bases, {"analyzer": _class()})


def test_all_built_in_ones_are_held_to_it() -> None:
    assert "power_law" in BUILT_IN
    assert {f"Test_{n}" for n in BUILT_IN} <= set(globals())


class Bad(Ranking):
    """Breaks every promise."""

    def analyze(self, runs: Runs) -> Report:
        report = super().analyze(runs)
        Bad.k = Bad.k * 10
        runs.frame["place"] = 0
        report.notes = [f"{id(report)}"]
        report.tables["more"] = Table(report.tables["ranking"].frame)
        report.metrics = {"a=b": 1.0}
        return report


@pytest.mark.parametrize(
    "promise",
    [
        "test_its_columns_are_declared",
        "test_its_metrics_fit_mlflow",
        "test_same_input_same_output",
        "test_it_leaves_its_input_alone",
    ],
)
def test_the_contract_notices(promise: str) -> None:
    contract = type("Contract", (AnalyzerContract,), {"analyzer": Bad()})()
    with pytest.raises(AssertionError):
        getattr(contract, promise)()


def test_the_example_runs_have_the_law_they_promise() -> None:
    frame = example_runs().frame
    assert len(frame) == (5 + 4) * 2
    assert frame.groupby(["family", "dataset"])["rbp_1"].apply(lambda r: r.is_monotonic_increasing).all()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the example package."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(PACKAGE, folder / "source")
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "install", *quiet, "--target", folder / "site", folder / "source"]
    subprocess.run(command, check=True, timeout=PATIENCE, env={**os.environ, "PYTHONWARNINGS": "default"})  # of pip
    return folder / "site"


def test_an_installed_package_extends_everything(site: Path, program: Program, tmp_path: Path) -> None:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/mine.py").write_text(
        (PACKAGE / "rbptrack_example/ranking.py").read_text().replace('"ranking"', '"mine"')
    )
    listed = program("plugins", cwd=tmp_path, PYTHONPATH=path)
    assert listed.returncode == 1  # one entry point is broken
    assert (
        "ranking  (analyzer rbptrack-example: rbptrack_example.ranking:Ranking 1.2.3)\n  Models in the order"
        in listed.stdout
    )
    assert re.search(r"power_law  \(analyzer rbptrack \d+\.\d+\.\d+\)", listed.stdout)
    assert "mine  (analyzer plugins/mine.py)" in listed.stdout
    assert "  options: k=10" in listed.stdout
    assert "configs rbptrack_example.conf (of rbptrack-example 1.2.3)" in listed.stdout
    assert "rbptrack-example: rbptrack_example.absent:Absent: ModuleNotFoundError" in listed.stderr
    sweep = ("model=tiny/*", "dataset.documents=3", "analyzers=[ranking]", "launch=aside")
    done = program(*sweep, cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 measured" in done.stdout
    assert re.search(r"pydocs +RBP_10 +tiny-15k", done.stdout), "the cell of its first page"
    (tmp_path / "old.losses").write_text("org/a-1b pydocs 2.5\norg/b-1b\n")
    refused = program("import", "old.losses", "unit=bits", "without_s=true", cwd=tmp_path, PYTHONPATH=path)
    assert refused.returncode == 2
    assert "line 2: expected model, dataset and CE in bits. Nothing was imported" in refused.stderr
    (tmp_path / "old.losses").write_text("org/a-1b pydocs 2.5\n")
    done = program("import", "old.losses", "without_s=true", cwd=tmp_path, PYTHONPATH=path)
    assert "1 imported from" in done.stdout, done.stderr
    done = program("export", "to=curves", "ks=[1,2]", cwd=tmp_path, PYTHONPATH=path)
    assert "2 curves in" in done.stdout, done.stderr
    assert (tmp_path / "tiny-15k-pydocs.txt").read_text().startswith("1 0.")
    variant = program("analyze", "analyzer=ranking_top1", cwd=tmp_path, PYTHONPATH=path)
    assert variant.returncode == 0, variant.stdout + variant.stderr
    assert re.search(r"tiny-15k leads on pydocs with RBP_1 = 0\.\d+", variant.stdout)
    several = program("analyze", "*r*k?n*", cwd=tmp_path, PYTHONPATH=path)
    assert several.returncode == 0, several.stdout + several.stderr
    assert "tiny-15k leads on pydocs" in several.stdout
    assert "plugin left out: rbptrack-example: rbptrack_example.absent:Absent" in several.stderr
    refused = program("analyze", "broken", cwd=tmp_path, PYTHONPATH=path)
    assert refused.returncode == 2
    assert "the analyzer broken cannot be used" in refused.stderr


def test_the_example_package_is_short() -> None:
    """With a plugin of each kind that does what ours do: findings, sentences, a figure, cells of the first page."""
    lines = [len(path.read_text().splitlines()) for path in (*PACKAGE.rglob("*.py"), PACKAGE / "pyproject.toml")]
    assert sum(lines) <= 250
