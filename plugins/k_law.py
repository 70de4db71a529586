"""The law in k: -ln RBP_k = B k^-beta at a fixed model (table 1, figure 9 and eq. 10 of arXiv 2510.20387).

The slope is fitted by least squares of ln(-ln RBP_k) on ln k. The k are integers that are evenly spaced in ln k. A k is
left out if fewer than 10 tokens of the model have a rank above k, or if RBP_k is 0. R^2 of such curves is near 1
whatever their shape. The report therefore contains the largest distance of a point from the line, and no R^2.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rbptrack.analysis import Analyzer, Glossary, Report, Runs, Term, listed, range_text, read_families
from rbptrack.figures import facets
from rbptrack.ranks import log_grid
from rbptrack.stats import law_in_k, why_no_interval_in_k, why_no_law_in_k

GLOSSARY: Glossary = {
    "beta": Term("minus the slope of ln(-ln RBP_k) over ln k, of one model", title="β"),
    "B": "-ln RBP_1 on the line",
    "largest_deviation": Term(
        "the largest abs(measured / line - 1) over the k of the fit", title="distance from the line", form=".1%"
    ),
    "largest_k": Term("the largest k of the fit", title="largest k"),
}


class KLaw(Analyzer):
    """The law in k of each model."""

    largest: Annotated[int, Field(ge=4)] = 100
    """the largest k of the fit; the law is not expected to hold far beyond 100"""

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        reading = read_families(runs, log_grid(self.largest).tolist())
        for family, counts in reading:
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
        report.figures["beta"] = facets(rows.rename(columns={"beta": "β"}), x="S", y="β")
        largest_ks = range_text(rows["largest_k"], ".0f")
        report.headline = (
            f"For a fixed model, -ln RBP_k falls as k^-β with β = {range_text(rows['beta'])} up to k = {largest_ks}. "
            f"The largest deviation from these lines is {rows['largest_deviation'].max():.0%}."
        )
        return report
