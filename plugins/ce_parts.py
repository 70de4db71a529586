"""Split cross-entropy into parts by two exact identities, and test which parts fall with size.

1. CE = E[ln R] + E[-ln(pR)]. The first part depends only on the ranks R. It is the sum of (1 - RBP_k) ln((k + 1)/k)
   over all k. The second part says how far p, the probability of the target, lies below 1/R. Both parts are at least 0.
2. CE = H(P) + KL(P||Q^) - ln Z_Q (arXiv 2510.04067). P(e) is the share of tokens with rank e. Q(e) is the geometric
   mean of p over these tokens. Z_Q is the sum of Q over the ranks that occur, and Q^ = Q/Z_Q. The parts are called
   error entropy, self-alignment and confidence. -ln Z_Q may be negative and therefore has no power law.

No parameter is fitted. The analyzer checks both identities for every measurement. Estimates of H(P) from a sample are
too low. Miller and Madow's correction, (ranks that occur - 1)/(2 tokens), removes a part of this bias. Estimates of KL
from a sample are too high. This bias is larger than the standard error, so KL has no interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field
from scipy.special import logsumexp

from rbptrack.analysis import (
    Analyzer,
    Family,
    Glossary,
    RbptrackError,
    Report,
    Runs,
    Term,
    Unreadable,
    WithoutRanks,
    range_text,
    read_families,
)
from rbptrack.figures import facets, intervals
from rbptrack.ranks import DocumentSums, FloatArray, RankHistogram, RankTable, rank_and_rest_sums
from rbptrack.stats import Estimate, few_documents_clause, laws, why_no_interval

PARTS = {
    "ce": Term("cross-entropy, nats per token", "CE"),
    "rank": Term("E[ln R], nats: the part that depends on ranks only", "E[ln R]"),
    "rest": Term("E[-ln(pR)], nats: how far p lies below 1/R", "E[-ln(pR)]"),
    "error_entropy": Term("the entropy of ranks, nats; too low in a sample", "H(P)"),
    "self_alignment": Term("divergence of P from Q^, nats; too high in a sample", "KL(P||Q^)"),
    "confidence": Term("-ln Z_Q, nats; may be negative", "-ln Z_Q"),
}
"""Cross-entropy and its parts by both identities, in the order of the columns of `PartSums.sums`."""

KL = "self_alignment"
PARTS_WITH_LAW = 5  # all parts but the last one, -ln Z_Q, which may be negative and then has no logarithm


@dataclass(frozen=True)
class PartSums(DocumentSums):
    """The number of tokens and the sum of every part of cross-entropy by document.

    A part in nats per token is its sum divided by the number of tokens. H(P), KL and -ln Z_Q are not sums over tokens.
    Their columns hold a linear approximation. Summed over all documents it is exact. Without one document it is
    approximate.

    Attributes:
        sums: tokens and the sums of the parts in the order of `PARTS`, (documents, 1 + parts). The columns of rank and
            rest are NaN if some p(target) is above 1/R.
        miller_madow: Miller and Madow's correction of H(P) in nats, summed over the runs.
        runs: the number of runs that the sums were added over.

    """

    SUMMED = ("sums",)
    TOTALS = ("miller_madow", "runs")

    sums: FloatArray
    miller_madow: float
    runs: int = 1


def decompose(histogram: RankHistogram) -> FloatArray:
    """Return H(P), KL(P||Q^) and -ln Z_Q in nats, (3,). They add up to cross-entropy. Source: arXiv 2510.04067."""
    p = histogram.count / histogram.num_tokens
    log_q = histogram.logprob / histogram.count
    log_z = float(logsumexp(log_q))
    return np.array([-p @ np.log(p), p @ (np.log(p) - log_q + log_z), -log_z])


def part_sums(pieces: Iterable[RankTable], histogram: RankHistogram) -> PartSums:
    """Compute the parts of both identities by document.

    Args:
        pieces: the rank table of a run in pieces of whole documents.
        histogram: the histogram of the same run.

    Raises:
        RbptrackError: the parts do not add up to cross-entropy: by the first identity within rounding errors, or by the
            second identity within 1e-6 nats per token.

    """
    entropy, alignment, confidence = decompose(histogram)
    p = histogram.count / histogram.num_tokens
    log_q = histogram.logprob / histogram.count
    by_rank = np.zeros((3, histogram.vocab_size + 1))
    by_rank[:, histogram.rank] = -np.log(p), log_q, np.exp(log_q + confidence) / p
    neg_log_p, mean_logprob, q_over_p = by_rank  # indexed by R; the last one is Q^ / P
    ln_rank = np.log(np.arange(1, histogram.vocab_size + 1))  # indexed by R - 1
    rows = []
    for piece in pieces:
        logprob = piece.column("logprob").astype(np.float64)
        tokens = piece.sum_by_document()
        nats = piece.sum_by_document(-logprob)
        rank_sums = piece.sum_by_document(ln_rank[piece.above])
        tokens_above_bound = rank_and_rest_sums(piece)[2]  # p above 1/R. This call also checks the first identity
        if tokens_above_bound:
            rank_sums = np.full(len(tokens), np.nan)
        entropy_sums = piece.sum_by_document(neg_log_p[piece.rank])
        changes_of_ln_z = piece.sum_by_document(q_over_p[piece.rank] * (logprob - mean_logprob[piece.rank]))
        confidence_sums = tokens * confidence - changes_of_ln_z
        alignment_sums = nats - entropy_sums - confidence_sums
        rest_sums = nats - rank_sums
        rows.append(
            np.column_stack([tokens, nats, rank_sums, rest_sums, entropy_sums, alignment_sums, confidence_sums])
        )
    sums = np.concatenate(rows)
    ce = sums[:, 1].sum() / histogram.num_tokens
    total = entropy + alignment + confidence
    if not abs(total - ce) < 1e-6:
        raise RbptrackError(f"H(P) + KL - ln Z is {total:.9f}, but cross-entropy is {ce:.9f}")
    return PartSums(sums, miller_madow=(len(histogram.rank) - 1) / (2 * histogram.num_tokens))


def mean_parts(totals: FloatArray) -> FloatArray:
    """Return the parts in nats per token, (..., parts).

    totals: the number of tokens and the sums of the parts in the order of `PARTS`, (..., 1 + parts).
    """
    return np.asarray(totals[..., 1:] / totals[..., :1])


GLOSSARY: Glossary = {
    **PARTS,
    "alpha": Term("exponent of the law part = A S^-alpha", "α"),
    "delta": Term(
        "exponent of the part minus exponent of cross-entropy, which is the exponent of their ratio", "Δα vs. CE"
    ),
    "share": Term(
        "share of the fall of CE that the part explains: the slope of a regression of the part on CE", form=".1%"
    ),
    "per_decade": Term("change of the part in nats if S grows tenfold, by a straight line in log10 S"),
    "miller_madow": Term(
        "H(P) + (ranks that occur - 1)/(2 tokens), which corrects a part of the bias of H(P)", "H(P), Miller-Madow"
    ),
    "rank_share": Term("E[ln R] / CE", form=".1%"),
    "nats": Term("the part in nats per token"),
    "part": Term("the part of cross-entropy"),
    "A": Term("factor of the law: the part at S = 1"),
    "R2": Term("share of the variance that the law (in logarithms) or the line explains", "R²"),
    "sizes": Term("number of sizes"),
}


class CeParts(Analyzer):
    """The parts of cross-entropy by two exact identities, their laws in size, and their shares of its fall."""

    cost: ClassVar[int] = 3
    margin: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """the exponents of a part and of CE count as equal if they differ by less than this share of CE's exponent"""

    def analyze(self, runs: Runs) -> Report:
        """Split the cross-entropy of every measurement. Laws need 2 sizes; their intervals need 3."""
        report = Report(GLOSSARY)
        rows: list[dict[str, Any]] = []

        def load(family: Family, run_id: str) -> PartSums:
            pieces = runs.rank_pieces(run_id, ["document", "rank", "logprob"])
            try:
                return part_sums(pieces, runs.histogram(run_id))
            except WithoutRanks:
                raise
            except RbptrackError as error:  # an identity fails if the ranks and the histogram are of different runs
                raise Unreadable(str(error)) from error

        reading = read_families(runs, load)
        for family, sizes in reading:
            for i, size in enumerate(sizes):
                parts = dict(zip(PARTS, mean_parts(size.sums.sum(axis=0)).tolist(), strict=True))
                parts["miller_madow"] = parts["error_entropy"] + size.miller_madow / size.runs
                parts["rank_share"] = parts["rank"] / parts["ce"]
                rows.append({**family.keys, "size": family.labels[i], "S": family.s[i], **parts})
                if np.isnan(parts["rank"]):
                    report.notes.append(
                        f"{family}, {family.labels[i]}: E[ln R] and E[-ln(pR)] are unknown, because "
                        "some p(target) is above 1/R."
                    )
            if len(sizes) > 1:
                sums = [size.sums for size in sizes]
                clause = f"no intervals: {why_no_interval(sums)}" if len(sizes) == 2 else few_documents_clause(sizes)
                if clause:
                    report.notes.append(f"{family}: {clause}.")
                self._add_laws(report, family, sums)
                _add_lines(report, family, sums)
                _add_shares(report, family, sums)
        report.notes += reading.notes
        if not rows:
            return report
        report.tables["parts"] = pd.DataFrame(rows)
        report.headline = _headline(report)
        _draw(report)
        return report

    def _add_laws(self, report: Report, family: Family, sums: Sequence[FloatArray]) -> None:
        """Add the exponent of each part that is positive at every size, and its difference from that of CE.

        sums: the sums of each size as in `PartSums`, m arrays of (documents, 1 + parts).
        """
        ce_law, *other_laws = laws(family.s, sums, lambda x: mean_parts(x)[..., :PARTS_WITH_LAW])
        if not ce_law:
            return
        margin = self.margin * abs(ce_law.alpha.value)
        ratios = laws(family.s, sums, lambda x: mean_parts(x)[..., :PARTS_WITH_LAW] / mean_parts(x)[..., :1])
        for part, law, ratio in zip(PARTS, [ce_law, *other_laws], ratios, strict=False):
            if not law:
                continue
            beside = {"A": law.a, "R2": law.r2, "sizes": law.sizes}
            report.add("alpha", _drop_error_of_kl(part, law.alpha), metric=part, beside=beside, **family.keys)
            if ratio and part not in ("ce", KL):
                report.add("delta", ratio.alpha, metric=part, null=0.0, margin=margin, **family.keys)


