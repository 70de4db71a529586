"""Cross-entropy in three parts, and which of them scales: CE = H(P) + KL(P || Q^) - ln Z_Q.

"What Scales in Cross-Entropy Scaling Law?", arXiv 2510.04067: P(e) is the share of tokens with rank e, Q(e) = exp(mean
ln p(target) given rank e), Z_Q the sum of Q(e) over observed e, Q^ = Q/Z_Q. The parts are error entropy, self-alignment
and confidence. The identity is exact; -ln Z_Q may be negative, and its logarithm is never taken then.

Computed from a sample, H(P) is too low and KL too high by more than their standard errors. So the parts stand twice:
plug-in, as the paper defines them, and corrected, which is what the laws, shares and sentences here are of.

The correction takes P and Q for smooth in the rank and removes the remaining bias by the jackknife over documents. In
simulation, 95% intervals around the plug-in KL cover 0 to 90%, around the corrected one 90 to 98%. With ranks in
fewer than eight bins neither H(P) nor KL can be determined. Shares of the fall of CE are slopes of a part against CE,
and add up to 1. Where a part is not positive at every size, its change in nats per factor 10 in S is given instead of
an exponent.

`claims` tests arXiv 2510.04067: the law of part / CE has the difference of the two exponents, tested for difference
and for equivalence within `margin`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from rbptrack.analysis import Analyzer, Drawing, RbptrackError, Report, Runs, Unreadable
from rbptrack.analysis.families import KEYS, Family, read_families
from rbptrack.analysis.findings import Reason, Remark, Verdict, around, corrected, within_margin
from rbptrack.analysis.rows import exponent
from rbptrack.stats.contrasts import verdict_of

from .decomposition import Decomposition, decompose_pieces
from .figures import draw_parts
from .findings import FollowsAPowerLaw, ScalesAsCE, ShareOfFall
from .parts import FITS, NATS, Parts, parts_of
from .rows import SE, SUMMARY, claim_rows, law_rows, part_rows, summary_row


@dataclass(kw_only=True)
class ErrorEntropy(Analyzer):
    """CE = error entropy + self-alignment - ln confidence; which part scales.

    Attributes:
        margin: a part scales as CE where their exponents differ by less than this share of CE's.
        level: nominal coverage of the intervals; tests have size 1 - level.

    """

    name: ClassVar[str] = "error_entropy"
    margin: float = 0.1
    level: float = 0.95

    def analyze(self, runs: Runs) -> Report:
        """Decompose every measurement; laws need at least 3 sizes."""
        report = Report(summary="summary")

        def load(_: Family, run_id: str) -> Decomposition:
            try:
                return decompose_pieces(runs.rank_pieces(run_id, version=1), runs.histogram(run_id))
            except Unreadable:
                raise
            except RbptrackError as error:
                raise Unreadable(f"run {run_id}: {error}") from error

        families = [
            parts_of(family, loaded, margin=self.margin, level=self.level)
            for family, loaded in read_families(runs, load, report.notes)
        ]
        if not families:
            raise report.nothing_found("no measurement to decompose")
        rows = [row for parts in families for row in part_rows(parts)]
        laws = [row for parts in families for row in law_rows(parts, level=self.level)]
        claims = corrected((claim for parts in families for claim in _against_ce(parts)), self._verdict)
        sizes = {name: KEYS[name] for name in ("dataset", "family", "size")}
        report.add_table("summary", map(summary_row, rows), sizes | SUMMARY)
        nats: dict[str, str] = {}
        for part, meaning in NATS.items():
            nats |= {part: meaning, f"{part}_se": SE}
        report.add_table("parts", rows, KEYS | nats)
        report.add_rows("laws", laws)
        report.add_rows("claims", (row for parts in families for row in claim_rows(parts, claims)))
        for part in NATS:
            report.add_metrics(f"{part}/{{family}}/{{dataset}}/{{size}}", rows, part)
        for quantity in ("alpha", "r2"):
            report.add_metrics(f"{quantity}/{{family}}/{{dataset}}/{{part}}", laws, quantity)
        report.findings += claims
        report.findings += [finding for parts in families for finding in _scaling(parts)]
        report.findings += [finding for parts in families for finding in _shares(parts)]
        for parts in (parts for parts in families if len(parts.family.s) < 3):
            there = len(parts.family.s)
            text = f"{parts.family}: which part of CE scales needs 3 sizes; found {there}."
            report.notes.append(Remark(text, Reason.FEW_SIZES, needed=3, there=there))
        for name in sorted({parts.family.name for parts in families}):
            report.drawings[f"parts_{name}"] = Drawing(
                draw_parts([parts for parts in families if parts.family.name == name]),
                "Parts of CE, corrected for bias. Right: those that are positive at every size, with their laws.",
            )
        return report

    def _verdict(self, claim: ScalesAsCE) -> Verdict:
        verdict = Verdict(verdict_of(claim.p_corrected, claim.p_equivalent, size=1 - self.level))
        return within_margin(verdict, claim.interval, claim.margin)


def _against_ce(parts: Parts) -> Iterator[ScalesAsCE]:
    """Yield whether each part scales as cross-entropy does: what its share in CE does as models grow."""
    for part, word in parts.tested.items():
        if contrast := parts.against_ce.get(part):
            smallest, largest = parts.share_of_ce(part)
            yield ScalesAsCE(
                case=parts.family.keys | {"part": word},
                p=contrast.p_different,
                margin=contrast.margin,
                p_equivalent=contrast.p_equivalent,
                share_smallest=smallest,
                share_largest=largest,
                **around(contrast.difference),
            )


def _scaling(parts: Parts) -> Iterator[FollowsAPowerLaw]:
    """Yield which parts follow a falling power law, and why the others do not."""
    for part, word in parts.tested.items() if len(parts.family.s) >= 3 else ():
        law = parts.laws.get(part)
        case = parts.family.keys | {"part": word}
        if law is None:
            yield FollowsAPowerLaw(case=case, verdict=Verdict.NO, reason="not positive")
            continue
        reason = "poor fit" if law.r2 < FITS else ""
        if law.low <= 0:
            reason = "grows" if law.high < 0 else "flat"
        verdict = Verdict.NO if reason else Verdict.YES
        yield FollowsAPowerLaw(case=case, verdict=verdict, reason=reason, r2=law.r2, **around(exponent(law)))


def _shares(parts: Parts) -> Iterator[ShareOfFall]:
    """Yield the parts' shares in CE's fall over all sizes, or the reason why they are missing."""
    ce = parts.values["ce"]
    if len(ce) < 3:
        return
    reason = "" if parts.is_corrected else "too few ranks"
    if ce[0] <= ce[-1]:
        reason = "CE does not fall"
    if reason or not parts.shares:
        yield ShareOfFall(case=parts.family.keys, reason=reason or "within sampling error")
        return
    bias = parts.values["self_alignment"] / parts.values["self_alignment_corrected"]
    for part, word in parts.tested.items():
        yield ShareOfFall(
            case=parts.family.keys | {"part": word},
            bias_low=float(bias.min()),
            bias_high=float(bias.max()),
            **around(parts.shares[part]),
        )
