"""The command line: `python -m rbptrack [COMMAND] [key=value ...]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rbptrack.base import __version__
from rbptrack.base.addresses import refuse_secret
from rbptrack.base.errors import BadInput, RbptrackError, disk_trouble, nearest, unknown
from rbptrack.base.files import temporary_files
from rbptrack.base.process import INTERRUPTED, READER_GONE, collect_rarely, install_signals, stop_code
from rbptrack.base.secrets import guard, reader_gone
from rbptrack.commands.catalogue import COMMANDS, module_of
from rbptrack.commands.usage import asks_for_help
from rbptrack.console.output import complain, hush

_QUIET = ("-q", "--quiet")


def main() -> int:
    """Run a command; returns the exit code: 0, 1 for a failure, 2 for bad input."""
    guard()
    words = sys.argv[1 : sys.argv.index("#")] if "#" in sys.argv else sys.argv[1:]  # zsh hands pasted comments on
    arguments = [word for word in words if word not in _QUIET]
    if len(arguments) < len(words):
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
    collect_rarely()
    install_signals()
    try:
        _refuse_secrets(arguments)
        with temporary_files():
            code = _dispatch(arguments)
        return code or (READER_GONE if reader_gone() else 0)
    except RbptrackError as error:
        if code := stop_code():
            return _stopped(code)
        if os.environ.get("HYDRA_FULL_ERROR"):
            raise
        complain(str(error))
        return 2 if isinstance(error, BadInput) else 1
    except KeyboardInterrupt:
        return _stopped(INTERRUPTED)
    except RecursionError:
        complain("a value on the command line or in a file is nested too deeply")
        return 2
    except OSError as error:
        trouble = disk_trouble(error, Path(error.filename or Path.cwd()))
        if trouble is None or os.environ.get("HYDRA_FULL_ERROR"):
            raise
        complain(str(trouble))
        return 1
    except (Exception, SystemExit):
        if code := stop_code():
            return _stopped(code)
        raise


def _stopped(code: int) -> int:
    print("interrupted: finished measurements are in the tracking store, or wait in mlruns for it", file=sys.stderr)
    return code


def _refuse_secrets(arguments: list[str]) -> None:
    """Raise BadInput where a word holds a secret: every user of the machine sees a command's words, and files keep
    them.
    """
    for word in arguments:
        key, _, value = word.partition("=")
        if "=" not in word or "://" in key:
            key = "a word of the command line"
            value = word
        refuse_secret(key.lstrip("+~"), value.strip("'\""))


def _dispatch(arguments: list[str]) -> int:
    if arguments and arguments[0] in COMMANDS:
        name = arguments[0]
        arguments = arguments[1:]
    elif arguments[:1] in (["-h"], ["--help"]):
        name = "help"
        arguments = []
    elif arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        raise _no_command(*arguments[:2])
    else:
        name = "measure"
    if asks_for_help(arguments):
        from rbptrack.commands.help_ import explain

        explain(name, arguments)
        return 0
    return int(module_of(name).main(arguments))


def _no_command(word: str, following: str = "") -> BadInput:
    """Return the error for a first word that is no command: a model or a dataset without its key, or a key without
    `=`.
    """
    if following and "=" not in following and word in COMMANDS["measure"].heads:
        return BadInput(f"unknown command {word!r}. Write {word}={following}")
    if "/" in word or (not nearest(word, COMMANDS) and word.isidentifier()):
        from rbptrack.config.compose import Composer

        composer = Composer("config", [])
        for key in ("model", "dataset"):
            if near := nearest(word, composer.options(key), most=1):
                return BadInput(f"no command {word}. Did you mean {key}={near[0]}?")
    return unknown("command", word, COMMANDS, label="Commands", most=len(COMMANDS))


if __name__ == "__main__":
    sys.exit(main())
