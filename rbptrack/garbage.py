"""What Python's garbage collection need not look at."""

from __future__ import annotations

import atexit
import gc


def leave_out_what_is_loaded() -> None:
    """Leave every object that there is out of garbage collection, until the process ends.

    Modules hold hundreds of thousands, none of which is garbage before the end. Collections take less time without
    them, and come sooner: Python waits until there are a quarter as many new objects as old ones.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # counts what is old
    atexit.unregister(gc.unfreeze)
    atexit.register(gc.unfreeze)  # else extension modules complain of objects that nobody freed
