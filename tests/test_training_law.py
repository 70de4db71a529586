import numpy as np
import pytest
from rbptrack.plugins.training.training_law import design_condition, fit_training_law

from rbptrack.base.errors import RbptrackError

SIZES, TOKENS = np.geomspace(5e3, 5e5, 5), np.geomspace(1e5, 4e6, 6)
S, D = np.repeat(SIZES, 6), np.tile(TOKENS, 5)
TRUTH = 1.0 + 30 * S**-0.35 + 200 * D**-0.4


def test_a_noiseless_law_is_found_exactly():
    law = fit_training_law(S, D, TRUTH)
    assert law.e == pytest.approx(1.0, rel=1e-3)
    assert law.alpha.value == pytest.approx(0.35, rel=1e-3)
    assert law.beta.value == pytest.approx(0.4, rel=1e-3)
    assert law.optimal.value == pytest.approx(0.4 / 0.75, rel=1e-3)
    assert law.agreed
    np.testing.assert_allclose(law.predict(S, D), TRUTH, rtol=1e-5)


def test_the_optimal_size_is_the_lowest_of_its_isoflop_curve():
    law = fit_training_law(S, D, TRUTH)
    c = 6 * 1e5 * 1e6
    best = float(law.optimal_size(c))
    along = law.predict([best / 1.3, best, best * 1.3], [c / 6 / best * 1.3, c / 6 / best, c / 6 / best / 1.3])
    assert along.argmin() == 1


def test_checkpoints_of_a_model_that_move_together_widen_alpha_and_not_beta():
    rng = np.random.default_rng(0)
    together = TRUTH * np.exp(np.repeat(0.02 * rng.standard_normal(5), 6))
    law, alone = (
        fit_training_law(S, D, together),
        fit_training_law(S, D, TRUTH * np.exp(0.002 * rng.standard_normal(30))),
    )
    assert law.between > law.within
    assert law.alpha.high - law.alpha.low > 3 * (alone.alpha.high - alone.alpha.low)
    assert law.alpha.low < 0.35 < law.alpha.high


def test_too_little_to_fit():
    with pytest.raises(RbptrackError, match="3 sizes, 3 values of D and 8 checkpoints; got 2"):
        fit_training_law(S[:12], D[:12], TRUTH[:12])


def test_on_a_ray_the_exponents_cannot_be_told_apart():
    """With D proportional to S any split of the fall between size and tokens fits."""
    assert design_condition(S, 20 * S) == np.inf
    assert design_condition(S, 3 * S**1.3) == np.inf
    assert design_condition(S, D) < 2
