"""Estimate how good a model is as the draft model of a larger one in speculative decoding.

Source: Leviathan et al., arXiv 2211.17192. The analyzer reads measurements with `reference=`. The reference is the
large model, and the measured model is its draft model. Both read the texts of the dataset. Acceptance may differ on
text that the reference writes itself.

p and q are the probabilities of a token v in the two models. Acceptance is the mean over positions of the sum over v of
min(p, q). One call of the reference gives the accepted tokens of a draft, and one token that the reference chooses
itself. The number of accepted tokens is computed from products of consecutive acceptances. This does not assume that
tokens are independent. The speed-up follows from this number by theorem 3.8: (accepted + 1) / (L c + 1), for drafts of
L tokens and a cost c per drafted token.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

import numpy as np
import pandas as pd
from pydantic import Field, PositiveInt, model_validator

from rbptrack.analysis import (
    Analyzer,
    Family,
    Glossary,
    Report,
    Runs,
    Term,
    clip_share,
    counted,
    format_number,
    listed,
    read_families,
    short_hash,
)
from rbptrack.figures import facets
from rbptrack.ranks import FloatArray, IntArray, RankTable
from rbptrack.stats import Estimate, Sums, estimate, first_largest, laws

GLOSSARY: Glossary = {
    "acceptance": Term("expected share of drafted tokens that the reference accepts: mean of min(p, q)", form=".3f"),
    "tokens_per_call": Term("tokens per call of the reference: accepted tokens and one of its own", form=".2f"),
    "speed_up": Term("speed with drafts of the best length over speed without drafts", "speed-up", ".2f"),
    "kl": Term("KL(reference || model), nats per token", "KL", ".4g"),
    "alpha": Term("exponent of -ln acceptance = A S^-alpha", "α", ".3f"),
    "reference": "the large model",
    "length": "number of tokens of a draft",
    "best_length": Term("the number of tokens of a draft at which the speed-up is largest", "best length"),
    "cost": Term("time of a step of the draft model divided by the time of a call of the reference", form=".3f"),
    "independent": Term("tokens per call if each token were accepted independently of the others", form=".2f"),
}
# The columns of the sums by document, which `draft_sums` returns.
TOKENS = 0  # number of scored tokens
KL = 1  # sum of KL(reference || model), nats
ACCEPT = 2  # sum of the probabilities of acceptance
STARTS = 3  # number of drafts
RUNS = 4  # this column and the next ones: expected number of drafts whose first 1, 2, ... tokens are all accepted


class Draft(Analyzer):
    """Acceptance, tokens per call and speed-up of models as drafts of a larger model, and acceptance by size."""

    length: PositiveInt = 5
    """number of tokens of a draft"""

    longest: Annotated[int, Field(ge=1, le=100)] = 12
    """the longest draft to try in the search for the best length"""

    step_cost: Annotated[float, Field(ge=0)] = 0.0
    """time of a step of the draft model divided by that of a call of the reference; 0: estimated from the parameters"""

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        if self.length > self.longest:
            raise ValueError(f"length={self.length} must be at most longest={self.longest}")
        return self

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        measured = runs.frame[runs.frame["reference"].notna()]
        if not len(measured):
            report.notes.append("No measurement has a reference: measure a draft with reference=MODEL.")
            return report
        lengths: list[dict[str, Any]] = []

        def load(family: Family, run_id: str) -> Sums:
            pieces = runs.rank_pieces(run_id, ["document", "position", "kl", "accept"])
            return Sums.concatenate([Sums(piece.documents[0], draft_sums(piece, self.longest)) for piece in pieces])

        commits = measured["reference_commit"].fillna("unknown")
        for (name, commit), rows in measured.groupby(["reference", commits]):
            has_several_commits = commits[measured["reference"] == name].nunique() > 1
            reference = f"{name}@{short_hash(str(commit))}" if has_several_commits else str(name)
            reading = read_families(runs[runs.frame.index.isin(rows.index)], load)
            for family, sizes in reading:
                sums = [size.sums for size in sizes]
                lengths += self._add_sizes(report, family, sums, reference)
                _add_law(report, family, sums, reference)
            report.notes += reading.notes
        if not report.questions:
            return report
        if self.step_cost:
            report.notes.append(
                f"The speed-up assumes that a step of the draft model takes {self.step_cost:g} of the time of a call "
                "of the reference (step_cost=)."
            )
        else:
            report.notes.append(
                "The speed-up assumes that times are proportional to parameters, which ignores memory bandwidth and "
                "kernels; step_cost= sets a measured cost."
            )
        report.tables["lengths"] = pd.DataFrame(lengths)
        rows = report.frame("acceptance").rename(columns={"S": "S of the draft"})
        report.figures["acceptance"] = facets(rows, x="S of the draft", y="acceptance", facet="reference")
        if "speed_up" in report.questions:
            speed_ups = report.frame("speed_up")
            best = speed_ups.iloc[first_largest(speed_ups["speed_up"].to_numpy(np.float64))]
            drafts = f"with drafts of {counted(int(best['best_length']), 'token')}"
            speed_up = format_number(best["speed_up"], ".2f")
            draft = f"{best['family']}-{best['size']} on {best['dataset']}"
            if best["speed_up"] > 1:
                report.headline = f"{draft} speeds {best['reference']} up most: {speed_up} times {drafts}."
            else:
                report.headline = f"No draft speeds {best['reference']} up: at best {speed_up} times, {draft} {drafts}."
        return report

    def _add_sizes(
        self, report: Report, family: Family, sums: list[FloatArray], reference: str
    ) -> list[dict[str, Any]]:
        """Add acceptance, KL, tokens per call and speed-up of each size, and return rows of the table of lengths.

        sums: the sums of each size from `draft_sums`, m arrays of (documents, RUNS + longest).
        """
        rows = []
        sizes_without_cost = []
        costs = family.column("total_params") / family.column("reference_params")
        for i, size_sums in enumerate(sums):
            cost = self.step_cost or float(costs[i])
            keys: dict[str, Any] = {**family.keys, "size": family.labels[i], "reference": reference}
            accepted_share = estimate(size_sums, acceptance)
            report.add("acceptance", accepted_share, **keys, show=clip_share, beside={"S": float(family.s[i])})
            kl = estimate(size_sums, lambda x: x[..., KL] / x[..., TOKENS])
            report.add("kl", kl, **keys, show=lambda nats: max(nats, 0.0))
            if not size_sums[:, STARTS].any():
                report.notes.append(
                    f"{family}: no document has {self.longest} scored tokens in a row; use a smaller longest=."
                )
                continue
            per_call = tokens_per_call(size_sums, self.length)
            report.add("tokens_per_call", per_call, **keys, beside={"length": self.length})
            speed_ups = []
            for length in range(1, self.longest + 1):
                tokens = tokens_per_call(size_sums, length).value
                independent = sum(accepted_share.value**j for j in range(length + 1))
                speed_up = tokens / (length * cost + 1)
                speed_ups.append(speed_up)
                numbers = {"tokens_per_call": tokens, "independent": independent, "cost": cost, "speed_up": speed_up}
                rows.append(keys | {"length": length} | numbers)
            if np.isfinite(cost):
                best_length = 1 + first_largest(speed_ups)
                largest = tokens_per_call(size_sums, best_length, time=best_length * cost + 1)
                report.add("speed_up", largest, **keys, beside={"best_length": best_length, "cost": cost})
            else:
                sizes_without_cost.append(family.labels[i])
        if sizes_without_cost:
            report.notes.append(
                f"{family}: the speed-up of {reference} by {listed(sizes_without_cost)} is unknown, because the number "
                "of parameters of one of the two is unknown; step_cost= sets a cost."
            )
        return rows


def _add_law(report: Report, family: Family, sums: list[FloatArray], reference: str) -> None:
    """Add the exponent of -ln acceptance, if there are several sizes."""
    if len(sums) > 1:
        [law] = laws(family.s, sums, lambda x: -np.log(acceptance(x)))
        if law is not None:
            report.add("alpha", law.alpha, **family.keys, reference=reference, null=0.0, beside={"R2": law.r2})


def acceptance(sums: FloatArray) -> FloatArray:
    """Return the acceptance, (...). sums: the columns of `draft_sums`, (..., columns)."""
    return np.asarray(sums[..., ACCEPT] / sums[..., TOKENS])


def draft_sums(table: RankTable, longest: int) -> FloatArray:
    """Compute sums by document of a rank table that was measured with a reference.

    A draft of `longest` tokens begins at each token that starts a run of `longest` scored tokens without a gap. Each of
    its tokens is accepted with the probability `accept`. The draft ends at the first token that is rejected.

    Returns:
        An array (documents, RUNS + longest) with the columns TOKENS, KL, ACCEPT, STARTS and RUNS.

    """
    present, document = table.documents
    accept = table.column("accept").astype(np.float64)
    starts = _draft_starts(document, table.column("position"), longest)
    columns = np.zeros((len(present), RUNS + longest))
    columns[:, TOKENS] = table.sum_by_document()
    columns[:, KL] = table.sum_by_document(table.column("kl"))
    columns[:, ACCEPT] = table.sum_by_document(accept)
    columns[:, STARTS] = np.bincount(document[starts], minlength=len(present))
    all_accepted = np.ones(len(starts))  # the probability that all tokens of the draft so far are accepted
    for j in range(longest):
        all_accepted = all_accepted * accept[starts + j]
        columns[:, RUNS + j] = np.bincount(document[starts], weights=all_accepted, minlength=len(present))
    return columns


def tokens_per_call(sums: FloatArray, length: int, *, time: float = 1.0) -> Estimate:
    """Estimate the tokens per call of the reference, divided by `time`.

    Args:
        sums: sums by document from `draft_sums`.
        length: number of tokens of a draft.
        time: the time of drafting and one call of the reference, in calls of the reference. The result is then the
            speed-up. With 1, it is the tokens per call.

    """
    return estimate(sums, lambda x: (x[..., RUNS : RUNS + length].sum(axis=-1) / x[..., STARTS] + 1) / time)


def _draft_starts(document: IntArray, position: IntArray, length: int) -> IntArray:
    """Return the indices of the tokens that begin a run of `length` tokens of one document without a gap."""
    last = np.arange(length - 1, len(position))
    first = last - (length - 1)
    is_run = (document[first] == document[last]) & (position[last] - position[first] == length - 1)
    return np.asarray(first[is_run])
