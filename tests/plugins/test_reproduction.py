"""Tests of the analyzer `reproduction`, which compares exponents with those that the paper's authors published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from plugins.reproduction import PAPER_PROTOCOL, Reproduction
from plugins.reproduction.published import published_in_k, published_in_size
from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.analysis.testing import NeedsSizes, example_runs
from rbptrack.config.compose import compose
from rbptrack.figures.charts import save
from rbptrack.ranks import RankTable, log_grid
from tests.rank_tables import rank_table

GPT2 = {"small": 85_056_000, "medium": 302_311_424, "large": 708_390_400, "xl": 1_475_561_600}
EXPONENTS = {"ce": 0.0584, "rbp_1": 0.0560, "rbp_10": 0.0932, "rbp_100": 0.1257, "rbp_10000": -0.0901}


def imported_runs(family: str = "gpt2", sizes: dict[str, int] = GPT2) -> Runs:
    """Return metrics of a family on wiki without rank tables. They follow the laws of `EXPONENTS` exactly.

    Args:
        family: the name of the family.
        sizes: the number of parameters without embeddings of each size.

    """
    rows = []
    for size, s in sizes.items():
        row = {"run_id": size, "family": family, "size": size, "model": f"{family}-{size}", "dataset": "wiki"}
        for metric, alpha in EXPONENTS.items():
            y = 0.5 * (s / 1e9) ** -alpha
            row[metric] = y if metric == "ce" else np.exp(-y)
        rows.append(row | {"non_embedding_params": s, "without_ranks": True, "imported": "authors"})
    return Runs(pd.DataFrame(rows), RankTables({}))


def measured_runs(alpha: float) -> Runs:
    """Return ten sizes of pythia on the same 40 documents of c4. -ln RBP_1 and CE have the exponent alpha."""
    rng = np.random.default_rng(0)
    n = 40 * 500
    uniform = rng.permutation(np.arange(n) + 0.5) / n
    difficulty = 1 + 0.1 * np.repeat(rng.normal(size=40), 500)
    rows = []
    tables = {}
    for i, s in enumerate(np.geomspace(1e6, 1e10, 10)):
        y = 3.0 * s**-alpha
        rank = np.where(uniform < np.exp(-y), 1, 1 + np.ceil(40 * uniform))
        tables[str(i)] = rank_table(rank, documents=40, logprob=-y * difficulty / difficulty.mean())
        row = {"run_id": str(i), "family": "pythia", "size": f"{i}b", "model": f"pythia-{i}b", "dataset": "c4"}
        rows.append(row | {"non_embedding_params": int(s), "vocab_size": 64, "sequence": "slide", "seq_len": 256})
    return Runs(pd.DataFrame(rows), RankTables(tables))


def test_published_in_size_has_all_families_datasets_and_metrics() -> None:
    published = published_in_size()
    assert len(published) == 4 * 6 * 7  # families x datasets x metrics
    assert published.query("family == 'pythia' and dataset == 'c4' and metric == 'ce'")["alpha"].item() == 0.066


def test_published_in_k_has_all_models_and_datasets() -> None:
    published = published_in_k()
    assert len(published) == 24 * 4  # models x datasets
    assert (published["beta"] > 0).all()


def test_reproduction_of_imported_metrics_has_their_exponents_and_published_ones(tmp_path: Path) -> None:
    report = Reproduction().analyze(imported_runs())
    rows = report.frame("alpha").set_index("metric")
    assert rows["alpha"].round(4).to_dict() == EXPONENTS
    assert rows["published"].to_dict() == {"ce": 0.058, "rbp_1": 0.056, "rbp_10": 0.093, "rbp_100": 0.126,
                                           "rbp_10000": -0.090}  # fmt: skip
    assert (rows["sizes"] == 4).all()
    assert (rows["R2"] > 0.9999).all()
    assert any("Imported without ranks: gpt2" in note for note in report.notes)
    save(report.figures["alpha"], tmp_path / "alpha.svg")


def test_reproduction_of_published_exponent_is_inside_the_interval() -> None:
    rows = Reproduction().analyze(measured_runs(0.066)).frame("alpha").set_index("metric")
    assert set(rows.index) == {"ce", "rbp_1", "rbp_10"}, "other k exceed |V| = 64"
    assert rows.loc["ce", "alpha"] == pytest.approx(0.066, abs=1e-4)
    assert rows.loc["ce", "inside"] == "yes"
    assert rows.loc["ce", "verdict"] == "undecided"


def test_reproduction_of_larger_exponent_is_above_the_published_one() -> None:
    report = Reproduction().analyze(measured_runs(0.1))
    rows = report.frame("alpha").set_index("metric")
    assert rows.loc["ce", "inside"] == "no"
    assert rows.loc["ce", "verdict"] == "above"
    assert report.headline.startswith("Of 3 published exponents")
    assert any("yours: dataset.sequence=slide, dataset.seq_len=256, rank=unknown." in note for note in report.notes)


def test_reproduction_of_two_sizes_has_exponents_without_intervals() -> None:
    report = Reproduction().analyze(imported_runs(sizes={"small": GPT2["small"], "tiny": 10**6}))
    rows = report.frame("alpha")
    assert rows["alpha"].notna().all()
    assert set(rows["inside"]) == {""}
    assert rows[["low", "high", "p"]].isna().all(axis=None)
    assert "no intervals" in report.headline


def test_reproduction_notes_sizes_that_differ_from_the_authors() -> None:
    report = Reproduction().analyze(imported_runs(sizes={"small": GPT2["small"], "tiny": 10**6}))
    assert any("the authors also used medium, large and xl" in note for note in report.notes)
    assert any("the authors did not use tiny" in note for note in report.notes)


def test_reproduction_fits_beta_by_least_squares_in_ln_k() -> None:
    rng = np.random.default_rng(0)
    rank = np.minimum(np.floor(rng.random(40_000) ** -1.5), 200)
    rank[rank > 80] = 80
    rank[:9] = 200  # fewer than 10 tokens miss above 80
    table: RankTable = rank_table(rank, documents=40, vocab_size=200)
    row = {"run_id": "r", "family": "pythia", "size": "14m", "model": "pythia-14m", "dataset": "wiki"}
    frame = pd.DataFrame([row | {"non_embedding_params": 10**6, "vocab_size": 200}])
    (beta,) = Reproduction().analyze(Runs(frame, RankTables({"r": table}))).frame("beta").to_dict("records")
    ks = [k for k in log_grid(100) if k < 80]
    y = -np.log(table.histogram().rbp_curve(ks))
    assert beta["beta"] == pytest.approx(-np.polyfit(np.log(ks), np.log(y), 1)[0], rel=1e-9)
    assert beta["published"] == 0.308
    assert beta["largest_k"] == ks[-1]
    assert beta["inside"] in ("yes", "no")
    (beta,) = Reproduction(largest_k=30).analyze(Runs(frame, RankTables({"r": table}))).frame("beta").to_dict("records")
    assert beta["largest_k"] == 30


def test_reproduction_of_unpublished_family_lists_published_ones() -> None:
    report = Reproduction().analyze(imported_runs(family="mine"))
    assert not report.questions
    assert any("gpt2, opt" in note for note in report.notes)


class TestContract(NeedsSizes):
    analyzer = Reproduction()

    def runs(self, *, documents: int = 30) -> Runs:
        runs = example_runs(families={"pythia": 4}, datasets=("c4",), documents=documents)
        published_sizes = ("14m", "31m", "70m", "160m")
        size_of = dict(zip(sorted(runs["non_embedding_params"]), published_sizes, strict=True))
        sizes = runs["non_embedding_params"].map(size_of)
        return Runs(runs.frame.drop(columns="name").assign(size=sizes), runs.store)


def test_settings_of_the_paper_are_those_of_its_protocol() -> None:
    (config,) = compose(["model=pythia/70m", "dataset=wiki", "protocol=paper"])
    assert (config.dataset.sequence.value, config.dataset.seq_len, config.rank.value) == PAPER_PROTOCOL
