import numpy as np
import pytest
from rbptrack.plugins.lack_of_fit.bends import bend_of, floor_bends, floor_test, smallest_floor
from rbptrack.plugins.lack_of_fit.law_forms import fit_forms
from scipy import stats

from rbptrack.base.errors import RbptrackError
from rbptrack.stats.power_law import fit_power_law

S = np.geomspace(1e6, 1e9, 7)
NOISE = np.full((7, 7), 0.02**2) + np.eye(7) * 1e-6  # documents move all sizes together


def law(share, *, alpha=0.3, tau=0.0, seed=0, s=S):
    """y = E + A S^-alpha whose E is this share of y at the largest size, where y = 1."""
    y = share + (1 - share) * (s / s.max()) ** -alpha
    return y * np.exp(tau * np.random.default_rng(seed).standard_normal(len(s)))


def both(y, s=S, noise=NOISE):
    """The law by S, and by S with 1e7 embeddings."""
    return fit_power_law(s, y, covariance=noise), fit_power_law(s + 1e7, y, covariance=noise)


def test_a_floor_bends_the_law_upwards_and_its_share_is_found():
    y = law(0.6, tau=0.001)
    bend, forms = bend_of(S, y, NOISE), fit_forms([(S, y, NOISE)])[0]
    assert bend.departure > 0
    assert bend.p_upwards < 0.01
    assert forms.fits[1].share.low < 0.6 < forms.fits[1].share.high
    assert forms.fits[1].e.value == pytest.approx(0.6, abs=0.05)
    assert forms.fits[1].alpha == pytest.approx(0.3, abs=0.05)
    assert forms.fits[1].aicc < forms.fits[0].aicc
    assert bend_of(S, 1 / y, NOISE).p_upwards > 0.99, "it bends downwards"


def test_a_plain_law_with_little_scatter_has_no_large_floor():
    assert fit_forms([(S, law(0.0, tau=0.0005), NOISE)])[0].fits[1].share.high <= 0.1
    assert fit_forms([(S, law(0.3, tau=0.08, seed=1), NOISE)])[0].fits[1].share.high > 0.5


@pytest.mark.parametrize("m", [6, 16])
def test_a_true_law_is_rarely_found_to_have_a_floor(m):
    """t3 scatter, sizes unevenly spaced, the smallest model 10% off: a likelihood ratio said so in 7 to 21%."""
    rng, said = np.random.default_rng(m), 0
    for _ in range(200):
        s = np.sort(np.exp(rng.uniform(np.log(1e6), np.log(1e10), m)))
        y = s**-0.1 * np.exp(0.01 * rng.standard_t(3, m))
        y[0] *= 1.1
        noise = 1e-6 * np.eye(m)
        said += floor_test(*both(y, s, noise)).p_floor < 0.05
    assert said / 200 <= 0.08


def test_a_floor_needs_both_ways_to_count_s():
    one, other = both(law(0.6, tau=0.001))
    assert floor_test(one, None).p_floor == 1
    assert floor_test(one, other).p_floor < floor_test(one, None).p_floor


def test_the_bend_of_a_floor_is_that_of_its_law():
    x = np.log(S)
    shares = np.array([0.1, 0.5])
    y = law(0.5)
    slope = -stats.linregress(x, np.log(y)).slope
    departures = floor_bends(x, np.array([slope]), shares)
    assert departures[1, 0] == pytest.approx(bend_of(S, y, NOISE).departure, rel=1e-6)
    assert 0 < departures[0, 0] < departures[1, 0]


def test_the_smallest_floor_is_found_in_eighty_percent():
    """Its power, simulated: draws of laws with that floor and the scatter that gave the standard error."""
    rng, tau, alpha, x = np.random.default_rng(0), 0.004, 0.1, np.log(S)
    spread = bend_of(S, law(0.0, alpha=alpha, tau=tau), np.zeros((7, 7))).spread
    weights = np.linalg.pinv(np.column_stack([np.ones(7), x, x**2]))
    error = tau * np.sqrt(bend_of(S, law(0.0, alpha=alpha), np.eye(7)).spread.known)
    assert weights.shape == (3, 7)
    critical = spread.half(0.95) / spread.se
    share = smallest_floor(x, alpha, error, critical=critical, freedom=spread.freedom)
    assert 0.1 < share < 0.95
    exponents = np.linspace(alpha, 3, 4000)  # the one whose line has this slope
    slopes = np.array([-np.polyfit(x, np.log(law(share, alpha=a)), 1)[0] for a in exponents])
    exact = law(share, alpha=float(np.interp(alpha, slopes, exponents)))
    drawn = exact * np.exp(tau * rng.standard_normal((600, 7)))
    power = np.mean([bend_of(S, y, np.zeros((7, 7))).p < 0.05 for y in drawn])
    assert 0.7 <= power <= 0.92


def test_too_few_sizes():
    with pytest.raises(RbptrackError, match="at least 5 sizes; got 4"):
        bend_of(S[:4], law(0.0)[:4], NOISE[:4, :4])
