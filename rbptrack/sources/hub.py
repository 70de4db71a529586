"""Asks the Hugging Face hub for commits, and translates its errors into messages for the user."""

from __future__ import annotations

import http.client
import os
import shlex
import ssl
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import SplitResult, urlsplit

from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.files import write_whole
from rbptrack.base.formatting import listed
from rbptrack.sources import cache

Kind = Literal["model", "dataset"]
T = TypeVar("T")

_CONNECT_SECONDS = 2.0
_ANSWER_SECONDS = 2.5
_TRIES = 2  # on a busy machine the first try may time out


@dataclass(frozen=True)
class Missing:
    """A repository that is not in the hub's cache.

    Attributes:
        kind: "model" or "dataset".
        repo: the repository's id on the hub.
        revision: the requested revision.
        patterns: patterns of the files that are needed. Empty for all files.

    """

    kind: Kind
    repo: str
    revision: str
    patterns: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Kind, id and, if it is not main, revision, such as `dataset wikimedia/wikipedia`."""
        revision = f" (revision {self.revision})" if self.revision != "main" else ""
        return f"{self.kind} {self.repo}{revision}"

    @property
    def command(self) -> str:
        """The command that downloads the needed files."""
        words = ["hf", "download", self.repo]
        if self.kind != "model":
            words += ["--repo-type", self.kind]
        if self.revision != "main":
            words += ["--revision", self.revision]
        for pattern in self.patterns:
            words += ["--include", pattern]
        return shlex.join(words)


class NotCached(BadInput):
    """The hub cannot be reached, and repositories are not in the cache.

    Attributes:
        missing: the repositories.

    """

    def __init__(self, missing: Sequence[Missing]) -> None:
        self.missing = tuple(missing)
        verb = "is" if len(missing) == 1 else "are"
        super().__init__(
            f"{listed([one.name for one in missing])} {verb} not in the cache and the hub cannot be reached. "
            f"On a machine with a network, run: {'; '.join(one.command for one in missing)}. {other_ways(missing)}"
        )


def other_ways(missing: Sequence[Missing]) -> str:
    """Return a sentence that names the ways to give missing models and datasets without a download."""
    options = [f"{kind}.path=FOLDER" for kind in dict.fromkeys(one.kind for one in missing)]
    return f"Or point HF_HOME at a cache that holds {'it' if len(missing) == 1 else 'them'}, or give {listed(options)}"


@once
def online() -> bool:
    """Return whether the hub can be reached. The hub is asked once per process.

    If the hub does not answer, huggingface_hub and datasets are set to offline mode. Otherwise they would wait half a
    minute or more for every cached file.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    local = endpoint.hostname in ("127.0.0.1", "localhost")
    proxied = any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"))
    if (local or not proxied) and not _answers(endpoint):
        _stay_offline()
        return False
    return True


