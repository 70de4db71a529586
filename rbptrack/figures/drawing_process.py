"""The script of the child process that draws pictures. It reads requests from a pipe and writes pictures to it.

It does not import rbptrack, and therefore starts in a tenth of a second.
"""

from __future__ import annotations

import json
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

IDLE_SECONDS = 60.0
"""Seconds without a request after which the process ends and frees its 200 MB of memory."""

DRAWN = b"="  # the first byte of a reply with a picture
REFUSED = b"!"  # the first byte of a reply with an error message


def main(pipe: int) -> None:
    """Answer requests until the parent process closes the pipe, or no request comes for `IDLE_SECONDS`.

    `pipe` is a file descriptor.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent process, which closes the pipe
    _lift_limits()
    import vl_convert

    connection = Connection(pipe)
    with suppress(EOFError, ConnectionError):
        while connection.poll(IDLE_SECONDS):
            function, arguments = json.loads(connection.recv_bytes(), parse_constant=lambda name: None)
            try:
                picture = getattr(vl_convert, function)(**arguments)
                reply = DRAWN + (picture.encode() if isinstance(picture, str) else bytes(picture))
            except Exception as error:
                reply = REFUSED + str(error).partition("\n")[0].encode()
            connection.send_bytes(reply)


def _lift_limits() -> None:
    """Raise the limit on address space to the hard limit, and forbid core files in case V8 aborts."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        hard_limit = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (hard_limit, hard_limit))


if __name__ == "__main__":
    main(int(sys.argv[1]))
