"""Bad input, on the command line and in Python: it is refused in one or two lines, and nothing is left behind."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import examples
from tests.system import odd, small_stores
from tests.system.odd import calls
from tests.system.trials import Bench

ESCAPED = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\r(.)(\d+);")
WITH_TABLES = ("plan", "import", "plugins")  # a table, or a list of places, says what is wrong


def command_lines() -> Iterator[tuple[bool, list[str]]]:
    """Whether an input may be accepted, and its words."""
    for line in odd.COMMAND_LINES.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        parts = re.split("‹(.*?)›", line)
        for choice in product(*(part.split("|") if i % 2 else [part] for i, part in enumerate(parts))):
            words = [ESCAPED.sub(character, word) for word in shlex.split("".join(choice))]
            may_be_accepted = words[:1] == ["ok"]
            yield may_be_accepted, words[may_be_accepted:]


def character(match: re.Match[str]) -> str:
    """The character, or the row of characters, that an escape stands for."""
    if match[3]:
        return match[3] * int(match[4])
    return chr(int(match[1] or match[2], 16))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A folder with a store of three measurements, their bundle, and odd files of every kind."""
    folder = tmp_path_factory.mktemp("bench") / "store"
    small_stores.build(folder, "nano/6k", "nano/15k", "nano/38k")
    small_stores.ran(folder, "export", "good.zip")
    odd.make(folder)
    return Bench(folder)


@examples(60)
@given(line=st.sampled_from(list(command_lines())))
def test_a_command_line_is_refused_in_a_message(bench: Bench, line: tuple[bool, list[str]]) -> None:
    may_be_accepted, words = line
    trial = bench.type(words)
    trial.assert_ended()
    if trial.code == 0:
        assert may_be_accepted, trial.said
    elif words[:1] not in ([word] for word in WITH_TABLES):
        trial.assert_message()


@examples(60)
@given(numbered=st.sampled_from([(number, name) for number, (name, _) in enumerate(calls.CALLS)]))
def test_a_call_is_refused_in_a_message(bench: Bench, numbered: tuple[int, str]) -> None:
    number, _ = numbered
    trial = bench.call(calls.call, number)
    trial.assert_ended()
    trial.assert_message()
