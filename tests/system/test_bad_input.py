"""Tests that bad input is refused in one or two lines and leaves no files or runs behind.

The input comes from the command lines of `bad_input/command_lines.txt` and from the calls of `bad_input/calls.py`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import examples
from tests.system import bad_input, small_stores
from tests.system.bad_input import calls
from tests.system.trials import Bench

ESCAPED = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\r(.)(\d+);")
COMMANDS_WITH_TABLES = ("plan", "import", "plugins")  # these commands may name faults in more than two lines


def command_lines() -> Iterator[tuple[bool, list[str]]]:
    """Yield the command lines of `bad_input/command_lines.txt`: whether each may be accepted, and its words."""
    for line in bad_input.COMMAND_LINES.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        # Parts with an even index are plain text. Parts with an odd index are alternatives.
        parts = re.split("‹(.*?)›", line)
        alternatives = []
        for i, part in enumerate(parts):
            alternatives.append(part.split("|") if i % 2 else [part])
        for choice in product(*alternatives):
            words = [ESCAPED.sub(unescape, word) for word in shlex.split("".join(choice))]
            if words[0] == "ok":
                yield True, words[1:]
            else:
                yield False, words


def unescape(match: re.Match[str]) -> str:
    """Return the character of an escape such as `\\x0a`, or the repeated character of `\\rA300;`."""
    if match[3]:
        return match[3] * int(match[4])
    return chr(int(match[1] or match[2], 16))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A folder with a store of three measurements, a bundle of them, and the faulty files of `bad_input.make`."""
    folder = tmp_path_factory.mktemp("bench") / "store"
    small_stores.build_store(folder, "nano/6k", "nano/15k", "nano/38k")
    small_stores.run_rbptrack(folder, "export", "good.zip")
    bad_input.make(folder)
    return Bench(folder)


@examples(60)
@given(line=st.sampled_from(list(command_lines())))
def test_command_line_refuses_bad_input_in_two_lines(bench: Bench, line: tuple[bool, list[str]]) -> None:
    may_be_accepted, words = line
    trial = bench.run_command_line(words)
    trial.assert_ended()
    if trial.code == 0:
        assert may_be_accepted, trial.output
    elif not words or words[0] not in COMMANDS_WITH_TABLES:
        trial.assert_refused_in_two_lines()


@examples(60)
@given(call=st.sampled_from([(number, name) for number, (name, _) in enumerate(calls.CALLS)]))
def test_python_api_refuses_bad_arguments_in_two_lines(bench: Bench, call: tuple[int, str]) -> None:
    number, _ = call  # the name is there for hypothesis, which prints the call that fails
    trial = bench.run_function(calls.call, number)
    trial.assert_ended()
    trial.assert_refused_in_two_lines()
