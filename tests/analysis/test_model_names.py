"""Tests of reading the names of models."""

from __future__ import annotations

import pytest

from rbptrack.analysis.model_names import plain_name


@pytest.mark.parametrize(
    ("path", "model", "commit"),
    [
        ("/x/models--acme--alpha-70m/snapshots/abcdef12/", "acme/alpha-70m", "abcdef12"),
        ("models--gpt2", "gpt2", ""),
        ("/", "/", ""),
    ],
)
def test_plain_name_reads_model_and_commit_from_path_in_hub_cache(path: str, model: str, commit: str) -> None:
    assert plain_name(path) == (model, commit)
