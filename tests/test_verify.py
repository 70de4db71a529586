"""`verify`: a store that is what was written passes, whatever is damaged is named, and only that is measured again."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rbptrack.base.errors import BadInput
from rbptrack.commands import import_, list_
from rbptrack.commands import verify as verify_
from rbptrack.config.keys import flat
from rbptrack.config.schema import (
    Candidates,
    CellConfig,
    DatasetConfig,
    Dtype,
    FilterConfig,
    KConfig,
    ModelConfig,
    Rank,
    Sampling,
    SequenceRule,
    TrackingConfig,
)
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.sources.fingerprint import SCORING_VERSION
from rbptrack.sources.pin import Source
from rbptrack.sweep.identity import identities, identity
from rbptrack.tracking.params import VERSIONS, compared
from rbptrack.tracking.process import marks
from rbptrack.tracking.schema import Tag
from rbptrack.tracking.store import Store
from rbptrack.tracking.verify import database_faults, verify
from tests.conftest import Program
from tests.test_frozen_store import FEW, SWEEP, unpacked  # noqa: F401 - a fixture

FLIPS = 15
DATABASE = "mlruns/mlflow.db"


@pytest.fixture
def store(unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """A copy of a store that release 0.1.0 made, and that was opened since: its addresses are right."""
    folder = Path(shutil.copytree(unpacked, tmp_path / "moved"))
    monkeypatch.chdir(folder)
    Store(TrackingConfig()).open()
    return folder


def run_of(folder: Path, model: str, dataset: str) -> str:
    frame = Store(TrackingConfig()).reader.runs(FilterConfig(dataset=[dataset])).frame
    return str(frame.loc[frame["model"] == model, "run_id"].iloc[0])


def change(statement: str, *values: object) -> None:
    with closing(sqlite3.connect(DATABASE)) as database, database:
        database.execute(statement, values)


def faults() -> list[str]:
    """Everything that is wrong with the store of the working folder."""
    here = Store(TrackingConfig())
    try:
        wrong = list(database_faults(here))
        here.open()
        done = verify(here.reader, FilterConfig(), read_data=True, identify=identities)
    except BadInput as error:
        return [str(error)]
    return wrong + [fault.text for fault in done.faults]


def test_a_store_of_the_last_release_is_whole(store: Path, program: Program) -> None:
    done = program("verify", "read_data=true", cwd=store)
    assert done.returncode == 0, done.stderr
    assert "measurements verified (files read; 5 fingerprints not checked" in done.stdout  # imported, tokenizer apart


def test_what_a_split_in_half_precision_moved_is_said(store: Path, program: Program) -> None:
    run = run_of(store, "nano-6k", "pydocs")
    change("insert into params values ('model.split_difference', '0.0042', ?)", run)
    change("update params set value = 'bfloat16' where key = 'model.dtype' and run_uuid = ?", run)
    said = program("verify", cwd=store).stdout
    assert "1 measurement of models split in half precision, which moved some ranks" in said


def test_a_prefix_of_several_tokens_is_known_from_the_params() -> None:
    texts = DatasetConfig("texts", split="train", seq_len=8)
    made = identity(CellConfig(ModelConfig("a", "b"), texts, KConfig([1])), "w", Source("", None, "t"), "", [1, 2])
    params = {"model.commit": "w", "dataset.commit": "t", "dataset.split": "train", "dataset.seq_len": "8"}
    params |= {"dataset.sampling": "stream", "dataset.sequence": "slide", f"{VERSIONS}scoring": str(SCORING_VERSION)}
    assert made in (identities(params | {"dataset.prefix": "[1, 2]"}) or ())
    assert made not in (identities(params | {"model.vocab_size": "9"}) or ())


def test_folders_of_text_are_verified_with_and_without_how_they_were_cut() -> None:
    """In earlier versions the fingerprint of lines of a folder's files was that of its whole files."""
    texts = DatasetConfig("texts", split="train", seq_len=8, path="/folder")
    cell = CellConfig(ModelConfig("a", "b"), texts, KConfig([1]))
    before, now = (identity(cell, "w", Source("", None, "t", cut=cut), "", None) for cut in ("", "line"))
    assert before != now
    params = {"model.commit": "w", "dataset.commit": "t", "dataset.split": "train", "dataset.seq_len": "8"}
    params |= {"dataset.sampling": "stream", "dataset.sequence": "slide", f"{VERSIONS}scoring": str(SCORING_VERSION)}
    made = set(identities(params | {"model.vocab_size": "2"}) or ())
    assert {before, now} <= made
    hub = set(identities(params | {"model.vocab_size": "2", "dataset.repo": "o/n"}) or ())
    assert 3 * len(hub) == len(made)


