import random

from rbptrack.config.patterns import expand, lists_as_values, size_key

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
