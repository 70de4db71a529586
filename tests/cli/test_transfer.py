"""`export` and `import`: bundles, tables of others, exporters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import RunCommand, RunProgram

EXPORTER = '''
from pathlib import Path
from rbptrack.analysis import Runs
from rbptrack.analysis.exporting import Exporter

class Lines(Exporter):
    """A line for each measurement."""

    file: str = "lines.txt"
    """of the file"""

    def export(self, runs: Runs, out: Path) -> str:
        if self.file == "nothing":
            return ""
        (out / self.file).write_text("\\n".join(runs["name"]))
        return f"{len(runs)} lines"
'''

IMPORTER = """
from rbptrack.analysis.importing import Importer

class Faulty(Importer):
    {option}

    def takes(self, path):
        return {answer}

    def read(self, path):
        raise ValueError("nothing")
"""


def test_a_bundle_goes_out_and_comes_in(on_store: RunCommand, tmp_path: Path) -> None:
    bundle = tmp_path / "code.zip"
    code, out, _ = on_store(f"export {bundle} --dataset code")
    assert code == 0
    assert out.startswith("2 measurements")
    uri = f"--tracking-uri sqlite:///{tmp_path}/other.db"
    assert on_store(f"import {bundle} {uri}")[0] == 0
    assert on_store(f"list {uri}")[1].splitlines()[-1] == "2 measurements"
    assert on_store(f"import {bundle} {uri}")[0] == 0  # again: they are there
    assert on_store(f"list {uri}")[1].splitlines()[-1] == "2 measurements"
    for line in (f"export {bundle}", f"export {tmp_path / 'x.zip'} a=b", f"import {bundle} a=b"):
        assert on_store(line)[0] == 2


def test_tables_of_others_come_in(on_store: RunCommand, tmp_path: Path) -> None:
    table = tmp_path / "results.csv"
    table.write_text("model,dataset,ce,rbp_10\nEleutherAI/pythia-70m,wiki,3.4,0.7\nmine-1.4b,wiki,3.0,0.75\n")
    uri = f"--tracking-uri sqlite:///{tmp_path}/other.db"
    code, _, err = on_store(f"import {table} {uri}")
    assert code == 0, err
    listed = on_store(f"list {uri} --format csv")[1]
    assert "pythia,70m,pythia-70m" in listed
    assert "mine,1.4b" in listed
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    code, _, err = on_store(f"import {tmp_path / 'picture.png'} {uri}")
    assert code == 2
    assert "table" in err


@pytest.mark.parametrize(
    "fault",
    [
        "import nonsense_that_is_not_there",
        IMPORTER.format(option="sheet: int", answer="False"),
        IMPORTER.format(option="sheet: int = 1", answer="1 / 0"),
    ],
)
def test_a_broken_importer_does_not_stop_an_import(fault: str, run_command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "plugins/importers").mkdir(parents=True)
    (tmp_path / "plugins/importers/faulty.py").write_text(fault)
    (tmp_path / "results.csv").write_text("model,dataset,ce,rbp_10\nmine-1m,wiki,3.4,0.7\n")
    code, _, err = run_command("import results.csv")
    assert code == 0
    assert err.count("faulty") >= 1
    assert run_command("list")[1].splitlines()[-1] == "1 measurement"
    assert run_command("import results.csv --importer table")[2] == ""
    assert run_command("import results.csv --importer faulty")[0] != 0


def test_a_store_is_one_file_when_the_command_has_ended(run_program: RunProgram, tmp_path: Path) -> None:
    (tmp_path / "others.csv").write_text("model,dataset,ce,rbp_10\nmine-1m,wiki,3.4,0.7\n")
    done = run_program("import", "others.csv")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.glob("mlflow.db*")] == ["mlflow.db"]


@pytest.mark.parametrize(("option", "code"), [("file=mine.txt", 0), ("file=nothing", 2), ("fle=x", 2)])
def test_an_exporter_fills_a_folder_or_leaves_none(
    option: str, code: int, on_store: RunCommand, tmp_path: Path
) -> None:
    (tmp_path / "plugins/exporters").mkdir(parents=True)
    (tmp_path / "plugins/exporters/lines.py").write_text(EXPORTER)
    out = tmp_path / "out"
    line = f"export {out} {option} --to lines --plugins-path {tmp_path / 'plugins'}"
    assert on_store(line)[0] == code
    assert out.exists() == (code == 0)
    if code == 0:
        assert (out / "mine.txt").read_text().count("\n") == 3
        assert on_store(line)[0] == 2  # it is there
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
