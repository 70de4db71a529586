"""Tests of charts: what they show, what they leave out, and the files that `save` writes."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.base.errors import BadInput
from rbptrack.figures import charts
from rbptrack.figures.explorer import explorer
from rbptrack.ranks import RankHistogram

KS = [1, 3, 10, 30, 100]


def law_tables(
    *, intervals: bool = True, datasets: tuple[str, ...] = ("wiki", "code")
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make the points of two sizes, and the laws of the points. Each point lies exactly on its law y = S^-alpha.

    Alpha is 0.05 for CE (which has k = 0), and 0.1 + k / 1000 for RBP_k. Intervals reach 0.01 to each side. If
    `intervals` is false, their ends are NaN.

    Returns:
        The table of points and the table of laws.
    """
    points: list[dict[str, Any]] = []
    laws: list[dict[str, Any]] = []
    half_width = 0.01 if intervals else np.nan
    for dataset in datasets:
        for k in [0, *KS]:
            alpha = 0.1 + k / 1000 if k else 0.05
            case = {"family": "pythia", "dataset": dataset, "metric": "rbp" if k else "ce", "k": k}
            for s in (1e6, 1e9):
                y = s**-alpha
                point = {"model": f"pythia-{s:g}", "S": s, "value": np.exp(-y), "y": y}
                points.append(case | point | {"low": y - half_width, "high": y + half_width})
            line = {"S0": 1e6, "y0": 1e6**-alpha, "S1": 1e9, "y1": 1e9**-alpha}
            ends = {"low": alpha - half_width, "high": alpha + half_width}
            band = {"band_low": alpha - 1.5 * half_width, "band_high": alpha + 1.5 * half_width}
            laws.append(case | {"alpha": alpha} | ends | band | line)
    return pd.DataFrame(points), pd.DataFrame(laws)


def explorer_tables(chart: Any) -> list[pd.DataFrame]:
    """Return two tables from an explorer: the points with their laws and residuals, and the exponents."""
    spec = chart.to_dict()
    columns = spec["hconcat"]
    return [pd.read_csv(io.StringIO(spec["datasets"][column["data"]["name"]])) for column in columns]


def mark_types(spec: Any) -> set[str]:
    """Return the types of all marks in a Vega-Lite specification, such as `line` and `point`."""
    kinds = set()
    if isinstance(spec, dict):
        mark = spec.get("mark")
        if isinstance(mark, dict) and "type" in mark:  # the theme also has an entry `mark`, without a type
            kinds.add(mark["type"])
        for value in spec.values():
            kinds |= mark_types(value)
    if isinstance(spec, list):
        for value in spec:
            kinds |= mark_types(value)
    return kinds


def test_explorer_holds_every_point_with_its_law_and_residual() -> None:
    points, laws = law_tables()
    drawn, _ = explorer_tables(explorer(points, laws))
    assert len(drawn) == len(points)
    assert drawn["residual"].abs().max() < 1e-9
    alpha = np.where(drawn["metric"] == "rbp", 0.1 + drawn["k"] / 1000, 0.05)
    assert drawn["y"].to_numpy() == pytest.approx(drawn["S"] ** -alpha, rel=1e-3)
    assert drawn["law"].to_numpy() == pytest.approx(drawn["y"])


def test_explorer_holds_every_exponent() -> None:
    points, laws = law_tables()
    _, exponents = explorer_tables(explorer(points, laws))
    assert len(exponents) == len(laws)
    assert exponents["alpha"].to_numpy() == pytest.approx(laws["alpha"], rel=1e-3)


def test_explorer_draws_a_law_from_its_smallest_to_its_largest_size() -> None:
    points, laws = law_tables()
    between = points[points["S"] == 1e6].assign(S=1e7, model="pythia-1e7")
    drawn, _ = explorer_tables(explorer(pd.concat([points, between]), laws))
    assert set(drawn.loc[drawn["law"].notna(), "S"]) == {1e6, 1e9}


def test_explorer_residual_is_the_relative_distance_of_y_from_the_law() -> None:
    points, laws = law_tables()
    # The points at S = 1e7 have the y of S = 1e6. The law predicts this y times 10^-alpha.
    between = points[points["S"] == 1e6].assign(S=1e7, model="pythia-1e7")
    drawn, _ = explorer_tables(explorer(pd.concat([points, between]), laws))
    alpha = np.where(drawn["metric"] == "rbp", 0.1 + drawn["k"] / 1000, 0.05)
    expected = np.where(drawn["S"] == 1e7, 10**alpha - 1, 0)
    assert drawn["residual"].to_numpy() == pytest.approx(expected, abs=1e-3)


