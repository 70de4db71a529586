"""Compare your exponents with the authors' published ones (arXiv 2510.20387, submission draft, tables 1 and 2).

The authors publish no errors. The analyzer therefore only tests whether a published value lies inside your interval.
Use `protocol=paper` to measure as the authors did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from rbptrack.analysis import (
    Analyzer,
    Family,
    Glossary,
    Report,
    Runs,
    Term,
    counted,
    listed,
    read_families,
)
from rbptrack.figures import facets
from rbptrack.ranks import DocumentCounts, log_grid, rbp_ks
from rbptrack.stats import (
    Estimate,
    law_in_k,
    laws_by_metric,
    missing_interval_clause,
    why_no_interval_in_k,
    why_no_law_in_k,
)

from .published import PUBLISHED_IN, published_in_k, published_in_size

GLOSSARY: Glossary = {
    "alpha": Term("your exponent of the law in size, -ln RBP_k or CE = A S^-alpha", "α", ".4f"),
    "beta": Term("your exponent of the law in k, -ln RBP_k = B k^-beta, with k evenly spaced in ln k", "β", ".3f"),
    "published": Term(f"the authors' exponent ({PUBLISHED_IN})", form=".3f"),
    "published_R2": Term("the authors' R²", "their R²", ".3f"),
    "inside": "whether the published value lies inside your 95% interval; empty without an interval",
    "sizes": "the number of sizes of your fit",
    "largest_k": "the largest k of your fit",
}


PAPER_PROTOCOL = ("truncate", 512, "strict")
"""The authors' settings: the sequence rule, the number of tokens of a sequence, and the rank rule."""


class Reproduction(Analyzer):
    """Your exponents, compared with the exponents that the paper's authors published."""

    largest_k: Annotated[int, Field(ge=3)] = 100
    """the largest k of the fit in k; a k is left out if fewer than 10 tokens have a rank above k; the authors do not
    publish the k of their fits
    """

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        in_size = published_in_size()
        in_k = published_in_k()
        published_cells = set(zip(in_size["family"], in_size["dataset"], strict=True))
        has_published = [key in published_cells for key in zip(runs["family"], runs["dataset"], strict=True)]
        comparable = runs[has_published]
        if not len(comparable):
            families = ", ".join(sorted(in_size["family"].unique()))
            datasets = ", ".join(sorted(in_size["dataset"].unique()))
            report.notes.append(
                f"There are no published values for these measurements. The paper has {families} on {datasets}."
            )
            return report
        ks = sorted({*log_grid(self.largest_k).tolist(), *rbp_ks(set(in_size["metric"]))})
        reading = read_families(comparable, ks)
        for family, counts in reading:
            _add_alphas(report, family, counts, _rows_of_family(in_size, family))
            self._add_betas(report, family, counts, _rows_of_family(in_k, family))
            # Both published tables have the same sizes.
            published_sizes = in_k.loc[in_k["family"] == family.label, "size"].unique()
            missing_sizes = [size for size in published_sizes if size not in family.labels]
            extra_sizes = [size for size in family.labels if size not in published_sizes]
            if missing_sizes:
                report.notes.append(
                    f"{family}: the authors also used {listed(missing_sizes)}. Exponents may differ with the range of "
                    "sizes."
                )
            if extra_sizes:
                report.notes.append(f"{family}: the authors did not use {listed(extra_sizes)}.")
        report.notes += reading.notes
        report.notes += _note_other_settings(comparable.frame)
        if report.questions:
            report.figures = _figures(report)
            report.headline = _headline(report.results["inside"])
        return report

    def _add_betas(
        self, report: Report, family: Family, counts: Sequence[DocumentCounts], published: pd.DataFrame
    ) -> None:
        """Add beta of each model for which the authors publish it. published: their rows of this family and dataset."""
        largest = min(self.largest_k, family.vocab_size - 1) if family.vocab_size else self.largest_k
        if len([k for k in counts[0].ks if k <= largest]) < 3:
            report.notes.append(f"{family}: no β, because RBP_k is known at fewer than 3 k up to {largest}.")
            return
        for size, size_counts in zip(family.labels, counts, strict=True):
            published_row = published[published["size"] == size]
            if published_row.empty:
                continue
            law = law_in_k(size_counts, largest)
            if law is None:
                report.notes.append(f"{family}: no β at {size}: {why_no_law_in_k(largest)}.")
                continue
            beta, line = law
            if not beta.has_interval:
                report.notes.append(f"{family}: no interval of β at {size}: {why_no_interval_in_k(size_counts)}.")
            beside = {"published_R2": published_row["r2"].item(), "R2": line.r2, "largest_k": int(line.s[-1])}
            _add_comparison(report, "beta", beta, published_row["beta"].item(), beside, **family.keys, size=size)


