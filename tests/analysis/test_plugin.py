"""Tests of the options of plugins: their types and ranges, their values from the command line, and their help."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import Field, PositiveInt, SecretBytes, SecretStr

from rbptrack.analysis import Analyzer, BadInput, Report, Runs
from rbptrack.analysis.plugin import make_plugin, make_plugin_from_words, plugin_options, plugin_summary
from rbptrack.base.secrets import without_password


class Sample(Analyzer):
    """Counts the runs."""

    ks: tuple[PositiveInt, ...] = (1, 10)
    """the k of the table, up to |V|"""

    margin: Annotated[float, Field(gt=0)] = 0.1
    """exponents closer than this count as the same"""

    unit: Literal["a", "b"] = "a"
    deep: bool = False

    def analyze(self, runs: Runs) -> Report:
        return Report({})


def test_make_plugin_from_words_converts_words_to_the_types_of_the_fields() -> None:
    plugin = make_plugin_from_words(Sample, ["ks=1,5,20", "margin=0.5", "unit=b", "deep=true"])
    assert plugin == Sample(ks=(1, 5, 20), margin=0.5, unit="b", deep=True)


def test_make_plugin_from_words_accepts_a_list_in_brackets_and_an_empty_list() -> None:
    assert make_plugin_from_words(Sample, ["ks=[7]"]).ks == (7,)
    assert make_plugin_from_words(Sample, ["ks="]).ks == ()


@pytest.mark.parametrize(
    "word", ["ks=0", "ks=1.5", "margin=-1", "margin=x", "unit=c", "deep=perhaps", "level=95", "ks"]
)
def test_make_plugin_from_words_refuses_a_wrong_option_and_names_it_in_one_line(word: str) -> None:
    name = word.partition("=")[0]
    with pytest.raises(BadInput, match=name) as raised:
        make_plugin_from_words(Sample, [word])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("ks", [(1, 10), [1, 10], "1,10", "[1, 10]", range(1, 11, 9), np.array([1, 10]), ["1", "10"]])
def test_list_option_accepts_sequences_and_texts(ks: Any) -> None:
    assert Sample(ks=ks).ks == (1, 10)


@pytest.mark.parametrize("ks", [10, "10", np.int64(10), [10], 10.0])
def test_list_option_accepts_a_single_value(ks: Any) -> None:
    assert Sample(ks=ks).ks == (10,)


@pytest.mark.parametrize(("name", "value"), [("ks", [0]), ("margin", 0), ("level", 95)])
def test_make_plugin_refuses_a_wrong_option(name: str, value: Any) -> None:
    with pytest.raises(BadInput, match=name):
        make_plugin(Sample, {name: value})


def test_constructor_of_a_plugin_refuses_a_wrong_option() -> None:
    with pytest.raises(BadInput, match="margin"):
        Sample(margin=0)


def test_option_of_several_types_accepts_each_of_them() -> None:
    class WithOptionalList(Sample):
        at: tuple[float, ...] | None = None

    assert WithOptionalList().at is None
    assert WithOptionalList(at="1e3,2").at == (1e3, 2.0)


def test_plugin_options_of_a_class_without_a_source_file_have_no_help() -> None:
    """A class has no source file if it was defined in an interactive session or by `exec`."""
    code = (
        "from rbptrack.analysis import Analyzer, Report\n"
        "class Typed(Analyzer):\n"
        '    """Typed."""\n'
        "    k: int = 3\n"
        '    """help"""\n'
        "    def analyze(self, runs): return Report({})\n"
    )
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(code, namespace)
    typed = namespace["Typed"]
    assert typed(k="5").k == 5
    assert plugin_summary(typed) == "Typed."
    assert [(option.name, option.default, option.help) for option in plugin_options(typed)] == [("k", "3", "")]


def test_plugin_summary_is_the_docstring_of_the_class() -> None:
    assert plugin_summary(Sample) == "Counts the runs."


def test_plugin_options_take_their_help_from_the_text_below_the_field() -> None:
    options = {option.name: option for option in plugin_options(Sample)}
    assert options["ks"].default == "1,10"
    assert options["ks"].help == "the k of the table, up to |V|"
    assert options["margin"].help == "exponents closer than this count as the same"
    assert options["deep"].help == ""


class WithLogin(Sample):
    """Has an option that is a secret."""

    login: SecretStr = SecretStr("")


def test_value_of_a_secret_option_reaches_the_plugin_and_is_hidden_in_texts() -> None:
    plugin = make_plugin_from_words(WithLogin, ["login=correct horse", "ks=1"])
    assert plugin.login.get_secret_value() == "correct horse"
    assert "correct" not in f"{plugin!r} {without_password('login=correct horse')}"


class WithLogins(Sample):
    """Has options that hold secrets."""

    logins: tuple[SecretStr, ...] = ()
    key: Annotated[SecretStr, Field(min_length=12)] | None = None
    raw: SecretBytes = SecretBytes(b"")


def test_secrets_in_lists_unions_and_bytes_are_hidden_in_texts() -> None:
    plugin = WithLogins(logins="battery1,staple22", key=None, raw=b"raw bytes")
    assert [login.get_secret_value() for login in plugin.logins] == ["battery1", "staple22"]
    assert without_password("battery1 staple22 raw bytes raw%20bytes") == "*** *** *** ***"


def test_error_about_a_secret_does_not_show_its_value() -> None:
    with pytest.raises(BadInput) as caught:
        WithLogins(key="too short")
    assert "too short" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize("word", ["token=1", "unit=hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH"])
def test_make_plugin_from_words_refuses_a_secret_that_the_plugin_does_not_declare(word: str) -> None:
    class WithToken(Sample):
        token: str = ""

    with pytest.raises(BadInput) as caught:
        make_plugin_from_words(WithToken, [word])
    assert "aBcDe" not in str(caught.value)
