"""Tests of charts: what they show, what they leave out, and the files that they are saved as."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.base.errors import BadInput
from rbptrack.figures import charts
from rbptrack.figures.explorer import _ends_with_zero, explorer
from rbptrack.ranks import RankHistogram

KS = [1, 3, 10, 30, 100]


def law_tables(*, ends: bool = True, datasets: tuple[str, ...] = ("wiki", "code")) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make points and laws y = S^-alpha for two sizes. Alpha is 0.1 + k / 1000 for RBP_k, and 0.05 for CE."""
    points: list[dict[str, Any]] = []
    laws: list[dict[str, Any]] = []
    width = 0.01 if ends else np.nan
    for dataset in datasets:
        for k in [0, *KS]:
            alpha = 0.1 + k / 1000 if k else 0.05
            keys = {"family": "pythia", "dataset": dataset, "metric": "rbp" if k else "ce", "k": k}
            for s in (1e6, 1e9):
                y = s**-alpha
                about = {"model": f"pythia-{s:g}", "S": s, "value": np.exp(-y), "y": y}
                points.append(keys | about | {"low": y - width, "high": y + width})
            line = {"S0": 1e6, "y0": 1e6**-alpha, "S1": 1e9, "y1": 1e9**-alpha}
            laws.append(keys | {"alpha": alpha, "low": alpha - width, "high": alpha + width} | line)
    return pd.DataFrame(points), pd.DataFrame(laws)


def tables_of(chart: Any) -> list[pd.DataFrame]:
    """The data of the laws, of the exponents and of the residuals, in the order of rows."""
    spec = chart.to_dict()
    left, exponents = spec["hconcat"]
    laws, residuals = left["vconcat"]
    sides = [laws, exponents, residuals]
    return [pd.read_csv(io.StringIO(spec["datasets"][side["data"]["name"]])) for side in sides]


def marks(spec: Any) -> set[str]:
    """Return the kinds of marks anywhere in a specification."""
    kinds = set()
    if isinstance(spec, dict):
        mark = spec.get("mark")
        if isinstance(mark, dict) and "type" in mark:  # the theme also has an entry `mark`, without a type
            kinds.add(mark["type"])
        for value in spec.values():
            kinds |= marks(value)
    if isinstance(spec, list):
        for value in spec:
            kinds |= marks(value)
    return kinds


def test_explorer_holds_every_number_of_its_tables() -> None:
    points, laws = law_tables()
    measured, exponents, residuals = tables_of(explorer(points, laws))
    assert residuals.equals(measured)
    assert len(measured) == len(points)
    assert measured["miss"].abs().max() < 1e-9
    assert len(exponents) == len(laws)
    alpha = np.where(measured["metric"] == "rbp", 0.1 + measured["k"] / 1000, 0.05)
    assert measured["y"].to_numpy() == pytest.approx(measured["S"] ** -alpha, rel=1e-3)
    assert measured["law"].to_numpy() == pytest.approx(measured["y"])
    assert exponents["alpha"].to_numpy() == pytest.approx(laws["alpha"], rel=1e-3)


def test_explorer_draws_a_law_from_its_smallest_to_its_largest_size() -> None:
    points, laws = law_tables()
    between = points[points["S"] == 1e6].assign(S=1e7, model="pythia-1e7")
    measured = tables_of(explorer(pd.concat([points, between]), laws))[0]
    assert set(measured.loc[measured["law"].notna(), "S"]) == {1e6, 1e9}
    alpha = np.where(measured["metric"] == "rbp", 0.1 + measured["k"] / 1000, 0.05)
    residual = np.where(measured["S"] == 1e7, 10**alpha - 1, 0)  # y is that of a size ten times smaller
    assert measured["miss"].to_numpy() == pytest.approx(residual, abs=1e-3)


def test_explorer_axes_hold_all_points_laws_and_intervals() -> None:
    points, laws = law_tables()
    points.loc[points["k"] == 100, "high"] *= 1.8
    points.loc[points["k"] == 10, "y"] *= np.where(points["S"] == 1e6, 1.5, 1.0)[points["k"] == 10]
    laws.loc[laws["k"] == 100, "high"] = 0.6
    chart = explorer(points, laws).to_dict()
    (axes,) = [parameter["value"] for parameter in chart["params"] if parameter["name"] == "axes"]
    for row in points.to_dict("records"):
        axis = axes[f"{row['metric']}{row['k']}"]
        assert axis["low"] < min(row["y"], row["low"])
        assert axis["high"] > max(row["y"], row["high"])
        law = row["S"] ** -(0.1 + row["k"] / 1000 if row["k"] else 0.05)
        assert axis["low"] < law < axis["high"]
        assert axis["far"] > max(abs(row[end] / law - 1) for end in ("y", "low", "high"))
    low, high = _ends_with_zero(laws)
    assert low <= 0
    assert high > 0.6


