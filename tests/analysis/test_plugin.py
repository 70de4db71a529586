"""Options of plugins: types, ranges, words of the command line, help."""

from __future__ import annotations

import linecache
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import Field, PositiveInt

from rbptrack.analysis import Analyzer, BadInput, Report
from rbptrack.analysis.plugin import configured, options_of, summary_of, with_options


class Sample(Analyzer):
    """Asks for an example."""

    ks: tuple[PositiveInt, ...] = (1, 10)
    """the k of the table, up to |V|"""

    margin: Annotated[float, Field(gt=0)] = 0.1
    """exponents closer than this count as the same"""

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


@pytest.mark.parametrize("ks", [(1, 10), [1, 10], "1,10", "[1, 10]", range(1, 11, 9), np.array([1, 10]), ["1", "10"]])
def test_a_list_is_the_same_however_it_is_given(ks: Any) -> None:
    assert Sample(ks=ks).ks == (1, 10)


@pytest.mark.parametrize("ks", [10, "10", np.int64(10), [10], 10.0])
def test_one_value_is_a_list_of_one(ks: Any) -> None:
    assert Sample(ks=ks).ks == (10,)


def test_options_from_python_meet_the_same_check() -> None:
    for options in ({"ks": [0]}, {"margin": 0}, {"level": 95}):
        with pytest.raises(BadInput):
            configured(Sample, options)
    with pytest.raises(BadInput):
        Sample(margin=0)


def test_an_option_of_several_types_takes_each() -> None:
    class Several(Sample):
        at: tuple[float, ...] | None = None

    assert Several().at is None
    assert Several(at="1e3,2").at == (1e3, 2.0)


def test_a_class_without_source_works_and_has_no_help() -> None:
    """As in an interactive session, or with `exec`."""
    code = (
        "from rbptrack.analysis import Analyzer, Report\n"
        "class Typed(Analyzer):\n"
        '    """Typed."""\n'
        "    k: int = 3\n"
        '    """help"""\n'
        "    def analyze(self, runs): return Report({})\n"
    )
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(code, space)
    typed = space["Typed"]
    assert typed(k="5").k == 5
    assert summary_of(typed) == "Typed."
    assert [(option.name, option.default) for option in options_of(typed)] == [("k", "3")]


def test_a_class_in_a_notebook_has_help() -> None:
    cell = (
        "from rbptrack.analysis import Analyzer, Report\n"
        "class Typed(Analyzer):\n"
        "    k: int = 3\n"
        '    """how many"""\n'
        "    def analyze(self, runs):\n"
        "        return Report({})\n"
    )
    name = "/tmp/ipykernel_1/1.py"  # no such file: IPython keeps the text in linecache
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(cell, name, "exec"), space)
    assert [option.help for option in options_of(space["Typed"])] == ["how many"]


def test_help_is_the_text_under_a_field() -> None:
    assert summary_of(Sample) == "Asks for an example."
    options = {option.name: option for option in options_of(Sample)}
    assert options["ks"].default == "1,10"
    assert options["ks"].help == "the k of the table, up to |V|"
    assert options["margin"].help == "exponents closer than this count as the same"
    assert options["deep"].help == ""
