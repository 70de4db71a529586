"""The Hugging Face hub: whether it answers, which commit a revision stands for, and its faults in plain words."""

from __future__ import annotations

import http.client
import logging
import os
import ssl
import sys
import time
from collections.abc import Callable
from functools import cache as once
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import SplitResult, urlsplit

from tenacity import Retrying, retry_if_exception_type, stop_before_delay, wait_exponential

from rbptrack.base.errors import BadInput, RbptrackError, causes
from rbptrack.sources import cache

Kind = Literal["model", "dataset"]
T = TypeVar("T")

_CONNECT_SECONDS = 2.0
_ANSWER_SECONDS = 2.5
_TRIES = 2  # a machine under load may be late for the first
_LONGEST_WAIT = 8.0  # seconds between attempts when the hub is busy: 1, 2, 4, 8
_PATIENCE = 20.0  # seconds after which no attempt begins; for files, the libraries try again too
_BUSY = (408, 429, 500, 502, 503, 504)


@once
def online() -> bool:
    """Return whether the hub answers; asked once per process.

    Where it does not (no network, or a server that accepts and hangs), the libraries stay offline: else
    every cached file costs half a minute to minutes.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    proxied = any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"))
    if not (proxied and endpoint.hostname not in ("127.0.0.1", "localhost")) and not _answers(endpoint):
        _stay_offline()
        return False
    # How long a request may take before it is tried again; the library's own defaults, unless the user says otherwise.
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", "10")
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", "10")
    return True


def _stay_offline() -> None:
    """Set the variable for libraries that are imported later, and the flag of those that a notebook already
    imported.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    for module in ("huggingface_hub.constants", "datasets.config"):
        if module in sys.modules:
            sys.modules[module].__dict__["HF_HUB_OFFLINE"] = True


def _answers(endpoint: SplitResult) -> bool:
    """Return whether something answers HTTP requests there; an error is an answer, too."""
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
            return True  # a server is there; the library explains its errors better
        except TimeoutError:
            continue
        except OSError:
            return False  # refused, or an unknown host: another try does not help
        finally:
            connection.close()
    return False


def unreachable(kind: Kind, repo: str, revision: str) -> BadInput:
    """Return the error for a file that is not cached while the hub is unreachable; it names the ways to get it."""
    return BadInput(
        f"{kind} {repo} (revision {revision}) is not in the cache and the hub cannot be reached. "
        f"On a machine with a network: hf download {repo} --repo-type {kind}; or point HF_HOME at its cache, "
        f"or give {kind}.path=FOLDER"
    )


def commit(kind: Kind, repo: str, revision: str) -> str:
    """Return the commit of a repository's revision: from the hub, else from the cache.

    Raises:
        BadInput: the hub does not know the repository or revision, or it is neither reachable nor cached.

    """
    if online():
        from huggingface_hub import HfApi

        api = HfApi()
        describe = api.model_info if kind == "model" else api.dataset_info
        sha = str(call(kind, repo, revision, lambda: describe(repo, revision=revision, timeout=10)).sha)
        cache.remember(_reference(kind, repo, revision), sha)
        return sha
    if (downloaded := snapshot(kind, repo, revision)) is not None:
        return downloaded.name  # the hub's cache names the folder after the commit
    cached_commit = cache.recall(_reference(kind, repo, revision))
    if cached_commit is None:
        raise unreachable(kind, repo, revision)
    return cached_commit


def _reference(kind: Kind, repo: str, revision: str) -> str:
    return f"commits/{kind}s--{repo.replace('/', '--')}@{revision.replace('/', '--')}"


def snapshot(kind: Kind, repo: str, revision: str) -> Path | None:
    """Return the folder of the hub's cache that holds a revision's files; None where nothing of it was downloaded."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repo, repo_type=kind, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise _not_an_id(kind, repo) from error


class _Busy(Exception):
    """The hub is there, and asks for another attempt later."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def call(kind: Kind, repo: str, revision: str, action: Callable[[], T]) -> T:
    """Do something that asks the hub; a busy hub is asked again, and every fault becomes a sentence.

    Raises:
        BadInput: unknown repository or revision, gated, or not cached while the hub is unreachable.
        RbptrackError: the hub stayed busy, or the connection broke.

    """
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its own attempts, one line each

    def attempt() -> T:
        try:
            return action()
        except RbptrackError:
            raise
        except Exception as error:
            status = _explain(kind, repo, revision, error)
            if status is None:
                raise
            raise _Busy(status) from error

    began = time.monotonic()
    retrying = Retrying(
        retry=retry_if_exception_type(_Busy),
        wait=wait_exponential(max=_LONGEST_WAIT),
        stop=stop_before_delay(_PATIENCE),
        reraise=True,
    )
    try:
        return retrying(attempt)
    except _Busy as busy:
        raise RbptrackError(
            f"{kind} {repo}: the hub is busy: it has answered {busy.status} for {time.monotonic() - began:.0f} s. "
            "Nothing is lost: run the same command again later"
        ) from busy.__cause__


def _not_an_id(kind: Kind, repo: str) -> BadInput:
    return BadInput(f"{kind}.repo={repo!r} is not a hub id; expected organisation/name")


def _explain(kind: Kind, repo: str, revision: str, error: Exception) -> int | None:
    """Raise an error that says what to do; return the status of a busy hub, or None if the hub is not the cause."""
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

    for cause in causes(error):
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
            raise _not_an_id(kind, repo) from error
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
    if any(type(cause).__module__.startswith(("httpx", "httpcore", "aiohttp")) for cause in causes(error)):
        raise RbptrackError(
            f"{kind} {repo}: the connection to the hub broke ({type(error).__name__}). Finished downloads are kept: "
            "run the same command again"
        ) from error
    return None
