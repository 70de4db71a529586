"""The Hugging Face hub: whether it answers, which commit a revision stands for, and its faults in plain words."""

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
from rbptrack.base.words import listed
from rbptrack.sources import cache

Kind = Literal["model", "dataset"]
T = TypeVar("T")

_CONNECT_SECONDS = 2.0
_ANSWER_SECONDS = 2.5
_TRIES = 2  # a machine under load may be late for the first


@dataclass(frozen=True)
class Missing:
    """A repository that is not in the hub's cache.

    Attributes:
        kind: of the repository.
        repo: its id on the hub.
        revision: that was asked for.
        patterns: of the files that are needed; empty for all files.

    """

    kind: Kind
    repo: str
    revision: str
    patterns: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`dataset wikimedia/wikipedia`, with a revision other than main."""
        revision = f" (revision {self.revision})" if self.revision != "main" else ""
        return f"{self.kind} {self.repo}{revision}"

    @property
    def command(self) -> str:
        """The command that downloads what is needed."""
        words = ["hf", "download", self.repo]
        if self.kind != "model":
            words += ["--repo-type", self.kind]
        if self.revision != "main":
            words += ["--revision", self.revision]
        for pattern in self.patterns:
            words += ["--include", pattern]
        return shlex.join(words)


class NotCached(BadInput):
    """Repositories are not in the cache while the hub cannot be reached.

    Attributes:
        missing: the repositories.

    """

    def __init__(self, missing: Sequence[Missing]) -> None:
        self.missing = tuple(missing)
        verb = "is" if len(missing) == 1 else "are"
        super().__init__(
            f"{listed([one.name for one in missing])} {verb} not in the cache and the hub cannot be reached. "
            f"On a machine with a network: {'; '.join(one.command for one in missing)}. {another_way(missing)}"
        )


def another_way(missing: Sequence[Missing]) -> str:
    """Say how repositories can be given without a download."""
    options = [f"{kind}.path=FOLDER" for kind in dict.fromkeys(one.kind for one in missing)]
    return f"Or point HF_HOME at a cache that holds {'it' if len(missing) == 1 else 'them'}, or give {listed(options)}"


@once
def online() -> bool:
    """Whether the hub answers; asked once per process.

    If it does not (no network, or a server that accepts and hangs), the libraries are set to offline mode. Otherwise
    they would wait half a minute or more for every cached file.
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
    """Set the variable for libraries that are imported later, and the flag of those that are imported already."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    for name in ("huggingface_hub.constants", "datasets.config"):
        module = sys.modules.get(name)
        if module is not None:
            module.__dict__["HF_HUB_OFFLINE"] = True


def _answers(endpoint: SplitResult) -> bool:
    """Whether something answers HTTP requests there; an error is an answer, too."""
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


def commit(kind: Kind, repo: str, revision: str, patterns: Sequence[str] = ()) -> str:
    """The commit of a repository's revision: from the hub, else from the cache.

    Args:
        kind: of the repository.
        repo: its id.
        revision: a branch, a tag or a commit.
        patterns: of the files that are needed, for the message if they are missing; empty for all files.

    Raises:
        BadInput: the hub does not know the repository or revision, or it is neither reachable nor cached.

    """
    # What was streamed is not in the hub's own cache, so its commit is written down beside our documents.
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
    """The folder of the hub's cache that holds a revision's files; None if nothing of it was downloaded."""
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
    """Call a function that asks the hub, and replace its errors by messages for the user.

    Raises:
        BadInput: unknown repository or revision, gated, or not cached while the hub is unreachable.
        RbptrackError: the hub is busy, or the connection broke.

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
    """Say what to do about an error, or about what it came from; None if the hub is not the cause."""
    from huggingface_hub import errors

    page = f"{os.environ.get('HF_ENDPOINT', 'https://huggingface.co')}/{'datasets/' if kind == 'dataset' else ''}{repo}"
    refusals = {
        errors.GatedRepoError: f"is gated: ask for access at {page}, then `hf auth login` or set HF_TOKEN",
        errors.RevisionNotFoundError: f"has no revision {revision}",
        errors.RepositoryNotFoundError: "is not on the hub, or is private: check the name, or `hf auth login` or set "
        "HF_TOKEN",
        errors.HFValidationError: "is not a hub id; expected organisation/name",
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
                return BadInput(f"{kind} {repo}: the hub answered {status}, no access; `hf auth login` or set HF_TOKEN")
            return RbptrackError(f"{kind} {repo} (revision {revision}): the hub answered {status}. {again}")
        broken = broken or type(cause).__module__.startswith(("httpx", "httpcore", "aiohttp"))
        cause = cause.__cause__ or cause.__context__
    if broken:
        return RbptrackError(f"{kind} {repo}: the connection to the hub broke ({type(error).__name__}). {again}")
    return None
