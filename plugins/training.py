"""Fit laws in size S and training tokens D to checkpoints, and the law in size at each D.

The law is y = E + A S^-alpha + B D^-beta (Hoffmann et al., arXiv 2203.15556, eq. 2). y is cross-entropy or -ln RBP_k.
By this law, the best size for a compute C = 6 S D grows as C^a, with a = beta / (alpha + beta). The report contains a
for cross-entropy and for each RBP_k. If tokens grow with size, the two exponents cannot be separated (arXiv
2605.08541), and the law is not fitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np
import pandas as pd
from pydantic import PositiveInt

from rbptrack.analysis import (
    POINT_COLUMNS,
    Analyzer,
    Glossary,
    Report,
    Runs,
    Term,
    counted,
    differing_facts,
    format_number,
    listed,
    newest_runs,
    read_families,
    split_by_facts,
    without_repeats,
)
from rbptrack.figures import facets
from rbptrack.ranks import CE, HEADLINE_KS, FloatArray, metric_label, rbp_name
from rbptrack.stats import fit_form, laws_by_metric

POWERS = "A * S**-size_exponent + B * D**-token_exponent"
GLOSSARY: Glossary = {
    "alpha": Term("exponent of the law in size over the checkpoints of one D", "α at D", ".4f"),
    "optimum": Term("a = beta / (alpha + beta); the best size for a compute C = 6 S D grows as C^a", "a", ".3f"),
    "D": "training tokens",
    "size_exponent": Term("alpha of E + A S^-alpha + B D^-beta", "α", ".3f"),
    "token_exponent": Term("beta of E + A S^-alpha + B D^-beta", "β", ".3f"),
    "E": Term("the part of y that neither more parameters nor more tokens reduce, in the unit of y", form=".4g"),
    "R2": Term("share of the variance of ln y that the law explains", "R²", ".4f"),
    "checkpoints": "number of fitted checkpoints",
    "sizes": "number of sizes of the fit",
    "condition": (
        "condition number of (ln S, ln D): 1 if S and D are uncorrelated and spread equally; no law is fitted above 25"
    ),
    "y": "CE in nats, or -ln RBP_k",
}
MAX_CONDITION = 25.0
ROUNDING = 1e-9  # of a fit, relative to y
"""The largest condition number at which a law in size and tokens is fitted.

