"""Statistics of sums over documents, laws over sizes, and other forms of law.

A statistic is a function of sums over documents. `estimate` computes its value and its error. `laws` fits its law over
model sizes.
"""

from rbptrack.stats.changes import OtherTokens
from rbptrack.stats.documents import MIN_UNITS, estimate, estimates, y_with_intervals
from rbptrack.stats.estimate import Estimate
from rbptrack.stats.forecasts import MIN_TESTED_SIZES, bend_text, fit_floor, forecast
from rbptrack.stats.forms import (
    check_form,
    fit_form,
    power_law_aicc,
)
from rbptrack.stats.laws import (
    MIN_MISSES,
    MIN_SIZES,
    Law,
    few_documents_clause,
    fit,
    ks_with_enough_misses,
    law_in_k,
    laws,
    laws_by_metric,
    missing_interval_clause,
    share_scatter,
    why_no_interval,
    why_no_interval_in_k,
    why_no_law_in_k,
)
from rbptrack.stats.means import MIN_POOLED, Mean, mean_over_datasets, mean_over_families, random_effects
from rbptrack.stats.rounding import all_equal, first_largest, first_smallest, significant
from rbptrack.stats.sizes import crossing, middle_of_common_values, size_ratio
from rbptrack.stats.sums import (
    Sums,
    ce_and_neg_log_rbp,
    ce_and_rbp,
    cross_entropy,
    neg_log_rbp,
    neg_log_rbp_over_ce,
    rbp,
)
from rbptrack.stats.together import (
    Row,
    adjust,
    combination,
    correlations,
    homogeneity,
    independent_difference,
    paired_difference,
    simultaneous_level,
)

__all__ = [
    "MIN_MISSES",
    "MIN_POOLED",
    "MIN_SIZES",
    "MIN_TESTED_SIZES",
    "MIN_UNITS",
    "Estimate",
    "Law",
    "Mean",
    "OtherTokens",
    "Row",
    "Sums",
    "adjust",
    "all_equal",
    "bend_text",
    "ce_and_neg_log_rbp",
    "ce_and_rbp",
    "check_form",
    "combination",
    "correlations",
    "cross_entropy",
    "crossing",
    "estimate",
    "estimates",
    "few_documents_clause",
    "first_largest",
    "first_smallest",
    "fit",
    "fit_floor",
    "fit_form",
    "forecast",
    "homogeneity",
    "independent_difference",
    "ks_with_enough_misses",
    "law_in_k",
    "laws",
    "laws_by_metric",
    "mean_over_datasets",
    "mean_over_families",
    "middle_of_common_values",
    "missing_interval_clause",
    "neg_log_rbp",
    "neg_log_rbp_over_ce",
    "paired_difference",
    "power_law_aicc",
    "random_effects",
    "rbp",
    "share_scatter",
    "significant",
    "simultaneous_level",
    "size_ratio",
    "why_no_interval",
    "why_no_interval_in_k",
    "why_no_law_in_k",
    "y_with_intervals",
]
