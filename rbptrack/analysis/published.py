"""The authors' published exponents, as numbers that a figure may set beside measured ones (arXiv 2510.20387)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

PUBLISHED_IN = "ICLR 2026 submission draft of arXiv 2510.20387"


@cache
def published_in_size() -> pd.DataFrame:
    """Return table 2 of the draft: alpha and r2 of the law in size, by dataset, family and metric (`ce`, `rbp_10`)."""
    return _read("scaling_with_size.csv").rename(columns={"slope": "alpha"})


@cache
def published_in_k() -> pd.DataFrame:
    """Return table 1 of the draft: beta and r2 of the law in k, by dataset, family and size."""
    return _read("scaling_with_k.csv").rename(columns={"slope": "beta"})


def published_alpha(family: str, dataset: str, metric: str) -> float:
    """Return the published exponent of one law in size; NaN if none was published."""
    return _alphas().get((family, dataset, metric), float("nan"))


def published_beta(family: str, dataset: str, size: str) -> float:
    """Return the published exponent of one law in k; NaN if none was published."""
    return _betas().get((family, dataset, size), float("nan"))


@cache
def _alphas() -> dict[tuple[str, str, str], float]:
    table = published_in_size()
    return dict(zip(zip(table["family"], table["dataset"], table["metric"], strict=True), table["alpha"], strict=True))


@cache
def _betas() -> dict[tuple[str, str, str], float]:
    table = published_in_k()
    return dict(zip(zip(table["family"], table["dataset"], table["size"], strict=True), table["beta"], strict=True))


def _read(name: str) -> pd.DataFrame:
    table = pd.read_csv(Path(__file__).parent / "reference" / name, dtype={"size": str})
    return table.assign(slope=-table["slope"])  # they print slopes; a law's exponent is minus its slope
