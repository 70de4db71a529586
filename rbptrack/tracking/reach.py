"""Whether anything answers at a store's address, before MLflow is asked, which would go on trying for minutes."""

from __future__ import annotations

import http.client
import logging
import urllib.error
import urllib.request

from rbptrack.base.addresses import DATABASES, scheme
from rbptrack.base.errors import BadInput, StoreAway
from rbptrack.tracking import local
from rbptrack.tracking.uri import is_server, opened

_REACH_SECONDS = 5
SILENCE_SECONDS = 120.0  # how long a server or database that takes connections may be silent, once per process
SILENT: set[str] = set()  # stores that were there and did not answer

log = logging.getLogger(__name__)


def say_slow(shown: str) -> None:
    """Say that a store is waited for."""
    log.warning("%s is slow to answer; waiting up to %d s for it", shown, SILENCE_SECONDS)


def reach(uri: str) -> None:
    """Ask a server or database for a sign of life, because MLflow would go on trying for minutes.

    One that refuses connections is away at once. Silence is waited for, once: a busy server answers late.

    Raises:
        StoreAway: nothing answers.
        BadInput: a database answers and refuses, or its driver is not installed.

    """
    patience = _REACH_SECONDS if uri in SILENT else SILENCE_SECONDS
    if is_server(uri):
        try:
            urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=patience).close()  # noqa: S310
        except urllib.error.HTTPError:
            pass  # whatever it says, something answers
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise StoreAway(
                f"no tracking server answers at {uri} ({reason}): is it running, is the address right?"
            ) from error
    elif scheme(uri) in DATABASES and not uri.startswith("sqlite"):
        _reach_database(uri, round(patience))


def _reach_database(uri: str, seconds: int) -> None:
    import sqlalchemy

    arguments = {"connect_timeout": seconds} if uri.startswith(("postgresql", "mysql")) else {}
    try:
        with opened(uri, connect_args=arguments) as connection:
            if tables := sqlalchemy.inspect(connection).get_table_names():
                local.check_tables(uri, tables)
    except ModuleNotFoundError as error:
        extra = " (pip install 'rbptrack[postgres]')" if uri.startswith("postgresql") else ""
        raise BadInput(f"{uri} needs the Python package {error.name}{extra}") from error
    except sqlalchemy.exc.ArgumentError as error:
        raise BadInput(f"tracking.uri={uri} is not a database's address") from error
