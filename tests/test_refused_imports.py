"""Imports that are refused: every fault is named with its place, and nothing is written; or all is imported."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rbptrack
from rbptrack.base import limits
from rbptrack.base.errors import BadInput, RbptrackError, StoreAway
from rbptrack.commands import export, import_
from rbptrack.config.schema import TrackingConfig
from rbptrack.exchange import delivery
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.tracking.record import Record
from rbptrack.tracking.schema import Tag
from rbptrack.tracking.store import Store
from rbptrack.tracking.writer import Writer
from tests.synthetic import authors_folder, ranked, with_columns

START = "model,dataset,non_embedding_params,"
DIGITS = "9" * 400


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(path: str, *words: str, also: tuple[str, ...] = ()) -> None:
    """An import is refused with each of these words, and there is no store afterwards."""
    with pytest.raises(BadInput) as caught:
        import_.main([path, *also])
    for word in words:
        assert word in str(caught.value)
    assert not Path("mlruns").exists()


TABLES = [
    (START + "ce\na-1,w,-5,2\n", "line 2, column non_embedding_params: must be a whole number above 0; got '-5'"),
    (START + "ce\na-1,w,,2\n", "line 2, column non_embedding_params: S is needed by every law in size"),
    ("model,dataset,ce\na-1,w,2\n", "S is needed by every law in size; without_s=true"),
    ("model,dataset\na-1,w\n", "lacks the column ce or rbp_<k>"),
    (START + "ce\na-1,w,5,NaN\n", "line 2, column ce: must be finite; got 'NaN'"),
    (START + "rbp_10,rbp_2\na-1,w,5,.4,.5\n", "column rbp_10: RBP_k must not fall with k, but rbp_2 is 0.5; got 0.4"),
    (START + "rbp_1\na-1,w,5,-.1\n", "column rbp_1: must be between 0 and 1; got '-.1'"),
    (START + "vocab_size,rbp_100\na-1,w,5,50,.4\n", "column rbp_100: k must be at most vocab_size = 50"),
    (START + "ce,vocab_size\na-1,w,5,2,50257.0\n", "must be a whole number above 0; got '50257.0'"),
    (START + "ce\na-1,w,5,2\n,,,\n", "line 3: the row is empty"),
    (START + "ce,rbp_1\na-1,w,5,,\n", "line 2, column ce: the row holds no result"),
    (START + "ce\n", "holds no row: nothing to import"),
    ("", "is empty: expected a line of column names"),
    ("model,non_embedding_params,ce\na,1,2\n", "lacks the column dataset"),
    (START + f"ce\na-1,w,{DIGITS},2\n", "(400 characters)"),
    (START + f"rbp_{DIGITS}\na-1,w,5,.2\n", "a column whose name has 404 characters"),
    (START + "ce,rbp_0\na-1,w,5,1,.2\n", "column rbp_0: k must be a whole number above 0"),
    (START + "ce\na-1,w,5,2\nb-1,w,5,2\na-1,w,5,3\n", "line 4: is the same measurement as line 2: a-1 on w"),
    (START + "ce\na-1,w,5\n", "line 2: has 3 cells for 4 columns"),
    (START + 'ce\n"a-1,w,5,2\n', "line 2: is not CSV"),
    (START + 'ce\n"a\n-1",w,5,2\nb-1,w,x,2\n', "line 2, column model: must not hold control characters"),
    (START + "ce\na\x1b[31m-1,w,5,2\n", "column model: must not hold control characters; got 'a\\x1b[31m-1'"),
    (START + f"ce\n{'a' * 300},w,5,2\n", "column model: must have at most 200 characters"),
    (START + "ce\n   ,w,5,2\n", "line 2, column model: is missing"),
    (START + "ce,ce\na-1,w,5,2,3\n", "has the column ce more than once"),
]


@pytest.mark.parametrize(("text", "words"), TABLES, ids=range(len(TABLES)))
def test_bad_tables(text: str, words: str, here: Path) -> None:
    (here / "t.csv").write_text(text)
    refused("t.csv", words)


def test_many_faults_are_ten_and_a_count(here: Path) -> None:
    """Lines are counted as an editor counts them, also after a cell of two lines."""
    rows = [START + "ce,notes", 'a-0,w,5,1,"two\nlines"', *(f"a-{i},w,5,x," for i in range(1, 26))]
    (here / "t.csv").write_text("\n".join(rows))
    refused("t.csv", "t.csv has 25 faults; nothing was imported", "line 4, column ce: expected a number; got 'x'")
    with pytest.raises(BadInput, match="and 15 more") as caught:
        import_.main(["t.csv"])
    assert len(str(caught.value).splitlines()) == 12


def test_what_is_no_text_and_no_table(here: Path) -> None:
    (here / "t.csv").write_bytes(b"model,dataset\ncaf\xe9,1\n")
    refused("t.csv", "is not UTF-8 text (byte 17)")
    (here / "t.parquet").write_bytes(b"PAR1 nonsense PAR1")
    refused("t.parquet", "cannot be read as a table")
    frame = pd.DataFrame({"model": ["a-1", "a-2"], "dataset": ["w", None], "ce": ["x", 2.0]}, dtype=object)
    pq.write_table(pa.table({"model": ["a-1"], "dataset": [b"w"], "ce": [True]}), here / "t.parquet")
    refused("t.parquet", "row 1, column dataset: expected a name", "column ce: expected a number; got True")
    frame.astype({"ce": str}).to_parquet(here / "t.parquet")
    refused("t.parquet", "row 1, column ce: expected a number", "row 2, column dataset: is missing")


def test_a_table_whose_footer_understates_what_it_unpacks_to(here: Path) -> None:
    """The pages themselves are asked, before anything is unpacked."""
    path = here / "lying.parquet"
    pq.write_table(pa.table({"model": ["x" * 2_000_000], "dataset": ["wiki"], "ce": [1.0]}), path, compression="zstd")
    honest = pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    said = _as_thrift(honest)
    path.write_bytes(content[:footer] + content[footer:].replace(said, b"\xe4" + b"\x80" * (len(said) - 2) + b"\x00"))
    assert pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size == 50
    refused(str(path), "would unpack to", "times its size")


def _as_thrift(number: int) -> bytes:
    """A whole number in Thrift's compact protocol."""
    digits, rest = [], 2 * number
    while rest:
        digits.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*digits[:-1], digits[-1] & 127])


