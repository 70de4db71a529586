"""The columns of tables as people read them: titles with units, and how each number is written.

Machine names stay in the CSV files; here stands what the page shows for them. A plugin gives a column that is not
listed, or that means something else in its table, a title of its own by `Table.titles`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analysis import short_number
from rbptrack.ranks import CE, metric_label, parse_rbp_name

TITLES: Mapping[str, str] = {
    "A": "A",
    "aicc": "AICc",
    "aic_above_best": "AIC above the best",
    "alpha": "α",
    "alpha_A": "α of A",
    "alpha_B": "α of B",
    "alpha_a": "α of a",
    "alpha_ce": "α of CE",
    "alpha_b": "α of b",
    "alpha_change": "change of α from N = 1",
    "alpha_early": "α early",
    "alpha_huber": "α, Huber",
    "alpha_late": "α late",
    "alpha_without": "α without it",
    "beta": "β",
    "beta_every_k": "β, every k",
    "beta_at_1": "β at k = 1",
    "beta_at_10": "β at k = 10",
    "beta_at_largest": "β at the largest k",
    "bits_per_byte": "bits per byte",
    "ce": "CE, nats",
    "design_effect": "design effect",
    "difference": "difference",
    "documents_hash": "hash of the texts",
    "entropy": "entropy, nats",
    "eta": "η",
    "factor_in_s": "factor in S",
    "gamma": "γ",
    "kl": "KL, nats",
    "ks": "largest error of RBP_k",
    "ks_at": "at k",
    "left_out_error": "error, largest left out",
    "mu": "μ",
    "mu_over_sigma": "μ/σ",
    "non_embedding_params": "S",
    "num_documents": "documents",
    "num_tokens": "scored tokens",
    "on": "shared",
    "p": "p",
    "error_ce": "error by CE",
    "error_rbp": "error by RBP_k",
    "p_corrected": "p, corrected",
    "p_exponents": "p of equal exponents",
    "p_families": "p of a ratio of 1",
    "p_different": "p of equality",
    "p_equivalent": "p of a difference",
    "p_independent": "p if independent",
    "p_irreducible": "p of E = 0",
    "r2": "R²",
    "r2_every_k": "R², every k",
    "r2_expected": "R² expected",
    "r2_in_s": "R² in S",
    "R^2": "R²",
    "run_id": "run",
    "S_A": "S of A",
    "S_B": "S of B",
    "se_ln_y": "se of ln y",
    "seq_len": "sequence length",
    "share": "share",
    "sigma": "σ",
    "s_50": "S_50",
    "snr": "α / se",
    "tau": "τ",
    "told_by_p": "ln R told by p",
    "told_by_rank": "ln p told by R",
    "within_share": "share of the gain at equal p",
    "token": "token",
    "total_params": "parameters",
    "vocab_size": "|V|",
    "vuong_z": "Vuong's z",
}
"""Column -> its title, where that is more than its name with spaces."""

SIZES = {
    "S",
    "S_A",
    "S_B",
    "s_50",
    "s_50_low",
    "s_50_high",
    "read_off",
    "C",
    "D",
    "non_embedding_params",
    "total_params",
    "tokens_per_parameter",
}
"""Columns of large numbers that are written short: 15.2k."""

SHARES = {
    "by_documents", "by_neighbours", "by_position", "largest_deviation", "left_out_error", "rbp_of_answer", "share",
    "share_by_law", "share_independent", "share_largest", "share_of_ce", "share_smallest", "tie_rate", "told_by_p",
    "told_by_rank", "within_share",
}  # fmt: skip
"""Columns of fractions that are written in per cent."""

EXPONENTS = ("alpha", "beta")
"""Beginnings of columns of exponents, of which more than three decimals say nothing."""

HASHES = {"fingerprint", "documents_hash", "run_id", "commit"}
"""Columns whose first letters are enough."""

_OPTIONAL_ENDS = ("_low", "_high", "_se")
INTERVAL, ERROR = "interval", "± se"
JOINED = (INTERVAL, ERROR)
"""Titles of the columns that belong to the one before them."""


def title(column: str, own: Mapping[str, str]) -> str:
    """What the page calls a column."""
    if column in own or column in TITLES:
        return own.get(column) or TITLES[column]
    if column == CE or parse_rbp_name(column) is not None:
        return metric_label(column)
    return column.replace("_", " ")


@dataclass(frozen=True)
class Column:
    """A column as it is shown.

    Attributes:
        name: the machine's.
        title: the reader's.
        number: whether it holds numbers, which stand right.
        cells: its texts.

    """

    name: str
    title: str
    number: bool
    cells: list[str] = field(default_factory=list)


def readable(frame: pd.DataFrame, own: Mapping[str, str]) -> list[Column]:
    """The columns as people read them; an interval's two ends, and a standard error, are joined to one column each."""
    found: list[Column] = []
    names = [str(name) for name in frame.columns]
    for name in names:
        base = next((name.removesuffix(end) for end in _OPTIONAL_ENDS if name.endswith(end)), "")
        if base in names:
            continue
        if name == "high" and "low" in names:
            continue
        if name == "low" and "high" in names:
            found.append(_interval(frame, "low", "high"))
            continue
        found.append(Column(name, title(name, own), *_cells(frame[name], name)))
        if f"{name}_se" in names:
            errors = [f"± {text}" if text else "" for text in _cells(frame[f"{name}_se"], name)[1]]
            found.append(Column(f"{name}_se", ERROR, True, errors))
        if f"{name}_low" in names and f"{name}_high" in names:
            found.append(_interval(frame, f"{name}_low", f"{name}_high"))
    return found


