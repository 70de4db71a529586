"""A finished measurement as a folder."""

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
from rbptrack.tracking.record import numbers
from tests.store_fixtures import WriteCell

NAMES = st.text(min_size=1, max_size=20)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def test_the_folder_holds_all_artifacts_and_a_record_of_their_hashes(write_cell: WriteCell) -> None:
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
    assert all(sha256(folder / name) == digest for name, digest in record.files.items())
    assert read_table(folder / "documents.parquet").column_names == ["document", "id", "tokens", "bytes"]
    assert json.loads((folder / "tokens.json").read_text()) == {"0": " the", "1": "<s>"}


def test_all_that_a_run_gets_is_a_fact(write_cell: WriteCell) -> None:
    record = Record.read(write_cell(documents=60, groups=20))
    tags = {name.removeprefix("rbptrack.") for name in record.tags} - {"kind"}
    metrics = {name for name in record.metrics if not is_rbp_column(name.removesuffix("_se"))}
    for place, names in ((Place.TAG, tags), (Place.PARAM, record.params), (Place.METRIC, metrics)):
        facts = {fact.name for fact in FACTS if fact.place is place}
        assert set(names) <= facts | {"log10_non_embedding_params"}


def test_its_numbers_are_those_of_the_ranks(write_cell: WriteCell) -> None:
    folder = write_cell()
    record = Record.read(folder)
    table = RankTable.read(folder / "ranks.parquet")
    histogram = RankHistogram.read(folder / "histogram.parquet")
    assert record.metrics["ce"] == pytest.approx(-np.mean(table.column("logprob").astype(float)))
    assert record.metrics["rbp_10"] == np.mean(table.rank <= 10)
    assert record.metrics["log10_non_embedding_params"] == math.log10(38_000)
    assert dict(record.curves["rbp_curve"])[512] == 1 == histogram.rbp(512)
    assert record.metrics["tokens_per_second"] == len(table) / 2


def test_standard_errors_need_20_documents_or_20_groups(write_cell: WriteCell) -> None:
    assert {"ce_se", "rbp_10_se"} <= set(Record.read(write_cell(documents=20)).metrics)
    for few in (write_cell(1000, documents=19), write_cell(2000, documents=60, groups=19)):
        assert not [name for name in Record.read(few).metrics if name.endswith("_se")]


def test_groups_are_the_unit_where_they_are_known(write_cell: WriteCell) -> None:
    by_document = Record.read(write_cell(documents=60))
    by_group = Record.read(write_cell(documents=60, groups=20, folder=Path("by_group")))
    assert by_group.tags["rbptrack.groups"] == "20"
    assert by_group.metrics["ce"] == by_document.metrics["ce"]
    assert by_group.metrics["ce_se"] != by_document.metrics["ce_se"]


def test_the_standard_error_of_a_mean_over_equal_documents_is_the_known_one(write_cell: WriteCell) -> None:
    table = RankTable.read(write_cell() / "ranks.parquet")
    nats = -table.column("logprob").astype(float).reshape(30, 20).mean(axis=1)
    found = numbers(table.histogram(), table.document_counts([1]))
    assert found["ce_se"] == pytest.approx(nats.std(ddof=1) / math.sqrt(30))


def test_params_are_few_and_say_no_commit(write_cell: WriteCell) -> None:
    record = Record.read(
        write_cell(training_tokens=3e11, repo="org/nano", seed=2, tokenizer="org/other", gguf="x.gguf")
    )
    assert len(record.params) <= 25
    assert not [name for name in record.params if "." in name or "commit" in name]
    assert record.tags["rbptrack.commit"] == "org/nano@38000"
    assert record.params["dtype"] == "float32"
    assert record.params["training_tokens"] == "300000000000.0"


def test_the_config_is_kept_without_the_address_of_the_store(write_cell: WriteCell) -> None:
    config = OmegaConf.load(write_cell() / "config.yaml")
    assert config.model.family == "nano"
    assert config.tracking.uri == ""


@given(
    metrics=st.dictionaries(NAMES, NUMBERS, max_size=5),
    params=st.dictionaries(NAMES, st.text(max_size=30), max_size=5),
    curve=st.lists(st.tuples(st.integers(1, 10**6), NUMBERS), max_size=5),
)
def test_a_record_reads_back_as_it_was_written(
    metrics: dict[str, float],
    params: dict[str, str],
    curve: list[tuple[int, float]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("record")
    record = Record("name", {"rbptrack.fingerprint": "f"}, params, metrics, curves={"rbp_curve": curve})
    record.write(folder)
    assert Record.read(folder) == record
