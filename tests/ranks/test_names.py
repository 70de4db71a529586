"""Tests of the names of RBP metrics, of grids of k, and of checks of k."""

from __future__ import annotations

import numpy as np
import pytest

from rbptrack.base.errors import BadInput
from rbptrack.ranks import is_rbp_column, log_grid, metric_label, parse_rbp_name, rbp_ks, rbp_name, se_name
from rbptrack.ranks.names import check_k, check_ks


def test_parse_rbp_name_returns_the_k_of_rbp_name() -> None:
    assert [parse_rbp_name(rbp_name(k)) for k in (1, 10, 3000)] == [1, 10, 3000]


@pytest.mark.parametrize(
    "name",
    ["ce", "rbp_", "rbp_0", "rbp_01", "rbp_x", "rbp_curve", "neg_log_rbp_1", "RBP_1", se_name(rbp_name(10))],
)
def test_parse_rbp_name_returns_none_for_other_names(name: str) -> None:
    assert parse_rbp_name(name) is None


def test_rbp_ks_are_the_k_of_rbp_names_in_ascending_order() -> None:
    assert rbp_ks(["rbp_100", "model", "rbp_3", "rbp_3_se"]) == [3, 100]


@pytest.mark.parametrize(
    ("name", "expected"), [("rbp_3", True), ("rbp_3_se", True), ("ce_se", False), ("rbp_curve", False)]
)
def test_is_rbp_column_is_true_for_an_rbp_and_its_standard_error(name: str, expected: bool) -> None:
    assert is_rbp_column(name) is expected


def test_metric_label_of_an_rbp_is_in_capitals() -> None:
    assert metric_label("rbp_10") == "RBP_10"


def test_log_grid_rises_from_1_to_the_vocabulary() -> None:
    grid = log_grid(50_304)
    assert grid[0] == 1
    assert grid[-1] == 50_304
    assert np.all(np.diff(grid) > 0)
    assert len(grid) < 60


def test_log_grid_of_1_has_one_point() -> None:
    assert log_grid(1).tolist() == [1]


@pytest.mark.parametrize("k", [0, -1, 11, True, 1.0, "1", None])
def test_check_k_refuses_what_is_not_a_whole_number_from_1_to_the_vocabulary(k: object) -> None:
    with pytest.raises(BadInput):
        check_k(k, 10)


def test_check_ks_takes_one_k_or_several() -> None:
    assert check_ks(np.int64(7)) == [7]
    assert check_ks(np.array([1, 10])) == [1, 10]


@pytest.mark.parametrize("ks", [[1, 0], [True], 2.5, "10", None])
def test_check_ks_refuses_what_is_not_a_whole_number_of_at_least_1(ks: object) -> None:
    with pytest.raises(BadInput):
        check_ks(ks)
