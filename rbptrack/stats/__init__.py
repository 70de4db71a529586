"""Statistics of sums over documents, laws over sizes, and other forms of law.

A statistic is a function of sums over documents. `estimate` computes its value and its error. `laws` fits its law over
model sizes.
"""

from rbptrack.stats.changes import OtherTokens
from rbptrack.stats.contrasts import (
    MIN_POOLED,
    Mean,
    difference_of_exponents,
    mean_over_datasets,
    mean_over_families,
    pooled_scatter,
    random_effects,
)
from rbptrack.stats.documents import (
    MIN_UNITS,
    DocumentInfluences,
    Sums,
    ce_and_neg_log_rbp,
    ce_and_rbp,
    cross_entropy,
    estimate,
    estimate_from_influences,
    half_widths,
    influences,
    neg_log_rbp,
    neg_log_rbp_over_ce,
    only_totals,
    rbp,
    shares_of_tokens,
)
from rbptrack.stats.estimate import Estimate
from rbptrack.stats.forms import (
    MIN_SIZES,
    FormFit,
    Parameter,
    check_form,
    fit_floor,
    fit_form,
    least_squares,
    power_law_aicc,
)
from rbptrack.stats.laws import (
    FLOOR,
    Law,
    fit,
    huber_alpha,
    ks_of_law_in_k,
    law_in_k,
    laws,
    laws_by_metric,
    why_no_interval,
    why_no_interval_in_k,
)
from rbptrack.stats.misses import MIN_MISSES, ks_with_enough_misses
from rbptrack.stats.rounding import all_equal, first_largest, first_smallest, significant

__all__ = [
    "FLOOR",
    "MIN_MISSES",
    "MIN_POOLED",
    "MIN_SIZES",
    "MIN_UNITS",
    "DocumentInfluences",
    "Estimate",
    "FormFit",
    "Law",
    "Mean",
    "OtherTokens",
    "Parameter",
    "Sums",
    "all_equal",
    "ce_and_neg_log_rbp",
    "ce_and_rbp",
    "check_form",
    "cross_entropy",
    "difference_of_exponents",
    "estimate",
    "estimate_from_influences",
    "first_largest",
    "first_smallest",
    "fit",
    "fit_floor",
    "fit_form",
    "half_widths",
    "huber_alpha",
    "influences",
    "ks_of_law_in_k",
    "ks_with_enough_misses",
    "law_in_k",
    "laws",
    "laws_by_metric",
    "least_squares",
    "mean_over_datasets",
    "mean_over_families",
    "neg_log_rbp",
    "neg_log_rbp_over_ce",
    "only_totals",
    "pooled_scatter",
    "power_law_aicc",
    "random_effects",
    "rbp",
    "shares_of_tokens",
    "significant",
    "why_no_interval",
    "why_no_interval_in_k",
]
