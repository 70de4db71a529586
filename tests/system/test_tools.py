"""Tests of tools, benchmarks and studies. Cheap tools run as a whole; of expensive tools only parts run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest

from benchmarks import speed, stores
from benchmarks.shapes import random_corpus, random_module
from rbptrack.models.splitting import split_model
from rbptrack.stats.sums import cross_entropy, rbp
from rbptrack.tracking import Store
from studies import stores as known
from studies import validity, validity_page
from studies.simulation import Documents, Texts
from tools import fresh_environment, gpu_proof, release, train_nano


def test_gpu_proof_runs_its_steps_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "proof.json"
    assert gpu_proof.main(["--device", "cpu", "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert {row["step"] for row in rows} == {"against float64", "one pass", "speed", "architectures", "demo"}
    assert all(row["moved"] == 0 for row in rows if "moved" in row)


def test_make_batches_holds_all_targets_in_batches_of_limited_size() -> None:
    corpus = random_corpus(400, vocab_size=300, seq_len=64)
    batches = speed.make_batches(corpus, 128)
    assert sum(map(len, batches)) == corpus.num_targets
    assert max(batch.size for batch in batches) <= 128


def test_time_methods_times_every_method_in_every_round() -> None:
    model = split_model(random_module("pythia-14m", vocab_size=300), "random")
    batches = speed.make_batches(random_corpus(400, vocab_size=300, seq_len=64), 128)
    speed.compute_ranks(model, batches)
    methods = {"bare": lambda: speed.compute_logits(model, batches), "none": lambda: None}
    seconds = speed.time_methods(methods, model.device, 2)
    assert {method: len(rounds) for method, rounds in seconds.items()} == {"bare": 2, "none": 2}


@pytest.mark.parametrize(("clock", "ratio"), [("wall", 1.0), ("processor", 1.5)])
def test_speed_over_bare_is_the_median_over_rounds(clock: Literal["wall", "processor"], ratio: float) -> None:
    """Each round has the seconds of two clocks."""
    seconds = {
        "ours": [speed.Seconds(1.0, 2.0), speed.Seconds(2.0, 3.0), speed.Seconds(4.0, 4.0)],
        "bare": [speed.Seconds(2.0, 3.0), speed.Seconds(1.0, 9.0), speed.Seconds(4.0, 4.0)],
    }
    assert speed.speed_over_bare(seconds, "ours", clock) == ratio


def test_make_store_twice_makes_measurements_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        stores.make_store(tmp_path, measurements=4, datasets=2, tokens=2000, documents=20)
    frame = Store().runs().frame
    assert len(frame) == 4
    assert sorted(set(frame["dataset"])) == ["texts-0", "texts-1"]


@pytest.mark.parametrize("k", [1, 10, 100])
def test_stores_table_follows_its_law(k: int) -> None:
    histogram = stores.draw_rank_table(1e9, family="opt", dataset=0, documents=100, length=1000).histogram()
    expected = float(stores.neg_log_rbp(np.array([k]), 1e9, 0)[0])
    assert -np.log(histogram.rbp(k)) == pytest.approx(expected, rel=0.12)


@pytest.mark.parametrize("tails", ["t3", "skewed"])
def test_simulated_documents_have_requested_rbp_and_ce(tails: str) -> None:
    rng = np.random.default_rng(1)
    documents = Documents.draw(rng, Texts(200_000, tails, "even"))
    counts = documents.measure(rng, ce=3.0, neg_log_rbp=np.array([1.1, 0.25]), ks=(1, 100), place=1.0)
    sums = counts.sums.sum(axis=0)
    assert float(cross_entropy(sums)) == pytest.approx(3.0, rel=0.015)
    assert rbp(sums) == pytest.approx(np.exp([-1.1, -0.25]), rel=0.01)


def test_validity_page_rates_names_worst_cell() -> None:
    cells = [
        ("covers: α", "m=4", 91.0),
        ("covers: α", "m=7", 96.0),
        ("false: a bend", "m=7", 6.0),
        ("false: a bend", "m=9", 4.0),
        ("false: a bend", "m=9 ends=3.6", 9.0),
    ]
    rows = pd.DataFrame(cells, columns=["claim", "where", "value"]).assign(experiment="exponents", draws=9, judged=9)
    first, second = validity_page.interval_table("the law of one family", rows).splitlines()[2:]
    header, _, third = validity_page.scatter_table(rows).splitlines()
    assert "| 93.5 | **91.0** | m=4 |" in first
    assert "| 5.0 | 6.0 | m=7 |" in second
    assert "3.6 times" in header
    assert "| 9.0 | **9.0** |" in third


def test_validity_page_rates_leaves_out_cells_in_which_most_draws_were_refused() -> None:
    cells = [("N=2", 1000, 4.0), ("N=4", 999, 6.0), ("N=8", 66, 50.0), ("N=16", 1, 0.0)]
    rows = pd.DataFrame(cells, columns=["where", "judged", "value"])
    rows = rows.assign(experiment="emergence", claim="false: a", draws=1000)
    (line,) = validity_page.interval_table("single models and other analyzers", rows).splitlines()[2:]
    assert line.endswith("| 5.0 | 6.0 | N=4 | 2 | 999 to 1,000 |")


def test_validity_results_add_draws_of_two_slices_of_a_cell(tmp_path: Path) -> None:
    name = "outlier"
    draws_of_slice = validity.EXPERIMENTS[name].draws
    tasks = list(validity.list_tasks([name], draws_of_slice + 1))
    assert len(tasks) == 2 * len(validity.EXPERIMENTS[name].cells)
    results = validity.Results(tmp_path / "validity.csv", [name])
    for task in [tasks[0], tasks[-len(tasks) // 2]]:  # two slices of the first cell
        results.add(task, validity.draw_slice(task))
    results.write()
    rows = pd.read_csv(tmp_path / "validity.csv")
    assert set(rows["draws"]) == {draws_of_slice + 1}


def test_validity_draw_slice_is_reproducible() -> None:
    name = "outlier"
    task = next(iter(validity.list_tasks([name], validity.EXPERIMENTS[name].draws + 1)))
    first = validity.draw_slice(task)
    second = validity.draw_slice(task)
    for claim, outcomes in second.items():
        assert outcomes.tolist() == first[claim].tolist()


def test_measurements_of_known_law_follow_it() -> None:
    law = known.Law(alpha=0.1, rise=-0.03, tau=0.0)
    small = known.simulate_ranks(law, 1e6)
    large = known.simulate_ranks(law, 1e9)
    for alpha, small_y, large_y in (
        (0.1, small.ce, large.ce),
        (0.1, -np.log(small.rbp(1)), -np.log(large.rbp(1))),
        (0.1 - 0.03 * np.log(100), -np.log(small.rbp(100)), -np.log(large.rbp(100))),
    ):
        assert np.log(small_y / large_y) / np.log(1000) == pytest.approx(alpha, abs=0.01)


def shipped_files() -> list[str]:
    return [name for name in fresh_environment.tracked_files() if name.startswith(fresh_environment.SHIPPED)]


def test_check_contents_accepts_all_shipped_files() -> None:
    fresh_environment.check_contents("wheel", shipped_files())


def test_check_contents_refuses_missing_file() -> None:
    names = shipped_files()
    names.remove("conf/config.yaml")
    with pytest.raises(fresh_environment.Failed, match=r"conf/config\.yaml"):
        fresh_environment.check_contents("wheel", names)


def test_check_contents_refuses_untracked_file() -> None:
    with pytest.raises(fresh_environment.Failed, match=r"secret\.yaml"):
        fresh_environment.check_contents("wheel", [*shipped_files(), "conf/secret.yaml"])


def test_release_reads_versions_and_dates_of_citation_and_changelog() -> None:
    versions, dates = release.versions_and_dates(
        'title: "x"\nversion: 1.2.0\ndate-released: 2026-12-01\n',
        "# Changelog\n\n## 1.2.0 (2026-12-02)\n\n## 1.1.0 (x)\n",
    )
    assert versions == {"CITATION.cff": "1.2.0", "CHANGELOG.md": "1.2.0"}
    assert dates == {"CITATION.cff": "2026-12-01", "CHANGELOG.md": "2026-12-02"}


@pytest.fixture
def releasable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two files that name the same version and date. It is not a Git repository."""
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr("rbptrack.__version__", "1.2.0")
    (tmp_path / "CITATION.cff").write_text("version: 1.2.0\ndate-released: 2026-12-01\n")
    (tmp_path / "CHANGELOG.md").write_text("## 1.2.0 (2026-12-01)\n")
    (tmp_path / ".gitignore").write_text("dist/\n")
    return tmp_path


