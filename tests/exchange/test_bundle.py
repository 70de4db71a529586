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
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rbptrack.analysis.importing import ImportedMeasurement, check_imported
from rbptrack.base.errors import BadInput, MissingArtifact
from rbptrack.base.files import sha256
from rbptrack.exchange import bundle as bundles
from rbptrack.exchange import export_bundle, import_bundle, import_content, is_bundle
from rbptrack.ranks import RankTable
from rbptrack.sources.fingerprint import fingerprint
from rbptrack.tracking import Outbox, Record, Store
from tests.store_fixtures import WriteCell


@pytest.fixture
def exported(store: Store, write_cell: WriteCell) -> Path:
    """A bundle of one measurement."""
    Outbox(store).deliver(write_cell(documents=60, groups=20))
    export_bundle(store.runs(), Path("shared.zip"))
    return Path("shared.zip").absolute()


@pytest.fixture
def other(store: Store) -> Store:
    """An experiment without that measurement."""
    return Store(store.uri, "other")


def test_what_was_exported_is_the_same_when_imported(store: Store, write_cell: WriteCell, other: Store) -> None:
    for s in (1000, 2000):
        Outbox(store).deliver(write_cell(s, documents=60, groups=20))
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
    store: Store, write_cell: WriteCell, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for s in (1000, 2000):
        Outbox(store).deliver(write_cell(s))
    export_bundle(store.runs(), Path("shared.zip"))
    deliver = Outbox.deliver

    def once(self: Outbox, folder: Path, **options: Any) -> str:
        if list(self.store.finished()):
            raise KeyboardInterrupt
        return deliver(self, folder, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "deliver", once)
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
    Outbox(store).deliver(folder)
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
    "a param that names another run": lambda record: set_in(record, "params", "run_id", "0" * 32),
    "a metric as a param": lambda record: set_in(record, "params", "rbp_7", "1"),
    "a param that is no fact": lambda record: set_in(record, "params", "mmlu", "0.3"),
    "a tag that is no fact": lambda record: set_in(record, "tags", "rbptrack.more", "x"),
    "a seal": lambda record: set_in(record, "tags", "rbptrack.seal", "0" * 64),
    "a mark of damage": lambda record: set_in(record, "tags", "rbptrack.damaged", "no"),
    "a metric that is no fact": lambda record: set_in(record, "metrics", "mmlu", 0.3),
    "another curve": lambda record: set_in(record, "curves", "loss", [[1, 0.5]]),
    "an unknown key of its dataset": lambda record: set_in(record, "dataset", "more", "x"),
    "no digest of its dataset": lambda record: record["dataset"].pop("digest"),
    "another dataset": lambda record: set_in(record, "dataset", "name", "code"),
    "a long digest": lambda record: set_in(record, "dataset", "digest", "d" * 37),
    "400 digits": lambda record: set_in(record, "metrics", "seconds", 10**400),
    "5,000 digits": lambda record: record.update(began=5000),
    "a part of a token": lambda record: set_in(record, "params", "seq_len", "64.5"),
    "a text for a count": lambda record: set_in(record, "params", "vocab_size", "many"),
    "NaN for training tokens": lambda record: set_in(record, "params", "training_tokens", "nan"),
    "the future": lambda record: record.update(began=4e9, ended=4e9),
    "an end before the beginning": lambda record: record.update(ended=record["began"] - 1),
    "the year 1e300": lambda record: record.update(began=1e300, ended=1e300),
    "another name": lambda record: record.update(name="mine"),
    "a password": lambda record: set_in(record, "tags", "rbptrack.notes", "http://me:hunter2@host"),
    "a text too long": lambda record: set_in(record, "tags", "rbptrack.notes", "x" * 5001),
    "a standard error": lambda record: set_in(record, "metrics", "ce_se", 0.5),
    "a standard error of nothing": lambda record: set_in(record, "metrics", "rbp_7_se", 0.1),
    "tie rate": lambda record: set_in(record, "metrics", "tie_rate", 0.5),
    "a negative time": lambda record: set_in(record, "metrics", "seconds", -1.0),
    "bits per byte below 0": lambda record: set_in(record, "metrics", "bits_per_byte", -1.0),
    "no ranks": lambda record: set_in(record, "tags", "rbptrack.without_ranks", "true"),
    "documents": lambda record: set_in(record, "params", "documents", "61"),
    "400 digits in a curve": lambda record: set_in(record, "curves", "rbp_curve", [[1, 10**400]]),
    "no CE": lambda record: record["metrics"].pop("ce"),
    "a reference that there is not": lambda record: set_in(record, "metrics", "kl", 0.5),
    "no bits for a byte": lambda record: set_in(record, "metrics", "bits_per_byte", 0.0),
    "HTML for a repository": lambda record: set_in(record, "params", "repo", "<script>"),
}


