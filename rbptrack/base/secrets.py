"""Recognise passwords and keys, refuse them where they would be stored, and hide them in messages."""

from __future__ import annotations

import re
from urllib.parse import quote

from rbptrack.base.errors import BadInput

_ADDRESS = re.compile(  # as it begins: http://host, and the malformed http:/host and http:host
    r"[a-z0-9+.-]+:/|(?:https?|postgres|postgresql|mysql|mssql)(?:\+\w+)?:(?=\S)", re.IGNORECASE
)
_PARAMETER = re.compile(r"([\w-]+)=")
_HIDDEN = "***"
_WORDS = {
    "token",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "auth",
    "authorization",
    "credential",
    "credentials",
}
_ENDS = ("token", "password", "passwd", "secret", "apikey", "accesskey", "privatekey", "secretkey", "accountkey")
_PARAMETERS = {"key", "sig", "signature", "options", "odbcconnect"}  # of an address; names_a_secret finds others


def names_a_secret(name: str) -> bool:
    """Return whether the value under a name is probably secret: `token`, `passwd`, `hf_token`, `api_key`, `apiKey`."""
    lowered = name.lower().replace("-", "_")
    return bool(_WORDS & set(lowered.split("_"))) or lowered.replace("_", "").endswith(_ENDS)


def refuse_password(uri: str) -> None:
    """Refuse an address that holds a password, because it would be stored. The message does not show the password.

    Raises:
        BadInput: the address holds a password before its host or in its query, or it holds `@` and cannot be parsed.

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
    raise BadInput(
        f"the tracking address holds a password, and addresses are stored where others can read them: {remedy}"
    )


def without_password(text: str) -> str:
    """Return the text with `***` for every password in an address.

    Examples:
        >>> without_password("cannot reach postgresql://ann:s3cret@db/runs")
        'cannot reach postgresql://ann:***@db/runs'

    """
    match = _ADDRESS.search(text)
    if match is None:
        return text
    start = match.start()
    address = text[start:]
    length = len(address)
    if text[:start].strip():  # an address in a sentence ends at a space; a lone one may have spaces in its password
        length = len(address.split(maxsplit=1)[0])
    return text[:start] + _hidden(address[:length]) + without_password(address[length:])


def shown_address(typed: str) -> str:
    """Return an address that a user typed, without its password.

    If it does not begin like an address, nothing before its last @ is shown.
    """
    if "@" in typed and not _ADDRESS.match(typed):
        return f"{_HIDDEN}@{typed.rpartition('@')[2]}"
    return without_password(typed)


def _hidden(address: str) -> str:
    """Return an address with its secrets hidden. An address without secrets is returned unchanged."""
    if "@" not in address and "=" not in address:
        return address
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    scheme = address.partition(":")[0]
    web = scheme.lower() in ("http", "https")
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        return f"{scheme}:{_HIDDEN}" if _may_hold_a_secret(address) else address
    if web and not url.host and "@" in address:  # http:///me:pw@host
        return f"{scheme}:{_HIDDEN}"
    login = url.password is not None or (web and url.username)  # a token may stand alone before the host
    database = None if url.database is None else without_password(url.database)
    query = {name: _HIDDEN if _is_secret_parameter(name) else value for name, value in url.query.items()}
    if not login and query == url.query and database == url.database:
        return address
    hidden = URL.create(
        url.drivername,
        _HIDDEN if web and login else url.username,
        None if web else url.password,
        url.host and url.host.rpartition("@")[2],  # a password that holds @ ends at the last one
        url.port,
        database,
        query,
    )
    return hidden.render_as_string(hide_password=True).replace(quote(_HIDDEN), _HIDDEN)


def _may_hold_a_secret(address: str) -> bool:
    return "@" in address or any(map(_is_secret_parameter, _PARAMETER.findall(address)))


def _is_secret_parameter(name: str) -> bool:
    squeezed = name.lower().replace("-", "").replace("_", "")
    return names_a_secret(name) or squeezed in _PARAMETERS
