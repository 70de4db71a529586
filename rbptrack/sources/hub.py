"""The Hugging Face hub: whether it answers, which commit a revision stands for, and its faults in plain words."""

from __future__ import annotations

import http.client
import logging
import os
import ssl
import time
from collections.abc import Callable, Iterator
from functools import cache as once
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import SplitResult, urlsplit

from rbptrack.errors import BadInput, RbptrackError
from rbptrack.sources import cache

Kind = Literal["model", "dataset"]
T = TypeVar("T")

_CONNECT_SECONDS = 2.0
_ANSWER_SECONDS = 2.5
_TRIES = 2  # a machine under load may miss the first
_WAITS = (1.0, 2.0, 4.0, 8.0)  # seconds between attempts when the hub is busy
_PATIENCE = 20.0  # seconds; the libraries try again too, for files, and no attempt begins after this
_BUSY = (408, 429, 500, 502, 503, 504)


@once
def online() -> bool:
    """Whether the hub answers; asked once per process, before huggingface_hub is imported.

    Where it does not (no network, or a server that accepts and hangs), HF_HUB_OFFLINE is set: without that, every
    cached file costs half a minute to minutes.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    proxied = any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"))
    if not (proxied and endpoint.hostname not in ("127.0.0.1", "localhost")) and not _answers(endpoint):
        os.environ["HF_HUB_OFFLINE"] = "1"
        return False
    # How long a request may take before it is tried again; the library's own defaults, unless the user says otherwise.
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", "10")
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", "10")
    return True


def _answers(endpoint: SplitResult) -> bool:
    """Whether anything speaks HTTP there; any answer will do, an error too."""
    kind = http.client.HTTPConnection if endpoint.scheme == "http" else http.client.HTTPSConnection
    for _ in range(_TRIES):
        connection = kind(endpoint.hostname or "", endpoint.port, timeout=_CONNECT_SECONDS)
        try:
            connection.connect()
            connection.sock.settimeout(_ANSWER_SECONDS)
            connection.request("HEAD", "/")
            connection.getresponse()
            return True
        except (ssl.SSLError, http.client.HTTPException):
            return True  # somebody is there; what is wrong, the library says better
        except TimeoutError:
            continue
        except OSError:
            return False  # refused, or no such host: asking again does not help
        finally:
            connection.close()
    return False


def unreachable(kind: Kind, repo: str, revision: str) -> BadInput:
    """The error for something that is neither cached nor to be had, with the ways to get it."""
    return BadInput(
        f"{kind} {repo} (revision {revision}) is not in the cache and the hub cannot be reached. "
        f"On a machine with a network: hf download {repo} --repo-type {kind}; or point HF_HOME at its cache, "
        f"or give {kind}.path=FOLDER"
    )


def commit(kind: Kind, repo: str, revision: str) -> str:
    """The commit of a repository's revision: from the hub, else from what is cached.

    Raises:
        BadInput: the hub does not know the repository or revision, or it is neither reachable nor cached.

    """
    if online():
        from huggingface_hub import HfApi

        api = HfApi()
        describe = api.model_info if kind == "model" else api.dataset_info
        found = str(call(kind, repo, revision, lambda: describe(repo, revision=revision, timeout=10)).sha)
        cache.remember(_reference(kind, repo, revision), found)
        return found
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"{kind}s--{repo.replace('/', '--')}"
    if (folder / "snapshots" / revision).is_dir():
        return revision
    if (folder / "refs" / revision).is_file():
        return (folder / "refs" / revision).read_text(encoding="utf-8").strip()
    known = cache.recall(_reference(kind, repo, revision))
    if known is None:
        raise unreachable(kind, repo, revision)
    return known


def _reference(kind: Kind, repo: str, revision: str) -> str:
    return f"commits/{kind}s--{repo.replace('/', '--')}@{revision.replace('/', '--')}"


def snapshot(kind: Kind, repo: str, revision: str) -> Path | None:
    """The folder into which `hf download` put a repository's files, if it did."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"{kind}s--{repo.replace('/', '--')}" / "snapshots" / revision
    return folder if folder.is_dir() else None


def call(kind: Kind, repo: str, revision: str, action: Callable[[], T]) -> T:
    """Do something that asks the hub; a busy hub is asked again, and every fault becomes a sentence.

    Raises:
        BadInput: no such repository or revision, gated, or not cached while the hub is unreachable.
        RbptrackError: the hub stayed busy, or the connection broke.

    """
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its own attempts, one line each
    began = time.monotonic()
    for wait in (*_WAITS, None):
        try:
            return action()
        except RbptrackError:
            raise
        except Exception as error:
            status = _explain(kind, repo, revision, error)
            if status is None:
                raise
            spent = time.monotonic() - began
            if wait is None or spent + wait > _PATIENCE:
                raise RbptrackError(
                    f"{kind} {repo}: the hub is busy: it has answered {status} for {spent:.0f} s. Nothing is lost: run "
                    "the same command again later"
                ) from error
            time.sleep(wait)
    raise AssertionError("unreachable")


def _explain(kind: Kind, repo: str, revision: str, error: Exception) -> int | None:
    """Raise the error that people understand; the HTTP status of a busy hub; None where it is not the hub's fault."""
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    for cause in _chain(error):
        if isinstance(cause, GatedRepoError):
            raise BadInput(
                f"{kind} {repo} is gated: ask for access at {os.environ.get('HF_ENDPOINT', 'https://huggingface.co')}"
                f"/{'datasets/' if kind == 'dataset' else ''}{repo}, then `hf auth login` or set HF_TOKEN"
            ) from error
        if isinstance(cause, RevisionNotFoundError):
            raise BadInput(f"{kind} {repo} has no revision {revision}") from error
        if isinstance(cause, RepositoryNotFoundError):
            raise BadInput(
                f"{kind} {repo} is not on the hub, or is private: check the name, or `hf auth login` or set HF_TOKEN"
            ) from error
        if isinstance(cause, HFValidationError):
            raise BadInput(f"{kind}.repo={repo!r} is not a hub id; expected organisation/name") from error
        if isinstance(cause, OfflineModeIsEnabled | LocalEntryNotFoundError) and not online():
            raise unreachable(kind, repo, revision) from error
        if isinstance(cause, HfHubHTTPError) and not isinstance(cause, EntryNotFoundError):
            status = cause.response.status_code
            if status in _BUSY:
                return int(status)
            if status in (401, 403):
                raise BadInput(
                    f"{kind} {repo}: the hub answered {status}, no access; `hf auth login` or set HF_TOKEN"
                ) from error
            raise RbptrackError(f"{kind} {repo} (revision {revision}): the hub answered {status}") from error
    if any(type(cause).__module__.startswith(("httpx", "httpcore", "aiohttp")) for cause in _chain(error)):
        raise RbptrackError(
            f"{kind} {repo}: the connection to the hub broke ({type(error).__name__}). What was downloaded is kept: "
            "run the same command again"
        ) from error
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