def test_records_that_their_ranks_or_fingerprint_do_not_bear_out_are_refused(exported: Path, other: Store) -> None:
    let_in = []
    for what, change in FALSE_RECORDS.items():
        entries = entries_of(exported)
        (name,) = [name for name in entries if name.endswith("/record.json")]
        record = json.loads(entries[name])
        change(record)
        text = json.dumps(record)
        entries[name] = text.replace(": 5000,", f": {'9' * 5000},").encode()
        if accepted(write(entries), other):
            let_in.append(what)
    assert let_in == []
    assert list(other.finished()) == []


def test_of_two_measurements_none_is_kept_if_one_is_false(store: Store, write_cell: WriteCell, other: Store) -> None:
    for s in (1000, 2000):
        Outbox(store).deliver(write_cell(s))
    export_bundle(store.runs(), Path("shared.zip"))
    let_in = []
    for what, change in FALSE_RECORDS.items():
        entries = entries_of(Path("shared.zip"))
        name = [name for name in entries if name.endswith("/record.json")][-1]
        record = json.loads(entries[name])
        change(record)
        text = json.dumps(record)
        entries[name] = text.replace(": 5000,", f": {'9' * 5000},").encode()
        if accepted(write(entries), other) or list(other.finished()):
            let_in.append(what)
    assert let_in == []


@pytest.fixture
def numbers(store: Store) -> Path:
    """A bundle of a measurement without ranks."""
    columns = {"model": "a-1m", "dataset": "d", "ce": 3.0, "rbp_1": 0.25, "rbp_10": 0.5, "ce_se": 0.125, "seq_len": 64}
    items = [ImportedMeasurement(columns | {"non_embedding_params": 10**6})]
    import_content("table", check_imported(Path("t.csv"), items), Path("t.csv"), store)
    export_bundle(store.runs(), Path("numbers.zip"))
    return Path("numbers.zip").absolute()


FALSE_NUMBERS: Mapping[str, Callable[[dict[str, Any]], object]] = {
    "CE below 0": lambda record: set_in(record, "metrics", "ce", -3.0),
    "CE above 100": lambda record: set_in(record, "metrics", "ce", 1251.9),
    "CE too small for RBP": lambda record: set_in(record, "metrics", "ce", 0.01),
    "RBP_10 above 1": lambda record: set_in(record, "metrics", "rbp_10", 7.5),
    "RBP_10 below RBP_1": lambda record: set_in(record, "metrics", "rbp_10", 0.125),
    "another curve": lambda record: set_in(record, "curves", "rbp_curve", [[1, 0.25], [10, 0.75]]),
    "a falling curve": lambda record: set_in(record, "curves", "rbp_curve", [[10, 0.5], [1, 0.25]]),
    "an error without its number": lambda record: set_in(record, "metrics", "ce_rank_se", 0.1),
    "S of 1.5": lambda record: set_in(record, "metrics", "non_embedding_params", 1.5),
    "S of 1e30": lambda record: set_in(record, "metrics", "non_embedding_params", 1e30),
    "total_params": lambda record: set_in(record, "params", "total_params", "5"),
    "a measured cell": lambda record: record["identity"].pop("imported"),
    "a reference": lambda record: set_in(record, "metrics", "same_top", 0.5),
    "no numbers": lambda record: record.update(metrics={}, curves={}),
    "ranks that it has not": lambda record: record["tags"].pop("rbptrack.without_ranks"),
}


