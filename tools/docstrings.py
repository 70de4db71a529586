"""Markdown of the reference: tables, words of code, and docstrings with the sections of Google's style."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")
_ITEM = re.compile(r"^(\*{0,2}\w+): (.*)$")


@dataclass(frozen=True)
class Docstring:
    """A docstring, taken apart.

    Attributes:
        summary: its first line.
        body: the paragraphs after it, before the first section.
        sections: title -> name -> meaning; a section without names has one empty name.

    """

    summary: str = ""
    body: str = ""
    sections: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, *things: Any) -> Docstring:
        """Take apart that of the first thing; add the attributes of the others, which it extends."""
        text = inspect.cleandoc(things[0].__doc__ or "")
        head, *rest = re.split(rf"^({'|'.join(SECTIONS)}):\n", text, flags=re.MULTILINE)
        summary, _, body = head.partition("\n")
        sections = {title: _items(items) for title, items in zip(rest[::2], rest[1::2], strict=True)}
        for other in things[1:]:
            inherited = cls.of(other).attributes
            sections["Attributes"] = inherited | sections.get("Attributes", {})
        return cls(summary, _paragraphs(body), sections)

    @property
    def attributes(self) -> dict[str, str]:
        """Name -> meaning of a class's attributes."""
        return self.sections.get("Attributes", {})

    @property
    def whole(self) -> str:
        """Summary and body."""
        return f"{self.summary}\n\n{self.body}".strip()

    def markdown(self) -> str:
        """Write the whole, sections as lists."""
        parts = [self.whole]
        for title, items in self.sections.items():
            lines = [f"- `{name}`: {meaning}" if name else f"- {meaning}" for name, meaning in items.items() if meaning]
            parts.append(f"*{title}*\n\n" + "\n".join(lines))
        return "\n\n".join(filter(None, parts))


def _paragraphs(text: str) -> str:
    """Join the lines of each paragraph; indented blocks and lists stay as they are."""
    blocks = re.split(r"\n\s*\n", text.strip("\n"))
    return "\n\n".join(block if block.startswith(("    ", "- ", "|")) else " ".join(block.split()) for block in blocks)


def _items(text: str) -> dict[str, str]:
    """Read name -> meaning; lines without a name continue the item before."""
    items: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(text).splitlines():
        match = _ITEM.match(line)
        if match:
            name = match[1]
        items[name] = f"{items.get(name, '')} {match[2] if match else line.strip()}".strip()
    return items


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Write a table in Markdown; a bar in a cell is escaped."""
    lines = [list(heads), *([str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: object) -> str:
    """Write a word as code; nothing for an empty one."""
    return f"`{text}`" if text != "" else ""
