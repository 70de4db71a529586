"""Run a command, and compare the lines that two runs of it print."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

PATIENCE = 3600.0
"""The seconds that a command may take."""

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?%?")
_GAP = re.compile(r"(?:\s|─|━|-{2,})+")  # spaces, and the rules of tables


def run_command(
    command: Sequence[str | Path], folder: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder with these environment variables and no others.

    Standard error is a part of the output. If the command takes longer than `PATIENCE`, the exit code is 124.
    """
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, f"not finished after {PATIENCE:,.0f} s")


def lines_agree(first: str, second: str, *, units: int, share: Decimal = Decimal(0)) -> bool:
    """Return whether two lines have the same words, and numbers that differ little. Gaps between words may differ.

    Args:
        first: a line.
        second: another line.
        units: numbers with decimals and percentages may differ by this number of units of the last digit.
        share: all numbers may differ by this share of the larger one.

    """
    if _text_without_numbers(first) != _text_without_numbers(second):
        return False
    for first_text, second_text in zip(numbers_in(first), numbers_in(second), strict=True):
        a, b = (Decimal(text.rstrip("%").replace(",", "")) for text in (first_text, second_text))
        is_whole_number = first_text.strip("-").replace(",", "").isdigit()
        unit = Decimal(0) if is_whole_number else max(_last_digit(a), _last_digit(b))
        if abs(a - b) > max(units * unit, share * max(abs(a), abs(b))):
            return False
    return True


def numbers_in(line: str) -> list[str]:
    """Return the numbers in a line as they are written, such as `31,787`, `-0.01`, `7%` and `1.00e-05`."""
    return _NUMBER.findall(line)


def _text_without_numbers(line: str) -> str:
    return _GAP.sub(" ", _NUMBER.sub("#", line)).strip()


def _last_digit(number: Decimal) -> Decimal:
    """Return one unit of the last digit."""
    return Decimal(1).scaleb(int(number.as_tuple().exponent))
