"""Compare rules for intervals and tests by coverage, false alarms, power and widths of intervals.

    OMP_NUM_THREADS=1 python -m studies.gates    # a minute; writes studies/gates.csv

`python -m studies.validity --table` writes the table of the CSV into docs/explanation/validity.md.

A rule says which differences are tested, and with how many degrees of freedom. All rules are applied to the same draws.
K is the number of documents that decide a number (`rbptrack.stats.documents.deciding_documents`). K_L depends only on
the number t of tokens of each document: K_L = (sum t^2)^2 / sum t^4.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import nan
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from rbptrack.stats import neg_log_rbp_over_ce
from rbptrack.stats.documents import deciding_documents
from rbptrack.stats.estimate import MIN_DECIDING
from studies.experiment import ROOT, fit_laws
from studies.simulation import ALPHA, EXPONENT_GAP, Documents, Family, Texts

CSV = ROOT / "studies/gates.csv"
SIZES = 7
DRAWS = 700
MIN_TESTS = 50  # a cell with fewer tests says nothing about their false alarms
LENGTHS = {"even": "as the others", "uneven": "tenfold", "wild": "hundredfold", "extreme": "thousandfold"}


def draw(rng: np.random.Generator, family: Family, texts: Texts) -> dict[str, float]:
    """Draw the exponents of RBP_1 (`equal`) and RBP_100 (`apart`) minus that of CE. The truth is 0 and EXPONENT_GAP."""
    documents = Documents.draw(rng, texts)
    counts = family.measure(rng, documents, alphas=(ALPHA, ALPHA + EXPONENT_GAP))
    row = {"k_of_lengths": float(deciding_documents(documents.length.astype(np.float64))), "n": texts.documents}
    for name, ratio in zip(("equal", "apart"), fit_laws(family.s, counts, neg_log_rbp_over_ce), strict=True):
        delta = ratio.alpha
        row |= {f"{name}_value": delta.value, f"{name}_sampling": delta.sampling, f"{name}_k": delta.deciding_documents}
        row[f"{name}_scatter"] = stdtrit(delta.df, 0.975) ** 2 * delta.scatter
    return row


@dataclass(frozen=True)
class Rule:
    """A rule that says which draws are tested, and with how many degrees of freedom.

    The methods take the draws, and `equal` or `apart`, the name of an exponent.

    Attributes:
        min_k: the smallest K of a tested draw.
        min_k_of_lengths: the smallest K_L of a tested draw.
        uses_lengths: whether the degrees of freedom are min(n - 1, 3K - 1, K_L), as in the library, or
            min(n - 1, 3K - 1).

    """

    min_k: float = 0.0
    min_k_of_lengths: float = 0.0
    uses_lengths: bool = True

    def is_tested(self, rows: pd.DataFrame, name: str) -> pd.Series:
        """Return whether each draw is tested, (draws,)."""
        return (rows[f"{name}_k"] >= self.min_k) & (rows["k_of_lengths"] >= self.min_k_of_lengths)

    def half_widths(self, rows: pd.DataFrame, name: str) -> pd.Series:
        """Return half the width of the 95% interval of each draw, (draws,)."""
        df = np.minimum(rows["n"] - 1, 3 * rows[f"{name}_k"] - 1)
        if self.uses_lengths:
            df = np.minimum(df, rows["k_of_lengths"])
        squares: pd.Series = stdtrit(df, 0.975) ** 2 * rows[f"{name}_sampling"] + rows[f"{name}_scatter"]
        return squares**0.5


RULES: Mapping[tuple[str, str], Rule] = {
    ("K is at least 4 (used)", "with K_L (used)"): Rule(MIN_DECIDING),
    ("K is at least 4 (used)", "without K_L"): Rule(MIN_DECIDING, uses_lengths=False),
    ("K and K_L are at least 4", "with K_L (used)"): Rule(MIN_DECIDING, MIN_DECIDING),
    ("everything", "with K_L (used)"): Rule(),
    ("everything", "without K_L"): Rule(uses_lengths=False),
}
"""The rules. A key has the first two columns of the table: the tested draws, and the rule for degrees of freedom."""


def draw_cells(lengths: str) -> list[pd.DataFrame]:
    """Make the draws of every cell with these lengths of documents, and return a table for each cell."""
    cells = []
    for documents, tails, tau in product((20, 50, 135), ("t3", "skewed"), (0.0, 0.005, 0.02)):
        rng = np.random.default_rng(zlib.crc32(f"gate {documents} {tails} {lengths} {tau}".encode()))
        texts = Texts(documents, tails, lengths)
        cells.append(pd.DataFrame([draw(rng, Family(SIZES, tau), texts) for _ in range(DRAWS)]))
    return cells


def summarise_rule(tested_draws: str, df_rule: str, lengths: str, cells: list[pd.DataFrame]) -> dict[str, Any]:
    """Return the row of the CSV for one rule and one distribution of lengths.

    Args:
        tested_draws: the first part of the rule's key in `RULES`.
        df_rule: the second part of the key.
        lengths: the distribution of lengths, a key of `LENGTHS`.
        cells: the draws of each cell.

    Returns:
        The values by column. Percentages end in `_min` and `_max` over the cells. `false_all` is the percentage of all
        tests that are false alarms, and `false_max` that of the worst cell; NaN if every cell has too few tests.
        `spread_max` is the largest 90th percentile of the width, divided by its median.

    """
    rule = RULES[tested_draws, df_rule]
    tested, false, found, covered, spread = [], [], [], [], []
    alarms = tests = 0
    for rows in cells:
        is_tested = rule.is_tested(rows, "equal")
        half_width = rule.half_widths(rows, "equal")
        is_outside = np.abs(rows["equal_value"]) > half_width
        alarms_of_cell = int((is_tested & is_outside).sum())
        tests_of_cell = int(is_tested.sum())
        covered.append(100 * (1 - is_outside.mean()))
        tested.append(100 * is_tested.mean())
        alarms += alarms_of_cell
        tests += tests_of_cell
        if tests_of_cell >= MIN_TESTS:
            false.append(100 * alarms_of_cell / tests_of_cell)
        is_beyond = np.abs(rows["apart_value"]) > rule.half_widths(rows, "apart")
        found.append(100 * (rule.is_tested(rows, "apart") & is_beyond).mean())
        spread.append(float(np.quantile(half_width, 0.9) / np.median(half_width)))
    values = {
        "covered_min": min(covered),
        "covered_max": max(covered),
        "tested_min": min(tested),
        "tested_max": max(tested),
        "false_all": 100 * alarms / tests,
        "false_max": max(false, default=nan),
        "found_min": min(found),
        "found_max": max(found),
        "spread_max": max(spread),
    }
    rounded = {column: float(f"{value:.6g}") for column, value in values.items()}
    return {"tested_draws": tested_draws, "df_rule": df_rule, "lengths": lengths, **rounded}


def main() -> None:
    """Make the draws, and write the CSV."""
    cells_by_lengths = {lengths: draw_cells(lengths) for lengths in LENGTHS}
    rows = []
    for tested_draws, df_rule in RULES:
        for lengths, cells in cells_by_lengths.items():
            rows.append(summarise_rule(tested_draws, df_rule, lengths, cells))
    pd.DataFrame(rows).to_csv(CSV, index=False)


if __name__ == "__main__":
    main()
