"""Tests of bundles: an export is read back unchanged, and an altered, damaged or oversized file is refused."""

from __future__ import annotations

import json
import stat
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rbptrack.analysis.importing import ImportedMeasurement, check_imported
from rbptrack.base.errors import BadInput, MissingArtifact
from rbptrack.base.files import sha256
from rbptrack.exchange import bundle as bundle_module
from rbptrack.exchange import export_bundle, import_bundle, import_content, is_bundle
from rbptrack.exchange.contents import faults_of_measurement
from rbptrack.ranks import RankTable
from rbptrack.sources.fingerprint import fingerprint
from rbptrack.tracking import Outbox, Record, Store
from tests.store_fixtures import WriteCell

ChangeRecord = Callable[[dict[str, Any]], object]
"""A function that alters the content of a record.json in place."""

NUMBER_OF_5000_DIGITS = "a number of 5,000 digits"
"""Stands for the number in a record, because Python does not write an int with more than 4,300 digits."""


def entries_of(bundle: Path) -> dict[str, bytes]:
    """Read all entries of a zip file, by name."""
    with zipfile.ZipFile(bundle) as file:
        return {name: file.read(name) for name in file.namelist()}


def write_zip(entries: Mapping[str, bytes]) -> Path:
    """Write entries to the zip file altered.zip."""
    path = Path("altered.zip")
    with zipfile.ZipFile(path, "w") as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return path


def entry_named(file: str, entries: Mapping[str, bytes]) -> str:
    """Return the name of the last entry that is called `file` in the folder of a measurement."""
    return [name for name in entries if name.endswith(f"/{file}")][-1]


def with_altered_record(bundle: Path, change: ChangeRecord) -> Path:
    """Write a copy of a bundle in which the record of the last measurement is altered."""
    entries = entries_of(bundle)
    name = entry_named("record.json", entries)
    record = json.loads(entries[name])
    change(record)
    text = json.dumps(record).replace(f'"{NUMBER_OF_5000_DIGITS}"', "9" * 5000)
    return write_zip(entries | {name: text.encode()})


def with_replaced_file(bundle: Path, file: str, content: bytes) -> Path:
    """Write a copy of a bundle in which one file is replaced. The record holds the hash of the new file."""
    entries = entries_of(bundle)
    record_name = entry_named("record.json", entries)
    record = json.loads(entries[record_name])
    Path(file).write_bytes(content)
    record["files"][file] = sha256(Path(file))
    return write_zip(entries | {record_name: json.dumps(record).encode(), entry_named(file, entries): content})


def try_import(bundle: Path, store: Store) -> bool:
    """Import a bundle into a store. Returns False if it is refused with BadInput; other errors are raised."""
    try:
        import_bundle(bundle, store)
    except BadInput:
        return False
    return True


@pytest.fixture
def bundle(store: Store, write_cell: WriteCell) -> Path:
    """A bundle of one measurement with 60 documents in 20 groups. It is also in `store`."""
    Outbox(store).deliver(write_cell(documents=60, groups=20))
    export_bundle(store.runs(), Path("shared.zip"))
    return Path("shared.zip").absolute()


@pytest.fixture
def bundle_of_two(store: Store, write_cell: WriteCell) -> Path:
    """A bundle of two measurements of different size, which are also in `store`."""
    for s in (1000, 2000):
        Outbox(store).deliver(write_cell(s, documents=60, groups=20))
    assert export_bundle(store.runs(), Path("shared.zip")) == 2
    return Path("shared.zip").absolute()


@pytest.fixture
def bundle_without_ranks(store: Store) -> Path:
    """A bundle of one measurement whose numbers were imported without ranks."""
    row = {
        "model": "a-1m",
        "dataset": "d",
        "ce": 3.0,
        "rbp_1": 0.25,
        "rbp_10": 0.5,
        "ce_se": 0.125,
        "seq_len": 64,
        "non_embedding_params": 10**6,
    }
    table = Path("t.csv")
    import_content("table", check_imported(table, [ImportedMeasurement(row)]), table, store)
    export_bundle(store.runs(), Path("numbers.zip"))
    return Path("numbers.zip").absolute()


