"""Composing many configs: as Hydra composes each, and none of them twice."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl

from rbptrack.config.compose import Composer, measuring, sweep_of
from rbptrack.config.paths import conf_folder
from rbptrack.config.schema import Config
from rbptrack.measurement import Shard
from rbptrack.sweep import cell, hydra_jobs, launch
from rbptrack.sweep.delivery import Delivery
from rbptrack.sweep.outcome import Outcome

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
    """From the command line to the measuring."""
    monkeypatch.chdir(tmp_path)
    measured: list[Config] = []
    composed: list[str] = []
    load = ConfigLoaderImpl.load_configuration

    def counted(self: ConfigLoaderImpl, config_name: str, *args: Any, **kwargs: Any) -> Any:
        composed.append(config_name)
        return load(self, config_name, *args, **kwargs)

    def run(resolved: None, delivery: Delivery, shard: Shard) -> Outcome:
        return delivery.outcome("measured", "x", numbers=dict.fromkeys(("ce", "num_tokens"), 1.0))

    def deliver(config: Config, resolved: None, **_: object) -> Delivery:
        measured.append(config)
        return of(config, SimpleNamespace(fingerprint="f"))  # type: ignore[arg-type]

    of = Delivery.of
    monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", counted)
    monkeypatch.setattr(cell, "run", run)
    monkeypatch.setattr(Delivery, "of", deliver)
    request = measuring(["-m", "model=nano/6k,nano/15k", "dataset=pydocs", "dataset.seed=range(0,5)"])
    settings, cells = sweep_of(request)
    sweep = launch.Sweep(request, settings, cells, [None] * len(cells), [], [])  # type: ignore[list-item]
    assert sweep._measure() == 0
    assert len(composed) <= len(cells) + 2, "twice for settings of Hydra, and once for each cell"
    assert [(c.model.name, c.dataset.seed) for c in measured] == [(c.model.name, c.dataset.seed) for c in cells]
    assert {c.sweep for c in measured} == {sweep.id}
    assert [outcome.status for outcome in sweep.results.collect(cells)] == ["measured"] * 10


def test_of_a_sweep_hydra_shows_the_first_cell(capsys: pytest.CaptureFixture[str]) -> None:
    """It was a traceback."""
    measuring(["-m", "--cfg", "job", "--package", "model", "model=nano/6k,nano/15k"]).show()
    assert "\nsize: 6k\n" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["hydra/launcher=basic", "hydra.verbose=true"])
def test_who_gives_settings_of_hydra_has_hydra_run_every_job(word: str) -> None:
    words = ["-m", "model=nano/6k,nano/15k", "dataset=pydocs"]
    assert not hydra_jobs.wanted(measuring(words))
    assert hydra_jobs.wanted(measuring([*words, word]))
