"""Rows of the tables of sequences of successes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from rbptrack.analysis.rows import R2, UNKNOWN, Column, Exponent, K, OfFamily, OfSize
from rbptrack.stats.intervals import Interval

ANSWER = "answer"
"""Stands for N in rows about whole answers."""

N = Annotated[int, Column("tokens in a row: consecutive scored tokens of one document")]
Eta = Annotated[float, Column("d ln(-ln p) / d ln N between the length before and N: 1 if independent", title="η")]
_P = "share of windows whose tokens all have R <= k; empty where refused (intervals: document bootstrap)"


@dataclass(kw_only=True)
class SummaryRow(OfFamily):
    """The largest size at the smallest k."""

    size: Annotated[str, Column("its largest size")]
    k: K
    N: N
    p: Annotated[float, Column("share of windows of N tokens that all have R <= k", form=".2e")]
    p_independent: Annotated[float, Column("RBP_k^N: what independent tokens would give", "RBP_k^N", form=".2e")]
    n_eff: Annotated[float, Column("how many independent tokens the window counts as", "N_eff", form=".2f")]
    eta: Eta
    verdict: Annotated[str, Column("the simplest process that explains it within its sampling error")]


@dataclass(kw_only=True)
class WindowRow(OfSize):
    """Windows of N tokens of one size."""

    k: K
    N: N
    p: Annotated[Interval, Column(_P)] = UNKNOWN
    rho: Annotated[Interval, Column("p / RBP_k^N")] = UNKNOWN
    p_independent: Annotated[float, Column("RBP_k^N")]
    p_position: Annotated[float, Column("p of independent hits whose share drifts with the position")]
    p_documents: Annotated[float, Column("p if hits fell anywhere in their document: a mixture over documents")]
    p_markov: Annotated[float, Column("p of a first-order chain: RBP_k q^(N-1), q the share of hits after one")]
    n_eff: Annotated[Interval, Column("ln p / ln RBP_k", "N_eff")] = UNKNOWN
    eta: Eta = np.nan
    by_position: Annotated[float, Column("share of ln p - N ln RBP_k that the drift gives", form=".0%")] = np.nan
    by_documents: Annotated[float, Column("share that the mixture over documents gives", form=".0%")] = np.nan
    by_neighbours: Annotated[float, Column("share that the chain gives", form=".0%")] = np.nan
    runs: Annotated[float, Column("distinct runs of at least N hits")]
    documents: Annotated[float, Column("documents that have one")]
    verdict: Annotated[str, Column("nulls whose distance to ln p has 0 in its interval, at all N > 2 at once")]


@dataclass(kw_only=True)
class LengthRow(OfFamily):
    """The law of one N."""

    k: K
    N: N
    sizes: Annotated[int, Column("sizes with enough runs: the law is fitted to these")]
    alpha: Annotated[Interval, Column("alpha_N of -ln p = C_N S^-alpha_N, fitted freely for this N", "α", form=".3f")]
    C: Annotated[float, Column("C_N, for S in parameters")]
    r2: R2
    alpha_change: Annotated[Interval, Column("alpha_N - alpha_1, same sizes, paired; independence says 0")]
    n_eff_per_n: Annotated[Interval, Column("N_eff / N, geometric mean over sizes; independence says 1")]


@dataclass(kw_only=True)
class HalfRow(OfFamily):
    """The size at which half of the windows, or of the answers, succeed."""

    k: Annotated[int, Column("a token succeeds where R <= k; 1 is the greedy exact match")]
    N: Annotated[str, Column("tokens in a row, or answer: the dataset's last field")]
    sizes: Annotated[int, Column("sizes with enough distinct runs: the law is fitted to these")]
    largest: Annotated[float, Column("share of windows that succeed at the largest size")]
    s_50: Annotated[Interval, Column("size at which half succeed, by the law", "S_50", form="short")]
    read_off: Annotated[float, Column("the same, read off between the two sizes measured", form="short")]
    what: Annotated[str, Column("measured: within the sizes; forecast: beyond the largest; refused, and why")]
    decades: Annotated[Interval, Column("decades of S from 10 to 90%: 1.34 / alpha", form=".1f")]
    alpha: Exponent


@dataclass(kw_only=True)
class AnswerRow(OfSize):
    """Whole answers of one size."""

    k: K
    answers: Annotated[int, Column("documents whose whole answer (the dataset's last field) was scored")]
    mean_length: Annotated[float, Column("tokens of an answer")]
    share: Annotated[
        Interval, Column("share of answers whose every token has R <= k (Wilson's interval, over documents or sources)")
    ]
    rbp_of_answer: Annotated[float, Column("RBP_k of the answers' tokens", "RBP_k of answers")]
    share_independent: Annotated[float, Column("mean over answers of rbp_of_answer^length")]
    share_by_law: Annotated[float, Column("the same with RBP_k from the law of the answers' tokens")] = np.nan
