"""The tables of laws and points of `power_law`, and the figures that show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analysis import Family, Report
from rbptrack.figures import explorer, facets
from rbptrack.ranks import CE, DocumentCounts, FloatArray, parse_rbp_name, rbp_name
from rbptrack.stats import Estimate, Law, Row, bend_text, simultaneous_level, y_with_intervals

from .glossary import FEW_TOKENS, MIN_R2

LEADING_COLUMNS = ("alpha", "verdict_alpha", "delta", "verdict_delta", "R2", "held_out", "bend", "doubt")
"""The columns of the table of laws that the page shows below the explorer."""


@dataclass(frozen=True)
class FittedFamily:
    """The counts and laws of one family on one dataset.

    Attributes:
        family: the family.
        s: the sizes S in the unit of the analyzer's option `unit`, (m,).
        all_counts: the counts of each size at every k of the grid, m of them.
        counts: the same at the k that laws are fitted to.
        laws: the laws by metric: ce, and rbp_<k> for each k. Empty if there is only one size.
        ratios: the laws of -ln RBP_k / CE by metric.

    """

    family: Family
    s: FloatArray
    all_counts: Sequence[DocumentCounts]
    counts: list[DocumentCounts]
    laws: dict[str, Law] = field(default_factory=dict)
    ratios: dict[str, Law] = field(default_factory=dict)


def table_of_laws(report: Report, families: Sequence[FittedFamily]) -> pd.DataFrame:
    """Return a table with a row for each law of the families. It says which k were tested, and with what verdict."""
    laws = pd.DataFrame([row for family_laws in families for row in _law_rows(family_laws)])
    if laws.empty:
        return laws
    names = np.where(laws["metric"] == CE, CE, "rbp_" + laws["k"].astype(str))
    cases = list(zip(laws["family"], laws["dataset"], names, strict=True))
    tested = {name for question in report.questions for name in report.frame(question)["metric"]}
    untested = ["" if name in tested else "not tested at this k" for name in names]
    for question in ("alpha", "delta"):
        results = report.frame(question)
        if results["p"].notna().any():
            keys = results[["family", "dataset", "metric"]].itertuples(index=False, name=None)
            texts = dict(zip(keys, report.verdict_texts(question), strict=True))
            laws[f"verdict_{question}"] = [texts.get(*pair) for pair in zip(cases, untested, strict=True)]
    return laws


def _law_rows(family_laws: FittedFamily) -> list[dict[str, object]]:
    """Return a row for each law of a family. The explorer draws these rows."""
    rows = []
    fewest_above_k = _fewest_tokens_above_k(family_laws)
    level = _level_of_band(family_laws)
    for metric, law in family_laws.laws.items():
        y0, y1 = law.ends
        line = {"S0": law.s[0], "y0": y0, "S1": law.s[-1], "y1": y1}
        numbers = {"A": law.a, "R2": law.r2, "largest_deviation": law.largest_deviation}
        numbers |= _with_ends("alpha", law.alpha) | {"p_of_alpha": law.alpha.p()} | _with_ends("bend", law.bend())
        numbers["band_low"], numbers["band_high"] = law.alpha.interval(level)
        held_out = law.held_out() if law.sizes >= 4 else Estimate(np.nan, df=np.nan)
        numbers |= {name: np.expm1(value) for name, value in _with_ends("held_out", held_out).items()}
        if ratio := family_laws.ratios.get(metric):
            numbers |= _with_ends("delta", ratio.alpha)
        numbers["tokens_above_k"] = fewest_above_k.get(metric, np.nan)
        doubts = _doubts(law, numbers["tokens_above_k"])
        keys = {**family_laws.family.keys, "metric": CE if metric == CE else "rbp", "k": parse_rbp_name(metric) or 0}
        rows.append(keys | numbers | {"doubt": "; ".join(doubts)} | line)
    return rows


def _level_of_band(family_laws: FittedFamily) -> float:
    """Return the level of single intervals that makes the intervals of alpha hold for all k together at 95%."""
    keys = family_laws.family.keys
    exponents = [law.alpha for metric, law in family_laws.laws.items() if metric != CE and law.alpha.has_interval]
    return simultaneous_level([Row(alpha, keys["dataset"], keys["family"]) for alpha in exponents])


def _with_ends(name: str, estimate: Estimate) -> dict[str, float]:
    """Return a number and the ends of its interval as columns, such as bend, bend_low and bend_high."""
    low, high = estimate.interval()
    return {name: estimate.value, f"{name}_low": low, f"{name}_high": high}


def _fewest_tokens_above_k(family_laws: FittedFamily) -> dict[str, float]:
    """Return how many tokens of the best model have a rank above k, by metric; empty if it is unknown."""
    if family_laws.family.rows["num_tokens"].isna().any():
        return {}
    above_k = [counts.tokens.sum() - counts.hits.sum(axis=0) for counts in family_laws.counts]
    metrics = map(rbp_name, family_laws.counts[0].ks)
    return dict(zip(metrics, np.min(above_k, axis=0).tolist(), strict=True))


def _doubts(law: Law, tokens_above_k: float) -> Iterator[str]:
    """Yield reasons to doubt a law. tokens_above_k: the tokens of the best model with a rank above k."""
    if bend := bend_text(law):
        yield bend
    if mispredicts(law):
        yield "off at its largest size"
    if law.r2 < MIN_R2:
        yield "models scatter"
    if tokens_above_k < FEW_TOKENS:
        yield "few tokens above k"


def table_of_points(families: Sequence[FittedFamily]) -> pd.DataFrame:
    """Return a table with a row for each model and metric of the families. The explorer draws these rows."""
    frames = []
    for family_laws in families:
        for model, s, counts in zip(family_laws.family.models, family_laws.s, family_laws.counts, strict=True):
            y, low, high = y_with_intervals(counts)
            names = family_laws.family.keys | {"model": model, "S": s}
            names |= {"metric": [CE, *["rbp"] * len(counts.ks)], "k": [0, *counts.ks]}
            values = {"value": np.append(y[0], np.exp(-y[1:])), "y": y, "low": low, "high": high}
            frames.append(pd.DataFrame(names | values)[np.isfinite(y) & (y > 0)])
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def mispredicts(law: Law) -> bool:
    """Whether the held-out error at the largest size differs significantly from 0."""
    if law.sizes < 4:
        return False
    low, high = law.held_out().interval()  # takes less time than a p-value
    return low > 0 or high < 0


def draw_laws(points: pd.DataFrame, laws: pd.DataFrame, k: int | None) -> Any:
    """Draw the explorer at k. If there are no values of RBP_k, draw cross-entropy against size instead."""
    points = points[np.isfinite(points["S"])]
    if k is not None:
        return explorer(points, laws.rename(columns={"alpha_low": "low", "alpha_high": "high"}), k)
    title = "cross-entropy, nats"
    return facets(points.rename(columns={"y": title}), x="S", y=title, log="xy")


def draw_curves(families: Sequence[FittedFamily]) -> Any:
    """Draw RBP_k of each model against k, with a panel for each dataset."""
    frames = []
    for each in families:
        for model, counts in zip(each.family.models, each.all_counts, strict=True):
            rbp = counts.hits.sum(axis=0) / counts.tokens.sum()
            frames.append(pd.DataFrame(each.family.keys | {"model": model, "k": counts.ks, "RBP_k": rbp}))
    curves = pd.concat(frames, ignore_index=True)
    if curves.duplicated(["model", "dataset", "k"]).any():  # models of one name that differ for example in precision
        curves["model"] += " (" + curves["family"] + ")"
    return facets(curves.drop(columns="family"), x="k", y="RBP_k", colour="model")