def _stay_offline() -> None:
    """Set huggingface_hub and datasets to offline mode, whether they are imported already or later."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    for name in ("huggingface_hub.constants", "datasets.config"):
        module = sys.modules.get(name)
        if module is not None:
            module.__dict__["HF_HUB_OFFLINE"] = True


def _answers(endpoint: SplitResult) -> bool:
    """Return whether a server answers HTTP requests at an address. An HTTP error counts as an answer."""
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
            return True  # a server answered; the library explains its error better
        except TimeoutError:
            continue
        except OSError:
            return False  # the connection was refused or the host is unknown, so another try does not help
        finally:
            connection.close()
    return False


def commit(kind: Kind, repo: str, revision: str, patterns: Sequence[str] = ()) -> str:
    """Return the commit (hex) of a repository's revision, from the hub or, if it cannot be reached, from the cache.

    Args:
        kind: "model" or "dataset".
        repo: the repository's id.
        revision: a branch, a tag or a commit.
        patterns: patterns of the files that are needed, for the error message. Empty for all files.

    Raises:
        BadInput: the hub does not know the repository or the revision, or the hub cannot be reached and the revision is
            not cached.

    """
    # A streamed dataset is not in the hub's own cache. Its commit is written to rbptrack's cache folder.
    known = cache.folder() / "commits" / f"{kind}s--{repo}@{revision}".replace("/", "--")
    if online():
        from huggingface_hub import HfApi

        api = HfApi()
        describe = api.model_info if kind == "model" else api.dataset_info
        sha = str(call(kind, repo, revision, lambda: describe(repo, revision=revision, timeout=10)).sha)
        with suppress(OSError, BadInput):
            known.parent.mkdir(parents=True, exist_ok=True)
            write_whole(known, sha)
        return sha
    downloaded = snapshot(kind, repo, revision)
    if downloaded is not None:
        return downloaded.name  # the hub's cache names the folder after the commit
    if known.is_file():
        return known.read_text()
    raise NotCached([Missing(kind, repo, revision, tuple(patterns))])


def snapshot(kind: Kind, repo: str, revision: str) -> Path | None:
    """Return the folder of the hub's cache that holds a revision's files. Return None if none was downloaded."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    def find() -> str | None:
        try:
            return snapshot_download(repo, repo_type=kind, revision=revision, local_files_only=True)
        except LocalEntryNotFoundError:
            return None

    folder = call(kind, repo, revision, find)
    return Path(folder) if folder else None


def call(kind: Kind, repo: str, revision: str, action: Callable[[], T]) -> T:
    """Call a function that asks the hub, and translate its exceptions to errors for the user.

    Args:
        kind: "model" or "dataset".
        repo: the repository's id, `organisation/name`.
        revision: the revision, for the error message.
        action: the function to call, without arguments.

    Raises:
        BadInput: the repository or revision is unknown, access is denied, or the file is not cached while the hub
            cannot be reached.
        RbptrackError: the hub answered with another error, or the connection broke.

    """
    try:
        return action()
    except RbptrackError:
        raise
    except Exception as error:
        explained = _explained(kind, repo, revision, error)
        if explained is None:
            raise
        raise explained from error


def _explained(kind: Kind, repo: str, revision: str, error: BaseException) -> RbptrackError | None:
    """Return the error for the user, from an exception or one of its causes, or None if the hub is not the cause."""
    from huggingface_hub import errors

    page = f"{os.environ.get('HF_ENDPOINT', 'https://huggingface.co')}/{'datasets/' if kind == 'dataset' else ''}{repo}"
    refusals = {
        errors.GatedRepoError: f"is gated: ask for access at {page}, then run `hf auth login` or set HF_TOKEN",
        errors.RevisionNotFoundError: f"has no revision {revision}",
        errors.RepositoryNotFoundError: "is not on the hub, or is private: check the name, run `hf auth login`, or set "
        "HF_TOKEN",
        errors.HFValidationError: "is not a hub id: a hub id is organisation/name",
    }
    again = "Finished downloads are kept: run the same command again later"
    broken = False
    cause: BaseException | None = error
    while cause is not None:
        for refusal, text in refusals.items():
            if isinstance(cause, refusal):
                return BadInput(f"{kind} {repo} {text}")
        if isinstance(cause, errors.OfflineModeIsEnabled | errors.LocalEntryNotFoundError) and not online():
            return NotCached([Missing(kind, repo, revision)])
        if isinstance(cause, errors.HfHubHTTPError) and not isinstance(cause, errors.EntryNotFoundError):
            status = cause.response.status_code
            if status in (401, 403):
                return BadInput(
                    f"{kind} {repo}: the hub denied access (status {status}): run `hf auth login` or set HF_TOKEN"
                )
            return RbptrackError(f"{kind} {repo} (revision {revision}): the hub answered {status}. {again}")
        broken = broken or type(cause).__module__.startswith(("httpx", "httpcore", "aiohttp"))
        cause = cause.__cause__ or cause.__context__
    if broken:
        return RbptrackError(f"{kind} {repo}: the connection to the hub broke ({type(error).__name__}). {again}")
    return None
