"""What analyzers have read of runs, kept for those that follow, in memory that does not grow with the store."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

V = TypeVar("V")

MOST_BYTES = 256 << 20


class Kept(Generic[V]):
    """Values by key, as long as their arrays fit.

    What comes after that is not kept, and nothing makes room for it: analyzers read runs in the same order, one after
    another, so the oldest is what the next one asks for first.

    Args:
        most: bytes of all arrays.

    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._values: dict[str, V] = {}
        self._left = most

    def get(self, key: str) -> V | None:
        """Return the value kept under a key."""
        return self._values.get(key)

    def keep(self, key: str, value: V) -> V:
        """Keep a value, in the place of another under its key, if it fits; returns it."""
        if (before := self._values.pop(key, None)) is not None:
            self._left += _bytes(before)
        if _bytes(value) <= self._left:
            self._values[key] = value
            self._left -= _bytes(value)
        return value


def _bytes(value: object) -> int:
    return sum(array.nbytes for array in vars(value).values() if isinstance(array, np.ndarray))
