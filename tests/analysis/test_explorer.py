"""The explorer's axes; that it moves is seen in Chromium (tests/system)."""

from __future__ import annotations

import pandas as pd
import pytest

from rbptrack.analysis.explorer import _ends_with_zero


@pytest.mark.parametrize("alphas", [[0.1, 0.4], [-0.1, -0.1], [-0.2, -0.06], [-0.1, 0.3], [0.0], []])
def test_the_axis_of_exponents_holds_0_and_all_of_them(alphas: list[float]) -> None:
    low, high = _ends_with_zero(pd.Series(alphas, dtype=float))
    assert low < high
    assert all(low <= alpha <= high for alpha in [0.0, *alphas])
