"""`report`, `analyze` and `plugins`."""

from __future__ import annotations

import os
import webbrowser
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


def test_report_is_a_page_in_the_store_and_in_a_file(
    on_store: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not opened.append(address))
    page = tmp_path / "laws.html"
    code, out, err = on_store(f"report --analyzers 'power_law,k_*' --dataset code --out {page} --open --format svg")
    assert (code, err) == (0, "")
    assert "nano" in page.read_text()
    assert opened == [page.as_uri()]
    assert f"report   {page}" in out
    assert list(tmp_path.rglob("*.svg"))


def test_one_broken_analyzer_does_not_end_the_others(on_store: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    code, out, err = on_store(f"report --analyzers faulty,power_law --plugins-path {tmp_path}")
    assert code == 1
    assert "faulty" in out + err
    assert "Traceback" not in err
    assert "report   " in out
    code, out, err = on_store(f"analyze faulty --plugins-path {tmp_path}")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "faulty.py, line 8" in err
    assert "SystemExit: away" in (Path("mlruns") / "rbptrack.log").read_text()
    code, out, err = on_store(f"analyze faulty --traceback --plugins-path {tmp_path}")
    assert code == 1
    assert "Traceback (most recent call last)" in err


@pytest.mark.parametrize(
    ("kind", "use"),
    [("analyzer", "analyze mine k=7"), ("exporter", "export out --to mine"), ("importer", "import a.losses")],
)
def test_a_new_plugin_works_at_once(on_store: RunCommand, tmp_path: Path, kind: str, use: str) -> None:
    store = f"sqlite:///{Path('mlflow.db').absolute()}"
    os.chdir(tmp_path)
    assert on_store(f"plugins new mine --kind {kind}")[0] == 0
    if kind == "importer":
        store = "sqlite:///imported.db"
        (tmp_path / "a.losses").write_text("pythia-70m wiki 3.2\npythia-160m wiki 3.0\n")
    code, _, err = on_store(f"{use} --tracking-uri {store}")
    assert (code, err) == (0, "")
    assert on_store(f"plugins new mine --kind {kind}")[0] == 2
    assert on_store("plugins")[0] == 0


@pytest.mark.parametrize("name", ["a-b", "1law", "_law", "class", "importers"])
def test_a_name_that_a_plugin_cannot_have_is_refused(name: str, run_command: RunCommand, tmp_path: Path) -> None:
    code, _, err = run_command(f"plugins new {name}")
    assert code == 2
    assert ("letters, digits" in err) == (name in ("a-b", "1law")), "a word of letters is refused for another reason"
    assert not (tmp_path / "plugins").exists()


def test_analyze_takes_options(on_store: RunCommand) -> None:
    code, out, _ = on_store("analyze power_law ks=1,7 --dataset code")
    assert code == 0
    assert "RBP_7" in out
    assert "RBP_10 " not in out


def test_analyzers_explain_their_options(on_store: RunCommand) -> None:
    code, out, err = on_store("analyze power_law --help")
    assert (code, err) == (0, "")
    assert "ks=" in out
    assert on_store("analyze --help")[0] == 0
    assert on_store("analyze")[0] == 2


def test_plugins_are_listed_with_what_they_do(on_store: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nonsense_that_is_not_there\n")
    code, out, err = on_store("plugins")
    assert (code, err) == (0, "")
    assert "power_law" in out
    code, out, err = on_store(f"plugins --plugins-path {tmp_path}")
    assert code == 1
    assert "broken.py" in err
    assert "power_law" in out
