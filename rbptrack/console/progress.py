"""Progress on standard error, on a terminal and in a notebook; silent in files and pipes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm


def bar(total: float, title: str, *, hidden: bool = False) -> tqdm[Any]:
    """A bar over tokens, to be advanced with `update(n)`, closed as a context manager, and gone when it ends."""
    return tqdm(
        total=total, desc=title, unit=" token", unit_scale=True, leave=False, disable=hidden or _nobody_watches()
    )


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show what is being done, while it is done, where nobody knows how long it takes."""
    with tqdm(total=0, desc=text, bar_format="{desc} ...", leave=False, disable=_nobody_watches()):
        yield


def _nobody_watches() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    in_notebook = getattr(shell, "kernel", None) is not None
    return not in_notebook and not sys.stderr.isatty()
