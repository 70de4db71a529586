"""Tests of the rules for values of a config that a type cannot express."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.check import check, refuse_secrets
from rbptrack.config.compose import compose
from rbptrack.config.schema import Config, DatasetConfig, KConfig, ModelConfig, SequenceRule


def config_with(**changes: Any) -> Config:
    """Return a valid config with some values changed. Write `dataset__name="x"` to change `dataset.name`."""
    config = Config(
        model=ModelConfig(family="mine", size="1m", path="/m"),
        dataset=DatasetConfig(name="texts", files=["a.txt"], seq_len=64),
        k=KConfig(values=[1, 10]),
    )
    for key, value in changes.items():
        part, _, name = key.partition("__")
        setattr(getattr(config, part) if name else config, name or part, value)
    return config


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reference": ModelConfig(family="r", size="", repo="org/r")},
        {
            "model__size": "",
            "dataset__name": "données (v2)",
            "dataset__sequence": SequenceRule.pack,
            "dataset__context": 100,
        },
    ],
)
def test_check_accepts_valid_configs(changes: dict[str, Any]) -> None:
    check(config_with(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset__name": ""},
        {"model__family": "a\nb"},
        {"model__family": "x" * 300},
        {"model__family": "\u202eevil"},
        {"dataset__seq_len": 1},
        {"dataset__context": 64},
        {"dataset__documents": -1},
        {"dataset__fields": []},
        {"dataset__chat": True},
        {"dataset__repo": "org/x", "dataset__path": "/x"},
        {"dataset__files": []},
        {"k__values": [0, 1]},
        {"engine__batch_tokens": -5},
        {"engine__threads": 100_000},
        {"model__repo": "org/x"},
        {"model__path": ""},
        {"model__gguf": "model.bin"},
        {"model__seed": -1},
        {"model__training_tokens": float("nan")},
        {"model__chat_template": "/nowhere.jinja"},
        {"dataset__where": {"token": "x"}},
        {"tracking__uri": "postgresql://ann:s3cret@db/runs"},
        {"reference": ModelConfig(family="r", size="1m")},
        {"reference": ModelConfig(family="r", size="1m", path="/r", device="cuda:1")},
        {"reference": ModelConfig(family="r", size="1m", path="/r", device_map="auto")},
    ],
)
def test_check_refuses_a_wrong_value_in_one_line(changes: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        check(config_with(**changes))
    assert len(str(caught.value).splitlines()) == 1
    assert "s3cret" not in str(caught.value)


def write_blank_file(path: Path) -> None:
    path.write_text(" \n")


def write_file_of_17_mebibytes(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(17 * 2**20)


@pytest.mark.parametrize("create", [write_blank_file, write_file_of_17_mebibytes, os.mkfifo, os.mkdir])
def test_check_refuses_a_chat_template_that_is_not_a_small_file_with_text(
    tmp_path: Path, create: Callable[[Path], None]
) -> None:
    path = tmp_path / "template.jinja"
    create(path)
    with pytest.raises(BadInput, match=r"template"):
        check(config_with(model__chat_template=str(path)))


@pytest.mark.parametrize("key", ["token", "password", "secret", "hf_token", "Password"])
def test_refuse_secrets_refuses_a_key_that_names_a_secret(key: str) -> None:
    with pytest.raises(BadInput):
        refuse_secrets({"model": {"where": {key: "hunter2"}}})


@pytest.mark.parametrize(
    "word",
    [
        "launch.options.export=ALL,HF_TOKEN=hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH",
        "launch.options.comment=AKIAIOSFODNN7EXAMPLE",
        "launch.options.export='ALL,DB_PASSWORD=hunter2345'",
        "hydra.job.env_set.X=hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH",
        "dataset.files=ghp_aBcDeFgHiJkLmNoPqRsTuVwXyZ012345678",
        "dataset.where.key=Zx81kd02mmQp19sLaa0",
    ],
)
def test_compose_refuses_and_does_not_show_a_value_that_looks_like_a_secret(word: str) -> None:
    with pytest.raises(BadInput) as caught:
        compose(["model=nano/6k", word])
    assert word[-8:] not in str(caught.value)


def test_refuse_secrets_accepts_batch_tokens_tokenizer_and_the_name_of_a_variable() -> None:
    refuse_secrets({"engine": {"batch_tokens": 1}, "tokenizer": "x", "export": "ALL,HF_TOKEN"})


def test_check_does_not_change_the_config() -> None:
    config = config_with()
    before = replace(config)
    check(config)
    assert config == before


@pytest.mark.parametrize(
    "word",
    [
        "launch.options.array=0-3",
        "launch.options.arr=0-3",
        "launch.options.output=x",
        "launch.options.wrap=true",
        "launch.options.p=gpu",
        "launch.options.'a b'=1",
        'launch.options.comment="a\nrm -r x"',
    ],
)
def test_options_of_sbatch_that_would_change_the_script_are_refused(word: str) -> None:
    with pytest.raises(BadInput):
        compose(["model=nano/6k", "launch=slurm", word])
