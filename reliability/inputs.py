"""Bad inputs: on the command line (`inputs.txt`) and of the Python API (`calls.py`)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from reliability.trial import Bench, Trial, evenly, lines_of

_ESCAPED = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\r(.)(\d+);")


def lines() -> Iterator[tuple[bool, list[str]]]:
    """Whether an input may be accepted, and its words."""
    for line in Path(__file__).with_name("inputs.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        parts = re.split("‹(.*?)›", line)
        for choice in product(*(part.split("|") if i % 2 else [part] for i, part in enumerate(parts))):
            words = [_ESCAPED.sub(_character, word) for word in shlex.split("".join(choice))]
            allowed = words[:1] == ["ok"]
            yield allowed, words[allowed:]


def _character(match: re.Match[str]) -> str:
    if match[3]:
        return match[3] * int(match[4])
    return chr(int(match[1] or match[2], 16))


def judged(trial: Trial, *, allowed: bool) -> Trial:
    """A trial whose message is too long, or that was accepted and should not be, is not in order."""
    outcome = trial.outcome
    if trial.what.startswith(("plan ", "import ", "plugins ")) and outcome == "message":
        return trial  # a table, or a list of places, says what is wrong
    if outcome == "message" and not 1 <= len(lines_of(trial)) <= 2:
        outcome = "long"
    if outcome == "accepted" and not allowed:
        outcome = "nonsense"
    return Trial(trial.what, outcome, trial.said)


def run(bench: Bench, *, count: int) -> Iterator[Trial]:
    """Try `count` of the lines, evenly chosen."""
    for allowed, words in evenly(list(lines()), count):
        yield judged(bench.command(words), allowed=allowed)
