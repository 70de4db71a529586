"""Settings of a process that analyses: what Python and the C library spend on memory is kept small."""

from __future__ import annotations

import ctypes
from contextlib import suppress

from rbptrack.base.process import leave_out_what_is_loaded

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt in glibc's malloc.h
_KEPT = 128 * 2**20  # bytes of freed memory that stay with the process
_MAPPED = 32 * 2**20  # bytes above which an array gets pages of its own, handed back when it is freed


def spare_memory_work() -> None:
    """Keep freed memory for the next array, and leave what was imported out of garbage collection.

    Counting half a million tokens makes and frees some ten arrays of 4 MB. By default glibc hands such memory back each
    time, and the system fills its pages with zeros anew: 40% of the time of counting. Collections look at every
    object that there is; the modules' own, hundreds of thousands, are never garbage.
    """
    leave_out_what_is_loaded()
    with suppress(OSError, AttributeError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _MAPPED)
