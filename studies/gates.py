"""Compare rules that decide whether a difference of exponents is tested, by false alarms, power and widths.

    OMP_NUM_THREADS=1 python -m studies.gates    # five minutes: a table of docs/explanation/validity.md

All rules are applied to the same draws. K is the number of documents that decide a number
(`rbptrack.stats.documents.deciding`). K_L is computed from the lengths of the documents alone, and does not depend on
the models: K_L = (sum t^2)^2 / sum t^4, where t is the number of tokens of a document.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from rbptrack.ranks import FloatArray
from rbptrack.stats import laws, missed_over_ce
from studies.simulation import Documents, Family, Texts

SIZES = 7
DRAWS = 700
ALPHA = 0.1
APART = 0.03
LENGTHS = {"even": "as the others", "wild": "hundredfold", "extreme": "thousandfold"}


def draw(rng: np.random.Generator, family: Family, texts: Texts) -> dict[str, float]:
    """Make one draw: the exponents of RBP_1 and RBP_100 minus that of CE. The truth is 0 and APART."""
    documents = Documents.draw(rng, texts)
    counts = family.measure(rng, documents, alpha_ce=ALPHA, alphas=(ALPHA, ALPHA + APART))
    squares = documents.length.astype(float) ** 2
    row = {"k_of_lengths": squares.sum() ** 2 / (squares**2).sum(), "n": texts.documents}
    for name, k in (("equal", 1), ("apart", 100)):
        [law] = laws(family.s, [size_counts.select([k]) for size_counts in counts], missed_over_ce)
        assert law is not None
        delta = law.alpha
        row |= {f"{name}_value": delta.value, f"{name}_sampling": delta.sampling, f"{name}_k": delta.deciding}
        row[f"{name}_scatter"] = stdtrit(delta.df, 0.975) ** 2 * delta.scatter
    return row


def half(rows: pd.DataFrame, name: str, df: FloatArray) -> FloatArray:
    """Return half the widths of the 95% intervals, with `df` degrees of freedom over documents."""
    return np.asarray(np.sqrt(_document_part(rows, name, df) + rows[f"{name}_scatter"]))


def _document_part(rows: pd.DataFrame, name: str, df: FloatArray) -> FloatArray:
    """Return the part of the squared half width that comes from the choice of documents."""
    return np.asarray(stdtrit(df, 0.975) ** 2 * rows[f"{name}_sampling"])


def today(rows: pd.DataFrame, name: str) -> FloatArray:
    """Return the degrees of freedom that the library uses, min(n - 1, 3K - 1)."""
    return np.asarray(np.minimum(rows["n"] - 1, 3 * rows[f"{name}_k"] - 1))


def with_lengths(rows: pd.DataFrame, name: str) -> FloatArray:
    """Return the degrees of freedom min(n - 1, 3K - 1, K_L)."""
    return np.minimum(today(rows, name), rows["k_of_lengths"])


def mostly_scatter(rows: pd.DataFrame, name: str) -> FloatArray:
    """Return whether the scatter of models makes up more than half of the squared half width."""
    return np.asarray(_document_part(rows, name, today(rows, name)) < rows[f"{name}_scatter"])


Rule = Callable[[pd.DataFrame, str], FloatArray]

RULES: Mapping[str, tuple[Rule, Rule]] = {
    "K at least 4 (used)": (lambda rows, name: np.asarray(rows[f"{name}_k"] >= 4), today),
    "K at least 4, or scatter of models makes up half of the squared width": (
        lambda rows, name: np.asarray(rows[f"{name}_k"] >= 4) | mostly_scatter(rows, name),
        today,
    ),
    "all": (lambda rows, name: np.full(len(rows), True), today),
    "K_L at least 4": (lambda rows, name: np.asarray(rows["k_of_lengths"] >= 4), today),
    "K_L at least 6": (lambda rows, name: np.asarray(rows["k_of_lengths"] >= 6), today),
    "all, with d = min(n - 1, 3K - 1, K_L)": (lambda rows, name: np.full(len(rows), True), with_lengths),
}
"""For each rule, the function that says which draws are tested, and the degrees of freedom of the test."""


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
        "| what is tested | longest of 100 | tests made, % | false among these, %: all cells, worst cell "
        "| Δα of 30% is found, % | 90th percentile of the width over its median |"
    )
    print("|---|---|---:|---:|---:|---:|")
    drawn = {lengths: cells(lengths) for lengths in LENGTHS}
    for rule, (tested, df) in RULES.items():
        for lengths, cells_rows in drawn.items():
            tested_percent, false_percent, found_percent, spread = [], [], [], []
            alarms = tests = 0
            for rows in cells_rows:
                is_tested = tested(rows, "equal")
                width = half(rows, "equal", df(rows, "equal"))
                alarm = is_tested & (np.abs(rows["equal_value"]) > width)
                tested_percent.append(100 * is_tested.mean())
                alarms += int(alarm.sum())
                tests += int(is_tested.sum())
                if is_tested.sum() >= 20:
                    false_percent.append(100 * alarm.sum() / is_tested.sum())
                beyond = np.abs(rows["apart_value"]) > half(rows, "apart", df(rows, "apart"))
                found_percent.append(100 * (tested(rows, "apart") & beyond).mean())
                spread.append(float(np.quantile(width, 0.9) / np.median(width)))
            print(
                f"| {rule} | {LENGTHS[lengths]} | {_range(tested_percent)} "
                f"| {100 * alarms / tests:.1f}, {max(false_percent):.1f} "
                f"| {_range(found_percent)} | at most {max(spread):.1f} |"
            )


if __name__ == "__main__":
    main()
