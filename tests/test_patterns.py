import random

import pytest

from rbptrack.config.patterns import expand, lists_as_values, size_key

PYTHIA = ["14m", "31m", "70m", "160m", "410m", "1b", "1.4b", "2.8b", "6.9b", "12b"]
NAMES = {
    "model": [
        *(f"pythia/{s}" for s in PYTHIA),
        "gpt2/small",
        "gpt2/medium",
        "gpt2/large",
        "gpt2/xl",
        "deep/er/1b",
        "hf",
    ],
    "dataset": ["wiki", "humaneval", "stdlib"],
}


def expanded(*arguments: str) -> list[str]:
    return expand(arguments, groups=("model", "dataset"), options=lambda group: NAMES[group])


def test_sizes_sort_by_what_they_mean() -> None:
    shuffled = PYTHIA.copy()
    random.Random(0).shuffle(shuffled)
    assert sorted(shuffled, key=size_key) == PYTHIA
    words = ["xl", "small", "large", "medium"]
    assert sorted(words, key=size_key) == ["small", "medium", "large", "xl"]
    assert sorted(["2m", "760k", "6k", "115k"], key=size_key) == ["6k", "115k", "760k", "2m"]
    assert sorted(["hf", "14m", "small"], key=size_key) == ["14m", "small", "hf"]


@pytest.mark.parametrize("value", ["gpt2/*,pythia/1?b", "[gpt2/*,pythia/1?b]"])
def test_lists_of_patterns(value: str) -> None:
    found = expanded(f"model={value}", "dataset=wiki", "engine.threads=2")
    assert found == ["model=gpt2/small,gpt2/medium,gpt2/large,gpt2/xl,pythia/12b", "dataset=wiki", "engine.threads=2"]


def test_what_is_not_ours_is_left_to_hydra() -> None:
    arguments = ["-m", "model=choice(pythia/14m,gpt2/xl)", "+x=1", "~dataset", "hydra/launcher=joblib"]
    assert expanded(*arguments) == arguments


def test_lists_as_values() -> None:
    keys = {"family": "filter.family", "k": "k.values"}
    assert lists_as_values(["family=nano,py*", "k=1,10", "x=1,2"], keys) == [
        "filter.family=[nano,'py*']",
        "k.values=[1,10]",
        "x=1,2",
    ]