@pytest.mark.parametrize(
    "dataset",
    [
        {"repo": "a/b", "documents": 5, "seed": 0, "context": 0, "config": "c", "where": {"lang": "en", "n": "0"}},
        {"repo": "a/b", "fields": ["q", "a"], "separator": "", "files": ["x", "y"], "head": 3, "longer_than": 2},
        {"path": "/here", "sequence": SequenceRule.pack, "id_field": "id", "sampling": Sampling.shuffle},
    ],
)
@pytest.mark.parametrize("model", [{}, {"dtype": Dtype.bfloat16, "seed": 3}, {"tf32": True, "revision": "step1"}])
@pytest.mark.parametrize("others", [{}, {"rank": Rank.strict, "candidates": Candidates.tokenizer}, {"reference": 1}])
def test_params_that_are_left_out_determine_no_fingerprint(
    dataset: dict[str, Any], model: dict[str, Any], others: dict[str, Any]
) -> None:
    about = DatasetConfig("texts", **{"split": "train", "seq_len": 8, **dataset})
    config = CellConfig(ModelConfig("a", "b", **model), about, KConfig([1, 10]), **others)
    config.reference = ModelConfig("c", "d", repo="c/d", dtype=Dtype.float16) if config.reference else None
    reference = "c/d@1" if config.reference else ""
    made = identity(config, "w", Source("", None, "t"), "", None, reference=reference)
    resolved = {"model.commit": "w", "dataset.commit": "t", f"{VERSIONS}scoring": str(SCORING_VERSION)}
    resolved |= {"reference.commit": reference} if reference else {}
    params = compared(flat(config)) | resolved
    assert made in (identities(params) or ())
    assert len(params) <= 26, "fourteen more are known once model and texts are read"


def test_what_is_damaged_is_named_and_measured_again(store: Path, program: Program) -> None:
    """By the sweep where its ranks are gone, or where the machine went down; else after `repair=true`. Nothing else."""
    empty, wrong, cut = (run_of(store, model, "stdlib") for model in ("nano-6k", "nano-15k", "nano-38k"))
    (store / f"mlruns/artifacts/rbptrack/{empty}/artifacts/ranks.parquet").write_bytes(b"")
    for table in ("metrics", "latest_metrics"):
        change(f"update {table} set value = 1.0 where key = 'ce' and run_uuid = ?", wrong)
    said = program("verify", cwd=store)
    assert said.returncode == 1
    assert f"nano-6k / stdlib (run {empty}): ranks.parquet is empty" in said.stderr
    said = program("verify", "read_data=true", "repair=true", "size=15k", cwd=store)
    assert said.returncode == 1
    assert f"(run {wrong}): its ranks do not give its numbers: ce is 1" in said.stderr
    bundled = program("export", "out=all.zip", "dataset=stdlib", cwd=store)
    assert bundled.returncode == 1
    assert f"run {empty} is left out" in bundled.stderr

    change("update latest_metrics set value = 0.5 where key = 'rbp_10' and run_uuid = ?", cut)
    owner = json.loads(marks()[Tag.PROCESS]) | {"boot": "another", "pid": 1}
    (store / "mlruns/writing").mkdir()
    with closing(sqlite3.connect(DATABASE)) as database:
        (ended,) = database.execute("select end_time from runs where run_uuid = ?", (empty,)).fetchone()
    said_before = {"process": json.dumps(owner), "since": ended / 1000 + 0.001}
    (store / "mlruns/writing/1.json").write_text(json.dumps(said_before))
    swept = program("-m", *SWEEP, FEW, cwd=store)
    assert swept.returncode == 0, swept.stderr
    assert "3 measured, 5 skipped as already measured" in swept.stdout
    assert "this machine went down while mlruns/mlflow.db was written" in swept.stdout
    assert f"run {empty} (nano-6k / stdlib) does not count as measured" in swept.stderr
    assert not (store / "mlruns/writing").exists()
    assert program("verify", "repair=true", cwd=store).returncode == 1  # the one without ranks, marked now
    assert program("verify", "read_data=true", cwd=store).returncode == 0


