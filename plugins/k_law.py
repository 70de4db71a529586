"""The law in k: -ln RBP_k = B k^-beta at a fixed model (table 1, figure 9 and eq. 10 of arXiv 2510.20387).

The slope is that of ln(-ln RBP_k) against ln k by least squares, over integers k that are even in ln k. R^2 of such
curves is near 1 whatever their shape, so the largest distance from the line stands beside beta.

What a larger k is worth in size: at constant RBP, dS/S = -(alpha_k / alpha_S) dk/k, so that doubling k has the effect
of a model 2^(b / alpha) times larger; alpha is the exponent in S at k, and b = ln(y_k / y_2k) / ln 2, y = -ln RBP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from rbptrack.analysis import (
    Analyzer,
    DocumentCounts,
    Family,
    Glossary,
    Report,
    Runs,
    Term,
    laws_of,
    log_grid,
    missed,
    read_families,
)
from rbptrack.analysis.charts import facets
from rbptrack.stats.laws import law_in_k

GLOSSARY: Glossary = {
    "beta": Term("minus the slope of ln(-ln RBP_k) over ln k at a fixed model", title="β"),
    "B": "-ln RBP_1 on the line",
    "off": Term("largest abs(measured / line - 1) over the k of the fit", title="distance from the line", form=".1%"),
    "largest_k": Term("the largest k of the fit", title="largest k"),
    "alpha": Term("exponent in S of -ln RBP_k", title="α"),
    "b": "ln(y_k / y_2k) / ln 2, the mean over the sizes, y = -ln RBP",
    "doubling": Term(
        "how many times larger a model must be to gain what doubling k gains, 2^(b / α)", title="doubling k is worth"
    ),
}

DOUBLED = (1, 2, 5, 10, 20, 50)


@dataclass(kw_only=True)
class KLaw(Analyzer):
    """The law in k at a fixed model, and what a larger k is worth in size.

    largest: the largest k of the fit; the law is not expected to hold beyond some 100.
    """

    largest: Annotated[int, Field(ge=4)] = 100

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        ks = sorted({*log_grid(self.largest).tolist(), *DOUBLED, *(2 * k for k in DOUBLED)})
        doubling = []
        for family, counts in read_families(runs, ks, report.notes):
            doubling += _doubling(family, counts)
            usable = _between_0_and_1(counts, self.largest)
            if len(usable) < 4:
                report.notes.append(f"{family}: RBP_k is 0, 1 or unknown at nearly every k up to {self.largest}.")
                continue
            for size, s, of_size in zip(family.labels, family.s, counts, strict=True):
                law = law_in_k(of_size.select(usable))
                if law is not None:
                    beta, line = law
                    beside = {"B": line.a, "off": line.misses, "largest_k": usable[-1]}
                    report.add("beta", beta, **family.keys, beside=beside, size=size, S=s)
        if not report.questions:
            return report
        rows = report.frame("beta")
        if doubling:
            report.tables["doubling"] = pd.DataFrame(doubling)
        report.figures["beta"] = facets(rows.rename(columns={"beta": "β"}), x="S", y="β")
        powers = " to ".join(dict.fromkeys(f"k^-{beta:.2f}" for beta in (rows["beta"].min(), rows["beta"].max())))
        report.headline = (
            f"At fixed models -ln RBP_k falls as {powers} up to k = {rows['largest_k'].max()}, "
            f"off by at most {rows['off'].max():.0%}."
        )
        return report


def _between_0_and_1(counts: Sequence[DocumentCounts], largest: int) -> list[int]:
    """The k of the fit at which RBP_k is neither 0 nor 1 for any size."""
    of_fit = set(log_grid(largest).tolist())
    usable = np.ones(len(counts[0].ks), dtype=bool)
    for of_size in counts:
        hits = of_size.hits.sum(axis=0)
        usable &= (hits > 0) & (hits < of_size.tokens.sum())
    return [k for k, is_usable in zip(counts[0].ks, usable, strict=True) if is_usable and k in of_fit]


def _doubling(family: Family, counts: Sequence[DocumentCounts]) -> list[dict[str, object]]:
    """What doubling k is worth in size, for each k at which an exponent above 0 is established."""
    rows: list[dict[str, object]] = []
    if len(family.s) < 3:
        return rows
    for k in DOUBLED:
        if not {k, 2 * k} <= set(counts[0].ks):
            continue
        law, law_of_double = laws_of(family.s, [of_size.select([k, 2 * k]) for of_size in counts], missed)
        if law and law_of_double and law.alpha.interval()[0] > 0:
            b = float(np.mean(np.log(law.y / law_of_double.y))) / np.log(2)
            alpha = law.alpha.value
            rows.append({**family.keys, "k": k, "alpha": alpha, "b": b, "doubling": 2 ** (b / alpha)})
    return rows
