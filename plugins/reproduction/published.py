"""Read the exponents that the authors of arXiv 2510.20387 published."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

PUBLISHED_IN = "ICLR 2026 submission draft of arXiv 2510.20387"
"""The document that contains the published exponents."""


def published_in_size() -> pd.DataFrame:
    """Return table 2 of the draft: alpha and r2 of the law in size, by dataset, family and metric (`ce`, `rbp_10`)."""
    return _read_table("scaling_with_size.csv").rename(columns={"slope": "alpha"})


def published_in_k() -> pd.DataFrame:
    """Return table 1 of the draft: beta and r2 of the law in k, by dataset, family and size."""
    return _read_table("scaling_with_k.csv").rename(columns={"slope": "beta"})


def _read_table(name: str) -> pd.DataFrame:
    table = pd.read_csv(Path(__file__).parent / name, dtype={"size": str})
    return table.assign(slope=-table["slope"])  # the draft prints slopes; an exponent is minus the slope
