"""Every block of shell lines in README and docs means the same to bash and to zsh, which refuses unquoted patterns."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.patience import PATIENCE

PROGRAMS = ("python", "python3", "pip", "make", "hf", "ray", "mlflow", "rbptrack", "cp", ".venv/bin/pre-commit")
# Says what it was given, a line a call.
SAYING = """#!/bin/sh
words=${0##*/}; for word; do words="$words <$word>"; done; echo "$words" >> "$SAID"
"""
BEGIN = re.compile(rf"(?:# .*\n)?({'|'.join(map(re.escape, PROGRAMS))}|export|eval|\.|cd) ")


def blocks(page: Path) -> list[str]:
    """The indented blocks of a page whose first line is a command's."""
    indented = re.findall(r"(?:^    .*\n)+", page.read_text(), re.MULTILINE)
    return [
        block for block in (re.sub("^    ", "", each, flags=re.MULTILINE) for each in indented) if BEGIN.match(block)
    ]


PAGES = [page for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")) if blocks(page)]


def test_there_are_blocks() -> None:
    assert {"README.md", "CONTRIBUTING.md", "cluster.md", "importing.md", "mlflow.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_both_shells_read_the_same(page: Path, tmp_path: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed: apt-get install zsh")
    for program in PROGRAMS:
        path = tmp_path / "bin" / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SAYING)
        path.chmod(0o755)
    (tmp_path / "venv").symlink_to(tmp_path, target_is_directory=True)  # `. venv/bin/activate`
    (tmp_path / "bin/activate").touch()
    (tmp_path / ".venv").symlink_to(tmp_path / "bin/.venv", target_is_directory=True)
    said = {"bash": "", "zsh": ""}
    for shell in said:
        for block in blocks(page):
            told = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SAID": str(tmp_path / "said")}
            done = subprocess.run(
                [shell, *(["-f"] if shell == "zsh" else ["--norc"]), "-c", f"set -e; cd() {{ :; }}\n{block}\nwait"],
                cwd=tmp_path, env=told, capture_output=True, text=True, timeout=PATIENCE,
            )  # fmt: skip
            assert done.returncode == 0, f"{shell}: {done.stderr}\n{block}"
        said[shell] = "".join(sorted((tmp_path / "said").read_text().splitlines(keepends=True)))
        (tmp_path / "said").unlink()
    assert said["bash"] == said["zsh"]
    assert "<" in said["bash"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_line_pasted_into_zsh_means_the_same(page: Path) -> None:
    """Typed into zsh, `#` begins no comment: ours leave it out themselves, if zsh can read it as words."""
    for line in "".join(blocks(page)).splitlines():
        command, hash_sign, comment = line.partition(" #")
        if hash_sign and command.strip():
            assert re.match(r"(python -m )?rbptrack ", command.strip()), f"a comment after another's command: {line}"
            assert not re.search(r"""["'`$*?\[\](){}<>|&;!~=]""", comment), f"zsh would read more than words: {line}"
