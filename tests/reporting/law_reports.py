"""A report and a table for tests of tables, of the terminal and of the paper."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from rbptrack.analysis import Report, Term
from rbptrack.stats import Estimate

GLOSSARY = {
    "alpha": Term("exponent of the law", "α"),
    "A": Term("factor of the law", "A"),
    "delta": Term("exponent minus that of CE", "Δα vs. CE", "+.3g"),
    "held_out": Term("error at the largest size", "held-out error", "+.1%"),
    "beta": "slope in ln k",
}


def law_report(*, intervals: bool = True) -> Report:
    """Make a report with the exponents of CE and RBP_10, their held-out errors and the difference of the exponents.

    Without intervals, the estimates have unknown degrees of freedom.
    """
    report = Report(GLOSSARY)
    error = {"sampling": 1e-4} if intervals else {"df": math.nan}
    for metric, alpha in (("ce", 0.1), ("rbp_10", 0.25)):
        keys = {"family": "pythia", "dataset": "wiki", "metric": metric}
        report.add("alpha", Estimate(alpha, **error), **keys, null=0.0, beside={"A": 3.0})
        report.add("held_out", Estimate(0.05, **error), **keys, null=0.0, show=np.expm1)
        if metric != "ce":
            report.add("delta", Estimate(0.15, **error), **keys, null=0.0, margin=0.01)
    return report


TABLE_WITH_SPECIAL_CHARACTERS = pd.DataFrame({"family": ["a|b", "50%_x"], "α": ["0.1 ± 0.2", math.nan]})
