"""Documents that come from few sources: `dataset.group` from the config to the errors that reports print."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rbptrack.plugins.emergence import Emergence
from rbptrack.plugins.lack_of_fit.each_k import laws_at_each_k
from rbptrack.plugins.lack_of_fit.surface import fit_surface
from rbptrack.plugins.rank_and_ce import RankAndCe
from rbptrack.plugins.tokens import Tokens

from rbptrack.analysis import Analyzer, Runs
from rbptrack.analysis.display import INTERVAL
from rbptrack.analysis.families import read_families
from rbptrack.analysis.resampling import effective_sources, resampled_in_words
from rbptrack.ranks import DocumentCounts
from rbptrack.reporting.computing import computed
from rbptrack.stats.intervals import widening, worth
from rbptrack.stats.size_laws import LawValues, law_values
from tests.conftest import Program
from tests.synthetic import changed, family_runs

SIZES = np.geomspace(1e4, 1e6, 4)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """24 texts of 12 sites, in one of which all texts are alike."""
    path = tmp_path / "texts.jsonl"
    words = ["def", "the", "of", "class", "import", "return", "and", "a", "in", "self", "is", "to"]
    rows = [
        {"text": " ".join(words[(i // 2 + j * j) % 12] for j in range(60)), "site": f"s{i // 2}"} for i in range(24)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def measured(tmp_path: Path) -> tuple[dict[str, float], pd.DataFrame, dict[str, str]]:
    """The one measurement's metrics, its list of documents, and its tags."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlruns/mlflow.db")
    experiment = client.get_experiment_by_name("rbptrack")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], "tags.`rbptrack.kind` = 'measurement'")
    folder = Path(str(run.info.artifact_uri).removeprefix("file://"))
    return run.data.metrics, pd.read_parquet(folder / "documents.parquet"), run.data.tags


def test_a_sweep_that_names_a_group_fills_it_in_without_the_model(
    program: Program, with_store: Any, texts: Path
) -> None:
    base = ["model=nano/6k", "dataset=files", "dataset.name=sites", f"dataset.files=[{texts}]", "analyzers=[]"]
    base += ["dataset.seq_len=64", "dataset.context=8"]
    done = program(*base, cwd=with_store)
    assert done.returncode == 0, done.stderr
    before, documents, tags = measured(with_store)
    assert list(documents.columns) == ["document", "id", "tokens", "bytes"]
    assert "rbptrack.groups" not in tags
    done = program(*base, "dataset.group=site", cwd=with_store)
    assert done.returncode == 0, done.stderr
    assert "skipped" in done.stdout, "the group is no part of what is measured"
    after, documents, tags = measured(with_store)
    assert list(documents["group"]) == [f"s{i // 2}" for i in range(24)]
    assert tags["rbptrack.groups"].startswith("12 by site ")
    assert after["ce"] == before["ce"]
    assert after["ce_se"] > 1.1 * before["ce_se"], "documents of a site are alike"
    done = program(*base, "dataset.group=place", cwd=with_store)
    assert done.returncode != 0
    assert "has no field place" in done.stderr


def test_runs_that_read_the_same_texts_are_drawn_by_the_same_sources() -> None:
    plain = family_runs(SIZES, alpha=0.2, a=10.0, tokens=200)
    frame = plain.frame.assign(documents_hash="same", groups=None)
    frame.loc[0, "groups"] = "2 by site abc"
    runs = changed(plain, frame, groups=lambda _: [f"s{i % 2}" for i in range(40)])

    def load(_: object, run_id: str) -> DocumentCounts:
        return runs.document_counts(run_id, [1])

    ((_, counts),) = read_families(runs, load, [])
    for run_id, one in zip(frame["run_id"], counts, strict=True):
        every = plain.document_counts(str(run_id), [1])
        assert one.grouped
        np.testing.assert_allclose(one.nats, [every.nats[::2].sum(), every.nats[1::2].sum()])
        assert one.hits.sum() == every.hits.sum()


def grouped(number: int) -> Runs:
    """A family whose documents come from so many sources."""
    plain = family_runs(SIZES, alpha=0.2, a=10.0, tokens=200)
    frame = plain.frame.assign(documents_hash="same", groups=f"{number} by site abc")
    return changed(plain, frame, groups=lambda _: [f"s{i % number}" for i in range(40)])


