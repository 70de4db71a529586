"""Release the version that rbptrack/__init__.py names.

    python -m tools.release            # a dry run: checks, builds, and prints the commands of a release
    python -m tools.release --tag      # tags the commit and replaces dist/; then push the tag and upload dist/

rbptrack/__init__.py, CITATION.cff and the newest heading of CHANGELOG.md must name the same version, and sdist and
wheel must build from the tracked files. Otherwise the exit code is 1. A release also needs the same date in
CITATION.cff and CHANGELOG.md, a working tree without changes, and a tag that does not exist. A dry run prints what is
missing.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import rbptrack
from tools.fresh_environment import ROOT, Failed, build_distributions, run_command


def versions_and_dates(citation: str, changelog: str) -> tuple[dict[str, str], dict[str, str]]:
    """Read the versions and the dates in the texts of CITATION.cff and CHANGELOG.md.

    In CHANGELOG.md, they are in the first heading that names a version.

    Returns:
        The version by file and the date by file. A missing value is `none`.

    """
    cited = dict(re.findall(r"""^(version|date-released): *["']?([^"'\s]+)""", citation, re.MULTILINE))
    newest = re.search(r"^## (\S+) \((.*)\)$", changelog, re.MULTILINE)
    versions = {"CITATION.cff": cited.get("version", "none"), "CHANGELOG.md": newest[1] if newest else "none"}
    dates = {"CITATION.cff": cited.get("date-released", "none"), "CHANGELOG.md": newest[2] if newest else "none"}
    return versions, dates


def git(*words: str) -> str:
    """Run git in the repository and return what it prints. Raises Failed if it fails."""
    return run_command(["git", *words], ROOT)


def missing_conditions(version: str, dates: dict[str, str]) -> list[str]:
    """Return the conditions of a release that are not met: one date, a working tree without changes, and a new tag.

    `dates` has the date of the release by file. A missing date is `none`.
    """
    conditions = []
    if len(set(dates.values())) > 1 or not all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in dates.values()):
        files = ", ".join(f"{file} has {date}" for file, date in dates.items())
        conditions.append(f"the same date, such as 2026-12-01, in both files ({files})")
    if git("status", "--porcelain"):
        conditions.append("a working tree without changes")
    if git("tag", "--list", f"v{version}"):
        conditions.append(f"a new version (the tag v{version} exists)")
    return conditions


def release(*, with_tag: bool) -> None:
    """Check the version, build the distributions and, with `with_tag`, tag the commit and replace dist/.

    Raises Failed if a file names another version, if a build or git fails, or if a condition of `with_tag` is not met.
    """
    version = rbptrack.__version__
    versions, dates = versions_and_dates((ROOT / "CITATION.cff").read_text(), (ROOT / "CHANGELOG.md").read_text())
    for file, version_in_file in versions.items():
        if version_in_file != version:
            raise Failed(f"rbptrack/__init__.py names version {version}, but {file} names {version_in_file}")
    if conditions := missing_conditions(version, dates):
        problem = f"a release of {version} needs {'; '.join(conditions)}"
        if with_tag:
            raise Failed(problem)
        print(problem, file=sys.stderr)
    tag = ("tag", "--annotate", f"v{version}", "--message", f"rbptrack {version}")
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        built = build_distributions(Path(folder)).parent
        print(f"built: {', '.join(sorted(path.name for path in built.iterdir()))}")
        if with_tag:
            git(*tag)
            shutil.rmtree(ROOT / "dist", ignore_errors=True)  # it may hold files of an earlier version
            shutil.copytree(built, ROOT / "dist")
    print(f"{'done' if with_tag else 'would run'}: {shlex.join(['git', *tag])}")
    print(f"then: git push origin v{version}, and upload dist/ to the package index")


def main(arguments: Sequence[str] | None = None) -> int:
    """Release as the options say. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tag", action="store_true", help="tag the commit and replace dist/; without this option, nothing changes"
    )
    options = parser.parse_args(arguments)
    try:
        release(with_tag=options.tag)
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
