"""Tests of the parts of error messages: names that are close, lists of options, and errors of the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rbptrack.base.errors import (
    BadInput,
    file_access_error,
    first_line,
    nearest,
    shortened_list,
    unknown_name,
)


@pytest.mark.parametrize(
    ("name", "first_suggestions"),
    [
        ("pythia/70", ["pythia/70m"]),
        ("PYTHIA/70M", ["pythia/70m"]),
        ("gtp2", ["gpt2"]),
        ("pyt", ["pythia/70m", "pythia/12b"]),
    ],
)
def test_nearest_begins_with_the_names_that_are_closest(name: str, first_suggestions: list[str]) -> None:
    suggestions = nearest(name, ["pythia/70m", "pythia/12b", "gpt2", "opt"])
    assert suggestions[: len(first_suggestions)] == first_suggestions


def test_nearest_suggests_nothing_if_no_name_is_close() -> None:
    assert not nearest("zzz", ["pythia/70m", "pythia/12b", "gpt2", "opt"])


def test_unknown_name_lists_the_options() -> None:
    error = unknown_name("model", "gtp2", ["gpt2", "opt"])
    assert isinstance(error, BadInput)
    assert "gpt2" in str(error)
    assert "opt" in str(error)


def test_unknown_name_says_that_there_are_no_options() -> None:
    assert "none" in str(unknown_name("model", "x", []))


def test_shortened_list_names_10_and_counts_the_others() -> None:
    assert shortened_list([str(i) for i in range(20)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 10 more"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "why", "file"),
        OSError(errno.EDQUOT, "why", "file"),
        PermissionError(errno.EACCES, "why", "file"),
        OSError(errno.EROFS, "why", "file"),
        OSError(errno.EMFILE, "why", "file"),
        OSError(errno.EIO, "why", "file"),
        OSError(errno.ENAMETOOLONG, "why", "file"),
    ],
)
def test_file_access_error_names_the_file_and_the_reason_of_the_system(error: OSError, tmp_path: Path) -> None:
    message = str(file_access_error(error, tmp_path))
    assert message.startswith("file ")
    assert os.strerror(error.errno or 0) in message


def test_file_access_error_reads_the_error_number_in_a_text_of_arrow(tmp_path: Path) -> None:
    message = str(file_access_error(OSError("[errno 28] No space left"), tmp_path))
    assert str(tmp_path) in message
    assert os.strerror(errno.ENOSPC) in message


@pytest.mark.parametrize("error", [OSError(errno.ENOENT, "why"), OSError(errno.EINVAL, "why"), ValueError("x")])
def test_file_access_error_returns_none_for_other_errors(error: Exception, tmp_path: Path) -> None:
    assert file_access_error(error, tmp_path) is None


def test_first_line_leaves_out_the_second_line_of_an_error() -> None:
    assert first_line(ValueError("one\ntwo")) == "one"


def test_first_line_of_an_error_without_text_is_its_type() -> None:
    assert first_line(KeyError()) == "KeyError"