def test_explorer_has_three_panels_for_each_dataset(tmp_path: Path) -> None:
    datasets = ("first", "second", "third", "fourth")
    path = charts.save(explorer(*law_tables(datasets=datasets)), tmp_path / "x.svg")
    for name in datasets:
        assert path.read_text().count(f">{name}<") == 3


def test_explorer_leaves_a_panel_empty_if_its_dataset_lacks_k(tmp_path: Path) -> None:
    points, laws = law_tables()
    points = points[~((points["k"] == 10) & (points["dataset"] == "code"))]
    laws = laws[~((laws["k"] == 10) & (laws["dataset"] == "code"))]
    text = charts.save(explorer(points, laws), tmp_path / "x.svg").read_text()
    assert "dataset: wiki; value: −ln RBP_10" in text
    assert "dataset: code; value" not in text
    assert text.count(">code<") == 3


def test_explorer_without_ends_shows_no_intervals(tmp_path: Path) -> None:
    chart = explorer(*law_tables(ends=False))
    for table in tables_of(chart):
        assert table[["low", "high"]].isna().all(axis=None)
    text = charts.save(chart, tmp_path / "x.svg").read_text()
    assert "95% interval: ;" in text
    assert not re.search("null|NaN|undefined", text)


def test_explorer_escapes_names_in_expressions(tmp_path: Path) -> None:
    name = """it's "quoted" \\ </script>"""
    charts.save(explorer(*law_tables(datasets=(name,))), tmp_path / "x.svg")
    assert "it" in (tmp_path / "x.svg").read_text()


@pytest.mark.parametrize("alphas", [[0.1, 0.4], [-0.1, -0.1], [-0.2, -0.06], [-0.1, 0.3], [0.0], []])
def test_explorer_axis_of_exponents_holds_0_and_all_exponents(alphas: list[float]) -> None:
    low, high = _ends_with_zero(pd.DataFrame({"alpha": alphas, "low": np.nan, "high": np.nan}, dtype=float))
    assert low < high
    assert all(low <= alpha <= high for alpha in [0.0, *alphas])


@pytest.mark.parametrize(
    ("k", "shown"),
    [(10, "−ln RBP_10"), (1, "−ln RBP_1"), (12, "−ln RBP_10"), (5000, "−ln RBP_100"), (0, "cross-entropy, nats")],
)
def test_save_draws_the_explorer_at_the_nearest_k(tmp_path: Path, k: int, shown: str) -> None:
    path = charts.save(explorer(*law_tables()), tmp_path / "laws.svg", k=k)
    assert f"{shown}<" in path.read_text()


