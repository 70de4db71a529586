"""One filter of known secrets: on what this process prints and logs, and on prose that it writes.

A param, a tag and a table's cell are never altered: a secret in one is refused (`refuse_known`).
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO, cast
from urllib.parse import quote, quote_plus, unquote, urlsplit

from rbptrack.base.errors import BadInput

_WORDS = (
    "TOKEN", "KEY", "SECRET", "PASS", "PASSWORD", "PASSPHRASE", "PWD", "CREDENTIAL", "CONNECTION_STRING",
)  # fmt: skip
_SHORTEST = 8  # characters of a secret: shorter values stand in ordinary words
_HIDDEN = "***"
_spared: set[str] = set()


def spare(words: Iterable[str]) -> None:
    """Never take these words of the program, its options and their values, for secrets."""
    _spared.update(words)


@lru_cache(maxsize=1024)
def names_secret(name: str) -> bool:
    """Return whether a variable of this name holds a secret: a part of it, or its end, says so.

    Examples:
        >>> list(map(names_secret, ("HF_TOKEN", "MYSQL_PWD", "PGPASSWORD", "KEYBOARD", "TOKENIZERS_PARALLELISM")))
        [True, True, True, False, False]

    """
    name = name.upper().replace("-", "_")
    return name.endswith(_WORDS) or any(f"_{word}_" in f"_{name}_" for word in _WORDS)


def known() -> frozenset[str]:
    """Return the secrets of the environment, as they are and as they stand in addresses."""
    return _secrets(tuple(os.environ.items()), len(_spared))


@lru_cache(maxsize=2)
def _secrets(environment: tuple[tuple[str, str], ...], _: int) -> frozenset[str]:
    secrets = {value for name, value in environment if names_secret(name) and _may_be_secret(value)}
    passwords = (word for _, value in environment if "://" in value for word in _password(value))
    secrets |= {password for password in passwords if _may_be_secret(password)}
    forms = (quote, quote_plus, lambda secret: quote(secret, safe=""))
    return frozenset(secrets | {form(secret) for secret in secrets for form in forms})


def redact(text: str) -> str:
    """Return prose with `***` for every known secret."""
    for secret in sorted((word for word in known() if word in text), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return text


def holds_known(text: str) -> bool:
    """Return whether a text holds a known secret."""
    return any(secret in text for secret in known())


def refuse_known(values: Mapping[str, object]) -> None:
    """Raise BadInput where a value holds a known secret: it is kept as it is, so nothing in it may be hidden."""
    secrets = known()
    for name, value in values.items():
        text = str(value)
        if any(secret in text for secret in secrets):
            raise BadInput(
                f"{redact(name)} holds a secret of the environment, and would be kept where others read it: leave it "
                "there, where the libraries find it"
            )


def guard() -> None:
    """Hide secrets in everything that this process prints, warns and logs from now on; a second call does no harm."""
    if isinstance(sys.stdout, _Filtered):
        return
    sys.stdout, sys.stderr = (cast("TextIO", _Filtered(stream)) for stream in (sys.stdout, sys.stderr))
    logging.setLogRecordFactory(_Record)


def reader_gone() -> bool:
    """Write out the buffers, and return whether the reader of standard output has gone."""
    sys.stdout.flush()
    return isinstance(sys.stdout, _Filtered) and sys.stdout.cut_off


class _Record(logging.LogRecord):
    """A record of the log, which may go into a file."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.msg = redact(self.getMessage())
        self.args = None
        if self.exc_info and self.exc_info[0]:
            self.exc_text = redact("".join(traceback.format_exception(*self.exc_info)).rstrip("\n"))


class _Filtered:
    """A stream that writes no secret; tracebacks and warnings go through it as everything else does.

    Where its reader has gone (`rbptrack list | head`), it writes nothing more, and the command goes on: a sweep
    measures, a report is written.

    Attributes:
        cut_off: whether the reader has gone.

    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.cut_off = False

    def write(self, text: str) -> int:
        try:
            self._stream.write(redact(text) if len(text) >= _SHORTEST else text)
        except BrokenPipeError:
            self._cut_off()
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._cut_off()

    def _cut_off(self) -> None:
        """Discard the buffers: Python would fail on them again when it ends."""
        self.cut_off = True
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _may_be_secret(value: str) -> bool:
    """Return whether a word may be a secret: not if it is short, a number, a path, or one of the program's words."""
    number = re.fullmatch(r"[\d.,_+-]+(e[+-]?\d+)?", value)
    return len(value) >= _SHORTEST and not number and value not in _spared and not is_path(value)


def is_path(value: str) -> bool:
    """Return whether a value names a place on this machine; a key that begins with `/` is none if that folder does not
    exist.
    """
    if value.startswith(("~", "./", "../")):
        return True
    return value.startswith("/") and len(Path(value).parts) > 1 and Path(*Path(value).parts[:2]).exists()


def _password(address: str) -> set[str]:
    try:
        given = urlsplit(address).password or ""
    except ValueError:
        return set()
    return {given, unquote(given)}
