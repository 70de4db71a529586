"""Run the commands of the documentation, and compare their output with the output that the pages show.

python -m tools.tutorials                           # run the tutorials and examples, each in a new folder
python -m tools.tutorials --write                   # write what they print into the pages and the README
python -m tools.tutorials docs/tutorials/your-models.md --folder /tmp/there      # run one page and keep its folder

A block ```console has commands after `$ `, and below each command the lines that it prints. `...` stands for lines that
the page leaves out. A block with a title (```yaml title="conf/model/mine/1b.yaml") is a file, which is written before
the next command. bash runs the commands with an empty HOME. The `rbptrack` and `python` of this environment come first
in PATH. A page with `<!-- continues first-law -->` runs after that page, in the same folder. Of docs/explanation, only
such pages run. An example runs in a copy of its folder.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

from tools.commands import lines_agree, run_command

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
LEFT_OUT = "..."

_FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_CONTINUES = re.compile(r"^<!-- continues (\S+) -->$", re.MULTILINE)
_ESCAPE = re.compile(r"\x1b\[[\d;]*m")
_VARIES = (
    (re.compile(r"\d{8}-\d{6}(?:-\w+)?"), "SWEEP"),
    (re.compile(r"\b(?=\w*\d)[0-9a-f]{8,64}\b"), "ID"),
    (re.compile(r"mlruns/\d+/"), "mlruns/N/"),
    (re.compile(r"[\d.,]+k? ?tok(?:ens)?/s"), "SPEED"),
    (re.compile(r"\b\d+:\d\d(?::\d\d)?\b|\b[\d.]+ ?(?:s|min|h|kB|MB|GB)\b"), "MUCH"),
)


class Different(Exception):
    """Raised if a command fails, or if its output differs from the page."""


@dataclass
class Command:
    """A command of a page, and the lines that the page shows below it."""

    words: str
    lines: list[str] = field(default_factory=list)


def parse_commands(text: str) -> list[Command]:
    """Return the commands of a block. A command goes on in the next line if its line ends with a backslash."""
    commands: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:]))
        elif commands and not commands[-1].lines and commands[-1].words.endswith("\\"):
            commands[-1].words += f"\n{line}"
        elif commands:
            commands[-1].lines.append(line)
    return commands


def pages() -> list[Path]:
    """List the pages with commands to run. A page comes after the page that it continues."""
    explanations = sorted((ROOT / "docs/explanation").glob("*.md"))
    continued = [page for page in explanations if _CONTINUES.search(page.read_text(encoding="utf-8"))]
    tutorials = sorted((ROOT / "docs/tutorials").glob("*.md"))
    return [*tutorials, *continued, *sorted((ROOT / "examples").glob("*/README.md"))]


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the files and the blocks of commands of a page, in their order.

    Yields:
        The path of the file, empty for a block of commands, and the text of the block.

    """
    for language, title, text in _FENCE.findall(page.read_text(encoding="utf-8")):
        if title or language == "console":
            yield title, text


def run_page(page: Path, folder: Path, *, write: bool = False) -> None:
    """Write the files of a page, run its commands, and compare what they print with the page.

    Args:
        page: a Markdown file.
        folder: the folder in which HOME and a folder for each page are made.
        write: whether to write the output into the page and the README, instead of comparing it.

    Raises:
        Different: a command fails, or prints something else than the page shows.

    """
    page = page.resolve()
    continued = _CONTINUES.search(page.read_text(encoding="utf-8"))
    is_example = page.name == "README.md"
    home = folder / "home"
    home.mkdir(exist_ok=True, parents=True)
    if continued:
        page_folder = folder / continued[1]
    else:
        page_folder = folder / (page.parent.name if is_example else page.stem)
    if is_example:
        shutil.copytree(page.parent, page_folder, dirs_exist_ok=True)
    page_folder.mkdir(exist_ok=True)
    for title, text in blocks(page):
        if title:
            (page_folder / title).parent.mkdir(parents=True, exist_ok=True)
            (page_folder / title).write_text(text, encoding="utf-8")
            continue
        for command in parse_commands(text):
            began = time.monotonic()
            printed = _run_command(command.words, page_folder, home)
            print(f"{page.name}: $ {command.words.splitlines()[0]}  {time.monotonic() - began:.0f} s", flush=True)
            if not write:
                check_output(command, printed)
                continue
            rewrite_output(page, command, printed)
            for _, readme_text in blocks(README):
                for readme_command in parse_commands(readme_text):
                    if readme_command.words == command.words:
                        rewrite_output(README, readme_command, printed)


