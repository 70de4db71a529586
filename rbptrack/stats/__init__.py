"""The mathematics of the laws: pure functions on arrays, each with its formula and source in its docstring."""

from importlib import import_module
from typing import TYPE_CHECKING

from rbptrack.ranks import FloatArray, IntArray

if TYPE_CHECKING:
    from rbptrack.stats.bootstrap import (
        BOOTSTRAP_REPLICATES,
        BOOTSTRAP_SEED,
        bootstrap_metrics,
        document_weights,
        law_values,
        paired_covariance,
    )
    from rbptrack.stats.law_forms import GATES, FormFit, Verdict, compare_forms
    from rbptrack.stats.power_law import (
        Pooled,
        PowerLawFit,
        fit_power_law,
        huber_alpha,
        lack_of_fit,
        leave_largest_out,
        pool,
        without_each,
    )
    from rbptrack.stats.rank_distributions import (
        CANDIDATES,
        Candidate,
        IntegralApproximation,
        Support,
        integral_approximation,
    )
    from rbptrack.stats.rank_fit import (
        RankFit,
        fit_lognormal,
        fit_ranks,
        goodness_of_fit,
        information_se,
        log_sums,
        sampling_kl,
        vuong,
    )
    from rbptrack.stats.success_runs import (
        Answers,
        Ladder,
        Segments,
        WindowCounts,
        count_windows,
        ladder,
        read_answers,
    )

__all__ = [
    "BOOTSTRAP_REPLICATES",
    "BOOTSTRAP_SEED",
    "CANDIDATES",
    "GATES",
    "Answers",
    "Candidate",
    "FloatArray",
    "FormFit",
    "IntArray",
    "IntegralApproximation",
    "Ladder",
    "Pooled",
    "PowerLawFit",
    "RankFit",
    "Segments",
    "Support",
    "Verdict",
    "WindowCounts",
    "bootstrap_metrics",
    "compare_forms",
    "count_windows",
    "document_weights",
    "fit_lognormal",
    "fit_power_law",
    "fit_ranks",
    "goodness_of_fit",
    "huber_alpha",
    "information_se",
    "integral_approximation",
    "lack_of_fit",
    "ladder",
    "law_values",
    "leave_largest_out",
    "log_sums",
    "paired_covariance",
    "pool",
    "read_answers",
    "sampling_kl",
    "vuong",
    "without_each",
]

_MODULES = ("bootstrap", "power_law", "success_runs", "rank_distributions", "rank_fit", "law_forms")


def __getattr__(name: str) -> object:
    """A module loads when a name of it is first used: scipy and lmfit take a second, which not every command needs."""
    if name in __all__:
        for module in _MODULES:
            home = import_module(f"{__name__}.{module}")
            if name in vars(home):
                return vars(home)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
