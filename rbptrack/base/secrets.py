"""Passwords in addresses: refused where they would be kept, and hidden in messages."""

from __future__ import annotations

import re

from rbptrack.base.errors import BadInput

_LOGIN = re.compile(
    # In an address of the web all before @ is a login; in a database's a password may hold slashes.
    r"(?P<http>https?://)[^\s/?#@]+@|(?P<other>(?<![a-z0-9+.\-])(?!https?:)[a-z][a-z0-9+.\-]*://[^\s/?#:@]*:)\S+@",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"(?P<key>[?&;][^=&;#\s]*(?:passw(?:or)?d|pwd|token|secret|signature|credential|api_?key|access_?key)[^=&;#\s]*=)[^&;#\s]+",
    re.IGNORECASE,
)


def refuse_password(uri: str) -> None:
    """Refuse an address with a password in it, which would be kept where others read it; it is not repeated.

    Raises:
        BadInput: it holds a password before its host, or in its query.

    """
    if without_password(uri) == uri:
        return
    scheme = uri.partition(":")[0].partition("+")[0].lower()
    if scheme in ("http", "https"):
        remedy = "export MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    elif scheme == "postgresql":
        remedy = "export PGPASSWORD, or name a PGPASSFILE"
    else:
        remedy = "put the whole address into the environment as MLFLOW_TRACKING_URI"
    raise BadInput(f"the tracking address holds a password, which would be kept where others read it: {remedy}")


def without_password(text: str) -> str:
    """The text with `***` for every password that stands in an address.

    Examples:
        >>> without_password("cannot reach postgresql://ann:s3cret@db/runs")
        'cannot reach postgresql://ann:***@db/runs'

    """
    hidden = _LOGIN.sub(lambda found: f"{found['http'] or found['other']}***@", text)
    return _PAIR.sub(r"\g<key>***", hidden)