@pytest.mark.parametrize(("form", "begins"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_save_writes_files_of_each_format(tmp_path: Path, form: str, begins: bytes) -> None:
    frame = pd.DataFrame({"family": ["a", "a"], "dataset": "x", "S": [1e6, 1e7], "beta": [0.1, 0.2]})
    path = charts.save(charts.facets(frame, x="S", y="beta"), tmp_path / f"figure.{form}")
    assert path.read_bytes().startswith(begins)


def test_save_refuses_another_format(tmp_path: Path) -> None:
    frame = pd.DataFrame({"family": ["a"], "dataset": "x", "S": [1e6], "beta": [0.1]})
    with pytest.raises(BadInput, match="gif"):
        charts.save(charts.facets(frame, x="S", y="beta"), tmp_path / "figure.gif")
    assert not list(tmp_path.iterdir())


def test_facets_draws_intervals_only_if_some_have_ends() -> None:
    frame = pd.DataFrame({"family": ["a", "b"], "dataset": ["x", "y"], "S": [1e6, 1e7], "beta": [0.1, 0.2]})
    assert marks(charts.facets(frame, x="S", y="beta").to_dict()) == {"line", "point"}
    missing = frame.assign(low=np.nan, high=np.nan)
    assert marks(charts.facets(missing, x="S", y="beta").to_dict()) == {"line", "point"}
    known = frame.assign(low=[0.05, np.nan], high=[0.15, np.nan])
    assert marks(charts.facets(known, x="S", y="beta").to_dict()) == {"line", "point", "rule"}
    assert marks(charts.intervals(known, y="dataset", x="beta", facet="").to_dict()) == {"point", "rule"}


def test_facets_tooltip_shows_an_interval_that_the_axis_cuts(tmp_path: Path) -> None:
    frame = pd.DataFrame({"family": ["a"], "dataset": "x", "S": [1e6], "p": [0.1], "low": [0.001], "high": [0.2]})
    text = charts.save(charts.facets(frame, x="S", y="p", log="xy"), tmp_path / "x.svg").read_text()
    assert "95% interval: 0.001 to 0.2" in text


def test_intervals_puts_families_of_a_row_below_each_other(tmp_path: Path) -> None:
    frame = pd.DataFrame({"family": ["a", "b"], "dataset": "x", "metric": "ce", "alpha": [0.1, 0.1]})
    text = charts.save(charts.intervals(frame, x="alpha", y="metric"), tmp_path / "x.svg").read_text()
    assert len(set(re.findall(r'"point" transform="translate\([\d.]+,([\d.]+)\)"', text))) == 2


def test_intervals_names_metrics_as_tables_do(tmp_path: Path) -> None:
    frame = pd.DataFrame({"family": "a", "metric": ["ce", "rbp_1", "own_score"], "alpha": 0.1})
    text = charts.save(charts.intervals(frame, x="alpha", y="metric"), tmp_path / "x.svg").read_text()
    assert {"CE", "RBP_1", "own score"} <= set(re.findall(r">([^<]+)</text>", text))


def test_columns_that_a_chart_does_not_show_are_not_in_it() -> None:
    frame = pd.DataFrame({"family": ["a"], "dataset": "x", "S": [1e6], "beta": [0.1], "secret": ["not here"]})
    assert "not here" not in json.dumps(charts.facets(frame, x="S", y="beta").to_dict())


def test_a_themed_chart_carries_its_look_and_keeps_what_it_says_itself() -> None:
    frame = pd.DataFrame({"family": ["a"], "dataset": "x", "S": [1e6], "beta": [0.1]})
    chart = charts.facets(frame, x="S", y="beta")
    assert "gridColor" not in json.dumps(chart.to_dict())
    config = charts.themed(chart.configure_axis(gridColor="#ff0000")).to_dict()["config"]
    assert config["axis"]["gridColor"] == "#ff0000"
    assert config["axis"]["domainColor"] == charts.FAINT
    assert config["font"] == charts.FONT


def test_points_that_a_line_cannot_tell_apart_are_refused() -> None:
    frame = pd.DataFrame({"family": "a", "dataset": "x", "size": ["1", "2"] * 2, "S": [1e6, 1e7] * 2, "beta": 0.1})
    frame["metric"] = ["ce", "ce", "rbp_1", "rbp_1"]
    with pytest.raises(BadInput, match="metric"):
        charts.facets(frame, x="S", y="beta")
    with pytest.raises(BadInput, match="metric"):
        charts.intervals(frame, x="beta", y="size")
    for drawn in ({"colour": "metric"}, {"facet": "metric"}, {"dash": "metric"}, {"line": False}):
        assert charts.facets(frame, x="S", y="beta", **drawn).to_dict()
    with pytest.raises(BadInput, match="gamma"):
        charts.facets(frame, x="S", y="gamma")


def test_rank_distribution_shows_rbp_at_1_10_and_100(tmp_path: Path) -> None:
    rank = np.array([1, 5, 50, 500])
    histogram = RankHistogram(rank, np.array([40, 30, 20, 10]), np.zeros(4), 1000)
    text = charts.save(charts.rank_distribution(histogram, "pythia-70m on wiki"), tmp_path / "x.svg").read_text()
    assert "pythia-70m on wiki" in text
    for value in ("0.400", "0.700", "0.900"):
        assert f">{value}<" in text


@given(st.floats(1e-6, 1e6), st.floats(1.1, 1e9))
def test_ticks_lie_on_their_axis_and_are_few(low: float, span: float) -> None:
    ticks = charts.ticks(low, low * span)
    assert 1 <= len(ticks) <= 10
    assert all(low <= tick <= low * span for tick in ticks)
    assert ticks == sorted(set(ticks))
