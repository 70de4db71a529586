"""Training checkpoints: y = E + A S^-alpha + B D^-beta in size and training tokens, and alpha at each D.

The form is that of Hoffmann et al. (arXiv 2203.15556, eq. 2), for cross-entropy and for -ln RBP_k alike: it shows
whether the best size at a compute C = 6 S D is the same for ranks as for cross-entropy. That size grows as C^a with
a = beta / (alpha + beta). Where tokens grow with size the exponents cannot be separated (arXiv 2605.08541), and no law
is fitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import inf, nan
from typing import Any

import numpy as np
import pandas as pd
from pydantic import PositiveInt

from rbptrack.analysis import (
    ONE_POINT,
    Analyzer,
    Report,
    Runs,
    Term,
    counted,
    disagreeing,
    listed,
    newest,
    number,
    parts,
    read_families,
    without_twins,
)
from rbptrack.figures import facets
from rbptrack.ranks import CE, HEADLINE_KS, FloatArray, metric_label, rbp_name
from rbptrack.stats import all_equal, laws_by_metric, least_squares

PARAMETERS = ("optimum", "size_exponent", "token_exponent", "E")
GLOSSARY: dict[str, str | Term] = {
    "alpha": Term("exponent of the law in size over the checkpoints of one D", "α at D", ".4f"),
    "optimum": Term("the best size at compute C = 6 S D grows as C^a: beta / (alpha + beta)", "a", ".3f"),
    "D": "training tokens",
    "size_exponent": Term("alpha of E + A S^-alpha + B D^-beta", "α", ".3f"),
    "token_exponent": Term("beta of E + A S^-alpha + B D^-beta", "β", ".3f"),
    "E": Term("the part that neither size nor tokens reduce, in the unit of y", form=".4g"),
    "R2": Term("of ln y", "R²", ".4f"),
    "checkpoints": "number of points fitted",
    "sizes": "number of models that they are of",
    "condition": "condition number of (ln S, ln D), 1 if unrelated; above 25 no law is fitted",
    "starts_agree": "whether fits from several starts ended at the same exponents",
    "y": "CE in nats, or -ln RBP_k",
}
MAX_CONDITION = 25.0
"""The largest condition number at which a law in size and tokens is fitted.

In simulation, 90% of the optimum's exponents were within 0.05 of the truth at condition 1, within 0.09 at
condition 6, and within 0.29 at condition 22, if models scatter by 1%.
"""

CAPTION = (
    "The law in size and tokens has no intervals, because the checkpoints of one model deviate from it together. "
    "Intervals that took them for independent points would be too narrow."
)


class Training(Analyzer):
    """Laws in size and training tokens over checkpoints, and the exponent in size at each number of tokens."""

    ks: tuple[PositiveInt, ...] = HEADLINE_KS
    """the k beside cross-entropy"""

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        frame = without_twins(runs.frame)
        frame = frame[frame["non_embedding_params"].notna() & (frame["training_tokens"] > 0).fillna(False)]
        frame = frame[frame.groupby(["family", "dataset"])["training_tokens"].transform("nunique") > 1]
        if not len(frame):
            report.notes.append("No family has checkpoints at several numbers of training tokens.")
            return report
        laws = []
        points = []
        comparable, report.notes = _comparable(frame)
        for family, dataset, rows in comparable:
            for tokens, of_tokens in rows.groupby("training_tokens"):
                self._add_alphas(report, runs[runs["run_id"].isin(of_tokens["run_id"])], family, float(str(tokens)))
            for metric, y in self._values(rows):
                keys: dict[str, Any] = {"family": family, "dataset": dataset, "metric": metric}
                law = self._fit(report, keys, rows, y)
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
            report.notes.append(CAPTION)
        self._draw(report)
        report.notes = list(dict.fromkeys(report.notes))  # the same of each D once
        report.headline = _headline(report, laws)
        return report

    def _add_alphas(self, report: Report, runs: Runs, family: str, tokens: float) -> None:
        """Add the law in size of the checkpoints of one D, where it has several sizes."""
        reading = read_families(runs, self.ks)
        for part, counts in reading:
            if len(part.s) < 2:
                continue
            for metric, law in laws_by_metric(part.s, counts).items():
                keys: dict[str, Any] = {"family": family, "dataset": part.dataset, "metric": metric, "D": tokens}
                report.add("alpha", law.alpha, **keys, beside={"R2": law.r2, "sizes": law.sizes})
        report.notes += reading.notes

    def _values(self, rows: pd.DataFrame) -> Iterator[tuple[str, FloatArray]]:
        """Each metric that every checkpoint has logged, as y > 0."""
        for metric in (CE, *map(rbp_name, self.ks)):
            if metric in rows and rows[metric].notna().all():
                logged = rows[metric].to_numpy(np.float64)
                with np.errstate(divide="ignore"):
                    y = logged if metric == CE else -np.log(logged)
                if np.isfinite(y).all() and (y > 0).all():
                    yield metric, y

    def _fit(self, report: Report, keys: dict[str, str], rows: pd.DataFrame, y: FloatArray) -> dict[str, Any] | None:
        """The law of one metric, (rows,), in size and tokens; None, with a note, where the checkpoints allow none."""
        s = rows["non_embedding_params"].to_numpy(np.float64)
        d = rows["training_tokens"].to_numpy(np.float64)
        where = f"{keys['family']} on {keys['dataset']}"
        sizes = len(np.unique(s))
        values_of_d = len(np.unique(d))
        if sizes < 3 or values_of_d < 3 or len(rows) < 8:
            needs = "the law in size and tokens needs 8 checkpoints of 3 sizes at 3 values of D"
            report.notes.append(f"{where}: {needs}; found {len(rows)} of {counted(sizes, 'size')} at {values_of_d}.")
            return None
        condition = design_condition(s, d)
        if condition > MAX_CONDITION:
            report.notes.append(
                f"{where}: tokens go with sizes (condition {condition:.3g}): their exponents cannot be separated."
            )
            return None
        return fit_law(s, d, y) | {"checkpoints": len(y), "sizes": sizes, "condition": condition}

    def _draw(self, report: Report) -> None:
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
    """Condition number of (ln S, ln D), centred: how far checkpoints tell size and tokens apart; infinite on D = k S.

    Source: arXiv 2605.08541.
    """
    logs = np.log(np.column_stack([s, d]))
    largest, smallest = np.linalg.svd(logs - logs.mean(axis=0), compute_uv=False)
    return float(largest / smallest) if smallest > 1e-9 * largest else inf


def fit_law(s: FloatArray, d: FloatArray, y: FloatArray) -> dict[str, Any]:
    """Fit ln y of y = E + A S^-alpha + B D^-beta by lmfit from several starts.

    Args:
        s: sizes S, (n,), at least 3 distinct ones.
        d: training tokens D, (n,), at least 3 distinct ones.
        y: positive values, (n,), at least 8.

    Returns:
        optimum, size_exponent, token_exponent and E, R2 and starts_agree.

    """
    x = np.log(s) - np.log(s).mean()
    t = np.log(d) - np.log(d).mean()
    ln_y = np.log(y)

    def residual(parameters: Any) -> FloatArray:
        v = parameters.valuesdict()
        terms = v["E"] + np.exp(v["ln_a"] - v["size_exponent"] * x) + np.exp(v["ln_b"] - v["token_exponent"] * t)
        return np.asarray(ln_y - np.log(terms))

    _, fits = least_squares(residual, _starts(y))
    best = fits[0]
    near = [fit for fit in fits if fit.chisqr <= best.chisqr * 1.004 + 1e-12]
    exponents = np.array([[fit.params[name].value for name in ("size_exponent", "token_exponent")] for fit in near])
    law: dict[str, Any] = {name: float(best.params[name].value) for name in PARAMETERS}
    total = float(((ln_y - ln_y.mean()) ** 2).sum())
    law["R2"] = nan if all_equal(y) else 1 - float(best.chisqr) / total
    law["starts_agree"] = len(near) > 1 and bool(np.ptp(exponents, axis=0).max() < 0.02)
    return law


def _starts(y: FloatArray) -> Iterator[Any]:
    """Parameters from which fits start, lmfit's: E at a share of the smallest y, and what is left halved."""
    import lmfit

    smallest = float(y.min())
    typical = float(np.exp(np.log(y).mean()))
    for share, alpha, beta in product((0.05, 0.4, 0.8), (0.15, 0.5), (0.15, 0.5)):
        half_of_rest = np.log(max(typical - share * smallest, 0.05 * smallest) / 2)
        start = lmfit.Parameters()
        start.add("E", value=share * smallest, min=0, max=smallest)
        start.add("ln_a", value=half_of_rest)
        start.add("ln_b", value=half_of_rest)
        start.add("sum", value=alpha + beta, min=1e-3, max=10)
        start.add("optimum", value=beta / (alpha + beta), min=1e-3, max=1 - 1e-3)
        start.add("size_exponent", expr="sum * (1 - optimum)")
        start.add("token_exponent", expr="sum * optimum")
        yield start


