"""The machine on which figures were measured: what a reader needs in order to compare them."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

from rbptrack.base import __version__
from rbptrack.base.process import cores


def describe() -> dict[str, Any]:
    """Return versions, processor, cores, threads, load and GPU of this machine."""
    return {
        "rbptrack": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
