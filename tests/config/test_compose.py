"""Words of a command line become typed configs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir

from rbptrack.base.errors import BadInput
from rbptrack.config.command_line import config_names, read_command_line
from rbptrack.config.compose import checked_config, compose, config_from_values, words_for_hydra
from rbptrack.config.paths import conf_folder
from rbptrack.config.registration import published_names, training_steps
from rbptrack.config.schema import Dtype, Launch, Rank, Sampling, SequenceRule


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_without_a_word_there_is_one_cell() -> None:
    (config,) = compose([])
    assert (config.model.name, config.dataset.name, config.dataset.seq_len) == ("nano-115k", "pydocs", 256)
    assert Path(config.model.path).is_dir()
    assert config.k.values[:3] == [1, 3, 10]


def test_a_sweep_is_the_product_of_its_axes() -> None:
    configs = compose(["model=nano/*,!nano/2m", "dataset=stdlib,pydocs", "dataset.seq_len=64,128"])
    cells = [(config.model.size, config.dataset.name, config.dataset.seq_len) for config in configs]
    assert len(cells) == len(set(cells)) == 6 * 2 * 2
    assert cells[0] == ("6k", "stdlib", 64)


def test_cells_are_those_that_hydra_composes_itself() -> None:
    (ours,) = compose(["model=pythia/70m", "dataset=wiki", "protocol=paper", "k=paper", "dataset.documents=7"])
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        words = ["model=pythia/70m", "dataset=wiki", "protocol=paper", "k=paper", "dataset.documents=7"]
        assert checked_config(hydra_compose("config", words)) == ours
    assert (ours.rank, ours.dataset.sequence, ours.dataset.sampling) == (
        Rank.strict,
        SequenceRule.truncate,
        Sampling.shuffle,
    )
    assert ours.dataset.documents == 7


def test_lists_are_values_if_the_key_is_not_swept() -> None:
    words = ["k=1,10", "analyzers=power_law,k_*", "dataset=files", "dataset.files=a.txt,b c.txt", "plugins.path=x,~"]
    (config,) = compose(words)
    assert config.k.values == [1, 10]
    assert config.analyzers == ["power_law", "k_*"]
    assert config.dataset.files == ["a.txt", "b c.txt"]
    assert config.plugins.path == ["x", "~"]
    assert compose(["k=[2]"])[0].k.values == [2]
    assert compose(["k=paper"])[0].k.values == [1, 10, 100, 500, 2500, 10000]
    assert compose(["analyzers=[]"])[0].analyzers == []


def test_a_reference_is_a_model() -> None:
    (config,) = compose(["model=nano/6k", "reference=nano/2m", "reference.dtype=bfloat16"])
    assert config.reference is not None
    assert config.reference.name == "nano-2m"
    assert (config.reference.dtype, config.model.dtype) == (Dtype.bfloat16, Dtype.float32)
    both = compose(["reference=nano/6k,nano/15k"])
    assert [c.reference.name for c in both if c.reference] == ["nano-6k", "nano-15k"]
    assert compose(["reference=null"])[0].reference is None
    (hub,) = compose(["reference=org/Big-7b"])
    assert hub.reference is not None
    assert (hub.reference.family, hub.reference.size, hub.reference.repo) == ("big", "7b", "org/Big-7b")


def test_sizes_need_no_family_after_the_first() -> None:
    names = [config.model.name for config in compose(["model=nano/6k,15k,pythia/70m,160m"])]
    assert names == ["nano-6k", "nano-15k", "pythia-70m", "pythia-160m"]
    for words in ("model=15k,nano/6k", "model=nano/6k,70m"):
        with pytest.raises(BadInput):
            compose([words])


def test_what_has_no_config_is_named_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "my model-70m").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "one.txt").write_text("a")
    words = ["model=nano/6k,org/Name-1.4B,./my model-70m", "dataset=./texts,org/news,./one.txt,./texts/*.jsonl"]
    configs = compose(words)
    assert len(configs) == 12
    models = {c.model.name: c.model for c in configs}
    assert list(models) == ["nano-6k", "name-1.4b", "my model-70m"]
    assert models["name-1.4b"].repo == "org/Name-1.4B"
    assert Path(models["my model-70m"].path).is_dir()
    datasets = {c.dataset.name: c.dataset for c in configs}
    assert datasets["texts"].path == "texts"
    assert datasets["news"].repo == "org/news"
    assert datasets["one"].files == ["one.txt"]
    assert any(dataset.files == ["texts/*.jsonl"] for dataset in datasets.values())
    for word in ("model=phytia/70m", "model=nano/7k", "model=word"):
        with pytest.raises(BadInput):
            compose([word])


def test_checkpoints_are_revisions_of_declared_steps() -> None:
    configs = compose(["model=pythia/70m,pythia/14m", "model.revision=step1,step1000"])
    assert [(c.model.name, c.model.training_tokens) for c in configs][:2] == [
        ("pythia-70m@step1", 2_097_152),
        ("pythia-70m@step1000", 2_097_152_000),
    ]
    chosen = compose(["model=pythia/70m", "model.revision=step14*000,!step141000"])
    assert [c.model.revision for c in chosen] == ["step14000", "step140000", "step142000", "step143000"]
    (main,) = compose(["model=pythia/12b"])
    assert main.model.training_tokens == 143_000 * 2_097_152
    assert len([name for name in config_names("model") if name.startswith("nano-checkpoints/")]) == 19
    (small,) = compose(["model=nano-checkpoints/6k-step64"])
    assert (small.model.name, small.model.training_tokens) == ("nano-checkpoints-6k@step64", 64 * 2048)
    for words in (["model=pythia/70m", "model.revision=step3"], ["model=nano/6k", "model.revision=step*"]):
        with pytest.raises(BadInput, match=r"model\.revision"):
            compose(words)
    (commit,) = compose(["model=pythia/70m", "model.revision=0f1e2d"])
    assert commit.model.training_tokens == 0


def test_configs_of_ones_own_are_found(tmp_path: Path) -> None:
    for place in ("conf", "more conf"):
        (tmp_path / place / "model/mine").mkdir(parents=True)
    (tmp_path / "conf/model/mine/1m.yaml").write_text("family: mine\nsize: 1m\npath: /m\n")
    (tmp_path / "more conf/model/mine/2m.yaml").write_text("family: mine\nsize: 2m\npath: /m\n")
    assert [c.model.size for c in compose(["model=mine/*"])] == ["1m"]
    assert [c.model.size for c in compose(["model=mine/*", "--config-dir", "more conf"])] == ["1m", "2m"]
    words = ["model=mine/*", f"hydra.searchpath=[file://{tmp_path / 'more conf'}]"]
    assert [c.model.size for c in compose(words)] == ["1m", "2m"]
    (tmp_path / "conf/model/bad.yaml").write_text("family: [")
    with pytest.raises(BadInput, match=r"bad\.yaml"):
        compose(["model=bad"])
    (tmp_path / "conf/model/odd.yaml").write_text("family: x\nsise: 1m\n")
    with pytest.raises(BadInput, match=r"dataset\.seq_len="):
        compose(["seqlen=256"])
    with pytest.raises(BadInput, match="sise"):
        compose(["model=odd"])
    (tmp_path / "conf/model/part.yaml").write_text("size: 1m\npath: /m\n")
    with pytest.raises(BadInput, match=r"model\.family="):
        compose(["model=part"])
    (tmp_path / "conf/dataset").mkdir()
    (tmp_path / "conf/dataset/latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(BadInput):
        compose(["dataset=latin"])


def test_free_keys_need_no_plus() -> None:
    (config,) = compose(["dataset.where.lang=en", "launch=slurm", "launch.options.gres=gpu:1", "launch.show=true"])
    assert config.dataset.where == {"lang": "en"}
    assert (config.launch.kind, config.launch.options, config.launch.show) == (Launch.slurm, {"gres": "gpu:1"}, True)
    assert compose(["dataset.where={lang: en}"])[0].dataset.where == {"lang": "en"}
    assert compose(["model.max_memory.0=20GiB"])[0].model.max_memory == {"0": "20GiB"}
    assert compose(["launch=gpus", "launch.gpus=0,3"])[0].launch.gpus == ["0", "3"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("modle=nano/6k", "model="),
        ("documents=5", "dataset.documents="),
        ("nano/6k", "model=nano/6k"),
        ("model", "model="),
        ("=x", "key"),
        ("--model=nano/6k", "model=nano/6k"),
        ("--multirn", "--multirun"),
        ("rank=strct", "strict"),
        ("model.dtype=float23", "float32"),
        ("k=1,x", "k="),
        ("k=0", "k must"),
        ("engine.batch_tokens=many", "engine.batch_tokens"),
        ("dataset=", "dataset="),
        ("reference.dtype=float16", "reference="),
        ("model.repo=org/x", "model.repo"),
        ("dataset=files", "dataset.files"),
        ("model=nano/6k{", "nano/6k"),
        ("sweep=a,b", "sweep"),
        ("model=nano/6k model=nano/15k", "twice"),
        ("--config-dir=nope", "nope"),
        ("model.seed=range(0,1000000000)", "10,000"),
        ("dataset.where.token=x", "token"),
    ],
)
def test_a_wrong_word_gets_a_line(words: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        compose(words.split(" "))
    assert said in str(caught.value)
    assert 1 <= len(str(caught.value).splitlines()) <= 2
    assert "=x" not in str(caught.value) or "token" not in str(caught.value)


VALUES: dict[str, dict[str, object]] = {
    "model": {"family": "mine", "path": "/m", "size": "", "dtype": "bfloat16"},
    "dataset": {"name": "texts", "files": ["a.txt"], "seq_len": 64},
    "k": {"values": [1, 10]},
}


def test_pythons_values_make_a_config() -> None:
    config = config_from_values(VALUES)
    assert (config.model.dtype, config.dataset.sequence, config.k.values) == (
        Dtype.bfloat16,
        SequenceRule.slide,
        [1, 10],
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dataset.context", 8.5),
        ("dataset.seq_len", "64"),
        ("dataset.sequence", ["slide"]),
        ("dataset.name", 3),
        ("dataset.name", "${k}"),
        ("dataset.name", "???"),
        ("dataset.fields", "text"),
        ("dataset.where", {"a": 1}),
        ("k.values", [1.5]),
        ("k.values", [True]),
        ("k.values", 10),
        ("engine.batch_tokens", None),
        ("model.dtype", "float64"),
    ],
)
def test_pythons_values_are_of_their_types(key: str, value: object) -> None:
    part, _, name = key.partition(".")
    with pytest.raises(BadInput, match=rf"{key}|a value is missing") as caught:
        config_from_values(VALUES | {part: {**VALUES.get(part, {}), name: value}})
    assert len(str(caught.value).splitlines()) == 1


def test_many_cells_are_refused_before_they_are_made() -> None:
    with pytest.raises(BadInput, match="10,000"):
        compose(["model=**", "dataset=*", "dataset.seed=range(0,1000)", "model.seed=range(0,1000)"])


def test_hydras_own_words_are_told_from_ours() -> None:
    assert not read_command_line(["-m", "model=nano/*", "hydra.searchpath=[file:///]"]).is_hydras_own
    for word in ("--cfg=job", "--info", "hydra/launcher=joblib", "hydra.sweeper.n_trials=3", "--hydra-help"):
        assert read_command_line(["model=nano/6k", word]).is_hydras_own


def test_words_for_hydra_have_their_patterns_expanded() -> None:
    words = words_for_hydra(["model=nano/6k,nano/15k", "k=1,10", "hydra/launcher=joblib"])
    assert words == ["--multirun", "model=nano/6k,nano/15k", "k.values=[1,10]", "hydra/launcher=joblib"]
    shown = words_for_hydra(["--cfg", "job", "model=nano/?k"])
    assert shown == ["--cfg=job", "model=nano/6k"]
    assert words_for_hydra(["-m", "--cfg=job", "model=nano/6k"]) == ["--cfg=job", "model=nano/6k"]
    assert words_for_hydra(["hydra.verbose=true"]) == ["hydra.verbose=true"]
    assert words_for_hydra(["hydra/sweeper=optuna", "dataset.seq_len=64"])[0] == "--multirun"


def test_globs_of_hydra_match_configs_in_subfolders() -> None:
    words = read_command_line(["model=glob(nano/*,exclude=*/?m)", "model.seed=choice(1,2)"]).overrides
    assert words == ["model=nano/6k,nano/15k,nano/38k,nano/115k,nano/311k,nano/760k", "model.seed=choice(1,2)"]
    assert len(compose(["dataset=glob([*],exclude=[wiki,p*])", "dataset.head=64"])) > 5


def test_every_config_composes() -> None:
    """Composes one size of each family. The configs of the other sizes differ in two words."""
    by_family = {name.partition("/")[0]: name for name in config_names("model") if name != "hf"}
    chosen = ",".join(by_family.values())
    assert len(compose([f"model={chosen}"])) == len(by_family) > 20
    datasets = [name for name in config_names("dataset") if name not in ("hf", "files")]
    assert len(compose([f"dataset={','.join(datasets)}"])) == len(datasets)


def test_families_of_repositories_are_known() -> None:
    known = published_names()
    assert known["pythia-70m"] == ("pythia", "70m")
    assert len(known) > 80


@pytest.mark.parametrize("steps", ["a:b", "-1", "1:2:0", "0:99999999999"])
def test_training_steps_are_numbers_and_not_too_many(steps: str) -> None:
    assert training_steps("0,8, 10:30:10") == [0, 8, 10, 20, 30]
    with pytest.raises(BadInput):
        training_steps(steps)
