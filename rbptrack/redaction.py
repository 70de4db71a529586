"""Secrets out of everything that is shown or written: those of the environment, and those in addresses."""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections.abc import Iterable
from types import TracebackType
from typing import Any
from urllib.parse import quote, quote_plus, unquote

_SECRET_NAME = re.compile(r"(?i)(password|passwd|(^|_)(token|secret|api_?key|access_key(_id)?|secret_access_key))$")
_NAMED = ("MLFLOW_TRACKING_USERNAME",)
_IN_ADDRESS = re.compile(r"(?<=://)([^\s/:@'\"]*):([^\s/'\"<>]+)@")
_IN_QUERY = re.compile(r"(?i)(?<=[?&;])((?:ssl)?password|passwd|pwd|odbc_connect)=([^&#\s'\"<>]+)")
_SHORTEST = 4  # characters of a password that is looked for by itself: a shorter one stands in ordinary words
_SHORTEST_NAMED = 8  # of a variable's value
_remembered: set[str] = set()


def remember(secrets: Iterable[str]) -> None:
    """Look for these secrets from now on, too."""
    _remembered.update(secret for secret in secrets if len(secret) >= _SHORTEST)


def in_addresses(text: str) -> set[str]:
    """The passwords in the addresses that a text holds, as given and unquoted."""
    found = {password for _, password in [*_IN_ADDRESS.findall(text), *_IN_QUERY.findall(text)]} - {"***"}
    return found | {unquote(one) for one in found}


def redact(text: str) -> str:
    """The text with `***` for every secret."""
    for secret in sorted(_secrets(), key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, "***")
    return _IN_QUERY.sub(r"\1=***", _IN_ADDRESS.sub(r"\1:***@", text))


def holds_secret(text: str) -> bool:
    """Whether `redact` would change a text."""
    return redact(text) != text


def _secrets() -> set[str]:
    found = set(_remembered)
    for name, value in os.environ.items():
        if (_SECRET_NAME.search(name) or name in _NAMED) and len(value) >= _SHORTEST_NAMED:
            found.add(value)
        elif "://" in value:
            found |= {one for one in in_addresses(value) if len(one) >= _SHORTEST}
    return found | {form(one) for one in found for form in (quote, quote_plus, lambda one: quote(one, safe=""))}


def guard() -> None:
    """From here on, log records and tracebacks of this process hold no secret."""
    made = logging.getLogRecordFactory()

    def record(*args: Any, **keywords: Any) -> logging.LogRecord:
        one = made(*args, **keywords)
        one.msg, one.args = redact(one.getMessage()), None
        if one.exc_info and one.exc_info[0]:
            one.exc_text = redact("".join(traceback.format_exception(*one.exc_info)).rstrip("\n"))
        return one

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.stderr.write(redact("".join(traceback.format_exception(kind, error, trace))))

    logging.setLogRecordFactory(record)
    sys.excepthook = hook
