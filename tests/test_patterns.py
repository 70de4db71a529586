import random
import re

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.patterns import chosen_by, expand, lists_as_values, size_key
from rbptrack.config.request import measuring

PYTHIA = ["14m", "31m", "70m", "160m", "410m", "1b", "1.4b", "2.8b", "6.9b", "12b"]


def test_sizes_sort_by_what_they_mean() -> None:
    shuffled = PYTHIA.copy()
    random.Random(0).shuffle(shuffled)
    assert sorted(shuffled, key=size_key) == PYTHIA
    words = ["xl", "small", "large", "medium"]
    assert sorted(words, key=size_key) == ["small", "medium", "large", "xl"]
    assert sorted(["2m", "760k", "6k", "115k"], key=size_key) == ["6k", "115k", "760k", "2m"]
    assert sorted(["hf", "14m", "small"], key=size_key) == ["14m", "small", "hf"]


def test_what_is_not_ours_is_left_to_hydra() -> None:
    arguments = ["-m", "model=choice(pythia/14m,gpt2/xl)", "+x=1", "~dataset", "hydra/launcher=joblib"]
    assert expand(arguments, groups=("model", "dataset"), options=lambda group: ["pythia/14m"]) == arguments


def test_lists_as_values() -> None:
    keys = {"family": "filter.family", "k": "k.values"}
    assert lists_as_values(["family=nano,py*", "k=1,10", "x=1,2"], keys) == [
        "filter.family=[nano,'py*']",
        "k.values=[1,10]",
        "x=1,2",
    ]


def test_a_name_after_an_exclamation_mark_is_left_out() -> None:
    names = [f"pythia/{size}" for size in PYTHIA] + ["gpt2/small", "hf"]
    assert chosen_by("model", "pythia/*,!pythia/12b,!pythia/?b", names) == [
        f"pythia/{size}" for size in ("14m", "31m", "70m", "160m", "410m", "1.4b", "2.8b", "6.9b")
    ]
    assert chosen_by("model", "!pythia/*,**", names) == ["gpt2/small"]
    for value, rule in {
        "pythia/*,!pythia/13b": "no model matches pythia/13b",
        "!pythia/12b": "such as 'model=pythia/*,!pythia/12b'",
        "pythia/1b,!pythia/*": "excludes everything that it chooses: pythia/1b",
    }.items():
        with pytest.raises(BadInput, match=re.escape(rule)):
            chosen_by("model", value, names)


@pytest.mark.parametrize(
    ("word", "chosen"),
    [
        ("dataset=glob(*,exclude=[wiki,p*])", "dataset=auslegal,c4,gsm8k,hotpotqa,humaneval,stdlib"),
        ("model=glob([nano/1*,gpt2/*],exclude=nano/15k)", "model=nano/115k,gpt2/small,gpt2/medium,gpt2/large,gpt2/xl"),
        (
            "reference=glob(nano/*,exclude=*/?m)",
            "+model@reference=nano/6k,nano/15k,nano/38k,nano/115k,nano/311k,nano/760k",
        ),
    ],
)
def test_globs_of_hydra_are_patterns(word: str, chosen: str) -> None:
    assert measuring([word]).overrides == [chosen]
