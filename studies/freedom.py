"""Compare rules for the degrees of freedom over documents by coverage, power and widths of intervals.

    OMP_NUM_THREADS=1 python -m studies.freedom    # a minute; writes studies/freedom.csv

`python -m studies.validity --table` writes the table of the CSV into docs/explanation/validity.md.

All rules are applied to the same draws. K is the number of documents that decide a number
(`rbptrack.stats.documents.deciding_documents`). K_L depends only on the number t of tokens of each document:
K_L = (sum t^2)^2 / sum t^4.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from rbptrack.ranks import FloatArray
from rbptrack.stats import neg_log_rbp_over_ce
from rbptrack.stats.documents import deciding_documents
from studies.experiment import ROOT, fit_laws
from studies.simulation import ALPHA, EXPONENT_GAP, Documents, Family, Texts

CSV = ROOT / "studies/freedom.csv"
SIZES = 7
DRAWS = 700
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


RULES: Mapping[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "min(n - 1, 3K - 1, K_L) (used)": lambda k, k_of_lengths: np.minimum(3 * k - 1, k_of_lengths),
    "min(n - 1, 3K - 1, (3K - 1 + K_L) / 2)": lambda k, k_of_lengths: np.minimum(
        3 * k - 1, (3 * k - 1 + k_of_lengths) / 2
    ),
    "min(n - 1, 3K - 1)": lambda k, k_of_lengths: 3 * k - 1,
}
"""The rules: functions of K and K_L, (draws,). n - 1 limits the result of each."""


def half_widths(rule: str, rows: pd.DataFrame, name: str) -> FloatArray:
    """Return half the width of the 95% interval of each draw, (draws,). name: `equal` or `apart`."""
    k, k_of_lengths, n = (rows[column].to_numpy(np.float64) for column in (f"{name}_k", "k_of_lengths", "n"))
    df = np.minimum(n - 1, RULES[rule](k, k_of_lengths))
    squares = stdtrit(df, 0.975) ** 2 * rows[f"{name}_sampling"] + rows[f"{name}_scatter"]
    return np.asarray(np.sqrt(squares))


def draw_cells(lengths: str) -> list[pd.DataFrame]:
    """Make the draws of every cell with these lengths of documents, and return a table for each cell."""
    cells = []
    for documents, tails, tau in product((20, 50, 135), ("t3", "skewed"), (0.0, 0.005, 0.02)):
        rng = np.random.default_rng(zlib.crc32(f"gate {documents} {tails} {lengths} {tau}".encode()))
        texts = Texts(documents, tails, lengths)
        cells.append(pd.DataFrame([draw(rng, Family(SIZES, tau), texts) for _ in range(DRAWS)]))
    return cells


def summarise_rule(rule: str, lengths: str, cells: list[pd.DataFrame]) -> dict[str, Any]:
    """Return the row of the CSV for one rule and one distribution of lengths.

    Args:
        rule: a key of `RULES`.
        lengths: the distribution of lengths, a key of `LENGTHS`.
        cells: the draws of each cell.

    Returns:
        The values by column. Percentages end in `_min`, `_median` and `_max` over the cells. `spread_max` is the
        largest 90th percentile of the width, divided by its median.

    """
    covered = []
    found = []
    spread = []
    for rows in cells:
        half_width = half_widths(rule, rows, "equal")
        covered.append(100 * float((np.abs(rows["equal_value"]) <= half_width).mean()))
        found.append(100 * float((np.abs(rows["apart_value"]) > half_widths(rule, rows, "apart")).mean()))
        spread.append(float(np.quantile(half_width, 0.9) / np.median(half_width)))
    values = {
        "covered_min": min(covered),
        "covered_median": float(np.median(covered)),
        "covered_max": max(covered),
        "found_min": min(found),
        "found_max": max(found),
        "spread_max": max(spread),
    }
    return {"rule": rule, "lengths": lengths} | {column: float(f"{value:.6g}") for column, value in values.items()}


def main() -> None:
    """Make the draws, and write the CSV."""
    cells_by_lengths = {lengths: draw_cells(lengths) for lengths in LENGTHS}
    rows = []
    for rule, (lengths, cells) in product(RULES, cells_by_lengths.items()):
        rows.append(summarise_rule(rule, lengths, cells))
    pd.DataFrame(rows).to_csv(CSV, index=False)


if __name__ == "__main__":
    main()
