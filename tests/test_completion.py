"""Tab completion: which words may follow, and the scripts in the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rbptrack.commands.candidates import candidates
from tests.conftest import ROOT
from tests.patience import PATIENCE


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rbptrack me", ["measure"]),
        ("rbptrack mod", ["model="]),
        ("rbptrack model=nano", ["model=nano/", "model=nano-quant/", "model=nano-seeds/", "model=nano-checkpoints/"]),
        ("rbptrack model=gpt2/", [f"model=gpt2/{size}" for size in ("small", "medium", "large", "xl")]),
        ("rbptrack 'model=gpt2/s", ["model=gpt2/small"]),
        ("rbptrack plan -m model=nano/6k,nano/1", ["model=nano/6k,nano/15k", "model=nano/6k,nano/115k"]),
        ("rbptrack model=nano/6k dataset=st", ["dataset=stdlib"]),
        ("rbptrack model=nano/6k en", ["engine."]),
        ("rbptrack model=nano/6k engine.th", ["engine.threads="]),
        ("rbptrack rank=", ["rank=paper", "rank=strict"]),
        ("rbptrack launch=s", ["launch=slurm"]),
        ("rbptrack launch=slurm launch.p", ["launch.partition="]),
        ("rbptrack launch=ray launch.g", ["launch.gpus="]),
        ("rbptrack analyze analyzer=po", ["analyzer=power_law"]),
        ("rbptrack report fa", ["family="]),
        ("rbptrack list format=l", ["format=latex"]),
        ("rbptrack export to", ["to=", "tokens="]),
        ("rbptrack help pl", ["plan", "plugins"]),
        ("rbptrack completion ", ["bash", "zsh"]),
        ("rbptrack --mu", ["--multirun"]),
        ("rbptrack analyze k_", ["k_law"]),
        ("rbptrack list sort=mo", ["sort=model"]),
        ("rbptrack list li", ["limit="]),
        ("rbptrack rm y", ["yes="]),
        ("rbptrack list columns=model,da", ["columns=model,dataset"]),
        ("rbptrack analyze analyzer=power_law analyzer.k", ["analyzer.ks="]),
        ("rbptrack model=nope/", []),
    ],
)
def test_candidates(line: str, words: list[str]) -> None:
    assert candidates(line) == words


def test_files_and_configs_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/model/mine").mkdir(parents=True)
    (tmp_path / "conf/model/mine/small.yaml").touch()
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles/one.zip").touch()
    assert candidates("rbptrack model=min") == ["model=mine/"]
    assert candidates("rbptrack model=mine/") == ["model=mine/small"]
    assert candidates("rbptrack import b") == ["bundles/"]
    assert candidates("rbptrack export out=bundles/") == ["out=bundles/one.zip"]
    assert candidates("rbptrack show ") == ["k=", "format=", "tracking.uri=", "tracking.experiment="]


def test_what_a_store_holds(untouched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(untouched)  # an answer waits for no other program that writes into the store
    assert candidates("rbptrack report family=") == ["family=nano"]
    assert candidates("rbptrack report size=") == [f"size={size}" for size in ("6k", "15k", "38k", "115k")]
    assert candidates("rbptrack list na") == ["nano"]
    assert candidates("rbptrack list sort=-rbp_1")[:2] == ["sort=-rbp_1", "sort=-rbp_10"]
    assert candidates("rbptrack show nano-6") == ["nano-6k/pydocs", "nano-6k/stdlib"]


def test_nothing_heavy_is_imported() -> None:
    """An answer takes 0.2 s where 380 modules are imported; a command that measures imports 4,000."""
    code = (
        "import sys; from rbptrack.__main__ import main; sys.argv = ['rbptrack', 'completion', 'query', 'rbptrack mo'];"
        "main(); print(len(sys.modules) < 500)\n"
        "print(sorted({'torch', 'mlflow', 'hydra', 'pandas', 'numpy', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "model=\nTrue\n[]\n"


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """A folder with the command `rbptrack`."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin/rbptrack"
    script.write_text(f"#!/bin/sh\nPYTHONPATH='{ROOT}' exec '{sys.executable}' -m rbptrack \"$@\"\n")
    script.chmod(0o755)
    return script.parent


def in_shell(shell: str, script: str, command: Path) -> list[str]:
    flags = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"]}[shell]
    path = f"{command}:/usr/bin:/bin"
    done = subprocess.run(
        [shell, *flags, "-c", script], capture_output=True, text=True, env={"PATH": path}, timeout=PATIENCE
    )
    assert done.stderr == "", done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rbptrack model=nano/1", ["nano/15k", "nano/115k"]),  # bash replaces what follows the =
        ("rbptrack 'model=nano/1", ["model=nano/15k", "model=nano/115k"]),  # within quotes it does not split at =
    ],
)
def test_bash(line: str, words: list[str], command: Path) -> None:
    quoted = line.replace("'", "'\\''")
    script = (
        f"eval \"$(rbptrack completion bash)\"; COMP_LINE='{quoted}'; COMP_POINT=${{#COMP_LINE}}; "
        '_rbptrack rbptrack; printf "%s\\n" "${COMPREPLY[@]}"; complete -p rbptrack >/dev/null'
    )
    assert in_shell("bash", script, command) == words


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh(command: Path) -> None:
    script = (
        'compdef() { :; }; compadd() { shift ${@[(i)--]}; print -l -- "$@"; }; '
        'eval "$(rbptrack completion zsh)"; words=(rbptrack model=nano/1); CURRENT=2; PREFIX=model=nano/1; _rbptrack'
    )
    assert in_shell("zsh", script, command) == ["model=nano/15k", "model=nano/115k"]