TWO = {"70m": (1, 7, 300, 2), "160m": (1, 5, 200, 1)}
WITH_RANKS = ("sizes=a/sizes.csv", "vocab_size=1000")


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("top1/metrics.json", "[" * 100_000, "top1/metrics.json: is not JSON"),
        ("top1/metrics.json", '{"RBP_1": NaN}', "top1/metrics.json, key RBP_1: must be finite; got nan"),
        ("top1/metrics.json", '{"mean_ce_loss": 3.6}', "mean_ce_loss: is 3.5, and 3.6 for another k of the model"),
        ("top1/metrics.json", '{"RBP_1": 0.9}', "key RBP_10: RBP_k must not fall with k, but rbp_1 is 0.9"),
        ("top1/metrics.json", '{"RBP_1": 0.3}', "is 0.3, but the ranks beside it give 0.25"),
        ("top1/metrics.json", '{"RBP_1": 0.25, "RBP_2000": 1.0}', "k must be at most vocab_size = 1,000"),
        ("top1/metrics.json", "[1, 2]", "holds none of mean_ce_loss"),
        ("top1/metrics.json", '{"F_N=4": 2, "RBP_1": 0.25}', "key F_N=4: must be between 0 and 1; got 2"),
        ("top1/ranks.json", "[[1, 1, 2.0], [1001, 2, 1.0]]", "row 2: a rank must be a whole number from 1 to"),
        ("top1/ranks.json", "[[1.5, 1, 2.0]]", "row 1: a rank must be a whole number"),
        ("top1/ranks.json", "[[1, -1, 2.0]]", "row 1: a position must be a whole number from 0"),
        ("top1/ranks.json", f"[[{DIGITS}, 1, 2.0]]", "ranks.json"),
        ("top1/ranks.json", "[[1, 2], [3]]", "does not hold rows [rank, position, ce]"),
        ("top1/ranks.json", '{"rank": [1]}', "does not hold rows"),
    ],
)
def test_bad_authors_files(file: str, text: str, words: str, here: Path) -> None:
    authors_folder(here / "a", **TWO)
    (here / "a/wiki/EleutherAI/pythia-70m" / file).write_text(text)
    refused("a", words, also=WITH_RANKS)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("metrics.json", "top1/metrics.json: has 36 bytes, and at most 20 are read"),
        ("ranks.json", "bytes, and at most 20 are read; without vocab_size=... the metrics are"),
    ],
)
def test_authors_files_that_would_fill_the_memory(
    name: str, words: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authors_folder(here / "a", **TWO)
    monkeypatch.setitem(limits.BYTES_OF_AUTHORS, name, 20)
    refused("a", words, also=WITH_RANKS)


def test_sizes_are_needed_and_checked(here: Path) -> None:
    authors_folder(here / "a", **TWO)
    refused("a", "has 2 faults", "S is needed by every law in size")
    (here / "a/sizes.csv").write_text("model,non_embedding_params\nEleutherAI/pythia-70m,-1\n")
    refused("a", "sizes.csv", "must be a whole number above 0; got '-1'", also=WITH_RANKS)
    refused("a", "vocab_size=-5: must be a whole number above 0", also=("vocab_size=-5",))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Path:
    """A bundle of two measurements with ranks, which came from the authors' folders."""
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "mlruns").mkdir()
    shutil.copy(empty_store, folder / "mlruns/mlflow.db")
    authors_folder(folder / "a", **TWO)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert import_.main(["a", *WITH_RANKS]) == 0
        assert export.main(["out=b.zip"]) == 0
    return folder / "b.zip"


