"""Release the version that pyproject.toml names.

    python -m tools.release            # a dry run: every check, the built files, and the commands that would follow
    python -m tools.release --tag      # tags the commit and makes dist/ anew; a person pushes the tag and uploads dist/

pyproject.toml, CITATION.cff and the newest heading of CHANGELOG.md must name one version, and sdist and wheel must
build from the tracked files: else the exit code is 1. A release needs besides that both files name its date, a clean
tree, and a tag that is new; a dry run prints what is missing.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tools.fresh_environment import ROOT, Failed, build


def version() -> str:
    """The version of pyproject.toml."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def named(citation: str, changelog: str) -> tuple[dict[str, str], dict[str, str]]:
    """Versions and dates that the text of CITATION.cff and of CHANGELOG.md, the newest version first, name."""
    cited = dict(re.findall(r"""^(version|date-released): *["']?([^"'\s]+)""", citation, re.MULTILINE))
    newest = re.search(r"^## (\S+) \((.*)\)$", changelog, re.MULTILINE)
    versions = {"CITATION.cff": cited.get("version", "none"), "CHANGELOG.md": newest[1] if newest else "none"}
    dates = {"CITATION.cff": cited.get("date-released", "none"), "CHANGELOG.md": newest[2] if newest else "none"}
    return versions, dates


def git(*words: str) -> str:
    """What git writes; Failed, with the first line of its complaint, where it refuses."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        complaint = done.stderr.strip().partition("\n")[0]
        raise Failed(f"{shlex.join(['git', *words])}: {complaint or f'exit code {done.returncode}'}")
    return done.stdout


def missing(name: str, dates: dict[str, str]) -> list[str]:
    """What a release of a version needs besides one version in all files; dates as of `named`."""
    needed = []
    if len(set(dates.values())) > 1 or not all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in dates.values()):
        needed.append(f"one date in both files, such as 2026-12-01: {dates}")
    if git("status", "--porcelain"):
        needed.append("a clean tree")
    if git("tag", "--list", f"v{name}"):
        needed.append(f"a new version: the tag v{name} is there")
    return needed


def release(*, with_tag: bool) -> None:
    """Check, build, and tag where asked; Failed where something is missing."""
    name = version()
    versions, dates = named((ROOT / "CITATION.cff").read_text(), (ROOT / "CHANGELOG.md").read_text())
    for file, found in versions.items():
        if found != name:
            raise Failed(f"pyproject.toml names version {name}, {file} {found}")
    if needed := missing(name, dates):
        problem = f"a release of {name} needs {'; '.join(needed)}"
        if with_tag:
            raise Failed(problem)
        print(problem, file=sys.stderr)
    tag = ("tag", "--annotate", f"v{name}", "--message", f"rbptrack {name}")
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        built = build(Path(folder)).parent
        print(f"built: {', '.join(sorted(path.name for path in built.iterdir()))}")
        if with_tag:
            git(*tag)
            shutil.rmtree(ROOT / "dist", ignore_errors=True)  # files of an earlier version would be uploaded again
            shutil.copytree(built, ROOT / "dist")
    print(f"{'done' if with_tag else 'would run'}: {shlex.join(['git', *tag])}")
    print(f"then: git push origin v{name}, and upload dist/ to the package index")


def main(arguments: Sequence[str] | None = None) -> int:
    """Release as the options say; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", action="store_true", help="tag the commit; without, nothing changes")
    options = parser.parse_args(arguments)
    try:
        release(with_tag=options.tag)
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