In simulations, 90% of the estimates of the optimum's exponent were within 0.06 of the truth at condition 1, within
0.09 at condition 6, and within 0.31 at condition 22, if models scatter by 1% around the law.
"""

WITHOUT_INTERVALS = (
    "The law in size and tokens has no intervals, because the checkpoints of one model deviate from it together. "
    "Intervals that treat them as independent points would be too narrow."
)


class Training(Analyzer):
    """Laws in size and training tokens over checkpoints, and exponents in size at each number of training tokens."""

    ks: tuple[PositiveInt, ...] = HEADLINE_KS
    """the k of RBP_k, in addition to cross-entropy"""

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        frame = without_repeats(runs.frame)
        frame = frame[frame["non_embedding_params"].notna() & (frame["training_tokens"] > 0).fillna(False)]
        frame = frame[frame.groupby(["family", "dataset"])["training_tokens"].transform("nunique") > 1]
        if not len(frame):
            report.notes.append("No family has checkpoints at several numbers of training tokens.")
            return report
        laws = []
        points = []
        groups, report.notes = _comparable_checkpoints(frame)
        for family, dataset, rows in groups:
            for tokens, same_d in rows.groupby("training_tokens"):
                self._add_alphas(report, runs[runs["run_id"].isin(same_d["run_id"])], family, float(str(tokens)))
            for metric, y in self._logged_values(rows):
                keys: dict[str, Any] = {"family": family, "dataset": dataset, "metric": metric}
                law = _fit_checkpoints(report, keys, rows, y)
                if law is not None:
                    laws.append(keys | law)
                    report.add("optimum", law["optimum"], **keys)
                columns = {"size": rows["size"], "S": rows["non_embedding_params"], "D": rows["training_tokens"]}
                points.append(pd.DataFrame(keys | columns | {"y": y}))
        if not points:
            report.notes.append("No metric was logged for all checkpoints of a family.")
            return report
        report.tables["points"] = pd.concat(points, ignore_index=True)
        if laws:
            report.tables["law"] = pd.DataFrame(laws)
            report.notes.append(WITHOUT_INTERVALS)
        _draw(report)
        report.notes = list(dict.fromkeys(report.notes))  # a note that several D share appears once
        report.headline = _headline(report, laws)
        return report

    def _add_alphas(self, report: Report, runs: Runs, family: str, tokens: float) -> None:
        """Add the law in size over the checkpoints of one D, if there are several sizes."""
        reading = read_families(runs, self.ks)
        for checkpoints, counts in reading:
            if len(checkpoints.s) < 2:
                continue
            for metric, law in laws_by_metric(checkpoints.s, counts).items():
                keys: dict[str, Any] = {"family": family, "dataset": checkpoints.dataset, "metric": metric, "D": tokens}
                report.add("alpha", law.alpha, **keys, beside={"R2": law.r2, "sizes": law.sizes})
        report.notes += reading.notes

    def _logged_values(self, rows: pd.DataFrame) -> Iterator[tuple[str, FloatArray]]:
        """Yield each metric that all checkpoints have, with its values as y (CE or -ln RBP_k), (rows,).

        A metric is left out if a y is not finite and positive.
        """
        for metric in (CE, *map(rbp_name, self.ks)):
            if metric in rows and rows[metric].notna().all():
                logged = rows[metric].to_numpy(np.float64)
                with np.errstate(divide="ignore"):
                    y = logged if metric == CE else -np.log(logged)
                if np.isfinite(y).all() and (y > 0).all():
                    yield metric, y


def _fit_checkpoints(report: Report, keys: dict[str, str], rows: pd.DataFrame, y: FloatArray) -> dict[str, Any] | None:
    """Fit the law of one metric in size and tokens. y: CE or -ln RBP_k of each checkpoint, (rows,).

    Returns:
        The columns of the table `law`. None, with a note in the report, if the checkpoints are too few, if size and
        tokens cannot be separated, or if the best law does not fall with both.

    """
    s = rows["non_embedding_params"].to_numpy(np.float64)
    d = rows["training_tokens"].to_numpy(np.float64)
    name = f"{keys['family']} on {keys['dataset']}"
    sizes = len(np.unique(s))
    values_of_d = len(np.unique(d))
    if sizes < 3 or values_of_d < 3 or len(rows) < 8:
        report.notes.append(
            f"{name}: the law in size and tokens needs 8 checkpoints of 3 sizes at 3 values of D; there are "
            f"{len(rows)} of {counted(sizes, 'size')} at {counted(values_of_d, 'value')} of D."
        )
        return None
    condition = design_condition(s, d)
    if condition > MAX_CONDITION:
        report.notes.append(
            f"{name}: no law in size and tokens, because the two vary together, or one of them varies too little "
            f"(condition number {condition:.3g}; at most {MAX_CONDITION:g} is allowed)."
        )
        return None
    law = fit_law(s, d, y)
    if law is None:
        report.notes.append(f"{name}: no law in size and tokens, because the best one does not fall with both.")
        return None
    return law | {"checkpoints": len(y), "sizes": sizes, "condition": condition}


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


def design_condition(s: FloatArray, d: FloatArray) -> float:
    """Return the condition number of the centred matrix (ln S, ln D).

    It is 1 if ln S and ln D are uncorrelated and have the same variance. It is large if they are correlated, or if one
    of them varies much less than the other. It is infinite if D is proportional to S. Source: arXiv 2605.08541.
    """
    logs = np.log(np.column_stack([s, d]))
    largest, smallest = np.linalg.svd(logs - logs.mean(axis=0), compute_uv=False)
    return float(largest / smallest) if smallest > 1e-9 * largest else inf


def fit_law(s: FloatArray, d: FloatArray, y: FloatArray) -> dict[str, float] | None:
    """Fit y = E + A S^-alpha + B D^-beta with E >= 0 by least squares of ln y.

    Args:
        s: sizes S, (n,), with at least 3 different values.
        d: training tokens D, (n,), with at least 3 different values.
        y: positive values, (n,), at least 8.

    Returns:
        The keys optimum, size_exponent, token_exponent, E and R2. None if the best law does not fall with both size and
        tokens.

    """
    fitted = fit_form(f"E + {POWERS}", s, y, d, with_intervals=False)
    e = fitted.parameters["E"].value
    if e < 0:
        fitted = fit_form(POWERS, s, y, d, with_intervals=False)
        e = 0.0
    alpha = fitted.parameters["size_exponent"].value
    beta = fitted.parameters["token_exponent"].value
    fall_with_size = fitted.parameters["A"].value * (s.min() ** -alpha - s.max() ** -alpha)
    fall_with_tokens = fitted.parameters["B"].value * (d.min() ** -beta - d.max() ** -beta)
    # A term that falls by no more than rounding has no exponent: every exponent fits.
    if min(alpha, beta) <= 0 or min(fall_with_size, fall_with_tokens) <= ROUNDING * y.min():
        return None
    return {
        "optimum": beta / (alpha + beta),
        "size_exponent": alpha,
        "token_exponent": beta,
        "E": e,
        "R2": fitted.r2,
    }


def _comparable_checkpoints(frame: pd.DataFrame) -> tuple[list[tuple[str, str, pd.DataFrame]], list[str]]:
    """Return family, dataset and rows of each law, and notes on rows that are left out.

    The rows of one law differ only in size and checkpoint.
    """
    groups = []
    notes = []
    for (family, dataset), rows in frame.groupby(["family", "dataset"], sort=True):
        keys = [key for key in differing_facts(rows) if key not in POINT_COLUMNS]
        for label, part in split_by_facts(rows, keys):
            name = f"{family} {label}".strip()
            newest, replaced_notes = newest_runs(part)
            notes += [f"{name} on {dataset}: {note}" for note in replaced_notes]
            repeats = _repeats_checkpoint(newest)
            if repeats.any():
                models = listed(list(dict.fromkeys(newest.loc[repeats, "model"])))
                notes.append(
                    f"{name} on {dataset}: left out {models}, because another revision is the same checkpoint."
                )
            groups.append((name, str(dataset), newest[~repeats]))
    return groups, notes


def _repeats_checkpoint(rows: pd.DataFrame) -> pd.Series[bool]:
    """Return whether each row is a checkpoint that another row has under another revision, (rows,).

    The revision `main`, for example, is usually also the last step. The revision that most rows have is kept.
    """
    revision = rows["revision"].fillna("")
    model = rows["model"].str.partition("@")[0]
    by_use = rows.assign(uses=revision.map(revision.value_counts())).sort_values("uses", ascending=False, kind="stable")
    kept = revision[by_use.index].groupby([model, rows["training_tokens"]]).transform("first")
    return revision != kept.reindex(rows.index)


def _headline(report: Report, laws: list[dict[str, Any]]) -> str:
    """Return the exponents a of the first family, or else how CE's exponent in size changes over training."""
    if laws:
        family, dataset = laws[0]["family"], laws[0]["dataset"]
        first_family = [law for law in laws if (law["family"], law["dataset"]) == (family, dataset)]
        optima = []
        for law in first_family[:2]:
            optima.append(f"{format_number(law['optimum'], '.2f')} for {metric_label(law['metric'])}")
        return f"{family} on {dataset}: the best size grows with compute as C^a, a = {listed(optima)}."
    if "alpha" not in report.questions:
        return ""
    rows = report.frame("alpha")
    for (family, dataset), family_rows in rows[rows["metric"] == CE].groupby(["family", "dataset"], sort=False):
        if len(family_rows) > 1:
            alphas = family_rows.sort_values("D", kind="stable")["alpha"].to_numpy(np.float64)
            first, last = format_number(alphas[0], ".3f"), format_number(alphas[-1], ".3f")
            return f"{family} on {dataset}: CE's exponent in size goes from {first} to {last} over training."
    return ""
