"""Compute the share of tokens with a rank of at most k, at each size. Replace it with your own analysis."""

from pydantic import PositiveInt

from rbptrack.analysis import Analyzer, Glossary, Report, Runs, Term, read_families
from rbptrack.figures import facets
from rbptrack.stats import estimate, rbp

GLOSSARY: Glossary = {"share": Term("share of tokens with a rank of at most k", form=".3f")}
"""The meaning of every question and column."""


class Example(Analyzer):
    """Shares of tokens with a rank of at most k, for each model and dataset."""

    k: PositiveInt = 10
    """the largest rank that counts"""

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        reading = read_families(runs, [self.k])
        for family, counts in reading:
            for size, s, counts_at_size in zip(family.labels, family.s, counts, strict=True):
                report.add("share", estimate(counts_at_size, rbp), **family.keys, size=size, beside={"S": s})
        report.notes += reading.notes
        if report.questions:
            rows = report.frame("share").sort_values("share")
            report.figures["share"] = facets(rows, x="S", y="share")
            best = rows.iloc[-1]
            report.headline = f"{best['family']}-{best['size']} ranks best on {best['dataset']}: {best['share']:.3f}."
        return report