@pytest.mark.parametrize(
    ("name", "factor"),
    [("ce", 1.01), ("rbp_10", 1.01), ("non_embedding_params", 1.01), ("ce_se", 0.8), ("rbp_10_se", 1.2)],
)
def test_a_number_that_was_altered_is_named_and_marked(
    name: str, factor: float, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In its value and its history alike, so that only the ranks (of S, the param) say otherwise; until it is cured."""
    run = run_of(store, "nano-15k", "stdlib")
    numbers = Store(TrackingConfig()).reader.run(run).metrics

    def set_to(value: float) -> None:
        for table in ("metrics", "latest_metrics"):
            change(f"update {table} set value = ? where key = ? and run_uuid = ?", value, name, run)

    def listed() -> str:
        capsys.readouterr()
        assert list_.main(["size=15k", "dataset=stdlib", "columns=model,damaged", "format=csv"]) == 0
        return capsys.readouterr().out

    set_to(numbers[name] * factor)
    assert verify_.main(["read_data=true", "size=15k", "dataset=stdlib"]) == 1
    altered = f"{numbers[name] * factor:g}"
    sentence = f"its ranks do not give its numbers: {name} is {altered}, and should be {numbers[name]:g}"
    assert f"(run {run}): {sentence}" in capsys.readouterr().err
    assert sentence in listed()
    set_to(numbers[name])
    assert verify_.main(["size=15k", "dataset=stdlib"]) == 0
    assert sentence in listed()  # its files were not read
    assert verify_.main(["read_data=true", "size=15k", "dataset=stdlib"]) == 0
    assert "its ranks" not in listed()


def test_an_import_that_is_damaged_is_brought_back(store: Path) -> None:
    frame = Store(TrackingConfig()).reader.runs(FilterConfig(family=["toy"])).frame
    change("delete from latest_metrics where key = 'ce' and run_uuid = ?", frame["run_id"].iloc[0])
    assert verify_.main(["repair=true"]) == 1
    import_.main(["table.csv"])
    assert verify_.main([]) == 0
    again = Store(TrackingConfig()).reader.runs(FilterConfig(family=["toy"])).frame
    assert again["ce"].tolist() == frame["ce"].tolist()


@pytest.mark.parametrize("table", ["tags", "latest_metrics", "runs"])
def test_a_table_that_is_gone_is_a_fault(table: str, store: Path) -> None:
    change(f"drop table {table}")
    with pytest.raises(BadInput, match=f"is damaged: it lacks 1 table of MLflow .{table}.*Restore"):
        Store(TrackingConfig()).reader.runs(FilterConfig())


def flips(store: Path) -> Iterator[tuple[int, bytes]]:
    """Flip random bits of what matters in the database, one at a time: the flipped byte, and what is around it."""
    path = store / DATABASE
    change("pragma wal_checkpoint(truncate)")
    whole, draw = path.read_bytes(), random.Random(0)
    run = run_of(store, "nano-15k", "pydocs")
    with closing(sqlite3.connect(DATABASE)) as database:
        fingerprint = database.execute(
            "select value from tags where key = ? and run_uuid = ?", (Tag.FINGERPRINT, run)
        ).fetchone()[0]
    words = [fingerprint, f"num_tokens{run}", f"FINISHED{run}", run, "FINISHED", "rbptrack.fingerprint"]
    places = [at + i for word in words for at in _found(whole, word.encode()) for i in range(-12, len(word))]
    for place in draw.sample(sorted(set(places)), FLIPS):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << draw.randrange(8)
        for left in path.parent.glob("mlflow.db-*"):
            left.unlink()
        path.write_bytes(damaged)
        yield place, bytes(damaged[place - 30 : place + 30])


def _found(data: bytes, word: bytes) -> Iterator[int]:
    at = data.find(word)
    while at >= 0:
        yield at
        at = data.find(word, at + 1)


def test_a_flipped_bit_in_the_database_is_found(store: Path) -> None:
    """Or nothing that is read has changed."""

    def read() -> str:
        return str(Store(TrackingConfig()).reader.runs(FilterConfig()).frame.to_json())

    expected, silent, named = read(), [], 0
    for place, around in flips(store):
        if faults():
            named += 1
        elif read() != expected:
            silent.append((place, around))
    assert silent == []
    assert named > FLIPS / 2


def test_ln_p_a_little_above_zero_is_zero(tmp_path: Path) -> None:
    """As version 0.1 left it in float32; far above it stays, and is refused where tables are checked."""
    ranks = RankTable.from_arrays(
        vocab_size=9, document=[0, 0], position=[0, 1], field=[0, 0], token=[1, 2], greater=[0, 0], ties=[0, 0],
        logprob=[3e-5, 1e-3],
    )  # fmt: skip
    ranks.write(tmp_path / "ranks.parquet")
    RankHistogram(np.array([1]), np.array([2]), np.array([6e-5]), 9).write(tmp_path / "h.parquet")
    assert RankTable.read(tmp_path / "ranks.parquet").column("logprob").tolist() == pytest.approx([0, 1e-3])
    assert RankHistogram.read(tmp_path / "h.parquet").ce == 0
