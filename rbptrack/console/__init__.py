"""What the terminal shows: sentences, tables, numbers in short, progress; plain lines where there is no terminal."""

from rbptrack.console.numbers import compact, compact_bytes, duration, short_path
from rbptrack.console.progress import AnalyzerProgress, CellProgress, CellState
from rbptrack.console.tables import table
from rbptrack.console.words import (
    WIDTH,
    columns,
    complain,
    console,
    drawn,
    hush,
    printable,
    program,
    quiet,
    say,
    say_wrapped,
    sentence_width,
)

__all__ = [
    "WIDTH",
    "AnalyzerProgress",
    "CellProgress",
    "CellState",
    "columns",
    "compact",
    "compact_bytes",
    "complain",
    "console",
    "drawn",
    "duration",
    "hush",
    "printable",
    "program",
    "quiet",
    "say",
    "say_wrapped",
    "sentence_width",
    "short_path",
    "table",
]
