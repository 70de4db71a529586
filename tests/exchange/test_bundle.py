"""Measurements as one file: out and in again, and nothing else in."""

from __future__ import annotations

import json
import stat
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rbptrack.base.errors import BadInput, MissingArtifact
from rbptrack.base.files import sha256
from rbptrack.exchange import bundle as bundles
from rbptrack.exchange import export_bundle, import_bundle, is_bundle
from rbptrack.ranks import RankTable
from rbptrack.sources.fingerprint import fingerprint
from rbptrack.tracking import Record, Store
from tests.cells import Measured


@pytest.fixture
def exported(store: Store, measured: Measured) -> Path:
    """A bundle of one measurement."""
    store.deliver(measured(documents=60, sources=20))
    export_bundle(store.runs(), Path("shared.zip"))
    return Path("shared.zip").absolute()


@pytest.fixture
def other(store: Store) -> Store:
    """An experiment without that measurement."""
    return Store(store.uri, "other")


def test_what_was_exported_is_the_same_when_imported(store: Store, measured: Measured, other: Store) -> None:
    for s in (1000, 2000):
        store.deliver(measured(s, documents=60, sources=20))
    assert export_bundle(store.runs(), Path("shared.zip")) == 2
    assert is_bundle(Path("shared.zip"))
    assert import_bundle(Path("shared.zip"), other)
    runs = store.runs()
    imported = other.runs()
    own = {"run_id", "imported", "imported_from", "started"}
    assert imported.frame.drop(columns=list(own)).equals(runs.frame.drop(columns=list(own)))
    for name in runs["name"]:
        assert imported.ranks(name).table.equals(runs.ranks(name).table)
        assert imported.groups(name) == runs.groups(name)
    assert imported["imported"].tolist() == ["bundle", "bundle"]
    assert list(other.verify()) == []


def test_importing_again_adds_nothing(exported: Path, other: Store, store: Store) -> None:
    import_bundle(exported, other)
    import_bundle(exported, other)
    import_bundle(exported, store)
    assert len(list(other.finished())) == len(list(store.finished())) == 1


