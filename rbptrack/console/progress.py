"""Show progress in notebooks and on standard error. If standard error is not a terminal, nothing is shown."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tqdm.auto import tqdm

_T = TypeVar("_T")


def token_bar(total: float, label: str, *, hidden: bool = False) -> tqdm[Any]:
    """Make a progress bar over tokens.

    Use it as a context manager, and call `update(n)` to advance it by n tokens. The bar disappears at the end.
    """
    return tqdm(total=total, desc=label, unit=" token", unit_scale=True, leave=False, disable=hidden or _is_hidden())


def counting(items: Iterable[_T], label: str) -> Iterator[_T]:
    """Yield items of an unknown number, and show how many were yielded."""
    yield from tqdm(items, desc=label, unit=" row", leave=False, disable=_is_hidden())


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show a label while a block of unknown duration runs."""
    with tqdm(total=0, desc=text, bar_format="{desc} ...", leave=False, disable=_is_hidden()):
        yield


def _is_hidden() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    in_notebook = getattr(shell, "kernel", None) is not None
    return not in_notebook and not sys.stderr.isatty()
