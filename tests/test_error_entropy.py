from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rbptrack.plugins.error_entropy import ErrorEntropy
from rbptrack.plugins.error_entropy.decomposition import (
    decompose,
    decompose_pieces,
    part_covariance,
    part_errors,
    shares_of_fall,
)

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.reporting.telling import sentences_of
from tests.synthetic import changed, family_runs, one_law, ranked, runs_from, runs_of


def random_table(seed: int, *, tokens: int = 3000, documents: int = 30) -> RankTable:
    rng = np.random.default_rng(seed)
    rank = np.minimum(rng.zipf(1.5, size=tokens), 30)
    document = np.sort(rng.integers(0, documents, size=tokens))
    logprob = -1.5 * np.log(rank) - rng.gamma(2.0, 0.4, size=tokens)
    return ranked(rank, vocab_size=512, document=document, logprob=logprob)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(-20, -1e-3)), min_size=1, max_size=60))
def test_the_identity_holds_in_float64(cells: list[tuple[int, float]]) -> None:
    count = np.array([n for n, _ in cells])
    logprob = count * np.array([lp for _, lp in cells])
    histogram = RankHistogram(np.arange(1, len(cells) + 1), count, logprob, 100)
    ce, entropy, alignment, confidence = decompose(histogram)
    assert entropy + alignment + confidence == pytest.approx(ce, abs=1e-9)
    assert ce == pytest.approx(histogram.ce, abs=1e-12)
    assert entropy >= -1e-12
    assert alignment >= -1e-9


def test_parts_by_hand() -> None:
    histogram = RankHistogram(np.array([1, 4]), np.array([3, 1]), np.array([3 * np.log(0.5), np.log(0.25)]), 8)
    _, entropy, alignment, confidence = decompose(histogram)
    assert entropy == pytest.approx(-0.75 * np.log(0.75) - 0.25 * np.log(0.25))
    assert alignment == pytest.approx(0.75 * np.log(0.75 / (2 / 3)) + 0.25 * np.log(0.25 / (1 / 3)))
    assert confidence == pytest.approx(-np.log(0.75))


def test_standard_errors_are_those_of_a_document_bootstrap() -> None:
    table = random_table(1)
    parts = decompose_pieces([table], table.histogram())
    np.testing.assert_allclose(parts.influence.sum(axis=0), 0, atol=1e-12)
    rng = np.random.default_rng(0)
    document = table.column("document")
    rows = [np.flatnonzero(document == d) for d in range(30)]
    draws = []
    for _ in range(300):
        drawn = np.concatenate([rows[d] for d in rng.integers(0, 30, size=30)])
        draws.append(decompose(RankTable(table.table.take(drawn), 512).histogram()))
    jackknife = np.sqrt((parts.influence**2).sum(axis=0) * 30 / 29)
    np.testing.assert_allclose(jackknife, np.std(draws, axis=0), rtol=0.2)


def test_ranks_and_histogram_that_disagree_are_refused() -> None:
    table, other = random_table(1), random_table(2)
    with pytest.raises(RbptrackError, match="over 1e-6 apart"):
        decompose_pieces([table], other.histogram())


def test_a_run_whose_histogram_is_not_of_its_ranks_is_named_and_left_out() -> None:
    whole = family_runs(np.geomspace(1e4, 1e7, 5), alpha=0.1, a=3.0)
    wrong = changed(whole, histogram=lambda r: whole.histogram("toy-text-1" if r == "toy-text-0" else r))
    report = ErrorEntropy().analyze(wrong)
    assert len(report.tables["parts"].frame) == 4
    assert any("toy-10000 on text is left out: run toy-text-0: CE is" in note for note in report.notes)


def test_which_part_scales() -> None:
    report = ErrorEntropy().analyze(family_runs(np.geomspace(1e4, 1e7, 5), alpha=0.1, a=3.0))
    laws = report.tables["laws"].frame.set_index("part")
    assert laws.loc["ce", "alpha"] == pytest.approx(0.1, abs=1e-6)
    assert laws.loc[["error_entropy", "self_alignment", "confidence"], "share_of_ce"].sum() == pytest.approx(1)
    corrected = ["error_entropy_corrected", "self_alignment_corrected", "confidence_corrected"]
    assert laws.loc[corrected, "share_of_ce"].sum() == pytest.approx(1)
    assert np.isnan(laws.loc["confidence", "alpha"])  # negative: 64 ranks of which each has p = exp(-CE)
    assert "confidence (not positive at every size)" in " ".join(sentences_of(report.findings))
    parts = report.tables["parts"].frame
    np.testing.assert_allclose(parts[["error_entropy", "self_alignment", "confidence"]].sum(axis=1), parts["ce"])
    np.testing.assert_allclose(parts[corrected].sum(axis=1), parts["ce"], rtol=1e-3)  # the jackknife moves CE, too
    assert (parts["error_entropy_corrected"] > parts["error_entropy"]).all()


