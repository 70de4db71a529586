"""Options as dataclass fields: what help pages, checks and Tab completion know of an option stands in its field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any


def option(
    shown: str = "", meaning: str = "", default: Any | Callable[[], Any] = "", *, values: Sequence[str] | str = ()
) -> Any:
    """Declare an option: a dataclass field with its help.

    Args:
        shown: how it is typed, such as `out=FILE.zip`; made of name and type where it is empty.
        meaning: what its help page says; an option without help is on no page.
        default: its value, or a function that makes it, such as `list`.
        values: what Tab completes: words, or the name of a kind of words (`files`, `models`); enums know theirs.

    """
    help_metadata = {"help": meaning, "shown": shown, "values": values}
    if callable(default):
        return field(default_factory=default, metadata=help_metadata)
    return field(default=default, metadata=help_metadata)
