"""Tests of the reader of a command line's words."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.command_line import read_command_line
from rbptrack.config.compose import compose
from rbptrack.config.keys import dotted_items


@pytest.fixture(autouse=True)
def _empty_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_read_command_line_does_not_leave_a_sweep_to_hydra() -> None:
    assert not read_command_line(["-m", "model=nano/*"]).for_hydra


@pytest.mark.parametrize("word", ["--cfg=job", "hydra/launcher=joblib", "hydra.sweeper.n_trials=3"])
def test_read_command_line_leaves_hydras_flags_launchers_and_sweepers_to_hydra(word: str) -> None:
    assert read_command_line(["model=nano/6k", word]).for_hydra


@pytest.mark.parametrize("value", ["nano/6k,nano/15k", "choice(nano/6k,nano/15k)", "nano/6k,nano/1*,!nano/115k"])
def test_models_may_be_a_list_patterns_or_a_choice(value: str) -> None:
    assert [config.model.size for config in compose([f"model={value}"])] == ["6k", "15k"]


def test_read_command_line_keeps_a_choice_of_hydras_grammar() -> None:
    assert read_command_line(["model.seed=choice(1,2)"]).overrides == ["model.seed=choice(1,2)"]


@pytest.mark.parametrize(
    "words",
    [
        ["dataset.where.lang=de", "dataset.where.lang=en"],
        ["+dataset.seed=1", "dataset.seed=2"],
        ["~dataset.seed"],
        ["~dataset.where.lang"],
        ["model=glob(nano/*)"],
    ],
)
def test_read_command_line_refuses_a_key_given_twice_and_other_grammar_of_hydra(words: list[str]) -> None:
    with pytest.raises(BadInput):
        read_command_line(words)


@pytest.mark.parametrize("text", ["123e4567", "1.10", "007", "1_000", "true", "nan", "inf", "1e3", "4:00:00"])
@pytest.mark.parametrize("key", ["dataset.name", "sweep", "model.family", "dataset.where.version", "dataset.fields"])
def test_numbers_typed_into_text_options_stay_texts(key: str, text: str) -> None:
    (config,) = compose(["model=nano/6k", f"{key}={text}"])
    value = dict(dotted_items(asdict(config)))[key]
    assert value == ([text] if key == "dataset.fields" else text)


@pytest.mark.parametrize("value", ["12e4,1.10", "choice(12e4,1.10)", "'12e4','1.10'"])
def test_numbers_that_a_text_option_is_swept_over_stay_texts(value: str) -> None:
    configs = compose(["model=nano/6k", f"model.revision={value}"])
    assert [config.model.revision for config in configs] == ["12e4", "1.10"]
