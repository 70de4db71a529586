"""Tests that words of a command line and values from Python become typed configs."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir

from rbptrack.base.errors import BadInput
from rbptrack.config.choices import config_names
from rbptrack.config.compose import checked_config, compose, config_from_values, read_words
from rbptrack.config.paths import conf_folder
from rbptrack.config.schema import Dtype, Launch, Rank, Sampling, SequenceRule


@pytest.fixture(autouse=True)
def _empty_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_compose_without_words_returns_the_default_cell() -> None:
    (config,) = compose([])
    assert (config.model.name, config.dataset.name, config.dataset.seq_len) == ("nano-115k", "pydocs", 256)
    assert Path(config.model.path).is_dir()
    assert config.k.values[:3] == [1, 3, 10]


def test_compose_returns_the_product_of_all_values() -> None:
    configs = compose(["model=nano/*,!nano/2m", "dataset=stdlib,pydocs", "dataset.seq_len=64,128"])
    cells = [(config.model.size, config.dataset.name, config.dataset.seq_len) for config in configs]
    assert len(cells) == len(set(cells)) == 6 * 2 * 2
    assert cells[0] == ("6k", "stdlib", 64)


def test_models_without_a_size_in_their_names_have_different_names_in_one_family() -> None:
    words = ["model=./small,org/large,org/acme-7b", "model.family=mine"]
    assert [config.model.name for config in compose(words)] == ["mine-small", "mine-large", "mine-7b"]
    assert [config.model.name for config in compose(words[:1])] == ["small", "large", "acme-7b"]


def test_compose_names_the_path_if_a_name_without_a_slash_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    with pytest.raises(BadInput, match=r"model=\./small"):
        compose(["model=small"])


def test_compose_returns_the_config_that_hydra_composes() -> None:
    words = ["model=pythia/70m", "dataset=wiki", "protocol=paper", "k=paper", "dataset.documents=7"]
    (config,) = compose(words)
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        assert checked_config(hydra_compose("config", words)) == config


@pytest.mark.parametrize(
    "alternatives_by_position",
    [
        [["model=pythia/70m", "model=pythia/14m"], ["model.revision=step1", "model.revision=main"], ["dataset=wiki"]],
        [["model.seed=1", "model.seed=2"], ["model=nano/6k", "model=nano/15k"], ["dataset=pydocs", "dataset=stdlib"]],
        [["reference=nano/6k", "reference=nano/15k"], ["reference.dtype=float32", "reference.dtype=bfloat16"]],
        [["protocol=default", "protocol=paper"], ["dataset.sequence=slide", "dataset.sequence=truncate"]],
        [["model.family=${dataset.name}", "model.family='a b'"], ["dataset=pydocs", "dataset=stdlib"]],
        [["engine.threads=1", "engine.threads=2"], ["engine={threads: 3}"]],
        [["engine={threads: 3}"], ["engine.threads=1", "engine.threads=2"]],
        [["dataset.where={a: x}", "dataset.where={b: y}"], ["dataset.seed=1", "dataset.seed=2"]],
    ],
)
def test_compose_of_a_sweep_returns_the_configs_that_hydra_composes_for_its_cells(
    alternatives_by_position: list[list[str]],
) -> None:
    words = [
        alternatives[0].partition("=")[0] + "=" + ",".join(word.partition("=")[2] for word in alternatives)
        for alternatives in alternatives_by_position
    ]
    expected = []
    for words_of_cell in product(*alternatives_by_position):
        with initialize_config_dir(str(conf_folder()), version_base="1.3"):
            expected.append(checked_config(hydra_compose("config", read_words(words_of_cell).words_for_hydra())))
    assert compose(words) == expected


def test_protocol_paper_sets_strict_ranks_and_truncated_shuffled_documents() -> None:
    (config,) = compose(["model=pythia/70m", "dataset=wiki", "protocol=paper", "k=paper", "dataset.documents=7"])
    assert config.rank is Rank.strict
    assert config.dataset.sequence is SequenceRule.truncate
    assert config.dataset.sampling is Sampling.shuffle
    assert config.dataset.documents == 7


def test_compose_reads_commas_as_a_list_if_the_key_is_a_list() -> None:
    words = ["k=1,10", "analyzers=power_law,k_*", "dataset=files", "dataset.files=a.txt,b c.txt", "plugins.path=x,~"]
    (config,) = compose(words)
    assert config.k.values == [1, 10]
    assert config.analyzers == ["power_law", "k_*"]
    assert config.dataset.files == ["a.txt", "b c.txt"]
    assert config.plugins.path == ["x", "~"]


def test_compose_reads_a_list_in_brackets() -> None:
    assert compose(["k=[2]"])[0].k.values == [2]
    assert compose(["analyzers=[]"])[0].analyzers == []


def test_compose_reads_k_from_a_config() -> None:
    assert compose(["k=paper"])[0].k.values == [1, 10, 100, 500, 2500, 10000]


def test_compose_reads_a_reference_as_a_model_with_its_own_dtype() -> None:
    (config,) = compose(["model=nano/6k", "reference=nano/2m", "reference.dtype=bfloat16"])
    assert config.reference is not None
    assert config.reference.name == "nano-2m"
    assert (config.reference.dtype, config.model.dtype) == (Dtype.bfloat16, Dtype.float32)


def test_compose_sweeps_over_references() -> None:
    configs = compose(["reference=nano/6k,nano/15k"])
    assert [config.reference.name for config in configs if config.reference] == ["nano-6k", "nano-15k"]


def test_compose_with_reference_null_has_no_reference() -> None:
    assert compose(["reference=null"])[0].reference is None


def test_compose_reads_a_repository_as_a_reference() -> None:
    (config,) = compose(["reference=org/Big-7b"])
    assert config.reference is not None
    assert (config.reference.family, config.reference.size, config.reference.repo) == ("big", "7b", "org/Big-7b")


def test_compose_takes_the_family_of_a_size_from_the_element_before_it() -> None:
    names = [config.model.name for config in compose(["model=nano/6k,15k,pythia/70m,160m"])]
    assert names == ["nano-6k", "nano-15k", "pythia-70m", "pythia-160m"]


@pytest.mark.parametrize("word", ["model=15k,nano/6k", "model=nano/6k,70m"])
def test_compose_refuses_a_size_if_no_family_before_it_has_that_size(word: str) -> None:
    with pytest.raises(BadInput):
        compose([word])


def test_compose_names_models_without_a_config_by_their_repository_or_folder(tmp_path: Path) -> None:
    (tmp_path / "my model-70m").mkdir()
    configs = compose(["model=nano/6k,org/Name-1.4B,./my model-70m"])
    models = {config.model.name: config.model for config in configs}
    assert list(models) == ["nano-6k", "name-1.4b", "my model-70m"]
    assert models["name-1.4b"].repo == "org/Name-1.4B"
    assert Path(models["my model-70m"].path).is_dir()


def test_compose_reads_a_dataset_without_a_config_as_a_folder_repository_file_or_pattern(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "one.txt").write_text("a")
    folder, repository, file, pattern = compose(["dataset=./texts,org/news,./one.txt,./texts/*.jsonl"])
    assert (folder.dataset.name, folder.dataset.path) == ("texts", "texts")
    assert (repository.dataset.name, repository.dataset.repo) == ("news", "org/news")
    assert (file.dataset.name, file.dataset.files) == ("one", ["one.txt"])
    assert pattern.dataset.files == ["texts/*.jsonl"]


def test_compose_sweeps_over_models_and_datasets_without_configs(tmp_path: Path) -> None:
    (tmp_path / "my model-70m").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "one.txt").write_text("a")
    words = ["model=nano/6k,org/Name-1.4B,./my model-70m", "dataset=./texts,org/news,./one.txt,./texts/*.jsonl"]
    assert len(compose(words)) == 3 * 4


@pytest.mark.parametrize("word", ["model=phytia/70m", "model=nano/7k", "model=word"])
def test_compose_refuses_a_model_that_is_neither_a_config_nor_a_folder(word: str) -> None:
    with pytest.raises(BadInput):
        compose([word])


def test_compose_names_a_checkpoint_by_its_step_and_counts_its_training_tokens() -> None:
    configs = compose(["model=pythia/70m,pythia/14m", "model.revision=step1,step1000"])
    assert [(config.model.name, config.model.training_tokens) for config in configs][:2] == [
        ("pythia-70m@step1", 2_097_152),
        ("pythia-70m@step1000", 2_097_152_000),
    ]


def test_compose_selects_revisions_by_patterns() -> None:
    configs = compose(["model=pythia/70m", "model.revision=step14*000,!step141000"])
    revisions = [config.model.revision for config in configs]
    assert revisions == ["step14000", "step140000", "step142000", "step143000"]


def test_compose_counts_the_training_tokens_of_the_last_step_for_revision_main() -> None:
    (config,) = compose(["model=pythia/12b"])
    assert config.model.training_tokens == 143_000 * 2_097_152


def test_compose_does_not_know_the_training_tokens_of_a_commit() -> None:
    (config,) = compose(["model=pythia/70m", "model.revision=0f1e2d"])
    assert config.model.training_tokens == 0


@pytest.mark.parametrize(
    "words", [["model=pythia/70m", "model.revision=step3"], ["model=nano/6k", "model.revision=step*"]]
)
def test_compose_refuses_a_step_that_the_model_does_not_have(words: list[str]) -> None:
    with pytest.raises(BadInput, match=r"model\.revision"):
        compose(words)


def test_compose_names_the_checkpoints_of_nano() -> None:
    (config,) = compose(["model=nano-checkpoints/6k-step64"])
    assert (config.model.name, config.model.training_tokens) == ("nano-checkpoints-6k@step64", 64 * 2048)


def test_config_names_lists_19_checkpoints_of_nano() -> None:
    assert len([name for name in config_names("model") if name.startswith("nano-checkpoints/")]) == 19


@pytest.fixture
def model_configs(tmp_path: Path) -> Path:
    """Write conf/model/mine/1m.yaml and "more conf"/model/mine/2m.yaml. Returns the folder conf/model."""
    for folder, size in (("conf", "1m"), ("more conf", "2m")):
        path = tmp_path / folder / f"model/mine/{size}.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(f"family: mine\nsize: {size}\npath: /m\n")
    return tmp_path / "conf/model"


@pytest.mark.usefixtures("model_configs")
def test_compose_searches_conf_in_the_working_folder() -> None:
    assert [config.model.size for config in compose(["model=mine/*"])] == ["1m"]


@pytest.mark.usefixtures("model_configs")
def test_compose_searches_the_folder_of_config_dir() -> None:
    configs = compose(["model=mine/*", "--config-dir", "more conf"])
    assert [config.model.size for config in configs] == ["1m", "2m"]


def test_compose_names_a_config_that_is_not_yaml(model_configs: Path) -> None:
    (model_configs / "bad.yaml").write_text("family: [")
    with pytest.raises(BadInput, match=r"bad\.yaml"):
        compose(["model=bad"])


def test_compose_suggests_a_key_although_another_config_is_wrong(model_configs: Path) -> None:
    (model_configs / "bad.yaml").write_text("family: [")
    (model_configs / "misspelled.yaml").write_text("family: x\nsise: 1m\n")
    with pytest.raises(BadInput, match=r"dataset\.seq_len="):
        compose(["seqlen=256"])


def test_compose_names_an_unknown_key_of_a_config(model_configs: Path) -> None:
    (model_configs / "misspelled.yaml").write_text("family: x\nsise: 1m\n")
    with pytest.raises(BadInput, match="sise"):
        compose(["model=misspelled"])


def test_compose_names_a_key_that_a_config_lacks(model_configs: Path) -> None:
    (model_configs / "part.yaml").write_text("size: 1m\npath: /m\n")
    with pytest.raises(BadInput, match=r"model\.family="):
        compose(["model=part"])


def test_compose_refuses_a_text_of_a_config_that_yaml_alters(model_configs: Path) -> None:
    for number, line in enumerate(
        ["revision: 123e4567", "revision: 1.10", "tokenizer: 0123", "max_memory: {cpu: 1_0}", "tokenizer: ="]
    ):
        (model_configs / f"number{number}.yaml").write_text(f"family: x\nsize: 1m\npath: /m\n{line}\n")
        with pytest.raises(BadInput, match=rf"number{number}\.yaml, line 4"):
            compose([f"model=number{number}"])
    (model_configs / "quoted.yaml").write_text(
        'family: 2024\nsize: "1.10"\npath: /m\nrevision: !!str 1.20\nseed: 0x10\n'
    )
    (config,) = compose(["model=quoted"])
    assert (config.model.family, config.model.size, config.model.revision) == ("2024", "1.10", "1.20")
    assert config.model.seed == 16


def test_compose_refuses_a_wrong_interpolation_in_a_config(model_configs: Path) -> None:
    (model_configs / "wrong.yaml").write_text("family: x\nsize: 1m\npath: /m\nrevision: ${size\n")
    with pytest.raises(BadInput):
        compose(["model=wrong"])


def test_compose_refuses_a_config_that_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "conf/dataset/latin.yaml"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(BadInput):
        compose(["dataset=latin"])


def test_compose_reads_options_of_launch_without_a_plus() -> None:
    (config,) = compose(["launch=slurm", "launch.options.gres=gpu:1", "launch.show=true"])
    assert config.launch.kind is Launch.slurm
    assert config.launch.options == {"gres": "gpu:1"}
    assert config.launch.show


@pytest.mark.parametrize("word", ["dataset.where.lang=en", "dataset.where={lang: en}"])
def test_compose_reads_dataset_where_without_a_plus(word: str) -> None:
    assert compose([word])[0].dataset.where == {"lang": "en"}


def test_compose_reads_max_memory_of_a_device_without_a_plus() -> None:
    assert compose(["model.max_memory.0=20GiB"])[0].model.max_memory == {"0": "20GiB"}


def test_compose_reads_a_list_of_gpus() -> None:
    assert compose(["launch=gpus", "launch.gpus=0,3"])[0].launch.gpus == ["0", "3"]


@pytest.mark.parametrize(
    ("words", "part_of_message"),
    [
        ("documents=5", "dataset.documents="),
        ("model", "model="),
        ("=x", "key"),
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
        ("model.seed=1,x model=nano/6k,nano/15k dataset.seed=1,y", "dataset.seed"),
    ],
)
def test_compose_explains_a_wrong_word_in_one_or_two_lines(words: str, part_of_message: str) -> None:
    with pytest.raises(BadInput) as caught:
        compose(words.split(" "))
    assert part_of_message in str(caught.value)
    assert 1 <= len(str(caught.value).splitlines()) <= 2


def test_compose_does_not_print_a_value_whose_key_names_a_secret() -> None:
    with pytest.raises(BadInput, match="token") as caught:
        compose(["dataset.where.token=x"])
    assert "=x" not in str(caught.value)
    assert 1 <= len(str(caught.value).splitlines()) <= 2


def test_compose_refuses_more_than_10_000_cells_before_it_composes_them() -> None:
    with pytest.raises(BadInput, match="10,000"):
        compose(["model=**", "dataset=*", "dataset.seed=range(0,1000)", "model.seed=range(0,1000)"])


def test_compose_accepts_one_config_of_each_family() -> None:
    """The configs of the other sizes of a family differ from this one only in the size and the repository."""
    by_family = {name.partition("/")[0]: name for name in config_names("model") if name != "hf"}
    assert len(compose([f"model={','.join(by_family.values())}"])) == len(by_family) > 20


def test_compose_accepts_every_dataset() -> None:
    datasets = [name for name in config_names("dataset") if name not in ("hf", "files")]
    assert len(compose([f"dataset={','.join(datasets)}"])) == len(datasets)


VALUES: dict[str, dict[str, object]] = {
    "model": {"family": "mine", "path": "/m", "size": "", "dtype": "bfloat16"},
    "dataset": {"name": "texts", "files": ["a.txt"], "seq_len": 64},
    "k": {"values": [1, 10]},
}


def test_config_from_values_converts_texts_to_members_of_enums() -> None:
    config = config_from_values(VALUES)
    assert config.model.dtype is Dtype.bfloat16
    assert config.dataset.sequence is SequenceRule.slide
    assert config.k.values == [1, 10]


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
def test_config_from_values_refuses_a_value_of_another_type(key: str, value: object) -> None:
    part, _, name = key.partition(".")
    with pytest.raises(BadInput, match=rf"{key}|a value is missing") as caught:
        config_from_values(VALUES | {part: {**VALUES.get(part, {}), name: value}})
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "for_hydra"),
    [
        (
            ["model=nano/6k,nano/15k", "k=1,10", "hydra/launcher=joblib"],
            ["--multirun", "hydra/launcher=joblib", "model=nano/6k,nano/15k", "k.values=[1,10]"],
        ),
        (["--cfg", "job", "model=nano/?k"], ["--cfg=job", "model=nano/6k"]),
        (["-m", "--cfg=job", "model=nano/6k"], ["--cfg=job", "model=nano/6k"]),
        (["hydra.verbose=true"], ["hydra.verbose=true"]),
    ],
)
def test_words_for_hydra_expands_patterns_and_lists(words: list[str], for_hydra: list[str]) -> None:
    assert read_words(words).words_for_hydra() == for_hydra


@pytest.mark.parametrize("word", ["hydra.job.chdir=true", "++hydra.job.chdir=True", "hydra.job={chdir: true}"])
def test_read_words_refuses_that_cells_change_the_folder(word: str) -> None:
    with pytest.raises(BadInput):
        read_words(["model=nano/6k,nano/15k", word])


def test_words_for_hydra_adds_multirun_for_a_sweeper() -> None:
    assert read_words(["hydra/sweeper=optuna", "dataset.seq_len=64"]).words_for_hydra()[0] == "--multirun"
