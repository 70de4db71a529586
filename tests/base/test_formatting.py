"""Tests of functions that format numbers, lists, durations, paths and hashes for readers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbptrack.base.formatting import (
    compact,
    compact_bytes,
    counted,
    duration,
    format_number,
    listed,
    readable_text,
    short_hash,
    short_path,
)


@pytest.mark.parametrize(("count", "text"), [(0, "0 sizes"), (1, "1 size"), (1200, "1,200 sizes")])
def test_counted_uses_the_plural_except_for_one(count: int, text: str) -> None:
    assert counted(count, "size") == text


@pytest.mark.parametrize(
    ("items", "text"),
    [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")],
)
def test_listed_puts_and_before_the_last_item(items: list[str], text: str) -> None:
    assert listed(items) == text


@pytest.mark.parametrize(("form", "text"), [(".3f", "0.000"), ("+.3f", "+0.000"), (".0%", "0%")])
def test_number_that_rounds_to_zero_has_no_minus(form: str, text: str) -> None:
    assert format_number(-0.0001, form) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(999_999, "1M"), (1.4e9, "1.4B"), (85_056_000, "85.1M"), (5, "5"), (0, "0"), (2e-5, "2·10⁻⁵")],
)
def test_compact_keeps_three_digits(value: float, text: str) -> None:
    assert compact(value) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0"), (5, "5 bytes"), (1234, "1.23 kB"), (340_900_000, "341 MB")])
def test_compact_bytes_adds_a_unit_except_to_zero(count: int, text: str) -> None:
    assert compact_bytes(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(100, "0:01:40"), (float("nan"), "?"), (float("inf"), "?")])
def test_duration_is_a_question_mark_if_the_time_is_unknown(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_short_path_is_relative_in_the_working_folder() -> None:
    assert short_path(str(Path.cwd() / "a/b")) == "a/b"


def test_short_path_is_unchanged_outside_the_working_folder() -> None:
    assert short_path("/elsewhere/x") == "/elsewhere/x"


@pytest.mark.parametrize(
    ("identity", "short"),
    [
        ("EleutherAI/pythia-70m@a1b2c3d4e5f6", "a1b2c3d4"),
        ("mine/model@a1b2c3d4e5f6/small-q4.gguf", "a1b2c3d4/small-q4.gguf"),
        ("sha256:0123456789ab", "01234567"),
        ("0123456789ab", "01234567"),
        ("", ""),
    ],
)
def test_short_hash_keeps_8_digits_and_the_file_name(identity: str, short: str) -> None:
    assert short_hash(identity) == short


def test_readable_text_joins_the_bytes_of_a_character() -> None:
    assert readable_text("\udcc3\udca9") == "é"


def test_readable_text_replaces_a_byte_that_is_not_a_character() -> None:
    assert readable_text("\udcc3") == "\ufffd"
