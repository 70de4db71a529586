"""What Hydra composes and keeps; `conf/` of the folder one works in is found as `plugins/` is."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbptrack.config.compose import Composer
from rbptrack.config.paths import conf_folder, unused_configs, working_conf
from rbptrack.config.request import measuring, sweep_of
from tests.conftest import ROOT


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "conf/model/mine"
    folder.mkdir(parents=True)
    (folder / "small.yaml").write_text("family: mine\nsize: small\nrepo: org/mine\n")
    (folder / "large.yaml").write_text("family: mine\nsize: large\nrepo: org/large\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_configs_are_options_and_patterns_take_them(mine: Path) -> None:
    request = measuring(["model=mine/*", "dataset=stdlib"])
    assert [config.model.repo for config in sweep_of(request)[1]] == ["org/mine", "org/large"]
    assert "mine/small" in Composer("config", []).options("model")


def test_what_ships_wins_and_is_said(mine: Path) -> None:
    (mine / "conf/model/nano").mkdir()
    (mine / "conf/model/nano/6k.yaml").write_text("family: other\nsize: 6k\nrepo: org/other\n")
    (mine / "conf/config.yaml").write_text("of: another program\n")
    assert unused_configs() == ["conf/model/nano/6k.yaml"]
    _, (config,) = sweep_of(measuring(["model=nano/6k"]))
    assert config.model.family == "nano"


def test_a_checkout_is_not_taken_for_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert working_conf() is None
    monkeypatch.chdir(ROOT / "docs")
    assert working_conf() is None
    assert conf_folder() == ROOT / "conf"
    assert unused_configs() == []
