"""Columns that the tables of several analyzers share: their meanings, and their cells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rbptrack.analysis.families import KEYS

if TYPE_CHECKING:
    from rbptrack.stats.power_law import PowerLawFit

_MEANINGS = KEYS | {
    "metric": "CE or RBP_k",
    "k": "of RBP_k",
    "alpha": "exponent of the law in size",
    "alpha_low": "lower end of its interval",
    "alpha_high": "upper end",
    "r2": "R^2 of that law on logarithms",
}

LAW_COLUMNS = ("alpha", "alpha_low", "alpha_high", "r2")
"""The columns that `law_cells` fills."""


def shared_columns(*names: str) -> dict[str, str]:
    """Column -> meaning, for columns that mean the same in every table: dataset, family, metric, k, size, S, ..."""
    return {name: _MEANINGS[name] for name in names}


def k_ranges(ks: Iterable[int], grid: Iterable[int]) -> str:
    """`k = 40 to 300, 900`: some of the k of a grid, neighbours on the grid joined."""
    place = {k: i for i, k in enumerate(grid)}
    ranges: list[list[int]] = []
    for k in ks:
        if ranges and place[k] == place[ranges[-1][-1]] + 1:
            ranges[-1] = [ranges[-1][0], k]
        else:
            ranges.append([k])
    return "k = " + ", ".join(" to ".join(f"{k:,}" for k in ends) for ends in ranges)


def law_cells(law: PowerLawFit | None) -> dict[str, Any]:
    """The cells of `LAW_COLUMNS`; NaN where there is no law."""
    if law is None:
        return dict.fromkeys(LAW_COLUMNS, float("nan"))
    return interval_cells(law) | {"r2": law.r2}


def interval_cells(law: PowerLawFit) -> dict[str, Any]:
    """The exponent and its interval: alpha, alpha_low, alpha_high."""
    return {"alpha": law.alpha, "alpha_low": law.low, "alpha_high": law.high}
