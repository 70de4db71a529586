"""Kinds of token by their text: word, identifier, number, punctuation, white space."""

from __future__ import annotations

import re
from itertools import pairwise

KINDS = ("word", "identifier", "number", "punctuation", "white space", "other")
"""Kinds of token by their text, in the order of `kind_of`'s places."""

_WORD = re.compile(r"[^\W\d_]+(['’][^\W\d_]+)?")
_IDENTIFIER = re.compile(r"\w*[^\W\d_]\w*")  # letters with digits, underscores or inner capitals


def kind_of(text: str) -> int:
    """Return the kind of a token by its text, a place in `KINDS`; white space before it does not count.

    Source: Unicode's classes of characters, as Python's regular expressions know them.
    """
    stripped = text.strip()
    if not stripped:
        return 4 if text else 5
    if "\ufffd" in stripped:  # part of a character
        return 5
    if _WORD.fullmatch(stripped):
        inner = any(a.islower() and b.isupper() for a, b in pairwise(stripped))
        return 1 if inner else 0
    if _IDENTIFIER.fullmatch(stripped):
        return 1
    if stripped.replace(".", "").replace(",", "").isdigit():
        return 2
    return 3 if not any(c.isalnum() for c in stripped) else 5
