import numpy as np
import pytest
from rbptrack.plugins.lack_of_fit.bends import LEAST_KEPT
from rbptrack.plugins.lack_of_fit.surface import fit_surface

from rbptrack.base.errors import RbptrackError

KS = np.unique(np.rint(np.geomspace(1, 3000, 20)).astype(int))
ALPHA = np.linspace(0.2, 0.5, len(KS))
S = np.geomspace(1e4, 1e7, 7)
X = np.log(S / S.mean())
CURVE = (X - X.mean()) ** 2
CURVE = CURVE - np.polyval(np.polyfit(X, CURVE, 1), X)
CURVE = CURVE / np.abs(CURVE).max()


def family(rng, *, sigma=0.05, bend=0.0, documents=100, from_k=1000):
    """ln y = -alpha_k (x + a deviation of each model) + bend where k >= from_k, and documents that move all alike."""
    truth = -ALPHA * (X[:, None] + sigma * rng.standard_normal((7, 1))) + bend * CURVE[:, None] * (from_k <= KS)
    own = 1 + 0.05 * rng.standard_normal((documents, 7, 1)) + 0.02 * rng.standard_normal((documents, 7, len(KS)))
    own = own + 0.2 * rng.standard_normal((documents, 1, 1))
    weights = rng.multinomial(documents, np.full(documents, 1 / documents), size=200) / documents
    draws = np.einsum("bd,dmk->mbk", weights, own)
    return np.exp(truth) * own.mean(axis=0), np.exp(truth)[:, None, :] * draws


def test_a_law_at_every_k_is_found_and_kept():
    rng = np.random.default_rng(0)
    rejected, held = [], []
    for _ in range(60):
        surface = fit_surface(S, KS, *family(rng))
        low, high = surface.band
        rejected.append(surface.p < 0.05)
        held.append(bool(((low <= ALPHA) & (high >= ALPHA)).all()))
    assert np.mean(rejected) <= 0.12
    assert np.mean(held) >= 0.88
    assert surface.sigma == pytest.approx(0.05, rel=1.0)


def test_a_bend_at_small_k_is_seen_beside_laws_elsewhere():
    """A family whose slope changes at small k alone: its own scatter would hide it."""
    rng = np.random.default_rng(1)
    truth_ends = [fit_surface(S, KS, *family(rng, sigma=0.01, bend=0.08, from_k=1)).p for _ in range(5)]
    assert max(truth_ends) < 0.01


def test_k_star_lies_between_its_certain_ends():
    surface = fit_surface(S, KS, *family(np.random.default_rng(2), sigma=0.01, bend=0.15, documents=400))
    limit = surface.limit(0.05)
    first = int(KS[KS >= 1000][0])
    assert limit.shown <= limit.k < first
    assert limit.exceeded >= first
    assert limit.shown > 0


def test_nothing_is_certain_with_much_scatter():
    limit = fit_surface(S, KS, *family(np.random.default_rng(3), sigma=1.0)).limit(0.01)
    assert limit.shown == 0
    assert limit.exceeded == 0


def test_offsets_name_the_model_that_is_ahead():
    y, draws = family(np.random.default_rng(4), sigma=0.0, documents=2000)
    ahead = np.exp(-ALPHA * 0.5)
    y[3] *= ahead
    draws[3] *= ahead
    surface = fit_surface(S, KS, y, draws)
    assert int(np.argmax(surface.offset)) == 3
    assert surface.offset[3] == pytest.approx(0.5 * 6 / 7, rel=0.1)


def test_scatter_in_proportion_to_alpha_fits_better_where_it_is():
    rng = np.random.default_rng(5)
    better = 0
    for _ in range(20):
        y, draws = family(rng, sigma=0.2, documents=1000)
        fit = fit_surface(S, KS, y, draws).fit
        better += fit["proportional"] < fit["equal"]
    assert better >= 15


def test_what_it_cannot_take():
    y, draws = family(np.random.default_rng(6))
    with pytest.raises(RbptrackError, match="at least 5 sizes; got 4"):
        fit_surface(S[:4], KS, y[:4], draws[:4])
    with pytest.raises(RbptrackError, match="positive"):
        fit_surface(S, KS, -y, draws)


def test_few_documents_widen_the_band():
    """In 60 draws of 30 documents: a bootstrap of them, taken for the whole error, rejects too often."""
    rng = np.random.default_rng(7)
    given = [family(rng, sigma=0.02, documents=30) for _ in range(60)]
    many, few = ([fit_surface(S, KS, *one, documents=count) for one in given] for count in (np.inf, 30))
    assert all(b.alpha_se[0] > a.alpha_se[0] for a, b in zip(many, few, strict=True))
    assert np.mean([one.p < 0.05 for one in few]) <= min(0.1, np.mean([one.p < 0.05 for one in many]))


def test_end_sizes_that_scatter_more_are_no_bend():
    """Where sampling error is as large as the scatter of the others: 15% of 200 such families, now 2%."""
    rng = np.random.default_rng(8)
    scatter = 0.01 * np.where(np.arange(7) % 6 == 0, 3.6, 1.0)[:, None]
    bent = 0
    for _ in range(60):
        y, draws = family(rng, sigma=0.0)
        factor = np.exp(-ALPHA * scatter * rng.standard_normal((7, 1)))
        bent += fit_surface(S, KS, y * factor, draws * factor[:, None, :]).p < 0.05
    assert bent <= 6


def test_a_bend_that_one_end_makes_is_not_kept():
    y, draws = family(np.random.default_rng(9), sigma=0.0, documents=2000)
    outlier = np.where(np.arange(7) == 0, 1.1, 1.0)[:, None]
    assert fit_surface(S, KS, y * outlier, draws * outlier[:, None, :]).kept < LEAST_KEPT
    y, draws = family(np.random.default_rng(9), sigma=0.0, documents=2000, bend=0.1, from_k=1)
    assert fit_surface(S, KS, y, draws).kept > LEAST_KEPT
