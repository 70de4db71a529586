"""The mathematics of the laws: pure functions on arrays, each with its formula and source in its docstring."""

from importlib import import_module
from typing import TYPE_CHECKING

from rbptrack.ranks import FloatArray, IntArray

if TYPE_CHECKING:
    from rbptrack.stats.answers import Answers, independent_share, read_answers
    from rbptrack.stats.bootstrap import (
        BOOTSTRAP_REPLICATES,
        BOOTSTRAP_SEED,
        bootstrap_metrics,
        document_weights,
        drawn_sums,
        paired_covariance,
    )
    from rbptrack.stats.contrasts import Apart, Contrast, contrast, holm, laws_apart, line_draws, ratio_law
    from rbptrack.stats.differences import (
        LOG_NATS,
        Difference,
        Drawn,
        logged_difference,
        metric_draws,
        metric_errors,
        on_common_documents,
        paired_differences,
        simultaneous_differences,
        unpaired_differences,
    )
    from rbptrack.stats.error_entropy import (
        Decomposition,
        decompose,
        decompose_pieces,
        part_covariance,
        part_errors,
        shares_of_fall,
    )
    from rbptrack.stats.forecasts import Forecast, forecast
    from rbptrack.stats.independence import (
        NULLS,
        LengthLaw,
        SuccessByLength,
        fit_length_laws,
        success_by_length,
    )
    from rbptrack.stats.intervals import (
        Interval,
        fieller,
        percentiles,
        share_interval,
        simultaneous,
        studentized,
        widening,
        worth,
    )
    from rbptrack.stats.irreducible import Irreducible, irreducible_term
    from rbptrack.stats.k_law import (
        KCurves,
        KLawFit,
        WorthOfDoubling,
        beta_interval,
        fit_k_law,
        k_curves,
        k_slopes,
        size_factor_read_off,
        worth_of_doubling,
    )
    from rbptrack.stats.law_forms import GATES, FormFit, Verdict, compare_forms, forms_in_words
    from rbptrack.stats.lognormal_sizes import LognormalTrend, lognormal_trend, mu_over_sigma
    from rbptrack.stats.nested import NestedFit, fit_nested, pure_error
    from rbptrack.stats.noise_floor import alphas_without_documents, design_effect, expected_r2, largest_k_without_gap
    from rbptrack.stats.position import PositionCurves, position_curves, position_sums
    from rbptrack.stats.power_law import (
        PointDiagnostics,
        Pooled,
        PowerLawFit,
        fit_power_law,
        huber_alpha,
        lack_of_fit,
        leave_largest_out,
        point_diagnostics,
        pool,
        without_each,
    )
    from rbptrack.stats.published import implied_se, rounding_se
    from rbptrack.stats.rank_and_probability import (
        NATS_EDGES,
        RANK_EDGES,
        RankAndProbability,
        countable_ks,
        held_out_errors,
        quantiles_by_bin,
        rates_by_bin,
        sign_flip_p,
        split_of_gain,
    )
    from rbptrack.stats.rank_distributions import (
        CANDIDATES,
        Candidate,
        Support,
    )
    from rbptrack.stats.rank_fit import RankFit, fit_ranks, goodness_of_fit, sampling_kl, vuong
    from rbptrack.stats.rank_lognormal import (
        IntegralApproximation,
        fit_lognormal,
        information_covariance,
        integral_approximation,
        log_sums,
    )
    from rbptrack.stats.rank_sizes import RanksOfSize, fit_size
    from rbptrack.stats.size_laws import LawValues, fit_law, law_values, positive
    from rbptrack.stats.smooth_entropy import BinnedRanks, rank_bins, smooth_parts
    from rbptrack.stats.spread import Spread
    from rbptrack.stats.success_runs import (
        Ladder,
        PositionBins,
        RunCounts,
        Segments,
        WindowCounts,
        count_runs,
        count_windows,
        ladder,
    )
    from rbptrack.stats.surface import SCATTERS, Limit, Surface, fit_surface
    from rbptrack.stats.thresholds import RunSuccess, Threshold, threshold, width_in_decades
    from rbptrack.stats.token_classes import (
        KINDS,
        ClassCounts,
        class_weights,
        frequency_bins,
        kind_of,
        mix_and_within,
        starts_word,
    )
    from rbptrack.stats.training_law import TrainingLaw, fit_training_law
    from rbptrack.stats.words import TokenShapes, WordCounts

