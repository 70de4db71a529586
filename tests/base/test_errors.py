"""Tests of the parts of error messages: names that are close, lists of options, and errors of the disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rbptrack.base.errors import BadInput, RbptrackError, disk_error, first_line, nearest, shortened_list, unknown_name


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


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.ENAMETOOLONG])
def test_disk_error_explains_why_a_file_cannot_be_written(code: int, tmp_path: Path) -> None:
    assert isinstance(disk_error(OSError(code, "why", "file"), tmp_path), RbptrackError)


def test_disk_error_reads_the_error_number_in_a_text(tmp_path: Path) -> None:
    assert isinstance(disk_error(OSError("[errno 28] No space left"), tmp_path), RbptrackError)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "why"), ValueError("x")])
def test_disk_error_returns_none_for_other_errors(error: Exception, tmp_path: Path) -> None:
    assert disk_error(error, tmp_path) is None


def test_first_line_leaves_out_the_second_line_of_an_error() -> None:
    assert first_line(ValueError("one\ntwo")) == "one"


def test_first_line_of_an_error_without_text_is_its_type() -> None:
    assert first_line(KeyError()) == "KeyError"
