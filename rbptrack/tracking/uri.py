"""Addresses of tracking stores: which one is meant."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rbptrack.config.paths import home
from rbptrack.config.schema import TrackingConfig
from rbptrack.errors import BadInput
from rbptrack.redaction import passwords, remember, without_password

DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_SERVERS = ("http", "https")
_LONGEST = 2000  # characters of an address


def scheme(uri: str) -> str:
    """The kind of store that a URI names, without the driver: `postgresql` of `postgresql+psycopg://...`."""
    return urlsplit(uri).scheme.partition("+")[0]


def is_server(uri: str) -> bool:
    """Whether a URI names a tracking server rather than a database."""
    return scheme(uri) in _SERVERS


def resolve_uri(config: TrackingConfig) -> str:
    """The tracking URI: the config's, else MLFLOW_TRACKING_URI, else the local database; absolute.

    The user and password of a server's address move into the environment, from where MLflow takes them.

    Raises:
        BadInput: it is not the address of a tracking store.

    """
    uri = config.uri or os.environ.get("MLFLOW_TRACKING_URI", "") or f"sqlite:///{home() / 'mlflow.db'}"
    if len(uri) > _LONGEST:
        raise BadInput(f"tracking.uri has {len(uri):,} characters; an address has {_LONGEST:,} at most")
    if uri.startswith("sqlite:///"):
        path, mark, query = uri.removeprefix("sqlite:///").partition("?")
        if "%" in unquote(path) or "%3F" in path.upper():
            raise BadInput(f"tracking.uri={uri}: MLflow cannot keep a database at a path with ? or % in it")
        uri = f"sqlite:///{Path(unquote(path)).absolute()}{mark}{query}"
    try:
        urlsplit(uri).port  # noqa: B018  raises what may repeat a password
        if not unquote(uri).isprintable() or (is_server(uri) and not urlsplit(uri).hostname):
            raise ValueError("control characters, or no host")
    except ValueError:
        raise BadInput(
            "tracking.uri is not an address: expected sqlite:////path/mlflow.db, postgresql://user@host:port/database "
            "or http(s)://host:port, with [ ] around an IPv6 address only, and elsewhere quoted (%5B for [)"
        ) from None
    if scheme(uri) in ("", "file"):
        raise BadInput(
            f"tracking.uri={uri}: MLflow no longer keeps runs in plain files; "
            "give sqlite:////absolute/path/mlflow.db, a database or http(s)://server"
        )
    if scheme(uri) not in (*DATABASES, *_SERVERS, "databricks"):
        raise BadInput(
            f"tracking.uri={without_password(uri)}: {scheme(uri)}:// is no kind of tracking store. "
            "Kinds: sqlite:////path/mlflow.db, postgresql://user@host/database, http(s)://server"
        )
    remember(passwords(uri))
    parts = urlsplit(uri)
    if is_server(uri) and parts.username:
        os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(parts.username)
        os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(parts.password or "")
        uri = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return uri