def changed(bundle: Path, target: Path, change: Callable[[Path], object]) -> Path:
    """A copy of the bundle, of whose first measurement the unpacked folder was changed."""
    folder = target.with_suffix("")
    with zipfile.ZipFile(bundle) as source:
        source.extractall(folder)
    change(next(path for path in sorted(folder.iterdir()) if path.is_dir()))
    with zipfile.ZipFile(target, "w") as made:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            made.write(path, path.relative_to(folder).as_posix())
    shutil.rmtree(folder)
    return target


def record(**changes: Any) -> Callable[[Path], None]:
    """Change record.json: `metrics={"ce": 1}` sets one metric; None takes the key away."""

    def change(folder: Path) -> None:
        data = json.loads((folder / "record.json").read_text())
        for part, values in changes.items():
            if not isinstance(values, dict):
                data[part] = values
                continue
            for key, value in values.items():
                data[part].pop(key) if value is None else data[part].__setitem__(key, value)
        (folder / "record.json").write_text(json.dumps(data))

    return change


def ranks(**columns: list[float]) -> Callable[[Path], None]:
    """Replace columns of the rank table, and make the histogram fit it."""

    def change(folder: Path) -> None:
        table = with_columns(RankTable.read(folder / "ranks.parquet"), **columns)
        table.write(folder / "ranks.parquet")
        table.histogram().write(folder / "histogram.parquet")

    return change


