"""Tests of bundles: an export is read back unchanged, and an altered, damaged or oversized file is refused."""

from __future__ import annotations

import json
import stat
import warnings
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rbptrack.analysis.importing import ImportedMeasurement
from rbptrack.base.errors import BadInput, MissingArtifact
from rbptrack.base.files import sha256
from rbptrack.exchange import archive, check_imported, export_bundle, import_bundle, import_content, is_bundle
from rbptrack.ranks import RankTable
from rbptrack.tracking import Outbox, Store
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


def test_import_bundle_gives_the_numbers_of_a_measurement_without_ranks(
    bundle_without_ranks: Path, other_store: Store
) -> None:
    import_bundle(bundle_without_ranks, other_store)
    assert other_store.runs()["ce"].tolist() == [3.0]
    assert other_store.runs()["without_ranks"].tolist() == [True]


def test_bundle_holds_the_present_labels_and_no_folder_of_this_machine(
    store: Store, write_cell: WriteCell, other_store: Store
) -> None:
    Outbox(store).deliver(write_cell(path="/secret/nano"))
    store.relabel(store.runs(), {"family": "renamed", "checkpoint": "last"})
    export_bundle(store.runs(), Path("shared.zip"))
    import_bundle(Path("shared.zip"), other_store)
    assert other_store.runs()["model"].tolist() == ["renamed-38000@last"]
    assert other_store.runs()["folder"].isna().all()
    assert list(other_store.verify()) == []


def set_in(record: dict[str, Any], name: str, value: object) -> None:
    """Set a field of the measurement in a record."""
    record["measurement"][name] = value


def set_all_in(record: dict[str, Any], values: Mapping[str, object]) -> None:
    """Set several fields of the measurement in a record."""
    record["measurement"].update(values)


FALSE_VALUES: Mapping[str, object] = {
    "ce": 1.0,
    "ce_se": 0.5,
    "rbp": {"1": 0.2, "10": 0.9, "100": 0.95},
    "rbp_se": {"7": 0.1},
    "rbp_curve": {"1": 0.5},
    "num_tokens": 7,
    "non_embedding_params": 10**6,
    "total_params": 1,
    "seq_len": 4096,
    "dtype": 3,
    "notes": "a\nb",
    "repo": "<script>",
    "tie_rate": 0.5,
    "seconds": -1.0,
    "bits_per_byte": 0.0,
    "documents": 61,
    "groups": 7,
    "kl": 0.5,
    "vocab_size": 1024,
    "ce_rank": 0.5,
    "commit": "other",
    "without_ranks": True,
    "mmlu": 0.3,
    "selection": "x" * 5001,
}
"""Values of fields that make the record of a measurement with ranks invalid."""

FALSE_RECORDS: Mapping[str, ChangeRecord] = {
    **{name: partial(set_in, name=name, value=value) for name, value in FALSE_VALUES.items()},
    "the hash of a file": lambda record: record["files"].update({"ranks.parquet": "0" * 64}),
    "a missing file": lambda record: record["files"].update({"more.parquet": "0" * 64}),
    "an unknown key": lambda record: record.update(more=1),
    "a missing key": lambda record: record.pop("files"),
    "a missing family": lambda record: record["measurement"].pop("family"),
    "another kind": lambda record: record.update(kind="report"),
    "a time in the future": lambda record: record.update(began=4e9, ended=4e9),
    "an end before the beginning": lambda record: record.update(ended=record["began"] - 1),
    "a time of 1e300 seconds": lambda record: record.update(began=1e300, ended=1e300),
    "a number of 400 digits": lambda record: set_in(record, "seconds", 10**400),
    "a number of 5,000 digits": lambda record: record.update(began=NUMBER_OF_5000_DIGITS),
    "a password": lambda record: set_in(record, "software", "http://me:hunter2@host"),
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


FALSE_NUMBERS: Mapping[str, Mapping[str, object]] = {
    "CE below 0": {"ce": -3.0},
    "CE above 100": {"ce": 1251.9},
    "CE too small for RBP": {"ce": 0.01},
    "RBP_10 above 1": {"rbp": {"1": 0.25, "10": 7.5}},
    "RBP_10 below RBP_1": {"rbp": {"1": 0.25, "10": 0.125}},
    "a curve with another RBP_10": {"rbp_curve": {"1": 0.25, "10": 0.75}},
    "S of 1.5": {"non_embedding_params": 1.5},
    "S of 1e30": {"non_embedding_params": 10**30},
    "total_params below S": {"total_params": 5},
    "the identity of a measured cell": {"imported_as": ""},
    "a metric of a reference": {"same_top": 0.5},
    "no numbers": {"ce": None, "ce_se": None, "rbp": {}, "rbp_curve": {}},
    "ranks that are missing": {"without_ranks": False},
}
"""Values that make the record of a measurement without ranks invalid, by description."""


def test_import_bundle_refuses_numbers_without_ranks_that_break_a_rule(
    bundle_without_ranks: Path, other_store: Store
) -> None:
    accepted = []
    for name, values in FALSE_NUMBERS.items():
        altered = with_altered_record(bundle_without_ranks, partial(set_all_in, values=values))
        if try_import(altered, other_store):
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
    monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", 1000)
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
