"""Find commits on the Hugging Face Hub or in its cache, and translate the Hub's errors into messages for the user."""

from __future__ import annotations

import functools
import http.client
import os
import shlex
import ssl
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import SplitResult, urlsplit

from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.files import write_whole
from rbptrack.base.formatting import listed
from rbptrack.sources import cache

Kind = Literal["model", "dataset"]
T = TypeVar("T")

_MAX_CONNECT_SECONDS = 2.0
_MAX_ANSWER_SECONDS = 2.5
_TRIES = 2  # because the first try may time out on a busy machine


@dataclass(frozen=True)
class MissingRepository:
    """A repository that is not in the Hub's cache.

    Attributes:
        kind: "model" or "dataset".
        repo: the repository's id on the Hub.
        revision: the requested revision.
        patterns: patterns of the files that are needed; empty for all files.

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
    """The Hub cannot be reached, and some repositories are not in the cache.

    Attributes:
        missing: the repositories that are not in the cache.

    """

    def __init__(self, missing: Sequence[MissingRepository]) -> None:
        self.missing = tuple(missing)
        names = listed([repository.name for repository in missing])
        verb = "is" if len(missing) == 1 else "are"
        commands = "; ".join(repository.command for repository in missing)
        super().__init__(
            f"{names} {verb} not in the cache and the Hub cannot be reached. On a machine with a network, run: "
            f"{commands}. {ways_without_download(missing)}"
        )


def ways_without_download(missing: Sequence[MissingRepository]) -> str:
    """Return a sentence for the user that names the ways to give missing models and datasets without a download."""
    options = [f"{kind}.path=FOLDER" for kind in dict.fromkeys(repository.kind for repository in missing)]
    return f"Or point HF_HOME at a cache that holds {'it' if len(missing) == 1 else 'them'}, or give {listed(options)}"


@functools.cache
def is_online() -> bool:
    """Return whether the Hub can be reached. The Hub is asked once per process.

    If the Hub does not answer, huggingface_hub and datasets are set to offline mode. Otherwise they would wait half a
    minute or more for each file, even if it is cached.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    endpoint = urlsplit(_endpoint())
    is_local = endpoint.hostname in ("127.0.0.1", "localhost")
    has_proxy = any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"))
    if (is_local or not has_proxy) and not _answers_http(endpoint):  # this program cannot ask through a proxy
        _set_offline_mode()
        return False
    return True


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co")


def _set_offline_mode() -> None:
    """Set huggingface_hub and datasets to offline mode, whether they are already imported or not."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    for name in ("huggingface_hub.constants", "datasets.config"):
        module = sys.modules.get(name)
        if module is not None:
            module.__dict__["HF_HUB_OFFLINE"] = True


def _answers_http(endpoint: SplitResult) -> bool:
    """Return whether a server answers HTTP requests at an address. An HTTP error counts as an answer."""
    connect = http.client.HTTPConnection if endpoint.scheme == "http" else http.client.HTTPSConnection
    for _ in range(_TRIES):
        connection = connect(endpoint.hostname or "", endpoint.port, timeout=_MAX_CONNECT_SECONDS)
        try:
            connection.connect()
            connection.sock.settimeout(_MAX_ANSWER_SECONDS)
            connection.request("HEAD", "/")
            connection.getresponse()
            return True
        except (ssl.SSLError, http.client.HTTPException):
            return True  # a server answered, and huggingface_hub will explain its error
        except TimeoutError:
            continue
        except OSError:
            return False  # the server refused the connection or the host is unknown, so another try does not help
        finally:
            connection.close()
    return False


def find_commit(kind: Kind, repo: str, revision: str, patterns: Sequence[str] = ()) -> str:
    """Return the commit (hex) of a repository's revision, from the Hub or, if it cannot be reached, from the cache.

    The revision is a branch, a tag or a commit. The error message names the `patterns` of the files that are needed.
    Raises BadInput if the Hub does not know the repository or the revision, or if it cannot be reached and the revision
    is not cached.
    """
    # rbptrack caches the commit itself, because a streamed dataset is not in the Hub's own cache.
    commit_file = cache.root() / "commits" / f"{kind}s--{repo}@{revision}".replace("/", "--")
    if is_online():
        from huggingface_hub import HfApi

        api = HfApi()
        fetch_info = api.model_info if kind == "model" else api.dataset_info
        sha = str(call_hub(kind, repo, revision, lambda: fetch_info(repo, revision=revision, timeout=10)).sha)
        with suppress(OSError, BadInput):
            commit_file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(commit_file, sha)
        return sha
    snapshot = find_snapshot(kind, repo, revision)
    if snapshot is not None:
        return snapshot.name  # the Hub's cache names the folder after the commit
    if commit_file.is_file():
        return commit_file.read_text()
    raise NotCached([MissingRepository(kind, repo, revision, tuple(patterns))])


def find_snapshot(kind: Kind, repo: str, revision: str) -> Path | None:
    """Return the folder in the Hub's cache with the files of a revision, or None if no file of it is cached."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    def find_folder() -> str | None:
        try:
            return snapshot_download(repo, repo_type=kind, revision=revision, local_files_only=True)
        except LocalEntryNotFoundError:
            return None

    folder = call_hub(kind, repo, revision, find_folder)
    return Path(folder) if folder else None


