"""Draw Vega-Lite charts as SVG, PNG or PDF in a child process.

vl-convert uses the JavaScript engine V8, which reserves about 70 GB of address space. V8 aborts the process in which it
runs if this space is not available (for example under `ulimit -v`), or if the kernel forbids executable memory. No
`except` can catch this. A child process therefore draws all pictures. It starts with the first picture, and ends after
a minute without a request.
"""

from __future__ import annotations

import functools
import os
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from rbptrack.base.errors import RbptrackError, first_line
from rbptrack.base.formatting import plain_json
from rbptrack.base.process import lift_limits

MAX_SECONDS = 300.0
"""The most seconds that one picture may take."""

_IDLE_SECONDS = 60.0  # after this time without a request, the child process ends and frees its 200 MB of memory


class CannotDraw(RbptrackError):
    """A picture cannot be drawn. Callers report this and continue without the picture."""


def draw(function: str, **arguments: Any) -> bytes:
    """Call a function of vl-convert in the child process, and return the bytes of the picture.

    Args:
        function: the name of the function, such as `vegalite_to_svg`.
        arguments: the arguments of the function. They must be convertible to JSON.

    Raises:
        CannotDraw: vl-convert rejects the chart, takes longer than `MAX_SECONDS`, or cannot run on this machine.

    """
    import vl_convert

    plain = plain_json(arguments)
    try:
        picture = _executor(os.getpid()).submit(getattr(vl_convert, function), **plain).result(MAX_SECONDS)
    except BrokenProcessPool as error:
        _executor.cache_clear()
        raise CannotDraw(
            "the process that draws pictures was killed. It needs 70 GB of address space, and permission to run code "
            "in memory. Raise the limit on virtual memory (ulimit -v), or draw the figures on another machine"
        ) from error
    except TimeoutError as error:
        _executor(os.getpid()).shutdown(wait=False, kill_workers=True)
        _executor.cache_clear()
        raise CannotDraw(f"vl-convert takes more than {MAX_SECONDS:.0f} s") from error
    except Exception as error:  # vl-convert rejects the chart, or the process cannot be started
        raise CannotDraw(f"vl-convert cannot draw this chart ({first_line(error)})") from error
    return picture.encode() if isinstance(picture, str) else bytes(picture)


@functools.cache
def _executor(pid: int) -> Any:
    """Return the executor of the process with this ID. A forked process gets its own."""
    from loky import ProcessPoolExecutor  # unlike that of Python, it does not run the user's script again

    return ProcessPoolExecutor(max_workers=1, timeout=_IDLE_SECONDS, initializer=lift_limits)
