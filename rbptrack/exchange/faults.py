"""The faults of a source of measurements: every one with its place, reported together."""

from __future__ import annotations

from collections.abc import Iterable

from rbptrack.base.errors import BadInput

_SHOWN = 10
_MOST = 1000  # faults that are looked for: a reader of ten and a count need not wait for a million


class Faults:
    """Collects the faults of a source."""

    def __init__(self, source: object) -> None:
        self._source = source
        self._found = list[tuple[str, str]]()

    def __len__(self) -> int:
        return len(self._found)

    @property
    def first(self) -> str:
        """The first one: `ranks.parquet: holds no ranks`."""
        return ": ".join(self._found[0])

    def add(self, place: str, text: str) -> None:
        """Note a fault; `place` says where in the source: `line 3, column ce`; empty: the source as a whole."""
        self._found.append((place, text))
        if len(self._found) >= _MOST:
            self.refuse()

    def extend(self, place: str, faults: Iterable[tuple[str, str]], *, noun: str = "column") -> None:
        """Note what `rbptrack.tracking.rules.faults` found at a place."""
        for name, text in faults:
            self.add(f"{place}, {noun} {name}" if name else place, text)

    def refuse(self) -> None:
        """Raise BadInput for any fault: the first ten and the number of the others."""
        if not self._found:
            return
        if len(self._found) == 1:
            place, text = self._found[0]
            raise BadInput(f"{self._source}{', ' * bool(place)}{place}: {text}. Nothing was imported")
        count = f"{len(self._found)}{' or more' * (len(self._found) >= _MOST)}"
        lines = [f"{self._source} has {count} faults; nothing was imported"]
        lines += [f"{place}: {text}" if place else text for place, text in self._found[:_SHOWN]]
        if len(self._found) > _SHOWN:
            lines.append(f"... and {len(self._found) - _SHOWN} more")
        raise BadInput("\n  ".join(lines))