@pytest.fixture
def repository(releasable: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Git repository with the files of `releasable`. `build_distributions` is replaced: it makes an empty wheel."""
    for words in (
        ["init"],
        ["config", "user.name", "a"],
        ["config", "user.email", "a@b.c"],
        ["add", "."],
        ["commit", "--message", "all"],
    ):
        subprocess.run(["git", *words], cwd=releasable, check=True, capture_output=True)

    def build(folder: Path) -> Path:
        wheel = folder / "dist" / "rbptrack-1.2.0.whl"
        wheel.parent.mkdir()
        wheel.touch()
        return wheel

    monkeypatch.setattr(release, "build_distributions", build)
    return releasable


def test_release_tags_commit_and_replaces_dist(repository: Path) -> None:
    (repository / "dist").mkdir()
    (repository / "dist/rbptrack-1.1.0.whl").touch()
    assert release.main(["--tag"]) == 0
    assert [path.name for path in (repository / "dist").iterdir()] == ["rbptrack-1.2.0.whl"]
    assert release.git("tag", "--list").split() == ["v1.2.0"]


def test_release_refuses_version_that_has_a_tag(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["--tag"]) == 0
    assert release.main(["--tag"]) == 1
    assert "the tag v1.2.0" in capsys.readouterr().err
    assert release.git("tag", "--list").split() == ["v1.2.0"]


@pytest.mark.parametrize(
    ("date_of_citation", "date_of_changelog"), [("none", "none"), ("soon", "soon"), ("2026-12-01", "2026-12-02")]
)
def test_release_missing_names_dates_that_differ_or_are_wrong(
    repository: Path, date_of_citation: str, date_of_changelog: str
) -> None:
    [needed] = release.missing_conditions(
        "1.2.0", {"CITATION.cff": date_of_citation, "CHANGELOG.md": date_of_changelog}
    )
    assert date_of_citation in needed
    assert date_of_changelog in needed


def test_train_nano_has_published_numbers_of_parameters_and_training_tokens() -> None:
    assert train_nano.parameters("6k") == 5676
    assert train_nano.training_tokens("2m") == 12_500_000


def test_train_nano_learning_rate_rises_to_maximum_and_falls_to_0() -> None:
    run = train_nano.Run("115k")
    assert run.rate(run.steps // 50) == pytest.approx(0.02, rel=0.05)
    assert run.rate(run.steps - 1) < 1e-4


def test_train_nano_learning_rate_is_constant_if_checkpoints_are_kept() -> None:
    run = train_nano.Run("115k", keep=train_nano.CHECKPOINTS["115k"])
    assert run.steps == 1024
    assert run.rate(500) == run.rate(1000)


def test_train_nano_docstrings_leaves_out_short_ones() -> None:
    docstring = "A docstring that is long enough to be read. " * 3
    assert train_nano.docstrings(f'"""{docstring}"""\ndef f():\n    "short"\n') == docstring


def test_train_nano_is_held_out_holds_out_about_14_percent_of_names() -> None:
    held_out = [name for name in map(str, range(10_000)) if train_nano.is_held_out(name)]
    assert len(held_out) == pytest.approx(1400, rel=0.1)
