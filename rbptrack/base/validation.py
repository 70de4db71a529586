"""Translate the errors of pydantic into sentences for users."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

_MAX_SHOWN = 60  # largest number of characters of a name or value in a message

_RULES = {
    "greater_than": "must be above {gt:,}",
    "greater_than_equal": "must be at least {ge:,}",
    "less_than": "must be below {lt:,}",
    "less_than_equal": "must be at most {le:,}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "finite_number": "must be finite",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number with fewer digits",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a text",
    "string_unicode": "must be a text that can be encoded as UTF-8",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a table of names and values",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "missing": "is missing",
    "extra_forbidden": "is not known here",
}
"""The rule for each type of pydantic error, as the end of a sentence about a value."""


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
    """Yield the broken rules of a pydantic error, in pydantic's order."""
    for detail in error.errors(include_url=False):
        context: dict[str, Any] = detail.get("ctx", {})
        if detail["type"] in ("value_error", "assertion_error"):  # a validator of rbptrack or of a plugin raised it
            rule = str(context["error"])
        elif detail["type"] in ("string_too_short", "too_short") and context["min_length"] == 1:
            rule = "must not be empty"
        elif detail["type"] in _RULES:
            rule = _RULES[detail["type"]].format(**context)
        else:
            rule = detail["msg"].replace("Input should be", "must be")
        yield BrokenRule(detail["loc"], rule, detail["input"])


def format_value(value: object) -> str:
    """Format a value for a message. The entries of a list are joined by commas, and a long text is shortened."""
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if len(text) > _MAX_SHOWN:
        return f"{text[: _MAX_SHOWN - 20]}... ({len(text):,} characters)"
    return text
