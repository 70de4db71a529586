"""Tests of the commands `export` and `import`: bundles, tables of results, exporters and importers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import RunCommand, RunProgram

EXPORTER = '''
from pathlib import Path
from rbptrack.analysis import Runs
from rbptrack.analysis.plugin import Exporter

class Lines(Exporter):
    """A line for each measurement."""

    file: str = "lines.txt"
    """the name of the file"""

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


def test_import_of_a_bundle_adds_its_measurements_once(run_in_store: RunCommand, tmp_path: Path) -> None:
    bundle = tmp_path / "code.zip"
    code, out, _ = run_in_store(f"export {bundle} --dataset code")
    assert code == 0
    assert out.startswith("2 measurements")
    uri = f"--tracking-uri sqlite:///{tmp_path}/other.db"
    for _ in range(2):  # the second import adds nothing
        assert run_in_store(f"import {bundle} {uri}")[0] == 0
        assert run_in_store(f"list {uri}")[1].splitlines()[-1] == "2 measurements"


def test_export_does_not_overwrite_a_bundle(run_in_store: RunCommand, tmp_path: Path) -> None:
    bundle = tmp_path / "code.zip"
    assert run_in_store(f"export {bundle} --dataset code")[0] == 0
    assert run_in_store(f"export {bundle}")[0] == 2


def test_export_and_import_of_a_bundle_refuse_options(run_in_store: RunCommand, tmp_path: Path) -> None:
    bundle = tmp_path / "code.zip"
    assert run_in_store(f"export {bundle} --dataset code")[0] == 0
    assert run_in_store(f"export {tmp_path / 'x.zip'} a=b")[0] == 2
    assert run_in_store(f"import {bundle} a=b")[0] == 2


def test_import_reads_family_and_size_from_the_model_of_a_table(run_in_store: RunCommand, tmp_path: Path) -> None:
    table = tmp_path / "results.csv"
    table.write_text("model,dataset,ce,rbp_10\nEleutherAI/pythia-70m,wiki,3.4,0.7\nmine-1.4b,wiki,3.0,0.75\n")
    uri = f"--tracking-uri sqlite:///{tmp_path}/other.db"
    code, _, err = run_in_store(f"import {table} {uri}")
    assert code == 0, err
    rows = run_in_store(f"list {uri} --format csv")[1]
    assert "pythia-70m,pythia,70m" in rows
    assert "mine,1.4b" in rows


def test_import_names_the_importers_if_none_accepts_a_file(run_in_store: RunCommand, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG")
    code, _, err = run_in_store(f"import {picture} --tracking-uri sqlite:///{tmp_path}/other.db")
    assert code == 2
    assert "table" in err


def test_import_says_why_a_damaged_table_cannot_be_read(run_in_store: RunCommand, tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_bytes("model,dataset,ce\na-1m,wiki,3\n".encode("utf-16"))
    code, _, err = run_in_store(f"import {table} --tracking-uri sqlite:///{tmp_path}/other.db")
    assert code == 2
    assert "UTF-16" in err


@pytest.mark.parametrize(
    "source",
    [
        "import nonsense_that_is_not_there",
        IMPORTER.format(option="sheet: int", answer="False"),
        IMPORTER.format(option="sheet: int = 1", answer="1 / 0"),
    ],
)
def test_import_reports_a_broken_importer_and_uses_another(
    source: str, run_command: RunCommand, tmp_path: Path
) -> None:
    (tmp_path / "plugins/importers").mkdir(parents=True)
    (tmp_path / "plugins/importers/faulty.py").write_text(source)
    (tmp_path / "results.csv").write_text("model,dataset,ce,rbp_10\nmine-1m,wiki,3.4,0.7\n")
    code, _, err = run_command("import results.csv")
    assert code == 0
    assert err.count("faulty") >= 1
    assert run_command("list")[1].splitlines()[-1] == "1 measurement"
    assert run_command("import results.csv --importer table")[2] == ""
    assert run_command("import results.csv --importer faulty")[0] != 0


def test_import_leaves_one_database_file_when_the_process_has_ended(run_program: RunProgram, tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("model,dataset,ce,rbp_10\nmine-1m,wiki,3.4,0.7\n")
    process = run_program("import", "results.csv")
    assert process.returncode == 0, process.stderr
    assert [path.name for path in tmp_path.glob("mlflow.db*")] == ["mlflow.db"]


@pytest.fixture
def export_lines(run_in_store: RunCommand, tmp_path: Path) -> Callable[[str], int]:
    """Export the four measurements with the exporter `lines` to the folder `out`. Returns the exit code."""
    (tmp_path / "plugins/exporters").mkdir(parents=True)
    (tmp_path / "plugins/exporters/lines.py").write_text(EXPORTER)

    def export(option: str) -> int:
        line = f"export {tmp_path / 'out'} {option} --to lines --plugins-path {tmp_path / 'plugins'}"
        return run_in_store(line)[0]

    return export


def hidden_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


def test_export_with_an_exporter_writes_a_folder_once(export_lines: Callable[[str], int], tmp_path: Path) -> None:
    assert export_lines("file=mine.txt") == 0
    assert (tmp_path / "out/mine.txt").read_text().count("\n") == 3
    assert export_lines("file=mine.txt") == 2  # the folder exists
    assert not hidden_files(tmp_path)


@pytest.mark.parametrize(
    "option", [pytest.param("file=nothing", id="no file is written"), pytest.param("fle=x", id="unknown option")]
)
def test_export_that_fails_leaves_no_folder(option: str, export_lines: Callable[[str], int], tmp_path: Path) -> None:
    assert export_lines(option) == 2
    assert not (tmp_path / "out").exists()
    assert not hidden_files(tmp_path)
