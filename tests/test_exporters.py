"""Measurements handed to others' tools: runs of Weights & Biases, a folder for the hub, and exporters of one's own."""

from __future__ import annotations

import importlib.util
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.conftest import Program
from tests.exported import exported
from tests.imported import scores_in

OF_THE_HUB = {"repo": "EleutherAI/pythia-70m", "revision": "main", "dataset_repo": "Salesforce/wikitext"}
OF_THE_HUB |= {"dataset_commit": "Salesforce/wikitext@abc", "ended": "1970-01-02T00:00:00+00:00", "dtype": "float32"}


def measurements(*others: dict[str, str]) -> pd.DataFrame:
    """One measurement that belongs to the hub, and others that differ from it in some columns."""
    numbers = {"num_tokens": 1000, "ce": 3.5, "rbp_1": 0.25, "rbp_10": 0.5, "rbp_1_se": 0.01}
    names = {"family": "pythia", "size": "70m", "model": "pythia-70m", "dataset": "wiki"}
    rows = [{"run_id": str(i)} | names | numbers | OF_THE_HUB | other for i, other in enumerate([{}, *others])]
    return pd.DataFrame(rows)


def test_a_folder_for_the_hub_is_read_by_the_hubs_own_library_and_by_us(tmp_path: Path) -> None:
    from huggingface_hub import DatasetCard
    from huggingface_hub._eval_results import parse_eval_result_entries

    others: list[dict[str, str]] = [{"revision": "step1000"}, {"repo": "../../a"}, {"dataset_repo": ""}, {}]
    words = exported(measurements(*others), tmp_path / "out")
    assert words.endswith("; .eval_results of 1)")  # of one text once, of the main revision
    [path] = (tmp_path / "out").rglob("*.yaml")
    assert path.relative_to(tmp_path / "out").as_posix() == (
        "models/EleutherAI/pythia-70m/.eval_results/rbptrack-wiki.yaml"
    )
    entries = parse_eval_result_entries(yaml.safe_load(path.read_text()))
    assert [(e.dataset_id, e.task_id, e.value, e.dataset_revision) for e in entries] == [
        ("Salesforce/wikitext", "rbp_1", 0.25, "abc"),
        ("Salesforce/wikitext", "rbp_10", 0.5, "abc"),
    ]
    assert entries[0].date == "1970-01-02T00:00:00+00:00"
    again = scores_in(tmp_path / "out" / "models")
    assert again[["model", "task", "score"]].to_numpy().tolist() == [
        ["pythia-70m", "wikitext/rbp_1", 0.25],
        ["pythia-70m", "wikitext/rbp_10", 0.5],
    ]
    card = DatasetCard.load(tmp_path / "out" / "README.md")
    assert card.data.to_dict()["configs"][0]["data_files"] == [{"split": "train", "path": "measurements.csv"}]


def test_the_folders_table_is_what_import_takes(program: Program, swept: tuple[Path, str], with_store: Path) -> None:
    done = program("export", "to=hub", f"out={with_store / 'hub'}", "dataset=stdlib", cwd=swept[0])
    assert done.returncode == 0, done.stderr
    assert ".eval_results of 0" in done.stdout
    done = program("import", "hub/measurements.csv", cwd=with_store)
    assert done.returncode == 0, done.stderr
    assert "4 imported" in done.stdout
    for line, said in (
        ("export to=hub out=hub", "exists already"),
        ("export to=hub", "to=hub makes a folder; name it: out=FOLDER"),
        ("export hub=other", "hub=FOLDER was removed; write to=hub out=FOLDER"),
        ("export to=nobody", "no exporter matches nobody. Options: hub, wandb"),
        ("export to=wandb out=nowhere", "no such folder"),
        ("export to=wandb ranks=csv", "are two exports; run one at a time"),
    ):
        done = program(*line.split(), cwd=with_store)
        assert done.returncode, line
        assert said in done.stderr, (line, done.stderr)


KILLED = """
import os
from dataclasses import dataclass
from typing import ClassVar

from rbptrack.analysis.exporting import Exporter


@dataclass(kw_only=True)
class Killed(Exporter):
    makes_folder: ClassVar[bool] = True
    signal: int = 9

    def export(self, runs, out):
        (out / "half.csv").write_text("half")
        if self.signal:
            os.kill(os.getpid(), self.signal)
        return "whole"
"""


