"""Recognise passwords and keys, refuse them where they would be stored, and hide them in messages."""

from __future__ import annotations

import re
from urllib.parse import quote

from rbptrack.base.errors import BadInput

_ADDRESS = re.compile(  # the beginning of an address: http://host, and the malformed http:/host and http:host
    r"(?<![a-z0-9+.-])[a-z0-9+.-]+:/|(?:https?|postgres|postgresql|mysql|mssql)(?:\+\w+)?:(?=\S)", re.IGNORECASE
)
_PARAMETER_NAME = re.compile(r"(?<![\w-])([\w-]+)=")  # without the first condition, the search takes quadratic time
_ASSIGNED_NAME = re.compile(r"(?<![\w-])([\w-]{1,80})=(?=[^\s=,;&])")  # the name in `NAME=VALUE`
_MASK = "***"
_SECRET_WORD = re.compile(
    r"(?:^|_)(?:token|password|passwd|passphrase|pwd|secret|auth|authorization|credentials?)(?:_|$)"
)
_SECRET_ENDING = re.compile(r"(?:token|password|passwd|secret|(?:api|access|private|secret|account)key)$")
# Parameters of addresses that may hold a secret although `names_a_secret` does not recognise their names.
_SECRET_PARAMETERS = {"key", "sig", "signature", "options", "odbcconnect"}
_KNOWN_FORMS = re.compile(  # of the Hugging Face Hub, OpenAI, GitHub, GitLab, Slack, AWS, and JSON web tokens
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{16,}|sk-(?:[a-z0-9]+-){0,2}\w{16,}|gh[opsur]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[a-z]-[\w-]{10,}|AKIA[0-9A-Z]{12,}|eyJ[\w-]{8,}\.[\w-]+\.[\w-]*)"
)
_NAMED_VALUE = re.compile(r"(?<![\w-])([\w-]{1,80})([=:]\s?['\"]?)([A-Za-z0-9+/_.~-]{16,}=*)")
_SECRET_NAME = re.compile(r"(?:^|[_-])(?:key|pass|sas|jwt)$", re.IGNORECASE)
_MIN_DISTINCT = 10  # characters of a random text of 16 or more
_declared: set[str] = set()

MIN_SECRET_LENGTH = 4
"""The smallest number of characters of a secret that `without_password` can hide."""


def names_a_secret(name: str) -> bool:
    """Return whether the value under a name is probably secret: `token`, `passwd`, `hf_token`, `api_key`, `apiKey`."""
    lowered = name.lower().replace("-", "_")
    return bool(_SECRET_WORD.search(lowered) or _SECRET_ENDING.search(lowered.replace("_", "")))


def declare_secret(value: str) -> None:
    """Let `without_password` hide a value, also as it is quoted in an address, for the rest of this process.

    Texts of fewer than four characters are not hidden, because they would be found everywhere.
    """
    if len(value) >= MIN_SECRET_LENGTH:
        _declared.update((value, quote(value, safe="")))


def is_secret(name: str, value: str) -> bool:
    """Return whether a parameter is or holds a secret, by its name or its value, such as `hf_...` or `HF_TOKEN=x`."""
    if names_a_secret(name) or any(map(names_a_secret, _ASSIGNED_NAME.findall(value))):
        return True
    return without_password(f"{name}={value}") != f"{name}={value}"


def refuse_password(uri: str) -> None:
    """Refuse an address that holds a password, because rbptrack stores the address.

    Raises BadInput if the address holds a password before its host or in its query, or if it holds `@` and cannot be
    parsed. The message does not show the password.
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
    """Return a text in which `***` replaces the password of every address, and everything that looks like a secret.

    These are keys and tokens of known services, long random texts after names such as `token=`, and declared secrets.

    Examples:
        >>> without_password("cannot reach postgresql://ann:s3cret@db/runs")
        'cannot reach postgresql://ann:***@db/runs'

    """
    for value in sorted(_declared, key=len, reverse=True):  # one secret may be a part of another
        text = text.replace(value, _MASK)
    text = _KNOWN_FORMS.sub(_MASK, text)
    if ":" not in text and "=" not in text:  # most texts; the searches below take ten times as long
        return text
    text = _NAMED_VALUE.sub(_mask_named_value, text)
    masked = ""
    while match := _ADDRESS.search(text):
        start = match.start()
        address = text[start:]
        length = len(address)
        if text[:start].strip():  # in a sentence, an address ends at a space; otherwise its password may hold spaces
            length = len(address.split(maxsplit=1)[0])
        masked += text[:start] + _mask_secrets(address[:length])
        text = address[length:]
    return masked + text


def shown_address(typed: str) -> str:
    """Return an address that a user typed, without its password.

    If it holds `@` but does not begin like an address, everything before the last `@` is hidden.
    """
    if "@" in typed and not _ADDRESS.match(typed):
        return f"{_MASK}@{typed.rpartition('@')[2]}"
    return without_password(typed)


def _mask_secrets(address: str) -> str:
    """Return an address with `***` in place of its secrets. An address without secrets is returned unchanged."""
    if "@" not in address and "=" not in address:
        return address
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    scheme = address.partition(":")[0]
    is_web = scheme.lower() in ("http", "https")
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        may_hold_a_secret = "@" in address or any(map(_is_secret_parameter, _PARAMETER_NAME.findall(address)))
        return f"{scheme}:{_MASK}" if may_hold_a_secret else address
    if is_web and not url.host and "@" in address:  # http:///me:pw@host
        return f"{scheme}:{_MASK}"
    # A web address may hold a token in place of the user name, without a password.
    has_login = url.password is not None or (is_web and url.username)
    database = None if url.database is None else without_password(url.database)
    query = {name: _MASK if _is_secret_parameter(name) else value for name, value in url.query.items()}
    if not has_login and query == url.query and database == url.database:
        return address
    masked = URL.create(
        url.drivername,
        _MASK if is_web and has_login else url.username,
        None if is_web else url.password,
        url.host and url.host.rpartition("@")[2],  # if the password holds @, a part of it is in url.host
        url.port,
        database,
        query,
    )
    return masked.render_as_string(hide_password=True).replace(quote(_MASK), _MASK)


def _mask_named_value(match: re.Match[str]) -> str:
    """Return the match with `***` in place of the value, if the name and the value are those of a secret."""
    name, between, value = match.groups()
    is_random = any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and len(set(value)) >= _MIN_DISTINCT
    if is_random and (names_a_secret(name) or _SECRET_NAME.search(name)):
        return f"{name}{between}{_MASK}"
    return match[0]


def _is_secret_parameter(name: str) -> bool:
    letters = name.lower().replace("-", "").replace("_", "")
    return names_a_secret(name) or letters in _SECRET_PARAMETERS
