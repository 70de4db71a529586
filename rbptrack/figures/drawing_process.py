"""The process that draws: a script that reads requests from a pipe and answers with pictures.

It imports nothing of rbptrack and therefore starts in a tenth of a second.
"""

from __future__ import annotations

import json
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

IDLE_SECONDS = 60.0
"""Seconds without a request after which the process ends: it holds 200 MB."""

DRAWN = b"="
REFUSED = b"!"


def main(pipe: int) -> None:
    """Answer requests until the other end is closed or nothing is asked for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks, which then closes the pipe
    _lift_limits()
    import vl_convert

    connection = Connection(pipe)
    with suppress(EOFError, ConnectionError):
        while connection.poll(IDLE_SECONDS):
            function, arguments = json.loads(connection.recv_bytes(), parse_constant=lambda name: None)
            try:
                drawn = getattr(vl_convert, function)(**arguments)
                answer = DRAWN + (drawn.encode() if isinstance(drawn, str) else bytes(drawn))
            except Exception as error:
                answer = REFUSED + str(error).partition("\n")[0].encode()
            connection.send_bytes(answer)


def _lift_limits() -> None:
    """Take as many addresses as the administrator allows, and leave no core file if V8 does not get enough."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main(int(sys.argv[1]))