def test_error_entropy_against_cross_entropy_is_the_slope_of_their_ratio() -> None:
    sizes = np.geomspace(1e4, 1e7, 6)
    report = ErrorEntropy().analyze(family_runs(sizes, alpha=0.15, a=6.0, tokens=500))
    claim = report.tables["claims"].frame.iloc[0]
    parts = report.tables["parts"].frame
    slope = np.polyfit(np.log(sizes), np.log(parts[claim["part"]] / parts["ce"]), 1)[0]
    assert claim["difference"] == pytest.approx(-slope, rel=1e-4)  # sizes are whole numbers
    assert claim["difference"] == pytest.approx(claim["alpha"] - claim["alpha_ce"])
    assert claim["verdict"] == "different"
    assert claim["p_different"] < 0.01 < 0.5 < claim["p_equivalent"]
    assert claim["p_corrected"] >= claim["p_different"]
    first, last = parts["error_entropy_corrected"].iloc[[0, -1]] / parts["ce"].iloc[[0, -1]]
    headline = sentences_of(report.findings)[0]
    assert f"(toy on text: {claim['share_smallest']:.3f} to {claim['share_largest']:.3f})" in headline
    assert ("grows with S" in headline) == (last > first)
    assert "abstract" not in headline, "a few small models do not speak against a paper"


def test_a_power_law_that_leaves_a_seventh_of_the_variance_does_not_fit() -> None:
    """The demo's KL on pydocs: alpha's interval lies above 0, R^2 is .85."""
    sizes = np.geomspace(1e4, 1e7, 12)
    ahead = dict(zip(sizes, np.tile([2.5, 0.4], 6), strict=True))
    report = ErrorEntropy().analyze(runs_from(sizes, lambda s: one_law(0.15, 6.0)(s * ahead[s])))
    one = next(one for one in report.findings if one.question == "follows a power law")
    assert one.low > 0
    assert 0.6 < one.r2 < 0.95
    assert "no part follows a falling power law: error entropy (R^2 is below 0.95)" in " ".join(
        sentences_of(report.findings)
    )


def test_one_size_is_decomposed_and_no_law_is_claimed() -> None:
    report = ErrorEntropy().analyze(family_runs([1e5], alpha=0.1, a=3.0))
    assert set(report.tables) == {"summary", "parts"}
    assert report.notes[0] == "toy on text: which part of CE scales needs 3 sizes; found 1."


def test_a_family_that_does_not_improve() -> None:
    report = ErrorEntropy().analyze(runs_of([1e4, 1e5, 1e6], [np.ones(20)] * 3, documents=10, tokens=50))
    assert "does not fall" in " ".join(sentences_of(report.findings))


def test_shares_by_hand() -> None:
    ce = np.array([4.0, 3.5, 3.0, 2.0])
    values = np.column_stack([ce, 1 + 0.75 * ce, -1 + 0.25 * ce])
    influence = np.zeros((4, 5, 3))
    shares = shares_of_fall(values, influence, level=0.95)
    assert shares is not None
    assert [one.value for one in shares] == pytest.approx([0.75, 0.25])
    values[:, 1] += [0.1, -0.1, -0.1, 0.1]  # scatter between models
    scattered = shares_of_fall(values, influence, level=0.95)
    assert scattered is not None
    assert scattered[0].high - scattered[0].low > 0.2
    assert shares_of_fall(values[::-1], influence, level=0.95) is None
    influence[0, :, 0] = [1, -1, 1, -1, 0]  # CE's fall of 2 within 3 standard errors
    assert shares_of_fall(values, influence, level=0.95) is None


def test_covariance_by_hand() -> None:
    influence = np.array([[[0.1], [-0.1]], [[0.0], [0.0]]])  # one part, two documents, at two sizes
    np.testing.assert_allclose(part_covariance(influence)[0], [[0.04, 0], [0, 0]])


def test_standard_errors_of_few_documents_are_wider_and_of_many_the_covariance_s() -> None:
    rng = np.random.default_rng(0)
    for documents, low, high in ((20, 1.03, 1.9), (4000, 1.0, 1.002)):
        influence = rng.standard_normal((2, documents, 3)) / documents
        plain = np.sqrt(np.diagonal(part_covariance(influence), axis1=1, axis2=2)).T
        ratio = part_errors(influence) / plain
        assert ratio.shape == (2, 3)
        assert ((low < ratio) & (ratio < high)).all()
    one = np.zeros((1, 50, 1))
    one[0, 0] = 1.0  # a single document decides
    assert part_errors(one)[0, 0] > 5
