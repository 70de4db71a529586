"""The folders that the authors' code writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plugins.importers.authors import Authors
from rbptrack.base.errors import BadInput
from tests.imported_files import read_checked, write_file

DIGITS = "9" * 400


def authors_folder(root: Path) -> Path:
    """One model on one dataset: top1 and top10, with ranks in top1."""
    folder = root / "wiki/EleutherAI/pythia-70m"
    write_file(folder / "top1/metrics.json", json.dumps({"mean_ce_loss": 2.5, "RBP_1": 0.25, "F_N=4": 0.01}))
    write_file(folder / "top10/metrics.json", json.dumps({"mean_ce_loss": 2.5, "indicator": 0.75}))
    write_file(folder / "top1/ranks.json", json.dumps([[1, 1, 0.1], [7, 2, 2.5], [300, 1, 6.0], [2, 3, 1.4]]))
    return root


def test_the_authors_metrics_are_read(tmp_path: Path) -> None:
    root = authors_folder(tmp_path / "a")
    sizes = write_file(tmp_path / "sizes.csv", "model,non_embedding_params\nEleutherAI/pythia-70m,18915328\n")
    (measurement,) = read_checked(Authors(sizes=str(sizes)), root).measurements
    row = measurement.row
    assert (row.model, row.family, row.size, row.dataset) == ("EleutherAI/pythia-70m", "pythia", "70m", "wiki")
    assert (row.ce, row.rbp, row.non_embedding_params) == (2.5, {1: 0.25, 10: 0.75}, 18915328)
    assert measurement.imported.repo == "EleutherAI/pythia-70m"
    assert measurement.imported.ranks is None


def test_the_authors_ranks_are_strict_and_documents_begin_where_positions_fall(tmp_path: Path) -> None:
    (measurement,) = read_checked(Authors(vocab_size=1000), authors_folder(tmp_path)).measurements
    table = measurement.imported.ranks
    assert table is not None
    assert table.rank.tolist() == [1, 7, 300, 2]
    assert table.column("document").tolist() == [0, 0, 1, 1]
    assert set(table.column("token")) == {-1}
    assert measurement.row.rbp == {1: 0.25, 10: 0.75, 100: 0.75}


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("top1/metrics.json", "[" * 100_000, "is not JSON"),
        ("top1/metrics.json", '{"RBP_1": 0.2, "RBP_1": 0.3}', "appears twice"),
        ("top1/metrics.json", '{"mean_ce_loss": 3.6}', "one number, two values"),
        ("top1/metrics.json", '{"RBP_10": 0.8, "RBP_1": 0.25}', "one number, two values"),
        ("top1/metrics.json", '{"RBP_1": 0.3}', "rbp_1 is 0.3, but its ranks give 0.25"),
        ("top1/metrics.json", '{"RBP_1": 0.25, "RBP_2000": 1.0}', "k must be at most vocab_size"),
        ("top1/metrics.json", f'{{"RBP_{DIGITS * 13}": 0.25, "RBP_1": 0.25}}', "k must be a whole number from 1"),
        ("top1/ranks.json", "[[1, 1, 2.0], [1001, 2, 1.0]]", "row 2: a rank must be"),
        ("top1/ranks.json", "[[1.5, 1, 2.0]]", "row 1: a rank must be"),
        ("top1/ranks.json", f"[[{DIGITS}, 1, 2.0]]", "does not hold rows"),
        ("top1/ranks.json", "[]", "does not hold rows"),
        ("top1/ranks.json", "[[1, 1, 9999.0]]", "row 1: ce must be"),
        ("top1/ranks.json", "[[1, 1, NaN]]", "is not JSON"),
    ],
)
def test_bad_files_of_the_authors_are_refused(file: str, text: str, reason: str, tmp_path: Path) -> None:
    root = authors_folder(tmp_path)
    write_file(root / "wiki/EleutherAI/pythia-70m" / file, text)
    with pytest.raises(BadInput, match=f"EleutherAI/pythia-70m.*{reason}"):
        read_checked(Authors(vocab_size=1000), root)


def test_sizes_are_given_once_each(tmp_path: Path) -> None:
    root = authors_folder(tmp_path / "a")
    for text in ("model,non_embedding_params\na,1\na,2\n", "model\na\n"):
        sizes = write_file(tmp_path / "sizes.csv", text)
        with pytest.raises(BadInput, match=r"sizes\.csv"):
            read_checked(Authors(sizes=str(sizes)), root)


def test_ranks_that_are_left_out_are_said(tmp_path: Path) -> None:
    root = authors_folder(tmp_path)
    (measurement,) = read_checked(Authors(), root).measurements
    assert measurement.imported.notes == "ranks.json was left out: ranks need vocab_size"
    write_file(root / "wiki/EleutherAI/pythia-70m/top10/ranks.json", "[]")
    (measurement,) = read_checked(Authors(vocab_size=1000), root).measurements
    assert measurement.imported.notes == "the ranks are those of top1/ranks.json; top10/ranks.json was not read"


def test_each_model_may_have_its_own_vocabulary(tmp_path: Path) -> None:
    root = authors_folder(tmp_path / "a")
    write_file(root / "wiki/EleutherAI/pythia-12b/top1/metrics.json", '{"mean_ce_loss": 1.0}')
    write_file(root / "wiki/EleutherAI/pythia-12b/top1/ranks.json", "[[2, 1, 1.0]]")
    text = "model,non_embedding_params,vocab_size\nEleutherAI/pythia-70m,1000,50304\n"
    sizes = write_file(tmp_path / "sizes.csv", text)
    measurements = read_checked(Authors(sizes=str(sizes), vocab_size=50688), root).measurements
    assert {m.row.model: m.row.vocab_size for m in measurements} == {
        "EleutherAI/pythia-70m": 50304,
        "EleutherAI/pythia-12b": 50688,
    }


@pytest.mark.parametrize("vocab_size", ["0", "-3", "50k", "1.5", "2147483648"])
def test_a_vocabulary_is_a_whole_number(vocab_size: str, tmp_path: Path) -> None:
    root = authors_folder(tmp_path / "a")
    text = f"model,non_embedding_params,vocab_size\nEleutherAI/pythia-70m,1000,{vocab_size}\n"
    sizes = write_file(tmp_path / "sizes.csv", text)
    with pytest.raises(BadInput, match=f"EleutherAI/pythia-70m: vocab_size must be .*; got {vocab_size}"):
        read_checked(Authors(sizes=str(sizes)), root)


def test_the_authors_own_file_of_sizes_is_read(tmp_path: Path) -> None:
    sizes = write_file(
        tmp_path / "param_count.json", '{"EleutherAI/pythia-70m": {"non_embedding_params": 18915328}, "b": {}}'
    )
    with pytest.raises(BadInput, match=r"param_count\.json, b: model and non_embedding_params"):
        read_checked(Authors(sizes=str(sizes)), authors_folder(tmp_path / "a"))
    write_file(sizes, '{"EleutherAI/pythia-70m": {"non_embedding_params": 18915328, "total": 70426624}}')
    (measurement,) = read_checked(Authors(sizes=str(sizes)), authors_folder(tmp_path / "a")).measurements
    assert measurement.row.non_embedding_params == 18915328


def test_numbers_that_are_not_read_may_be_nan(tmp_path: Path) -> None:
    root = authors_folder(tmp_path)
    metrics = root / "wiki/EleutherAI/pythia-70m/top1/metrics.json"
    write_file(metrics, '{"mean_ce_loss": 2.5, "F_N=4": NaN, "RBP_1": 0.25}')
    assert len(read_checked(Authors(), root).measurements) == 1
    for wrong in ("NaN", "Infinity", '"2.5"', "true", "9" * 400):
        write_file(metrics, f'{{"mean_ce_loss": {wrong}, "RBP_1": 0.25}}')
        with pytest.raises(BadInput, match="mean_ce_loss: must be a finite number"):
            read_checked(Authors(), root)


def test_a_vocabulary_beyond_int32_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="vocab_size must be"):
        read_checked(Authors(vocab_size=2**31), authors_folder(tmp_path))


def test_no_name_is_taken_from_outside_the_folder(tmp_path: Path) -> None:
    root = authors_folder(tmp_path)
    with pytest.raises(BadInput, match=f"import a folder above {root}/wiki/EleutherAI"):
        read_checked(Authors(), root / "wiki" / "EleutherAI")