def histogram(*, count: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        old = RankHistogram.read(folder / "histogram.parquet")
        RankHistogram(old.rank, np.array(count), old.logprob, old.vocab_size).write(folder / "histogram.parquet")

    return change


def table(name: str, **columns: list[Any]) -> Callable[[Path], None]:
    """Another table in place of one."""
    other = pa.table(columns).replace_schema_metadata({"rbptrack.vocab_size": "1000"})
    return lambda folder: pq.write_table(other, folder / f"{name}.parquet")


def puffed(folder: Path) -> None:
    """A rank table of three million equal rows, which packs into a few kilobytes."""
    n = 3_000_000
    table = ranked(np.ones(n), vocab_size=1000, position=np.zeros(n)).described()
    pq.write_table(table, folder / "ranks.parquet", row_group_size=n, data_page_size=n, compression="zstd")
    record(metrics={"num_tokens": n})(folder)


def lost(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def content(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


BUNDLES: list[tuple[Callable[[Path], object], str]] = [
    (record(metrics={"ce": 2.0}), "its ranks do not give its numbers: ce is 2, and should be 3.5"),
    (record(metrics={"num_tokens": 5}), "4 ranks, but num_tokens is 5"),
    (record(metrics={"num_tokens": 0}), "num_tokens: must be a whole number above 0; got 0"),
    (record(metrics={"ce": "x"}), "record.json, key metrics.ce: expected a number; got 'x'"),
    (record(metrics={"ce": int(DIGITS)}), "record.json, key metrics.ce: "),
    (record(metrics={"rbp_1": 0.9}), "RBP_k must not fall with k"),
    (record(metrics=[1]), "record.json, key metrics: "),
    (record(metrics={"../../x": 1.0}), "must be a name that MLflow takes; got '../../x'"),
    (record(tags={"rbptrack.kind": "sweep"}), "tags.rbptrack.kind: must be measurement; got 'sweep'"),
    (record(tags={"rbptrack.family": None}), "key family: is missing"),
    (record(tags={"rbptrack.model": 7}), "record.json, key tags.rbptrack.model: "),
    (record(tags={"mlflow.user": "root"}), "record.json, key tags: begins with rbptrack.; got 'mlflow.user'"),
    (record(tags={"rbptrack.fingerprint": "0" * 64}), "it calls itself '0000"),
    (record(params={"model.vocab_size": "many"}), "the param model.vocab_size must be a whole number; got 'many'"),
    (record(params={"model.vocab_size": "1000.0"}), "model.vocab_size: must be a whole number; got '1000.0'"),
    (record(params={"model.non_embedding_params": DIGITS}), "non_embedding_params: must be "),
    (record(params={"model.non_embedding_params": None}), "S is needed by every law in size"),
    (record(started="yesterday"), "record.json, key started: expected a number; got 'yesterday'"),
    (record(ended=-1.0), "record.json, key ended: must be seconds since 1970; got -1"),
    (record(curves={"rbp_curve": {"1": 0.5, "2": 0.1}}), "curves.rbp_curve: must rise with k"),
    (record(curves={"rbp_curve": {"x": 0.5}}), "record.json, key curves.rbp_curve.x"),
    (record(curves={"rbp_curve": {"1": 0.1}}), "its ranks do not give its curve rbp_curve"),
    (record(surprise=1), "record.json, key surprise: is unknown"),
    (content("record.json", b"[" * 10_000), "record.json: Invalid JSON"),
    (content("record.json", b'{"a": '), "record.json: Invalid JSON"),
    (content("ranks.parquet", b"PAR1 nonsense"), "is damaged"),
    (ranks(greater=[0, 6, 2000, 1]), "column greater must be from 0 to 999, since |V| = 1,000; got 0 to 2000"),
    (ranks(ties=[0, -1, 0, 0]), "column ties must be from 0"),
    (ranks(logprob=[-1, -1, -1, float("nan")]), "column logprob must be finite and at most 0"),
    (ranks(logprob=[-1, -1, -1, -1]), "its ranks do not give its numbers: ce is 3.5, and should be 1"),
    (histogram(count=[1, 1, 1, 2]), "its ranks do not give its histogram"),
    (table("histogram", rank=[1, 2], count=[2, 2], logprob=[-3.0, -11.0]), "its ranks do not give its histogram"),
    (table("histogram", rank=["1"], count=[4], logprob=[0.0]), "parquet: must hold two columns of whole numbers"),
    (table("histogram", rank=[1, 2], times=[1, 3]), "is not a histogram of ranks: columns ['rank', 'times']"),
    (table("ranks", rank=[1], p=["x"]), "its ranks do not give its numbers: 1 ranks"),
    (puffed, "which is out of proportion to its size"),
    (lost("ranks.parquet"), "ranks.parquet: its rank table is missing"),
    (lost("histogram.parquet"), "histogram.parquet: its histogram is missing"),
    (lost("record.json"), "record.json is missing"),
    (content("figures/rank_distribution.png", b"no"), "is not a PNG figure"),
]


@pytest.mark.parametrize(("change", "words"), BUNDLES, ids=range(len(BUNDLES)))
def test_bad_bundles(change: Callable[[Path], object], words: str, bundle: Path, here: Path) -> None:
    refused(str(changed(bundle, here / "c.zip", change)), words)


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (b"[]", "is not a bundle of rbptrack"),
        (b'{"format": "x", "rbptrack": 1}', "is not a bundle of rbptrack"),
        (b'{"format": -1, "rbptrack": "1"}', "is not a bundle of rbptrack"),
        (b"\xff\xfe", "is not a bundle of rbptrack"),
        (b'{"format": 1, "rbptrack": "1", "measurements": 9}', "should hold 9 measurements, and holds 2"),
        (b'{"format": 3, "rbptrack": "9.9"}', "was written by rbptrack 9.9, in a newer format"),
    ],
)
def test_garbage_in_the_manifest(manifest: bytes, words: str, bundle: Path, here: Path) -> None:
    refused(str(changed(bundle, here / "c.zip", content("../bundle.json", manifest))), words)


def zipped(path: Path, entries: dict[str, bytes], *, method: int = zipfile.ZIP_STORED) -> str:
    with zipfile.ZipFile(path, "w", method) as made:
        for name, data in ({"bundle.json": b'{"format": 1, "rbptrack": "1"}'} | entries).items():
            made.writestr(name, data)
    return str(path)


ONE = "0" * 64


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/x.json",
        "/etc/record.json",
        f"{ONE}/../../record.json",
        f"{ONE}/figures/../../../x.png",
        f"{ONE}/figures/..png.exe",
        f"{ONE}\\record.json",
        f"{ONE}/figures/{'a' * 300}.png",
        f"{ONE}/model.pkl",
    ],
)
def test_names_of_entries_that_no_bundle_has(name: str, here: Path) -> None:
    refused(zipped(here / "c.zip", {name: b"x"}), "which no bundle does: not imported")
    assert sorted(p.name for p in here.iterdir()) == ["c.zip"]


