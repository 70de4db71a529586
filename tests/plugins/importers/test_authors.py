"""Tests of the importer `authors`, which reads the folders that the code of the paper's authors writes.

A folder has the path DATASET/MODEL/topK and contains metrics.json and ranks.json. A row of ranks.json has the rank of a
token, its position in the document, and its cross-entropy in nats.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plugins.importers.authors import Authors
from rbptrack.base.errors import BadInput
from tests.imported_files import read_checked, write_file

DIGITS = "9" * 400  # a number that is larger than any float
MODEL_FOLDER = "wiki/EleutherAI/pythia-70m"


def write_results(root: Path) -> Path:
    """Write the results of one model on one dataset below root, and return root.

    There are metrics at k = 1 and k = 10, and the ranks of four tokens.
    """
    folder = root / MODEL_FOLDER
    write_file(folder / "top1/metrics.json", json.dumps({"mean_ce_loss": 2.5, "RBP_1": 0.25, "F_N=4": 0.01}))
    write_file(folder / "top10/metrics.json", json.dumps({"mean_ce_loss": 2.5, "indicator": 0.75}))
    write_file(folder / "top1/ranks.json", json.dumps([[1, 1, 0.1], [7, 2, 2.5], [300, 1, 6.0], [2, 3, 1.4]]))
    return root


def test_authors_reads_metrics_and_size(tmp_path: Path) -> None:
    root = write_results(tmp_path / "a")
    sizes = write_file(tmp_path / "sizes.csv", "model,non_embedding_params\nEleutherAI/pythia-70m,18915328\n")
    (measurement,) = read_checked(Authors(sizes=str(sizes)), root).measurements
    row = measurement.measurement
    assert (row.model, row.family, row.size, row.dataset) == ("pythia-70m", "pythia", "70m", "wiki")
    assert (row.ce, row.rbp, row.non_embedding_params) == (2.5, {1: 0.25, 10: 0.75}, 18915328)
    assert measurement.measurement.repo == "EleutherAI/pythia-70m"
    assert measurement.ranks is None


def test_authors_reads_ranks_and_begins_a_document_if_the_position_does_not_rise(tmp_path: Path) -> None:
    (measurement,) = read_checked(Authors(vocab_size=1000), write_results(tmp_path)).measurements
    table = measurement.ranks
    assert table is not None
    assert table.rank.tolist() == [1, 7, 300, 2]
    assert table.column("document").tolist() == [0, 0, 1, 1]
    assert set(table.column("token")) == {-1}
    assert measurement.measurement.rbp == {1: 0.25, 10: 0.75, 100: 0.75}  # computed from the ranks


def test_authors_begins_a_document_at_a_repeated_position(tmp_path: Path) -> None:
    folder = tmp_path / MODEL_FOLDER / "top1"
    write_file(folder / "metrics.json", json.dumps({"mean_ce_loss": 1.0, "RBP_1": 0.5}))
    write_file(folder / "ranks.json", json.dumps([[1, 1, 0.5], [2, 1, 1.5]]))
    (measurement,) = read_checked(Authors(vocab_size=1000), tmp_path).measurements
    assert measurement.ranks is not None
    assert measurement.ranks.column("document").tolist() == [0, 1]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("top1/metrics.json", "[" * 100_000, "JSON"),
        ("top1/metrics.json", '{"RBP_1": 0.2, "RBP_1": 0.3}', "'RBP_1' .*twice"),
        ("top1/metrics.json", '{"mean_ce_loss": 3.6}', "the same number"),
        ("top1/metrics.json", '{"RBP_10": 0.8, "RBP_1": 0.25}', "the same number"),
        ("top1/metrics.json", '{"RBP_1": 0.3}', r"rbp_1 .*0\.3.* 0\.25"),
        ("top1/metrics.json", '{"RBP_1": 0.25, "RBP_2000": 1.0}', "vocab_size"),
        ("top1/metrics.json", f'{{"RBP_{DIGITS * 13}": 0.25, "RBP_1": 0.25}}', r"\bk\b.* 1"),
        ("top1/ranks.json", "[[1, 1, 2.0], [1001, 2, 1.0]]", "row 2: .*rank"),
        ("top1/ranks.json", "[[1.5, 1, 2.0]]", "row 1: .*rank"),
        ("top1/ranks.json", f"[[{DIGITS}, 1, 2.0]]", "rows"),
        ("top1/ranks.json", "[]", "rows"),
        ("top1/ranks.json", "[[1, 1, 9999.0]]", "row 1: ce"),
        ("top1/ranks.json", "[[1, 1, NaN]]", "NaN"),
    ],
)
def test_authors_refuses_a_bad_file_and_says_which_model_and_why(
    file: str, text: str, message: str, tmp_path: Path
) -> None:
    root = write_results(tmp_path)
    write_file(root / MODEL_FOLDER / file, text)
    with pytest.raises(BadInput, match=f"EleutherAI/pythia-70m.*{message}"):
        read_checked(Authors(vocab_size=1000), root)


@pytest.mark.parametrize(
    "text", ["model,non_embedding_params\na,1\na,2\n", "model\na\n"], ids=["two values", "column missing"]
)
def test_authors_refuses_a_wrong_sizes_file(text: str, tmp_path: Path) -> None:
    root = write_results(tmp_path / "a")
    sizes = write_file(tmp_path / "sizes.csv", text)
    with pytest.raises(BadInput, match=r"sizes\.csv"):
        read_checked(Authors(sizes=str(sizes)), root)


def test_authors_leaves_out_ranks_if_the_vocab_size_is_unknown(tmp_path: Path) -> None:
    (measurement,) = read_checked(Authors(), write_results(tmp_path)).measurements
    assert measurement.ranks is None
    assert "vocab_size" in measurement.measurement.notes


def test_authors_reads_the_ranks_at_the_smallest_k_and_notes_the_others(tmp_path: Path) -> None:
    root = write_results(tmp_path)
    write_file(root / MODEL_FOLDER / "top10/ranks.json", "[]")
    (measurement,) = read_checked(Authors(vocab_size=1000), root).measurements
    assert measurement.ranks is not None
    assert measurement.ranks.rank.tolist() == [1, 7, 300, 2]
    assert "top10/ranks.json" in measurement.measurement.notes


def test_vocab_size_in_the_sizes_file_overrides_the_option(tmp_path: Path) -> None:
    root = write_results(tmp_path / "a")
    write_file(root / "wiki/EleutherAI/pythia-12b/top1/metrics.json", '{"mean_ce_loss": 1.0}')
    write_file(root / "wiki/EleutherAI/pythia-12b/top1/ranks.json", "[[2, 1, 1.0]]")
    text = "model,non_embedding_params,vocab_size\nEleutherAI/pythia-70m,1000,50304\n"
    sizes = write_file(tmp_path / "sizes.csv", text)
    measurements = read_checked(Authors(sizes=str(sizes), vocab_size=50688), root).measurements
    assert {measurement.measurement.model: measurement.measurement.vocab_size for measurement in measurements} == {
        "pythia-70m": 50304,
        "pythia-12b": 50688,
    }


@pytest.mark.parametrize("vocab_size", ["0", "-3", "50k", "1.5", "2147483648"])
def test_authors_refuses_a_bad_vocab_size_in_the_sizes_file(vocab_size: str, tmp_path: Path) -> None:
    root = write_results(tmp_path / "a")
    text = f"model,non_embedding_params,vocab_size\nEleutherAI/pythia-70m,1000,{vocab_size}\n"
    sizes = write_file(tmp_path / "sizes.csv", text)
    with pytest.raises(BadInput, match=f"EleutherAI/pythia-70m: vocab_size .*{vocab_size}"):
        read_checked(Authors(sizes=str(sizes)), root)


def test_authors_refuses_an_option_vocab_size_above_int32(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="vocab_size"):
        read_checked(Authors(vocab_size=2**31), write_results(tmp_path))


def test_authors_reads_sizes_from_param_count_json(tmp_path: Path) -> None:
    text = '{"EleutherAI/pythia-70m": {"non_embedding_params": 18915328, "total": 70426624}}'
    sizes = write_file(tmp_path / "param_count.json", text)
    (measurement,) = read_checked(Authors(sizes=str(sizes)), write_results(tmp_path / "a")).measurements
    assert measurement.measurement.non_embedding_params == 18915328


def test_authors_refuses_a_model_without_a_size_in_param_count_json(tmp_path: Path) -> None:
    text = '{"EleutherAI/pythia-70m": {"non_embedding_params": 18915328}, "b": {}}'
    sizes = write_file(tmp_path / "param_count.json", text)
    with pytest.raises(BadInput, match=r"param_count\.json, b: .*non_embedding_params"):
        read_checked(Authors(sizes=str(sizes)), write_results(tmp_path / "a"))


def test_authors_ignores_nan_in_a_metric_that_is_not_imported(tmp_path: Path) -> None:
    root = write_results(tmp_path)
    metrics = '{"mean_ce_loss": 2.5, "F_N=4": NaN, "RBP_1": 0.25}'
    write_file(root / MODEL_FOLDER / "top1/metrics.json", metrics)
    assert len(read_checked(Authors(), root).measurements) == 1


@pytest.mark.parametrize("ce", ["NaN", "Infinity", '"2.5"', "true", DIGITS])
def test_authors_refuses_a_cross_entropy_that_is_not_a_finite_number(ce: str, tmp_path: Path) -> None:
    root = write_results(tmp_path)
    metrics = f'{{"mean_ce_loss": {ce}, "RBP_1": 0.25}}'
    write_file(root / MODEL_FOLDER / "top1/metrics.json", metrics)
    with pytest.raises(BadInput, match="mean_ce_loss"):
        read_checked(Authors(), root)


def test_authors_refuses_a_path_that_does_not_contain_the_name_of_the_dataset(tmp_path: Path) -> None:
    root = write_results(tmp_path)
    with pytest.raises(BadInput, match=f"{root}/wiki/EleutherAI"):
        read_checked(Authors(), root / "wiki" / "EleutherAI")
