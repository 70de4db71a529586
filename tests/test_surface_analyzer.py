import numpy as np

from plugins.surface import JointSurface
from tests.synthetic import runs_from

SIZES = np.geomspace(1e4, 1e7, 7)


def straight(s: float) -> tuple[list[float], float]:
    """-ln RBP_k = A_k S^-0.1 at every k below 64."""
    reached = np.exp(-3 * s**-0.1 * np.geomspace(1, 0.02, 63))
    return [*np.diff(reached, prepend=0), 1 - reached[-1]], 1.0


def test_a_law_at_every_k_shows_no_departure() -> None:
    report = JointSurface().analyze(runs_from(SIZES, straight, tokens=2000))
    assert report.notes[0].startswith("toy on text: the data show no departure from a power law")
    table = report.tables["alpha"].frame
    assert ((table["band_low"] <= 0.1) & (table["band_high"] >= 0.1)).all()


def test_a_bend_is_one_verdict_with_a_k_from_which_it_is_sure() -> None:
    def bent(s: float) -> tuple[list[float], float]:
        inner = np.exp(-3 * s**-0.1 * np.geomspace(1, 0.2, 32))
        beyond = 0.01 * (1 + 2 * (np.log10(s) - 5.5) ** 2)
        inner = np.diff(inner, prepend=0) * (1 - beyond) / inner[-1]
        return [*inner, *np.full(32, beyond / 32)], 1.0

    report = JointSurface().analyze(runs_from(SIZES, bent, tokens=2000))
    row = report.tables["summary"].frame.iloc[0]
    assert row["p"] < 0.01
    assert 0 < row["exceeded from"] <= 40
    assert row["shown to"] < row["exceeded from"]
    assert "a power law is rejected; p is" in report.headline
