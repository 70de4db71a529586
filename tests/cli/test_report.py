"""Tests of the commands `report`, `analyze` and `plugins`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import RunCommand

FAULTY = '''
from rbptrack.analysis import Analyzer, Report, Runs

class Faulty(Analyzer):
    """Fails."""

    def analyze(self, runs: Runs) -> Report:
        raise SystemExit("away")
'''


FETCHES = '''
from pydantic import SecretStr
from rbptrack.analysis import Analyzer, Report, Runs

class Fetches(Analyzer):
    """Needs a login."""

    login: SecretStr
    """the login of the server"""

    fails: bool = False

    def analyze(self, runs: Runs) -> Report:
        if self.fails:
            raise OSError(f"401 for https://host/?login={self.login.get_secret_value()}")
        report = Report({"q": "a number"})
        report.headline = f"The login {self.login} has {len(self.login.get_secret_value())} characters."
        report.add("q", 1.0, family="nano", dataset="code")
        return report
'''


def test_report_writes_a_page_and_figures_and_opens_the_page(
    run_in_store: RunCommand, tmp_path: Path, opened_addresses: list[str]
) -> None:
    page = tmp_path / "laws.html"
    code, out, err = run_in_store(f"report --analyzers 'power_law,k_*' --dataset code --out {page} --open --format svg")
    assert (code, err) == (0, "")
    assert "nano" in page.read_text()
    assert opened_addresses == [page.as_uri()]
    assert f"report   {page}" in out
    assert list(tmp_path.rglob("*.svg"))


def test_report_shows_the_other_analyzers_if_one_fails(run_in_store: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    code, out, err = run_in_store(f"report --analyzers faulty,power_law --plugins-path {tmp_path}")
    assert code == 1
    assert "faulty" in out + err
    assert "Traceback" not in err
    assert "report   " in out


def test_analyze_names_the_line_of_a_failure_and_logs_the_traceback(run_in_store: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    code, _, err = run_in_store(f"analyze faulty --plugins-path {tmp_path}")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "faulty.py, line 8" in err
    assert "SystemExit: away" in (Path("mlruns") / "rbptrack.log").read_text()


@pytest.mark.parametrize("options", ["", "fails=true", "fails=true --traceback", "unknown=1"])
def test_secret_of_a_plugin_is_in_no_file_and_not_shown(options: str, run_in_store: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "fetches.py").write_text(FETCHES)
    code, out, err = run_in_store(f"analyze fetches 'login=correct horse' {options} --plugins-path {tmp_path}")
    assert code == {"": 0, "unknown=1": 2}.get(options, 1)
    assert options or "has 13 characters" in out
    assert "correct" not in out + err
    for file in filter(Path.is_file, Path.cwd().rglob("*")):
        assert not any(secret in file.read_bytes() for secret in (b"correct horse", b"correct%20horse")), file


def test_analyze_refuses_a_secret_that_is_too_short_to_be_hidden(run_in_store: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "fetches.py").write_text(FETCHES)
    assert run_in_store(f"analyze fetches login=abc --plugins-path {tmp_path}")[0] == 2


def test_analyze_with_traceback_prints_the_traceback(run_in_store: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    code, _, err = run_in_store(f"analyze faulty --traceback --plugins-path {tmp_path}")
    assert code == 1
    assert "Traceback (most recent call last)" in err


@pytest.mark.parametrize(
    ("kind", "command_line"),
    [("analyzer", "analyze mine k=7"), ("exporter", "export out --to mine"), ("importer", "import a.losses")],
)
def test_plugins_new_writes_a_plugin_that_works(
    run_in_store: RunCommand, tmp_path: Path, kind: str, command_line: str
) -> None:
    """Create a plugin in an empty folder and use it. The second `plugins new` must not overwrite its file."""
    store = f"sqlite:///{Path('mlflow.db').absolute()}"
    os.chdir(tmp_path)
    assert run_in_store(f"plugins new mine --kind {kind}")[0] == 0
    if kind == "importer":
        store = "sqlite:///imported.db"
        (tmp_path / "a.losses").write_text("pythia-70m wiki 3.2\npythia-160m wiki 3.0\n")
    code, _, err = run_in_store(f"{command_line} --tracking-uri {store}")
    assert (code, err) == (0, "")
    assert run_in_store(f"plugins new mine --kind {kind}")[0] == 2
    assert run_in_store("plugins")[0] == 0


@pytest.mark.parametrize("name", ["a-b", "1law", "_law", "class", "importers"])
def test_plugins_new_refuses_a_name_that_no_plugin_can_have(name: str, run_command: RunCommand, tmp_path: Path) -> None:
    code, _, err = run_command(f"plugins new {name}")
    assert code == 2
    assert "my_law" in err
    assert not (tmp_path / "plugins").exists()


def test_analyze_passes_options_to_the_analyzer(run_in_store: RunCommand) -> None:
    code, out, _ = run_in_store("analyze power_law k=1,7 --dataset code")
    assert code == 0
    assert "RBP_7" in out
    assert "RBP_10 " not in out


def test_analyze_help_lists_the_options_of_an_analyzer(run_in_store: RunCommand) -> None:
    code, out, err = run_in_store("analyze power_law --help")
    assert (code, err) == (0, "")
    assert "k=" in out


def test_analyze_without_an_analyzer_shows_help_only_if_asked(run_in_store: RunCommand) -> None:
    assert run_in_store("analyze --help")[0] == 0
    assert run_in_store("analyze")[0] == 2


def test_plugins_lists_the_analyzers(run_in_store: RunCommand) -> None:
    code, out, err = run_in_store("plugins")
    assert (code, err) == (0, "")
    assert "power_law" in out


def test_plugins_names_a_broken_file_and_lists_the_others(run_in_store: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nonsense_that_is_not_there\n")
    code, out, err = run_in_store(f"plugins --plugins-path {tmp_path}")
    assert code == 1
    assert "broken.py" in err
    assert "power_law" in out


@pytest.fixture
def damaged_file(run_in_store: RunCommand, store_folder: Path) -> Iterator[Callable[[str], Path]]:
    """A function that cuts a file of the measurement nano-15k/code in half. The file is restored after the test."""
    (row,) = json.loads(run_in_store("list --format json --model nano-15k --dataset code")[1])
    contents: dict[Path, bytes] = {}

    def cut(name: str) -> Path:
        (path,) = store_folder.glob(f"mlruns/*/{row['run_id']}/artifacts/{name}")
        contents[path] = path.read_bytes()
        path.write_bytes(contents[path][: len(contents[path]) // 2])
        return path

    yield cut
    for path, content in contents.items():
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("ranks.parquet", "report --analyzers power_law --dataset code --out {out}"),
        ("ranks.parquet", "analyze power_law --dataset code"),
        ("ranks.parquet", "read nano/* code --out {out}"),
        ("tokens.json", "report --analyzers power_law --dataset code --out {out}"),
        ("tokens.json", "compare nano-6k/code nano-15k/code"),
        ("documents.parquet", "read nano/15k code --out {out}"),
        ("unscored.parquet", "read nano/15k code --out {out}"),
    ],
)
def test_commands_fail_and_keep_a_damaged_file_that_makes_their_results_incomplete(
    name: str, command: str, run_in_store: RunCommand, damaged_file: Callable[[str], Path], tmp_path: Path
) -> None:
    command = command.format(out=tmp_path / "page.html")
    assert run_in_store(command)[0] == 0
    path = damaged_file(name)
    cut = path.read_bytes()
    code, out, err = run_in_store(command)
    assert code == 1
    assert path.parts[-3] in out + err
    assert path.read_bytes() == cut


def test_compare_with_a_tolerance_fails_if_a_file_is_damaged(
    run_in_store: RunCommand, damaged_file: Callable[[str], Path]
) -> None:
    command = "compare nano-6k/code nano-15k/code --tolerance 100"
    assert run_in_store(command)[0] == 3  # too few documents
    damaged_file("tokens.json")
    assert run_in_store(command)[0] == 1


def test_report_methods_prints_models_texts_and_versions(run_in_store: RunCommand) -> None:
    code, out, _ = run_in_store("report --methods --dataset code")
    assert code == 0
    for text in ("nano (6k", "code", "24 documents", "jackknife", "rbptrack"):
        assert text in " ".join(out.split())


def test_report_writes_tables_of_the_chosen_k_in_latex(run_in_store: RunCommand, tmp_path: Path) -> None:
    words = "report --analyzers power_law --format latex --k 7 --dataset code"
    assert run_in_store(f"{words} --out {tmp_path / 'page.html'}")[0] == 0
    tables = (tmp_path / "page-figures/power_law.tex").read_text()
    assert "RBP$_{7}$" in tables
    assert "RBP$_{10}$" not in tables
    assert tables.count(r"\toprule") == tables.count(r"\bottomrule") >= 1
