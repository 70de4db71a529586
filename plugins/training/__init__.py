"""The data and compute axes: y(S, D) = E + A S^-alpha + B D^-beta over training checkpoints, and compute-optimal sizes.

The form is that of Hoffmann et al. (arXiv 2203.15556, eq. 2), fitted to cross-entropy and to -ln RBP_k alike: it shows
whether the optimum of size at a given compute C = 6 S D is the same for ranks as for cross-entropy.

The fit is on logarithms from several starts; checkpoints of a model move together, and intervals are t with (models -
3) degrees of freedom. The best size at compute C grows as C^a with a = beta / (alpha + beta). If tokens grow with
size the exponents cannot be separated (arXiv 2605.08541): from a condition number of (ln S, ln D) above 25 the law is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from rbptrack.analysis import Analyzer, RbptrackError, Report, Runs, metric_part, rbp_name
from rbptrack.analysis.comparable import disagreeing, parts
from rbptrack.analysis.families import without_twins
from rbptrack.analysis.findings import Reason, Remark, Verdict, around
from rbptrack.base.words import counted
from rbptrack.ranks import CE, HEADLINE_KS, metric_label
from rbptrack.stats.size_laws import positive

from .figures import draw
from .findings import ComputeOptimum
from .rows import Fitted, checkpoint_rows, law_row, optimal_rows
from .training_law import fit_training_law


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
    ks: list[int] = field(default_factory=lambda: [*HEADLINE_KS])
    training_tokens: dict[str, float] = field(default_factory=dict)
    level: float = 0.95

    def analyze(self, runs: Runs) -> Report:
        """Fit every family x dataset with checkpoints of at least 3 sizes at 3 values of D."""
        report = Report(summary="laws")
        laws = list[Fitted]()
        frame = without_twins(runs.frame)
        frame = frame.assign(D=[self._tokens(row) for row in frame.to_dict("records")])
        frame = frame[frame["non_embedding_params"].notna() & (frame["D"] > 0)]
        for family, dataset, rows in _comparable(frame):
            sizes = rows["non_embedding_params"].nunique()
            several = rows["D"].nunique()
            if min(sizes, several) >= 3 and len(rows) >= 8:
                laws += self._fit({"dataset": dataset, "family": family}, rows, report.notes)
            elif several > 1:
                text = (
                    f"{family} on {dataset}: the law needs 8 checkpoints of 3 sizes at 3 values of D; found "
                    f"{len(rows)} of {counted(sizes, 'size')} at {several}."
                )
                report.notes.append(Remark(text, "few checkpoints"))
        if not laws:
            raise report.nothing_found(
                "no family has checkpoints: measure model=nano-checkpoints/* or give analyzer.training_tokens"
            )
        report.add_rows("laws", map(law_row, laws))
        report.add_rows("optimal_size", (row for law in laws for row in optimal_rows(law)))
        report.add_rows("points", (row for law in laws for row in checkpoint_rows(law)))
        for law in laws:
            where = "/".join(map(metric_part, (*reversed(law.keys.values()), law.metric)))
            report.metrics[f"training_alpha/{where}"] = law.law.alpha.value
            report.metrics[f"training_beta/{where}"] = law.law.beta.value
            report.metrics[f"compute_optimum/{where}"] = law.law.optimal.value
        report.findings += self._findings(laws)
        report.drawings = draw(laws)
        return report

    def _tokens(self, row: dict[Any, Any]) -> float:
        for pattern, tokens in self.training_tokens.items():
            if fnmatchcase(str(row["model"]), pattern):
                return float(tokens)
        return 0.0 if pd.isna(row["training_tokens"]) else float(row["training_tokens"])

    def _fit(self, keys: dict[str, str], rows: pd.DataFrame, notes: list[str]) -> Iterator[Fitted]:
        s = rows["non_embedding_params"].to_numpy(np.float64)
        d = rows["D"].to_numpy(np.float64)
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

    def _findings(self, laws: list[Fitted]) -> Iterator[ComputeOptimum]:
        """Yield the exponent of the best size in compute; different from the first metric's where their intervals
        part.
        """
        for fitted in laws:
            first = next(law for law in laws if law.keys == fitted.keys).law
            law = fitted.law
            per_parameter = fitted.d / fitted.s
            apart = law.optimal.low > first.optimal.high or law.optimal.high < first.optimal.low
            yield ComputeOptimum(
                case=fitted.keys | {"metric": fitted.metric},
                **around(law.optimal),
                verdict=Verdict.DIFFERENT if apart else Verdict.UNTOLD,
                reason="" if law.agreed else "starts disagree",
                checkpoints=law.points,
                sizes=law.models,
                level=self.level,
                least=float(per_parameter.min()),
                most=float(per_parameter.max()),
            )


def _comparable(frame: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield family, dataset and the rows of one law, which differ in size and checkpoint only."""
    for (family, dataset), rows in frame.groupby(["family", "dataset"], sort=True):
        keys = [key for key in disagreeing(rows) if key != "revision"]
        for label, part in parts(rows, keys):
            yield f"{family} {label}".strip(), str(dataset), part
