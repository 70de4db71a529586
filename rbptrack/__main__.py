"""The command line: `python -m rbptrack [COMMAND] [key=value ...]`."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from rbptrack.console import complain
from rbptrack.errors import BadInput, RbptrackError
from rbptrack.version import __version__

# Command -> its module in rbptrack/commands, which has `main(arguments) -> exit code`; without a command: measure.
COMMANDS = {
    "measure": "measure",
    "plan": "plan",
    "analyze": "analyze",
    "report": "report",
    "ui": "ui",
    "sync": "sync",
    "export": "export",
    "import": "import_",
    "plugins": "plugins",
    "bench": "bench",
    "cache": "cache",
}


def main() -> int:
    """Run a command; returns the exit code: 0, 1 for a failure, 2 for bad input."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["--version"], ["version"]):
        print(f"rbptrack {__version__}")
        return 0
    # Threads that wait for each other spin by default: beside other work on the same cores that costs a small model a
    # factor of 25. Spinning briefly, then sleeping, costs nothing on idle cores. Read when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if arguments[:1] in (["analyze"], ["report"]):
        # Thousands of fits of ten points each: threads that share such products cost more than they save.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        return _dispatch(arguments)
    except RbptrackError as error:
        if os.environ.get("HYDRA_FULL_ERROR"):
            raise
        complain(str(error))
        return 2 if isinstance(error, BadInput) else 1
    except KeyboardInterrupt:
        return 130


def _dispatch(arguments: list[str]) -> int:
    if arguments and arguments[0] in COMMANDS:
        name, arguments = COMMANDS[arguments[0]], arguments[1:]
    elif arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        raise BadInput(
            f"no command {arguments[0]}. Commands: {', '.join(COMMANDS)}; without one it measures: "
            "python -m rbptrack -m 'model=nano/*' dataset=stdlib,pydocs"
        )
    else:
        name = "measure"
    module = import_module(f"rbptrack.commands.{name}")  # only what the command needs is imported
    return int(module.main(arguments))


if __name__ == "__main__":
    sys.exit(main())
