"""Matplotlib's SVG made small enough to stand on the page: the same picture in a third of the characters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_USED = re.compile(r"#([\w-]+)")
_NUMBERS = re.compile(r"-?[\d.]+(?:e-?\d+)?")
_LINES = re.compile(r"[ML\s\d.e-]+z?\s*")


def inline_svg(text: str, prefix: str) -> str:
    """The drawing for the inside of an HTML page.

    Coordinates have one decimal (a tenth of a point), each style is said once, as a class, and names that nothing
    refers to are left out.

    Args:
        text: an SVG as matplotlib writes it.
        prefix: begins every class and name; a page gives each of its drawings another.

    """
    root = ElementTree.fromstring(text)  # noqa: S314 - drawn by this program a moment ago
    for parent in list(root.iter()):
        for child in [c for c in parent if c.tag == f"{_SVG}metadata"]:
            parent.remove(child)
    names = _short_names(root, prefix)
    styles: dict[str, str] = {}
    for element in root.iter():
        _shorten(element, names, styles, prefix)
    own = {f"#{e.get('id')}": e.get("class") for e in root.iter(f"{_SVG}path") if "id" in e.attrib}
    for use in root.iter(f"{_SVG}use"):
        if use.get("class") == own.get(use.get("href", "")):
            use.attrib.pop("class", None)
    _unwrap(root)
    ElementTree.SubElement(root, f"{_SVG}style").text = "".join(f".{n}{{{style}}}" for style, n in styles.items())
    ElementTree.register_namespace("", _SVG[1:-1])
    return re.sub(r">\s+<", "><", ElementTree.tostring(root, encoding="unicode")).replace(" />", "/>")


def _short_names(root: ElementTree.Element, prefix: str) -> dict[str, str]:
    """The names that something refers to -> their short form."""
    used = {
        name
        for element in root.iter()
        for key in (_LINK, "clip-path", "style")
        if key == _LINK or "url(" in element.get(key, "")
        for name in _USED.findall(element.get(key, ""))
    }
    return {name: f"{prefix}n{number}" for number, name in enumerate(sorted(used))}


def _shorten(element: ElementTree.Element, names: dict[str, str], styles: dict[str, str], prefix: str) -> None:
    name = element.attrib.pop("id", "")
    if name in names:
        element.set("id", names[name])
    if link := element.attrib.pop(_LINK, ""):
        element.set("href", f"#{names[link[1:]]}")
    if re.match(r"rotate\(-?0 ", element.get("transform", "")):
        del element.attrib["transform"]
    if "d" in element.attrib:
        element.set("d", _short_path(element.attrib["d"]))
    for key in ("x", "y", "transform"):
        if key in element.attrib and "scale" not in element.attrib[key]:  # glyphs are scaled by a hundredth
            element.set(key, _NUMBERS.sub(lambda found: _tenths(float(found[0])), element.attrib[key]))
    parts = [element.attrib.pop("style", "").replace(": ", ":").replace("; ", ";")]
    if clip := element.attrib.pop("clip-path", ""):
        parts.append(f"clip-path:{clip}")
    if style := ";".join(filter(None, parts)):
        style = re.sub(r"url\(#([\w-]+)\)", lambda found: f"url(#{names[found[1]]})", style)
        element.set("class", styles.setdefault(style, f"{prefix}s{len(styles)}"))


def _tenths(value: float) -> str:
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def _short_path(path: str) -> str:
    """`M 57.60 164.76 L 57.6 23.04` -> `M57.6 164.8v-141.8`: steps from point to point instead of points."""
    if not _LINES.fullmatch(path):
        return re.sub(r"\s*([A-Za-z])\s*", r"\1", _NUMBERS.sub(lambda found: _tenths(float(found[0])), path)).strip()
    parts: list[str] = []
    for stroke in path.replace("z", " ").split("M")[1:]:
        points = [round(10 * float(number)) for number in _NUMBERS.findall(stroke)]
        at = points[:2]
        parts.append(f"M{_tenths(at[0] / 10)} {_tenths(at[1] / 10)}")
        for x, y in zip(points[2::2], points[3::2], strict=True):
            parts.append(_step(x - at[0], y - at[1]))
            at = [x, y]
    return "".join(parts) + ("z" if "z" in path else "")


def _step(x: int, y: int) -> str:
    across, down = _tenths(x / 10), _tenths(y / 10)
    if not y:
        return f"h{across}"
    return f"v{down}" if not x else f"l{across}{'' if down.startswith('-') else ' '}{down}"


def _unwrap(element: ElementTree.Element) -> None:
    """Replace groups that say nothing by what they hold."""
    element[:] = list(_unwrapped(element))


def _unwrapped(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    for child in element:
        _unwrap(child)
        if child.tag == f"{_SVG}g" and not child.attrib:
            yield from child
        elif len(child) or child.attrib or (child.text or "").strip():
            yield child
