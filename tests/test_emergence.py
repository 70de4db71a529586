from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from rbptrack.plugins.emergence import Emergence

from rbptrack.analysis import Report
from rbptrack.analysis.findings import Verdict
from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import RankTable
from rbptrack.reporting.telling import sentences_of
from tests.synthetic import ranked, runs_of_tables

SIZES = np.geomspace(1e4, 1e7, 5)
LENGTHS = [1, 2, 4, 8]
DOCUMENTS, TOKENS = 80, 400


def table(hits: np.ndarray, *, field: np.ndarray | None = None) -> RankTable:
    """(documents, tokens) of hits as ranks 1 and 5."""
    documents, tokens = hits.shape
    fields = np.tile(np.zeros(tokens) if field is None else field, documents)
    position = np.tile(np.arange(1, tokens + 1), documents)
    return ranked(np.where(hits, 1, 5), documents=documents, vocab_size=16, field=fields, position=position)


def success(s: float) -> float:
    """RBP_1 of the planted law -ln RBP_1 = 4 S^-0.2."""
    return float(np.exp(-4 * s**-0.2))


def bernoulli(p: float, rng: np.random.Generator) -> np.ndarray:
    return rng.random((DOCUMENTS, TOKENS)) < p


def markov(p: float, rng: np.random.Generator) -> np.ndarray:
    """A first-order chain with the same share of hits, that stays where it is with probability 1/2 more often."""
    hits = np.empty((DOCUMENTS, TOKENS), dtype=bool)
    hits[:, 0] = rng.random(DOCUMENTS) < p
    for t in range(1, TOKENS):
        hits[:, t] = rng.random(DOCUMENTS) < np.where(hits[:, t - 1], p + (1 - p) / 2, p / 2)
    return hits


def mixture(p: float, rng: np.random.Generator) -> np.ndarray:
    """Independent hits, easy and hard documents."""
    half = min(p, 1 - p) * 0.6
    level = np.where(np.arange(DOCUMENTS) % 2, p + half, p - half)
    return rng.random((DOCUMENTS, TOKENS)) < level[:, None]


def drift(p: float, rng: np.random.Generator) -> np.ndarray:
    """Independent hits whose share rises along the document."""
    return rng.random((DOCUMENTS, TOKENS)) < p + min(p, 1 - p) * np.linspace(-0.7, 0.7, TOKENS)


