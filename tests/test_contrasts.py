import numpy as np
import pytest

from rbptrack.errors import RbptrackError
from rbptrack.stats.contrasts import contrast, ratio_law, unpaired
from rbptrack.stats.power_law import fit_power_law

S = np.geomspace(1e6, 1e9, 7)


def draws(y, rng, *, shared=0.05, own=0.001):
    return y[:, None] * np.exp(shared * rng.standard_normal(200) + own * rng.standard_normal((len(y), 200)))


def test_what_both_metrics_share_cancels_in_the_ratio():
    rng = np.random.default_rng(0)
    scatter = np.exp(0.05 * rng.standard_normal(7))  # one model ahead, another behind, in both metrics alike
    a, b = 3 * S**-0.20 * scatter, 5 * S**-0.15 * scatter
    law = ratio_law(S, a, b, draws(a, np.random.default_rng(1)), draws(b, np.random.default_rng(1)))
    assert law.alpha == pytest.approx(0.05, abs=1e-9)
    assert law.high - law.low < 1e-6
    alone = fit_power_law(S, a)
    assert alone.high - alone.low > 0.01


def test_equivalence_needs_an_interval_within_the_margin():
    rng = np.random.default_rng(2)
    a, b = 3 * S**-0.20 * np.exp(0.01 * rng.standard_normal(7)), 5 * S**-0.198
    law = ratio_law(S, a, b, draws(a, rng), draws(b, rng))
    assert contrast(law, margin=0.05).verdict == "equivalent"
    assert contrast(law, margin=0.001).verdict == "not to be told"


def test_small_but_certain_differences_are_both():
    a, b = 3 * S**-0.20, 5 * S**-0.19
    noise = np.exp(1e-4 * np.random.default_rng(3).standard_normal((2, 7, 200)))
    law = ratio_law(S, a, b, a[:, None] * noise[0], b[:, None] * noise[1])
    assert contrast(law, margin=0.05).verdict == "different, but within the margin"
    assert contrast(law, margin=0.001).verdict == "different"


def test_the_equivalence_test_is_the_90_percent_interval_within_the_margin():
    a = 3 * S**-0.2 * np.exp(0.01 * np.random.default_rng(4).standard_normal(7))
    law = fit_power_law(S, a / S**-0.2, level=0.95)
    narrow = fit_power_law(S, a / S**-0.2, level=0.90)
    margin = max(abs(narrow.low), abs(narrow.high))
    assert contrast(law, margin=margin).p_equivalent == pytest.approx(0.05, abs=1e-6)


def test_a_margin_must_be_positive():
    with pytest.raises(RbptrackError, match="margin must be above 0; got 0"):
        contrast(fit_power_law(S, S**-0.2), margin=0)


def test_no_ratio_where_a_metric_is_zero():
    y = S**-0.2
    assert ratio_law(S, y, y * 0, np.ones((7, 5)), np.ones((7, 5))) is None


def test_unpaired_is_welch():
    rng = np.random.default_rng(5)
    a = fit_power_law(S, S**-0.2 * np.exp(0.02 * rng.standard_normal(7)))
    b = fit_power_law(S[:5], S[:5] ** -0.1 * np.exp(0.02 * rng.standard_normal(5)))
    both = unpaired(a, b)
    assert both.alpha == pytest.approx(a.alpha - b.alpha)
    assert both.se == pytest.approx(np.hypot(a.se, b.se))
    assert 3 <= both.points - 2 <= 8
