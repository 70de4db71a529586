"""Tests of `write_record` and `Record`: the files, tags, params and metrics of a finished measurement."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from rbptrack.base.files import sha256
from rbptrack.base.parquet import read_table
from rbptrack.facts import FACTS, Place
from rbptrack.ranks import RankHistogram, RankTable, is_rbp_column
from rbptrack.tracking import Record
from rbptrack.tracking.record import ce_and_rbp_metrics
from tests.store_fixtures import WriteCell

NAMES = st.text(min_size=1, max_size=20)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def test_write_record_writes_all_files_and_records_their_hashes(write_cell: WriteCell) -> None:
    folder = write_cell()
    record = Record.read(folder)
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


def test_write_record_writes_documents_and_token_texts(write_cell: WriteCell) -> None:
    folder = write_cell()
    assert read_table(folder / "documents.parquet").column_names == ["document", "id", "tokens", "bytes"]
    assert json.loads((folder / "tokens.json").read_text()) == {"0": " the", "1": "<s>"}


def test_record_holds_only_facts_rbp_and_the_logarithm_of_the_size(write_cell: WriteCell) -> None:
    record = Record.read(write_cell(documents=60, groups=20))
    tags = {name.removeprefix("rbptrack.") for name in record.tags} - {"kind"}
    metrics = {name for name in record.metrics if not is_rbp_column(name.removesuffix("_se"))}
    for place, names in ((Place.TAG, tags), (Place.PARAM, set(record.params)), (Place.METRIC, metrics)):
        facts = {fact.name for fact in FACTS if fact.place is place}
        assert names <= facts | {"log10_non_embedding_params"}


def test_record_metrics_are_those_of_the_rank_table(write_cell: WriteCell) -> None:
    folder = write_cell()
    record = Record.read(folder)
    table = RankTable.read(folder / "ranks.parquet")
    assert record.metrics["ce"] == pytest.approx(-np.mean(table.column("logprob").astype(float)))
    assert record.metrics["rbp_10"] == np.mean(table.rank <= 10)
    assert record.metrics["log10_non_embedding_params"] == math.log10(38_000)
    assert record.metrics["tokens_per_second"] == len(table) / 2  # the fixture says that it took 2 s


def test_record_curve_is_1_at_the_size_of_the_vocabulary(write_cell: WriteCell) -> None:
    folder = write_cell()
    curve = dict(Record.read(folder).curves["rbp_curve"])
    histogram = RankHistogram.read(folder / "histogram.parquet")
    assert curve[512] == 1 == histogram.rbp(512)


def test_record_has_standard_errors_from_20_documents(write_cell: WriteCell) -> None:
    record = Record.read(write_cell(documents=20))
    assert {"ce_se", "rbp_10_se"} <= set(record.metrics)


@pytest.mark.parametrize(("documents", "groups"), [(19, 0), (60, 19)])
def test_record_has_no_standard_errors_below_20_documents_or_groups(
    documents: int, groups: int, write_cell: WriteCell
) -> None:
    record = Record.read(write_cell(documents=documents, groups=groups))
    assert not [name for name in record.metrics if name.endswith("_se")]


def test_record_standard_errors_are_over_groups_if_they_are_known(write_cell: WriteCell) -> None:
    by_document = Record.read(write_cell(documents=60))
    by_group = Record.read(write_cell(documents=60, groups=20, folder=Path("by_group")))
    assert by_group.tags["rbptrack.groups"] == "20"
    assert by_group.metrics["ce"] == by_document.metrics["ce"]
    assert by_group.metrics["ce_se"] != by_document.metrics["ce_se"]


def test_ce_and_rbp_metrics_standard_error_over_equally_long_documents_is_that_of_a_mean(write_cell: WriteCell) -> None:
    table = RankTable.read(write_cell() / "ranks.parquet")
    mean_nats = -table.column("logprob").astype(float).reshape(30, 20).mean(axis=1)  # (documents,)
    metrics = ce_and_rbp_metrics(table.histogram(), table.document_counts([1]))
    assert metrics["ce_se"] == pytest.approx(mean_nats.std(ddof=1) / math.sqrt(30))


def test_record_params_are_at_most_25_and_name_no_commit(write_cell: WriteCell) -> None:
    folder = write_cell(training_tokens=3e11, repo="org/nano", seed=2, tokenizer="org/other", gguf="x.gguf")
    record = Record.read(folder)
    assert len(record.params) <= 25
    assert not [name for name in record.params if "." in name or "commit" in name]
    assert record.tags["rbptrack.commit"] == "org/nano@38000"
    assert record.params["dtype"] == "float32"
    assert record.params["training_tokens"] == "300000000000.0"


def test_write_record_keeps_the_config_without_the_address_of_the_store(write_cell: WriteCell) -> None:
    config = OmegaConf.load(write_cell() / "config.yaml")
    assert config.model.family == "nano"
    assert config.tracking.uri == ""


@given(
    metrics=st.dictionaries(NAMES, NUMBERS, max_size=5),
    params=st.dictionaries(NAMES, st.text(max_size=30), max_size=5),
    curve=st.lists(st.tuples(st.integers(1, 10**6), NUMBERS), max_size=5),
)
def test_record_is_read_as_it_was_written(
    metrics: dict[str, float],
    params: dict[str, str],
    curve: list[tuple[int, float]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("record")
    record = Record("name", {"rbptrack.fingerprint": "f"}, params, metrics, curves={"rbp_curve": curve})
    record.write(folder)
    assert Record.read(folder) == record