def test_an_import_that_was_cut_short_is_completed_by_the_same_command(
    store: Store, measured: Measured, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for s in (1000, 2000):
        store.deliver(measured(s))
    export_bundle(store.runs(), Path("shared.zip"))
    deliver = Store.deliver

    def once(self: Store, folder: Path, **options: Any) -> str:
        if list(self.finished()):
            raise KeyboardInterrupt
        return deliver(self, folder, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "deliver", once)
        with pytest.raises(KeyboardInterrupt):
            import_bundle(Path("shared.zip"), other)
    import_bundle(Path("shared.zip"), other)
    assert len(other.runs()) == 2


def test_a_bundle_holds_no_paths_of_this_machine(exported: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(exported) as opened:
        names = {name.partition("/")[2] for name in opened.namelist() if "/" in name}
        content = b"".join(opened.read(name) for name in opened.namelist())
    assert names == {"record.json", "ranks.parquet", "documents.parquet", "unscored.parquet", "tokens.json"}
    assert str(tmp_path).encode() not in content


def test_measurements_without_ranks_go_out_and_in(store: Store, other: Store) -> None:
    identity = {"imported": "table", "model": "a-1", "dataset": "d"}
    tags = {"rbptrack.kind": "measurement", "rbptrack.fingerprint": fingerprint(identity), "rbptrack.family": "a"}
    tags |= {"rbptrack.model": "a-1", "rbptrack.dataset": "d", "rbptrack.without_ranks": "true"}
    folder = Path("numbers")
    folder.mkdir()
    Record("a-1 / d", tags, {}, {"ce": 3.0}, identity=identity).write(folder)
    store.deliver(folder)
    export_bundle(store.runs(), Path("shared.zip"))
    import_bundle(Path("shared.zip"), other)
    assert other.runs()["ce"].tolist() == [3.0]
    assert other.runs()["without_ranks"].tolist() == [True]


def set_in(record: dict[str, Any], where: str, key: str, value: object) -> None:
    record[where][key] = value


FALSE_RECORDS: Mapping[str, Callable[[dict[str, Any]], object]] = {
    "CE": lambda record: set_in(record, "metrics", "ce", 1.0),
    "RBP_10": lambda record: set_in(record, "metrics", "rbp_10", 0.9),
    "k above the vocabulary": lambda record: set_in(record, "metrics", "rbp_9999", 1.0),
    "tokens": lambda record: set_in(record, "metrics", "num_tokens", 7.0),
    "curve": lambda record: set_in(record, "curves", "rbp_curve", [[1, 0.5]]),
    "S": lambda record: set_in(record, "metrics", "non_embedding_params", 1e6),
    "total": lambda record: set_in(record, "params", "total_params", "1"),
    "fingerprint": lambda record: set_in(record, "tags", "rbptrack.fingerprint", "0" * 64),
    "what was measured": lambda record: set_in(record, "identity", "dataset", "code"),
    "dataset": lambda record: set_in(record, "tags", "rbptrack.dataset", "code"),
    "sequence length": lambda record: set_in(record, "params", "seq_len", "4096"),
    "no family": lambda record: record["tags"].pop("rbptrack.family"),
    "another kind": lambda record: set_in(record, "tags", "rbptrack.kind", "sweep"),
    "MLflow's tag": lambda record: set_in(record, "tags", "mlflow.user", "root"),
    "a name MLflow refuses": lambda record: set_in(record, "metrics", "../ce", 1.0),
    "a text for a number": lambda record: set_in(record, "metrics", "ce_se", "much"),
    "a number for a text": lambda record: set_in(record, "params", "dtype", 3),
    "a list for a table": lambda record: record.update(metrics=[1, 2]),
    "another key": lambda record: record.update(more=1),
    "a key less": lambda record: record.pop("params"),
    "infinity": lambda record: set_in(record, "metrics", "ce_se", float("inf")),
    "a line break": lambda record: set_in(record, "tags", "rbptrack.notes", "a\nb"),
    "a file's hash": lambda record: set_in(record, "files", "ranks.parquet", "0" * 64),
    "a file that is not there": lambda record: set_in(record, "files", "more.parquet", "0" * 64),
}


def test_records_that_their_ranks_or_fingerprint_do_not_bear_out_are_refused(exported: Path, other: Store) -> None:
    let_in = []
    for what, change in FALSE_RECORDS.items():
        entries = entries_of(exported)
        (name,) = [name for name in entries if name.endswith("/record.json")]
        record = json.loads(entries[name])
        change(record)
        entries[name] = json.dumps(record).encode()
        if accepted(write(entries), other):
            let_in.append(what)
    assert let_in == []
    assert list(other.finished()) == []


def test_ranks_that_cannot_be_are_refused(exported: Path, other: Store) -> None:
    entries = entries_of(exported)
    (record_name,) = [name for name in entries if name.endswith("/record.json")]
    (ranks_name,) = [name for name in entries if name.endswith("/ranks.parquet")]
    Path("ranks.parquet").write_bytes(entries[ranks_name])
    table = RankTable.read(Path("ranks.parquet"))
    columns = {name: table.column(name) for name in table.table.column_names}
    for wrong in ({"greater": -1}, {"greater": 600}, {"logprob": 1.0}, {"logprob": np.nan}, {"document": -1}):
        changed = {name: np.full(len(table), value) for name, value in wrong.items()}
        RankTable.from_arrays(vocab_size=512, **columns | changed).write(Path("ranks.parquet"))
        record = json.loads(entries[record_name])
        record["files"]["ranks.parquet"] = sha256(Path("ranks.parquet"))
        altered = {record_name: json.dumps(record).encode(), ranks_name: Path("ranks.parquet").read_bytes()}
        assert not accepted(write(entries | altered), other), wrong


def test_entries_that_no_bundle_has_are_refused(exported: Path, other: Store) -> None:
    entries = entries_of(exported)
    folder = next(iter(entries)).partition("/")[0]
    for name in ("../x", "/etc/x", f"{folder}/../../x", f"{folder}/model.pkl", f"{folder}/x/record.json", "x\\y"):
        assert not accepted(write(entries | {name: b"x"}), other), name
    assert not accepted(write({name: content for name, content in entries.items() if name != "bundle.json"}), other)
    assert not accepted(write({"bundle.json": b"{}"}), other)
    for name in entries:
        if name.endswith(("ranks.parquet", "record.json")):
            assert not accepted(write({n: c for n, c in entries.items() if n != name}), other), name


def test_links_and_twice_the_same_entry_are_refused(exported: Path, other: Store) -> None:
    entries = entries_of(exported)
    link = zipfile.ZipInfo(next(name for name in entries if name.endswith("tokens.json")))
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile("link.zip", "w") as made:
        for name, content in entries.items():
            made.writestr(link if name == link.filename else name, content)
    assert not accepted(Path("link.zip"), other)
    with zipfile.ZipFile("twice.zip", "w") as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in [*entries.items(), *entries.items()]:
            made.writestr(name, content)
    assert not accepted(Path("twice.zip"), other)


def test_a_bundle_has_one_size_limit(exported: Path, other: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "LARGEST", 1000)
    with pytest.raises(BadInput, match="1,000"):
        import_bundle(exported, other)


def test_flipped_bits_are_refused(exported: Path, other: Store) -> None:
    content = exported.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(content), 40).tolist():
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        Path("damaged.zip").write_bytes(damaged)
        if accepted(Path("damaged.zip"), other):  # a date in the zip's directory
            assert list(other.verify()) == []


@pytest.mark.parametrize(("file", "old"), [("record.json", b'"tie_rate": 0'), ("documents.parquet", b"PAR1")])
def test_what_its_seal_does_not_confirm_is_not_exported(
    file: str, old: bytes, store: Store, measured: Measured
) -> None:
    artifact = store.artifact(store.deliver(measured()), file)
    content = artifact.read_bytes()
    assert old in content
    artifact.write_bytes(content.replace(old, old[:-1] + b"2"))
    with pytest.raises(MissingArtifact, match="verify"):
        export_bundle(store.runs(), Path("shared.zip"))
    assert not Path("shared.zip").exists()


def test_an_export_does_not_write_through_a_link(store: Store, measured: Measured) -> None:
    store.deliver(measured())
    Path("shared.zip").symlink_to("elsewhere.zip")
    with pytest.raises(BadInput, match="link"):
        export_bundle(store.runs(), Path("shared.zip"))


def test_other_files_are_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("model,ce\n")
    write({"x": b""}).rename(tmp_path / "x.zip")
    assert not is_bundle(tmp_path / "table.csv")
    assert not is_bundle(tmp_path / "x.zip")
    assert not is_bundle(tmp_path)


def entries_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def write(entries: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile("altered.zip", "w") as made:
        for name, content in entries.items():
            made.writestr(name, content)
    return Path("altered.zip")


def accepted(path: Path, store: Store) -> bool:
    try:
        import_bundle(path, store)
    except BadInput:
        return False
    return True
