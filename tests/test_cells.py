"""Composing many configs: as Hydra composes each, and none of them twice."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import pytest
from hydra import compose
from hypothesis import Phase, assume, example, given, settings

from rbptrack.analysis.discovery import EXECUTORS, discover
from rbptrack.base.errors import BadInput
from rbptrack.config.cells import cells
from rbptrack.config.compose import Composer
from rbptrack.config.hydra_internals import initialized
from rbptrack.config.registration import register_plugins
from rbptrack.config.request import measuring
from rbptrack.sweep import hydra_jobs
from rbptrack.sweep.executors import requested

WORDS = (
    ["model=nano/6k", "dataset=pydocs"],
    ["model=nano/6k", "dataset=pydocs", "dataset.seed=3", "model.revision=main"],
    ["model=pythia/70m", "dataset=stdlib", "protocol=paper", "k=paper"],
    ["model=nano/6k", "dataset=pydocs"],
    ["model=nano/6k", "dataset=pydocs", "dataset.seed=4", "launch=slurm", "launch.time=7"],
)


def test_what_is_composed_is_what_hydra_composes() -> None:
    composer = Composer("config", [])
    register_plugins("launch", discover(EXECUTORS).load())
    for words in WORDS:
        with initialized():
            wanted = compose("config", overrides=list(words))
        assert composer.compose(words) == wanted


@pytest.mark.parametrize("key", ["model.parallel", "model.processes", "reference.parallel"])
def test_a_removed_key_gets_its_sentence(key: str, tmp_path: Path) -> None:
    """Typed, and in a config file of an earlier version."""
    words = ["model=nano/6k", "dataset=pydocs", *(["reference=nano/6k"] if key.startswith("reference") else [])]
    with pytest.raises(BadInput, match=r"^model\.\w+ was removed; model\.device_map=auto spreads a model"):
        measuring([*words, f"{key}=2"])
    group, _, leaf = key.partition(".")
    file = tmp_path / "model/mine.yaml"
    file.parent.mkdir()
    file.write_text(f"family: f\nsize: 1k\npath: x\n{leaf}: 2\n")
    with pytest.raises(BadInput, match=r"^In 'model/mine': model\.\w+ was removed; model\.device_map=auto"):
        Composer("config", [f"--config-dir={tmp_path}"]).compose(
            [*words[1:], f"{'+model@reference' if group != 'model' else 'model'}=mine"]
        )


def test_the_configs_of_a_folder_named_later_are_not_those_of_before(tmp_path: Path) -> None:
    for seed in (1, 2):
        file = tmp_path / str(seed) / "dataset/mine.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(f"defaults: [pydocs]\nseed: {seed}\n")
        assert (
            Composer("config", ["--config-dir", str(tmp_path / str(seed))]).compose(["dataset=mine"]).dataset.seed
            == seed
        )


GROUPS = {
    "model": ["nano/6k,nano/15k", "pythia/70m", "nano/1*", "nano-checkpoints/6k-*", "strange/everywhere,nano/6k"],
    "dataset": ["pydocs,stdlib", "wiki", "nested,pydocs", "crossing,pydocs"],
    "protocol": ["default,paper", "paper"],
    "k": ["paper", "[1,5]"],
    "launch": ["slurm", "gpus"],
}
VALUES = [
    *["dataset.seed=range(1,4)", "dataset.seed=3", "dataset.documents=5,${model.seed}", "dataset.fields=[a],[b,c]"],
    *["+dataset.where.lang=en,de", "dataset.where={a: b},{c: d}", "dataset.name='a, b',c", "dataset.config=null"],
    *["model.seed=1,2", "model.dtype=bfloat16,float32", "model.training_tokens=1e9,2e9"],
    *["model.max_memory={0: 1GiB},{1: 2GiB}", "model.size=${dataset.name}", "model.size=9m", "model.revision=a,b"],
    *["engine.threads=1,2", "candidates=tokenizer,vocabulary", "rank=strict", "sweep=mine", "k.values=[1],[2]"],
    *["dataset.seq_len=64,32", "model.tf32=true,false", "~model.seed", "dataset.seed=x,1"],
]


MOST_JOBS = 10  # Hydra takes 27 ms for each


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configs that change more than their own group, or read others."""
    conf = tmp_path_factory.mktemp("conf")
    for name, text in {
        "model/strange/everywhere": "# @package _global_\nmodel: {family: f, size: s, repo: r}\ndataset: {seed: 9}\n",
        "dataset/nested": "defaults: [pydocs]\nseed: 7\n",
        "dataset/crossing": "name: ${model.family}\nrepo: a\nsplit: b\nseq_len: ${dataset.context}0\n",
    }.items():
        (conf / f"{name}.yaml").parent.mkdir(parents=True, exist_ok=True)
        (conf / f"{name}.yaml").write_text(text)
    return conf


@example(groups={"model": "hf"}, values=["model.repo=org/x-70m,org/y-1b", "dataset.seed=1,2"])
@example(groups={"model": "nano/*"}, values=["dataset.seed=1,x"])
@settings(deadline=None, max_examples=6, phases=[Phase.explicit, Phase.generate])
@given(
    st.fixed_dictionaries({}, optional={group: st.sampled_from(each) for group, each in GROUPS.items()}),
    st.lists(st.sampled_from(VALUES), max_size=4, unique_by=lambda word: word.partition("=")[0]),
)
def test_the_cells_of_a_sweep_are_those_that_hydra_composes(
    strange: Path, groups: dict[str, str], values: list[str]
) -> None:
    """Whatever is chosen and swept; or it is refused where Hydra refuses it."""
    words = [f"{group}={choice}" for group, choice in groups.items()] + values
    request = requested(["-m", "--config-dir", str(strange), *words])
    assume(len(request.jobs()) <= MOST_JOBS)
    try:
        wanted = [request.composer.compose_typed(job) for job in request.jobs()]
    except BadInput:
        with pytest.raises(BadInput):
            list(cells(request.composer, request.jobs()))
    else:
        assert list(cells(request.composer, request.jobs())) == wanted


def test_of_a_sweep_hydra_shows_the_first_cell(capsys: pytest.CaptureFixture[str]) -> None:
    """It was a traceback."""
    measuring(["-m", "--cfg", "job", "--package", "model", "model=nano/6k,nano/15k"]).show()
    assert "\nsize: 6k\n" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["hydra/launcher=basic", "hydra.verbose=true"])
def test_who_gives_settings_of_hydra_has_hydra_run_every_job(word: str) -> None:
    words = ["-m", "model=nano/6k,nano/15k", "dataset=pydocs"]
    assert not hydra_jobs.wanted(measuring(words))
    assert hydra_jobs.wanted(measuring([*words, word]))
