"""Recognise secrets. Passwords and keys are refused if they would be stored, and hidden in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbptrack.base.errors import BadInput

if TYPE_CHECKING:
    from sqlalchemy import URL

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
    """Whether the value under a name is probably a secret: `token`, `passwd`, `hf_token`, `api_key`, `apiKey`."""
    lowered = name.lower().replace("-", "_")
    return bool(_WORDS & set(lowered.split("_"))) or lowered.replace("_", "").endswith(_ENDS)


def refuse_password(uri: str) -> None:
    """Refuse an address with a password in it, which would be kept where others read it. The message hides it.

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
    raise BadInput(f"the tracking address holds a password, which would be kept where others read it: {remedy}")


def without_password(text: str) -> str:
    """Return the text with `***` for every password in an address.

    Examples:
        >>> without_password("cannot reach postgresql://ann:s3cret@db/runs")
        'cannot reach postgresql://ann:***@db/runs'

    """
    start = _start_of_address(text)
    if start < 0:
        return text
    address = text[start:]
    length = len(address)
    if text[:start].strip():  # an address in a sentence ends at a space; a lone one may have spaces in its password
        length = len(address.split(maxsplit=1)[0])
    return text[:start] + _hidden(address[:length]) + without_password(address[length:])


def _start_of_address(text: str) -> int:
    """Return where the first address begins (http://host, or the malformed http:/host); -1 without an address."""
    colon = text.find(":/")
    start = colon
    while start > 0 and (text[start - 1].isalnum() or text[start - 1] in "+.-"):
        start -= 1
    if colon < 0 or start < colon:
        return start
    rest = _start_of_address(text[colon + 1 :])
    return rest if rest < 0 else colon + 1 + rest


def _hidden(address: str) -> str:
    """Return an address with its secrets hidden. An address without secrets is returned unchanged."""
    if "@" not in address and "=" not in address:
        return address
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        return f"{address.partition(':')[0]}:{_HIDDEN}" if "@" in address else address
    web = url.drivername in ("http", "https")
    secret_names = [name for name in url.query if _is_secret_parameter(name)]
    login = url.password is not None or (web and url.username)  # a token may stand alone before the host
    database = without_password(url.database or "")
    if not login and not secret_names and database == (url.database or ""):
        return address
    return f"{url.drivername}://{_login(url, web=web)}{_place(url)}{database}{_query(url, secret_names)}"


def _login(url: URL, *, web: bool) -> str:
    if url.username is None and url.password is None:
        return ""
    return f"{_HIDDEN}@" if web else f"{url.username}:{_HIDDEN}@"


def _place(url: URL) -> str:
    host = (url.host or "").rpartition("@")[2]  # a password that holds @ ends at the last one
    port = f":{url.port}" if url.port else ""
    return f"{host}{port}{'/' if url.database is not None else ''}"


def _query(url: URL, secret_names: list[str]) -> str:
    pairs = [f"{name}={_HIDDEN if name in secret_names else value}" for name, value in url.query.items()]
    return f"?{'&'.join(pairs)}" if pairs else ""


def _is_secret_parameter(name: str) -> bool:
    squeezed = name.lower().replace("-", "").replace("_", "")
    return names_a_secret(name) or squeezed in _PARAMETERS
