"""Tests of functions that format numbers, lists, durations, paths and hashes for readers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.base.formatting import (
    compact,
    compact_bytes,
    counted,
    duration,
    estimate_text,
    format_number,
    listed,
    number_text,
    number_with_error,
    p_text,
    plain_json,
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


def test_plain_json_has_none_for_numbers_that_json_lacks() -> None:
    assert plain_json({"a": [math.nan, math.inf, 0.5], "b": Path("c")}) == {"a": [None, None, 0.5], "b": "c"}


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


@pytest.mark.parametrize(
    ("value", "low", "high", "form", "text"),
    [
        (0.1123, 0.1042, 0.1211, "", "0.112 (0.104 to 0.121)"),
        (0.00631, 0.005, 0.00763, "", "0.00631 (0.00500 to 0.00763)"),
        (1234.0, 1200.0, 1300.0, "", "1,234 (1,200 to 1,300)"),
        (math.nan, math.nan, math.nan, "", ""),
        (0.0, -0.1, 0.1, "", "0.00 (-0.10 to 0.10)"),
        (-0.00004, -0.1, 0.1, "+.1%", "+0.0% (-10.0% to +10.0%)"),
        (0.0972, 0.05, 0.126, "+.3g", "+0.0972 (+0.0500 to +0.1260)"),
        (0.3, 0.1, math.inf, "", "0.300 (0.100 to ∞)"),
    ],
)
def test_estimate_text_writes_a_number_and_its_interval(
    value: float, low: float, high: float, form: str, text: str
) -> None:
    assert estimate_text(value, low, high, form) == text


def test_estimate_text_of_a_number_alone_has_three_digits() -> None:
    assert estimate_text(0.5) == "0.500"


@pytest.mark.parametrize(
    ("value", "text"),
    [(9.999, "10.0"), (99.96, "100"), (0.9996, "1.00"), (0.0999999999, "0.100"), (999_600.0, "1M"), (-9.999, "-10.0")],
)
def test_number_text_has_three_digits_after_rounding(value: float, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("error", "text"), [(math.nan, "3"), (None, "3"), (0.0, "3"), (0.0996, "3.00 ± 0.10"), (0.0994, "3.000 ± 0.099")]
)
def test_number_with_error_has_two_digits_of_the_error(error: float | None, text: str) -> None:
    assert number_with_error(3.0, error) == text


@given(st.floats(-1e5, 1e5), st.sampled_from(["", "+.1%", "+.3g"]))
def test_estimate_text_of_an_unknown_interval_writes_only_the_number(value: float, form: str) -> None:
    text = estimate_text(value, math.nan, math.nan, form)
    assert "nan" not in text
    assert " to " not in text


@pytest.mark.parametrize(("p", "text"), [(math.nan, ""), (1e-9, "p < 0.001"), (0.04, "p = 0.040"), (1.0, "p = 1.000")])
def test_p_text_has_three_decimals_or_a_bound(p: float, text: str) -> None:
    assert p_text(p) == text
