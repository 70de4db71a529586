"""The data and compute axes: y(S, D) = E + A S^-alpha + B D^-beta over training checkpoints, and compute-optimal sizes.

The form is that of Hoffmann et al. (arXiv 2203.15556, eq. 2), fitted to cross-entropy and to -ln RBP_k alike: it shows
whether the optimum of size at a given compute C = 6 S D is the same for ranks as for cross-entropy.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis import Analyzer, Drawing, RbptrackError, Report, Runs, metric_part, rbp_name
from rbptrack.analysis.families import without_twins
from rbptrack.analysis.family_figures import Curve, curve_panels
from rbptrack.analysis.findings import Finding, Reason, Remark, Verdict, around
from rbptrack.analysis.rows import R2, Column, NonEmbedding, OfMetric
from rbptrack.base.words import counted, short_number
from rbptrack.ranks import CE, FloatArray, metric_label
from rbptrack.stats.intervals import Interval
from rbptrack.stats.size_laws import positive
from rbptrack.stats.training_law import TrainingLaw, design_condition, fit_training_law

_LOW = "lower end of its interval (checkpoints of a model move together)"
Tokens = Annotated[float, Column("training tokens", title="D", form="short")]
Flops = Annotated[float, Column("compute, FLOPs (6 S D)", title="C", form=".3g")]
Ratio = Annotated[float, Column("tokens per parameter, D / S", title="D / S", form=".3g")]


@dataclass(kw_only=True)
class TrainingRow(OfMetric):
    """The law of one metric."""

    alpha: Annotated[Interval, Column("exponent of size S", title="α", form=".3f", low=_LOW)]
    beta: Annotated[Interval, Column("exponent of training tokens D", title="β", form=".3f")]
    E: Annotated[float, Column("irreducible term, in y's unit; 0: none is needed")]
    optimum: Annotated[
        Interval, Column("a of S*(C) ~ C^a, the best size at compute C = 6 S D: beta / (alpha + beta)", form=".2f")
    ]
    r2: R2
    between: Annotated[float, Column("scatter between models, in ln y", form=".4f")]
    within: Annotated[float, Column("scatter between checkpoints of a model, in ln y", form=".4f")]
    models: Annotated[int, Column("sizes")]
    checkpoints: Annotated[int, Column("points fitted")]
    starts_agree: Annotated[bool, Column("whether fits from several starts ended at the same exponents")]
    condition: Annotated[float, Column("of (ln S, ln D): 1 if unrelated; where D goes with S no law is fitted")]
    least_tokens_per_parameter: Annotated[float, Column("smallest D / S", title="D / S from", form=".3g")]
    most_tokens_per_parameter: Annotated[float, Column("largest D / S", title="to", form=".3g")]


@dataclass(kw_only=True)
class OptimalRow(OfMetric):
    """The best size at one compute."""

    C: Flops
    S: Annotated[float, Column("best size at it", title="S", form="short")]
    D: Tokens
    tokens_per_parameter: Ratio


@dataclass(kw_only=True)
class CheckpointRow(OfMetric):
    """One checkpoint under the law."""

    size: Annotated[str, Column("the size as published")]
    S: NonEmbedding
    D: Tokens
    C: Flops
    y: Annotated[float, Column("CE in nats, or -ln RBP_k")]
    residual: Annotated[float, Column("ln y - ln of the law")]


@dataclass(frozen=True)
class Fitted:
    """The law of one metric over the checkpoints of one family on one dataset."""

    keys: dict[str, str]
    metric: str
    rows: pd.DataFrame
    s: FloatArray
    d: FloatArray
    y: FloatArray
    law: TrainingLaw

    @property
    def row_keys(self) -> dict[str, str]:
        """Dataset, family and metric as a table has them."""
        return self.keys | {"metric": metric_label(self.metric)}

    @property
    def budgets(self) -> FloatArray:
        """Compute budgets within what was measured, (4,)."""
        low, high = np.quantile(6 * self.s * self.d, [0.25, 0.9])
        return np.geomspace(low, high, 4)


@dataclass(kw_only=True)
class Training(Analyzer):
    """Laws in size and training tokens over checkpoints (model=pythia-checkpoints/*), and compute-optimal sizes.

    A checkpoint's tokens D are its config's `model.training_tokens`, or what the option gives.

    Attributes:
        ks: the k beside cross-entropy; those that were logged are fitted.
        training_tokens: tokens D by pattern over model names, such as {"pythia-70m@step1000": 2.1e9}.
        level: nominal coverage of the intervals.

    """

    name: ClassVar[str] = "training"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    training_tokens: dict[str, float] = field(default_factory=dict)
    level: float = 0.95

    def analyze(self, runs: Runs) -> Report:
        """Fit every family x dataset with checkpoints of at least 3 sizes at 3 values of D."""
        report, laws = Report(summary="laws"), list[Fitted]()
        frame = without_twins(runs.frame)
        frame = frame.assign(D=[self._tokens(row) for row in frame.to_dict("records")])
        frame = frame[frame["non_embedding_params"].notna() & (frame["D"] > 0)]
        for (family, dataset), rows in frame.groupby(["family", "dataset"], sort=True):
            sizes, several = rows["non_embedding_params"].nunique(), rows["D"].nunique()
            if min(sizes, several) >= 3 and len(rows) >= 8:
                laws += self._fit({"dataset": str(dataset), "family": str(family)}, rows, report.notes)
            elif several > 1:
                text = (
                    f"{family} on {dataset}: the law needs 8 checkpoints of 3 sizes at 3 values of D; there are "
                    f"{len(rows)} of {counted(sizes, 'size')} at {several}."
                )
                report.notes.append(Remark(text, "few checkpoints"))
        if not laws:
            raise report.nothing_found(
                "no family has checkpoints: measure model=nano-checkpoints/* or give analyzer.training_tokens"
            )
        report.add_rows("laws", map(_law_row, laws))
        report.add_rows("optimal_size", (row for one in laws for row in _optimal_rows(one)))
        report.add_rows("points", (row for one in laws for row in _checkpoint_rows(one)))
        for one in laws:
            where = "/".join(map(metric_part, (*reversed(one.keys.values()), one.metric)))
            report.metrics |= {
                f"training_alpha/{where}": one.law.alpha.value,
                f"training_beta/{where}": one.law.beta.value,
            }
            report.metrics[f"compute_optimum/{where}"] = one.law.optimal.value
        report.findings += self._findings(laws)
        against = _panels(laws, _against_tokens, "D, training tokens")
        isoflop = _panels(laws, _isoflop, "S")
        report.drawings["against_tokens"] = Drawing(against, "Points: checkpoints. Lines: the law at each size.")
        report.drawings["isoflop"] = Drawing(isoflop, "The law at constant compute C = 6 S D. Dots: the best size.")
        return report

    def _tokens(self, row: dict[Any, Any]) -> float:
        given = [t for pattern, t in self.training_tokens.items() if fnmatchcase(str(row["model"]), pattern)]
        known = given[0] if given else row["training_tokens"]
        return 0.0 if pd.isna(known) else float(known)

    def _fit(self, keys: dict[str, str], rows: pd.DataFrame, notes: list[str]) -> Iterator[Fitted]:
        s, d = (rows[name].to_numpy(np.float64) for name in ("non_embedding_params", "D"))
        for metric in [CE, *map(rbp_name, self.ks)]:
            if metric not in rows or rows[metric].isna().any():
                continue
            logged = rows[metric].to_numpy(dtype=np.float64)
            with np.errstate(divide="ignore"):
                y = logged if metric == CE else -np.log(logged)
            where = f"{keys['family']} on {keys['dataset']}"
            if not positive(y):
                notes.append(f"{where}: {metric_label(metric)} is 0 or 1 for some checkpoint.")
                continue
            try:
                yield Fitted(keys, metric, rows, s, d, y, fit_training_law(s, d, y, level=self.level))
            except RbptrackError as error:  # of every metric alike: sizes and tokens go together
                notes.append(Remark(f"{where}: {error}.", Reason.KINDS))
                return

    def _findings(self, laws: list[Fitted]) -> Iterator[Finding]:
        """The exponent of the best size in compute; different from the first metric's where their intervals part."""
        for one in laws:
            first = next(law for law in laws if law.keys == one.keys).law
            law, optimal = one.law, one.law.optimal
            apart = optimal.low > first.optimal.high or optimal.high < first.optimal.low
            yield Finding(
                question="compute optimum",
                case=one.keys | {"metric": one.metric},
                **around(optimal),
                verdict=Verdict.DIFFERENT if apart else Verdict.UNTOLD,
                reason="" if law.agreed else "starts disagree",
                extras={"checkpoints": law.points, "sizes": law.models, "level": self.level}
                | {"tokens_per_parameter": ((one.d / one.s).min(), (one.d / one.s).max())},
            )


def _law_row(one: Fitted) -> TrainingRow:
    law, per_parameter = one.law, one.d / one.s
    return TrainingRow(
        **one.row_keys, alpha=law.alpha, beta=law.beta, E=law.e, optimum=law.optimal, r2=law.r2,
        between=law.between, within=law.within, models=law.models, checkpoints=law.points, starts_agree=law.agreed,
        condition=design_condition(one.s, one.d),
        least_tokens_per_parameter=float(per_parameter.min()), most_tokens_per_parameter=float(per_parameter.max()),
    )  # fmt: skip


def _optimal_rows(one: Fitted) -> Iterator[OptimalRow]:
    for c, s in zip(one.budgets, one.law.optimal_size(one.budgets), strict=True):
        d = c / 6 / s
        yield OptimalRow(**one.row_keys, C=float(c), S=float(s), D=float(d), tokens_per_parameter=float(d / s))


def _checkpoint_rows(one: Fitted) -> Iterator[CheckpointRow]:
    residual = np.log(one.y) - np.log(one.law.predict(one.s, one.d))
    for i, size in enumerate(one.rows["size"]):
        s, d = float(one.s[i]), float(one.d[i])
        yield CheckpointRow(
            **one.row_keys, size=str(size), S=s, D=d, C=6 * s * d, y=float(one.y[i]), residual=float(residual[i])
        )


def _panels(laws: list[Fitted], curves: Callable[[Fitted], Iterator[Curve]], xlabel: str) -> Figure:
    """A panel per law."""
    drawn = []
    for one in laws:
        panel = f"{one.keys['family']}, {one.keys['dataset']}: {metric_label(one.metric)}"
        drawn += [replace(curve, panel=panel) for curve in curves(one)]
    ylabel = "CE in nats, or −ln RBP$_k$"
    return curve_panels(drawn, xlabel=xlabel, ylabel=ylabel, legend=1.5, logs="xy", shades=True)[0]


def _against_tokens(one: Fitted) -> Iterator[Curve]:
    for s in np.unique(one.s):
        label, d = f"S = {short_number(float(s))}", one.d[one.s == s]
        line = np.geomspace(d.min(), d.max(), 40)
        yield Curve("", label, "", line, one.law.predict(np.full(40, s), line), options={"marker": ""})
        yield Curve("", label, label, d, one.y[one.s == s], options={"ls": "", "ms": 4, "markevery": 1})


def _isoflop(one: Fitted) -> Iterator[Curve]:
    sizes = np.geomspace(one.s.min() / 2, one.s.max() * 2, 60)
    for i, c in enumerate(one.budgets):
        y, best = one.law.predict(sizes, c / 6 / sizes), float(one.law.optimal_size(c))
        series = f"budget {i + 1}"
        yield Curve("", series, f"{series}: C = {c:.1e}", sizes, y, options={"marker": ""})
        if sizes[0] <= best <= sizes[-1]:
            yield Curve("", series, "", [best], one.law.predict([best], [c / 6 / best]), options={"ms": 5})