def test_archives_without_bound(here: Path) -> None:
    """Nothing is unpacked of what would fill the disk, is a link, is there twice, or is encrypted."""
    big = {f"{ONE}/record.json": b" " * (2 << 20)}
    refused(zipped(here / "c.zip", big, method=zipfile.ZIP_DEFLATED), "times its size: not imported")
    refused(zipped(here / "c.zip", {f"{ONE}/record.json": b" " * (17 << 20)}), "at most 16,777,216 are allowed")
    many = {f"{ONE}/figures/{i}.png": b"" for i in range(40)}
    refused(zipped(here / "c.zip", many), "has more than 32 files")
    with zipfile.ZipFile(here / "c.zip", "w") as made:
        made.writestr("bundle.json", b"{}")
        link = zipfile.ZipInfo(f"{ONE}/record.json")
        link.external_attr = 0o120777 << 16
        made.writestr(link, "/etc/passwd")
    refused("c.zip", "is a link: not imported")
    with zipfile.ZipFile(here / "c.zip", "w") as made:
        made.writestr(f"{ONE}/record.json", b"{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            made.writestr(f"{ONE}/record.json", b"{}")
    refused("c.zip", "twice: not imported")
    refused(zipped(here / "c.zip", {}), "holds no measurement: nothing to import")
    (here / "c.zip").write_bytes(b"")
    refused("c.zip", "is not a bundle of rbptrack")


@pytest.fixture
def store(with_store: Path, here: Path) -> Path:
    """A folder to work in with an empty store."""
    return here


def test_a_good_bundle_is_imported_and_may_go_on_to_a_third_store(bundle: Path, store: Path, empty_store: Path) -> None:
    assert import_.main([str(bundle)]) == 0
    assert export.main(["out=again.zip"]) == 0
    (store / "third").mkdir()
    shutil.copy(empty_store, store / "third/m.db")
    assert import_.main(["again.zip", f"tracking.uri=sqlite:///{store}/third/m.db"]) == 0
    there = rbptrack.runs(tracking_uri=f"sqlite:///{store}/third/m.db")
    assert sorted(there.frame["fingerprint"]) == sorted(rbptrack.runs().frame["fingerprint"])
    assert there.ranks(there.frame["run_id"][0]).ce == pytest.approx(3.5)


def statuses(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "mlruns/mlflow.db")) as database:
        return [s for (s,) in database.execute("select status from runs where lifecycle_stage = 'active'")]


