"""Compare rules for intervals and tests by coverage, false alarms, power and widths of intervals.

    OMP_NUM_THREADS=1 python -m studies.gates    # ten minutes: a table of docs/explanation/validity.md

A rule says which differences are tested, and with how many degrees of freedom. All rules are applied to the same draws.
K is the number of documents that decide a number (`rbptrack.stats.documents.deciding_documents`). K_L depends only on
the number t of tokens of each document: K_L = (sum t^2)^2 / sum t^4.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from rbptrack.stats import neg_log_rbp_over_ce
from rbptrack.stats.documents import deciding_documents
from rbptrack.stats.estimate import MIN_DECIDING
from studies.experiment import fit_laws
from studies.simulation import ALPHA, EXPONENT_GAP, Documents, Family, Texts

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


def _range_text(values: list[float]) -> str:
    least, most = f"{min(values):.0f}", f"{max(values):.0f}"
    return f"{least} to {most}" if least != most else most


def table_row(tested_draws: str, df_rule: str, lengths: str, cells: list[pd.DataFrame]) -> str:
    """Return the row of the table for one rule and one distribution of lengths.

    Args:
        tested_draws: the first part of the rule's key in `RULES`.
        df_rule: the second part of the key.
        lengths: the distribution of lengths, a key of `LENGTHS`.
        cells: the draws of each cell.

    """
    rule = RULES[tested_draws, df_rule]
    tested_percent, false_percent, found_percent, covered_percent, spread = [], [], [], [], []
    alarms = tests = 0
    for rows in cells:
        is_tested = rule.is_tested(rows, "equal")
        half_width = rule.half_widths(rows, "equal")
        is_outside = np.abs(rows["equal_value"]) > half_width
        is_alarm = is_tested & is_outside
        covered_percent.append(100 * (1 - is_outside.mean()))
        tested_percent.append(100 * is_tested.mean())
        alarms += int(is_alarm.sum())
        tests += int(is_tested.sum())
        if is_tested.sum() >= MIN_TESTS:
            false_percent.append(100 * is_alarm.sum() / is_tested.sum())
        is_beyond = np.abs(rows["apart_value"]) > rule.half_widths(rows, "apart")
        found_percent.append(100 * (rule.is_tested(rows, "apart") & is_beyond).mean())
        spread.append(float(np.quantile(half_width, 0.9) / np.median(half_width)))
    worst = f"{max(false_percent):.1f}" if false_percent else "too few"
    return (
        f"| {tested_draws} | {df_rule} | {LENGTHS[lengths]} "
        f"| {min(covered_percent):.1f} to {max(covered_percent):.1f} | {_range_text(tested_percent)}% "
        f"| {100 * alarms / tests:.1f}, {worst} "
        f"| {_range_text(found_percent)}% | at most {max(spread):.1f} |"
    )


def main() -> None:
    """Print the table."""
    print(
        "| what is tested | d | longest of 100 | Δα is covered (95) | tests that are made "
        "| false among these: all, worst cell | Δα = 0.03 is found | 90th percentile of the width over its median |"
    )
    print("|---|---|---|---:|---:|---:|---:|---:|")
    cells_by_lengths = {lengths: draw_cells(lengths) for lengths in LENGTHS}
    for tested_draws, df_rule in RULES:
        for lengths, cells in cells_by_lengths.items():
            print(table_row(tested_draws, df_rule, lengths, cells))


if __name__ == "__main__":
    main()
