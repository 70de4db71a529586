"""Tests of the paths that users type."""

from __future__ import annotations

import os

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.paths import user_path


def test_user_path_keeps_bytes_that_are_not_utf_8() -> None:
    name = os.fsdecode(b"caf\xe9")
    assert os.fsencode(user_path(name)) == b"caf\xe9"


@pytest.mark.parametrize("text", ["a\0b", "x" * 256, "\u00e9" * 128, "~nobody-is-called-so/x"])
def test_user_path_refuses_texts_that_cannot_be_paths(text: str) -> None:
    with pytest.raises(BadInput):
        user_path(text)