def _run_command(words: str, folder: Path, home: Path) -> list[str]:
    """Run a command, and return the lines of its standard output and standard error."""
    inherited = {name: os.environ[name] for name in ("LANG", "LC_ALL", "CI", "OMP_NUM_THREADS") if name in os.environ}
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = {"PATH": programs, "HOME": str(home), "HF_HUB_OFFLINE": "1"}
    shell |= {"COLUMNS": "120", "TTY_COMPATIBLE": "1", "NO_COLOR": "1"}  # tables as in a terminal of this width
    process = run_command(["bash", "-c", words], folder, inherited | shell)
    if process.returncode:
        raise Different(f"$ {words}\nended with exit code {process.returncode}:\n{process.stdout}")
    plain = _ESCAPE.sub("", process.stdout)
    return [line.rstrip() for line in plain.rstrip("\n").splitlines()]


def check_output(command: Command, printed: Sequence[str]) -> None:
    """Compare the lines that a page shows with the lines that the command printed. Raises Different.

    IDs, times, speeds and gaps may differ. Numbers with decimals may differ by two units of the last digit.
    """
    position = 0  # of the first printed line that is not compared yet
    may_skip = False  # whether the page leaves out lines here
    for line in command.lines:
        if line.strip() == LEFT_OUT:
            may_skip = True
            continue
        candidates = range(position, len(printed) if may_skip else min(position + 1, len(printed)))
        shown = _without_ids(line)
        match = next((i for i in candidates if lines_agree(shown, _without_ids(printed[i]), units=2)), None)
        if match is None:
            next_lines = "\n".join(printed[position : position + 20])
            raise Different(f"$ {command.words}\ndoes not print\n{line}\nbut\n{next_lines}")
        position = match + 1
        may_skip = False
    if command.lines and not may_skip and position < len(printed):
        raise Different(f"$ {command.words}\nprints more than the page shows:\n{printed[position]}")


def _without_ids(line: str) -> str:
    """Replace what differs between two runs: IDs, times and speeds."""
    for pattern, placeholder in _VARIES:
        line = pattern.sub(placeholder, line)
    return line


def rewrite_output(page: Path, command: Command, printed: Sequence[str]) -> None:
    """Replace each line that a page shows below a command by the most similar printed line, in their order."""
    lines: list[str] = []
    position = 0  # of the first printed line that is not used yet
    for line in command.lines:
        if line.strip() == LEFT_OUT:
            lines.append(line)
            continue
        similarities = [_similarity(line, printed_line) for printed_line in printed[position:]]
        if not similarities:
            raise Different(f"$ {command.words}\nprints no line that is similar to\n{line}")
        position += similarities.index(max(similarities)) + 1
        lines.append(printed[position - 1])
    before = "\n".join([f"$ {command.words}", *command.lines, ""])
    after = "\n".join([f"$ {command.words}", *lines, ""])
    page.write_text(page.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")


def _similarity(documented: str, printed: str) -> tuple[int, float]:
    """Return the similarity of two lines: the number of characters that match in order, and their share."""
    matcher = SequenceMatcher(None, documented, printed, autojunk=False)
    return sum(block.size for block in matcher.get_matching_blocks()), matcher.ratio()


def main() -> int:
    """Run the pages, and return the number of pages whose commands print something else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="write what the commands print into the pages")
    parser.add_argument("--folder", type=Path, help="folder in which the commands run; a temporary folder by default")
    options = parser.parse_args()
    differ = 0
    with tempfile.TemporaryDirectory(prefix="tutorials-") as temporary:
        for page in options.pages or pages():
            try:
                run_page(page, (options.folder or Path(temporary)).absolute(), write=options.write)
            except Different as error:
                print(f"error: {page}: {error}", file=sys.stderr)
                differ += 1
    return differ


if __name__ == "__main__":
    sys.exit(main())
