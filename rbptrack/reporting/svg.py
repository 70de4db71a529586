"""Drawings for the inside of a page: smaller than matplotlib writes them, and panel by panel."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape, unescape
from zlib import crc32

_PIXELS = 1.36  # of the screen per point of a drawing: letters of 9.5 points become 13 pixels high
_TAG = re.compile(r"<[^>]+>|[^<]+")
_MARKED = re.compile(r""" id=(?:"(\{[^"]*\})"|'(\{[^']*\})')""")
_NAMED = re.compile(r'<(path|clipPath) id="([^"]+)".*?(?:</clipPath>|(?<!clipPath)/>)')


def inline(text: str) -> str:
    """Shorten a drawing to less than half its characters; the picture stays.

    Coordinates have one decimal (a tenth of a point), names that nothing refers to and groups that say nothing are left
    out, and each style is written once, as a class. Names and classes are hashes of what they stand for, so that
    drawings on one page may share them. What `rbptrack.analysis.marks` named becomes `data-` attributes, and
    titles of points.

    Args:
        text: an SVG as matplotlib writes it.

    """
    text = text[text.index("<svg") :]
    used, styles = set(re.findall(r"#([\w-]+)", text)), dict[str, str]()
    written: list[str] = []
    groups: list[bool] = []  # of those that are open, whether they are written
    titles: list[str] = []  # of the points to come
    for bit in _TAG.findall(re.sub(r">\s+<", "><", text)):
        if bit == "</g>":
            written += [bit] * groups.pop()
        elif not bit.startswith("<"):
            written.append(bit)
        else:
            names = json.loads(unescape(marked[1] or marked[2])) if (marked := _MARKED.search(bit)) else {}
            titles = names.pop("titles", [] if names else titles)
            tag = _shortened(_MARKED.sub("", bit), used, styles)
            if tag.startswith("<g"):
                tag = f"{tag[:-1]}{_data(names)}>"
                groups.append(tag != "<g>")
                written += [tag] * groups[-1]
            elif tag.startswith("<use") and titles:
                written.append(f"{tag.rstrip('/> ')}><title>{escape(titles.pop(0))}</title></use>")
            else:
                written.append(tag)
    rules = "".join(f".{name}{{{style}}}" for name, style in styles.items())
    return "".join(written).replace("</svg>", f"<style>{rules}</style></svg>").strip()


def _shortened(tag: str, used: set[str], styles: dict[str, str]) -> str:
    """Shorten one tag, and add its style to `styles`, by class."""

    def as_class(style: re.Match[str]) -> str:
        name = f"s{crc32(style[1].encode()):x}"
        styles[name] = style[1]
        return f'class="{name}"'

    tag = re.sub(r"\s+", " ", tag).replace(' transform="rotate(-0 ', ' transform="rotate(0 ')
    tag = re.sub(r' transform="rotate\(0 [^"]*"', "", tag)
    tag = re.sub(r' id="([\w-]+)"', lambda match: match[0] if match[1] in used else "", tag)
    tag = re.sub(r'style="([^"]*)"', as_class, re.sub(r"(\.\d)\d{2,}", r"\1", tag))
    tag = re.sub(r' (x|y|d|width|height)="[^"]*"', lambda match: re.sub(r"(\.\d)\d+|\.0+(?!\d)", r"\1", match[0]), tag)
    return re.sub(r'(?<= d=")[^"]*', lambda match: re.sub(" ?([MLCQz]) ?", r"\1", match[0]), tag)


def _data(names: Mapping[str, str]) -> str:
    return "".join(f' data-{name}="{escape(value)}"' for name, value in names.items())


@dataclass(frozen=True)
class Piece:
    """A panel, legend or text of a drawing.

    Attributes:
        names: `part` (panel, legend, text), `label`, `box` and what the drawing marked it with.
        inside: its SVG.

    """

    names: Mapping[str, str]
    inside: str

    @property
    def html(self) -> str:
        """An SVG of its own, as wide as its letters ask for."""
        names = dict(self.names)
        box, label, part = (names.pop(name) for name in ("box", "label", "part"))
        width = round(_PIXELS * float(box.split()[2]))
        data = _data(names)
        return (
            f'<svg class="{part}" viewBox="{box}" style="--w:{width}px" role="img" aria-label="{escape(label)}"{data}>'
            f"{self.inside}</svg>"
        )


@dataclass
class Pieces:
    """Drawings of one page in pieces; what they share stands once.

    Attributes:
        rules: of classes, by their name.
        shared: markers and clips, by their id.

    """

    rules: dict[str, str] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)

    def take(self, svg: str) -> list[Piece]:
        """Take a drawing apart: its legends, its panels, its texts.

        Args:
            svg: of `inline`; one without marked parts is one piece.

        """
        body, _, rules = svg.rpartition("<style>")
        begins = [match.start() for match in re.finditer(r"<g [^>]*data-box=", svg)]
        if not begins:
            return []
        self.rules |= dict(re.findall(r"\.(s[0-9a-f]+)\{([^}]*)\}", rules))
        for defs in re.findall(r"<defs>(.*?)</defs>", body):
            self.shared |= {match[2]: match[0] for match in _NAMED.finditer(defs)}
        body = re.sub(r"<defs>.*?</defs>", lambda match: " " * len(match[0]), body)
        pieces = [_piece(body, begin) for begin in begins]
        places = {"legend": 0, "panel": 1, "text": 2}
        return sorted(pieces, key=lambda piece: places[piece.names["part"]])

    @property
    def css(self) -> str:
        """The classes; letters grow and shrink with the variable --letters."""
        rules = "".join(f".{name}{{{style}}}" for name, style in self.rules.items())
        return re.sub(r"font-size: ([\d.]+)px", r"font-size: calc(\1px * var(--letters, 1))", rules)

    @property
    def defs(self) -> str:
        """What pieces refer to, as an SVG without a size."""
        return f'<svg class="defs" aria-hidden="true">{"".join(self.shared.values())}</svg>' if self.shared else ""


def _piece(body: str, begin: int) -> Piece:
    """Return the group that begins there."""
    depth = 0
    end = begin
    for tag in re.finditer(r"<(/?)g[ >]", body[begin:]):
        depth += -1 if tag[1] else 1
        if not depth:
            end = begin + tag.end()
            break
    opening, _, inside = body[begin:end].partition(">")
    names = {name: unescape(value) for name, value in re.findall(r'data-([\w-]+)="([^"]*)"', opening)}
    inside = re.sub(r" {4,}", "", inside.removesuffix("</g>")).replace("xlink:href", "href")
    return Piece(names, inside)