def both(p: float, rng: np.random.Generator) -> np.ndarray:
    """Stretches of 40 tokens that are all easy or all hard: neither documents nor neighbours."""
    level = np.repeat(rng.random((DOCUMENTS, TOKENS // 40)) < 0.5, 40, axis=1)
    half = min(p, 1 - p) * 0.8
    return rng.random((DOCUMENTS, TOKENS)) < np.where(level, p + half, p - half)


def report(draw: Callable[[float, np.random.Generator], np.ndarray], *, sizes: np.ndarray = SIZES) -> Report:
    rng = np.random.default_rng(11)
    tables = {f"r{i}": table(draw(success(s), rng)) for i, s in enumerate(sizes)}
    return Emergence(ks=[1], lengths=LENGTHS, replicates=200).analyze(runs_of_tables(sizes, tables))


@pytest.fixture(scope="module")
def independent() -> Report:
    return report(bernoulli)


def test_independent_hits_have_rho_1_and_n_eff_n(independent: Report) -> None:
    windows = independent.tables["windows"].frame
    seen = windows[(windows["N"] > 1) & windows["p"].notna()]
    assert len(seen) >= 12
    assert ((seen["rho_low"] <= 1) & (seen["rho_high"] >= 1)).mean() >= 0.85
    assert (seen["n_eff"] / seen["N"]).to_numpy() == pytest.approx(1, abs=0.1)
    assert seen["eta"].to_numpy(dtype=float) == pytest.approx(1, abs=0.15)
    tested = seen[seen["N"] > 2]
    assert (tested["verdict"] == "independent").mean() >= 0.8
    texts = sentences_of(independent.findings)
    assert texts[0].startswith("Undecided in all 5 cases whether successes in a row are independent")
    assert "independent ones or fewer (80% power)" in texts[0]
    change = next(text for text in texts if "whether the exponent changes" in text)
    assert "undecided" in change
    assert "only a change above 0." in change
    assert "could have been detected, 80% power" in change
    unproven = [finding for finding in independent.findings if finding.question != "half succeed"]
    assert {finding.verdict for finding in unproven} == {Verdict.UNTOLD}, "a null that is not rejected is not true"
    np.testing.assert_allclose(
        windows["p_independent"], windows.groupby("size")["p"].transform("first") ** windows["N"]
    )


def test_independent_hits_follow_the_paper(independent: Report) -> None:
    laws = independent.tables["laws"].frame.set_index("N")
    assert laws.loc[1, "alpha"] == pytest.approx(0.2, abs=0.02)
    for n in (2, 4):
        row = laws.loc[n]
        assert row["alpha_low"] < 0.2 < row["alpha_high"]
        assert row["alpha_change_low"] < 0 < row["alpha_change_high"]
        assert row["n_eff_per_n"] == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(
    ("draw", "expected", "mine", "other"),
    [
        (markov, "neighbours", "by_neighbours", "by_documents"),
        (mixture, "documents", "by_documents", "by_neighbours"),
        (drift, "position", "by_position", "by_documents"),
    ],
)
def test_what_was_planted_is_found(
    draw: Callable[[float, np.random.Generator], np.ndarray], expected: str, mine: str, other: str
) -> None:
    ladder = report(draw, sizes=SIZES[1:3])
    windows = ladder.tables["windows"].frame
    seen = windows[(windows["N"] > 2) & windows["p"].notna()]
    assert len(seen) >= 3
    assert seen["verdict"].eq(expected).all()
    assert sentences_of(ladder.findings)[0].startswith("Successes in a row are not independent in ")
    assert seen[mine].to_numpy(dtype=float) == pytest.approx(1, abs=0.1)
    assert (seen[other] < 0.7).all()
    assert (seen["rho_low"] > 1).all()
    assert (seen["n_eff_high"] < seen["N"]).all()


def test_longer_stretches_are_more_than_any_one() -> None:
    windows = report(both, sizes=SIZES[1:3]).tables["windows"].frame
    assert windows.loc[windows["N"] == 8, "verdict"].eq("more than any one").all()


def test_too_few_runs_are_refused() -> None:
    """Nine runs, and twenty that all lie in one document."""
    hits = np.zeros((40, 60), dtype=bool)
    hits[:9, :5] = True
    hits[:, 20] = True
    run = Emergence(ks=[1], lengths=[4, 5, 6], replicates=50).analyze(runs_of_tables([1e5], {"r": table(hits)}))
    windows = run.tables["windows"].frame.set_index("N")
    assert windows.loc[1, "p"] == pytest.approx((45 + 40) / 2400)
    assert windows.loc[4, "runs"] == 9
    assert windows.loc[4, "verdict"] == "too few runs"
    assert np.isnan(windows.loc[4, "p"])
    assert any("too few runs" in sentence for sentence in sentences_of(run.findings))
    one_document = np.zeros((40, 60), dtype=bool)
    one_document[0, ::3] = one_document[0, 1::3] = True
    run = Emergence(ks=[1], lengths=[2], replicates=50).analyze(runs_of_tables([1e5], {"r": table(one_document)}))
    assert run.tables["windows"].frame.set_index("N").loc[2, "verdict"] == "too few runs"


def test_a_model_that_never_fails() -> None:
    run = Emergence(ks=[1], lengths=[4], replicates=20).analyze(
        runs_of_tables([1e5], {"r": table(np.ones((20, 9), dtype=bool))})
    )
    assert sentences_of(run.findings) == ["toy on text: every token of 100000 has R <= k, so no sequence can fail."]
    assert run.tables["windows"].frame["p"].eq(1).all()


def test_a_k_of_the_whole_vocabulary_is_no_question() -> None:
    with pytest.raises(RbptrackError, match="no window can fail"):
        Emergence(ks=[16], lengths=[2], replicates=10).analyze(
            runs_of_tables([1e5], {"r": table(np.ones((20, 9), dtype=bool))})
        )
