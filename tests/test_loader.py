"""Composing many configs: as Hydra composes each, and none of them twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl

from rbptrack.config.compose import Composer, measuring, sweep_of
from rbptrack.config.paths import conf_folder
from rbptrack.config.schema import Config
from rbptrack.measurement import Shard
from rbptrack.sweep import launch, work
from rbptrack.sweep.outcome import OUTCOME, Outcome

WORDS = (
    ["model=nano/6k", "dataset=pydocs"],
    ["model=nano/6k", "dataset=pydocs", "dataset.seed=3", "model.revision=main"],
    ["model=pythia/70m", "dataset=stdlib", "protocol=paper", "k=paper"],
    ["model=nano/6k", "dataset=pydocs"],
    ["model=nano/6k", "dataset=pydocs", "dataset.seed=4", "launch=slurm", "launch.time=7"],
)


def test_what_is_composed_is_what_hydra_composes() -> None:
    composer = Composer("config", [])
    for words in WORDS:
        with initialize_config_dir(str(conf_folder()), version_base="1.3"):
            wanted = compose("config", overrides=list(words))
        assert composer.compose(words) == wanted


def test_the_configs_of_a_folder_named_later_are_not_those_of_before(tmp_path: Path) -> None:
    for seed in (1, 2):
        file = tmp_path / str(seed) / "dataset/mine.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(f"defaults: [pydocs]\nseed: {seed}\n")
        assert (
            Composer("config", ["--config-dir", str(tmp_path / str(seed))]).compose(["dataset=mine"]).dataset.seed
            == seed
        )


def test_a_sweep_composes_each_cell_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    measured: list[Config] = []

    def measure(config: Config, folder: Path, label: str, shard: Shard) -> None:
        measured.append(config)
        Outcome(config.title, config.model.name, config.dataset.name, "measured").write(folder)

    monkeypatch.setattr(work, "measure", measure)
    request = measuring(["-m", "model=nano/6k,nano/15k", "dataset=pydocs", "dataset.seed=range(0,5)"])
    settings, cells = sweep_of(request)
    composed: list[str] = []
    load = ConfigLoaderImpl.load_configuration

    def counted(self: ConfigLoaderImpl, config_name: str, *args: Any, **kwargs: Any) -> Any:
        composed.append(config_name)
        return load(self, config_name, *args, **kwargs)

    monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", counted)
    sweep = launch.Sweep(request, settings, cells, [], [])
    assert sweep._run_jobs() == 0
    assert len(composed) < len(cells) - 2, "a few times for settings of Hydra, and never for a cell"
    assert [(c.model.name, c.dataset.seed) for c in measured] == [(c.model.name, c.dataset.seed) for c in cells]
    assert {c.sweep for c in measured} == {sweep.id}
    assert all((sweep.folder / str(n) / OUTCOME).exists() for n in range(10))
    assert "- dataset.seed=2" in (sweep.folder / "7/.hydra/overrides.yaml").read_text()
    assert "seed: 2" in (sweep.folder / "7/.hydra/config.yaml").read_text()


@pytest.mark.parametrize("word", ["hydra/launcher=basic", "hydra.verbose=true"])
def test_who_gives_settings_of_hydra_has_hydra_run_every_job(word: str) -> None:
    from rbptrack.sweep import here

    words = ["-m", "model=nano/6k,nano/15k", "dataset=pydocs"]
    assert here.possible(measuring(words))
    assert not here.possible(measuring([*words, word]))
