"""Tests of the names of published models and of the lists of training steps in configs."""

from __future__ import annotations

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.choices import published_names
from rbptrack.config.computed_values import training_steps


def test_published_names_gives_family_and_size_of_a_repository() -> None:
    names = published_names()
    assert names["pythia-70m"] == ("pythia", "70m")
    assert len(names) > 80


def test_training_steps_reads_numbers_and_ranges() -> None:
    assert training_steps("0,8, 10:30:10") == [0, 8, 10, 20, 30]


@pytest.mark.parametrize("steps", ["a:b", "-1", "1:2:0", "0:99999999999"])
def test_training_steps_refuses_other_texts_and_ranges_above_a_million(steps: str) -> None:
    with pytest.raises(BadInput):
        training_steps(steps)
