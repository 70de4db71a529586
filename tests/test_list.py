"""`list` and `show` on a real store: formats, filters, order, names of runs."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.commands.list_ import main as list_
from rbptrack.commands.rm import main as rm
from rbptrack.commands.show import main as show
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.tracking.store import Store


@pytest.fixture(autouse=True)
def in_the_store(swept: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """4 sizes of nano on stdlib and pydocs."""
    monkeypatch.chdir(swept[0])
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def run(command, *arguments: str) -> list[str]:  # type: ignore[no-untyped-def]
        assert command(arguments) == 0
        return capsys.readouterr().out.splitlines()

    return run


def test_a_table_with_every_measurement(said) -> None:  # type: ignore[no-untyped-def]
    header, *rows, count = said(list_)
    metrics = [word for name in ("CE", "RBP_1", "RBP_10", "RBP_100") for word in (name, "±", "se")]
    assert header.split() == ["model", "dataset", "S", "tokens", *metrics, "run"]
    assert all(re.fullmatch(r"0\.\d{4}±0\.\d{4}", row.split()[5]) for row in rows)
    assert count == "8 measurements"
    assert [row.split()[0] for row in rows] == [f"nano-{s}" for s in ("6k", "15k", "38k", "115k") for _ in (1, 2)]


def test_filters_order_and_columns(said) -> None:  # type: ignore[no-untyped-def]
    header, *rows, _ = said(list_, "dataset=std*", "sort=-size", "columns=SIZE,ce,rbp_7", "size=6k,38k,115k")
    assert header.split() == ["size", "CE", "RBP_7"]
    assert [row.split()[0] for row in rows] == ["115k", "38k", "6k"]
    losses = [float(row.split()[1]) for row in rows]
    assert losses == sorted(losses)
    hits = [float(row.split()[2]) for row in rows]
    assert hits == sorted(hits, reverse=True)
    asked = said(list_, "k=5", "dataset=stdlib")[0].split()
    assert asked == ["model", "dataset", "S", "tokens", "CE", "±", "se", "RBP_5", "run"]


def test_every_column_is_a_record_a_block(said) -> None:  # type: ignore[no-untyped-def]
    lines = said(list_, "nano", "size=6k,15k", "dataset=pydocs", "columns=all")
    assert [line for line in lines if line and not line.startswith(" ")] == ["nano-6k / pydocs", "nano-15k / pydocs"]
    (started, _) = (line for line in lines if line.startswith("  started "))
    assert re.fullmatch(r"  started +20\d\d-\d\d-\d\d \d\d:\d\d UTC", started)


def test_formats(said) -> None:  # type: ignore[no-untyped-def]
    rows = list(csv.DictReader(io.StringIO("\n".join(said(list_, "format=csv", "dataset=pydocs")))))
    as_json = json.loads("\n".join(said(list_, "format=json", "dataset=pydocs")))
    runs = Store(TrackingConfig()).reader.runs(FilterConfig(dataset=["pydocs"]))
    assert [row["run_id"] for row in rows] == [row["run_id"] for row in as_json] == list(runs.frame["run_id"])
    assert [float(row["ce"]) for row in rows] == list(runs.frame["ce"])
    assert as_json[0]["rbp_10"] == pytest.approx(runs.frame["rbp_10"][0], abs=1e-9)
    markdown = said(list_, "format=markdown", "dataset=pydocs")
    assert markdown[1].count("|") == 10
    assert "| nano-6k" in markdown[2]
    latex = said(list_, "format=latex", "columns=model,rbp_1", "dataset=pydocs")
    assert latex[0] == r"\begin{tabular}{lr}"
    assert r"model & RBP\_1 \\" in latex


def test_quiet_prints_run_ids(said, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("RBPTRACK_QUIET", "1")
    ids = said(list_, "dataset=pydocs")
    assert len(ids) == 4
    assert all(len(each) == 32 for each in ids)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sort=cee"], "no column matches cee. Did you mean ce"),
        (["columns=model,datset"], "Did you mean dataset?"),
        (["columns=rpb_10"], "Did you mean rbp_10"),
        (["family=nanoo"], r"no measurement has family=nanoo. Did you mean nano\? The store has nano"),
        (["model", "nano/6k"], r"'model' is an option\. Write model=nano/6k"),
        (["size=116k"], r"Did you mean 115k.* The store has 6k, 15k, 38k, 115k"),
    ],
)
def test_typos(arguments: list[str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        list_(arguments)


def test_filters_leave_names_out(said) -> None:  # type: ignore[no-untyped-def]
    def listed(*filters: str) -> set[str]:
        return {row["model"] + "/" + row["dataset"] for row in json.loads("\n".join(said(list_, "--json", *filters)))}

    every = {f"nano-{size}/{dataset}" for size in ("6k", "15k", "38k", "115k") for dataset in ("pydocs", "stdlib")}
    small = {"nano-6k/pydocs", "nano-15k/pydocs", "nano-38k/pydocs"}
    assert listed("model=nano/*,!nano/115k", "dataset=!stdlib") == small
    assert listed("size=*k,!6k,!15k") == {name for name in every if "-6k" not in name and "-15k" not in name}
    assert listed("model=nano-6k,nano/15k", "family=!pythia*") == {n for n in every if "-6k" in n or "-15k" in n}
    with pytest.raises(BadInput, match=r"no measurement has model=nano/7k\. Did you mean nano-"):
        list_(["model=nano/7k"])
    with pytest.raises(BadInput, match=r"no measurement has dataset=\*,!\*. The store has pydocs, stdlib"):
        list_(["dataset=*,!*"])


def test_one_measurement(said, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    lines = said(show, "nano-6k/stdlib", "k=1,7")
    runs = Store(TrackingConfig()).reader.runs(FilterConfig(size=["6k"], dataset=["stdlib"]))
    row = runs.frame.iloc[0]
    histogram = runs.histogram(row["run_id"])
    text = "\n".join(lines)
    assert lines[0] == "nano-6k / stdlib"
    assert f"{row['ce']:.4f}  {row['ce_se']:.4f}" in text
    assert f"{histogram.rbp(7):.4f}" in text
    bars = [line for line in lines if line.endswith("%")]
    assert len(bars) == 13  # 1, 2, 3-4, ..., 2049-4096
    assert bars[2].split()[0] == "3-4"
    assert bars[2].split()[-1] == f"{histogram.rbp(4):.2%}"
    assert bars[-1].split()[-1] == "100.00%"
    assert row["run_id"] in text
    assert "histogram.parquet" in text
    assert lines == said(show, row["run_id"][:10], "k=1,7")
    assert lines == said(show, "NANO/6k / stdlib", "k=1,7")


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("nano-6k", r"'nano-6k' is ambiguous: nano-6k/pydocs \([0-9a-f]{8}\), nano-6k/stdlib .*\. Pick one"),
        ("nano-6k/stdlb", "Did you mean nano-6k/stdlib"),
        ("zzzz", "no measurement is called zzzz. Available: nano-6k/pydocs"),
    ],
)
def test_a_word_that_names_none_or_several(word: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        show([word])


def test_the_first_of_a_list(said) -> None:  # type: ignore[no-untyped-def]
    whole = said(list_, "sort=ce")
    assert said(list_, "sort=ce", "limit=2", "--json")[-1] == "]"
    assert said(list_, "sort=ce", "limit=2")[1:3] == whole[1:3]
    assert said(list_, "limit=2")[-1] == f"2 of {whole[-1]}"


def test_what_is_removed_is_passed_over(  # type: ignore[no-untyped-def]
    said, untouched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(untouched, tmp_path / "store")
    monkeypatch.chdir(tmp_path / "store")
    with pytest.raises(BadInput, match="2 measurements: nano-6k/pydocs, nano-6k/stdlib: no terminal"):
        rm(["size=6k"])
    assert said(rm, "nano-6k/stdlib", "nano-15k/stdlib", "yes=true") == [
        "removed 2 measurements: nano-6k/stdlib, nano-15k/stdlib"
    ]
    assert said(list_)[-1] == "6 measurements"
    assert [row.strip() for row in said(list_, "dataset=stdlib", "columns=size")[1:-1]] == ["38k", "115k"]
