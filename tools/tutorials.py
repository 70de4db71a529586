"""Run the commands of the tutorials, and compare what they print with what the pages say.

python -m tools.tutorials              # every tutorial, each in a new folder; `make fresh` does it with the installed wheel
python -m tools.tutorials --write      # put what came into the pages, the README's lines included
python -m tools.tutorials docs/first-law.md

A block ```console holds commands after `$ `, each with the lines that it prints; `...` stands for lines left out. A block
with a title (```yaml title="conf/model/mine/1b.yaml") is a file, written before the next command. Commands run by bash in a
new folder, with an empty HOME, and with an environment's `rbptrack` and `python` first in PATH; a page that says
`<!-- continues first-law.md -->` in that page's folder, after it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = tuple(ROOT / "docs" / name for name in ("first-law.md", "why-ranks.md", "your-models.md"))
README = ROOT / "README.md"
LEFT_OUT = "..."
PATIENCE = 3600.0  # seconds that a command is given

HERE = Path(sys.executable).parent

_FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_CONTINUES = re.compile(r"^<!-- continues (\S+)\.md -->$", re.MULTILINE)
_PROGRESS = re.compile(r"tok/s  [\d:]+ left")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_VARIES = (
    (re.compile(r"\d{8}-\d{6}(?:-\w+)?"), "SWEEP"),
    (re.compile(r"\b(?=\w*\d)[0-9a-f]{8,64}\b"), "ID"),
    (re.compile(r"[\d.,]+k? ?tok(?:ens)?/s"), "SPEED"),
    (re.compile(r"\b\d+:\d\d(?::\d\d)?\b|\b[\d.]+ (?:s|min|seconds|minutes|TFLOP/s|GB)\b"), "MUCH"),
    (re.compile(r"\s+"), " "),
)


class Different(Exception):
    """A command failed, or printed something else than its page says."""


@dataclass
class Command:
    """A command of a page, and the lines that the page shows below it."""

    words: str
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Block:
    """A fenced block: a file (with `title`), or a session of commands."""

    title: str
    text: str

    def commands(self) -> list[Command]:
        """Read its commands; a line that ends with a backslash continues."""
        commands: list[Command] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                commands.append(Command(line[2:]))
            elif commands and not commands[-1].lines and commands[-1].words.endswith("\\"):
                commands[-1].words += f"\n{line}"
            elif commands:
                commands[-1].lines.append(line)
        return commands


def blocks(page: Path) -> Iterator[Block]:
    """Yield the files and sessions of a page, in their order."""
    for language, title, text in _FENCE.findall(page.read_text(encoding="utf-8")):
        if title or language == "console":
            yield Block(title, text)


def run(
    page: Path, folder: Path, *, programs: Path = HERE, variables: Mapping[str, str] | None = None, write: bool = False
) -> None:
    """Do what a page says, below a folder.

    Args:
        page: a Markdown file.
        folder: holds HOME and a folder per page.
        programs: where `rbptrack` and `python` are.
        variables: of the commands' environment, besides those that a shell needs.
        write: put what is printed into the page and the README instead of comparing it.

    Raises:
        Different: a command failed, or printed something else.

    """
    continued = _CONTINUES.search(page.read_text(encoding="utf-8"))
    home, place = folder / "home", folder / (continued[1] if continued else page.stem)
    home.mkdir(exist_ok=True, parents=True)
    place.mkdir(exist_ok=True)
    for block in blocks(page):
        if block.title:
            (place / block.title).parent.mkdir(parents=True, exist_ok=True)
            (place / block.title).write_text(block.text, encoding="utf-8")
        for command in () if block.title else block.commands():
            began = time.monotonic()
            printed = _output(command.words, place, home, programs, variables or {})
            print(f"{page.name}: $ {command.words.splitlines()[0]}  {time.monotonic() - began:.0f} s", flush=True)
            if write:
                _rewrite(page, command, printed)
                for shown in (
                    shown for other in blocks(README) for shown in other.commands() if shown.words == command.words
                ):
                    _rewrite(README, shown, printed)
            else:
                check(command, printed)


def _output(words: str, folder: Path, home: Path, programs: Path, variables: Mapping[str, str]) -> list[str]:
    """Return the lines that a command prints, standard error included; without progress, which slow machines show."""
    kept = {name: value for name, value in os.environ.items() if name in ("LANG", "LC_ALL", "CI", "OMP_NUM_THREADS")}
    shell = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(home),
        "COLUMNS": "100",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        ["bash", "-c", words],
        cwd=folder, env=kept | shell | variables,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
    )  # fmt: skip
    if done.returncode:
        raise Different(f"$ {words}\nended with {done.returncode}:\n{done.stdout}")
    return [line for line in done.stdout.rstrip("\n").splitlines() if not _PROGRESS.search(line)]


def check(command: Command, printed: Sequence[str]) -> None:
    """Compare documented lines with those printed, in their order; numbers to two units of their last digit.

    Raises:
        Different: a line is missing, or one came in between where none is left out.

    """
    at, loose = 0, False
    for line in command.lines:
        if line.strip() == LEFT_OUT:
            loose = True
            continue
        later = range(at, len(printed) if loose else min(at + 1, len(printed)))
        here = next((i for i in later if alike(line, printed[i])), None)
        if here is None:
            shown = "\n".join(printed[at : at + 20])
            raise Different(f"$ {command.words}\ndoes not print\n{line}\nbut\n{shown}")
        at, loose = here + 1, False
    if command.lines and not loose and at < len(printed):
        raise Different(f"$ {command.words}\nprints more than the page shows:\n{printed[at]}")


def alike(documented: str, printed: str) -> bool:
    """Tell whether two lines say the same, but for ids, times and the last digit of numbers."""
    for varies, instead in _VARIES:
        documented, printed = varies.sub(instead, documented), varies.sub(instead, printed)
    if _NUMBER.sub("#", documented).strip() != _NUMBER.sub("#", printed).strip():
        return False
    pairs = zip(_NUMBER.findall(documented), _NUMBER.findall(printed), strict=True)
    return all(_close(*pair) for pair in pairs)


def _close(documented: str, printed: str) -> bool:
    """Tell whether two numbers differ by at most two units of the last digit; whole numbers must be equal."""
    digits = len(documented.partition(".")[2])
    if not digits or digits != len(printed.partition(".")[2]):
        return documented == printed
    apart = float(documented.replace(",", "")) - float(printed.replace(",", ""))
    return abs(apart) < 2.5 * 10.0**-digits


def _rewrite(page: Path, command: Command, printed: Sequence[str]) -> None:
    """Put the printed lines in place of the documented ones: of each the one that is most like it."""
    lines: list[str] = []
    at = 0
    for line in command.lines:
        if line.strip() == LEFT_OUT:
            lines.append(line)
            continue
        ratios = [SequenceMatcher(None, line, other).ratio() for other in printed[at:]]
        if not ratios:
            raise Different(f"$ {command.words}\nprints nothing like\n{line}")
        at += ratios.index(max(ratios)) + 1
        lines.append(printed[at - 1].rstrip())
    before = "\n".join([f"$ {command.words}", *command.lines, ""])
    after = "\n".join([f"$ {command.words}", *lines, ""])
    page.write_text(page.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")


def main() -> int:
    """Run the pages; returns how many are not what happens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES)
    parser.add_argument("--write", action="store_true", help="put what came into the pages")
    parser.add_argument(
        "--folder", type=Path, help="where the commands run, kept afterwards; by default a temporary folder"
    )
    options = parser.parse_args()
    failed: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="tutorials-") as folder:
        for page in options.pages:
            try:
                run(page, options.folder or Path(folder), write=options.write)
            except Different as error:
                print(f"error: {page}: {error}", file=sys.stderr)
                failed.append(page)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