def _interval(frame: pd.DataFrame, low: str, high: str) -> Column:
    both = pd.concat([frame[low], frame[high]])
    base = low.removesuffix("_low")
    write = _writer(both, base)
    cells = [
        _span(write(a) or "?", write(b) or "?") if write(a) or write(b) else ""
        for a, b in zip(frame[low], frame[high], strict=True)
    ]
    return Column(low, INTERVAL, True, cells)


def _span(low: str, high: str) -> str:
    """Both ends with a dash; with words where a sign would be taken for one."""
    return f"{low} to {high}" if "−" in low + high else f"{low}–{high}"


def _cells(values: pd.Series, name: str) -> tuple[bool, list[str]]:
    """Whether they are numbers, and their texts."""
    if values.dtype == bool or str(values.dtype) == "boolean":
        return False, ["" if pd.isna(v) else "yes" if v else "no" for v in values]
    if pd.api.types.is_numeric_dtype(values):
        write = _writer(values, name)
        return True, [write(v) for v in values]
    texts = ["" if pd.isna(v) else str(v) for v in values]
    if name in HASHES:
        return False, [text[:12] for text in texts]
    return all(not t or _looks_like_a_number(t) for t in texts), texts


def _looks_like_a_number(text: str) -> bool:
    return text[0] in "+-−.0123456789"


def _writer(values: pd.Series, name: str) -> Callable[[Any], str]:
    """How the numbers of a column are written: all with the same number of decimals, where that is readable."""
    known = pd.to_numeric(values, errors="coerce").astype(np.float64)
    size = known.abs()[np.isfinite(known) & (known != 0)].to_numpy()
    if name in SIZES:
        return lambda v: _or_empty(v, short_number)
    if name in SHARES:
        return lambda v: _or_empty(v, lambda x: _minus(f"{x:.1%}"))
    if pd.api.types.is_integer_dtype(values) or bool(len(known.dropna()) and (known.dropna() % 1 == 0).all()):
        return lambda v: _or_empty(v, lambda x: _minus(f"{x:,.0f}"))
    if name.startswith("p_") or name == "p" or not len(size) or size.max() / np.quantile(size, 0.05) > 1e4:
        return lambda v: _or_empty(v, _three_digits)
    most = 3 if name.startswith(EXPONENTS) else 6
    decimals = int(np.clip(2 - np.floor(np.log10(np.median(size))), 0, most))
    return lambda v: _or_empty(v, lambda x: _minus(f"{x:,.{decimals}f}"))


def _three_digits(value: float) -> str:
    text = f"{value:.3g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        text = f"{mantissa}e{int(exponent)}"
    return _minus(text)


def _or_empty(value: Any, write: Callable[[float], str]) -> str:
    if pd.isna(value):
        return ""
    return write(float(value)) if np.isfinite(float(value)) else ("∞" if value > 0 else "−∞")


def _minus(text: str) -> str:
    return text.replace("-", "−")
