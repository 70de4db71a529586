"""What `-h` of a command shows: a page with its words, its options and examples, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

from rbptrack.console.output import console, printable, program, sentence_width

FILTER_OPTIONS: Mapping[str, str] = {
    "family=NAME,...": "only these model families",
    "size=SIZE,...": "only these sizes, as they are published: 70m, 1.4b",
    "dataset=NAME,...": "only these datasets",
    "sweep=ID,...": "only what these sweeps measured, or found measured",
}
"""The filters that list, report, analyze, export and ui share; each takes a list and patterns."""

FILTERS_IN_WORDS = "Filters take lists and wildcards ('family=pythia*'); a run must match all of them."

AS_JSON = "one JSON document, for programs"

DRAWN_OPTIONS: Mapping[str, str] = {
    "figures=svg,png,pdf": "how figures are drawn; svg alone by default",
    "again=yes": "compute anew what is there already, of the same measurements, options and code",
}
"""The options of analyze and report about what they leave in the store."""

STORE_OPTIONS: Mapping[str, str] = {
    "tracking.uri=URI": "the tracking store; otherwise MLFLOW_TRACKING_URI, else ./mlruns",
    "tracking.experiment=NAME": "the MLflow experiment; otherwise rbptrack",
}

HELP_FLAGS = ("-h", "--help")
_WHOLE: Mapping[str, Any] = {"break_long_words": False, "break_on_hyphens": False}  # paths and addresses
_NARROWEST = 20  # columns of a text beside a word


@dataclass(frozen=True)
class Help:
    """The help of a command."""

    synopsis: str  # `export out=FILE.zip [FILTERS]`
    about: str  # what it does: paragraphs, with an empty line between them
    options: Mapping[str, str] = field(default_factory=dict)  # each as it is typed, and what it means
    examples: Mapping[str, str] = field(default_factory=dict)  # commands without the program's name, and what each does

    def show(self) -> None:
        """Print the page."""
        write(f"{program()} {self.synopsis}", style="bold")
        for paragraph in self.about.strip().split("\n\n"):
            write("")
            write(" ".join(paragraph.split()))
        entries("Options", self.options)
        entries("Examples", {f"{program()} {command}": text for command, text in self.examples.items()}, stacked=True)

    @property
    def keys(self) -> list[str]:
        """The options' names."""
        return [word.partition("=")[0] for word in self.options if not word.startswith("-")]


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether `-h` or `--help` is among the arguments."""
    return any(word in HELP_FLAGS for word in arguments)


def write(text: str, *, style: str = "", indent: int = 0) -> None:
    """Print a paragraph of a help page; a help page is what was asked for, so quiet does not silence it."""
    width = max(sentence_width() - indent, _NARROWEST)
    for line in wrap(text, width, **_WHOLE) or [""]:
        _print(" " * indent + line, style)


def entries(title: str, rows: Mapping[str, str], *, stacked: bool = False, word_width: int = 0) -> None:
    """Print a titled list of words and their meanings.

    `stacked`: the meaning stands below its word. `word_width`: columns of the words, where several lists follow.
    """
    if not rows:
        return
    write("")
    write(title, style="bold")
    column = max(word_width, *map(len, rows)) + 4
    for word, meaning in rows.items():
        if stacked or column > sentence_width() // 2:
            _print(f"  {word}")  # one piece, to be copied
            write(meaning, indent=6) if meaning else None
            continue
        first, *rest = wrap(meaning, max(sentence_width() - column, _NARROWEST), **_WHOLE) or [""]
        _print(f"  {word}".ljust(column) + first)
        for line in rest:
            _print(" " * column + line)


def _print(line: str, style: str = "") -> None:
    console().print(printable(line), style=style, markup=False, emoji=False, soft_wrap=True)
