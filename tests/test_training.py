import numpy as np
import pandas as pd
import pytest
from rbptrack.plugins.training import Training

from rbptrack.analysis import RbptrackError, Runs
from rbptrack.analysis.runs import COLUMNS
from rbptrack.reporting.telling import sentences_of
from tests.synthetic import Given, changed, unreadable


def checkpoints(sizes: int = 4, *, known: bool = True) -> Runs:
    """y = 1 + 30 S^-0.35 + 200 D^-0.4 for CE, and another optimum for RBP_1; logged numbers only."""
    rows = []
    for s in np.geomspace(5e3, 5e5, sizes):
        for step in (64, 128, 256, 512, 1024):
            d = step * 2048.0
            ce = 1 + 30 * s**-0.35 + 200 * d**-0.4
            row = dict.fromkeys(COLUMNS) | {"family": "toy", "size": f"{s:.0f}", "model": f"toy-{s:.0f}@step{step}"}
            row |= {"run_id": row["model"], "fingerprint": row["model"], "dataset": "text", "revision": f"step{step}"}
            row |= {"non_embedding_params": int(s), "training_tokens": d if known else None, "ce": ce}
            rows.append(row | {"rbp_1": np.exp(-(0.1 + 20 * s**-0.35 + 100 * d**-0.3))})
    return Runs(pd.DataFrame(rows), Given(ranks=unreadable))


def test_the_law_and_the_optimum_are_found() -> None:
    report = Training(ks=[1]).analyze(checkpoints())
    laws = report.tables["laws"].frame.set_index("metric")
    assert laws.loc["CE", "alpha"] == pytest.approx(0.35, rel=0.01)
    assert laws.loc["CE", "beta"] == pytest.approx(0.4, rel=0.01)
    assert laws.loc["CE", "optimum"] == pytest.approx(0.4 / 0.75, rel=0.01)
    assert laws.loc["RBP_1", "optimum"] == pytest.approx(0.3 / 0.65, rel=0.02)
    said = sentences_of(report.findings)
    assert said[0].startswith("toy on text: the best size grows with compute as C^a, a = 0.53 (")
    assert "20 checkpoints of 4 sizes, 0.262 to 419 tokens per parameter" in " ".join(said)
    best = report.tables["optimal_size"].frame
    np.testing.assert_allclose(6 * best["S"] * best["D"], best["C"])


def test_probabilities_among_other_candidates_have_laws_of_their_own() -> None:
    runs = checkpoints()
    other = runs.frame.assign(candidates="tokenizer", ce=0.8 * runs.frame["ce"], run_id="other " + runs.frame["run_id"])
    both = pd.concat([runs.frame.assign(candidates="vocabulary"), other], ignore_index=True)
    laws = Training(ks=[]).analyze(changed(runs, both)).tables["laws"].frame.set_index("family")
    assert set(laws.index) == {"toy candidates tokenizer", "toy candidates vocabulary"}
    np.testing.assert_allclose(laws["alpha"].astype(float), 0.35, rtol=0.01)


def test_tokens_may_be_given() -> None:
    runs = checkpoints(known=False)
    with pytest.raises(RbptrackError, match="no family has checkpoints"):
        Training().analyze(runs)
    given = {f"*@step{n}": n * 2048.0 for n in (64, 128, 256, 512, 1024)}
    laws = Training(ks=[1], training_tokens=given).analyze(runs).tables["laws"].frame.set_index("metric")
    assert laws.loc["CE", "beta"] == pytest.approx(0.4, rel=0.01)


def test_checkpoints_on_a_ray_are_refused() -> None:
    """As many tokens per parameter in every model: size and tokens cannot be told apart."""
    runs = checkpoints()
    frame = runs.frame.assign(training_tokens=20.0 * runs.frame["non_embedding_params"].astype(float))
    frame["training_tokens"] *= np.tile([0.95, 1.0, 1.05, 1.0, 1.0], 4)
    with pytest.raises(RbptrackError, match=r"toy on text: tokens go with sizes .* D / S from 19 to 21"):
        Training().analyze(changed(runs, frame))


def test_two_sizes_are_too_few() -> None:
    with pytest.raises(RbptrackError, match="found 10 of 2 sizes at 5"):
        Training().analyze(checkpoints(2))
