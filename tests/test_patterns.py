import random

import pytest

from rbptrack.base.errors import BadInput
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


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("model=pythia/700m", ["no model matches pythia/700m", "Sizes of pythia: 14m, 31m", "6.9b, 12b"]),
        (
            "model=phi/*",
            ["no model matches phi/*.", "Options: hf, 'deep/er/*', 'gpt2/*', 'pythia/*'"],
        ),
        ("dataset=wikipedia", ["no dataset matches wikipedia", "humaneval, stdlib, wiki"]),
        ("model=pythia", ["'model=pythia/*' takes every size", "Sizes of pythia: 14m, 31m, 70m"]),
        ("model=pithya/70m", ["Did you mean pythia/70m?"]),
        ("model=pythai/*", ["Did you mean 'pythia/*'?"]),
        ("model=", ["model="]),
    ],
)
def test_no_match_names_the_options(argument: str, words: list[str]) -> None:
    with pytest.raises(BadInput) as error:
        expanded(argument)
    for word in words:
        assert word in str(error.value)


def test_lists_as_values() -> None:
    keys = {"family": "filter.family", "k": "k.values"}
    assert lists_as_values(["family=nano,py*", "k=1,10", "x=1,2"], keys) == [
        "filter.family=[nano,'py*']",
        "k.values=[1,10]",
        "x=1,2",
    ]
