"""Paths as users write them."""

from __future__ import annotations

import os

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.paths import user_path


def test_a_name_of_any_bytes_is_a_path() -> None:
    name = os.fsdecode(b"caf\xe9")
    assert os.fsencode(user_path(name)) == b"caf\xe9"


@pytest.mark.parametrize("text", ["a\0b", "x" * 256, "\u00e9" * 128, "~nobody-is-called-so/x"])
def test_what_can_be_no_path_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        user_path(text)
