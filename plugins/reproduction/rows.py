"""Tables of the authors' exponents beside yours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from rbptrack.analysis import rbp_name
from rbptrack.analysis.families import Family
from rbptrack.analysis.findings import Verdict
from rbptrack.analysis.rows import R2, Column, Corrected, K, OfFamily, OfMetric, OfSize
from rbptrack.stats.intervals import Interval

WORDS = {Verdict.SAME: "agrees", Verdict.DIFFERENT: "differs", Verdict.UNTOLD: "undecided"}
_BOTH = "lower end of its 95% interval, both uncertainties taken together"


@dataclass(kw_only=True)
class Compared:
    """Your exponent beside the published one."""

    published: Annotated[float, Column("the authors' exponent", form=".3f")]
    published_se: Annotated[float, Column("its standard error: as R^2, sizes and rounding imply; in k as yours")]
    published_r2: Annotated[float, Column("their R^2", title="their R²", form=".3f")]
    yours: Annotated[float, Column("your exponent", form=".3f")]
    se: Annotated[float, Column("its standard error; empty where sampling errors are unknown")]
    r2: R2
    difference: Annotated[Interval, Column("yours - published", form="+.3f", low=_BOTH, bare=True)]
    p_corrected: Corrected
    verdict: Annotated[str, Column("agrees (the interval lies within the tolerance), differs, or undecided")]


@dataclass(kw_only=True)
class OfSizes(OfMetric):
    """Which law, of how many sizes."""

    published_sizes: Annotated[int, Column("how many sizes the authors fitted")]
    sizes: Annotated[int, Column("how many sizes you fitted")]


@dataclass(kw_only=True)
class SizeRow(Compared, OfSizes):
    """A cell of Table 2."""


@dataclass(kw_only=True)
class OfModel(OfFamily):
    """Which model."""

    size: Annotated[str, Column("the size as published")]


@dataclass(kw_only=True)
class KRow(Compared, OfModel):
    """A cell of Table 1."""

    yours_every_k: Annotated[float, Column("with every k weighing the same, instead of k even in ln k", form=".3f")]


@dataclass(kw_only=True)
class VerdictRow(OfFamily):
    """The cells of one family on one dataset, counted."""

    table: Annotated[int, Column("of the draft: 1 in k, 2 in size")]
    agrees: Annotated[int, Column("cells")]
    differs: Annotated[int, Column("cells")]
    undecided: Annotated[int, Column("cells")]
    largest_difference: Annotated[str, Column("relative, with its cell", title="largest difference")]


@dataclass(kw_only=True)
class SequenceRow(OfSize):
    """Imported success of N tokens in a row (`F_N` of the authors' files)."""

    k: K
    N: Annotated[int, Column("tokens in a row")]
    share: Annotated[float, Column("of such runs all of whose tokens have R <= k, as imported", form=".3g")]
    independent: Annotated[float, Column("RBP_k^N: the share were tokens independent", form=".3g")]
    worth: Annotated[
        float, Column("ln share / ln RBP_k: as how many independent tokens the N count", "N_eff", form=".2f")
    ]


@dataclass(kw_only=True)
class RankFitRow(OfSize):
    """A model in figures 8b and 8c, as the authors' code computes them, beside the measured values."""

    zipf: Annotated[float, Column("exponent of the power law in the rank, by their estimate", "α of ranks", form=".3f")]
    mu: Annotated[float, Column("of their lognormal; empty where the likelihood has no maximum", "μ", form=".3f")]
    sigma: Annotated[float, Column("of their lognormal", "σ", form=".3f")]
    ratio: Annotated[float, Column("ln likelihood ratio; below 0 the lognormal fits better", title="R", form=".4g")]
    p: Annotated[float, Column("of R as `powerlaw` computes it: every token independent", title="p", form=".2g")]
    p_documents: Annotated[float, Column("of the same R with documents independent: ours", "p, documents", form=".2g")]
    neg_log_rbp_1: Annotated[float, Column("by their integral over the lognormal", "-ln RBP_1, theirs", form=".3f")]
    neg_log_rbp_1_measured: Annotated[float, Column("measured", "-ln RBP_1", form=".3f")]
    ce: Annotated[float, Column("by their integral: the entropy of the lognormal", "CE, theirs", "nats", form=".3f")]
    entropy_measured: Annotated[float, Column("measured", "entropy of ranks", "nats", form=".3f")]
    ce_measured: Annotated[float, Column("measured", "CE", "nats", form=".3f")]


@dataclass(kw_only=True)
class PredictedLawRow(OfMetric):
    """A line of figure 8c: least squares on both logarithms, through predicted and through measured values."""

    sizes: Annotated[int, Column("models")]
    predicted: Annotated[float, Column("exponent of the values that their integrals predict", "α, theirs", form=".3f")]
    predicted_r2: Annotated[float, Column("R^2 of that line", title="R², theirs", form=".3f")]
    measured: Annotated[float, Column("exponent of the measured values", title="α", form=".3f")]
    r2: R2


def verdict_rows(table: int, rows: Sequence[SizeRow] | Sequence[KRow]) -> Iterator[VerdictRow]:
    """Yield the cells of each family on each dataset, counted by verdict."""
    for dataset, family in sorted({(row.dataset, row.family) for row in rows}):
        cells = [row for row in rows if (row.dataset, row.family) == (dataset, family)]
        differences = {i: row.difference.value / row.published for i, row in enumerate(cells) if row.published}
        counts = {verdict: sum(row.verdict == verdict for row in cells) for verdict in WORDS.values()}
        largest = ""
        if differences:  # of a published exponent that is not 0
            most = max(differences, key=lambda i: abs(differences[i]))
            cell = cells[most]
            largest = f"{differences[most]:+z.0%} ({cell.metric if isinstance(cell, SizeRow) else cell.size})"
        yield VerdictRow(table=table, dataset=dataset, family=family, **counts, largest_difference=largest)


def sequence_rows(family: Family) -> Iterator[SequenceRow]:
    """Yield imported shares of sequences that succeed, beside those of independent tokens."""
    for column in family.rows.columns:
        if not (named := re.fullmatch(r"sequence_success_k(\d+)_n(\d+)", str(column))):
            continue
        k, n = map(int, named.groups())
        shares = family.column(str(column))
        rbp = family.column(rbp_name(k))
        for keys, share, p in zip(family.size_keys, shares, rbp, strict=True):
            if 0 < share < 1 and 0 < p < 1:
                worth = float(np.log(share) / np.log(p))
                yield SequenceRow(**keys, k=k, N=n, share=float(share), independent=float(p**n), worth=worth)
