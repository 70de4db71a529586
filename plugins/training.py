"""Fit the law in size at each number of training tokens D, and test whether its exponent changes over training.

The change is the exponent at a large D minus the exponent at a small D, over the sizes that have checkpoints at both.
Of all pairs of D with enough sizes in common, the one with the largest ratio is used. The law of the ratio is fitted:
its exponent is the change. An error that both exponents have in common, from models or from documents, cancels.

The analyzer also fits y = E + A S^-alpha + B D^-beta (Hoffmann et al., arXiv 2203.15556, eq. 2) to all checkpoints of a
family. y is cross-entropy or -ln RBP_k. The report contains how well this form describes the checkpoints, but not its
exponents. No interval of them is known to cover: checkpoints of one model deviate from the law together, and different
exponents describe the same checkpoints nearly equally well (arXiv 2605.08541).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from pydantic import PositiveInt

from rbptrack.analysis import (
    POINT_COLUMNS,
    Analyzer,
    Family,
    Glossary,
    Report,
    Runs,
    Term,
    counted,
    decision_clause,
    differing_facts,
    headline_metric,
    join_clauses,
    listed,
    read_families,
    split_by_facts,
    verdict_clause,
    without_conflicts,
    without_repeats,
)
from rbptrack.figures import facets
from rbptrack.ranks import CE, HEADLINE_KS, DocumentCounts, metric_label, rbp_name
from rbptrack.stats import MIN_SIZES, ce_and_neg_log_rbp, fit_form, laws, laws_by_metric, y_with_intervals

POWERS = "A * S**-size_exponent + B * D**-token_exponent"
GLOSSARY: Glossary = {
    "alpha": Term("exponent of the law in size over the checkpoints of one D", "α at D", ".4f"),
    "change": Term(
        "exponent in size at the last D minus the exponent at the first D, for the same sizes",
        "change of α",
        "+.4f",
    ),
    "first_D": Term(
        "the smaller D of the change: the two D that are farthest apart and have enough sizes in common",
        "from D",
        ".3g",
    ),
    "last_D": Term("the larger D", "to D", ".3g"),
    "D": "training tokens",
    "largest_deviation": Term("the largest abs(measured / law - 1) over the checkpoints", "largest deviation", ".1%"),
    "checkpoints": "number of fitted checkpoints",
    "sizes": "number of sizes of the fit",
    "y": "CE in nats, or -ln RBP_k",
}
Sizes = dict[float, DocumentCounts]
"""The counts of the checkpoints of one D, by size S."""


class Training(Analyzer):
    """Laws in size and training tokens over checkpoints, and exponents in size at each number of training tokens."""

    k: tuple[PositiveInt, ...] = HEADLINE_KS
    """the k of RBP_k, in addition to cross-entropy"""

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        frame = without_repeats(runs.frame)
        frame = frame[frame["non_embedding_params"].notna() & (frame["training_tokens"] > 0).fillna(False)]
        frame = frame[frame.groupby(["family", "dataset"])["training_tokens"].transform("nunique") > 1]
        if not len(frame):
            report.notes.append("No family of known S has checkpoints at several numbers of training tokens.")
            return report
        points: list[pd.DataFrame] = []
        groups, report.notes = _comparable_checkpoints(frame)
        for family, dataset, rows in groups:
            by_tokens: dict[float, Sizes] = {}
            for tokens, same_d in rows.groupby("training_tokens"):
                d = float(str(tokens))
                reading = read_families(runs[runs["run_id"].isin(same_d["run_id"])], self.k)
                by_tokens[d] = {}
                for checkpoints, counts in reading:
                    by_tokens[d] |= zip(checkpoints.s.tolist(), counts, strict=True)
                    points += _points(checkpoints, counts, family, d)
                    _add_alphas(report, checkpoints, counts, family, d)
                report.notes += reading.notes
            _add_changes(report, by_tokens, family=family, dataset=dataset)
        report.notes = list(dict.fromkeys(report.notes))  # a note that several D share appears once
        if points:
            report.tables["points"] = pd.concat(points, ignore_index=True)
            _fit_checkpoints(report)
            _draw(report)
        report.headline = _headline(report)
        return report


def _points(checkpoints: Family, counts: Sequence[DocumentCounts], family: str, d: float) -> Iterator[pd.DataFrame]:
    """Yield a table of CE and -ln RBP_k for each checkpoint of one D. Values that are not positive are left out."""
    keys = {"family": family, "dataset": checkpoints.dataset, "D": d}
    for size, s, size_counts in zip(checkpoints.labels, checkpoints.s, counts, strict=True):
        y, low, high = y_with_intervals(size_counts)
        metrics = [CE, *map(rbp_name, size_counts.ks)]
        rows = pd.DataFrame(keys | {"metric": metrics, "size": size, "S": s, "y": y, "low": low, "high": high})
        yield rows[np.isfinite(y) & (y > 0)]


def _add_alphas(report: Report, checkpoints: Family, counts: Sequence[DocumentCounts], family: str, d: float) -> None:
    """Add the law in size over the checkpoints of one D, if there are several sizes."""
    if len(checkpoints.s) < 2:
        return
    for metric, law in laws_by_metric(checkpoints.s, counts).items():
        keys: dict[str, Any] = {"family": family, "dataset": checkpoints.dataset, "metric": metric, "D": d}
        report.add("alpha", law.alpha, **keys, beside={"R2": law.r2, "sizes": law.sizes})


def _add_changes(report: Report, by_tokens: dict[float, Sizes], *, family: str, dataset: str) -> None:
    """Add the changes of exponents between the two D that are farthest apart and share enough sizes."""
    found = _widest_pair(by_tokens)
    if found is None:
        report.notes.append(
            f"{family} on {dataset}: no change of exponents is tested, because no two D have {MIN_SIZES} sizes in "
            "common."
        )
        return
    first, last = found
    shared = sorted(by_tokens[first].keys() & by_tokens[last].keys())
    pairs = [(by_tokens[first][s], by_tokens[last][s]) for s in shared]
    ks = sorted(set.intersection(*(set(counts.ks) for pair in pairs for counts in pair)))
    sums = [np.stack([a.select(ks).sums, b.select(ks).sums], axis=1) for a, b in pairs]
    ratios = laws(np.array(shared), sums, lambda x: ce_and_neg_log_rbp(x[..., 1, :]) / ce_and_neg_log_rbp(x[..., 0, :]))
    metrics = [CE, *map(rbp_name, ks)]
    for metric, ratio in zip(metrics, ratios, strict=True):
        if ratio:
            beside = {"first_D": first, "last_D": last, "sizes": ratio.sizes}
            keys: dict[str, Any] = {"family": family, "dataset": dataset, "metric": metric}
            keys["primary"] = metric == headline_metric(metrics)
            report.add("change", ratio.alpha, **keys, null=0.0, beside=beside)


def _widest_pair(by_tokens: dict[float, Sizes]) -> tuple[float, float] | None:
    """Return the two D with the largest ratio that have at least `MIN_SIZES` sizes in common; None if there are none.

    The sizes in common must have been counted over the same documents.
    """

    def can_be_compared(first: float, last: float) -> bool:
        shared = by_tokens[first].keys() & by_tokens[last].keys()
        pairs = [(by_tokens[first][s], by_tokens[last][s]) for s in shared]
        return len(shared) >= MIN_SIZES and all(a.has_rows_of(b) for a, b in pairs)

    pairs = sorted(combinations(sorted(by_tokens), 2), key=lambda pair: pair[0] / pair[1])
    return next((pair for pair in pairs if can_be_compared(*pair)), None)


def _fit_checkpoints(report: Report) -> None:
    """Fit the law in size and tokens to the checkpoints of each family, dataset and metric, as the table `law`."""
    rows = []
    for (family, dataset, metric), points in report.tables["points"].groupby(["family", "dataset", "metric"]):
        sizes, values_of_d = points["S"].nunique(), points["D"].nunique()
        if sizes < 3 or values_of_d < 3 or len(points) < 8:
            report.notes.append(
                f"{family} on {dataset}: the law of {metric_label(str(metric))} in size and tokens needs 8 checkpoints "
                f"of 3 sizes at 3 values of D; there are {len(points)} of {counted(sizes, 'size')} at "
                f"{counted(values_of_d, 'value')} of D."
            )
            continue
        s, y, d = (points[name].to_numpy(np.float64) for name in ("S", "y", "D"))
        fitted = fit_form(f"E + {POWERS}", s, y, d, with_intervals=False)
        if fitted.parameters["E"].value < 0:
            fitted = fit_form(POWERS, s, y, d, with_intervals=False)
        row = {"family": family, "dataset": dataset, "metric": metric, "R2": fitted.r2}
        rows.append(row | {"largest_deviation": fitted.largest_deviation, "checkpoints": len(y), "sizes": sizes})
    if rows:
        report.tables["law"] = pd.DataFrame(rows)


def _draw(report: Report) -> None:
    """Draw y of each checkpoint and the exponents in size against training tokens."""
    points = report.tables["points"]
    panel = points["family"] + ", " + points["dataset"] + ": " + points["metric"].map(metric_label)
    tokens = "D, training tokens"
    points = points.assign(panel=panel).rename(columns={"D": tokens})
    report.figures["against_tokens"] = facets(points, x=tokens, y="y", colour="size", facet="panel", log="xy")
    if "alpha" in report.questions:
        rows = report.frame("alpha")
        rows = rows.assign(panel=rows["family"] + ", " + rows["dataset"])
        rows = rows.rename(columns={"D": tokens, "alpha": "α"})
        report.figures["alpha"] = facets(rows, x=tokens, y="α", colour="metric", facet="panel")


def _comparable_checkpoints(frame: pd.DataFrame) -> tuple[list[tuple[str, str, pd.DataFrame]], list[str]]:
    """Return family, dataset and rows of each law, and notes on rows that are left out.

    The rows of one law differ only in size and checkpoint.
    """
    groups = []
    notes = []
    for (family, dataset), rows in frame.groupby(["family", "dataset"], sort=True):
        keys = [key for key in differing_facts(rows) if key not in POINT_COLUMNS]
        for name, part in split_by_facts(str(family), rows, keys):
            kept, conflicts = without_conflicts(part)
            notes += [f"{name} on {dataset}: {note}" for note in conflicts]
            repeats = _repeats_checkpoint(kept)
            if repeats.any():
                models = listed(list(dict.fromkeys(kept.loc[repeats, "model"])))
                notes.append(
                    f"{name} on {dataset}: left out {models}, because it is the same checkpoint as another one."
                )
            groups.append((name, str(dataset), kept[~repeats]))
    return groups, notes


def _repeats_checkpoint(rows: pd.DataFrame) -> pd.Series[bool]:
    """Return whether each row is a checkpoint that another row has under another name, (rows,).

    The final weights, for example, are usually also the last step. The name that most rows have is kept.
    """
    checkpoint = rows["checkpoint"].fillna("")
    model = rows["model"].str.partition("@")[0]
    uses = checkpoint.map(checkpoint.value_counts())
    by_use = rows.assign(uses=uses).sort_values("uses", ascending=False, kind="stable")
    kept = checkpoint[by_use.index].groupby([model, rows["training_tokens"]]).transform("first")
    return checkpoint != kept.reindex(rows.index)


def _headline(report: Report) -> str:
    """Say whether, or how often, the exponent of the headline's metric changes over training."""
    if "change" not in report.questions:
        return ""
    rows = report.frame("change")
    metric = headline_metric(rows["metric"])
    rows = rows[rows["metric"] == metric].rename(columns={"change": "change of α"})
    exponent = f"{metric_label(metric)}'s exponent in size"
    texts = {"above": f"{exponent} grows over training", "below": f"{exponent} falls over training"}
    if len(rows) == 1:
        texts["undecided"] = f"whether {exponent} changes over training is undecided"
        return join_clauses(decision_clause(report, "change", metric, texts))
    none = f"no change of {exponent} over training was found"
    return join_clauses(verdict_clause(rows, texts, noun="case", none=none, span="change of α"))
