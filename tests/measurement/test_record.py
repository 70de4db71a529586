"""Tests of the files and the record of a finished measurement."""

from __future__ import annotations

import json
import math
import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from rbptrack.base.errors import MissingArtifact
from rbptrack.base.files import sha256
from rbptrack.base.parquet import read_table
from rbptrack.measurement.document import Measurement
from rbptrack.measurement.files import RECORD_FILE
from rbptrack.measurement.record import parse_record, read_measurement
from rbptrack.ranks import RankHistogram, RankTable
from tests.store_fixtures import WriteCell


def measurement_in(folder: Path) -> Measurement:
    return read_measurement(folder).measurement


def test_record_lists_all_files_with_their_hashes(write_cell: WriteCell) -> None:
    folder = write_cell()
    record = read_measurement(folder)
    assert set(record.files) == {
        "ranks.parquet",
        "histogram.parquet",
        "documents.parquet",
        "config.yaml",
        "tokens.json",
        "unscored.parquet",
    }
    for name, digest in record.files.items():
        assert sha256(folder / name) == digest


def put_fifo(path: Path) -> None:
    """Replace a file by a FIFO. Opening it in the usual way would wait for ever."""
    path.unlink()
    os.mkfifo(path)


def put_socket(path: Path) -> None:
    """Replace a file by a socket."""
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))  # an address can have at most 107 bytes


@pytest.mark.parametrize("replace", [put_fifo, put_socket])
def test_read_measurement_refuses_a_record_that_is_not_a_regular_file(
    replace: Callable[[Path], None], write_cell: WriteCell
) -> None:
    folder = write_cell()
    replace(folder / RECORD_FILE)
    with pytest.raises(MissingArtifact):
        read_measurement(folder)


def test_cell_has_documents_and_token_texts(write_cell: WriteCell) -> None:
    folder = write_cell()
    assert read_table(folder / "documents.parquet").column_names == ["document", "id", "tokens", "bytes"]
    assert json.loads((folder / "tokens.json").read_text()) == {"0": " the", "1": "<s>"}


def test_results_are_those_of_the_rank_table(write_cell: WriteCell) -> None:
    folder = write_cell()
    measurement = measurement_in(folder)
    table = RankTable.read(folder / "ranks.parquet")
    assert measurement.ce == pytest.approx(-np.mean(table.column("logprob").astype(float)))
    assert measurement.rbp[10] == np.mean(table.rank <= 10)
    assert measurement.metrics()["log10_non_embedding_params"] == math.log10(38_000)
    assert measurement.tokens_per_second == len(table) / 2  # the fixture says that it took 2 s


def test_curve_is_1_at_the_size_of_the_vocabulary(write_cell: WriteCell) -> None:
    folder = write_cell()
    histogram = RankHistogram.read(folder / "histogram.parquet")
    assert measurement_in(folder).rbp_curve[512] == 1 == histogram.rbp(512)


def test_standard_errors_exist_from_5_documents(write_cell: WriteCell) -> None:
    measurement = measurement_in(write_cell(documents=5))
    assert measurement.ce_se is not None
    assert 10 in measurement.rbp_se


@pytest.mark.parametrize(("documents", "groups"), [(4, 0), (60, 4)])
def test_standard_errors_do_not_exist_below_5_documents_or_groups(
    documents: int, groups: int, write_cell: WriteCell
) -> None:
    measurement = measurement_in(write_cell(documents=documents, groups=groups))
    assert measurement.ce_se is None
    assert not measurement.rbp_se


def test_standard_errors_are_over_groups_if_they_are_known(write_cell: WriteCell) -> None:
    by_document = measurement_in(write_cell(documents=60))
    by_group = measurement_in(write_cell(documents=60, groups=20, folder=Path("by_group")))
    assert by_group.groups == 20
    assert by_group.ce == by_document.ce
    assert by_group.ce_se != by_document.ce_se


def test_standard_error_over_equally_long_documents_is_that_of_a_mean(write_cell: WriteCell) -> None:
    folder = write_cell()
    table = RankTable.read(folder / "ranks.parquet")
    mean_nats = -table.column("logprob").astype(float).reshape(30, 20).mean(axis=1)  # (documents,)
    assert measurement_in(folder).ce_se == pytest.approx(mean_nats.std(ddof=1) / math.sqrt(30))


def test_config_is_kept_without_the_address_of_the_store(write_cell: WriteCell) -> None:
    config = OmegaConf.load(write_cell() / "config.yaml")
    assert config.model.family == "nano"
    assert config.tracking.uri == ""


def test_record_is_read_as_it_was_written(write_cell: WriteCell) -> None:
    folder = write_cell(documents=60, groups=20, training_tokens=3e11, repo="org/nano", seed=2)
    record = read_measurement(folder)
    seal = record.write(folder)
    assert read_measurement(folder) == record
    assert (folder / ".seal").read_text() == seal


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ce", "3"),
        ("ce", -1),
        ("seq_len", 2.5),
        ("seq_len", "64"),
        ("rbp", {"1": 2}),
        ("rbp", [1]),
        ("family", None),
        ("family", ""),
        ("seed", 10**40),
        ("non_embedding_params", 1.5),
        ("dataset", "a\nb"),
        ("unknown", 1),
        ("forced", "true"),
    ],
)
def test_record_with_a_wrong_value_is_damaged(name: str, value: object, write_cell: WriteCell) -> None:
    folder = write_cell()
    content = json.loads((folder / RECORD_FILE).read_bytes())
    content["measurement"][name] = value
    with pytest.raises(MissingArtifact):
        parse_record(json.dumps(content).encode())


@pytest.mark.parametrize("name", ["", "a/b", "../record.json", "a\0b", "a\nb", "x" * 300])
def test_record_with_a_file_that_is_not_in_its_folder_is_damaged(name: str, write_cell: WriteCell) -> None:
    content = json.loads((write_cell() / RECORD_FILE).read_bytes())
    content["files"][name] = "0" * 64
    with pytest.raises(MissingArtifact):
        parse_record(json.dumps(content).encode())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"kind": "other"}', b"\xff", b"[" * 10_000, b"NaN"])
def test_record_that_is_not_a_record_is_damaged(content: bytes) -> None:
    with pytest.raises(MissingArtifact):
        parse_record(content)
