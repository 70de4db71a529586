"""Which process a run belongs to, and whether that process still lives, so that a killed one's run can be repaired."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil

from rbptrack.tracking.schema import Tag

STALE_SECONDS = 300.0
"""A process that cannot be looked up from here counts as dead after so long without a heartbeat."""

_SAME_BOOT_SECONDS = 60.0  # a clock that is set moves the boot time; by more, and only the kernel's id is right
_SAME_PROCESS_SECONDS = 2.0  # the system does not give a number to another process so soon


def marks() -> dict[str, str]:
    """Return the tags of a run that this process begins or continues."""
    process = {"pid": os.getpid(), "created": _created(psutil.Process())}
    return {Tag.PROCESS: json.dumps(_machine() | process), **heartbeat()}


def heartbeat() -> dict[str, str]:
    """Return the tag that says that the process lives now, in seconds since 1970."""
    return {Tag.HEARTBEAT: f"{time.time():.0f}"}


def where(tags: Mapping[str, str]) -> str:
    """Return `host, process 123`, for people."""
    owner = _owner(tags)
    return f"{owner.get('host', 'another machine')}, process {owner.get('pid', '?')}"


def alive(tags: Mapping[str, str]) -> bool:
    """Return whether the process that these tags name is still at work.

    On this machine the process is looked up; if the machine has booted since, all its processes have ended. Elsewhere
    a heartbeat younger than STALE_SECONDS counts.
    """
    owner = _owner(tags)
    here = _machine()
    if not owner:
        return False
    if owner.get("host") == here["host"] and "booted" in owner:
        if _same_boot(owner, here) and owner.get("namespace") == here["namespace"]:
            return _lives(owner["pid"], owner["created"])
        if rebooted_since(tags):
            return False
    return seconds_silent(tags) < STALE_SECONDS


def rebooted_since(tags: Mapping[str, str]) -> bool:
    """Return whether these tags name a process of this machine, and the machine has booted since."""
    owner = _owner(tags)
    here = _machine()
    same_machine = owner.get("host") == here["host"] and here["machine"] and owner.get("machine") == here["machine"]
    return bool(same_machine) and "booted" in owner and not _same_boot(owner, here)


def _same_boot(owner: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    """Return whether the kernel runs that the process ran on, by its ID; without one, by the clock."""
    if owner.get("boot") and here["boot"]:
        return bool(owner["boot"] == here["boot"])
    return bool(abs(owner["booted"] - here["booted"]) < _SAME_BOOT_SECONDS)


def seconds_silent(tags: Mapping[str, str]) -> float:
    """Return seconds since the last heartbeat."""
    return time.time() - float(tags.get(Tag.HEARTBEAT, 0))


def _owner(tags: Mapping[str, str]) -> dict[str, Any]:
    try:
        owner = json.loads(tags.get(Tag.PROCESS, "{}"))
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


@lru_cache(maxsize=1)
def _machine() -> dict[str, Any]:
    """Return a text that tells this machine, its boot and this container's process numbers from others.

    psutil knows neither the machine's id, without which two hosts of one name are one, nor the namespace of process
    numbers, without which process 7 of one container is process 7 of another on the same host.
    """
    return {
        "host": socket.gethostname(),
        "machine": _text(Path("/etc/machine-id")),
        "boot": _text(Path("/proc/sys/kernel/random/boot_id")),
        "booted": psutil.boot_time(),
        "namespace": _link(Path("/proc/self/ns/pid")),
    }


def _lives(pid: int, created: float) -> bool:
    """Return whether a process of this machine lives and was created then; zombies have ended."""
    try:
        process = psutil.Process(pid)
        same = abs(_created(process) - created) < _SAME_PROCESS_SECONDS
        return same and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:  # another user's: it exists, and the rest is unknown
        return True


def _created(process: psutil.Process) -> float:
    """Return when a process was created, in seconds after the boot, so that a clock that is set changes nothing."""
    return float(process.create_time() - psutil.boot_time())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:  # systems without /proc
        return ""