def _add_lines(report: Report, family: Family, sums: Sequence[FloatArray]) -> None:
    """Add the change of each part in nats if S grows tenfold, by a straight line in log10 S."""
    # `laws` fits ln y against ln x. With y = exp(-part) and x = exp(log10 S), its exponent is the slope of the part.
    lines = laws(np.exp(np.log10(family.s)), sums, lambda x: np.exp(-mean_parts(x)))
    for part, line in zip(PARTS, lines, strict=True):
        if line:
            slope = _drop_error_of_kl(part, line.alpha)
            report.add("per_decade", slope, metric=part, beside={"R2": line.r2}, **family.keys)


def _add_shares(report: Report, family: Family, sums: Sequence[FloatArray]) -> None:
    """Add each part's share of the fall of CE with size, if the interval of CE's exponent lies above 0.

    A share is the slope of a regression of the part on CE, with one point for each size. The shares of each identity
    add up to 1.
    """
    [law] = laws(family.s, sums, lambda x: mean_parts(x)[..., :1])
    if not law or not law.alpha.interval()[0] > 0:
        report.notes.append(
            f"{family}: CE's exponent has no interval above 0. It is not certain that CE falls with size, so its fall "
            "is not divided into parts."
        )
        return
    values = np.stack([mean_parts(size_sums.sum(axis=0)) for size_sums in sums])  # (m, parts)
    ce = values[:, 0]
    slopes = (ce - ce.mean()) @ values / ((ce - ce.mean()) ** 2).sum()
    # What remains of a part without slope * CE has the slope 0 against CE. This slope has the error of the share.
    lines = laws(np.exp(ce), sums, lambda x: np.exp(slopes * mean_parts(x)[..., :1] - mean_parts(x)))
    for part, slope, line in zip(PARTS, slopes.tolist(), lines, strict=True):
        if line and part != "ce":
            share = replace(line.alpha, value=slope)
            report.add("share", _drop_error_of_kl(part, share), metric=part, **family.keys)


