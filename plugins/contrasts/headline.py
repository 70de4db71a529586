"""The headline of `contrasts`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rbptrack.analysis import (
    Report,
    decision_clause,
    estimate_text,
    headline_metric,
    p_text,
    range_text,
    verdict_clause,
)
from rbptrack.ranks import CE, metric_label

from .families import ComparedFamily


def _noun_of_families(families: Sequence[ComparedFamily]) -> str:
    """Return `families`, or another noun if all belong to one family and differ in precision or training, say."""
    names = {family_laws.family.label for family_laws in families}
    return "runs of several kinds" if len(names) == 1 else "families"


def clause_of_families(report: Report, families: Sequence[ComparedFamily], metric: str) -> str:
    """Say which family needs fewer parameters for the headline's metric, or else which one has the better level.

    An equivalent size that is extrapolated is not named.
    """
    if "level" not in report.questions:
        return ""
    levels = report.frame("level")
    levels = levels[levels["metric"] == metric]
    if levels.empty:
        return ""
    pairs = levels[["family", "dataset", "versus"]].drop_duplicates()
    label = metric_label(metric)
    if "size_ratio" in report.questions:
        ratios = report.frame("size_ratio")
        ratios = ratios[(ratios["metric"] == metric) & ratios["verdict"].isin(["above", "below"])]
        bounded = ratios[np.isfinite(ratios["high"]) & (ratios["measured"] == "yes")]
        if len(pairs) == 1 and len(bounded) == 1:
            row = bounded.iloc[0]
            ratio = estimate_text(row["size_ratio"], row["low"], row["high"])
            text = f"for the same {label}, {row['family']} needs {ratio} of the size of {row['largest']}"
            return f"{text}, {p_text(row['p_adjusted'])}"
    means = levels[levels["compared"].notna()] if "compared" in levels else levels[:0]
    shown = means if len(means) else levels
    y = label if metric == CE else f"-ln {label}"
    if len(pairs) > 1:
        noun = _noun_of_families(families)
        texts = {"differs": f"{noun} differ in {y}"}
        none = f"whether {noun} differ in {y} is undecided, {range_text(shown['level'], '+.3f')}"
        return verdict_clause(shown, texts, noun="pair", none=none, span="level")
    row = shown.iloc[0]
    value = estimate_text(row["level"], row["low"], row["high"], "+.3f")
    at = f"on average over {row['compared']:.0f} sizes" if len(means) else f"at {row['at']}"
    words = {"above": "worse", "below": "better"}
    text = f"{at}, {y} of {row['family']} minus that of {row['versus']} is {value}"
    if row["verdict"] in words:
        text = f"{at}, {row['family']} is {words[row['verdict']]} than {row['versus']} in {label}: {y} {value}"
    if not row["verdict"]:
        return text
    return f"{text}, {p_text(row['p_adjusted'])}{' (undecided)' if row['verdict'] == 'undecided' else ''}"


def headline(report: Report, families: Sequence[ComparedFamily], margin: float) -> str:
    """Say how the exponents of families, of RBP_k and RBP_1, and of datasets differ, for the headline's metric."""
    parts = []
    for question in ("families", "datasets"):
        if question not in report.questions:
            continue
        compared = _noun_of_families(families) if question == "families" else question
        rows = report.frame(question)
        metric = headline_metric(rows["metric"])
        label = metric_label(metric)
        rows = rows[rows["metric"] == metric].rename(columns={question: "Δα"})
        texts = {
            "differs": f"the {compared} differ in the exponent of {label}",
            "same": f"the {compared} have equal exponents of {label} to within {margin:.0%}",
        }
        undecided = f"whether the {compared} differ in the exponent of {label} is undecided"
        if len(rows) == 1:
            parts.append(decision_clause(report, question, metric, texts | {"undecided": undecided}))
        elif len(rows):
            none = f"{undecided}, Δα = {range_text(rows['Δα'], '+.3f')}"
            parts.append(verdict_clause(rows, texts, noun="pair", none=none, span="Δα"))
    if "against_rbp_1" in report.questions:
        metric = headline_metric(report.frame("against_rbp_1")["metric"])
        label = metric_label(metric)
        texts = {
            "above": f"{label}'s exponent is above RBP_1's",
            "below": f"{label}'s exponent is below RBP_1's",
            "same": f"{label}'s exponent is within {margin:.0%} of RBP_1's",
            "undecided": f"whether the exponents of {label} and RBP_1 differ is undecided",
        }
        parts.append(decision_clause(report, "against_rbp_1", metric, texts))
    return "; ".join(filter(None, parts))
