"""The one door for addresses: past it none holds a password, whichever library reads it.

One in MLFLOW_TRACKING_URI moves to the environment variables from which the store's driver takes it. On the command
line, in a config file and in an analyzer's options it is refused, and so is what cannot be taken apart; no refusal
repeats an address.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote, unquote_plus, urlsplit

from rbptrack.base.errors import BadInput
from rbptrack.base.secrets import is_path, names_secret, refuse_known

DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
SERVERS = ("http", "https")
VARIABLE = "MLFLOW_TRACKING_URI"
_LOGIN = {
    "http": ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"),
    "postgresql": ("PGPASSWORD",),
}
"""The variables from which the driver of each kind of store takes what an address shall not hold."""

_LONGEST = 2000  # characters of an address
_KEYS = ("tracking.uri", "tracking_uri")
_READ_PGPASSWORD = ("postgresql", "postgresql+psycopg", "postgresql+psycopg2", "postgresql+asyncpg")
# As SQLAlchemy takes a database's address apart: a user's name ends at the first `:`, a password at the first `@`.
_DATABASE = re.compile(r"(?P<before>[^:/]+://[^:/]*):(?P<password>[^@]*)@(?P<after>.*)", re.DOTALL)
_PAIR = re.compile(r"[?&;#](?P<key>[^=&;#\s]+)=(?P<value>[^&;#\s]+)")
_ANY_LOGIN = re.compile(r"(?i)\bhttps?://[^/?#\s]*@|(?<!\bhttp)(?<!\bhttps)://[^/?#\s:]*:\S*@")
_LOGIN_IN_PATH = re.compile(r"/[^/@]*:[^/@]*@")
_ASSIGNMENT = re.compile(r"(?<![\w${?&;#])(?P<name>[A-Za-z_]\w*)=[\"']?(?P<value>[^\s\"';$`]+)")
_FILES = ("sslkey", "ssl_key")  # of a database's address: they name a file
_MORE_WORDS = re.compile(r"(?i)(passwd|signature|odbc_connect|(^|_)sig)$")
_NO_ADDRESS = (
    "is not an address: expected sqlite:////path/mlflow.db, postgresql://user@host:port/database or "
    "http(s)://host:port, with [ ] around an IPv6 address only, and in names quoted (%5B for [, %40 for @, %23 for #)"
)


def scheme(address: str) -> str:
    """Return the kind of store that an address names, without the driver: `postgresql` of
    `postgresql+psycopg://...`.
    """
    return urlsplit(address).scheme.partition("+")[0]


def without_stars(address: str) -> str:
    """Return an address as it is kept today; release 0.1 wrote `***` for its password."""
    return re.sub(r"[?&]password=\*\*\*$|password=\*\*\*&", "", address.replace(":***@", "@"))


def from_environment() -> str:
    """Return the address in MLFLOW_TRACKING_URI; from now on it holds no password there, which has moved to its
    driver's.

    Raises:
        BadInput: it is no address, or holds a secret that no driver would take from elsewhere.

    """
    bare, login = taken_apart(os.environ.get(VARIABLE, ""), VARIABLE)
    if login:
        os.environ.update(login, **{VARIABLE: bare})
    return bare


def login_variables(address: str) -> list[str]:
    """Return the variables of this process from which a store's driver takes its user and password."""
    kind = "http" if scheme(address) in SERVERS else scheme(address)
    return [name for name in _LOGIN.get(kind, ()) if os.environ.get(name)]


def refuse_secret(key: str, text: str) -> None:
    """Raise BadInput where a value that is kept, or that others may read, holds a secret; the value is not repeated.

    Args:
        key: of an option or a config.
        text: its value.

    """
    if key.endswith(_KEYS):
        if taken_apart(text, key)[1]:
            raise _refused(f"{key} holds a password", _remedy(scheme(text)))
    elif _ANY_LOGIN.search(text) or ("://" in text and _secret_pair(text)):
        where = "in the environment or in their own files (~/.netrc, ~/.aws, hf auth login)"
        raise _refused(f"{key} is an address with a password or a token in it", f"the libraries find it {where}")
    if sets_secret(key, text):
        raise _refused(f"{key} gives a variable that holds a secret", "export it before you start the program")
    refuse_known({key: text})


def sets_secret(key: str, text: str) -> bool:
    """Return whether a value gives a secret to a variable: `export HF_TOKEN=...`, or a key of `hydra.job.env_set`."""
    in_environment = re.findall(r"\w+", f"{key}: {text}".partition("env_set")[2])
    assigned = [match["name"] for match in _ASSIGNMENT.finditer(text) if not is_path(match["value"])]
    return any(map(names_secret, [*in_environment, *assigned]))


