"""Names that `rbptrack.analysis` held before 0.2 and nothing here uses: for others' plugins, with a warning, until 0.3.

Rows of tables (`rbptrack.analysis.rows`) and curves (`rbptrack.analysis.family_figures`) have taken their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rbptrack.analysis.families import KEYS
from rbptrack.analysis.figures import COLOURS, LINES
from rbptrack.analysis.rows import exponent
from rbptrack.base.words import listed

if TYPE_CHECKING:
    from rbptrack.stats.power_law import PowerLawFit

LAW_COLUMNS = ("alpha", "alpha_low", "alpha_high", "r2")
"""The columns that `law_cells` fills."""

_MEANINGS = KEYS | {
    "metric": "CE or RBP_k",
    "k": "of RBP_k",
    "alpha": "exponent of the law in size",
    "alpha_low": "lower end of its interval",
    "alpha_high": "upper end",
    "r2": "R^2 of that law on logarithms",
}


def shared_columns(*names: str) -> dict[str, str]:
    """Column -> meaning, for columns that mean the same in every table: dataset, family, metric, k, size, S, ..."""
    return {name: _MEANINGS[name] for name in names}


def interval_columns(name: str, meaning: str, how: str) -> dict[str, str]:
    """The meanings of a number's column and of those of its interval's ends, name_low and name_high."""
    return {name: meaning, f"{name}_low": f"lower end of its interval ({how})", f"{name}_high": "upper end"}


def law_cells(law: PowerLawFit | None) -> dict[str, Any]:
    """The cells of `LAW_COLUMNS`; NaN where there is no law."""
    return interval_cells(law) | {"r2": law.r2 if law else float("nan")}


def interval_cells(law: PowerLawFit | None) -> dict[str, Any]:
    """The exponent and its interval: alpha, alpha_low, alpha_high."""
    return exponent(law).columns("alpha")


def colour_and_line(number: int) -> tuple[str, Any]:
    """Colour and line style of the number-th curve: either alone tells curves apart."""
    return COLOURS[number % len(COLOURS)], LINES[number % len(LINES)]


def tallied(counts: Mapping[str, int]) -> str:
    """`larger in 1 and undecided in 2`: what occurs, without what does not."""
    return listed([f"{word} in {number:,}" for word, number in counts.items() if number])
