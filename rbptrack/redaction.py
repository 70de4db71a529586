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
from urllib.parse import quote, quote_plus, unquote, unquote_plus

_SECRET_NAME = re.compile(r"(?i)(password|passwd|(^|_)(token|secret|api_?key|access_key(_id)?|secret_access_key))$")
_NAMED = ("MLFLOW_TRACKING_USERNAME",)
# A server's password ends before the first `/`, and its user's name too. A database's may hold `/`, `?` and `#`:
# SQLAlchemy takes everything up to an `@`.
_SERVER = re.compile(r"(?i)(?P<before>\s*https?://[^/?#:]*):(?P<password>[^/?#]+)@")
_DATABASE = re.compile(r"(?!(?i:\s*https?:))(?P<before>[^:/?#]*://[^:/]*):(?P<password>[^@]*(?:@[^@/?#]*(?=@))*)@")
_SERVER_IN_TEXT = re.compile(r"(?i)(?P<before>\bhttps?://[^\s/:'\"]*):(?P<password>[^\s/'\"<>]+)@")
_DATABASE_IN_TEXT = re.compile(
    r"(?i)(?P<before>(?<!\bhttp)(?<!\bhttps)://[^\s/:'\"]*):(?P<password>[^\s@'\"<>]*(?:@[^\s@/?#'\"<>]*(?=@))*)@"
)
_QUERY = re.compile(r"(?P<before>[?&;](?P<key>[^=&#;]+)=)(?P<password>[^&#]+)")
_QUERY_IN_TEXT = re.compile(r"(?P<before>[?&;](?P<key>[^=&#;\s]+)=)(?P<password>[^&#\s'\"<>]+)")
_KEY = re.compile(r"(?i)((ssl)?password|passwd|pwd|odbc_connect)\Z")
_SHORTEST = 4  # characters of a password that is looked for by itself: a shorter one stands in ordinary words
_SHORTEST_NAMED = 8  # of a variable's value
_remembered: set[str] = set()


def remember(secrets: Iterable[str]) -> None:
    """Look for these secrets from now on, too."""
    _remembered.update(secret for secret in secrets if len(secret) >= _SHORTEST)


def passwords(address: str) -> set[str]:
    """The passwords in an address, before its host and in its query, as given and unquoted."""
    login = _SERVER.match(address) or _DATABASE.match(address)
    return _and_unquoted([login["password"]] if login else [], _QUERY, address)


def without_password(address: str) -> str:
    """The address with `***` for a password before the host or in the query, and otherwise unchanged.

    SQLAlchemy's own `render_as_string(hide_password=True)` leaves `?password=...` as it is, shows what follows an `@`
    that was not quoted in a password, and quotes paths anew, by which runs would name another file than the user did.
    """
    login = _SERVER.match(address) or _DATABASE.match(address)
    if login and login["password"]:
        address = f"{login['before']}:***@{address[login.end() :]}"
    return _QUERY.sub(_hidden, address)


def in_addresses(text: str) -> set[str]:
    """The passwords in the addresses that a text holds, as given and unquoted."""
    logins = [found["password"] for each in (_SERVER_IN_TEXT, _DATABASE_IN_TEXT) for found in each.finditer(text)]
    return _and_unquoted(logins, _QUERY_IN_TEXT, text)


def _and_unquoted(logins: list[str], query: re.Pattern[str], text: str) -> set[str]:
    asked = [found["password"] for found in query.finditer(text) if _KEY.match(unquote_plus(found["key"]))]
    found = {one for one in [*logins, *asked] if one and one != "***"}
    return found | {unquote(one) for one in found}


def _hidden(found: re.Match[str]) -> str:
    """What a password in a query is replaced by; a pair of another name stays."""
    return f"{found['before']}***" if _KEY.match(unquote_plus(found["key"])) else found[0]


def redact(text: str) -> str:
    """The text with `***` for every secret."""
    for secret in sorted(_secrets(), key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, "***")
    for login in (_SERVER_IN_TEXT, _DATABASE_IN_TEXT):
        text = login.sub(lambda found: f"{found['before']}:***@" if found["password"] else found[0], text)
    return _QUERY_IN_TEXT.sub(_hidden, text)


def holds_secret(text: str) -> bool:
    """Whether `redact` would change a text."""
    return redact(text) != text


def _secrets() -> set[str]:
    found = set(_remembered)
    for name, value in os.environ.items():
        if (_SECRET_NAME.search(name) or name in _NAMED) and len(value) >= _SHORTEST_NAMED:
            found.add(value)
        elif "://" in value:
            found |= {one for one in passwords(value) | in_addresses(value) if len(one) >= _SHORTEST}
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