def test_numbers_without_ranks_pass_the_rules_of_imported_rows(numbers: Path, other: Store) -> None:
    let_in = []
    for what, change in FALSE_NUMBERS.items():
        entries = entries_of(numbers)
        (name,) = [name for name in entries if name.endswith("/record.json")]
        record = json.loads(entries.pop(name))
        change(record)
        folder = fingerprint(record["identity"])
        record["tags"]["rbptrack.fingerprint"] = folder
        entries[f"{folder}/record.json"] = json.dumps(record).encode()
        if accepted(write(entries), other):
            let_in.append(what)
    assert let_in == []
    assert accepted(numbers, other)
    assert other.runs()["rbp_10"].tolist() == [0.5]


def test_a_bundle_that_is_cut_is_refused(exported: Path, other: Store) -> None:
    content = exported.read_bytes()
    for part in (content[100:], content[-2000:], content[:-100], content[: len(content) // 2], content[:4], b""):
        Path("cut.zip").write_bytes(part)
        assert not accepted(Path("cut.zip"), other)


def test_an_entry_that_unpacks_to_far_more_than_it_has_is_refused(exported: Path, other: Store) -> None:
    entries = entries_of(exported)
    for ending in ("record.json", "tokens.json", "ranks.parquet", "bundle.json"):
        with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as made:
            for name, content in entries.items():
                made.writestr(name, content + b" " * (2**25 if name.endswith(ending) else 0))
        assert not accepted(Path("bomb.zip"), other), ending


def test_a_table_of_more_rows_than_bytes_is_refused(exported: Path, other: Store) -> None:
    """Equal values pack into nothing, so that a small file may hold billions of rows."""
    entries = entries_of(exported)
    (record_name,) = [name for name in entries if name.endswith("/record.json")]
    (name,) = [name for name in entries if name.endswith("/documents.parquet")]
    rows = 1_000_000
    table = pa.table({"document": np.zeros(rows, "int64"), "id": [""] * rows, "tokens": np.zeros(rows, "int64")})
    pq.write_table(table, "documents.parquet")
    record = json.loads(entries[record_name])
    record["files"]["documents.parquet"] = sha256(Path("documents.parquet"))
    altered = {record_name: json.dumps(record).encode(), name: Path("documents.parquet").read_bytes()}
    with pytest.raises(BadInput, match="1,000,000 rows"):
        import_bundle(write(entries | altered), other)


def test_ranks_that_cannot_be_are_refused(exported: Path, other: Store) -> None:
    entries = entries_of(exported)
    (record_name,) = [name for name in entries if name.endswith("/record.json")]
    (ranks_name,) = [name for name in entries if name.endswith("/ranks.parquet")]
    Path("ranks.parquet").write_bytes(entries[ranks_name])
    table = RankTable.read(Path("ranks.parquet"))
    columns = {name: table.column(name) for name in table.table.column_names}
    for wrong in (
        {"greater": -1},
        {"greater": 600},
        {"logprob": 1.0},
        {"logprob": np.nan},
        {"document": -1},
        {"document": 60},
        {"position": 0},
        {"token": -2},
    ):
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
    file: str, old: bytes, store: Store, write_cell: WriteCell
) -> None:
    artifact = store.artifact(Outbox(store).deliver(write_cell()), file)
    content = artifact.read_bytes()
    assert old in content
    artifact.write_bytes(content.replace(old, old[:-1] + b"2"))
    with pytest.raises(MissingArtifact, match="verify"):
        export_bundle(store.runs(), Path("shared.zip"))
    assert not Path("shared.zip").exists()


def test_an_export_does_not_write_through_a_link(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell())
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