def _drop_error_of_kl(part: str, estimate: Estimate) -> Estimate:
    """Return the estimate, without its error if the part is KL. The bias of KL is larger than its error."""
    return estimate.without_error() if part == KL else estimate


def _headline(report: Report) -> str:
    if "share" not in report.questions:
        rank_shares = report.tables["parts"]["rank_share"].dropna()
        if not len(rank_shares):
            return ""
        share = range_text(rank_shares, ".0%")
        return f"E[ln R], the part that depends on ranks only, is {share} of cross-entropy."
    shares = report.frame("share").groupby("metric")["share"]
    entropy = range_text(shares.get_group("error_entropy"), ".0%")
    if "rank" not in shares.groups:
        return f"The entropy of ranks, H(P), makes up {entropy} of the fall of cross-entropy with size."
    ranks = range_text(shares.get_group("rank"), ".0%")
    return (
        f"E[ln R] makes up {ranks} of the fall of cross-entropy with size. "
        f"In the decomposition of arXiv 2510.04067, the entropy of ranks, H(P), makes up {entropy}."
    )


def _draw(report: Report) -> None:
    """Draw the parts against S, and their shares of the fall of CE."""
    nats = "nats per token"
    parts = report.tables["parts"].melt(["family", "dataset", "size", "S"], list(PARTS), "part", nats).dropna()
    parts["part"] = parts["part"].map(lambda part: PARTS[part].title)
    parts["panel"] = parts["family"] + " on " + parts["dataset"]
    report.figures["parts"] = facets(parts, x="S", y=nats, colour="part", facet="panel", null=0.0)
    if "share" in report.questions:
        title = "share of the fall of CE"
        shares = report.frame("share").rename(columns={"share": title})
        report.figures["share"] = intervals(shares, x=title, y="metric", null=0.0)
