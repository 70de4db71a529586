"""What the README says is what happens."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import ROOT, Program
from tests.patience import PATIENCE
from tests.test_report import unfolded

README = (ROOT / "README.md").read_text()
COMMANDS = [
    command.partition("   #")[0].strip()
    for command in re.findall(r"^(?:    |\$ )(rbptrack .*)$", README, re.MULTILINE)
    if not command.startswith(("rbptrack ui", "rbptrack demo"))
]
FEW = "dataset.documents=20"


@pytest.fixture(scope="module", params=[FEW, pytest.param("", marks=pytest.mark.long)], ids=["few", "whole"])
def demo(
    program: Program, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Path, str]:
    """A folder in which the main job has run: every nano model on both corpora, or on some of their documents."""
    folder = tmp_path_factory.mktemp("demo")
    assert "$ rbptrack demo" in README
    done = program("demo", *filter(None, [request.param]), cwd=folder, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder, done.stdout


@pytest.fixture(scope="module")
def workplace(demo: tuple[Path, str]) -> Path:
    """The demo's folder with the README's analyzer in it."""
    folder, _ = demo
    (plugin,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (folder / "plugins").mkdir()
    (folder / "plugins/best.py").write_text(plugin)
    return folder


def test_the_family_follows_a_law(demo: tuple[Path, str]) -> None:
    """R^2 >= 0.985 for CE and k = 1, 10, 100 on code, >= 0.97 on English; alpha rises with k on both."""
    folder, _ = demo
    (table,) = folder.glob("mlruns/artifacts/rbptrack/*/artifacts/power_law/tables/fits.csv")
    fits = pd.read_csv(table).set_index(["dataset", "k"])
    for dataset, least in (("stdlib", 0.985), ("pydocs", 0.97)):
        for k in (0, 1, 10, 100):
            assert fits.loc[(dataset, k), "r2"] >= least, (dataset, k)
        alpha = [fits.loc[(dataset, k), "alpha"] for k in (1, 10, 100, 1000)]
        assert all(a < b for a, b in itertools.pairwise(alpha))


def test_better_models_are_larger_ones(demo: tuple[Path, str]) -> None:
    folder, _ = demo
    (table,) = folder.glob("mlruns/artifacts/rbptrack/*/artifacts/cells.csv")
    cells = pd.read_csv(table)
    assert len(cells) == 14
    for _, rows in cells.groupby("dataset"):
        ordered = rows.sort_values("non_embedding_params")
        assert ordered["ce"].is_monotonic_decreasing
        assert ordered["rbp_1"].is_monotonic_increasing


def test_its_report_is_one_page_short_until_it_is_opened(demo: tuple[Path, str]) -> None:
    """And it needs nothing of the network."""
    folder, said = demo
    assert all(len(line) <= 100 for line in said.splitlines())
    report = re.search(r"report +(\S+report\.html)", said)
    assert report
    page = (folder / report[1]).read_text(encoding="utf-8")
    words = unfolded(page)
    assert "How well 7 nano models rank the next token on pydocs and stdlib" in " ".join(words)
    assert len(words) <= 1500
    assert len(page) < 6e6
    assert page.count("<svg") >= 6
    names = (
        r'xmlns(:\w+)?="[^"]*"|http://(www\.w3\.org|purl\.org|creativecommons\.org)[^"<]*|https?://matplotlib\.org/?'
    )
    assert "http" not in re.sub(names, "", page)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command: str, workplace: Path, program: Program) -> None:
    """With one analyzer, and as few documents, where the main job has shown what all of them take."""
    words = shlex.split(command)[1:]
    measures = "=" in words[0]
    few = ["analyzers=power_law"] if words[0] == "report" or (measures and "analyzers=" not in command) else []
    few += [FEW] if measures and "pythia" not in command else []
    done = program(*words, *few, cwd=workplace)
    if "pythia" in command:  # there is no network here, and the program says what to do about it
        assert done.returncode == (1 if words[0] == "plan" else 2)
        assert "hf download EleutherAI/pythia-14m" in done.stdout + done.stderr
    else:
        assert done.returncode == 0, done.stdout + done.stderr
    if "analyze best" in command:
        assert re.search(r"pydocs +nano-2m +0\.\d+", done.stdout)


def test_every_kind_of_command_is_there() -> None:
    assert len(COMMANDS) >= 5
    assert any("analyze best" in command for command in COMMANDS)


def test_it_counts_the_families_and_datasets_that_ship() -> None:
    """Those of the hub: the built-in family and the places for a user's own are not counted."""
    families = {path.name for path in (ROOT / "conf/model").iterdir() if path.is_dir()} - {
        "nano",
        "nano-quant",
        "nano-seeds",
    }
    datasets = {path.stem for path in (ROOT / "conf/dataset").glob("*.yaml")} - {"files", "hf"}
    assert f"**{len(families)} model families and {len(datasets)} datasets**" in README


def test_files_it_names_exist() -> None:
    for name in re.findall(r"\]\(([^)h][^)]*)\)|`((?:conf|rbptrack|plugins|tools|docs)/[\w./]*)`", README):
        path = (name[0] or name[1]).partition("#")[0]
        if path != "plugins/best.py":
            assert (ROOT / path).exists(), path