def test_a_killed_export_leaves_no_folder(program: Program, with_store: Path) -> None:
    folder = with_store / "plugins" / "exporters"
    folder.mkdir(parents=True)
    (folder / "killed.py").write_text(KILLED)
    (with_store / "t.csv").write_text("model,dataset,ce\na-1b,wiki,2.5\n")
    assert program("import", "t.csv", "without_s=true", cwd=with_store).returncode == 0
    for signal in (9, 15):
        assert program("export", "to=killed", f"signal={signal}", "out=made", cwd=with_store).returncode
        assert not (with_store / "made").exists()
    done = program("export", "to=killed", "signal=0", "out=made", cwd=with_store)
    assert done.returncode == 0, done.stderr
    assert (with_store / "made/half.csv").read_text() == "half"
    assert not list(with_store.glob("*.tmp"))  # of the one that could not tidy up, too


LINES = """
import io
import os
import sys
from dataclasses import dataclass

from rbptrack.analysis.exporting import Exporter


@dataclass(kw_only=True)
class Lines(Exporter):
    project: str = ""

    def export(self, runs, out):
        match self.project:
            case "":
                sys.exit(0)
            case "ended":
                os._exit(0)
            case "forked":
                if child := os.fork():
                    os.waitpid(child, 0)
            case "closed":
                sys.stdout.close()
            case "replaced":
                sys.stdout = io.StringIO()
        return f"{len(runs.frame)} for {self.project}"
"""


def test_an_exporter_of_ones_own_is_a_file(program: Program, with_store: Path) -> None:
    folder = with_store / "plugins" / "exporters"
    folder.mkdir(parents=True)
    (folder / "lines.py").write_text(LINES)
    (with_store / "t.csv").write_text("model,dataset,ce\na-1b,wiki,2.5\n")
    assert program("import", "t.csv", "without_s=true", cwd=with_store).returncode == 0
    done = program("export", "to=lines", "project=ours", cwd=with_store)
    assert done.returncode == 0, done.stderr
    assert "1 for ours" in done.stdout
    done = program("export", "to=lines", cwd=with_store)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "the exporter lines failed: SystemExit: 0" in done.stderr
    done = program("export", "to=lines", "project=ended", cwd=with_store)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "the exporter lines failed: SystemExit: os._exit(0)" in done.stderr
    for project in ("forked", "closed", "replaced"):
        done = program("export", "to=lines", f"project={project}", cwd=with_store)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(f"1 for {project}") == 1


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed: pip install '.[dev]'")
def test_wandb_gets_settings_numbers_and_the_curve(program: Program, swept: tuple[Path, str], tmp_path: Path) -> None:
    """Offline: what `wandb sync` would send is read from its files, which hold nothing of this machine."""
    line = ("export", "to=wandb", "offline=true", "project=ranks", "size=6k", "dataset=stdlib", f"out={tmp_path}")
    done = program(*line, cwd=swept[0])
    assert done.returncode == 0, done.stderr
    assert "1 run of wandb" in done.stdout
    [path] = tmp_path.rglob("*.wandb")
    assert not list(tmp_path.rglob("requirements.txt"))
    run, curve, summary = _records(path)
    assert run.project == "ranks"
    assert run.display_name == "nano-6k / stdlib"
    assert not run.host
    config = {item.key: item.value_json for item in run.config.update}
    assert config["family"] == '"nano"'
    assert "rbp_1" not in config
    assert {"ce", "rbp_1", "rbp_10", "bits_per_byte"} <= set(summary)
    assert curve[0][0] == 1
    assert curve[0][1] == pytest.approx(summary["rbp_1"])
    assert curve[-1] == (4096, 1.0)


def _records(path: Path) -> tuple[Any, list[tuple[float, float]], dict[str, float]]:
    """The run, its steps of k and RBP_k, and its summary, of wandb's file."""
    from wandb.proto import wandb_internal_pb2

    run, curve, summary = None, [], dict[str, float]()
    for data in _pieces(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("run"):
            run = record.run
        if record.HasField("history"):
            step = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            curve.append((step["k"], step["rbp"]))
        if record.HasField("summary"):
            summary |= {i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.summary.update}
    return run, curve, summary


def _pieces(log: bytes, block: int = 1 << 15) -> Iterator[bytes]:
    """Records of LevelDB's log format after a header of 7 bytes: crc, length and kind (whole, first, middle, last)."""
    at, kept = 7, b""
    while at + 7 <= len(log):
        if block - at % block < 7:
            at += block - at % block
            continue
        length, kind = struct.unpack_from("<HB", log, at + 4)
        kept += log[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield kept
            kept = b""
