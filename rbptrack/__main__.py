"""The command line: `python -m rbptrack [COMMAND] [key=value ...]`."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from rbptrack import interrupts, temporary
from rbptrack.commands.catalogue import COMMANDS
from rbptrack.console import complain, hush
from rbptrack.errors import BadInput, RbptrackError, nearest, unknown
from rbptrack.redaction import guard, passwords
from rbptrack.version import __version__

_QUIET = ("-q", "--quiet")


def main() -> int:
    """Run a command; returns the exit code: 0, 1 for a failure, 2 for bad input."""
    _hide_password(sys.argv[1:])
    arguments = [word for word in sys.argv[1:] if word not in _QUIET]
    if len(arguments) < len(sys.argv) - 1:
        hush()
    if arguments[:1] in (["--version"], ["version"]):
        print(f"rbptrack {__version__}")
        return 0
    # Threads that wait for each other spin by default: beside other work on the same cores that costs a small model a
    # factor of 25. Spinning briefly, then sleeping, costs nothing on idle cores. Read when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if arguments[:1] in (["analyze"], ["report"]):
        # Thousands of fits of ten points each: threads that share such products cost more than they save.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    guard()
    interrupts.install()
    try:
        with temporary.for_this_process():
            return _dispatch(arguments)
    except RbptrackError as error:
        if code := interrupts.received():
            return _stopped(code)
        if os.environ.get("HYDRA_FULL_ERROR"):
            raise
        complain(str(error))
        return 2 if isinstance(error, BadInput) else 1
    except KeyboardInterrupt:
        return _stopped(interrupts.INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone: `rbptrack list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (Exception, SystemExit):
        if code := interrupts.received():
            return _stopped(code)
        raise


def _stopped(code: int) -> int:
    print("interrupted: finished measurements are in the tracking store, or wait in mlruns for it", file=sys.stderr)
    return code


def _hide_password(arguments: list[str]) -> None:
    """Start anew without a tracking address that holds a password: every user of the machine sees a command's words.

    The address moves into the environment, which only its owner sees.
    """
    secret = [word for word in arguments if word.lstrip("+").startswith("tracking.uri=") and passwords(_address(word))]
    if not secret or os.name != "posix":
        return
    # Where a config file may give another address, an empty one stays, so that the environment's is taken.
    others = any(word.startswith(("--config-dir", "-cd", "hydra.searchpath")) for word in arguments)
    kept = [word for word in arguments if word not in secret] + ["tracking.uri=''"] * others
    os.environ["MLFLOW_TRACKING_URI"] = _address(secret[-1])
    started = sys.orig_argv[: len(sys.orig_argv) - len(arguments)]
    os.execv(sys.executable, [*started, *kept])  # noqa: S606 - this program itself


def _address(word: str) -> str:
    return word.partition("=")[2].strip("'\"")


def _dispatch(arguments: list[str]) -> int:
    if arguments and arguments[0] in COMMANDS:
        name, arguments = arguments[0], arguments[1:]
    elif arguments[:1] in (["-h"], ["--help"]):
        name, arguments = "help", []
    elif arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        raise _no_command(arguments[0])
    else:
        name = "measure"
    module = import_module(f"rbptrack.commands.{COMMANDS[name].module}")  # only what the command needs is imported
    return int(module.main(arguments))


def _no_command(word: str) -> BadInput:
    """The error for a first word that is no command; it may be a model or a dataset without its key."""
    if "/" in word or (not nearest(word, COMMANDS) and word.isidentifier()):
        from rbptrack.config.compose import Composer

        composer = Composer("config", [])
        for key in ("model", "dataset"):
            if near := nearest(word, composer.options(key), most=1):
                return BadInput(f"no command {word}. Did you mean {key}={near[0]}?")
    return unknown("command", word, COMMANDS, label="Commands", most=len(COMMANDS))


if __name__ == "__main__":
    sys.exit(main())
