"""Translate the errors of pydantic into sentences for users."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError

_MAX_SHOWN = 60  # largest number of characters of a name or value in a message

_WORDS = {
    "valid string": "text",
    "valid tuple": "list",
    "valid integer": "whole number",
    "valid boolean": "truth value",
}
"""Words for users in place of names of Python's types."""


@dataclass(frozen=True)
class BrokenRule:
    """A rule that a value breaks.

    Attributes:
        place: the names and indices that lead to the value; empty if the rule is about several values.
        rule: the rule as the end of a sentence, such as `must be at least 1`, or as a whole sentence.
        value: the value.

    """

    place: tuple[int | str, ...]
    rule: str
    value: object

    @property
    def name(self) -> str:
        """The first name of the place."""
        return str(self.place[0])[:_MAX_SHOWN] if self.place else ""

    @property
    def sentence(self) -> str:
        """The rule as a whole sentence, with the name of the value. Indices of lists are left out of the name."""
        if self.rule.startswith(("must ", "is ")):
            names = [part for part in self.place if isinstance(part, str)]
            return f"{'.'.join(names)[:_MAX_SHOWN]} {self.rule}"
        return self.rule


def broken_rules(error: ValidationError) -> Iterator[BrokenRule]:
    """Yield the broken rules of a pydantic error, in pydantic's order and with its words."""
    for detail in error.errors(include_url=False):
        rule = detail["msg"]
        if detail["type"] in ("value_error", "assertion_error"):  # a validator of rbptrack or of a plugin raised it
            rule = str(detail["ctx"]["error"])
        elif detail["type"] == "missing":
            rule = "is missing"
        elif detail["type"] == "string_unicode":
            rule = "must be a text that UTF-8 can write"
        elif detail["type"] == "extra_forbidden":
            rule = "is not known here"
        elif " should " in rule:  # such as "Input should be a valid integer, unable to parse string as an integer"
            rule = f"must {rule.partition(' should ')[2].partition(', unable')[0].partition(', got')[0]}"
            for name, word in _WORDS.items():
                rule = rule.replace(name, word)
        yield BrokenRule(detail["loc"], rule, detail["input"])


def format_value(value: object) -> str:
    """Format a value for a message. The entries of a list are joined by commas, and a long text is shortened."""
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if len(text) > _MAX_SHOWN:
        return f"{text[: _MAX_SHOWN - 20]}... ({len(text):,} characters)"
    return text
