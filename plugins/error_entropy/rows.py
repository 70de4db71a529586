"""Tables of the parts of cross-entropy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from scipy import special

from rbptrack.analysis.rows import R2, UNKNOWN, Column, Corrected, OfFamily, P, exponent
from rbptrack.stats.intervals import Interval
from rbptrack.stats.linear import straight_line

from .findings import ScalesAsCE
from .parts import PARTS, Parts

SE = "its standard error over documents, wider where few of them decide"
SUMMARY = {
    "CE": "cross-entropy, nats per token: the sum of the next three",
    "H(P)": "error entropy: entropy of ranks, corrected for its bias",
    "KL": "self-alignment: KL(P || Q^), corrected",
    "-ln Z": "confidence, corrected",
    "H(P) plug-in": "error entropy of these tokens, not corrected",
    "KL plug-in": "self-alignment of these tokens, not corrected",
}
_RATIO = "alpha - alpha_ce, from the law of the ratio part / CE"
Share = Annotated[float, Column("part / CE at the smallest size", form=".3f")]


@dataclass(kw_only=True)
class PartLawRow(OfFamily):
    """The law of one part; empty where it is not positive at every size."""

    part: Annotated[str, Column("of cross-entropy, plug-in or corrected")]
    alpha: Annotated[Interval, Column("of part = A S^-alpha", title="α", form=".3f")]
    r2: R2
    nats_per_factor_10: Annotated[
        Interval, Column("change of the part per factor 10 in S, by a line in ln S (interval: scatter between sizes)")
    ]
    share_of_ce: Annotated[
        Interval, Column("share in CE's fall: slope of the part against CE over all sizes (scatter, sampling error)")
    ]


@dataclass(kw_only=True)
class ClaimRow(OfFamily):
    """What arXiv 2510.04067 claims: error entropy scales, the other parts do not, and its share in CE falls."""

    part: Annotated[str, Column("corrected for bias where that is possible")]
    alpha: Annotated[float, Column("its exponent; empty where the part is not positive at every size", title="α")]
    alpha_ce: Annotated[float, Column("cross-entropy's", title="α of CE")]
    difference: Annotated[Interval, Column(_RATIO, form=".3f", low="lower end of its interval (scatter and documents)")]
    p_different: P
    p_corrected: Corrected
    margin: Annotated[float, Column("a difference below which the part scales as CE does", form=".3f")]
    p_equivalent: Annotated[float, Column("of a difference at or beyond the margin (two one-sided tests)", form=".3g")]
    verdict: Annotated[str, Column("equivalent; different; different, but within the margin; undecided; or no law")]
    share_smallest: Share
    share_largest: Annotated[float, Column("part / CE at the largest", form=".3f")]


def part_rows(parts: Parts) -> list[dict[str, Any]]:
    """Return each size's parts with their standard errors."""
    rows = parts.family.size_keys
    for part, y in parts.values.items():
        for row, value, error in zip(rows, y, parts.errors[part], strict=True):
            row[part] = value
            row[f"{part}_se"] = error
    return rows


def summary_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `part_rows` for the terminal: texts."""
    names = ["ce", *(f"{part}_corrected" for part in list(PARTS)[1:]), "error_entropy", "self_alignment"]
    texts = [f"{row[name]:.3f}" if row[name] == row[name] else "" for name in names]
    return {name: row[name] for name in ("dataset", "family", "size")} | dict(zip(SUMMARY, texts, strict=True))


def law_rows(parts: Parts, *, level: float) -> Iterator[PartLawRow]:
    """Yield each part's law, empty where it is not positive for every size, and its change per factor 10 in S."""
    m = len(parts.family.s)
    if m < 3:
        return
    quantile = float(special.stdtrit(m - 2, 0.5 + level / 2))
    for part, y in parts.values.items():
        line = straight_line(np.log10(parts.family.s), y)
        law = parts.laws.get(part)
        yield PartLawRow(
            **parts.family.keys,
            part=part,
            alpha=exponent(law),
            r2=law.r2 if law else np.nan,
            nats_per_factor_10=Interval.around(line.slope, quantile * line.error),
            share_of_ce=parts.shares.get(part, UNKNOWN),
        )


def claim_rows(parts: Parts, claims: Sequence[ScalesAsCE]) -> Iterator[ClaimRow]:
    """Yield the contrasts of one family; a part without a law has a row without numbers."""
    if len(parts.family.s) < 3:
        return
    claims_by_part = {claim.case["part"]: claim for claim in claims if claim.case.items() >= parts.family.keys.items()}
    for part, word in parts.tested.items():
        claim = claims_by_part.get(word)
        smallest, largest = parts.share_of_ce(part)
        yield ClaimRow(
            **parts.family.keys,
            part=part,
            alpha=parts.laws[part].alpha if claim else np.nan,
            alpha_ce=parts.laws["ce"].alpha if claim else np.nan,
            difference=claim.interval if claim else UNKNOWN,
            p_different=claim.p if claim else np.nan,
            p_corrected=claim.p_corrected if claim else np.nan,
            margin=claim.margin if claim else np.nan,
            p_equivalent=claim.p_equivalent if claim else np.nan,
            verdict=claim.verdict if claim else "no law",
            share_smallest=smallest,
            share_largest=largest,
        )