__all__ = [
    "BOOTSTRAP_REPLICATES",
    "BOOTSTRAP_SEED",
    "CANDIDATES",
    "GATES",
    "KINDS",
    "LOG_NATS",
    "NATS_EDGES",
    "NULLS",
    "RANK_EDGES",
    "SCATTERS",
    "Answers",
    "Apart",
    "BinnedRanks",
    "Candidate",
    "ClassCounts",
    "Contrast",
    "Decomposition",
    "Difference",
    "Drawn",
    "FloatArray",
    "Forecast",
    "FormFit",
    "IntArray",
    "IntegralApproximation",
    "Interval",
    "Irreducible",
    "KCurves",
    "KLawFit",
    "Ladder",
    "LawValues",
    "LengthLaw",
    "Limit",
    "LognormalTrend",
    "NestedFit",
    "PointDiagnostics",
    "Pooled",
    "PositionBins",
    "PositionCurves",
    "PowerLawFit",
    "RankAndProbability",
    "RankFit",
    "RanksOfSize",
    "RunCounts",
    "RunSuccess",
    "Segments",
    "Spread",
    "SuccessByLength",
    "Support",
    "Surface",
    "Threshold",
    "TokenShapes",
    "TrainingLaw",
    "Verdict",
    "WindowCounts",
    "WordCounts",
    "WorthOfDoubling",
    "alphas_without_documents",
    "beta_interval",
    "bootstrap_metrics",
    "class_weights",
    "compare_forms",
    "contrast",
    "count_runs",
    "count_windows",
    "countable_ks",
    "decompose",
    "decompose_pieces",
    "design_effect",
    "document_weights",
    "drawn_sums",
    "expected_r2",
    "fieller",
    "fit_k_law",
    "fit_law",
    "fit_length_laws",
    "fit_lognormal",
    "fit_nested",
    "fit_power_law",
    "fit_ranks",
    "fit_size",
    "fit_surface",
    "fit_training_law",
    "forecast",
    "forms_in_words",
    "frequency_bins",
    "goodness_of_fit",
    "held_out_errors",
    "holm",
    "huber_alpha",
    "implied_se",
    "independent_share",
    "information_covariance",
    "integral_approximation",
    "irreducible_term",
    "k_curves",
    "k_slopes",
    "kind_of",
    "lack_of_fit",
    "ladder",
    "largest_k_without_gap",
    "law_values",
    "laws_apart",
    "leave_largest_out",
    "line_draws",
    "log_sums",
    "logged_difference",
    "lognormal_trend",
    "metric_draws",
    "metric_errors",
    "mix_and_within",
    "mu_over_sigma",
    "on_common_documents",
    "paired_covariance",
    "paired_differences",
    "part_covariance",
    "part_errors",
    "percentiles",
    "point_diagnostics",
    "pool",
    "position_curves",
    "position_sums",
    "positive",
    "pure_error",
    "quantiles_by_bin",
    "rank_bins",
    "rates_by_bin",
    "ratio_law",
    "read_answers",
    "rounding_se",
    "sampling_kl",
    "share_interval",
    "shares_of_fall",
    "sign_flip_p",
    "simultaneous",
    "simultaneous_differences",
    "size_factor_read_off",
    "smooth_parts",
    "split_of_gain",
    "starts_word",
    "studentized",
    "success_by_length",
    "threshold",
    "unpaired_differences",
    "vuong",
    "widening",
    "width_in_decades",
    "without_each",
    "worth",
    "worth_of_doubling",
]

_MODULES = (
    "bootstrap",
    "power_law",
    "size_laws",
    "noise_floor",
    "position",
    "published",
    "intervals",
    "spread",
    "differences",
    "k_law",
    "error_entropy",
    "smooth_entropy",
    "success_runs",
    "independence",
    "answers",
    "rank_and_probability",
    "rank_distributions",
    "rank_lognormal",
    "lognormal_sizes",
    "rank_fit",
    "rank_sizes",
    "law_forms",
    "contrasts",
    "irreducible",
    "forecasts",
    "nested",
    "surface",
    "thresholds",
    "token_classes",
    "training_law",
    "words",
)


def __getattr__(name: str) -> object:
    """A module loads when a name of it is first used: scipy and lmfit take a second, which not every command needs."""
    if name in __all__:
        for module in _MODULES:
            home = import_module(f"{__name__}.{module}")
            if name in vars(home):
                return vars(home)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
