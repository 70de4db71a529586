"""Odd folders: each works, or is refused in a line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

import rbptrack
from rbptrack.base.errors import BadInput
from rbptrack.commands import import_
from rbptrack.config.paths import home
from rbptrack.config.patterns import as_value
from rbptrack.config.request import measuring
from rbptrack.config.schema import TrackingConfig
from rbptrack.tracking.store import Store
from tests.conftest import Program
from tests.synthetic import authors_folder

ODD = """a'b "c" #d; [ü] {e}, f=g & $h ~"""


@pytest.mark.parametrize("name", ["a${x}b", "a?b", "a%20b"])
def test_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(BadInput, match="which Hydra and MLflow take for more than a name") as caught:
        home()
    assert "\n" not in str(caught.value)
    assert list((tmp_path / name).iterdir()) == []


def test_a_sweep_in_an_odd_folder(program: Program, with_store: Path) -> None:
    """The store lies in it, the jobs' logs and the report too, and nothing lies elsewhere."""
    place = with_store / ODD
    place.mkdir()
    shutil.move(with_store / "mlruns", place)
    done = program("model=nano/6k,nano/15k", "dataset.documents=2", "analyzers=power_law", cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in with_store.iterdir()] == [ODD]
    assert len(list(place.glob("mlruns/artifacts/rbptrack/*/artifacts/ranks.parquet"))) == 2
    assert {path.name for path in place.iterdir()} == {"mlruns"}


def test_a_new_store_in_an_odd_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ODD).mkdir()
    monkeypatch.chdir(tmp_path / ODD)
    authors_folder(tmp_path / ODD, **{"70m": (1, 7)})
    assert import_.main([".", "vocab_size=50304", "without_s=true"]) == 0
    runs = rbptrack.runs()
    assert runs.ranks(runs.frame["run_id"][0]).strict_rank.tolist() == [1, 7]
    assert [path.name for path in tmp_path.iterdir()] == [ODD]


def test_a_shallow_relative_folder_is_imported(with_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authors_folder(with_store, **{"70m": (1, 7)})
    monkeypatch.chdir(with_store / "wiki/EleutherAI/pythia-70m")
    uri = f"sqlite:///{with_store / 'mlruns/mlflow.db'}"
    assert import_.main([".", f"tracking.uri={uri}", "without_s=true"]) == 0
    assert list(rbptrack.runs(tracking_uri=uri).frame["dataset"]) == ["wiki"]


@pytest.mark.parametrize(
    "text", ["/a'b", "/a b", "/a#b", "/ü", '/a"b', "/a\\b", "/a\\'b", "/a[b]{c}", "/a,b=c:d", "/a\\"]
)
def test_hydra_reads_a_quoted_text_as_it_is(text: str) -> None:
    assert str(OverridesParser.create().parse_override(f"x={as_value(text)}").value()) == text


def test_config_dir_works_beside_searchpath(tmp_path: Path) -> None:
    for folder, name in (("it's one", "mine"), ("two", "yours")):
        (tmp_path / folder / "dataset").mkdir(parents=True)
        (tmp_path / folder / f"dataset/{name}.yaml").write_text(f"name: {name}\nfiles: [x.txt]\n")
    arguments = [f"hydra.searchpath=[file://{tmp_path / 'two'}]", "--config-dir", str(tmp_path / "it's one")]
    request = measuring([*arguments, "model=nano/6k", "dataset=mine,yours"])
    names = [request.composer.compose(["model=nano/6k", f"dataset={name}"]).dataset.name for name in ("mine", "yours")]
    assert names == ["mine", "yours"]


def test_a_database_may_be_given_with_quoted_letters(with_store: Path) -> None:
    assert Store(TrackingConfig(uri="sqlite:////home/me/a%20b/mlflow.db")).database == Path("/home/me/a b/mlflow.db")
    with pytest.raises(BadInput, match=r"path with \? or % in it"):
        Store(TrackingConfig(uri="sqlite:////home/me/a%3Fb/mlflow.db"))