def test_explorer_axes_hold_all_points_laws_and_intervals() -> None:
    points, laws = law_tables()
    points.loc[points["k"] == 100, "high"] *= 1.8
    points.loc[(points["k"] == 10) & (points["S"] == 1e6), "y"] *= 1.5
    chart = explorer(points, laws).to_dict()
    (axes,) = [parameter["value"] for parameter in chart["params"] if parameter["name"] == "axes"]
    for row in points.to_dict("records"):
        axis = axes[f"{row['metric']}{row['k']}"]
        assert axis["low"] < min(row["y"], row["low"])
        assert axis["high"] > max(row["y"], row["high"])
        law = row["S"] ** -(0.1 + row["k"] / 1000 if row["k"] else 0.05)
        assert axis["low"] < law < axis["high"]
        assert axis["largest_residual"] > max(abs(row[end] / law - 1) for end in ("y", "low", "high"))


def exponent_axis(laws: pd.DataFrame) -> tuple[float, float]:
    """Return the ends of the axis of exponents in an explorer with the points of `law_tables` and these laws."""
    points, _ = law_tables()
    exponents = explorer(points, laws).to_dict()["hconcat"][1]["spec"]
    low, high = exponents["layer"][1]["encoding"]["y"]["scale"]["domain"]
    return low, high


def test_explorer_axis_of_exponents_holds_0_and_the_band() -> None:
    _, laws = law_tables()
    laws.loc[laws["k"] == 100, "band_high"] = 0.6
    low, high = exponent_axis(laws)
    assert low <= 0
    assert high > 0.6


def test_explorer_draws_the_band_of_every_k_even_if_it_leaves_the_axis(tmp_path: Path) -> None:
    """Without the k whose band is too wide, Vega would draw a narrow band between its neighbours."""
    points, laws = law_tables(datasets=("wiki",))
    laws.loc[laws["k"] == 10, ["band_low", "band_high"]] = -50.0, 50.0
    text = charts.save(explorer(points, laws), tmp_path / "x.svg").read_text()
    [area] = re.findall(r'class="mark-area[^>]*>(?:<path[^>]*>)*?<path[^>]*? d="([^"]*)"', text)
    assert len(re.findall("[ML]", area)) == 2 * len(KS)


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


def test_explorer_shows_no_intervals_if_laws_have_none(tmp_path: Path) -> None:
    chart = explorer(*law_tables(intervals=False))
    for table in explorer_tables(chart):
        assert table[["low", "high"]].isna().all(axis=None)
    text = charts.save(chart, tmp_path / "x.svg").read_text()
    assert "95% interval: ;" in text
    assert not re.search("null|NaN|undefined", text)


def test_explorer_escapes_quotes_and_tags_in_names(tmp_path: Path) -> None:
    """Vega evaluates expressions that contain the names. An unescaped quote would make the chart impossible to draw."""
    name = """it's "quoted" \\ </script>"""
    path = charts.save(explorer(*law_tables(datasets=(name,))), tmp_path / "x.svg")
    assert "it" in path.read_text()


@pytest.mark.parametrize("alphas", [[0.1, 0.4], [-0.1, -0.1], [-0.2, -0.06], [-0.1, 0.3], [0.0], []])
def test_explorer_axis_of_exponents_holds_0_and_all_exponents(alphas: list[float]) -> None:
    _, laws = law_tables()
    low, high = exponent_axis(laws[: len(alphas)].assign(alpha=alphas, band_low=np.nan, band_high=np.nan))
    assert low < high
    assert all(low <= alpha <= high for alpha in [0.0, *alphas])


@pytest.mark.parametrize(
    ("k", "label"),
    [(10, "−ln RBP_10"), (1, "−ln RBP_1"), (12, "−ln RBP_10"), (5000, "−ln RBP_100"), (0, "cross-entropy, nats")],
)
def test_save_draws_the_explorer_at_the_nearest_k(tmp_path: Path, k: int, label: str) -> None:
    path = charts.save(explorer(*law_tables()), tmp_path / "laws.svg", k=k)
    assert f"{label}<" in path.read_text()


