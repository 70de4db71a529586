"""Call transformers' `from_pretrained` functions for pinned files, and explain their errors."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rbptrack.base.errors import BadInput, RbptrackError, is_panic
from rbptrack.models.checkpoint import describe_unreadable_file
from rbptrack.models.quantised import silence_torchao
from rbptrack.sources import hub
from rbptrack.sources.manifest import linked_folder, reading
from rbptrack.sources.pin import Pinned

_MAX_REASON_LENGTH = 300  # characters of another library's error


def load_part(part: str, pinned: Pinned, load: Callable[..., Any], remedy: str = "") -> Any:
    """Load the config or the tokenizer of a model with one of transformers' `from_pretrained` functions.

    Args:
        part: "config" or "tokenizer", for the error message.
        pinned: the pinned model or tokenizer.
        load: the `from_pretrained` function.
        remedy: a text that is added to the end of the error message.

    Raises:
        BadInput: the part cannot be loaded, or the Hub refuses access to it.

    """
    with explained_errors(part, pinned, remedy):
        return call_from_pretrained(pinned, load, trust_remote_code=False)


@contextmanager
def explained_errors(part: str, pinned: Pinned, remedy: str) -> Iterator[None]:
    """While a block runs, turn errors of libraries into BadInput with one line. The arguments are those of `load_part`.

    The libraries raise exceptions of many types.
    """
    try:
        yield
    except RbptrackError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise BadInput(
            f"the {part} of {pinned.location} cannot be loaded: {failure_reason(error, pinned)}{remedy}"
        ) from error


def failure_reason(error: BaseException, pinned: Pinned) -> str:
    """Explain in one line why the files of a model cannot be loaded.

    If a JSON file cannot be read or is damaged, the line names it. Otherwise it quotes the library's error.
    """
    unreadable_file = describe_unreadable_file(pinned)
    if unreadable_file:
        return unreadable_file
    message = " ".join(str(error).split())
    if pinned.files:
        message = message.replace(str(linked_folder(pinned.files)), pinned.location)
    message = message[:_MAX_REASON_LENGTH]
    if isinstance(error, KeyError):
        return f"{message} is missing in its files, or transformers does not know it"
    if type(error) is Exception or is_panic(error):  # the Rust library `tokenizers` raises a plain Exception
        return f"tokenizers cannot read its files ({message})"
    if isinstance(error, AttributeError | TypeError | ArithmeticError):
        return f"its files hold a value that transformers does not expect ({message})"
    return message


def call_from_pretrained(pinned: Pinned, load: Callable[..., Any], **options: Any) -> Any:
    """Call `load`, one of transformers' `from_pretrained` functions, for a pinned model or tokenizer.

    Raises:
        BadInput: local files have changed since they were hashed, the Hub refuses access, or the files are not cached
            while the Hub cannot be reached.
        RbptrackError: the Hub is busy, or the connection to it broke.

    """
    silence_torchao()
    _silence_transformers(downloads=pinned.revision is not None)
    if pinned.gguf:
        options["gguf_file"] = pinned.gguf
    if pinned.revision is None:
        with reading(pinned.files):
            return load(str(linked_folder(pinned.files)), **options)
    options["revision"] = pinned.revision
    return hub.call_hub("model", pinned.location, pinned.requested, lambda: load(pinned.location, **options))


def _silence_transformers(*, downloads: bool) -> None:
    """Silence transformers' progress bars and warnings. A download in a terminal keeps the Hub's progress bars."""
    from huggingface_hub.utils.tqdm import enable_progress_bars
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    if downloads and sys.stderr.isatty():
        enable_progress_bars()  # weights are gigabytes; `disable_progress_bar` above switched the Hub's bars off too
    logging.getLogger("transformers").setLevel(logging.ERROR)