@pytest.fixture
def other_store(store: Store) -> Store:
    """An empty experiment in the same database."""
    return Store(store.uri, "other")


def test_import_bundle_gives_the_columns_ranks_and_groups_of_the_exported_measurements(
    store: Store, bundle_of_two: Path, other_store: Store
) -> None:
    assert is_bundle(bundle_of_two)
    assert import_bundle(bundle_of_two, other_store)
    exported = store.runs()
    imported = other_store.runs()
    columns_of_a_run = ["run_id", "imported", "imported_from", "started"]
    assert imported.frame.drop(columns=columns_of_a_run).equals(exported.frame.drop(columns=columns_of_a_run))
    for name in exported["name"]:
        assert imported.ranks(name).table.equals(exported.ranks(name).table)
        assert imported.groups(name) == exported.groups(name)
    assert imported["imported"].tolist() == ["bundle", "bundle"]
    assert list(other_store.verify()) == []


def test_import_bundle_adds_a_measurement_once(bundle: Path, other_store: Store, store: Store) -> None:
    import_bundle(bundle, other_store)
    import_bundle(bundle, other_store)
    import_bundle(bundle, store)
    assert len(list(other_store.finished_runs())) == 1
    assert len(list(store.finished_runs())) == 1


def test_import_bundle_after_an_interrupt_adds_the_rest(
    bundle_of_two: Path, other_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = Outbox.deliver

    def deliver_only_the_first(self: Outbox, folder: Path, **options: Any) -> str:
        if list(self.store.finished_runs()):
            raise KeyboardInterrupt
        return deliver(self, folder, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "deliver", deliver_only_the_first)
        with pytest.raises(KeyboardInterrupt):
            import_bundle(bundle_of_two, other_store)
    import_bundle(bundle_of_two, other_store)
    assert len(other_store.runs()) == 2


def test_export_bundle_writes_no_paths_of_this_machine(bundle: Path, tmp_path: Path) -> None:
    entries = entries_of(bundle)
    files = {name.partition("/")[2] for name in entries if "/" in name}
    assert files == {"record.json", "ranks.parquet", "documents.parquet", "unscored.parquet", "tokens.json"}
    for content in entries.values():
        assert str(tmp_path).encode() not in content


def test_import_bundle_gives_the_numbers_of_a_measurement_without_ranks(store: Store, other_store: Store) -> None:
    identity = {"imported": "table", "model": "a-1", "dataset": "d"}
    tags = {
        "rbptrack.kind": "measurement",
        "rbptrack.fingerprint": fingerprint(identity),
        "rbptrack.family": "a",
        "rbptrack.model": "a-1",
        "rbptrack.dataset": "d",
        "rbptrack.without_ranks": "true",
    }
    folder = Path("numbers")
    folder.mkdir()
    Record("a-1 / d", tags, {}, {"ce": 3.0}, identity=identity).write(folder)
    Outbox(store).deliver(folder)
    export_bundle(store.runs(), Path("shared.zip"))
    import_bundle(Path("shared.zip"), other_store)
    assert other_store.runs()["ce"].tolist() == [3.0]
    assert other_store.runs()["without_ranks"].tolist() == [True]


def set_in(record: dict[str, Any], part: str, name: str, value: object) -> None:
    """Set a value in a part of a record, such as its metrics."""
    record[part][name] = value


FALSE_RECORDS: Mapping[str, ChangeRecord] = {
    "CE": lambda record: set_in(record, "metrics", "ce", 1.0),
    "RBP_10": lambda record: set_in(record, "metrics", "rbp_10", 0.9),
    "k above the vocabulary": lambda record: set_in(record, "metrics", "rbp_9999", 1.0),
    "number of tokens": lambda record: set_in(record, "metrics", "num_tokens", 7.0),
    "a value of the curve": lambda record: set_in(record, "curves", "rbp_curve", [[1, 0.5]]),
    "S": lambda record: set_in(record, "metrics", "non_embedding_params", 1e6),
    "total parameters": lambda record: set_in(record, "params", "total_params", "1"),
    "fingerprint": lambda record: set_in(record, "tags", "rbptrack.fingerprint", "0" * 64),
    "dataset in the identity": lambda record: set_in(record, "identity", "dataset", "code"),
    "dataset in the tags": lambda record: set_in(record, "tags", "rbptrack.dataset", "code"),
    "sequence length": lambda record: set_in(record, "params", "seq_len", "4096"),
    "a missing family": lambda record: record["tags"].pop("rbptrack.family"),
    "another kind": lambda record: set_in(record, "tags", "rbptrack.kind", "sweep"),
    "a tag of MLflow": lambda record: set_in(record, "tags", "mlflow.user", "root"),
    "a metric name that MLflow refuses": lambda record: set_in(record, "metrics", "../ce", 1.0),
    "a text instead of a number": lambda record: set_in(record, "metrics", "ce_se", "much"),
    "a number instead of a text": lambda record: set_in(record, "params", "dtype", 3),
    "a list instead of metrics": lambda record: record.update(metrics=[1, 2]),
    "an unknown key": lambda record: record.update(more=1),
    "a missing key": lambda record: record.pop("params"),
    "an infinite standard error": lambda record: set_in(record, "metrics", "ce_se", float("inf")),
    "a line break in a tag": lambda record: set_in(record, "tags", "rbptrack.notes", "a\nb"),
    "the hash of a file": lambda record: set_in(record, "files", "ranks.parquet", "0" * 64),
    "a missing file": lambda record: set_in(record, "files", "more.parquet", "0" * 64),
    "a param run_id": lambda record: set_in(record, "params", "run_id", "0" * 32),
    "an RBP as a param": lambda record: set_in(record, "params", "rbp_7", "1"),
    "an unknown param": lambda record: set_in(record, "params", "mmlu", "0.3"),
    "an unknown tag": lambda record: set_in(record, "tags", "rbptrack.more", "x"),
    "a tag with a seal": lambda record: set_in(record, "tags", "rbptrack.seal", "0" * 64),
    "the tag rbptrack.damaged": lambda record: set_in(record, "tags", "rbptrack.damaged", "no"),
    "an unknown metric": lambda record: set_in(record, "metrics", "mmlu", 0.3),
    "an unknown curve": lambda record: set_in(record, "curves", "loss", [[1, 0.5]]),
    "an unknown key of the logged dataset": lambda record: set_in(record, "dataset", "more", "x"),
    "no digest of the logged dataset": lambda record: record["dataset"].pop("digest"),
    "another logged dataset": lambda record: set_in(record, "dataset", "name", "code"),
    "a digest of 37 characters": lambda record: set_in(record, "dataset", "digest", "d" * 37),
    "a number of 400 digits": lambda record: set_in(record, "metrics", "seconds", 10**400),
    "a number of 5,000 digits": lambda record: record.update(began=NUMBER_OF_5000_DIGITS),
    "a sequence length that is not an integer": lambda record: set_in(record, "params", "seq_len", "64.5"),
    "a text instead of |V|": lambda record: set_in(record, "params", "vocab_size", "many"),
    "NaN for training tokens": lambda record: set_in(record, "params", "training_tokens", "nan"),
    "a time in the future": lambda record: record.update(began=4e9, ended=4e9),
    "an end before the beginning": lambda record: record.update(ended=record["began"] - 1),
    "a time of 1e300 seconds": lambda record: record.update(began=1e300, ended=1e300),
    "another name of the run": lambda record: record.update(name="mine"),
    "a password in a tag": lambda record: set_in(record, "tags", "rbptrack.notes", "http://me:hunter2@host"),
    "a tag of 5,001 characters": lambda record: set_in(record, "tags", "rbptrack.notes", "x" * 5001),
    "another standard error": lambda record: set_in(record, "metrics", "ce_se", 0.5),
    "a standard error of a missing RBP": lambda record: set_in(record, "metrics", "rbp_7_se", 0.1),
    "tie rate": lambda record: set_in(record, "metrics", "tie_rate", 0.5),
    "a negative duration": lambda record: set_in(record, "metrics", "seconds", -1.0),
    "bits per byte below 0": lambda record: set_in(record, "metrics", "bits_per_byte", -1.0),
    "the tag of numbers without ranks": lambda record: set_in(record, "tags", "rbptrack.without_ranks", "true"),
    "number of documents": lambda record: set_in(record, "params", "documents", "61"),
    "a number of 400 digits in the curve": lambda record: set_in(record, "curves", "rbp_curve", [[1, 10**400]]),
    "a missing CE": lambda record: record["metrics"].pop("ce"),
    "a metric of a missing reference": lambda record: set_in(record, "metrics", "kl", 0.5),
    "bits per byte of 0": lambda record: set_in(record, "metrics", "bits_per_byte", 0.0),
    "HTML in the name of a repository": lambda record: set_in(record, "params", "repo", "<script>"),
}
"""Changes that make the record of a measurement with ranks invalid, by description."""


def test_import_bundle_refuses_records_that_break_a_rule_or_contradict_their_files(
    bundle: Path, other_store: Store
) -> None:
    accepted = []
    for name, change in FALSE_RECORDS.items():
        if try_import(with_altered_record(bundle, change), other_store):
            accepted.append(name)
    assert accepted == []
    assert list(other_store.finished_runs()) == []


@pytest.mark.parametrize("name", ["ce", "rbp_10", "ce_se"])
def test_faults_of_measurement_name_a_wrong_number_once(name: str, write_cell: WriteCell) -> None:
    folder = write_cell(documents=60)
    (folder / ".seal").unlink()  # a bundle holds no seal
    content = json.loads((folder / "record.json").read_text())
    assert list(faults_of_measurement(folder, folder.name)) == []
    content["metrics"][name] *= 1.001
    (folder / "record.json").write_text(json.dumps(content))
    (fault,) = faults_of_measurement(folder, folder.name)
    assert name in fault


def test_import_bundle_adds_nothing_if_the_last_of_two_records_is_false(
    bundle_of_two: Path, other_store: Store
) -> None:
    accepted = []
    for name, change in FALSE_RECORDS.items():
        if try_import(with_altered_record(bundle_of_two, change), other_store) or list(other_store.finished_runs()):
            accepted.append(name)
    assert accepted == []


def test_import_bundle_accepts_a_record_that_was_written_again_unaltered(bundle: Path, other_store: Store) -> None:
    """This shows that the records in the tests above are refused because of their alterations."""
    assert try_import(with_altered_record(bundle, lambda record: None), other_store)


FALSE_NUMBERS: Mapping[str, ChangeRecord] = {
    "CE below 0": lambda record: set_in(record, "metrics", "ce", -3.0),
    "CE above 100": lambda record: set_in(record, "metrics", "ce", 1251.9),
    "CE too small for RBP": lambda record: set_in(record, "metrics", "ce", 0.01),
    "RBP_10 above 1": lambda record: set_in(record, "metrics", "rbp_10", 7.5),
    "RBP_10 below RBP_1": lambda record: set_in(record, "metrics", "rbp_10", 0.125),
    "a curve with another RBP_10": lambda record: set_in(record, "curves", "rbp_curve", [[1, 0.25], [10, 0.75]]),
    "a falling curve": lambda record: set_in(record, "curves", "rbp_curve", [[10, 0.5], [1, 0.25]]),
    "a standard error of a missing number": lambda record: set_in(record, "metrics", "ce_rank_se", 0.1),
    "S of 1.5": lambda record: set_in(record, "metrics", "non_embedding_params", 1.5),
    "S of 1e30": lambda record: set_in(record, "metrics", "non_embedding_params", 1e30),
    "total_params below S": lambda record: set_in(record, "params", "total_params", "5"),
    "the identity of a measured cell": lambda record: record["identity"].pop("imported"),
    "a metric of a reference": lambda record: set_in(record, "metrics", "same_top", 0.5),
    "no numbers": lambda record: record.update(metrics={}, curves={}),
    "the tag of numbers without ranks removed": lambda record: record["tags"].pop("rbptrack.without_ranks"),
}
"""Changes that make the record of a measurement without ranks invalid, by description."""


def with_altered_numbers(bundle: Path, change: ChangeRecord) -> Path:
    """Write a copy of a bundle of one measurement in which the record is changed and its fingerprint computed again."""
    entries = entries_of(bundle)
    record = json.loads(entries.pop(entry_named("record.json", entries)))
    change(record)
    folder = fingerprint(record["identity"])
    record["tags"]["rbptrack.fingerprint"] = folder
    return write_zip(entries | {f"{folder}/record.json": json.dumps(record).encode()})


def test_import_bundle_refuses_numbers_without_ranks_that_break_the_rules_of_imported_rows(
    bundle_without_ranks: Path, other_store: Store
) -> None:
    accepted = []
    for name, change in FALSE_NUMBERS.items():
        if try_import(with_altered_numbers(bundle_without_ranks, change), other_store):
            accepted.append(name)
    assert accepted == []
    assert try_import(bundle_without_ranks, other_store)
    assert other_store.runs()["rbp_10"].tolist() == [0.5]


def test_import_bundle_refuses_a_bundle_that_was_cut(bundle: Path, other_store: Store) -> None:
    content = bundle.read_bytes()
    for part in (content[100:], content[-2000:], content[:-100], content[: len(content) // 2], content[:4], b""):
        Path("cut.zip").write_bytes(part)
        assert not try_import(Path("cut.zip"), other_store)


@pytest.mark.parametrize("file", ["record.json", "tokens.json", "ranks.parquet", "bundle.json"])
def test_import_bundle_refuses_an_entry_that_unpacks_to_32_mb_of_spaces(
    file: str, bundle: Path, other_store: Store
) -> None:
    with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as bomb:
        for name, content in entries_of(bundle).items():
            spaces = b" " * 2**25 if name.endswith(file) else b""
            bomb.writestr(name, content + spaces)
    assert not try_import(Path("bomb.zip"), other_store)


def test_import_bundle_refuses_a_table_with_more_rows_than_bytes(bundle: Path, other_store: Store) -> None:
    """Parquet stores equal values in almost no space, so a small file may hold billions of rows."""
    rows = 1_000_000
    table = pa.table({"document": np.zeros(rows, "int64"), "id": [""] * rows, "tokens": np.zeros(rows, "int64")})
    pq.write_table(table, "documents.parquet")
    altered = with_replaced_file(bundle, "documents.parquet", Path("documents.parquet").read_bytes())
    with pytest.raises(BadInput, match="1,000,000 rows"):
        import_bundle(altered, other_store)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("greater", -1),
        ("greater", 600),
        ("logprob", 1.0),
        ("logprob", np.nan),
        ("document", -1),
        ("document", 60),
        ("position", 0),
        ("token", -2),
    ],
)
def test_import_bundle_refuses_a_rank_table_with_an_impossible_value(
    column: str, value: float, bundle: Path, other_store: Store
) -> None:
    entries = entries_of(bundle)
    path = Path("ranks.parquet")
    path.write_bytes(entries[entry_named("ranks.parquet", entries)])
    table = RankTable.read(path)
    columns = {name: table.column(name) for name in table.table.column_names}
    columns[column] = np.full(len(table), value)
    RankTable.from_arrays(vocab_size=512, **columns).write(path)
    assert not try_import(with_replaced_file(bundle, "ranks.parquet", path.read_bytes()), other_store)


def test_import_bundle_accepts_a_rank_table_that_was_written_again_unaltered(bundle: Path, other_store: Store) -> None:
    entries = entries_of(bundle)
    ranks = entries[entry_named("ranks.parquet", entries)]
    assert try_import(with_replaced_file(bundle, "ranks.parquet", ranks), other_store)


def test_import_bundle_refuses_entries_that_no_bundle_has(bundle: Path, other_store: Store) -> None:
    entries = entries_of(bundle)
    folder = next(iter(entries)).partition("/")[0]
    for name in ("../x", "/etc/x", f"{folder}/../../x", f"{folder}/model.pkl", f"{folder}/x/record.json", "x\\y"):
        assert not try_import(write_zip(entries | {name: b"x"}), other_store), name


@pytest.mark.parametrize("file", ["bundle.json", "ranks.parquet", "record.json"])
def test_import_bundle_refuses_a_bundle_without_a_necessary_entry(file: str, bundle: Path, other_store: Store) -> None:
    entries = entries_of(bundle)
    other_entries = {name: content for name, content in entries.items() if not name.endswith(file)}
    assert len(other_entries) < len(entries)
    assert not try_import(write_zip(other_entries), other_store)


def test_import_bundle_refuses_a_bundle_without_measurements(other_store: Store) -> None:
    assert not try_import(write_zip({"bundle.json": b"{}"}), other_store)


def test_import_bundle_refuses_an_entry_that_is_a_link(bundle: Path, other_store: Store) -> None:
    entries = entries_of(bundle)
    link = zipfile.ZipInfo(entry_named("tokens.json", entries))
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile("link.zip", "w") as file:
        for name, content in entries.items():
            file.writestr(link if name == link.filename else name, content)
    assert not try_import(Path("link.zip"), other_store)


def test_import_bundle_refuses_a_bundle_with_every_entry_twice(bundle: Path, other_store: Store) -> None:
    entries = entries_of(bundle)
    with zipfile.ZipFile("twice.zip", "w") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of duplicate names
        for name, content in [*entries.items(), *entries.items()]:
            file.writestr(name, content)
    assert not try_import(Path("twice.zip"), other_store)


def test_import_bundle_refuses_a_bundle_above_the_size_limit(
    bundle: Path, other_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_module, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(BadInput, match="1,000"):
        import_bundle(bundle, other_store)


def test_import_bundle_refuses_flipped_bits_or_gives_a_sound_store(bundle: Path, other_store: Store) -> None:
    """A flipped bit may be harmless: for example, a zip file holds the dates of its entries."""
    content = bundle.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(content), 40).tolist():
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        Path("damaged.zip").write_bytes(damaged)
        if try_import(Path("damaged.zip"), other_store):
            assert list(other_store.verify()) == []


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [("record.json", b'"tie_rate": 0', b'"tie_rate": 2'), ("documents.parquet", b"PAR1", b"PAR2")],
)
def test_export_bundle_refuses_a_measurement_that_was_altered_in_the_store(
    file: str, old: bytes, new: bytes, store: Store, write_cell: WriteCell
) -> None:
    run_id = Outbox(store).deliver(write_cell())
    artifact = store.artifact(run_id, file)
    content = artifact.read_bytes()
    assert old in content
    artifact.write_bytes(content.replace(old, new))
    with pytest.raises(MissingArtifact, match="verify"):
        export_bundle(store.runs(), Path("shared.zip"))
    assert not Path("shared.zip").exists()


def test_export_bundle_refuses_to_write_through_a_link(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell())
    Path("shared.zip").symlink_to("elsewhere.zip")
    with pytest.raises(BadInput, match="link"):
        export_bundle(store.runs(), Path("shared.zip"))


def test_is_bundle_is_false_for_tables_other_zip_files_and_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("model,ce\n")
    assert not is_bundle(Path("table.csv"))
    assert not is_bundle(write_zip({"x": b""}))
    assert not is_bundle(tmp_path)
