"""Which process a run belongs to, and whether that process still lives: so that a killed one's run can be repaired."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from rbptrack.tracking.schema import Tag

STALE_SECONDS = 300.0  # without a heartbeat, a run of a machine that cannot be asked counts as dead


def marks() -> dict[str, str]:
    """The tags of a run that this process begins or continues."""
    return {Tag.PROCESS: json.dumps(_here() | {"pid": os.getpid(), "began": _began(os.getpid())}), **heartbeat()}


def heartbeat() -> dict[str, str]:
    """The tag that says that the process lives now, in seconds since 1970."""
    return {Tag.HEARTBEAT: f"{time.time():.0f}"}


def where(tags: Mapping[str, str]) -> str:
    """`host, process 123`, for people."""
    owner = _owner(tags)
    return f"{owner.get('host', 'another machine')}, process {owner.get('pid', '?')}"


def alive(tags: Mapping[str, str]) -> bool:
    """Whether the process that these tags name is still at work.

    On this machine it is looked up. A machine that has booted since has none of its processes left. Elsewhere a
    heartbeat younger than STALE_SECONDS counts.
    """
    owner, here = _owner(tags), _here()
    if not owner:
        return False
    if all(owner.get(key) == here[key] for key in ("host", "boot", "namespace")):
        return bool(_began(int(str(owner["pid"])))) and _began(int(str(owner["pid"]))) == owner["began"]
    if here["machine"] and (owner.get("host"), owner.get("machine")) == (here["host"], here["machine"]):
        if owner.get("boot") != here["boot"]:
            return False
    return time.time() - float(tags.get(Tag.HEARTBEAT, 0)) < STALE_SECONDS


def _owner(tags: Mapping[str, str]) -> dict[str, object]:
    try:
        owner = json.loads(tags.get(Tag.PROCESS, "{}"))
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


@lru_cache(maxsize=1)
def _here() -> dict[str, str]:
    try:
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - not a path, a name
    except OSError:
        namespace = ""
    return {
        "host": socket.gethostname(),
        "machine": _text("/etc/machine-id"),
        "boot": _text("/proc/sys/kernel/random/boot_id"),
        "namespace": namespace,
    }


def _began(pid: int) -> str:
    """When a process of this machine began, in the kernel's own count; empty if there is none.

    A number that was given to another process since is told apart by it. Zombies have ended.
    """
    stat = _text(f"/proc/{pid}/stat")
    if stat:
        fields = stat.rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    try:  # systems without /proc
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "another user's"
    return "" if Path("/proc/self/stat").exists() else "unknown"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