def failing(patch: pytest.MonkeyPatch, error: RbptrackError, number: int) -> None:
    """The delivery of this number begins its run, whose answer is lost at first, and fails."""
    deliver, counted = Writer.deliver, count(1)

    def tried(writer: Writer, record: Record, folder: Path, run_id: str = "") -> str:
        if next(counted) != number:
            return deliver(writer, record, folder, run_id)
        for _ in range(2):
            writer.begin(record.name, record.tags)
        raise error

    patch.setattr(Writer, "deliver", tried)


def test_an_import_that_fails_midway_leaves_nothing(bundle: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run is begun and then refused: both are taken back, and the import can be repeated."""
    failing(monkeypatch, RbptrackError("the disk of the tracking store is full"), 2)
    with pytest.raises(RbptrackError, match=r"is full\. Nothing was imported"):
        import_.main([str(bundle)])
    assert statuses(store) == []
    here = Store(TrackingConfig())
    assert not here.open().search_logged_models([here.experiment_id])
    assert import_.main([str(bundle)]) == 0
    assert statuses(store) == ["FINISHED"] * 2


def test_an_import_that_fails_leaves_what_another_process_imported(
    bundle: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = Writer.deliver

    def other_then_full(writer: Writer, record: Record, folder: Path, run_id: str = "") -> str:
        run_id = deliver(writer, record, folder, run_id)
        writer.connection.open().set_tag(run_id, Tag.PROCESS, "{}")  # as if another process had delivered it before
        raise RbptrackError("the disk of the tracking store is full")

    monkeypatch.setattr(Writer, "deliver", other_then_full)
    with pytest.raises(RbptrackError, match=r"is full\. 0 of the measurements are imported"):
        import_.main([str(bundle)])
    assert statuses(store) == ["FINISHED"]


def test_what_an_import_that_was_killed_left_running_is_closed_by_the_next(bundle: Path, store: Path) -> None:
    run_id = Store(TrackingConfig()).writer.begin("half", {Tag.KIND: "measurement"})
    Store(TrackingConfig()).open().set_tag(run_id, Tag.PROCESS, "{}")  # of a process that is gone
    assert import_.main([str(bundle)]) == 0
    assert sorted(statuses(store)) == ["FINISHED", "FINISHED", "KILLED"]


def test_a_store_that_goes_away_midway_is_waited_for(
    bundle: Path, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(delivery, "_PAUSE_SECONDS", 0.01)
    failing(monkeypatch, StoreAway("the tracking store cannot be reached"), 2)
    assert import_.main([str(bundle)]) == 0
    assert "cannot be reached; waiting up to" in capsys.readouterr().out
    assert sorted(statuses(store)) == ["FINISHED"] * 2
