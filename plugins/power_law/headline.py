"""The headline of `power_law`."""

from __future__ import annotations

from collections.abc import Sequence

from rbptrack.analysis import (
    Report,
    deciding_row,
    decision_clause,
    estimate_text,
    headline_metric,
    join_clauses,
    listed,
    p_text,
    range_text,
    verdict_clause,
)
from rbptrack.ranks import metric_label
from rbptrack.stats import MIN_SIZES, bend_text

from .tables import FittedFamily, mispredicts

FEW_SIZES = 3
"""If a law has at most this many sizes, the headline says first how much the metric improved."""


def headline_without_laws(report: Report) -> str:
    """Say what values were measured, and that there are too few sizes for a law."""
    metric = headline_metric(report.questions)
    if metric not in report.questions:
        return f"A law in size needs at least {MIN_SIZES} sizes of one family. The notes say what was left out."
    values = report.frame(metric)[metric]
    over = f" over {len(values)} measurements" if len(values) > 1 else ""
    text = f"{metric_label(metric)} is {range_text(values, '.3f')}{over}."
    text += f" A law in size needs at least {MIN_SIZES} sizes of one family."
    if report.frame(metric)["family"].nunique() >= MIN_SIZES:
        text += " To give models one family, measure with model.family=NAME again, or use rbptrack label."
    return text


def headline(report: Report, families: Sequence[FittedFamily], metric: str, margin: float) -> str:
    """Say whether a metric improves with size, and whether faster than CE.

    A caution follows if laws bend or mispredict their largest size.

    Args:
        report: the report, with all its results.
        families: the families with laws.
        metric: the metric.
        margin: the largest difference of exponents that counts as equal, as a share of CE's exponent.

    """
    if "alpha" not in report.questions:
        return ""
    label = metric_label(metric)
    alpha = report.frame("alpha")
    improves = {
        "above": f"{label} improves with size",
        "below": f"{label} gets worse with size",
        "undecided": f"whether {label} improves with size is undecided",
    }
    first = decision_clause(report, "alpha", metric, improves)
    verdict = deciding_row(report, "alpha", metric).get("verdict", "")
    few_sizes = any(
        family_laws.laws[metric].sizes <= FEW_SIZES for family_laws in families if metric in family_laws.laws
    )
    change = _improvement_clause(report, metric) if few_sizes or verdict in ("", "undecided") else ""
    if not first:
        values = range_text(alpha[alpha["metric"] == metric]["alpha"])
        return join_clauses(change, f"{label}: α = {values}, without an interval; the report's notes say why")
    first = "; ".join(filter(None, [change, first]))
    caution = _caution_clause(metric, families)
    worse = alpha[alpha["verdict"] == "below"]["metric"].tolist()
    if worse and metric not in worse:
        falls = alpha[alpha["metric"] == worse[-1]]
        words = {"below": f"{metric_label(worse[-1])} gets worse with size"}
        return join_clauses(first, verdict_clause(falls, words, noun="law", none=""), caution)
    if verdict != "above":
        return join_clauses(first, caution)
    against_ce = {
        "above": "faster than cross-entropy",
        "below": "more slowly than cross-entropy",
        "same": f"as fast as cross-entropy to within {margin:.0%}",
        "undecided": "whether faster than cross-entropy is undecided",
    }
    return join_clauses(first, decision_clause(report, "delta", metric, against_ce), caution)


def _improvement_clause(report: Report, metric: str) -> str:
    """Say how much a metric changed from the smallest to the largest model."""
    rows = report.frame("improvement")
    rows = rows[rows["metric"] == metric]
    label = metric_label(metric)
    if len(rows) > 1:
        texts = {"above": f"{label} of the largest model is above that of the smallest one"}
        texts["below"] = f"{label} of the largest model is below that of the smallest one"
        none = f"{label} changes by {range_text(rows['improvement'], '+.3f')} from the smallest to the largest model"
        return verdict_clause(
            rows.rename(columns={"improvement": "difference"}), texts, noun="case", none=none, span="difference"
        )
    row = rows.iloc[0]
    change = estimate_text(row["improvement"], row["low"], row["high"], "+.3f")
    ends = f"from {row['before']:.3f} at {row['from_size']} to {row['after']:.3f} at {row['to_size']}"
    return ", ".join(filter(None, [f"{label} changes {ends}, by {change}", p_text(row["p_adjusted"])]))


def _caution_clause(metric: str, families: Sequence[FittedFamily]) -> str:
    """Return a clause about the laws of a metric that bend or mispredict their largest size; empty if none does."""
    num_laws = 0
    doubtful = []
    for family_laws in families:
        law = family_laws.laws.get(metric)
        if law is None:
            continue
        num_laws += 1
        faults = [*filter(None, [bend_text(law)]), *(["mispredicts its largest size"] if mispredicts(law) else [])]
        if faults:
            doubtful.append(f"of {family_laws.family} {listed(faults)}")
    label = metric_label(metric)
    if len(doubtful) > 1:
        return f"caution: {len(doubtful)} of {num_laws} laws of {label} bend or mispredict their largest size"
    return f"caution: the law of {label} {doubtful[0]}" if doubtful else ""