@pytest.mark.parametrize(("extension", "signature"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_save_writes_the_format_of_the_file_name(tmp_path: Path, extension: str, signature: bytes) -> None:
    frame = pd.DataFrame({"family": ["a", "a"], "dataset": "x", "S": [1e6, 1e7], "beta": [0.1, 0.2]})
    path = charts.save(charts.facets(frame, x="S", y="beta"), tmp_path / f"figure.{extension}")
    assert path.read_bytes().startswith(signature)


def test_save_refuses_another_format(tmp_path: Path) -> None:
    frame = pd.DataFrame({"family": ["a"], "dataset": "x", "S": [1e6], "beta": [0.1]})
    with pytest.raises(BadInput, match="gif"):
        charts.save(charts.facets(frame, x="S", y="beta"), tmp_path / "figure.gif")
    assert not list(tmp_path.iterdir())


def test_facets_draws_no_intervals_if_their_ends_are_missing() -> None:
    frame = pd.DataFrame({"family": ["a", "b"], "dataset": ["x", "y"], "S": [1e6, 1e7], "beta": [0.1, 0.2]})
    assert mark_types(charts.facets(frame, x="S", y="beta").to_dict()) == {"line", "point"}
    unknown = frame.assign(low=np.nan, high=np.nan)
    assert mark_types(charts.facets(unknown, x="S", y="beta").to_dict()) == {"line", "point"}


def test_facets_and_intervals_draw_intervals_with_known_ends() -> None:
    frame = pd.DataFrame({"family": ["a", "b"], "dataset": ["x", "y"], "S": [1e6, 1e7], "beta": [0.1, 0.2]})
    with_ends = frame.assign(low=[0.05, np.nan], high=[0.15, np.nan])
    assert mark_types(charts.facets(with_ends, x="S", y="beta").to_dict()) == {"line", "point", "rule"}
    assert mark_types(charts.intervals(with_ends, y="dataset", x="beta", facet="").to_dict()) == {"point", "rule"}


def test_facets_tooltip_shows_the_whole_interval_if_the_axis_is_too_short(tmp_path: Path) -> None:
    frame = pd.DataFrame({"family": ["a"], "dataset": "x", "S": [1e6], "p": [0.1], "low": [0.001], "high": [0.2]})
    text = charts.save(charts.facets(frame, x="S", y="p", log="xy"), tmp_path / "x.svg").read_text()
    assert "95% interval: 0.001 to 0.2" in text


def test_facets_draws_the_finite_values_of_a_logarithmic_axis(tmp_path: Path) -> None:
    frame = pd.DataFrame({"family": "a", "dataset": "x", "S": [1e6, 1e7, 1e8], "y": [np.inf, 2.0, 1.0]})
    chart = charts.facets(frame, x="S", y="y", log="xy")
    assert "Infinity" not in json.dumps(chart.to_dict())
    assert charts.save(chart, tmp_path / "x.svg").read_text().startswith("<svg")


def test_intervals_puts_families_of_a_row_below_each_other(tmp_path: Path) -> None:
    frame = pd.DataFrame({"family": ["a", "b"], "dataset": "x", "metric": "ce", "alpha": [0.1, 0.1]})
    text = charts.save(charts.intervals(frame, x="alpha", y="metric"), tmp_path / "x.svg").read_text()
    assert len(set(re.findall(r'"point" transform="translate\([\d.]+,([\d.]+)\)"', text))) == 2


def test_intervals_names_metrics_as_tables_do(tmp_path: Path) -> None:
    frame = pd.DataFrame({"family": "a", "metric": ["ce", "rbp_1", "own_score"], "alpha": 0.1})
    text = charts.save(charts.intervals(frame, x="alpha", y="metric"), tmp_path / "x.svg").read_text()
    assert {"CE", "RBP_1", "own score"} <= set(re.findall(r">([^<]+)</text>", text))


def test_facets_leaves_out_columns_that_it_does_not_show() -> None:
    frame = pd.DataFrame({"family": ["a"], "dataset": "x", "S": [1e6], "beta": [0.1], "secret": ["not here"]})
    assert "not here" not in json.dumps(charts.facets(frame, x="S", y="beta").to_dict())


def test_themed_adds_the_theme_and_keeps_the_settings_of_the_chart() -> None:
    frame = pd.DataFrame({"family": ["a"], "dataset": "x", "S": [1e6], "beta": [0.1]})
    chart = charts.facets(frame, x="S", y="beta")
    assert "gridColor" not in json.dumps(chart.to_dict())
    config = charts.themed(chart.configure_axis(gridColor="#ff0000")).to_dict()["config"]
    assert config["axis"]["gridColor"] == "#ff0000"
    assert config["axis"]["domainColor"] == charts.FAINT
    assert config["font"] == charts.FONT


@pytest.fixture
def two_metrics() -> pd.DataFrame:
    """Values of two metrics for the same family, dataset and sizes."""
    return pd.DataFrame(
        {
            "family": "a",
            "dataset": "x",
            "size": ["1", "2", "1", "2"],
            "S": [1e6, 1e7, 1e6, 1e7],
            "beta": 0.1,
            "metric": ["ce", "ce", "rbp_1", "rbp_1"],
        }
    )


def test_facets_and_intervals_refuse_several_points_at_one_place(two_metrics: pd.DataFrame) -> None:
    with pytest.raises(BadInput, match="metric"):
        charts.facets(two_metrics, x="S", y="beta")
    with pytest.raises(BadInput, match="metric"):
        charts.intervals(two_metrics, x="beta", y="size")


@pytest.mark.parametrize("options", [{"colour": "metric"}, {"facet": "metric"}, {"dash": "metric"}, {"line": False}])
def test_facets_draws_several_points_at_one_place_if_a_channel_separates_them(
    options: dict[str, Any], two_metrics: pd.DataFrame
) -> None:
    assert charts.facets(two_metrics, x="S", y="beta", **options).to_dict()


def test_facets_refuses_a_column_that_does_not_exist(two_metrics: pd.DataFrame) -> None:
    with pytest.raises(BadInput, match="gamma"):
        charts.facets(two_metrics, x="S", y="gamma")


def test_rank_distribution_shows_rbp_at_1_10_and_100(tmp_path: Path) -> None:
    rank = np.array([1, 5, 50, 500])
    histogram = RankHistogram(rank, np.array([40, 30, 20, 10]), np.zeros(4), 1000)
    text = charts.save(charts.rank_distribution(histogram, "pythia-70m on wiki"), tmp_path / "x.svg").read_text()
    assert "pythia-70m on wiki" in text
    for rbp in ("0.400", "0.700", "0.900"):
        assert f">{rbp}<" in text


@given(st.floats(1e-6, 1e6), st.floats(1.1, 1e9))
def test_ticks_lie_on_their_axis_and_are_few(low: float, span: float) -> None:
    ticks = charts.ticks(low, low * span)
    assert 1 <= len(ticks) <= 10
    assert all(low <= tick <= low * span for tick in ticks)
    assert ticks == sorted(set(ticks))


@pytest.mark.parametrize(("width", "points"), [("column", 234), ("page", 486)])
def test_save_fits_a_figure_to_the_width_of_a_column_or_a_page_of_a_paper(
    width: str, points: int, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"family": "a", "dataset": ["x", "y"] * 3, "S": [1, 1, 10, 10, 100, 100], "y": range(1, 7)})
    path = charts.save(charts.facets(frame, x="S", y="y"), tmp_path / "figure.svg", width=width)
    drawn = re.search(r'<svg[^>]* width="([\d.]+)"', path.read_text())
    assert drawn
    assert float(drawn[1]) == pytest.approx(points, abs=2)
    assert 'font-size="8px"' in path.read_text()


@pytest.mark.parametrize("width", [None, "container", alt.Step(20)])
def test_save_fits_charts_of_plugins_of_any_width_to_a_column(width: Any, tmp_path: Path) -> None:
    chart = alt.Chart(pd.DataFrame({"x": list("abc"), "y": [1, 2, 3]})).mark_bar().encode(x="x", y="y")
    if width is not None:
        chart = chart.properties(width=width)
    for each in (chart, alt.hconcat(chart), alt.hconcat(chart, chart)):
        drawn = re.search(
            r'<svg[^>]* width="([\d.]+)"', charts.save(each, tmp_path / "x.svg", width="column").read_text()
        )
        assert drawn
        assert float(drawn[1]) == pytest.approx(234, abs=2)
