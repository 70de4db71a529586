"""Options of plugins: types, ranges, words of the command line, help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import Field

from rbptrack.analysis import Analyzer, BadInput, Report
from rbptrack.analysis.plugin import configured, options_of, summary_of, with_options


@dataclass(kw_only=True)
class Sample(Analyzer):
    """Asks for an example.

    ks: the k of the table,
        up to |V|.
    margin: exponents closer than this count as the same.
    """

    ks: tuple[Annotated[int, Field(ge=1)], ...] = (1, 10)
    margin: Annotated[float, Field(gt=0)] = 0.1
    unit: Literal["a", "b"] = "a"
    deep: bool = False

    def analyze(self, runs):
        return Report({})


def test_words_become_typed_options() -> None:
    plugin = with_options(Sample, ["ks=1,5,20", "margin=0.5", "unit=b", "deep=true"])
    assert plugin == Sample(ks=(1, 5, 20), margin=0.5, unit="b", deep=True)
    assert with_options(Sample, ["ks=[7]"]).ks == (7,)
    assert with_options(Sample, ["ks="]).ks == ()


@pytest.mark.parametrize(
    "word", ["ks=0", "ks=1.5", "margin=-1", "margin=x", "unit=c", "deep=perhaps", "level=95", "ks"]
)
def test_a_wrong_option_is_one_line_with_its_name(word):
    with pytest.raises(BadInput) as raised:
        with_options(Sample, [word])
    text = str(raised.value)
    assert "\n" not in text
    assert word.partition("=")[0] in text


def test_options_from_python_meet_the_same_check() -> None:
    assert configured(Sample, {"ks": [3]}).ks == (3,)
    for options in ({"ks": [0]}, {"margin": 0}, {"level": 95}):
        with pytest.raises(BadInput):
            configured(Sample, options)
    with pytest.raises(BadInput):
        Sample(margin=0)


def test_help_comes_from_the_docstring() -> None:
    assert summary_of(Sample) == "Asks for an example."
    options = {option.name: option for option in options_of(Sample)}
    assert options["ks"].default == "1,10"
    assert options["ks"].help == "the k of the table, up to |V|."
    assert options["margin"].help == "exponents closer than this count as the same."
    assert options["deep"].help == ""