def call_hub(kind: Kind, repo: str, revision: str, request: Callable[[], T]) -> T:
    """Call a function that asks the Hub about a repository, and translate its exceptions to errors for the user.

    Raises:
        BadInput: the repository or revision is unknown, access is denied, or the file is not cached while the Hub
            cannot be reached.
        RbptrackError: the Hub answered with another error, or the connection broke.

    """
    try:
        return request()
    except RbptrackError:
        raise
    except Exception as error:
        explanation = _explain_error(kind, repo, revision, error)
        if explanation is None:
            raise
        raise explanation from error


def _explain_error(kind: Kind, repo: str, revision: str, error: BaseException) -> RbptrackError | None:
    """Return an error for the user that explains an exception, or None if the exception does not come from the Hub.

    The exception and its causes are examined, because libraries wrap the exceptions of the Hub in their own.
    """
    from huggingface_hub import errors

    page = f"{_endpoint()}/{'datasets/' if kind == 'dataset' else ''}{repo}"
    refusals = {
        errors.GatedRepoError: f"is gated: ask for access at {page}, then run `hf auth login` or set HF_TOKEN",
        errors.RevisionNotFoundError: f"has no revision {revision}: give a branch, a tag or a commit of {page}",
        errors.RepositoryNotFoundError: "is not on the Hub, or is private: check the name, run `hf auth login`, or set "
        "HF_TOKEN",
        errors.HFValidationError: "is not a Hub id: a Hub id is organisation/name",
    }
    retry_advice = "Finished downloads are kept: run the same command again later"
    connection_broke = False
    cause: BaseException | None = error
    while cause is not None:
        for refusal, text in refusals.items():
            if isinstance(cause, refusal):
                return BadInput(f"{kind} {repo} {text}")
        if isinstance(cause, errors.OfflineModeIsEnabled | errors.LocalEntryNotFoundError) and not is_online():
            return NotCached([MissingRepository(kind, repo, revision)])
        if isinstance(cause, errors.HfHubHTTPError) and not isinstance(cause, errors.EntryNotFoundError):
            status = cause.response.status_code
            if status in (401, 403):
                return BadInput(
                    f"{kind} {repo}: the Hub denied access (status {status}): run `hf auth login` or set HF_TOKEN"
                )
            return RbptrackError(f"{kind} {repo} (revision {revision}): the Hub answered {status}. {retry_advice}")
        connection_broke = connection_broke or type(cause).__module__.startswith(("httpx", "httpcore", "aiohttp"))
        cause = cause.__cause__ or cause.__context__
    if connection_broke:
        return RbptrackError(f"{kind} {repo}: the connection to the Hub broke. {retry_advice}")
    return None
