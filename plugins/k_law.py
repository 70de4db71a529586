"""The law in k: -ln RBP_k = B k^-beta at a fixed model (table 1, figure 9 and eq. 10 of arXiv 2510.20387).

The slope is fitted by least squares of ln(-ln RBP_k) on ln k, over integers k that are even in ln k. They end where
fewer than 10 tokens miss at that model. R^2 of such curves is near 1 whatever their shape. The report therefore gives
the largest distance from the line in addition to beta.

What a larger k is worth in size: at constant RBP, dS/S = -(alpha_k / alpha_S) dk/k. Doubling k has the effect
of a model 2^(b / alpha) times larger; alpha is the exponent in S at k, and b = ln(y_k / y_2k) / ln 2, y = -ln RBP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from rbptrack.analysis import Analyzer, Family, Glossary, Report, Runs, Term, listed, read_families, spanned
from rbptrack.figures import facets
from rbptrack.ranks import DocumentCounts, log_grid
from rbptrack.stats import (
    MIN_MISSES,
    ks_of_law_in_k,
    ks_with_enough_misses,
    law_in_k,
    laws,
    missed,
    why_no_interval_in_k,
)

GLOSSARY: Glossary = {
    "beta": Term("minus the slope of ln(-ln RBP_k) over ln k at a fixed model", title="β"),
    "B": "-ln RBP_1 on the line",
    "off": Term("largest abs(measured / line - 1) over the k of the fit", title="distance from the line", form=".1%"),
    "largest_k": Term("the largest k of the fit", title="largest k"),
    "alpha": Term("exponent in S of -ln RBP_k", title="α"),
    "b": "ln(y_k / y_2k) / ln 2, the mean over the sizes, y = -ln RBP",
    "doubling": Term(
        "how many times larger a model must be to gain what doubling k gains, 2^(b / α); it has no interval, because b "
        "changes with size and only its mean over the sizes enters",
        title="doubling k is worth",
    ),
}

DOUBLED = (1, 2, 5, 10, 20, 50)


class KLaw(Analyzer):
    """The law in k at a fixed model, and what a larger k is worth in size."""

    largest: Annotated[int, Field(ge=4)] = 100
    """the largest k of the fit; the law is not expected to hold beyond some 100"""

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        ks = sorted({*log_grid(self.largest).tolist(), *DOUBLED, *(2 * k for k in DOUBLED)})
        doubling = []
        reading = read_families(runs, ks)
        for family, counts in reading:
            doubling += _doubling(family, counts)
            without_law = []
            without_ends: dict[str, list[str]] = {}
            for size, s, of_size in zip(family.labels, family.s, counts, strict=True):
                usable = ks_of_law_in_k(of_size, self.largest)
                law = law_in_k(of_size.select(usable))
                if law is None:
                    without_law.append(size)
                    continue
                beta, line = law
                beside = {"B": line.a, "off": line.largest_deviation, "largest_k": usable[-1]}
                report.add("beta", beta, **family.keys, beside=beside, size=size, S=s)
                if not beta.known:
                    without_ends.setdefault(why_no_interval_in_k(of_size), []).append(size)
            if without_law:
                report.notes.append(
                    f"{family}: no β at {listed(without_law)}, as RBP_k is unknown, 0, or missed by fewer than "
                    f"{MIN_MISSES} tokens at nearly every k up to {self.largest}."
                )
            for reason, labels in without_ends.items():
                report.notes.append(f"{family}: no interval of β at {listed(labels)}: {reason}.")
        report.notes += reading.notes
        if not report.questions:
            return report
        rows = report.frame("beta")
        if doubling:
            report.tables["doubling"] = pd.DataFrame(doubling)
        report.figures["beta"] = facets(rows.rename(columns={"beta": "β"}), x="S", y="β")
        ends = spanned(rows["largest_k"], ".0f")
        report.headline = (
            f"At fixed models -ln RBP_k falls as k^-β, β = {spanned(rows['beta'])}, up to k = {ends}, "
            f"off by at most {rows['off'].max():.0%}."
        )
        return report


def _doubling(family: Family, counts: Sequence[DocumentCounts]) -> list[dict[str, object]]:
    """What doubling k is worth in size, for each k at which an exponent above 0 is established."""
    rows: list[dict[str, object]] = []
    if len(family.s) < 3:
        return rows
    usable = set(ks_with_enough_misses(counts))
    for k in DOUBLED:
        if not {k, 2 * k} <= usable:
            continue
        law, law_of_double = laws(family.s, [of_size.select([k, 2 * k]) for of_size in counts], missed)
        if law and law_of_double and law.alpha.interval()[0] > 0:
            b = float(np.mean(np.log(law.y / law_of_double.y))) / np.log(2)
            alpha = law.alpha.value
            rows.append({**family.keys, "k": k, "alpha": alpha, "b": b, "doubling": 2 ** (b / alpha)})
    return rows
