"""The law in k: -ln RBP_k = B k^-beta at a fixed model (table 1, figure 9 and eq. 10 of arXiv 2510.20387).

The slope is fitted by least squares of ln(-ln RBP_k) on ln k. The k are integers that are evenly spaced in ln k. A k is
left out if fewer than 10 tokens of the model have a rank above k. R^2 of such curves is near 1 whatever their shape.
The report therefore contains the largest distance of a point from the line, and no R^2.

The report also compares a larger k with a larger model. Doubling k raises RBP_k as much as an S that is larger by the
factor 2^(b/alpha). Here alpha is the exponent in S at k, b = ln(y_k / y_2k) / ln 2, and y = -ln RBP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from rbptrack.analysis import Analyzer, Family, Glossary, Report, Runs, Term, listed, range_text, read_families
from rbptrack.figures import facets
from rbptrack.ranks import DocumentCounts, log_grid
from rbptrack.stats import (
    ks_with_enough_misses,
    law_in_k,
    laws,
    neg_log_rbp,
    why_no_interval_in_k,
    why_no_law_in_k,
)

GLOSSARY: Glossary = {
    "beta": Term("minus the slope of ln(-ln RBP_k) over ln k, of one model", title="β"),
    "B": "-ln RBP_1 on the line",
    "largest_deviation": Term(
        "the largest abs(measured / line - 1) over the k of the fit", title="distance from the line", form=".1%"
    ),
    "largest_k": Term("the largest k of the fit", title="largest k"),
    "alpha": Term("exponent in S of -ln RBP_k", title="α"),
    "b": "mean over sizes of ln(y_k / y_2k) / ln 2, with y = -ln RBP",
    "doubling": Term(
        "2^(b / α): the factor of S that raises RBP as much as doubling k does; without an interval, because b changes "
        "with size",
        title="doubling k is worth",
    ),
}

DOUBLED_KS = (1, 2, 5, 10, 20, 50)
"""The k of the table `doubling`."""


class KLaw(Analyzer):
    """The law in k of each model, and what a larger k is worth in size."""

    largest: Annotated[int, Field(ge=4)] = 100
    """the largest k of the fit; the law is not expected to hold far beyond 100"""

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        ks = sorted({*log_grid(self.largest).tolist(), *DOUBLED_KS, *(2 * k for k in DOUBLED_KS)})
        doubling = []
        reading = read_families(runs, ks)
        for family, counts in reading:
            doubling += _worth_of_doubling(family, counts)
            sizes_without_law = []
            sizes_without_interval: dict[str, list[str]] = {}  # by reason
            for size, s, size_counts in zip(family.labels, family.s, counts, strict=True):
                law = law_in_k(size_counts, self.largest)
                if law is None:
                    sizes_without_law.append(size)
                    continue
                beta, line = law
                beside = {"B": line.a, "largest_deviation": line.largest_deviation, "largest_k": int(line.s[-1])}
                report.add("beta", beta, **family.keys, beside=beside, size=size, S=s)
                if not beta.has_interval:
                    sizes_without_interval.setdefault(why_no_interval_in_k(size_counts), []).append(size)
            if sizes_without_law:
                reason = why_no_law_in_k(self.largest)
                report.notes.append(f"{family}: no β at {listed(sizes_without_law)}: {reason}.")
            for reason, sizes in sizes_without_interval.items():
                report.notes.append(f"{family}: no interval of β at {listed(sizes)}: {reason}.")
        report.notes += reading.notes
        if not report.questions:
            return report
        rows = report.frame("beta")
        if doubling:
            report.tables["doubling"] = pd.DataFrame(doubling)
        report.figures["beta"] = facets(rows.rename(columns={"beta": "β"}), x="S", y="β")
        largest_ks = range_text(rows["largest_k"], ".0f")
        report.headline = (
            f"For a fixed model, -ln RBP_k falls as k^-β with β = {range_text(rows['beta'])} up to k = {largest_ks}. "
            f"The largest deviation from these lines is {rows['largest_deviation'].max():.0%}."
        )
        return report


def _worth_of_doubling(family: Family, counts: Sequence[DocumentCounts]) -> list[dict[str, object]]:
    """Return the rows of the table `doubling`: how many times larger a model must be to gain as much as doubling k.

    A k has a row if the interval of alpha lies above 0. A family with fewer than 3 sizes has no rows.
    """
    rows: list[dict[str, object]] = []
    if len(family.s) < 3:
        return rows
    usable_ks = set(ks_with_enough_misses(counts))
    for k in DOUBLED_KS:
        if not {k, 2 * k} <= usable_ks:
            continue
        law, law_of_double = laws(family.s, [size_counts.select([k, 2 * k]) for size_counts in counts], neg_log_rbp)
        if law and law_of_double and law.alpha.interval()[0] > 0:
            b = float(np.mean(np.log(law.y / law_of_double.y))) / np.log(2)
            alpha = law.alpha.value
            rows.append({**family.keys, "k": k, "alpha": alpha, "b": b, "doubling": 2 ** (b / alpha)})
    return rows
