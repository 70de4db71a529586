import numpy as np
import pytest

from rbptrack.base.errors import RbptrackError
from rbptrack.stats.contrasts import contrast, holm, laws_apart, ratio_law
from rbptrack.stats.power_law import fit_power_law
from rbptrack.stats.size_laws import LawValues

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
    assert contrast(law.alpha, law.spread, margin=0.05).verdict == "equivalent"
    assert contrast(law.alpha, law.spread, margin=0.001).verdict == "undecided"


def test_small_but_certain_differences_are_both():
    a, b = 3 * S**-0.20, 5 * S**-0.19
    noise = np.exp(1e-4 * np.random.default_rng(3).standard_normal((2, 7, 200)))
    law = ratio_law(S, a, b, a[:, None] * noise[0], b[:, None] * noise[1])
    assert contrast(law.alpha, law.spread, margin=0.05).verdict == "different, but within the margin"
    assert contrast(law.alpha, law.spread, margin=0.001).verdict == "different"


def test_the_equivalence_test_is_the_90_percent_interval_within_the_margin():
    a = 3 * S**-0.2 * np.exp(0.01 * np.random.default_rng(4).standard_normal(7))
    law = fit_power_law(S, a / S**-0.2, level=0.95)
    narrow = fit_power_law(S, a / S**-0.2, level=0.90)
    margin = max(abs(narrow.low), abs(narrow.high))
    assert contrast(law.alpha, law.spread, margin=margin).p_equivalent == pytest.approx(0.05, abs=1e-6)


def test_a_margin_must_be_positive():
    law = fit_power_law(S, S**-0.2)
    with pytest.raises(RbptrackError, match="margin must be above 0; got 0"):
        contrast(law.alpha, law.spread, margin=0)


def test_no_ratio_where_a_metric_is_zero():
    y = S**-0.2
    assert ratio_law(S, y, y * 0, np.ones((7, 5)), np.ones((7, 5))) is None


def values(s, alpha, rng, *, scatter, shared=0.0):
    """LawValues of one metric, with document bootstraps that are `shared` by whoever uses the same generator."""
    y = s**-alpha * np.exp(scatter * rng.standard_normal(len(s)))
    tilt = shared * np.random.default_rng(9).standard_normal(400)  # noise in the slope, the same documents
    draws = y[:, None] * np.exp(tilt * (np.log(s) - np.log(S).mean())[:, None])
    return s, LawValues(("ce",), y[:, None], draws[..., None])


def test_laws_of_other_sizes_differ_with_the_errors_of_both():
    one = values(S, 0.2, np.random.default_rng(5), scatter=0.02)
    other = values(S[:5] * 2, 0.1, np.random.default_rng(6), scatter=0.02)
    laws = laws_apart(one, other, "ce", same_texts=False)
    assert laws.alpha == pytest.approx(laws.a.alpha - laws.b.alpha)
    assert laws.alpha_spread.se == pytest.approx(np.hypot(laws.a.se, laws.b.se))
    assert 2 <= laws.alpha_spread.freedom <= 8
    assert laws.at == pytest.approx(np.sqrt(S[0] * 2 * min(S[-1], S[4] * 2)))
    assert laws.level == pytest.approx(np.log(laws.a.predict(laws.at) / laws.b.predict(laws.at)))


def test_what_documents_do_to_both_families_is_not_in_their_difference():
    one = values(S, 0.2, np.random.default_rng(5), scatter=1e-6, shared=0.05)
    other = values(S[:5] * 2, 0.1, np.random.default_rng(6), scatter=1e-6, shared=0.05)
    apart, together = (laws_apart(one, other, "ce", same_texts=same) for same in (False, True))
    assert apart.alpha_spread.se > 0.05
    assert together.alpha_spread.se < 1e-3


def test_holm_is_the_textbooks():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm([0.6, 0.5]), [1.0, 1.0])