def taken_apart(address: str, key: str) -> tuple[str, Mapping[str, str]]:
    """Return a tracking store's address without its password, and the environment variables that take it.

    Args:
        address: of the store.
        key: where it was given, for errors.

    Raises:
        BadInput: it cannot be parsed, or holds a secret that no variable can carry.

    """
    if len(address) > _LONGEST:
        raise BadInput(f"{key} has {len(address):,} characters; an address has {_LONGEST:,} at most")
    try:
        kind = scheme(address)
        if not unquote(address).isprintable():
            raise ValueError("control characters")
        if kind in SERVERS:
            return _server(address, key)
        if kind == "postgresql":
            return _postgresql(address, key)
    except ValueError:  # of urllib or SQLAlchemy, whose words may repeat a password
        raise BadInput(f"{key} {_NO_ADDRESS}") from None
    if address and kind in ("", "file"):
        raise BadInput(
            f"{key} is a path, or no address: MLflow no longer keeps runs in plain files; "
            "give sqlite:////absolute/path/mlflow.db, a database or http(s)://server"
        )
    if address and kind not in (*DATABASES, "databricks"):
        raise BadInput(
            f"{key} names no kind of tracking store. "
            "Kinds: sqlite:////path/mlflow.db, postgresql://user@host/database, http(s)://server"
        )
    if _DATABASE.match(address) or _secret_pair(address):
        raise _refused(f"{key} holds a password", _remedy(kind))
    return address, {}


def _server(address: str, key: str) -> tuple[str, Mapping[str, str]]:
    parts = urlsplit(address)
    if parts.query or parts.fragment:
        raise _refused(f"{key} has a part after ? or #, which no tracking server takes", _remedy("http"))
    login, at, host = parts.netloc.rpartition("@")
    if not parts.hostname or "@" in login or parts.port == 0 or _LOGIN_IN_PATH.search(unquote(parts.path)):
        raise ValueError("no host, or a login where a path stands")
    if not at:
        return address, {}
    user, _, password = login.partition(":")
    if not user or not password:
        raise _refused(f"{key} holds a user without a password", f"{_remedy('http')}; a token is no user")
    names = _LOGIN["http"]
    return parts._replace(netloc=host).geturl(), {names[0]: unquote(user), names[1]: unquote(password)}


def _postgresql(address: str, key: str) -> tuple[str, Mapping[str, str]]:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    login = _DATABASE.match(address)
    bare, password = (f"{login['before']}@{login['after']}", unquote(login["password"])) if login else (address, "")
    if login and "@" in login["after"].partition("?")[0]:
        raise ValueError("an unquoted @")
    if not login and ":" in unquote(urlsplit(address).username or ""):
        raise ValueError("a quoted colon between user and password")
    place, mark, query = bare.partition("?")
    pairs = [pair for pair in query.split("&") if pair]
    for pair in [pair for pair in pairs if unquote_plus(pair.partition("=")[0]).lower() == "password"]:
        password = unquote_plus(pair.partition("=")[2])
        pairs.remove(pair)
    bare = place + (mark if pairs else "") + "&".join(pairs)
    if _secret_pair(bare):
        remedy = "keep it in a service file (PGSERVICEFILE) and write ?service=NAME"
        raise _refused(f"{key} holds a secret in its query", remedy)
    try:
        url = make_url(bare)
    except ArgumentError:
        raise ValueError("no address") from None
    if url.password or "#" in bare:
        raise ValueError("another login, or what no database's address has")
    if not password:
        return bare, {}
    if url.drivername not in _READ_PGPASSWORD:
        raise _refused(f"{key} holds a password, which {url.drivername} takes from nowhere else", "postgresql://...")
    return bare, {"PGPASSWORD": password}


def _secret_pair(address: str) -> bool:
    """Return whether a pair after `?` or `#` is named as secrets are."""
    pairs = [(unquote_plus(pair["key"]), pair["value"]) for pair in _PAIR.finditer(address)]
    named = [value for name, value in pairs if names_secret(name) or _MORE_WORDS.search(name) if name not in _FILES]
    return any(value != "***" and not is_path(unquote(value)) for value in named)


def _remedy(kind: str) -> str:
    if kind in SERVERS:
        return "export MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, and take it out"
    if kind == "postgresql":
        return "export PGPASSWORD (or name a PGPASSFILE) and take it out"
    if kind == "mysql":
        return "keep it in ~/.my.cnf and end the address with ?read_default_file=/home/NAME/.my.cnf"
    return "put an MLflow server before the database; its user and password are read from the environment"


def _refused(what: str, remedy: str) -> BadInput:
    return BadInput(f"{what}, which would be kept where others read it: {remedy}")
