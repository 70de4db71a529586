"""Compare rules for the degrees of freedom and for what is tested, by coverage, false alarms, power and widths.

    OMP_NUM_THREADS=1 python -m studies.gates    # ten minutes: a table of docs/explanation/validity.md

All rules are applied to the same draws. K is the number of documents that decide a number
(`rbptrack.stats.documents.deciding_documents`). K_L is computed from the lengths of the documents alone, and does not
depend on the models: K_L = (sum t^2)^2 / sum t^4, where t is the number of tokens of a document.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from rbptrack.ranks import FloatArray
from rbptrack.stats import laws, neg_log_rbp_over_ce
from rbptrack.stats.documents import deciding_documents
from rbptrack.stats.estimate import MIN_DECIDING
from studies.simulation import Documents, Family, Texts

SIZES = 7
DRAWS = 700
ALPHA = 0.1
APART = 0.03
MIN_TESTS = 50  # a cell with fewer tests says nothing about their false alarms
LENGTHS = {"even": "as the others", "uneven": "tenfold", "wild": "hundredfold", "extreme": "thousandfold"}


def draw(rng: np.random.Generator, family: Family, texts: Texts) -> dict[str, float]:
    """Make one draw: the exponents of RBP_1 and RBP_100 minus that of CE. The truth is 0 and APART."""
    documents = Documents.draw(rng, texts)
    counts = family.measure(rng, documents, alpha_ce=ALPHA, alphas=(ALPHA, ALPHA + APART))
    row = {"k_of_lengths": float(deciding_documents(documents.length.astype(np.float64))), "n": texts.documents}
    for name, k in (("equal", 1), ("apart", 100)):
        [law] = laws(family.s, [size_counts.select([k]) for size_counts in counts], neg_log_rbp_over_ce)
        assert law is not None
        delta = law.alpha
        row |= {f"{name}_value": delta.value, f"{name}_sampling": delta.sampling, f"{name}_k": delta.deciding_documents}
        row[f"{name}_scatter"] = stdtrit(delta.df, 0.975) ** 2 * delta.scatter
    return row


def half(rows: pd.DataFrame, name: str, df: FloatArray) -> FloatArray:
    """Return half the widths of the 95% intervals, with `df` degrees of freedom over documents."""
    return np.asarray(np.sqrt(stdtrit(df, 0.975) ** 2 * rows[f"{name}_sampling"] + rows[f"{name}_scatter"]))


def without_lengths(rows: pd.DataFrame, name: str) -> FloatArray:
    """Return the degrees of freedom min(n - 1, 3K - 1)."""
    return np.asarray(np.minimum(rows["n"] - 1, 3 * rows[f"{name}_k"] - 1))


def with_lengths(rows: pd.DataFrame, name: str) -> FloatArray:
    """Return the degrees of freedom that the library uses, min(n - 1, 3K - 1, K_L)."""
    return np.asarray(np.minimum(without_lengths(rows, name), rows["k_of_lengths"]))


def enough_decide(rows: pd.DataFrame, name: str) -> FloatArray:
    """Return whether K is at least 4, as the library demands of a test."""
    return np.asarray(rows[f"{name}_k"] >= MIN_DECIDING)


def enough_lengths(rows: pd.DataFrame, name: str) -> FloatArray:
    """Return whether K and K_L are at least 4."""
    return np.asarray(enough_decide(rows, name) & (rows["k_of_lengths"] >= MIN_DECIDING))


def everything(rows: pd.DataFrame, name: str) -> FloatArray:
    """Return that all draws are tested."""
    return np.full(len(rows), True)


Rule = Callable[[pd.DataFrame, str], FloatArray]

RULES: Mapping[tuple[str, str], tuple[Rule, Rule]] = {
    ("K is at least 4 (used)", "with K_L (used)"): (enough_decide, with_lengths),
    ("K is at least 4 (used)", "without K_L"): (enough_decide, without_lengths),
    ("K and K_L are at least 4", "with K_L (used)"): (enough_lengths, with_lengths),
    ("everything", "with K_L (used)"): (everything, with_lengths),
    ("everything", "without K_L"): (everything, without_lengths),
}
"""For each rule, what is tested and how d is computed; and the functions that do both."""


def cells(lengths: str) -> list[pd.DataFrame]:
    """Make the draws of every cell whose documents have such lengths."""
    drawn = []
    for documents, tails, tau in product((20, 50, 135), ("t3", "skewed"), (0.0, 0.005, 0.02)):
        rng = np.random.default_rng(zlib.crc32(f"gate {documents} {tails} {lengths} {tau}".encode()))
        texts = Texts(documents, tails, lengths)
        drawn.append(pd.DataFrame([draw(rng, Family(SIZES, tau), texts) for _ in range(DRAWS)]))
    return drawn


def _range(values: list[float]) -> str:
    return (
        f"{min(values):.0f} to {max(values):.0f}" if round(min(values)) < round(max(values)) else f"{max(values):.0f}"
    )


def main() -> None:
    """Print the table."""
    print(
        "| what is tested | d | longest of 100 | Δα is covered (95) | tests that are made "
        "| false among these: all, worst cell | Δα = 0.03 is found | 90th percentile of the width over its median |"
    )
    print("|---|---|---|---:|---:|---:|---:|---:|")
    drawn = {lengths: cells(lengths) for lengths in LENGTHS}
    for (what, d), (tested, df) in RULES.items():
        for lengths, cells_rows in drawn.items():
            tested_percent, false_percent, found_percent, covered_percent, spread = [], [], [], [], []
            alarms = tests = 0
            for rows in cells_rows:
                is_tested = tested(rows, "equal")
                width = half(rows, "equal", df(rows, "equal"))
                is_outside = np.abs(rows["equal_value"]) > width
                alarm = is_tested & is_outside
                covered_percent.append(100 * (1 - is_outside.mean()))
                tested_percent.append(100 * is_tested.mean())
                alarms += int(alarm.sum())
                tests += int(is_tested.sum())
                if is_tested.sum() >= MIN_TESTS:
                    false_percent.append(100 * alarm.sum() / is_tested.sum())
                beyond = np.abs(rows["apart_value"]) > half(rows, "apart", df(rows, "apart"))
                found_percent.append(100 * (tested(rows, "apart") & beyond).mean())
                spread.append(float(np.quantile(width, 0.9) / np.median(width)))
            worst = f"{max(false_percent):.1f}" if false_percent else "too few"
            print(
                f"| {what} | {d} | {LENGTHS[lengths]} "
                f"| {min(covered_percent):.1f} to {max(covered_percent):.1f} | {_range(tested_percent)}% "
                f"| {100 * alarms / tests:.1f}, {worst} "
                f"| {_range(found_percent)}% | at most {max(spread):.1f} |"
            )


if __name__ == "__main__":
    main()
