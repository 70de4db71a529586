"""Rules for values that a type cannot state."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.check import check, refuse_secrets
from rbptrack.config.schema import Config, DatasetConfig, Dtype, KConfig, ModelConfig, SequenceRule


def good(**changes: Any) -> Config:
    config = Config(
        model=ModelConfig(family="mine", size="1m", path="/m"),
        dataset=DatasetConfig(name="texts", files=["a.txt"], seq_len=64),
        k=KConfig(values=[1, 10]),
    )
    for key, value in changes.items():
        part, _, name = key.partition("__")
        setattr(getattr(config, part) if name else config, name or part, value)
    return config


def test_a_good_config_passes() -> None:
    check(good())
    check(good(reference=ModelConfig(family="r", size="", repo="org/r")))
    check(good(model__size="", dataset__name="données (v2)", dataset__sequence=SequenceRule.pack, dataset__context=100))


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
        {"model__tf32": True, "model__dtype": Dtype.bfloat16},
        {"model__chat_template": "/nowhere.jinja"},
        {"dataset__where": {"token": "x"}},
        {"tracking__uri": "postgresql://ann:s3cret@db/runs"},
        {"reference": ModelConfig(family="r", size="1m")},
        {"reference": ModelConfig(family="r", size="1m", path="/r", device="cuda:1")},
        {"reference": ModelConfig(family="r", size="1m", path="/r", device_map="auto")},
    ],
)
def test_a_bad_value_gets_a_line(changes: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        check(good(**changes))
    assert len(str(caught.value).splitlines()) == 1
    assert "s3cret" not in str(caught.value)


def empty(path: Path) -> None:
    path.write_text(" \n")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(17 * 2**20)


@pytest.mark.parametrize("make", [empty, huge, os.mkfifo, os.mkdir])
def test_a_template_is_a_small_file_that_holds_something(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "template.jinja"
    make(path)
    with pytest.raises(BadInput, match=r"template"):
        check(good(model__chat_template=str(path)))


def test_keys_of_secrets_are_refused() -> None:
    for key in ("token", "password", "secret", "hf_token", "Password"):
        with pytest.raises(BadInput):
            refuse_secrets({"model": {"where": {key: "hunter2"}}})
    refuse_secrets({"engine": {"batch_tokens": 1}, "tokenizer": "x"})


def test_the_check_changes_nothing() -> None:
    config = good()
    before = replace(config)
    check(config)
    assert config == before