@pytest.mark.parametrize(
    "analyzer", [Emergence(ks=[1], lengths=[1, 2]), Tokens(ks=[1], shown=1), RankAndCe(ks=[1], shown=1)]
)
def test_from_few_sources_no_interval_is_given(analyzer: Analyzer) -> None:
    for number in (4, 20):
        report = computed(analyzer, grouped(number))
        ends = [
            table.frame[column].to_numpy(dtype=float, na_value=np.nan)
            for table in report.tables.values()
            if "dataset" in table.frame
            for column in table.frame
            if str(column).endswith("_low") and column not in ("p_low", "rank_low")
        ]
        given = any(np.isfinite(end).any() for end in ends)
        assert given == (number == 20)
        assert any(np.isfinite(one.low) for one in report.findings) == (number == 20)
        panels = [ax for drawing in report.drawings.values() for ax in drawing.figure.axes]
        drawn = [one for ax in panels for one in (*ax.lines, *ax.collections) if one.get_label() == INTERVAL]
        assert {one.get_visible() for one in drawn} <= {number == 20}
        assert drawn or isinstance(analyzer, RankAndCe)


def test_whole_answers_of_sources_stay_shares() -> None:
    """Fails where answers of a source are added up, or where some document has none."""
    plain, by_source = grouped(40), grouped(12)
    alone, together = (
        Emergence(ks=[32], lengths=[1], replicates=50).analyze(runs).tables["answers"].frame
        for runs in (changed(plain, plain.frame.assign(groups=None)), by_source)
    )
    np.testing.assert_allclose(alone["share"], together["share"])
    assert together["share"].between(0, 1).all()
    assert (together["share_low"] < together["share"]).all()
    assert not together["share_low"].equals(alone["share_low"])


def test_the_page_says_what_is_resampled() -> None:
    plain = family_runs(SIZES, alpha=0.2, a=10.0, tokens=50)
    assert resampled_in_words(plain.frame).startswith("Documents are taken as independent; dataset.group")
    assert "4 sources of its documents (site) are resampled, too few for an interval" in resampled_in_words(
        grouped(4).frame
    )
    near = resampled_in_words(grouped(15).frame)
    assert "15 sources" in near
    assert "approximate (95% ones cover 88 to 99% in simulation)" in near
    assert "approximate" not in resampled_in_words(grouped(20).frame)
    even = effective_sources(grouped(20))
    assert even["text"] == pytest.approx(20, rel=0.2)
    uneven = changed(grouped(21), groups=lambda _: [f"s{max(i - 19, 0)}" for i in range(40)])
    text = resampled_in_words(uneven.frame, effective_sources(uneven))
    assert "21 sources" in text
    assert "which count as 4 of equal size; intervals are approximate" in text


def test_sources_of_uneven_size_widen_laws_by_their_effective_number() -> None:
    """Of one source with half of all tokens the bootstrap alone is too narrow; documents stay as they are."""
    plain = family_runs(SIZES, alpha=0.2, a=10.0, tokens=200)
    counts = [plain.document_counts(str(run_id), [1]) for run_id in plain.frame["run_id"]]
    alone = law_values(counts, replicates=200)
    uneven = [*([0] * 20), *range(1, 21)]
    sums = [count.in_groups(uneven) for count in counts]
    wide = law_values(sums, replicates=200)
    narrow = law_values([replace(each, grouped=False) for each in sums], replicates=200)
    factor = widening(worth(np.sqrt(sums[0].tokens)), 0.95)
    assert factor > widening(21, 0.95)
    np.testing.assert_allclose(
        np.log(wide.draws / wide.values[:, None]), factor * np.log(narrow.draws / narrow.values[:, None])
    )
    np.testing.assert_allclose(wide.values, alone.values)


def test_the_surface_corrects_for_few_sources_once() -> None:
    """Corrected twice, the band of alpha(k) covered 96.7 to 99.2% in simulation; once, 93 to 97."""
    rng = np.random.default_rng(5)
    sizes, ks = np.geomspace(1e4, 1e7, 6), (1, 10)
    tokens = rng.integers(200, 4000, 14)
    shares = np.exp(-np.array([[3.0], [1.5]]) * sizes**-0.15)  # (ks, m)
    ahead = rng.normal(1, 0.1, 14)
    counts = [
        DocumentCounts(
            ks,
            np.arange(14),
            tokens,
            tokens * 2.0,
            np.stack([rng.binomial(tokens, np.clip(p * ahead, 0, 1)) for p in shares[:, i]], axis=1),
            grouped=True,
        )
        for i in range(6)
    ]
    grouped = law_values(counts, replicates=300)
    alone = law_values([replace(count, grouped=False) for count in counts], replicates=300)
    assert grouped.factor == pytest.approx(widening(worth(np.sqrt(tokens)), 0.95))
    options: dict[str, Any] = {"least_misses": 1, "margin": 0.05, "level": 0.95, "replicates": 50}

    def surface_of(values: LawValues) -> Any:
        return laws_at_each_k(counts, values, sizes, **options).surface

    once = fit_surface(sizes, ks, *alone.of_ks(ks), documents=worth(np.sqrt(tokens)))
    np.testing.assert_allclose(surface_of(grouped).band, once.band, rtol=1e-9)
    np.testing.assert_allclose(surface_of(alone).band, once.band, rtol=1e-9)
