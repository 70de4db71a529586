"""Print lines on the terminal: results on standard output, errors and warnings on standard error."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

from rbptrack.base.formatting import short_path
from rbptrack.base.secrets import without_password
from rbptrack.console.log import log_traceback

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def program_name() -> str:
    """Return the words that start this program: `rbptrack` or `python -m rbptrack`."""
    return "rbptrack" if Path(sys.argv[0]).name == "rbptrack" else "python -m rbptrack"


def command_line() -> str:
    """Return the whole command line, quoted for a shell. Bytes that are not UTF-8 are written as escapes.

    Secrets are hidden.
    """
    words = shlex.join(map(without_password, sys.argv[1:]))
    return f"{program_name()} {words}".rstrip().encode(errors="backslashreplace").decode()


def print_text(text: str) -> None:
    """Print a text on standard output, above a progress bar if there is one."""
    from tqdm import tqdm

    with tqdm.external_write_mode(file=sys.stdout):
        print(printable(text), flush=True)


def print_json(value: object) -> None:
    """Print a value as JSON on standard output. Dates are texts."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=str))


def print_problem(text: str, trace: str = "") -> None:
    """Print an error or a warning on standard error.

    `trace` is the traceback of an unexpected error. It is written to the log, and the message then names the log file.
    """
    from tqdm import tqdm

    if trace and (file := log_traceback(text, trace)):
        text = f"{text}; the traceback is in {short_path(file)}"
    with tqdm.external_write_mode(file=sys.stderr):
        print(f"rbptrack: {printable(text)}", file=sys.stderr, flush=True)


def open_in_browser(address: str) -> None:
    """Open an address in the browser. If no browser can be opened, print a warning."""
    import webbrowser

    if not webbrowser.open(address):
        print_problem(f"no browser can be opened here. Open {address} yourself")


def printable(text: str) -> str:
    """Hide secrets, and replace control characters, which a terminal would execute, by `?`."""
    return _CONTROL.sub("?", "\n".join(map(without_password, text.split("\n"))))
