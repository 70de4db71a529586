"""Where a model or dataset comes from: a hub repository pinned to a commit, or a local folder pinned to its hash."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from rbptrack.errors import BadInput
from rbptrack.fingerprint import folder_hash

Kind = Literal["model", "dataset"]
_PREFLIGHT_SECONDS = 2.0


@dataclass(frozen=True)
class Source:
    """A pinned model or dataset.

    Attributes:
        location: what the loading library is given: a hub id or a folder.
        revision: the hub commit to load; None for a folder.
        identity: what makes it the same thing on another machine: `id@commit`, or the hash of a folder's files.

    """

    location: str
    revision: str | None
    identity: str


def go_offline_if_unreachable() -> None:
    """Set HF_HUB_OFFLINE when the hub does not accept a connection within 2 seconds.

    Called before huggingface_hub is imported: without it a missing network costs half a minute, even where everything
    is cached.
    """
    if os.environ.get("HF_HUB_OFFLINE"):
        return
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    proxied = any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"))
    if proxied and endpoint.hostname not in ("127.0.0.1", "localhost"):
        return  # the proxy resolves names, this machine may not
    try:
        port = endpoint.port or (80 if endpoint.scheme == "http" else 443)
        socket.create_connection((endpoint.hostname or "", port), timeout=_PREFLIGHT_SECONDS).close()
    except OSError:
        os.environ["HF_HUB_OFFLINE"] = "1"


def resolve(kind: Kind, *, repo: str, path: str, revision: str) -> Source:
    """Pin a repository to its commit, or a folder to the hash of its files.

    Raises:
        BadInput: the folder does not exist, or the hub does not know (or let us see) the repository or revision.

    """
    if path:
        folder = Path(path).expanduser().absolute()
        if not folder.is_dir():
            raise BadInput(f"{kind}.path={path}: no such folder")
        return Source(str(folder), None, f"sha256:{folder_hash(folder)}")
    commit = _commit(kind, repo, revision)
    return Source(repo, commit, f"{repo}@{commit}")


def _commit(kind: Kind, repo: str, revision: str) -> str:
    go_offline_if_unreachable()
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
    )

    if not constants.HF_HUB_OFFLINE:
        try:
            api = HfApi()
            info = (api.model_info if kind == "model" else api.dataset_info)(repo, revision=revision, timeout=20)
            return str(info.sha)
        except GatedRepoError as error:
            raise BadInput(
                f"{kind} {repo} is gated: ask for access on its page of the hub, then `hf auth login` or set HF_TOKEN"
            ) from error
        except RepositoryNotFoundError as error:
            raise BadInput(f"{kind} {repo} (revision {revision}) is not on the hub, or is private") from error
        except HFValidationError as error:
            raise BadInput(f"{kind}.repo={repo!r} is not a hub id; expected organisation/name") from error
        except HfHubHTTPError as error:
            raise BadInput(
                f"{kind} {repo} (revision {revision}): the hub answered {error.response.status_code}"
            ) from error
        except OSError:
            pass  # the connection broke; what is cached may do
    folder = Path(constants.HF_HUB_CACHE) / f"{kind}s--{repo.replace('/', '--')}"
    ref = folder / "refs" / revision
    if ref.is_file():
        return ref.read_text().strip()
    if (folder / "snapshots" / revision).is_dir():
        return revision
    raise BadInput(
        f"{kind} {repo} (revision {revision}) is not in the cache and the hub cannot be reached. "
        f"On a machine with a network: hf download {repo} --repo-type {kind}; or point HF_HOME at its cache, "
        f"or give {kind}.path=FOLDER"
    )