def _add_alphas(report: Report, family: Family, counts: Sequence[DocumentCounts], published: pd.DataFrame) -> None:
    """Add alpha of each metric for which the authors publish it. published: their rows of this family and dataset."""
    if len(family.s) < 2:
        return
    laws = laws_by_metric(family.s, counts)
    clause = missing_interval_clause({name: laws[name] for name in published["metric"] if name in laws}, counts)
    if clause:
        report.notes.append(f"{family}: {clause}.")
    for row in published.to_dict("records"):
        law = laws.get(row["metric"])
        if law is not None:
            beside = {"published_R2": row["r2"], "R2": law.r2, "sizes": law.sizes}
            _add_comparison(report, "alpha", law.alpha, row["alpha"], beside, **family.keys, metric=row["metric"])


def _add_comparison(
    report: Report, question: str, yours: Estimate, published: float, beside: Mapping[str, Any], **keys: Any
) -> None:
    """Add your estimate to a report, with the published value and whether it lies inside your interval."""
    inside = ""
    if yours.has_interval:
        low, high = yours.interval()
        inside = "yes" if low <= published <= high else "no"
    beside = {"published": published, **beside, "inside": inside}
    report.add(question, yours, **keys, null=published, beside=beside)


def _rows_of_family(table: pd.DataFrame, family: Family) -> pd.DataFrame:
    return table[(table["family"] == family.label) & (table["dataset"] == family.dataset)]


def _note_other_settings(frame: pd.DataFrame) -> Iterator[str]:
    """Yield a note if some runs were measured with other settings than the authors'."""
    measured = frame[frame["vocab_size"].notna() & frame["sequence"].notna()]
    settings = set()
    ranks = measured["rank"].fillna("unknown")
    for sequence, length, rank in zip(measured["sequence"], measured["seq_len"], ranks, strict=True):
        settings.add(_settings_text(sequence, "unknown" if pd.isna(length) else length, rank))
    authors = _settings_text(*PAPER_PROTOCOL)
    if settings - {authors}:
        yield f"The authors measured with {authors} (protocol=paper); yours: {'; '.join(sorted(settings))}."


def _settings_text(sequence: object, length: object, rank: object) -> str:
    return f"dataset.sequence={sequence}, dataset.seq_len={length}, rank={rank}"


def _figures(report: Report) -> dict[str, Any]:
    """Draw your exponents against the published ones."""
    figures = {}
    for question, title in (("alpha", "your α"), ("beta", "your β")):
        if question in report.questions:
            rows = report.frame(question).rename(columns={question: title})
            figures[question] = facets(rows, x="published", y=title, log="", line=False)
    return figures


def _headline(inside: pd.Series[str]) -> str:
    """Return how many published exponents lie inside your intervals. inside: `yes`, `no` or empty for each exponent."""
    tested = int(inside.isin(["yes", "no"]).sum())
    if tested:
        number_inside = int((inside == "yes").sum())
        return f"Of {counted(tested, 'published exponent')}, {number_inside} lie inside your 95% intervals."
    return f"{counted(len(inside), 'published exponent')} cannot be tested, because your exponents have no intervals."