def _comparable(frame: pd.DataFrame) -> tuple[list[tuple[str, str, pd.DataFrame]], list[str]]:
    """Family, dataset and the rows of each law, which differ in size and checkpoint only; and notes."""
    comparable = []
    notes = []
    for (family, dataset), rows in frame.groupby(["family", "dataset"], sort=True):
        keys = [key for key in disagreeing(rows) if key not in ONE_POINT]
        for label, part in parts(rows, keys):
            name = f"{family} {label}".strip()
            counting, replaced = newest(part)
            notes += [f"{name} on {dataset}: {line}" for line in replaced]
            twins = _named_twice(counting)
            if twins.any():
                models = listed(sorted(set(counting.loc[twins, "model"])))
                notes.append(f"{name} on {dataset}: {models} left out, the same checkpoint under another name.")
            comparable.append((name, str(dataset), counting[~twins]))
    return comparable, notes


def _named_twice(rows: pd.DataFrame) -> pd.Series[bool]:
    """Whether a row is of a checkpoint that stands there under another revision, too, as the last step does as main.

    Of several names, that which most rows have is kept.
    """
    revision = rows["revision"].fillna("")
    model = rows["model"].str.partition("@")[0]
    by_use = rows.assign(uses=revision.map(revision.value_counts())).sort_values("uses", ascending=False, kind="stable")
    kept = revision[by_use.index].groupby([model, rows["training_tokens"]]).transform("first")
    return revision != kept.reindex(rows.index)


def _headline(report: Report, laws: list[dict[str, Any]]) -> str:
    if laws:
        family, dataset = laws[0]["family"], laws[0]["dataset"]
        of_first_family = [law for law in laws if (law["family"], law["dataset"]) == (family, dataset)]
        optima = []
        for law in of_first_family[:2]:
            optima.append(f"{number(law['optimum'], '.2f')} for {metric_label(law['metric'])}")
        return f"{family} on {dataset}: the best size grows with compute as C^a, a = {listed(optima)}."
    if "alpha" not in report.questions:
        return ""
    rows = report.frame("alpha")
    alphas = rows[rows["metric"] == CE].sort_values("D", kind="stable")["alpha"].to_numpy(np.float64)
    if len(alphas) < 2:
        return ""
    return f"CE's exponent in size goes from {number(alphas[0], '.3f')} to {number(alphas[-1], '.3f')} over training."
